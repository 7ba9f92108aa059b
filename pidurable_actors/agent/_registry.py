"""The registry: what this process has installed, by name, and what a choice of it comes to.

A registry is a value of the process, not of a storage: conversations store names, and a name that
is not installed is skipped or blocks its task until it is. Installing the same extension name again
replaces it, in one step; work under way keeps the code that it took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, final

import attrs

from pidurable_actors.agent._extension import Extension, TaskClass
from pidurable_actors.agent._hooks import Hook, HookPoint
from pidurable_actors.agent._sections import Section
from pidurable_actors.agent._tool import Caller, Tool
from pidurable_actors.errors import DefinitionError

__all__ = ["BUNDLES_KEPT", "Bundle", "Registry"]

BUNDLES_KEPT: Final = 256
"""Selections that are kept made up; one more and all are made again when they are asked for."""


@attrs.frozen(kw_only=True)
class Bundle:
    """What some extensions come to together.

    Attributes:
        names: the extensions, in order.
        tools: the tools by name; the last extension that has a name wins, and the winner is
            wrapped.
        sections: likewise, each with the name of its extension, in the order of the prompt.
        hooks: by point, each with the name of its extension, in the order in which they run.
    """

    names: tuple[str, ...]
    tools: Mapping[str, Tool]
    sections: tuple[tuple[str, Section], ...]
    hooks: Mapping[HookPoint, tuple[tuple[str, Hook], ...]]


@final
class Registry:
    """The extensions that this process has installed. Several harnesses may share one."""

    def __init__(self, extensions: Iterable[Extension] = ()) -> None:
        self._extensions: dict[str, Extension] = {}
        self._bundles: dict[frozenset[str], Bundle] = {}  # made when first asked for
        self._kinds: dict[str, TaskClass] | None = None
        self._listeners: list[Callable[[], None]] = []
        if not isinstance(extensions, Iterable):
            raise DefinitionError("a registry takes a list: Registry([extension]).")
        for extension in extensions:
            self.install(extension)

    def install(self, extension: Extension) -> None:
        """Install an extension; one of the same name is replaced, and keeps its place in order.

        Raises:
            DefinitionError: it is no extension.
        """
        if not isinstance(extension, Extension):
            raise DefinitionError(f"{extension!r} is not an extension; make it with Extension().")
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

    def select(self, names: Collection[str]) -> Bundle:
        """What some extensions come to; names that are not installed are skipped.

        Raises:
            DefinitionError: a wrapper made of a tool or a section what is none.
        """
        found = frozenset(names).intersection(self._extensions)
        known = self._bundles.get(found)
        if known is None:
            if len(self._bundles) >= BUNDLES_KEPT:
                self._bundles.clear()
            chosen = [it for it in self.extensions if it.name in found]
            known = self._bundles[found] = _bundle(chosen)
        return known

    def tools(self, *, called_by: Caller | None = None) -> dict[str, Tool]:
        """The tools of all extensions by name; see `select`.

        Args:
            called_by: leave out those that it may not call.
        """
        tools = self.select(self._extensions).tools
        return {
            name: tool
            for name, tool in tools.items()
            if called_by is None or called_by in tool.callers
        }

    def has_hooks(self, point: HookPoint) -> bool:
        """Whether any extension has a hook for a point, so that nobody need be asked otherwise."""
        return point in self.select(self._extensions).hooks

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every change; returns the call that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _tell(self) -> None:
        self._kinds = None
        self._bundles.clear()
        for listener in tuple(self._listeners):
            listener()


def _bundle(extensions: list[Extension]) -> Bundle:
    tools = {tool.name: tool for extension in extensions for tool in extension.tools}
    sections = {
        section.key: (extension.name, section)
        for extension in extensions
        for section in extension.sections
    }
    hooks: defaultdict[HookPoint, list[tuple[str, Hook]]] = defaultdict(list)
    for extension in extensions:
        tools = {name: _wrapped_tool(extension, tool) for name, tool in tools.items()}
        sections = {
            key: (owner, _wrapped_section(extension, section))
            for key, (owner, section) in sections.items()
        }
        for hook in extension.hooks:
            hooks[hook.point].append((extension.name, hook))
    return Bundle(
        names=tuple(extension.name for extension in extensions),
        tools=tools,
        sections=tuple(sorted(sections.values(), key=lambda found: found[1].order)),
        hooks={point: tuple(found) for point, found in hooks.items()},
    )


def _wrapped_tool(extension: Extension, tool: Tool) -> Tool:
    if extension.wrap_tool is None:
        return tool
    made: object = extension.wrap_tool(tool)
    if not isinstance(made, Tool) or made.name != tool.name:
        raise DefinitionError(
            f"extension {extension.name!r}: wrap_tool made {made!r} of tool {tool.name!r}; "
            "it must return that tool, or tool.around(code)."
        )
    return made


def _wrapped_section(extension: Extension, section: Section) -> Section:
    if extension.wrap_section is None:
        return section
    made: object = extension.wrap_section(section)
    if not isinstance(made, Section) or made.key != section.key:
        raise DefinitionError(
            f"extension {extension.name!r}: wrap_section made {made!r} of section "
            f"{section.key!r}; it must return a section of that key."
        )
    return made
