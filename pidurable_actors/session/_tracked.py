"""What stands for the lists, mappings and growing texts of a document.

Each is a view of one cursor with the methods of the built-in type and its equality by value. In a
draft its changes become delta operations; of a stored value it refuses them. What is put in is
copied; what is taken out (`pop`) is a plain copy of its own.

Size: every method of `list` and of `dict`, each a few lines; apart they would say less.
"""

from __future__ import annotations

import operator
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    MutableSequence,
    ValuesView,
)
from copy import deepcopy
from itertools import count
from operator import index
from typing import Any, Generic, Protocol, Self, SupportsIndex, TypeVar, cast, final, overload

from pidurable_actors._frozen import FrozenDict, FrozenList, FrozenText, Value
from pidurable_actors._json import add_encoder, check_text
from pidurable_actors.errors import InvalidValue
from pidurable_actors.records import Path
from pidurable_actors.session._cursors import Cursor, Journal, path_text

__all__ = ["Plan", "Text", "TrackedDict", "TrackedList", "Unfit", "dump_at", "refusal"]

T = TypeVar("T")


class Unfit(Exception):
    """A value that a plan refuses: why, and the keys that lead to it, the innermost first.

    When it is of another type, `wanted` and `found` say which.
    """

    def __init__(self, reason: str, *, wanted: str = "", found: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.wanted = wanted
        self.found = found
        self.keys: list[str | int] = []

    def within(self, key: str | int) -> Unfit:
        """The same, one level further out."""
        self.keys.append(key)
        return self


class Plan(Protocol):
    """How the values of one type are stored, found again and shown."""

    def matches(self, value: Value) -> bool:
        """Whether a stored value is of this type, as far as its outermost level tells."""
        ...

    def dump(self, value: object, depth: int) -> Value:
        """The stored form of a Python value, a copy; `depth` levels are around it.

        Raises:
            Unfit: it is of another type, or not strict JSON.
        """
        ...

    def load(self, value: Value) -> Value:
        """A stored value with what is missing put in.

        Raises:
            Unfit: it is of another type.
        """
        ...

    def read(self, cursor: Cursor, key: str | int) -> Any:
        """What stands for the part at `key` of a cursor."""
        ...

    def copy(self, value: Value) -> Any:
        """A plain Python value of its own."""
        ...


def dump_at(cursor: Cursor, key: str | int, plan: Plan, value: object) -> Value:
    """The stored form of a value that is to be put at `key` of a cursor.

    Raises:
        InvalidValue: it cannot be stored there; the path names the part.
        TransactionClosed, MisuseError: nothing can be changed through the cursor.
    """
    journal = cursor.begin_change()
    try:
        return plan.dump(value, len(cursor.path()) + 1)
    except Unfit as unfit:
        raise refusal(journal, (*cursor.path(), key), unfit) from None


def refusal(journal: Journal, path: Path, unfit: Unfit) -> InvalidValue:
    """What a callback is told of a value that does not fit at a path of a document."""
    where = path_text(journal.name, (*path, *reversed(unfit.keys)))
    return InvalidValue(where, unfit.reason)


@final
class TrackedList(MutableSequence[T], Generic[T]):
    """A list of a document; behaves like `list`, and equals one with the same items."""

    __slots__ = ("_item", "cursor")

    def __init__(self, cursor: Cursor, item: Plan) -> None:
        self.cursor = cursor
        self._item = item

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> list[T]: ...

    def __getitem__(self, at: SupportsIndex | slice) -> T | list[T]:
        self.cursor.check()
        if isinstance(at, slice):
            return [self._item.read(self.cursor, index) for index in self._indexes(at)]
        return cast("T", self._item.read(self.cursor, self._index(at)))

    @overload
    def __setitem__(self, at: SupportsIndex, value: T) -> None: ...

    @overload
    def __setitem__(self, at: slice, value: Iterable[T]) -> None: ...

    def __setitem__(self, at: SupportsIndex | slice, value: T | Iterable[T]) -> None:
        if not isinstance(at, slice):
            self.cursor.check()
            index = self._index(at)
            known = self.cursor.children.get(index)
            # `items[0] += [1]` sets the very list that it changed in place.
            if known is None or known.bound is not value:
                self.cursor.put(index, dump_at(self.cursor, index, self._item, value))
            return
        given = list(cast("Iterable[T]", value))
        indexes = self._indexes(at)
        if indexes.step == 1:
            items = self._dumped(count(indexes.start), given)
            self.cursor.splice(indexes.start, len(indexes), items)
            return
        if len(indexes) != len(given):
            raise ValueError(
                f"attempt to assign sequence of size {len(given)} "
                f"to extended slice of size {len(indexes)}"
            )
        items = self._dumped(indexes, given)
        for index, item in zip(indexes, items, strict=True):
            self.cursor.put(index, item)

    def __delitem__(self, at: SupportsIndex | slice) -> None:
        self.cursor.begin_change()
        if not isinstance(at, slice):
            self.cursor.splice(self._index(at), 1)
            return
        indexes = self._indexes(at)
        if indexes.step == 1:
            self.cursor.splice(indexes.start, len(indexes))
            return
        gone = set(indexes)
        self.cursor.reorder([index for index in range(len(self)) if index not in gone])

    def insert(self, index: SupportsIndex, value: T) -> None:
        """Put a value before an index."""
        start = slice(operator.index(index), None).indices(len(self))[0]
        self.cursor.splice(start, 0, [dump_at(self.cursor, start, self._item, value)])

    def append(self, value: T) -> None:
        """Put a value at the end."""
        end = len(self)
        self.cursor.splice(end, 0, [dump_at(self.cursor, end, self._item, value)])

    def extend(self, values: Iterable[T]) -> None:
        """Put values at the end."""
        # All at once, because it may be this very list, or change it on the way.
        given = list(values)
        end = len(self)
        self.cursor.splice(end, 0, self._dumped(count(end), given))

    def pop(self, index: SupportsIndex = -1) -> T:
        """Take an item out; a plain copy of it."""
        at = self._index(index)
        value: T = self._item.copy(self.cursor.item(at))
        self.cursor.splice(at, 1)
        return value

    def clear(self) -> None:
        """Take everything out."""
        self.cursor.splice(0, len(self))

    def copy(self) -> list[T]:
        """A plain list of the same items."""
        return list(self)

    def reverse(self) -> None:
        """Turn the order round."""
        self.cursor.reorder(range(len(self) - 1, -1, -1))

    def sort(self, *, key: Callable[[T], Any] | None = None, reverse: bool = False) -> None:
        """Sort as `list.sort` does."""
        items = list(self)
        keys: list[Any] = [*items] if key is None else [key(item) for item in items]
        order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
        if len(self) != len(items):
            raise ValueError("list modified during sort")
        self.cursor.reorder(order)

    def __len__(self) -> int:
        self.cursor.check()
        return len(cast("FrozenList", self.cursor.value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrackedList | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> bool:
        return list(self) < list(other) if _is_list(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return list(self) <= list(other) if _is_list(other) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return list(self) > list(other) if _is_list(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return list(self) >= list(other) if _is_list(other) else NotImplemented

    def __add__(self, other: list[T] | TrackedList[T]) -> list[T]:
        return [*self, *other] if _is_list(other) else NotImplemented

    def __radd__(self, other: list[T]) -> list[T]:
        return [*other, *self] if _is_list(other) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[T]:
        return list(self) * times

    __rmul__ = __mul__

    def __imul__(self, times: SupportsIndex) -> Self:
        here = list(cast("FrozenList", self.cursor.settled()))
        if index(times) < 1:
            self.cursor.splice(0, len(here))
        else:
            self.cursor.splice(len(here), 0, here * (index(times) - 1))
        return self

    def __repr__(self) -> str:
        return repr(list(self))

    def __copy__(self) -> list[T]:
        return list(self)

    def __deepcopy__(self, _: object) -> list[T]:
        self.cursor.check()
        return [self._item.copy(value) for value in cast("FrozenList", self.cursor.settled())]

    def _index(self, at: SupportsIndex) -> int:
        place, length = index(at), len(self)
        if place < 0:
            place += length
        if not 0 <= place < length:
            raise IndexError("list index out of range")
        return place

    def _indexes(self, at: slice) -> range:
        return range(*at.indices(len(self)))

    def _dumped(self, places: Iterable[int], values: list[T]) -> list[Value]:
        self.cursor.begin_change()
        return [
            dump_at(self.cursor, at, self._item, value)
            for at, value in zip(places, values, strict=False)
        ]


def _is_list(value: object) -> bool:
    return isinstance(value, TrackedList | list)


@final
class TrackedDict(MutableMapping[str, T], Generic[T]):
    """A mapping of a document; behaves like `dict`, and equals one with the same items."""

    __slots__ = ("_item", "cursor")

    def __init__(self, cursor: Cursor, item: Plan) -> None:
        self.cursor = cursor
        self._item = item

    def __getitem__(self, key: str) -> T:
        self.cursor.check()
        if key not in self._here:
            raise KeyError(key)
        return cast("T", self._item.read(self.cursor, key))

    def __setitem__(self, key: str, value: T) -> None:
        self.cursor.begin_change()
        self._check_key(key)
        known = self.cursor.children.get(key)
        if known is None or known.bound is not value:
            self.cursor.put(key, dump_at(self.cursor, key, self._item, value))

    def __delitem__(self, key: str) -> None:
        self.cursor.begin_change()
        if key not in self._here:
            raise KeyError(key)
        self.cursor.remove(key)

    def pop(self, key: str, *default: Any) -> Any:
        """Take a key out; a plain copy of what was there."""
        if len(default) > 1:
            raise TypeError(f"pop expected at most 2 arguments, got {1 + len(default)}")
        self.cursor.begin_change()
        if key not in self._here:
            if default:
                return default[0]
            raise KeyError(key)
        # Copied first: should its class refuse the copy, nothing was taken out.
        value = self._item.copy(self.cursor.item(key))
        self.cursor.remove(key)
        return value

    def popitem(self) -> tuple[str, T]:
        """Take the newest key out."""
        self.cursor.begin_change()
        if not self._here:
            raise KeyError("the mapping is empty")
        key = next(reversed(self._here))
        return key, self.pop(key)

    @overload
    def setdefault(self: TrackedDict[T | None], key: str, default: None = None) -> T | None: ...

    @overload
    def setdefault(self, key: str, default: T) -> T: ...

    def setdefault(self, key: str, default: Any = None) -> Any:
        """What is there, after putting `default` there if nothing was."""
        self.cursor.check()
        if key not in self._here:
            self[key] = default
        # Read again: what stands for the part is not the object that was put in.
        return self[key]

    def update(self, other: Any = (), /, **more: T) -> None:
        """Put every item of a mapping, or of pairs, here; all of them or none."""
        self.cursor.begin_change()
        given: dict[str, T] = dict(other, **more)
        found: list[tuple[str, Value]] = []
        for key, value in given.items():
            self._check_key(key)
            known = self.cursor.children.get(key)
            if known is None or known.bound is not value:
                found.append((key, dump_at(self.cursor, key, self._item, value)))
        for key, dumped in found:
            self.cursor.put(key, dumped)

    def clear(self) -> None:
        """Take everything out."""
        self.cursor.clear()

    def copy(self) -> dict[str, T]:
        """A plain mapping of the same items."""
        return dict(self)

    def keys(self) -> KeysView[str]:
        """Its keys, in order, as they are when they are looked at."""
        return _Keys(self)

    def values(self) -> ValuesView[T]:
        """Its values, likewise."""
        return _Values(self)

    def items(self) -> ItemsView[str, T]:
        """Its keys with their values, likewise."""
        return _Items(self)

    def __iter__(self) -> Iterator[str]:
        self.cursor.check()
        return self._keys(iter(self._here))

    def __reversed__(self) -> Iterator[str]:
        self.cursor.check()
        return self._keys(reversed(self._here))

    def __len__(self) -> int:
        self.cursor.check()
        return len(self._here)

    def __contains__(self, key: object) -> bool:
        self.cursor.check()
        return key in self._here

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrackedDict | dict):
            return NotImplemented
        return len(self) == len(other) and all(
            key in other and self[key] == other[key] for key in self
        )

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: dict[str, T] | TrackedDict[T]) -> dict[str, T]:
        return {**self, **other} if _is_dict(other) else NotImplemented

    def __ror__(self, other: dict[str, T]) -> dict[str, T]:
        return {**other, **self} if _is_dict(other) else NotImplemented

    def __ior__(self, other: Mapping[str, T] | Iterable[tuple[str, T]]) -> Self:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(dict(self))

    def __copy__(self) -> dict[str, T]:
        return dict(self)

    def __deepcopy__(self, _: object) -> dict[str, T]:
        self.cursor.check()
        here = cast("FrozenDict", self.cursor.settled())
        return {key: self._item.copy(value) for key, value in here.items()}

    @property
    def _here(self) -> FrozenDict:
        # Keys alone are asked of it; what is below may be newer.
        return cast("FrozenDict", self.cursor.value)

    def _keys(self, keys: Iterator[str]) -> Iterator[str]:
        length = len(self._here)
        for key in keys:
            yield key
            if len(self) != length:
                raise RuntimeError("dictionary changed size during iteration")

    def _check_key(self, key: object) -> None:
        try:
            check_text(key, "key")
        except InvalidValue as error:
            where = path_text(self.cursor.begin_change().name, self.cursor.path())
            reason = error.reason if isinstance(key, str) else "must be a string"
            raise InvalidValue(where, f"the key {key!a}: {reason}") from None


class _Keys(KeysView[str]):
    _mapping: Mapping[str, Any]  # set by MappingView

    def __reversed__(self) -> Iterator[str]:
        return reversed(cast("TrackedDict[Any]", self._mapping))


class _Values(ValuesView[T]):
    _mapping: Mapping[str, T]  # set by MappingView

    def __reversed__(self) -> Iterator[T]:
        here = cast("TrackedDict[T]", self._mapping)
        return (here[key] for key in reversed(here))


class _Items(ItemsView[str, T]):
    _mapping: Mapping[str, T]  # set by MappingView

    def __reversed__(self) -> Iterator[tuple[str, T]]:
        here = cast("TrackedDict[T]", self._mapping)
        return ((key, here[key]) for key in reversed(here))


def _is_dict(value: object) -> bool:
    return isinstance(value, TrackedDict | dict)


@final
class Text:
    """A text that grows: appending costs what is appended, in time, in storage and for observers.

    Declare a field of a document as `Text`. Equal to a `str` of the same characters; ``str(text)``
    gives them. Lengths and places are in characters (code points).

    Args:
        text: what it begins with.
    """

    __slots__ = ("_own", "cursor")

    def __init__(self, text: str = "") -> None:
        check_text(text, "text")
        self.cursor: Cursor | None = None
        self._own = FrozenText(text)

    @classmethod
    def at(cls, cursor: Cursor) -> Text:
        """What stands for a text of a document."""
        made = cls()
        made.cursor = cursor
        return made

    def append(self, text: str | Text) -> None:
        """Put more at the end.

        Raises:
            InvalidValue: it is no text that can be stored.
        """
        if isinstance(text, Text):
            text = str(text)
        cursor = self.cursor
        if cursor is None:
            check_text(text, "text")
            self._own = self._own.append(text)
        else:
            check_text(text, path_text(cursor.begin_change().name, cursor.path()))
            cursor.append_text(text)

    def trim_front(self, count: int) -> None:
        """Take the first `count` characters away, all of them when there are fewer.

        Raises:
            InvalidValue: `count` is negative, or no whole number.
        """
        given: object = count
        if not isinstance(given, int) or count < 0:
            raise InvalidValue("count", f"a text is trimmed by 0 or more characters, not {count}")
        if self.cursor is None:
            self._own = self._own.trim_front(min(count, len(self)))
        else:
            self.cursor.trim_text(min(count, len(self)))

    def since(self, at: int) -> str:
        """What comes from a place on, at the price of what comes from there on."""
        here, at = self.stored, max(0, at)
        return here.since(at) if isinstance(here, FrozenText) else here[at:]

    def __str__(self) -> str:
        return str(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def __contains__(self, part: str) -> bool:
        return part in str(self)

    def __iadd__(self, text: str | Text) -> Self:
        self.append(text)
        return self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Text):
            return bool(self.stored == other.stored)
        if isinstance(other, str):
            return str(self) == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Text({str(self)!r})"

    def __copy__(self) -> Text:
        return Text(str(self))

    def __deepcopy__(self, _: object) -> Text:
        return Text(str(self))

    @property
    def stored(self) -> FrozenText | str:
        """What it holds, immutable."""
        if self.cursor is None:
            return self._own
        self.cursor.check()
        return cast("FrozenText | str", self.cursor.value)


add_encoder(TrackedList, deepcopy)
add_encoder(TrackedDict, deepcopy)
add_encoder(Text, str)
