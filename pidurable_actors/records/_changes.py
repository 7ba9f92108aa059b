"""The sole write vocabulary: a batch is one commit, a list of changes that land together.

A change carries the record and its encoded text, made once; storages keep the text, observers get
the record. A storage that applied a batch holds all of it or none of it.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from pidurable_actors.records._conversations import ConversationRecord
from pidurable_actors.records._documents import DocumentRecord
from pidurable_actors.records._entries import EntryRecord
from pidurable_actors.records._ids import CommitNumber, TaskId
from pidurable_actors.records._submissions import SubmissionRecord
from pidurable_actors.records._tasks import TaskRecord

__all__ = [
    "AppendEntry",
    "Batch",
    "Change",
    "DropMemos",
    "PutConversation",
    "PutDocument",
    "PutMemo",
    "PutSubmission",
    "PutTask",
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
    """Insert or replace a document with its whole value (`value_text`)."""

    record: DocumentRecord
    text: str
    value_text: str


Change: TypeAlias = (
    PutConversation | AppendEntry | PutTask | PutMemo | DropMemos | PutSubmission | PutDocument
)


@attrs.frozen(kw_only=True)
class Batch:
    """One commit.

    Attributes:
        number: its place in the sequence of commits; storages refuse any but the next.
        at_ms: when it was admitted, epoch milliseconds.
        next_id: the first id that is free after it.
        changes: what it writes, in order.
    """

    number: CommitNumber
    at_ms: int
    next_id: int
    changes: tuple[Change, ...]
