"""What a memory storage holds: encoded texts, in tables ordered by id, with an undo for each write.

Owns the tables and the meaning of each change. It knows nothing of ownership and decodes nothing
but documents. The invariant: after undoing the steps of a failed batch, newest first, every table
is as it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeAlias, TypeVar, assert_never

import attrs

from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records import (
    ROOT_ID,
    AppendEntry,
    Change,
    CommitNumber,
    ConversationId,
    DropMemos,
    EntryId,
    PutConversation,
    PutDocument,
    PutMemo,
    PutSubmission,
    PutTask,
    ScopeKind,
    SubmissionId,
    SubmissionStatus,
    TaskId,
)
from pidurable_actors.storage._protocol import LiveTask
from pidurable_actors.storage._rules import index_row

__all__ = ["Contents", "DocumentRow", "Rows", "TaskRow", "Undo"]

_K = TypeVar("_K", int, tuple[str, str])
_R = TypeVar("_R")
Undo: TypeAlias = list[Callable[[], object]]


class Rows(Generic[_K, _R]):
    """A table that is scanned in the order of its keys.

    New keys are nearly always the greatest, so keeping the sorted list costs an append.
    """

    def __init__(self) -> None:
        self._rows: dict[_K, _R] = {}
        self._keys: list[_K] = []

    def get(self, key: _K) -> _R | None:
        """The row of a key."""
        return self._rows.get(key)

    def all(self) -> Iterator[_R]:
        """Every row, ascending."""
        return (self._rows[key] for key in self._keys)

    def above(self, key: _K) -> Iterator[_R]:
        """The rows of greater keys, ascending."""
        start = bisect_right(self._keys, key)
        return (self._rows[self._keys[at]] for at in range(start, len(self._keys)))

    def below(self, key: _K) -> Iterator[_R]:
        """The rows of smaller keys, descending."""
        start = bisect_left(self._keys, key) - 1
        return (self._rows[self._keys[at]] for at in range(start, -1, -1))

    def put(self, key: _K, row: _R, undo: Undo) -> None:
        """Insert or replace a row."""
        undo.append(partial(self._restore, key, self._rows.get(key)))
        if key not in self._rows:
            insort(self._keys, key)
        self._rows[key] = row

    def copy(self) -> Rows[_K, _R]:
        """Another table with the same rows; rows are never changed in place."""
        copy = Rows[_K, _R]()
        copy._rows, copy._keys = dict(self._rows), list(self._keys)
        return copy

    def _restore(self, key: _K, old: _R | None) -> None:
        if old is None:
            del self._rows[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            self._rows[key] = old


@attrs.frozen
class ConversationRow:
    """A conversation's text and what it is found by."""

    owner: TaskId | None
    text: str


@attrs.frozen
class EntryRow:
    """An entry's text and what it is found by."""

    kind: str
    text: str


@attrs.frozen
class TaskRow:
    """A task's text, without memos, and what it is found by."""

    index: LiveTask
    text: str


@attrs.frozen
class SubmissionRow:
    """A submission's text and what it is found by."""

    conversation_id: ConversationId
    status: SubmissionStatus
    text: str


@attrs.frozen
class DocumentRow:
    """A document's texts and the commit that wrote them."""

    id: int
    text: str
    value_text: str
    commit: CommitNumber


@attrs.define
class Contents:
    """All that is stored, and who may write it.

    `entries` holds one transcript per conversation and `entry_homes` tells which one an entry is
    in. `memos` keeps each task's memos in the order they were recorded.
    """

    commit: int = 0
    next_id: int = ROOT_ID + 1
    epoch: int = 0
    owned: bool = False
    conversations: Rows[int, ConversationRow] = attrs.Factory(Rows)
    entries: dict[ConversationId, Rows[int, EntryRow]] = attrs.Factory(dict)
    entry_homes: dict[EntryId, ConversationId] = attrs.Factory(dict)
    tasks: Rows[int, TaskRow] = attrs.Factory(Rows)
    memos: dict[TaskId, dict[str, str]] = attrs.Factory(dict)
    submissions: Rows[int, SubmissionRow] = attrs.Factory(Rows)
    requests: dict[tuple[ConversationId, str], SubmissionId] = attrs.Factory(dict)
    documents: dict[tuple[ScopeKind, int], Rows[tuple[str, str], DocumentRow]] = attrs.Factory(dict)

    def transcript(self, conversation_id: ConversationId) -> Rows[int, EntryRow]:
        """The entries that were appended to one conversation."""
        return self.entries.get(conversation_id) or Rows()

    def scope(self, scope: ScopeKind, scope_id: int) -> Rows[tuple[str, str], DocumentRow]:
        """The documents of one scope."""
        return self.documents.get((scope, scope_id)) or Rows()

    def copy(self) -> Contents:
        """The same contents, unowned, apart from these."""
        return attrs.evolve(
            self,
            owned=False,
            conversations=self.conversations.copy(),
            entries={key: rows.copy() for key, rows in self.entries.items()},
            entry_homes=dict(self.entry_homes),
            tasks=self.tasks.copy(),
            memos={key: dict(memos) for key, memos in self.memos.items()},
            submissions=self.submissions.copy(),
            requests=dict(self.requests),
            documents={key: rows.copy() for key, rows in self.documents.items()},
        )

    def write(self, change: Change, commit: CommitNumber, undo: Undo) -> None:
        """Make one change and append how to undo it.

        Raises:
            StorageCorrupt: it contradicts what is stored; it was not made.
        """
        match change:
            case PutConversation(record, text):
                owner = record.owner.task_id if record.owner else None
                self.conversations.put(record.id, ConversationRow(owner, text), undo)
            case AppendEntry():
                self._append_entry(change, undo)
            case PutTask(record, text):
                self.tasks.put(record.id, TaskRow(index_row(record), text), undo)
            case PutMemo(task_id, name, text):
                memos = self.memos.setdefault(task_id, {})
                _refuse(name in memos, f"memo {name!r} of task {task_id} is recorded already")
                memos[name] = text
                undo.append(partial(memos.pop, name))
            case DropMemos(task_id):
                dropped = self.memos.pop(task_id, {})
                undo.append(partial(self.memos.__setitem__, task_id, dropped))
            case PutSubmission():
                self._put_submission(change, undo)
            case PutDocument():
                self._put_document(change, commit, undo)
            case _:
                assert_never(change)

    def _append_entry(self, change: AppendEntry, undo: Undo) -> None:
        record = change.record
        _refuse(record.id in self.entry_homes, f"entry {record.id} is stored already")
        self.entry_homes[record.id] = record.conversation_id
        undo.append(partial(self.entry_homes.pop, record.id))
        transcript = self.entries.setdefault(record.conversation_id, Rows())
        transcript.put(record.id, EntryRow(record.kind, change.text), undo)

    def _put_submission(self, change: PutSubmission, undo: Undo) -> None:
        record = change.record
        if record.request_id is not None:
            request = (record.conversation_id, record.request_id)
            holder = self.requests.get(request)
            _refuse(holder not in (None, record.id), f"request {request} has submission {holder}")
            if holder is None:
                self.requests[request] = record.id
                undo.append(partial(self.requests.pop, request))
        row = SubmissionRow(record.conversation_id, record.status, change.text)
        self.submissions.put(record.id, row, undo)

    def _put_document(self, change: PutDocument, commit: CommitNumber, undo: Undo) -> None:
        record = change.record
        scope = self.documents.setdefault((record.scope, record.scope_id), Rows())
        holder = scope.get((record.kind, record.key))
        _refuse(
            holder is not None and holder.id != record.id,
            f"document {record.kind}[{record.key!r}] of {record.scope} {record.scope_id} exists",
        )
        row = DocumentRow(record.id, change.text, change.value_text, commit)
        scope.put((record.kind, record.key), row, undo)


def _refuse(contradicts: bool, what: str) -> None:
    if contradicts:
        raise StorageCorrupt(f"a batch contradicts what is stored: {what}", wrote=False)
