"""What leaves through the doors: complete, sorted, through one door each, and documented.

The contract of a method that a seam's protocol declares is written once, at the protocol; a class
that has every member of that protocol need not repeat it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import combinations
from types import ModuleType
from typing import Final

import attrs

from tests.project.checkout import NAME, doors, listed

_PROMISES: Final = ("Durability", "Cancellation")


@attrs.frozen(kw_only=True)
class Documented:
    """A public class, function or method.

    Attributes:
        name: its public path, such as ``pidurable_actors.harness.Harness.root``.
        excused: whether a protocol holds its contract.
    """

    name: str
    value: object
    excused: bool = False


def test_every_door_has_a_sorted_list_that_equals_reality() -> None:
    offenders = [offence for module in doors().values() for offence in _list_offences(module)]
    assert not offenders, listed(offenders)


def test_a_name_leaves_through_one_door() -> None:
    # The front door repeats what the rooms offer; that is what it is for.
    rooms = {name: module for name, module in doors().items() if name != NAME}
    offenders = [
        f"{shared} leaves through {one} and {other}"
        for (one, first), (other, second) in combinations(sorted(rooms.items()), 2)
        for shared in sorted({*_exports(first)} & {*_exports(second)})
        if getattr(first, shared, None) is getattr(second, shared, None)
        and not other.startswith(f"{one}.")
    ]
    assert not offenders, listed(offenders)


def test_the_front_door_only_repeats_what_a_room_offers() -> None:
    offered = {
        name for door, module in doors().items() if door != NAME for name in _exports(module)
    }
    offenders = [
        f"{NAME}.{name} comes from no room"
        for name in _exports(doors()[NAME])
        if name not in offered and not name.startswith("__")
    ]
    assert not offenders, listed(offenders)


def test_a_room_shows_its_public_path_for_all_names_or_for_none() -> None:
    for door, module in doors().items():
        owners = {name: value.__module__ for name, value in _classes_and_functions(module)}
        private = sorted(name for name, owner in owners.items() if owner != door)
        if hasattr(module, "__path__") and len(private) < len(owners):
            assert not private, f"{door} sets __module__, but not for: {listed(private)}"


def test_everything_public_has_a_docstring() -> None:
    offenders = {it.name for it in _public() if not it.excused and not _own_doc(it.value)}
    assert not offenders, listed(sorted(offenders))


def test_every_public_async_call_promises_durability_and_cancellation() -> None:
    offenders = {
        f"{it.name} lacks {' and '.join(missing)}"
        for it in _public()
        if not it.excused and _is_async(it.value) and (missing := _missing_promises(it.value))
    }
    assert not offenders, listed(sorted(offenders))


def test_the_check_of_promises_knows_all_forms_of_async_and_both_sections() -> None:
    async def silent() -> None:
        """Does it."""

    async def half() -> None:
        """Does it.

        Durability: stored on return.
        """

    async def generator() -> AsyncIterator[None]:
        """Yields."""
        yield

    assert _is_async(silent)
    assert _is_async(generator)
    assert _is_async(functools.wraps(silent)(lambda: None))
    assert not _is_async(_is_async)
    assert _missing_promises(silent) == ["Durability", "Cancellation"]
    assert _missing_promises(half) == ["Cancellation"]


def _exports(module: ModuleType) -> list[str]:
    return list(getattr(module, "__all__", ()))


def _list_offences(module: ModuleType) -> Iterator[str]:
    door = module.__name__
    names = _exports(module)
    if not hasattr(module, "__all__"):
        yield f"{door} has no __all__"
    if names != sorted(names, key=_order):
        yield f"{door}.__all__ is not sorted: constants, classes, then the rest (ruff's RUF022)"
    for name in names:
        if not hasattr(module, name):
            yield f"{door}.{name} is in __all__ and does not exist"
    for name in sorted(_bound(module) - set(names)):
        yield f"{door}.{name} is public and not in __all__"


def _order(name: str) -> tuple[int, str]:
    if name.isupper() and len(name) > 1:
        return 0, name
    return (1 if name[0].isupper() else 2), name


def _bound(module: ModuleType) -> set[str]:
    """The public names a door binds itself: all of a room's, and those a file defines."""
    is_room = hasattr(module, "__path__")
    # What pytest looks for in a plugin is no name of ours.
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name != "pytest_plugins"
        and not isinstance(value, ModuleType)
        and (is_room or getattr(value, "__module__", None) == module.__name__)
    }


def _classes_and_functions(
    module: ModuleType,
) -> Iterator[tuple[str, type | Callable[..., object]]]:
    for name in _exports(module):
        value = getattr(module, name, None)
        if (inspect.isclass(value) or inspect.isfunction(value)) and _is_ours(value):
            yield name, value


def _public() -> Iterator[Documented]:
    for door, module in doors().items():
        for name, value in _classes_and_functions(module):
            yield Documented(name=f"{door}.{name}", value=value)
            if inspect.isclass(value):
                yield from _methods(f"{door}.{name}", value)


def _methods(path: str, cls: type) -> Iterator[Documented]:
    declared = {
        name for members in _protocols().values() if members <= set(dir(cls)) for name in members
    }
    for owner in filter(_is_ours, cls.__mro__):
        for name, value in vars(owner).items():
            function = _function(value)
            if function is not None and not name.startswith("_"):
                # A test of a conformance kit is named for its promise.
                excused = name.startswith("test_") or (name in declared and cls not in _protocols())
                yield Documented(name=f"{path}.{name}", value=function, excused=excused)


@functools.cache
def _protocols() -> dict[type, frozenset[str]]:
    """The members of every exported protocol."""
    found = (value for module in doors().values() for _, value in _classes_and_functions(module))
    return {
        value: frozenset(name for name in vars(value) if not name.startswith("_"))
        for value in found
        if inspect.isclass(value) and getattr(value, "_is_protocol", False)
    }


def _function(value: object) -> object:
    """The function behind a class attribute, or None when it is something else."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, staticmethod | classmethod | functools.cached_property):
        return getattr(value, "__func__", None) or getattr(value, "func", None)
    return value if inspect.isfunction(value) else None


def _is_ours(value: type | Callable[..., object]) -> bool:
    return value.__module__.split(".", maxsplit=1)[0] == NAME


def _own_doc(value: object) -> str:
    doc = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    # Dataclasses and named tuples write their signature where a docstring is missing.
    written = doc and not doc.startswith(f"{getattr(value, '__name__', '')}(")
    return inspect.cleandoc(doc) if doc and written else ""


def _is_async(value: object) -> bool:
    if not callable(value):
        return False
    inner = inspect.unwrap(value)
    return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


def _missing_promises(value: object) -> list[str]:
    doc = _own_doc(value)
    return [word for word in _PROMISES if not re.search(rf"^{word}:", doc, re.MULTILINE)]
