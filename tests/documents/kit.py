"""Storages that count what goes through them, documents to fill, and short ways to change them.

Owns the parametrised storage of these tests: a test takes the fixture `place` and opens it as often
as it likes; each time it is what another process would find.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, final

import attrs

from pidurable_actors import Conversation, Harness, Settings, TaskActor, Text, Tx, open_harness
from pidurable_actors._clock import SeededChance
from pidurable_actors.records import (
    Batch,
    ChangeDocument,
    ConversationId,
    ConversationRecord,
    EntryRecord,
    LoggedCommit,
    PutDocument,
    ScopeKind,
    StoredDocument,
)
from pidurable_actors.records.log import encode_changes
from pidurable_actors.session import DocumentDefinition, define_doc
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing._through import ThroughStorage
from tests._tasks import NOTE, Note, registry_of

__all__ = [
    "BOOK",
    "KEPT",
    "Book",
    "Counted",
    "Edit",
    "Picks",
    "Place",
    "StillClock",
    "edit",
    "logged",
    "memory_place",
    "note",
    "opened_at",
    "sqlite_place",
    "stored",
    "table",
]

D = TypeVar("D")
Edit: TypeAlias = Callable[[Any], object]


@attrs.define
class Book:
    """A document with something of every sort that grows."""

    title: str = ""
    text: Text = attrs.Factory(Text)
    items: list[Any] = attrs.Factory(list)
    words: dict[str, Any] = attrs.Factory(dict)
    n: int = 0


BOOK = define_doc("app.book", Book)
KEPT = define_doc("app.kept", Book, history="rewindable", fork="as_of")


@final
class Counted(ThroughStorage):
    """Counts characters that are written and rows that are read; it never blocks.

    Attributes:
        bases: characters of whole values, in order of the commits.
        deltas: characters of delta operations, in order of the commits.
        log_chars: characters that the log keeps.
        calls: look-ups and scans.
        rows: rows that these returned.
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner, blocking=False)
        self.bases: list[int] = []
        self.deltas: list[int] = []
        self.log_chars = 0
        self.calls = 0
        self.rows = 0

    @property
    def document_chars(self) -> int:
        """Characters stored of documents."""
        return sum(self.bases) + sum(self.deltas)

    def apply(self, batches: Sequence[Batch]) -> None:
        """Count, and store."""
        for batch in batches:
            self.log_chars += len(encode_changes(batch.changes)) if batch.logged else 0
            for change in batch.changes:
                if isinstance(change, PutDocument):
                    self.bases.append(len(change.value_text))
                elif isinstance(change, ChangeDocument):
                    self.deltas.append(len(change.text))
        super().apply(batches)

    def before_read(self) -> None:
        """Count."""
        self.calls += 1

    def entries(
        self, conversation_id: ConversationId, *, before: int, limit: int, kind: str | None = None
    ) -> list[EntryRecord]:
        """Count the rows."""
        found = super().entries(conversation_id, before=before, limit=limit, kind=kind)
        self.rows += len(found)
        return found

    def documents(
        self, scope: ScopeKind, scope_id: int, *, after: tuple[str, str] | None = None, limit: int
    ) -> list[StoredDocument]:
        """Count the rows."""
        found = super().documents(scope, scope_id, after=after, limit=limit)
        self.rows += len(found)
        return found

    def conversation(self, conversation_id: ConversationId) -> ConversationRecord | None:
        """Count the row."""
        self.rows += 1
        return super().conversation(conversation_id)


Place: TypeAlias = Callable[[], Counted]
"""A storage as the next process finds it."""


def memory_place() -> Place:
    """A place in this process."""
    contents = MemoryStorage()
    return lambda: Counted(contents)


def sqlite_place(path: Path) -> Place:
    """A place in a file."""
    return lambda: Counted(SqliteStorage(path))


@final
class StillClock:
    """Time that stands still, so that two runs store the same."""

    def now_ms(self) -> int:
        """Always the same."""
        return 1_767_225_600_000


@asynccontextmanager
async def opened_at(
    storage: Storage,
    *tasks: type[TaskActor[Any, Any]],
    settings: Settings | Callable[[], Settings] | None = None,
    still: bool = False,
) -> AsyncIterator[tuple[Harness, Conversation]]:
    """Open a harness and its root; with `still`, every run of the same calls stores the same."""
    async with open_harness(
        storage,
        registry=registry_of(*tasks),
        settings=settings,
        clock=StillClock() if still else None,
        chance=SeededChance("still") if still else None,
    ) as harness:
        yield harness, await harness.root()


def edit(
    definition: DocumentDefinition[D],
    change: Callable[[D], object],
    scope_id: int | None = None,
    key: str = "",
) -> Callable[[Tx], Awaitable[None]]:
    """A callback that changes one document."""

    async def callback(tx: Tx) -> None:
        change(await tx.doc(definition, scope_id, key))

    return callback


def note(text: str = "") -> Callable[[Tx], int]:
    """A callback that appends an entry to the bound conversation; returns its id."""

    def callback(tx: Tx) -> int:
        assert tx.conversation_id is not None
        return tx.append_entry(tx.conversation_id, NOTE.new(Note(text))).id

    return callback


def table(book: Book) -> dict[str, Any]:
    """A book as plain values, to compare with a model."""
    return {
        "title": str(book.title),
        "text": str(book.text),
        "items": _plain(book.items),
        "words": _plain(book.words),
        "n": book.n,
    }


def stored(
    storage: Storage,
    definition: DocumentDefinition[Any],
    scope_id: int,
    key: str = "",
) -> StoredDocument:
    """A stored document, read beside its owner."""
    found = storage.document(definition.kind, definition.scope, scope_id, key)
    assert found is not None
    return found


async def logged(harness: Harness) -> list[LoggedCommit]:
    """All commits of the log, read in pages."""
    found: list[LoggedCommit] = []
    while page := await harness.commits(after=found[-1].number if found else 0, limit=7):
        found += page
    return found


@final
class Picks:
    """Choices that repeat with their seed."""

    def __init__(self, seed: object) -> None:
        self._chance = SeededChance(str(seed))

    def below(self, stop: int) -> int:
        """A number from 0 on."""
        return min(stop - 1, int(self._chance.uniform(0, stop)))

    def of(self, options: Sequence[D]) -> D:
        """One of several."""
        return options[self.below(len(options))]

    def edit(self, longest: int = 300) -> Edit:
        """A change of a book; the same for a draft and for a plain one."""
        size, at = 1 + self.below(longest), self.below(50)
        word = chr(97 + self.below(26)) * size

        def append_text(book: Any) -> None:
            book.text.append(word)

        def trim(book: Any) -> None:
            book.text.trim_front(min(len(str(book.text)), size))

        def append(book: Any) -> None:
            book.items.append({"word": word[:20], "at": [at, None, True]})

        def pop(book: Any) -> None:
            if book.items:
                book.items.pop(at % len(book.items))

        def put(book: Any) -> None:
            book.words[str(at % 7)] = word[:9]

        def drop(book: Any) -> None:
            book.words.pop(str(at % 7), None)

        def count(book: Any) -> None:
            book.n += at

        def title(book: Any) -> None:
            book.title = word

        def clear(book: Any) -> None:
            book.items.clear()

        often = (append_text,) * 4 + (trim, append, append, pop, put, drop, count, title)
        return self.of((*often, clear) if self.below(10) == 0 else often)


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | bool | None):
        return value
    if hasattr(value, "items"):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value]
