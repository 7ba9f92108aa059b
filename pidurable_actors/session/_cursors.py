"""Cursors: the parts of a document that a callback holds, and the journal of what it changed.

A document opened for change is a tree of cursors over an immutable value, one for each part that
somebody asked for. A change replaces the value of one cursor and is noted in the journal as a delta
operation; the values of the parts around it are made anew only when somebody asks for them. What
looks at a value without changing it (a revision) uses the same cursors without a journal.

Invariant: the value that the document was opened with, after the journal's operations, is the
root's settled value. A part that was taken out of the document, and every part once the callback
is over, refuses to be used.

Size: a cursor is one thing, and the journal is written by nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final, TypeAlias, cast, final

from pidurable_actors._frozen import FrozenDict, FrozenList, FrozenText, Value
from pidurable_actors.errors import MisuseError, TransactionClosed
from pidurable_actors.records import (
    AppendText,
    DeleteKey,
    Operation,
    Path,
    SetValue,
    SpliceList,
    TrimText,
    diff,
    same_ends,
    same_json,
)

__all__ = ["Cursor", "Journal", "path_text"]

_Key: TypeAlias = Any
"""Text in a mapping, an index in a list: which of the two is clear from the value."""

_FEW: Final = 16
"""Assigning a whole part is noted as its differences when there are no more than these."""


def path_text(name: str, path: Path) -> str:
    """How errors name a part, such as ``docs["app.todos"].items[3]``."""
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return name + "".join(parts)


@final
class Journal:
    """What one callback changed of one document.

    Args:
        name: how errors name the document.

    Attributes:
        open: whether the callback is still running.
        lost: about how many characters of the value were replaced or taken away.
    """

    __slots__ = ("_growing", "_operations", "lost", "name", "open")

    def __init__(self, name: str) -> None:
        self.name = name
        self.open = True
        self.lost = 0
        self._operations: list[Operation] = []
        # The last operation while it only grows: where, from which index of a list, and its pieces.
        self._growing: tuple[Path, int | None, list[Value]] | None = None

    def note(self, operation: Operation) -> None:
        """Add an operation."""
        self._settle()
        self._operations.append(operation)

    def grow(self, path: Path, start: int | None, pieces: Sequence[Value]) -> None:
        """Add pieces to the end of a list, of which `start` is the length, or of a text (None)."""
        growing = self._growing
        if growing is not None and growing[:2] == (
            path,
            None if start is None else start - len(growing[2]),
        ):
            growing[2].extend(pieces)
            return
        self._settle()
        self._growing = (path, start, list(pieces))

    def operations(self) -> tuple[Operation, ...]:
        """Everything noted so far, in order."""
        self._settle()
        return tuple(self._operations)

    def __bool__(self) -> bool:
        return self._growing is not None or bool(self._operations)

    def _settle(self) -> None:
        if self._growing is None:
            return
        path, start, pieces = self._growing
        self._growing = None
        if start is None:
            self._operations.append(AppendText(path, "".join(cast("list[str]", pieces))))
        else:
            # `start` of the group is where its first piece went.
            self._operations.append(SpliceList(path, start, 0, tuple(pieces)))


@final
class Cursor:
    """One part of a value.

    Attributes:
        value: the part, without what was changed below it since it was last settled.
        bound: the Python object that stands for it, once it was asked for.
        children: the parts below it that somebody asked for, by key or index.
        detached: whether it was taken out of its document.
        stale: whether something below was changed that is not in `value`.
        touched: whether it was changed and the parent's value does not have it.
    """

    __slots__ = (
        "bound",
        "children",
        "detached",
        "journal",
        "key",
        "parent",
        "stale",
        "touched",
        "value",
    )

    def __init__(
        self,
        value: Any,
        journal: Journal | None,
        *,
        parent: Cursor | None = None,
        key: _Key = "",
    ) -> None:
        self.value: Any = value
        self.journal = journal
        self.key = key
        self.bound: object = None
        self.children: dict[_Key, Cursor] = {}
        self.parent = parent
        self.detached = False
        self.stale = False
        self.touched = False

    # --- looking ---

    def check(self) -> None:
        """Refuse to be used when it no longer stands for anything.

        Raises:
            TransactionClosed: the callback is over.
            MisuseError: the part was taken out of its document, or replaced, in this callback.
        """
        journal = self.journal
        if journal is None:
            return
        if not journal.open:
            raise TransactionClosed(
                f"{journal.name}: a draft ends with its callback; return what you need from it."
            )
        if self.detached:
            raise MisuseError(
                f"{journal.name}: this part was taken out of the document, or replaced, earlier in "
                "this callback; read it again from where it is now."
            )

    def item(self, key: _Key) -> Any:
        """What is at a key or an index that exists."""
        child = self.children.get(key)
        if child is not None:
            return child.settled()
        return self.value[key]

    def child(self, key: _Key) -> Cursor:
        """The cursor of what is at a key or an index that exists; always the same in a draft."""
        known = self.children.get(key)
        if known is not None:
            return known
        value = self.value[key]
        made = Cursor(value, self.journal, parent=self, key=key)
        if self.journal is not None:
            self.children[key] = made
        return made

    def settled(self) -> Any:
        """The part with everything that was changed below it."""
        if self.stale:
            self.stale = False
            for key, child in self.children.items():
                if child.touched:
                    child.touched = False
                    self._set(key, child.settled())
        return self.value

    def path(self) -> Path:
        """Where it is in the document."""
        keys: list[_Key] = []
        at = self
        while at.parent is not None:
            keys.append(at.key)
            at = at.parent
        return tuple(reversed(keys))

    # --- changing ---

    def begin_change(self) -> Journal:
        """The journal to note a change in.

        Raises:
            TransactionClosed, MisuseError: as `check`, or it is of a revision.
        """
        self.check()
        if self.journal is None:
            raise MisuseError(
                "this is a stored value and is never changed in place; open the document with "
                "tx.doc in a commit and change the draft."
            )
        return self.journal

    def put(self, key: _Key, value: Value) -> None:
        """Set a key, or replace an item that exists."""
        journal = self.begin_change()
        path = (*self.path(), key)
        if isinstance(self.value, FrozenList) or key in self.value:
            old = self.item(key)
            if old is value:
                return
            changes = diff(old, value, path)
            if not changes:
                return
            journal.lost += _weight(old)
        else:
            changes = [SetValue(path, value)]
        self._detach(key)
        self._set(key, value)
        for change in changes if len(changes) <= _FEW else [SetValue(path, value)]:
            if isinstance(change, AppendText):
                journal.grow(change.path, None, [change.text])
            else:
                journal.note(change)
        self._changed()

    def put_plain(self, key: str, value: Value) -> None:
        """Set a key of a mapping that has no cursor of its own to a value without parts."""
        journal = self.begin_change()
        old = self.value[key]
        if type(old) is not type(value) or type(value) is str:
            if isinstance(old, str | FrozenText):
                # A text that grew is told as what was added.
                self.put(key, value)
                return
        elif same_json(old, value):
            return
        self.value = self.value.put(key, value)
        journal.note(SetValue((*self.path(), key), value))
        self._changed()

    def remove(self, key: str) -> Any:
        """Take a key out that exists; what was there."""
        journal = self.begin_change()
        old = self.item(key)
        self._detach(key)
        self.value = self.value.without(key)
        journal.lost += _weight(old)
        journal.note(DeleteKey((*self.path(), key)))
        self._changed()
        return old

    def splice(self, start: int, delete: int, items: Sequence[Value] = ()) -> None:
        """Take items out of a list, and put others there."""
        journal = self.begin_change()
        if not delete and not items:
            return
        here = self.settled()
        if delete and items:
            start, delete, items = _trimmed(here, start, delete, items)
            if not delete and not items:
                return
        if delete:
            journal.lost += sum(map(_weight, here[start : start + delete]))
        if start == len(here):
            journal.grow(self.path(), start, items)
        else:
            journal.note(SpliceList(self.path(), start, delete, tuple(items)))
            self._shift(start, delete, len(items))
        self.value = here.splice(start, delete, items)
        self._changed()

    def reorder(self, order: Sequence[int]) -> None:
        """Put the items of a list in another order; one that is not in it is taken out."""
        journal = self.begin_change()
        here = self.settled()
        head = sum(1 for _ in takewhile(lambda at: order[at] == at, range(len(order))))
        shorter = len(here) - len(order)
        rest = range(len(order) - 1, head - 1, -1)
        stop = len(order) - sum(1 for _ in takewhile(lambda at: order[at] == at + shorter, rest))
        if head == stop and not shorter:
            return
        items = [here[at] for at in order[head:stop]]
        delete = stop + shorter - head
        journal.lost += sum(map(_weight, here[head : head + delete]))
        journal.note(SpliceList(self.path(), head, delete, tuple(items)))
        if self.children:
            self._follow(order)
        self.value = here.splice(head, delete, items)
        self._changed()

    def clear(self) -> None:
        """Take every key out of a mapping that is not the whole document."""
        journal = self.begin_change()
        if not self.value:
            return
        journal.lost += _weight(self.settled())
        for child in self.children.values():
            child.die()
        self.children = {}
        self.value = FrozenDict()
        journal.note(SetValue(self.path(), self.value))
        self._changed()

    def append_text(self, text: str) -> None:
        """Put more at the end of a text."""
        journal = self.begin_change()
        if text:
            self.value = FrozenText.of(self.value).append(text)
            journal.grow(self.path(), None, [text])
            self._changed()

    def trim_text(self, count: int) -> None:
        """Take characters from the front of a text, at most as many as there are."""
        journal = self.begin_change()
        if count:
            self.value = FrozenText.of(self.value).trim_front(count)
            journal.lost += count
            journal.note(TrimText(self.path(), count))
            self._changed()

    # --- helpers ---

    def _set(self, key: _Key, value: Value) -> None:
        here = self.value
        is_list = isinstance(here, FrozenList)
        self.value = here.replace(key, value) if is_list else here.put(key, value)

    def _detach(self, key: _Key) -> None:
        child = self.children.pop(key, None)
        if child is not None:
            child.die()

    def die(self) -> None:
        """Refuse to be used, with everything below."""
        self.detached = True
        for child in self.children.values():
            child.die()

    def _shift(self, start: int, delete: int, added: int) -> None:
        """Let the cursors of items keep to their items."""
        if not self.children:
            return
        moved: dict[_Key, Cursor] = {}
        for index, child in self.children.items():
            if index >= start + delete:
                child.key = index + added - delete
                moved[child.key] = child
            elif index < start:
                moved[index] = child
            else:
                child.die()
        self.children = moved

    def _follow(self, order: Sequence[int]) -> None:
        """Let the cursors of items keep to their items in a new order."""
        left, self.children = self.children, {}
        for at, old in enumerate(order):
            child = left.pop(old, None)
            if child is not None:
                child.key = at
                self.children[at] = child
        for child in left.values():
            child.die()

    def _changed(self) -> None:
        self.touched = True
        at = self.parent
        # Who is stale already has told those above it.
        while at is not None and not at.stale:
            at.stale = at.touched = True
            at = at.parent


def _trimmed(
    here: FrozenList, start: int, delete: int, items: Sequence[Value]
) -> tuple[int, int, Sequence[Value]]:
    """A splice without the items at its ends that are there already."""
    head, tail = same_ends(here[start : start + delete], items)
    return start + head, delete - head - tail, items[head : len(items) - tail]


def _weight(value: Value) -> int:
    """About how many characters a part has in storage."""
    if isinstance(value, FrozenText | str):
        return len(value)
    if isinstance(value, FrozenList):
        return sum(map(_weight, value)) + len(value)
    if isinstance(value, FrozenDict):
        return sum(len(key) + _weight(item) for key, item in value.items()) + 4 * len(value)
    return 4
