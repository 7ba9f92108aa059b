"""Delta operations: how one JSON value becomes the next.

Owns the six operations, their stored form and what they mean. They are part of the public format:
documents are stored as a base and a tail of them, and observers get the very same ones. Pure: a
value is never changed, the next one shares with it whatever an operation does not touch.

A path leads from the root to the part: keys of mappings and indexes of lists. Counts of text are in
characters (code points). Invariant: an operation that was made for a value applies to it, and
applying a list of them is applying them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final, Literal, TypeAlias, cast

import attrs

from pidurable_actors._frozen import FrozenDict, FrozenList, FrozenText, Value, freeze
from pidurable_actors._json import JSON, encode_json

__all__ = [
    "AppendText",
    "DeleteKey",
    "Operation",
    "Path",
    "ReplaceRoot",
    "SetValue",
    "SpliceList",
    "TrimText",
    "apply_operations",
    "below",
    "diff",
    "operations_from_json",
    "same_ends",
    "same_json",
]

Path: TypeAlias = tuple[str | int, ...]


@attrs.frozen
class SetValue:
    """Set a key of a mapping, or replace an item of a list that exists."""

    path: Path
    value: Value
    op: Literal["set"] = attrs.field(default="set", init=False)


@attrs.frozen
class DeleteKey:
    """Take a key out of a mapping."""

    path: Path
    op: Literal["delete"] = attrs.field(default="delete", init=False)


@attrs.frozen
class AppendText:
    """Put `text` at the end of a text."""

    path: Path
    text: str
    op: Literal["append"] = attrs.field(default="append", init=False)


@attrs.frozen
class TrimText:
    """Take the first `count` characters from a text."""

    path: Path
    count: int
    op: Literal["trim"] = attrs.field(default="trim", init=False)


@attrs.frozen
class SpliceList:
    """Take `delete` items from `start` on out of a list, and put `items` there."""

    path: Path
    start: int
    delete: int
    items: tuple[Value, ...]
    op: Literal["splice"] = attrs.field(default="splice", init=False)


@attrs.frozen
class ReplaceRoot:
    """Replace the whole value."""

    value: Value
    op: Literal["replace"] = attrs.field(default="replace", init=False)

    @property
    def path(self) -> Path:
        """The root's: empty, and not stored."""
        return ()


Operation: TypeAlias = SetValue | DeleteKey | AppendText | TrimText | SpliceList | ReplaceRoot


def apply_operations(value: Value, operations: Iterable[Operation]) -> Value:
    """The value after the operations, in order.

    Args:
        value: what they were made for.
        operations: what to do.

    Raises:
        ValueError: one does not fit the value.
    """
    for operation in operations:
        try:
            if isinstance(operation, ReplaceRoot):
                value = operation.value
            else:
                value = _at(value, operation.path, 0, operation)
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{operation!r} does not fit the value") from error
    return value


def _at(value: Value, path: Path, depth: int, operation: Operation) -> Value:
    """The value with an operation done at what the rest of the path leads to."""
    if depth == len(path):
        return _do(value, operation)
    key = path[depth]
    if isinstance(value, FrozenDict) and isinstance(key, str):
        if depth + 1 == len(path):
            if isinstance(operation, SetValue):
                return value.put(key, operation.value)
            if isinstance(operation, DeleteKey):
                return value.without(key)
        return value.put(key, _at(value[key], path, depth + 1, operation))
    if isinstance(value, FrozenList) and isinstance(key, int) and 0 <= key < len(value):
        if depth + 1 == len(path) and isinstance(operation, SetValue):
            return value.replace(key, operation.value)
        return value.replace(key, _at(value[key], path, depth + 1, operation))
    raise LookupError(key)


def _do(value: Value, operation: Operation) -> Value:
    match operation:
        case AppendText():
            return FrozenText.of(value).append(operation.text)
        case TrimText():
            text = FrozenText.of(value)
            if not 0 <= operation.count <= len(text):
                raise LookupError(operation.count)
            return text.trim_front(operation.count)
        case SpliceList() if isinstance(value, FrozenList):
            if not 0 <= operation.start <= operation.start + operation.delete <= len(value):
                raise LookupError(operation.start)
            return value.splice(operation.start, operation.delete, operation.items)
        case _:
            raise TypeError(f"{operation.op} of {type(value).__name__}")


def below(prefix: Path, operation: Operation) -> Operation:
    """The same operation for a value that holds the old one at `prefix`, which is not empty."""
    if isinstance(operation, ReplaceRoot):
        return SetValue(prefix, operation.value)
    return attrs.evolve(operation, path=(*prefix, *operation.path))


# --- differences ---


def diff(before: Value, after: Value, path: Path = ()) -> list[Operation]:
    """Operations that lead from one value to another: small where the difference is.

    Args:
        before: the value that they apply to.
        after: the value that they make.
        path: where both are, put before each operation's own path.
    """
    operations: list[Operation] = []
    _compare(before, after, path, operations)
    return operations


def _compare(before: Value, after: Value, path: Path, found: list[Operation]) -> None:
    if before is after:
        return
    if isinstance(before, FrozenDict) and isinstance(after, FrozenDict):
        _compare_dicts(before, after, path, found)
    elif isinstance(before, FrozenList) and isinstance(after, FrozenList):
        _compare_lists(before, after, path, found)
    elif isinstance(before, str | FrozenText) and isinstance(after, str | FrozenText):
        _compare_texts(str(before), str(after), path, found)
    elif type(before) is not type(after) or not same_json(before, after):
        found.append(_replace(path, after))


def _compare_dicts(
    before: FrozenDict, after: FrozenDict, path: Path, found: list[Operation]
) -> None:
    # Setting a key that exists keeps its place, so only other orders need more than their keys.
    kept = [key for key in before if key in after]
    if (
        kept != [key for key in after if key in before][: len(kept)]
        or [*after][: len(kept)] != kept
    ):
        found.append(_replace(path, after))
        return
    found.extend(DeleteKey((*path, key)) for key in before if key not in after)
    for key, value in after.items():
        if key in before:
            _compare(before[key], value, (*path, key), found)
        else:
            found.append(SetValue((*path, key), value))


def _compare_lists(
    before: FrozenList, after: FrozenList, path: Path, found: list[Operation]
) -> None:
    old, new = list(before), list(after)
    head, tail = same_ends(old, new)
    if len(old) - head - tail == len(new) - head - tail == 1:
        _compare(old[head], new[head], (*path, head), found)
    elif len(old) != len(new) or head < len(old):
        items = tuple(new[head : len(new) - tail])
        found.append(SpliceList(path, head, len(old) - head - tail, items))


def same_ends(old: Sequence[Value], new: Sequence[Value]) -> tuple[int, int]:
    """How many items two lists share at their beginning, and of the rest at their end."""
    both = min(len(old), len(new))
    head = sum(1 for _ in takewhile(lambda at: same_json(old[at], new[at]), range(both)))
    rest = range(1, both - head + 1)
    tail = sum(1 for _ in takewhile(lambda at: same_json(old[-at], new[-at]), rest))
    return head, tail


def _compare_texts(before: str, after: str, path: Path, found: list[Operation]) -> None:
    if before == after:
        return
    # Setting a key costs its name again: only what is long is worth the search.
    if before and after.startswith(before):
        found.append(AppendText(path, after[len(before) :]) if path else ReplaceRoot(after))
    else:
        found.append(_replace(path, after))


def _replace(path: Path, value: Value) -> Operation:
    return SetValue(path, value) if path else ReplaceRoot(value)


def same_json(one: Value, other: Value) -> bool:
    """Whether two values are stored as the same text; Python calls 1, 1.0 and True equal."""
    if one is other:
        return True
    if isinstance(one, FrozenDict | FrozenList) and isinstance(other, FrozenDict | FrozenList):
        return one == other and encode_json(one) == encode_json(other)
    if isinstance(one, str | FrozenText) or isinstance(other, str | FrozenText):
        return bool(one == other)
    if type(one) is not type(other) or one != other:
        return False
    # Of the numbers only the zeros are equal and yet written differently: 0.0 and -0.0.
    return one != 0 or repr(one) == repr(other)


# --- stored form ---


def operations_from_json(value: JSON) -> tuple[Operation, ...]:
    """Build operations from their stored form, a list of objects.

    Raises:
        ValueError: it is not one.
    """
    if not isinstance(value, list):
        raise ValueError("not a list of delta operations")  # noqa: TRY004 - a bad value
    try:
        return tuple(_BUILD[cast(str, item["op"])](item) for item in cast("list[_Object]", value))
    except (LookupError, TypeError) as error:
        raise ValueError("not a list of delta operations") from error


_Object: TypeAlias = Mapping[str, JSON]


def _path(item: _Object) -> Path:
    path = cast("Sequence[str | int]", item["path"])
    if not isinstance(path, list) or not all(isinstance(key, str | int) for key in path):
        raise TypeError("path")
    return tuple(path)


def _text_in(item: _Object) -> str:
    if not isinstance(text := item["text"], str):
        raise TypeError("text")
    return text


def _count_in(item: _Object, name: str) -> int:
    if not isinstance(count := item[name], int):
        raise TypeError(name)
    return count


def _splice(item: _Object) -> Operation:
    items = tuple(map(freeze, cast("list[JSON]", item["items"])))
    return SpliceList(_path(item), _count_in(item, "start"), _count_in(item, "delete"), items)


_BUILD: Final[Mapping[str, Callable[[_Object], Operation]]] = {
    "set": lambda item: SetValue(_path(item), freeze(item["value"])),
    "delete": lambda item: DeleteKey(_path(item)),
    "append": lambda item: AppendText(_path(item), _text_in(item)),
    "trim": lambda item: TrimText(_path(item), _count_in(item, "count")),
    "splice": _splice,
    "replace": lambda item: ReplaceRoot(freeze(item["value"])),
}
