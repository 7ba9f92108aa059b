"""The sole write vocabulary: a batch is one commit, a list of changes that land together.

A change carries the record and its encoded text, made once; storages keep the text, observers get
the record. A storage that applied a batch holds all of it or none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import attrs

from pidurable_actors.records._conversations import ConversationRecord
from pidurable_actors.records._documents import DocumentRecord
from pidurable_actors.records._entries import EntryRecord
from pidurable_actors.records._ids import CommitNumber, ConversationId, TaskId
from pidurable_actors.records._operations import Operation
from pidurable_actors.records._submissions import SubmissionRecord
from pidurable_actors.records._tasks import TaskRecord

__all__ = [
    "AppendEntry",
    "Batch",
    "Change",
    "ChangeDocument",
    "DropMemos",
    "LoggedCommit",
    "PutConversation",
    "PutDocument",
    "PutMemo",
    "PutSubmission",
    "PutTask",
    "RetireDocuments",
    "conversations_of",
]


@attrs.frozen
class PutConversation:
    """Insert or replace a conversation."""

    record: ConversationRecord
    text: str


@attrs.frozen
class AppendEntry:
    """Append a transcript line; its id is new."""

    record: EntryRecord
    text: str


@attrs.frozen
class PutTask:
    """Insert or replace a task's record; its memos are not part of the text."""

    record: TaskRecord
    text: str


@attrs.frozen
class PutMemo:
    """Record a memo; the first writer has won already, so the name is new."""

    task_id: TaskId
    name: str
    text: str


@attrs.frozen
class DropMemos:
    """Forget all memos of a task that ended."""

    task_id: TaskId


@attrs.frozen
class PutSubmission:
    """Insert or replace a submission."""

    record: SubmissionRecord
    text: str


@attrs.frozen
class PutDocument:
    """Insert a document, or give it a new base: its whole value (`value_text`).

    The `operations` lead from the value before to the new one; observers get them, whatever is
    stored. Of a document that is new, or whose value was migrated, the first is `ReplaceRoot`.
    """

    record: DocumentRecord
    text: str
    value_text: str
    operations: tuple[Operation, ...]


@attrs.frozen
class ChangeDocument:
    """Append `operations`, encoded in `text`, to the tail of a document that exists."""

    record: DocumentRecord
    operations: tuple[Operation, ...]
    text: str


@attrs.frozen
class RetireDocuments:
    """Retire all documents of a task that ended: they keep their last value."""

    task_id: TaskId
    at_ms: int


Change: TypeAlias = (
    PutConversation
    | AppendEntry
    | PutTask
    | PutMemo
    | DropMemos
    | PutSubmission
    | PutDocument
    | ChangeDocument
    | RetireDocuments
)


@attrs.frozen(kw_only=True)
class Batch:
    """One commit.

    Attributes:
        number: its place in the sequence of commits; storages refuse any but the next.
        at_ms: when it was admitted, epoch milliseconds.
        next_id: the first id that is free after it.
        changes: what it writes, in order.
        logged: whether the log of commits keeps it.
        forget_below: the log may forget the commits with a smaller number; 0 for none.
    """

    number: CommitNumber
    at_ms: int
    next_id: int
    changes: tuple[Change, ...]
    logged: bool = True
    forget_below: int = 0


@attrs.frozen(kw_only=True)
class LoggedCommit:
    """One commit as the log keeps it.

    Attributes:
        number: its place in the sequence of commits; a public cursor.
        at_ms: when it was admitted, epoch milliseconds.
        changes: what it wrote, in order. A change of a document is a `ChangeDocument`, whether or
            not its whole value was stored.
    """

    number: CommitNumber
    at_ms: int
    changes: tuple[Change, ...]


def conversations_of(changes: Iterable[Change]) -> set[ConversationId]:
    """The conversations that changes touch: their records, transcripts, tasks and documents."""
    touched: set[ConversationId] = set()
    for change in changes:
        # The most frequent first: the log of commits asks this of every commit.
        match change:
            case PutTask() | AppendEntry() | PutSubmission():
                touched.add(change.record.conversation_id)
            case PutConversation():
                touched.add(change.record.id)
            case PutDocument() | ChangeDocument() if change.record.scope == "conversation":
                touched.add(ConversationId(change.record.scope_id))
            case _:
                pass
    return touched
