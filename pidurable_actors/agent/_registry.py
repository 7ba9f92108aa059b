"""Extensions and the registry: what this process has installed, by name.

A registry is a value of the process, not of a storage: conversations store names, and a name that
is not installed is skipped or blocks its task until it is. Installing the same extension name again
replaces it, in one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, final

import attrs

from pidurable_actors.agent._tool import Caller, Tool
from pidurable_actors.errors import DefinitionError
from pidurable_actors.runtime import TaskActor

__all__ = ["Extension", "Registry"]

TaskClass: TypeAlias = type[TaskActor[Any, Any]]


# Typed, because mypy cannot tell what a bare `tuple` makes of its argument.
def _tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    return tuple(tools)


def _tasks(tasks: Iterable[TaskClass]) -> tuple[TaskClass, ...]:
    return tuple(tasks)


@final
@attrs.frozen
class Extension:
    """A named bundle of what an application adds.

    Args:
        name: its identity in a registry.
        tools: tools that models, or other tools, may call.
        tasks: task classes.
        wrap_tool: makes of each tool, whichever extension it is from, the one that is offered and
            run; see `Tool.around`. Wrappers apply in the order of the extensions.

    Raises:
        DefinitionError: the name is empty, a tool name or task kind comes twice, or a task kind
            starts with ``pi.``, which belongs to the package.
    """

    name: str
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=_tools, kw_only=True)
    tasks: tuple[TaskClass, ...] = attrs.field(default=(), converter=_tasks, kw_only=True)
    wrap_tool: Callable[[Tool], Tool] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not self.name:
            raise DefinitionError("an extension needs a name.")
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise DefinitionError(
                    f"extension {self.name!r}: {tool!r} is not a tool; decorate it with @tool()."
                )
            if tool.replay == "reconcile" and tool.on_reconcile is None:
                raise DefinitionError(
                    f"tool {tool.name!r}: replay='reconcile' needs a handler; "
                    f"add one with @{tool.name}.reconcile."
                )
        _refuse_twice(self.name, "tool", [tool.name for tool in self.tools])
        kinds = [task.definition.kind for task in self.tasks]
        _refuse_twice(self.name, "task kind", kinds)
        for kind in kinds:
            if kind.startswith("pi."):
                raise DefinitionError(
                    f"extension {self.name!r}: task kind {kind!r} starts with 'pi.', which belongs "
                    "to the package; choose another prefix."
                )


@final
class Registry:
    """The extensions that this process has installed. Several harnesses may share one."""

    def __init__(self, extensions: Iterable[Extension] = ()) -> None:
        self._extensions: dict[str, Extension] = {}
        self._tools: dict[str, Tool] | None = None  # made when first asked for after a change
        self._kinds: dict[str, TaskClass] | None = None
        self._listeners: list[Callable[[], None]] = []
        if not isinstance(extensions, Iterable):
            raise DefinitionError("a registry takes a list: Registry([extension]).")
        for extension in extensions:
            self.install(extension)

    def install(self, extension: Extension) -> None:
        """Install an extension; one of the same name is replaced, and keeps its place in order."""
        self._extensions[extension.name] = extension
        self._tell()

    def uninstall(self, name: str) -> None:
        """Remove an extension; one that is not there is no error. Work under way keeps its code."""
        if self._extensions.pop(name, None) is not None:
            self._tell()

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """What is installed, in order."""
        return tuple(self._extensions.values())

    def task(self, kind: str) -> TaskClass | None:
        """The task class of a kind; the last extension that has it wins."""
        if self._kinds is None:
            self._kinds = {
                task.definition.kind: task
                for extension in self.extensions
                for task in extension.tasks
            }
        return self._kinds.get(kind)

    def tools(self, *, called_by: Caller | None = None) -> dict[str, Tool]:
        """The tools by name; the last extension that has a name wins, and the winner is wrapped.

        Args:
            called_by: leave out those that it may not call.
        """
        if self._tools is None:
            tools = {tool.name: tool for extension in self.extensions for tool in extension.tools}
            for extension in self.extensions:
                tools = {name: _wrapped(extension, tool) for name, tool in tools.items()}
            self._tools = tools
        if called_by is None:
            return dict(self._tools)
        return {name: tool for name, tool in self._tools.items() if called_by in tool.callers}

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every change; returns the call that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _tell(self) -> None:
        self._tools = self._kinds = None
        for listener in tuple(self._listeners):
            listener()


def _wrapped(extension: Extension, tool: Tool) -> Tool:
    if extension.wrap_tool is None:
        return tool
    made: object = extension.wrap_tool(tool)
    if not isinstance(made, Tool) or made.name != tool.name:
        raise DefinitionError(
            f"extension {extension.name!r}: wrap_tool made {made!r} of tool {tool.name!r}; "
            "it must return that tool, or tool.around(code)."
        )
    return made


def _refuse_twice(extension: str, what: str, names: list[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise DefinitionError(
                f"extension {extension!r}: {what} {name!r} comes {count} times; "
                "names are identities, give each its own."
            )
