"""Extensions: named bundles of what an application adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar, final

import attrs

from pidurable_actors.agent._hooks import Hook
from pidurable_actors.agent._sections import Section
from pidurable_actors.agent._tool import Tool
from pidurable_actors.errors import DefinitionError
from pidurable_actors.runtime import TaskActor

__all__ = ["Extension", "TaskClass"]

T = TypeVar("T")
TaskClass: TypeAlias = type[TaskActor[Any, Any]]


def _listed(given: Iterable[T], name: str) -> tuple[T, ...]:
    if not isinstance(given, Iterable):
        raise DefinitionError(f"an extension takes a list: {name}=[...], not {given!r}.")
    return tuple(given)


# Typed, because mypy cannot tell what a bare `tuple` makes of its argument.
def _tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    return _listed(tools, "tools")


def _tasks(tasks: Iterable[TaskClass]) -> tuple[TaskClass, ...]:
    return _listed(tasks, "tasks")


def _sections(sections: Iterable[Section]) -> tuple[Section, ...]:
    return _listed(sections, "sections")


def _hooks(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    return _listed(hooks, "hooks")


@final
@attrs.frozen
class Extension:
    """A named bundle of what an application adds.

    Args:
        name: its identity in a registry.
        tools: tools that models, or other tools, may call.
        tasks: task classes.
        sections: parts of the system prompt.
        hooks: code that is asked in the course of a run; see `hook`.
        wrap_tool: makes of each tool, whichever extension it is from, the one that is offered and
            run; see `Tool.around`. Wrappers apply in the order of the extensions.
        wrap_section: the same for sections; it returns one of the same key.

    Raises:
        DefinitionError: the name is empty, a part is not what it should be, a tool name, task kind
            or section key comes twice, or a task kind starts with ``pi.``, which belongs to the
            package.
    """

    name: str
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=_tools, kw_only=True)
    tasks: tuple[TaskClass, ...] = attrs.field(default=(), converter=_tasks, kw_only=True)
    sections: tuple[Section, ...] = attrs.field(default=(), converter=_sections, kw_only=True)
    hooks: tuple[Hook, ...] = attrs.field(default=(), converter=_hooks, kw_only=True)
    wrap_tool: Callable[[Tool], Tool] | None = attrs.field(default=None, kw_only=True)
    wrap_section: Callable[[Section], Section] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"an extension needs a name, which {name!r} is not.")
        for tool in self.tools:
            _check_tool(self.name, tool)
        for what, kind, found in (
            ("section", Section, self.sections),
            ("hook", Hook, self.hooks),
        ):
            for value in found:
                if not isinstance(value, kind):
                    raise DefinitionError(
                        f"extension {self.name!r}: {value!r} is not a {what}; "
                        f"make it with the decorator {what}."
                    )
        for task in self.tasks:
            _check_task(self.name, task)
        for wrapper in (self.wrap_tool, self.wrap_section):
            if wrapper is not None and not callable(wrapper):
                raise DefinitionError(f"extension {self.name!r}: {wrapper!r} wraps nothing.")
        _refuse_twice(self.name, "tool", [tool.name for tool in self.tools])
        _refuse_twice(self.name, "section", [section.key for section in self.sections])
        kinds = [task.definition.kind for task in self.tasks]
        _refuse_twice(self.name, "task kind", kinds)
        for kind_name in kinds:
            if kind_name.startswith("pi."):
                raise DefinitionError(
                    f"extension {self.name!r}: task kind {kind_name!r} starts with 'pi.', which "
                    "belongs to the package; choose another prefix."
                )


def _check_tool(extension: str, tool: object) -> None:
    if not isinstance(tool, Tool):
        raise DefinitionError(
            f"extension {extension!r}: {tool!r} is not a tool; decorate it with @tool()."
        )
    if tool.replay == "reconcile" and tool.on_reconcile is None:
        raise DefinitionError(
            f"tool {tool.name!r}: replay='reconcile' needs a handler; "
            f"add one with @{tool.name}.reconcile."
        )


def _check_task(extension: str, task: object) -> None:
    if not (isinstance(task, type) and issubclass(task, TaskActor)):
        raise DefinitionError(f"extension {extension!r}: {task!r} is not a TaskActor class.")


def _refuse_twice(extension: str, what: str, names: list[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise DefinitionError(
                f"extension {extension!r}: {what} {name!r} comes {count} times; "
                "names are identities, give each its own."
            )
