"""Imports go down the floor plan and never up, whatever their form.

The plan is data. Imports are read from the syntax tree, so one inside a function, under
``TYPE_CHECKING`` or through ``import_module`` counts like any other.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import Final

import attrs
import pytest

from tests.project.checkout import NAME, Source, listed, parse, sources

_LEVEL_0: Final = frozenset(
    {"errors", "context", "settings", "_clock", "_frozen", "_json", "_limits"}
)
_TO_1: Final = _LEVEL_0 | {"records"}
_TO_2: Final = _TO_1 | {"storage", "models", "env"}
_TO_3: Final = _TO_2 | {"session"}
_TO_4: Final = _TO_3 | {"runtime"}
_TO_6: Final = _TO_4 | {"actors", "agent", "tools", "tasks", "views"}
_TO_7: Final = _TO_6 | {"harness"}
_TO_8: Final = _TO_7 | {"remote", "cli"}

MAY_IMPORT: Final = {
    **dict.fromkeys(_LEVEL_0, _LEVEL_0),
    "records": _LEVEL_0,
    # Seams are strangers to each other.
    "storage": _TO_1,
    "models": _TO_1,
    "env": _TO_1,
    # Only the storage protocol: see `_only_the_protocol`.
    "session": _TO_1 | {"storage"},
    "runtime": _TO_3,
    # They meet through protocols in `runtime`.
    "actors": _TO_4,
    "agent": _TO_4,
    "tools": _TO_4 | {"agent"},
    "tasks": _TO_4 | {"agent", "tools"},
    # What is watched is made from commits and the agent's documents; the handles give it out.
    "views": _TO_4 | {"agent"},
    "harness": _TO_6,
    "remote": _TO_7,
    "cli": _TO_7 | {"remote"},
    # The front door stands above all rooms, so a room that imports from it looks up.
    "": _TO_8,
    "testing": _TO_8 | {""},
}
"""Who may import whom; `""` is the front door, and nobody may import `testing`."""

NO_TRIO: Final = "session"
PROTOCOL: Final = f"{NAME}.storage"


@attrs.frozen
class Import:
    """One imported module, as a dotted name, and the line that asks for it."""

    module: str
    line: int


def test_imports_never_go_up() -> None:
    offenders = [offence for source in sources(NAME) for offence in _offences(source)]
    assert not offenders, listed(offenders)


def test_every_module_has_a_place_in_the_plan() -> None:
    rooms = {_room(source.module): source.path for source in sources(NAME)}
    homeless = [
        f"{path}: {room!r} has no level" for room, path in rooms.items() if room not in MAY_IMPORT
    ]
    assert not homeless, listed(homeless)


def test_the_plan_has_no_cycle_above_level_0() -> None:
    for room, below in MAY_IMPORT.items():
        both = {other for other in below - _LEVEL_0 if room in MAY_IMPORT[other]}
        assert not both, f"{room!r} and {both} may import each other"


def test_examples_use_only_doors() -> None:
    offenders = [
        f"{source.at(found.line)}: imports {found.module}"
        for source in sources("examples")
        for found in _imports(source)
        if _is_ours(found.module) and "._" in found.module
    ]
    assert not offenders, listed(offenders)


@pytest.mark.parametrize(
    ("module", "text", "reason"),
    [
        (
            "records._tasks",
            "from pidurable_actors.session import Line",
            "records may not import session",
        ),
        ("models.openai", "import pidurable_actors.env", "models may not import env"),
        ("session._line", "import trio", "session may not import trio"),
        ("session._line", "from trio.abc import Clock", "session may not import trio"),
        (
            "session._line",
            "from pidurable_actors.storage.memory import M",
            "only the storage protocol",
        ),
        (
            "session._line",
            "from pidurable_actors.storage import memory",
            "only the storage protocol",
        ),
        ("actors._shell", "from pidurable_actors import agent", "actors may not import agent"),
        (
            "agent._agent",
            "def f():\n    import pidurable_actors.actors",
            "agent may not import actors",
        ),
        ("tools.read", "from pidurable_actors.tasks import tool", "tools may not import tasks"),
        ("tasks.tool", "from pidurable_actors.actors import X", "tasks may not import actors"),
        ("views._view", "from pidurable_actors.remote import X", "views may not import remote"),
        ("remote.server", "import pidurable_actors.cli", "remote may not import cli"),
        ("cli._render", "from pidurable_actors.testing import X", "cli may not import testing"),
        (
            "cli._render",
            "from pidurable_actors import open_harness",
            "cli may not import the front door",
        ),
        (
            "harness._inbox",
            "from pidurable_actors.records._ids import X",
            "a private file of records",
        ),
        (
            "harness._inbox",
            "from pidurable_actors.records import _ids",
            "a private file of records",
        ),
        ("runtime._runtime", "from ..harness import X", "runtime may not import harness"),
        (
            "errors",
            "if TYPE_CHECKING:\n    from pidurable_actors.records import X",
            "errors may not import",
        ),
        (
            "storage._lane",
            'import_module("pidurable_actors.harness")',
            "storage may not import harness",
        ),
    ],
)
def test_the_check_sees_through_every_form_of_import(module: str, text: str, reason: str) -> None:
    (offence,) = _offences(parse(text, f"{NAME}.{module}"))
    assert reason in offence


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("records._tasks", "from pidurable_actors.records._ids import TaskId"),
        ("records._tasks", "from ._ids import TaskId"),
        ("storage.sqlite", "from pidurable_actors._limits import LIMITS"),
        ("storage.sqlite", "from pidurable_actors import _limits, errors"),
        ("session._line", "from pidurable_actors.storage import Storage"),
        ("session._line", "from pidurable_actors.records.codec import encode"),
        ("tasks.tool", "from pidurable_actors.tools import read"),
        ("cli._render", "from pidurable_actors.remote import client"),
        ("testing.crash", "from pidurable_actors import open_harness"),
    ],
)
def test_the_check_lets_imports_down_the_plan_pass(module: str, text: str) -> None:
    assert list(_offences(parse(text, f"{NAME}.{module}"))) == []


def _offences(source: Source) -> Iterator[str]:
    room = _room(source.module)
    for found in _imports(source):
        reason = _refusal(room, found.module)
        if reason:
            yield f"{source.at(found.line)}: {reason}"


def _refusal(room: str, target: str) -> str | None:
    """Why `room` may not import the module `target`, or None."""
    if room == NO_TRIO and target.startswith("trio"):
        return f"{room} may not import {target}"
    if not _is_ours(target) or _room(target) == room:
        return None
    other = _room(target)
    if other not in MAY_IMPORT.get(room, ()):
        return f"{room or 'the front door'} may not import {other or 'the front door'}"
    if room == "session" and other == "storage" and target != PROTOCOL:
        return f"session may import only the storage protocol, not {target}"
    if any(part.startswith("_") for part in target.split(".")[2:]):
        return f"{target} is a private file of {other}: import from the room"
    return None


def _imports(source: Source) -> Iterator[Import]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = _base(source, node)
            for module in {_imported(base, alias.name) for alias in node.names}:
                yield Import(module, node.lineno)
        elif isinstance(node, ast.Call) and node.args and _name(node.func) in _IMPORTERS:
            (first, *_) = node.args
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Import(first.value, node.lineno)


_IMPORTERS: Final = frozenset({"import_module", "__import__"})


def _base(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = source.module.split(".")
    up = node.level - source.is_package
    return ".".join([*package[: len(package) - up], *([node.module] if node.module else [])])


def _imported(base: str, name: str) -> str:
    """What ``from base import name`` asks for: `base`, or the module of that name in it."""
    inner = f"{base}.{name}"
    planned = base == NAME and name in MAY_IMPORT
    return inner if planned or name.startswith("_") or inner in _modules() else base


@functools.cache
def _modules() -> frozenset[str]:
    return frozenset(source.module for source in sources(NAME))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_ours(module: str) -> bool:
    return module == NAME or module.startswith(f"{NAME}.")


def _room(module: str) -> str:
    """The first name below the package: a room, a file of level 0, or `""` for the front door."""
    return module.removeprefix(NAME).removeprefix(".").split(".")[0]
