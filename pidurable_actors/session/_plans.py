"""Plans for values, lists and mappings: how each is stored, checked and shown.

A value that a callback puts in is checked against its plan at once, so that nothing is stored that
could not be read again. Lists, mappings and `Text` are shown as tracked ones, everything else as a
plain value. The plans of classes are in `_class_plans`.

Profile: most fields are plain values, so these check without a walk when the type is the right one.

Size: one short class for each kind of type; apart they would say less.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeVar, cast, final

import attrs

from pidurable_actors._frozen import (
    EMPTY_LIST,
    FrozenDict,
    FrozenList,
    FrozenText,
    Value,
    freeze,
    thaw,
)
from pidurable_actors._json import check_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import InvalidValue
from pidurable_actors.session._cursors import Cursor
from pidurable_actors.session._tracked import Plan, Text, TrackedDict, TrackedList, Unfit

__all__ = [
    "ChosenPlan",
    "DictPlan",
    "EnumPlan",
    "JsonPlan",
    "ListPlan",
    "OptionalPlan",
    "ScalarPlan",
    "TextPlan",
    "UnionPlan",
    "check_depth",
    "kind_of",
    "load_items",
    "must_be",
    "show",
]

T = TypeVar("T")

_SHOWN: Final = 60
"""Characters of a refused value that an error shows."""

# --- plain values ---


@final
@attrs.frozen
class ScalarPlan:
    """Text, numbers, booleans, None."""

    kind: type[object]

    def matches(self, value: Value) -> bool:
        """Whether it is of this type."""
        kind = type(value)
        if kind is self.kind:
            return True
        return (self.kind is str and kind is FrozenText) or (self.kind is float and kind is int)

    def dump(self, value: object, depth: int) -> Value:
        """Checked; a whole number is taken where a float is asked for."""
        kind = type(value)
        if kind is self.kind and _is_plainly_json(kind, value):
            return cast("Value", value)
        return self._dump_other(value)

    def _dump_other(self, value: object) -> Value:
        if self.kind is str and isinstance(value, Text | FrozenText):
            return str(value)
        if self.kind is float and type(value) is int:
            # Checked as what it is: one past 64 bits may be too large for a float.
            whole = cast("int", _checked(value))
            if int(float(whole)) != whole:
                raise Unfit(f"is a float, which cannot hold {whole} exactly")
            return float(whole)
        if not isinstance(value, self.kind) or (self.kind is int and isinstance(value, bool)):
            raise must_be(_name(self.kind), value)
        return _checked(value)

    def load(self, value: Value) -> Value:
        """Checked; 1 where a float is asked for is 1.0."""
        if self.kind is str and isinstance(value, FrozenText):
            return value
        if self.kind is float and type(value) is int:
            return float(value)
        if type(value) is not self.kind:
            raise must_be(_name(self.kind), value)
        return value

    def read(self, cursor: Cursor, key: str | int) -> Any:
        """The value."""
        return self.copy(cursor.item(key))

    def copy(self, value: Value) -> Any:
        """The value."""
        return _plain(value)


@final
class TextPlan:
    """A text that grows."""

    def matches(self, value: Value) -> bool:
        """Whether it is text."""
        return isinstance(value, str | FrozenText)

    def dump(self, value: object, depth: int) -> Value:
        """Its characters; another `Text` is taken as it is now."""
        if isinstance(value, Text):
            return value.stored
        if not isinstance(value, str):
            raise must_be("Text or str", value)
        return _checked(value)

    def load(self, value: Value) -> Value:
        """Checked."""
        if not isinstance(value, str | FrozenText):
            raise must_be("text", value)
        return value

    def read(self, cursor: Cursor, key: str | int) -> Text:
        """What stands for it."""
        return show(cursor.child(key), Text.at)

    def copy(self, value: Value) -> Text:
        """A text of its own."""
        return Text(str(value))


@final
@attrs.frozen
class ChosenPlan:
    """One of the values of a `Literal`."""

    values: tuple[object, ...]

    def matches(self, value: Value) -> bool:
        """Whether it is one of them."""
        plain = _plain(value)
        return any(type(plain) is type(one) and plain == one for one in self.values)

    def dump(self, value: object, depth: int) -> Value:
        """Checked."""
        return self.load(cast("Value", value))

    def load(self, value: Value) -> Value:
        """Checked."""
        if not self.matches(value):
            raise must_be(f"one of {', '.join(map(repr, self.values))}", value)
        return _plain(value)

    def read(self, cursor: Cursor, key: str | int) -> Any:
        """The value."""
        return self.copy(cursor.item(key))

    def copy(self, value: Value) -> Any:
        """The value."""
        return _plain(value)


@final
@attrs.frozen
class EnumPlan:
    """A member of an enumeration, stored as its value."""

    kind: type[enum.Enum]

    def matches(self, value: Value) -> bool:
        """Whether it is the value of a member."""
        return any(_plain(value) == member.value for member in self.kind)

    def dump(self, value: object, depth: int) -> Value:
        """The member's value."""
        if not isinstance(value, self.kind):
            raise must_be(self.kind.__name__, value)
        return _checked(value.value)

    def load(self, value: Value) -> Value:
        """Checked."""
        try:
            self.kind(_plain(value))
        except ValueError as error:
            raise Unfit(str(error)) from error
        return value

    def read(self, cursor: Cursor, key: str | int) -> enum.Enum:
        """The member."""
        return self.copy(cursor.item(key))

    def copy(self, value: Value) -> enum.Enum:
        """The member."""
        return self.kind(_plain(value))


# --- containers ---


@final
@attrs.frozen
class ListPlan:
    """A list of parts of one type."""

    item: Plan

    def matches(self, value: Value) -> bool:
        """Whether it is a list."""
        return isinstance(value, FrozenList)

    def dump(self, value: object, depth: int) -> Value:
        """A copy; what is stored already is shared."""
        if not isinstance(value, list | TrackedList):
            raise must_be("a list", value)
        check_depth(depth)
        found: list[Value] = []
        for at, item in enumerate(value):
            try:
                found.append(self.item.dump(item, depth + 1))
            except Unfit as unfit:
                raise unfit.within(at) from None
        return FrozenList(found) if found else EMPTY_LIST

    def load(self, value: Value) -> Value:
        """Every item checked."""
        if not isinstance(value, FrozenList):
            raise must_be("a list", value)
        for at, item in enumerate(value):
            try:
                loaded = self.item.load(item)
            except Unfit as unfit:
                raise unfit.within(at) from None
            if loaded is not item:
                value = value.replace(at, loaded)
        return value

    def read(self, cursor: Cursor, key: str | int) -> TrackedList[Any]:
        """What stands for it."""
        return show(cursor.child(key), lambda it: TrackedList(it, self.item))

    def copy(self, value: Value) -> list[Any]:
        """A plain list."""
        return [self.item.copy(item) for item in cast("FrozenList", value)]


@final
@attrs.frozen
class DictPlan:
    """A mapping from text to parts of one type."""

    item: Plan

    def matches(self, value: Value) -> bool:
        """Whether it is a mapping."""
        return isinstance(value, FrozenDict)

    def dump(self, value: object, depth: int) -> Value:
        """A copy; what is stored already is shared."""
        if not isinstance(value, dict | TrackedDict):
            raise must_be("a dict", value)
        check_depth(depth)
        found: dict[str, Value] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise Unfit(f"the key {key!r} must be a string")
            _checked(key)
            try:
                found[key] = self.item.dump(item, depth + 1)
            except Unfit as unfit:
                raise unfit.within(key) from None
        return FrozenDict(found)

    def load(self, value: Value) -> Value:
        """Every item checked."""
        if not isinstance(value, FrozenDict):
            raise must_be("a mapping", value)
        return load_items(value, dict.fromkeys(value, self.item))

    def read(self, cursor: Cursor, key: str | int) -> TrackedDict[Any]:
        """What stands for it."""
        return show(cursor.child(key), lambda it: TrackedDict(it, self.item))

    def copy(self, value: Value) -> dict[str, Any]:
        """A plain dict."""
        items = cast("FrozenDict", value).items()
        return {key: self.item.copy(item) for key, item in items}


@final
class JsonPlan:
    """Any JSON value."""

    def matches(self, value: Value) -> bool:
        """Always."""
        return True

    def dump(self, value: object, depth: int) -> Value:
        """A copy; what is stored already is shared."""
        if isinstance(value, list | TrackedList):
            return ListPlan(self).dump(value, depth)
        if isinstance(value, dict | TrackedDict):
            return DictPlan(self).dump(value, depth)
        if isinstance(value, Text):
            return value.stored
        return _checked(value)

    def load(self, value: Value) -> Value:
        """Anything."""
        return value

    def read(self, cursor: Cursor, key: str | int) -> Any:
        """What stands for it."""
        value = cursor.item(key)
        if isinstance(value, FrozenList):
            return ListPlan(self).read(cursor, key)
        if isinstance(value, FrozenDict):
            return DictPlan(self).read(cursor, key)
        return self.copy(value)

    def copy(self, value: Value) -> Any:
        """A plain value."""
        return thaw(value)


@final
@attrs.frozen
class OptionalPlan:
    """One type, or None."""

    item: Plan

    def matches(self, value: Value) -> bool:
        """Whether it is None or of the type."""
        return value is None or self.item.matches(value)

    def dump(self, value: object, depth: int) -> Value:
        """None, or as the type."""
        return None if value is None else self.item.dump(value, depth)

    def load(self, value: Value) -> Value:
        """None, or as the type."""
        return None if value is None else self.item.load(value)

    def read(self, cursor: Cursor, key: str | int) -> Any:
        """None, or as the type."""
        return None if cursor.item(key) is None else self.item.read(cursor, key)

    def copy(self, value: Value) -> Any:
        """None, or as the type."""
        return None if value is None else self.item.copy(value)


@final
@attrs.frozen
class UnionPlan:
    """One of several types, told apart by what is there."""

    arms: tuple[Plan, ...]

    def matches(self, value: Value) -> bool:
        """Whether it is of one of the types."""
        return any(arm.matches(value) for arm in self.arms)

    def dump(self, value: object, depth: int) -> Value:
        """As the first arm that takes it."""
        refused: list[Unfit] = []
        for arm in self.arms:
            try:
                return arm.dump(value, depth)
            except Unfit as unfit:
                refused.append(unfit)
        raise _most_telling(refused)

    def load(self, value: Value) -> Value:
        """As the arm that it is of."""
        for arm in self.arms:
            if arm.matches(value):
                return arm.load(value)
        raise Unfit(f"is of no type that it may be: {kind_of(value)}")

    def read(self, cursor: Cursor, key: str | int) -> Any:
        """As the arm that it is of."""
        return self._arm(cursor.item(key)).read(cursor, key)

    def copy(self, value: Value) -> Any:
        """As the arm that it is of."""
        return self._arm(value).copy(value)

    def _arm(self, value: Value) -> Plan:
        return next(arm for arm in self.arms if arm.matches(value))


def _most_telling(refused: Sequence[Unfit]) -> Unfit:
    """What to say of a value that no arm takes."""
    # The arm that went deepest is the one that was meant; else one that took the type.
    deepest = max(refused, key=lambda unfit: len(unfit.keys))
    if deepest.keys:
        return deepest
    for unfit in refused:
        if not unfit.wanted:
            return unfit
    wanted = " or ".join(dict.fromkeys(unfit.wanted for unfit in refused))
    return _other_type(wanted, refused[0].found)


# --- checks ---


def _plain(value: Value) -> Value:
    """A text that grew as a `str`, and everything else as it is."""
    return str(value) if type(value) is FrozenText else value


def _is_plainly_json(kind: type, value: Any) -> bool:
    if kind is str:
        return bool(value.isascii())
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    return kind is not float or bool(isfinite(value))


def load_items(value: FrozenDict, plans: Mapping[str, Plan]) -> FrozenDict:
    """A mapping with the parts at some keys loaded; the same object when nothing changed."""
    loaded: dict[str, Value] = {}
    for key, plan in plans.items():
        try:
            item = plan.load(value[key])
        except Unfit as unfit:
            raise unfit.within(key) from None
        if item is not value[key]:
            loaded[key] = item
    return FrozenDict({**value, **loaded}) if loaded else value


def show(cursor: Cursor, make: Callable[[Cursor], T]) -> T:
    """The object that stands for a part; in a draft always the same one."""
    if cursor.bound is None:
        made = make(cursor)
        if cursor.journal is not None:
            cursor.bound = made
        return made
    return cast("T", cursor.bound)


def _checked(value: object) -> Value:
    try:
        check_json(value, "")
    except InvalidValue as error:
        raise Unfit(error.reason) from None
    return freeze(value)


def check_depth(depth: int) -> None:
    """Refuse a container with too many levels around it."""
    if depth >= LIMITS.json_depth:
        raise Unfit(f"nested deeper than {LIMITS.json_depth} levels")


def _name(kind: type[object]) -> str:
    return "None" if kind is type(None) else kind.__name__


def must_be(wanted: str, value: object) -> Unfit:
    """What to say of a value of another type."""
    return _other_type(wanted, kind_of(value))


def _other_type(wanted: str, found: str) -> Unfit:
    return Unfit(f"must be {wanted}, not {found}", wanted=wanted, found=found)


def kind_of(value: object) -> str:
    """How errors call a value that is refused."""
    if isinstance(value, tuple):
        return "a tuple (use a list)"
    if isinstance(value, FrozenList | TrackedList):
        return "list"
    if isinstance(value, FrozenDict | TrackedDict):
        return "dict"
    if not isinstance(value, str | int | float | FrozenText | None):
        return type(value).__name__
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
