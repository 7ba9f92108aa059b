"""The checkout as data: where it lies, its modules parsed once, and its doors.

A door is a module that others may import by name: no part of its dotted name has an underscore in
front. The front door is the package itself; a room is a package below it.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[2]
NAME: Final = "pidurable_actors"


@attrs.frozen(kw_only=True)
class Source:
    """One Python file.

    Attributes:
        path: where it is, relative to the root, for messages.
        module: its dotted name from the root, such as ``pidurable_actors.records`` for a package.
        is_package: whether it is an ``__init__.py``.
    """

    path: str
    module: str
    is_package: bool
    text: str
    tree: ast.Module

    def at(self, line: int) -> str:
        return f"{self.path}:{line}"


@functools.cache
def sources(folder: str) -> tuple[Source, ...]:
    """Every module below a top-level folder; none when it does not exist yet."""
    return tuple(_read(path) for path in sorted((ROOT / folder).rglob("*.py")))


def parse(text: str, module: str, *, is_package: bool = False) -> Source:
    """A module that exists only in a test of a rule."""
    return Source(
        path=f"{module}.py", module=module, is_package=is_package, text=text, tree=ast.parse(text)
    )


def is_door(source: Source) -> bool:
    parts = source.module.split(".")
    return parts[0] == NAME and not any(part.startswith("_") for part in parts)


def doors() -> dict[str, ModuleType]:
    """Every door of the package, imported."""
    found = [source.module for source in sources(NAME) if is_door(source)]
    return {name: importlib.import_module(name) for name in found}


def listed(offenders: Iterable[str]) -> str:
    """All offenders of a rule in one message, empty when there are none."""
    return "".join(f"\n  {offender}" for offender in offenders)


def _read(path: Path) -> Source:
    where = path.relative_to(ROOT)
    parts = where.with_suffix("").parts
    is_package = parts[-1] == "__init__"
    text = path.read_text(encoding="utf-8")
    return Source(
        path=str(where),
        module=".".join(parts[:-1] if is_package else parts),
        is_package=is_package,
        text=text,
        tree=ast.parse(text, str(where)),
    )
