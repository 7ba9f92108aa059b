"""Immutable JSON values that share what did not change.

Owns the three containers of a stored value: `FrozenDict`, `FrozenList` and `FrozenText`. Nothing
here is ever changed once somebody can see it, so a value may be handed to anybody, in any thread,
and the next one is made from it at the price of the difference.

The trick behind cheap growth, for lists and texts alike: a value is a *prefix* of a buffer that
others share. Appending to the newest value writes behind that prefix, where no older value looks;
appending to an older one finds the place taken and copies first. A list keeps its items in chunks,
so that replacing one item copies one chunk and the list of chunks.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import (
    TYPE_CHECKING,
    Final,
    NoReturn,
    Self,
    TypeAlias,
    Union,
    cast,
    final,
    overload,
)

from pidurable_actors._json import JSON, add_encoder, is_scalar_json

__all__ = ["EMPTY_LIST", "FrozenDict", "FrozenList", "FrozenText", "Value", "freeze", "thaw"]

CHUNK: Final = 512
"""Items in a chunk of a list: about the square root of the longest list that stays cheap."""

Value: TypeAlias = Union[None, bool, int, float, str, "FrozenText", "FrozenList", "FrozenDict"]
"""A JSON value nobody can change. A text that grows may be a `str` or a `FrozenText`."""


def freeze(value: object) -> Value:
    """An immutable copy of a checked JSON value; what is immutable already is shared."""
    if isinstance(value, FrozenDict | FrozenList | FrozenText):
        return value
    if isinstance(value, dict):
        items = cast("dict[str, object]", value)
        return FrozenDict({key: freeze(item) for key, item in items.items()})
    if isinstance(value, list):
        items_of = cast("list[object]", value)
        return FrozenList([freeze(item) for item in items_of]) if items_of else EMPTY_LIST
    assert is_scalar_json(value), f"{value!r} was not checked"
    return cast(Value, value)


def thaw(value: Value) -> JSON:
    """A plain copy that the caller may change."""
    if isinstance(value, FrozenDict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, FrozenList):
        return [thaw(item) for item in value]
    if isinstance(value, FrozenText):
        return str(value)
    return value


@final
class FrozenDict(dict[str, Value]):
    """A mapping that refuses every change; `put` and `without` make the next one.

    The next one costs a copy of the keys, some nanoseconds each.
    """

    __slots__ = ()

    def put(self, key: str, value: Value) -> FrozenDict:
        """The same with one key set."""
        copy = FrozenDict(self)
        dict.__setitem__(copy, key, value)
        return copy

    def without(self, key: str) -> FrozenDict:
        """The same without one key, which must be there."""
        copy = FrozenDict(self)
        dict.__delitem__(copy, key)
        return copy

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a stored value is immutable; change it in a commit, with tx.doc")

    if not TYPE_CHECKING:
        # Types know them as those of any mapping.
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Value]]]:
        return FrozenDict, (dict(self),)


if TYPE_CHECKING:
    _Base = Sequence[Value]
else:
    # A class made by ABCMeta is several times slower to ask `isinstance` of.
    _Base = object


@final
class FrozenList(_Base):
    """A list that is never changed.

    Appending costs the append, dropping items at the front next to nothing, replacing one item the
    square root of the length; other changes cost what comes behind them.
    """

    __slots__ = ("_chunks", "_start", "_stop")

    def __init__(self, items: Iterable[Value] = ()) -> None:
        whole = list(items)
        # Every chunk but the last is full, so that an index is found by division.
        self._chunks = [whole[at : at + CHUNK] for at in range(0, len(whole), CHUNK)] or [[]]
        self._start = 0
        self._stop = len(whole)

    @staticmethod
    def _of(chunks: list[list[Value]], start: int, stop: int) -> FrozenList:
        made = FrozenList.__new__(FrozenList)
        # Past the constructor, which copies.
        made._chunks, made._start, made._stop = chunks, start, stop  # noqa: SLF001
        return made

    def extend(self, items: Sequence[Value]) -> FrozenList:
        """The same with more items at its end."""
        if not len(self):
            # A buffer of its own, so that one that everybody begins with is never grown.
            return FrozenList(items)
        chunks = self._chunks
        # Places behind our end are taken when a younger value wrote there first.
        if (len(chunks) - 1) * CHUNK + len(chunks[-1]) != self._stop:
            chunks = self._whole_chunks()
        for item in items:
            if len(chunks[-1]) == CHUNK:
                chunks.append([])
            chunks[-1].append(item)
        return self._of(chunks, self._start, self._stop + len(items))

    def replace(self, at: int, item: Value) -> FrozenList:
        """The same with another item at an index that exists."""
        number, place = divmod(self._start + at, CHUNK)
        chunks = self._whole_chunks()
        chunks[number] = list(chunks[number])
        chunks[number][place] = item
        return self._of(chunks, self._start, self._stop)

    def splice(self, start: int, delete: int, items: Sequence[Value] = ()) -> FrozenList:
        """The same with `delete` items from `start` on taken out and `items` put there."""
        end = start + delete
        if start == 0 and not items:
            return self._without_front(delete)
        if start == len(self):
            return self.extend(items)
        rest = [*items, *self[end:]]
        kept = self._of(self._chunks, self._start, self._start + start)
        return kept.extend(rest) if rest else kept

    def _without_front(self, count: int) -> FrozenList:
        start = self._start + count
        whole = min(start // CHUNK, len(self._chunks) - 1)
        # Full chunks that nobody can see any more are let go of.
        return self._of(self._chunks[whole:], start - whole * CHUNK, self._stop - whole * CHUNK)

    def _whole_chunks(self) -> list[list[Value]]:
        """A list of chunks that ends where this value does; only its last chunk is a new one."""
        number, place = divmod(self._stop, CHUNK)
        chunks = self._chunks[: number + 1]
        if len(chunks) > number:
            chunks[number] = chunks[number][:place]
        return chunks or [[]]

    @overload
    def __getitem__(self, at: int) -> Value: ...

    @overload
    def __getitem__(self, at: slice) -> list[Value]: ...

    def __getitem__(self, at: int | slice) -> Value | list[Value]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            raise IndexError("list index out of range")
        number, place = divmod(self._start + at, CHUNK)
        return self._chunks[number][place]

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[Value]:
        at = self._start
        while at < self._stop:
            number, place = divmod(at, CHUNK)
            # A copy, because a younger value may append to the chunk meanwhile.
            part = self._chunks[number][place : place + self._stop - at]
            yield from part
            at += len(part)

    def __contains__(self, item: object) -> bool:
        return any(map(_equal, self, repeat(item)))

    def __reversed__(self) -> Iterator[Value]:
        return (self[at] for at in range(len(self) - 1, -1, -1))

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """The first place of an item; ValueError when it is nowhere."""
        for at in range(*slice(start, stop).indices(len(self))):
            if _equal(self[at], value):
                return at
        raise ValueError(f"{value!r} is not in the list")

    def count(self, value: object) -> int:
        """How often an item is there."""
        return sum(map(_equal, self, repeat(value)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenList | list):
            return NotImplemented
        return len(self) == len(other) and all(map(_equal, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[FrozenList], tuple[list[Value]]]:
        return FrozenList, (list(self),)


def _equal(one: object, other: object) -> bool:
    return one is other or bool(one == other)


@final
class FrozenText:
    """A text that is never changed, and is cheap to append to and to trim at its front.

    Equal to a `str` of the same characters. Lengths and places are counted in characters.
    """

    __slots__ = ("_state",)

    def __init__(self, text: str = "") -> None:
        # (pieces, first piece, characters of it that are gone, end of our pieces, length). In one
        # attribute, so that another thread sees the old form of a text or its joined one.
        self._state: tuple[list[str], int, int, int, int] = ([text], 0, 0, 1, len(text))

    @staticmethod
    def _of(state: tuple[list[str], int, int, int, int]) -> FrozenText:
        made = FrozenText.__new__(FrozenText)
        made._state = state  # noqa: SLF001
        return made

    @classmethod
    def of(cls, value: Value) -> FrozenText:
        """A stored text in this form; it may be a `str`.

        Raises:
            TypeError: it is no text.
        """
        if isinstance(value, FrozenText):
            return value
        if not isinstance(value, str):
            raise TypeError(f"{type(value).__name__} in place of text")
        return cls(value)

    def append(self, text: str) -> FrozenText:
        """The same with more at its end."""
        pieces, first, gone, end, length = self._state
        if len(pieces) != end:
            pieces, first, end = pieces[first:end], 0, end - first
        pieces.append(text)
        return self._of((pieces, first, gone, end + 1, length + len(text)))

    def trim_front(self, count: int) -> FrozenText:
        """The same without its first characters; `count` is at most the length."""
        pieces, first, gone, end, length = self._state
        left = length - count
        gone += count
        while first < end and gone >= len(pieces[first]):
            gone -= len(pieces[first])
            first += 1
        if first > end // 2 and first > CHUNK:
            pieces, first, end = pieces[first:end], 0, end - first
        return self._of((pieces, first, gone, end, left))

    def since(self, at: int) -> str:
        """What comes from a place on, at the price of what comes from there on."""
        pieces, first, gone, end, length = self._state
        wanted = length - at
        found: list[str] = []
        while wanted > 0:
            end -= 1
            piece = pieces[end][gone:] if end == first else pieces[end]
            found.append(piece[-wanted:])
            wanted -= len(piece)
        return "".join(reversed(found))

    def __str__(self) -> str:
        pieces, first, gone, end, length = self._state
        if end - first == 1 and not gone:
            return pieces[first]
        joined = "".join(pieces[first:end])[gone:]
        # Kept joined: who asks once often asks again, and the pieces take several times its size.
        self._state = ([joined], 0, 0, 1, length)
        return joined

    def __len__(self) -> int:
        return self._state[4]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenText):
            return self is other or (len(self) == len(other) and str(self) == str(other))
        if isinstance(other, str):
            return len(self) == len(other) and str(self) == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(str(self))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[FrozenText], tuple[str]]:
        return FrozenText, (str(self),)


cast("ABCMeta", Sequence).register(FrozenList)

EMPTY_LIST: Final = FrozenList()

add_encoder(FrozenList, list)
add_encoder(FrozenText, str)
