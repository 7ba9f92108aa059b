"""What a memory storage holds: encoded texts, in tables ordered by id, with an undo for each write.

Owns the tables and the meaning of each change. It knows nothing of ownership and decodes nothing
but the records of documents that retire. The invariant: after undoing the steps of a failed batch,
newest first, every table is as it was.

A document is a base and the deltas behind it. A new base of one that keeps its history sets the old
base aside and leaves all deltas, so that every earlier value can be told; else the deltas go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeAlias, TypeVar, assert_never

import attrs

from pidurable_actors.errors import StorageError
from pidurable_actors.records import (
    ROOT_ID,
    AppendEntry,
    Batch,
    Change,
    ChangeDocument,
    CommitNumber,
    ConversationId,
    DocumentRecord,
    DropMemos,
    EntryId,
    PutConversation,
    PutDocument,
    PutMemo,
    PutSubmission,
    PutTask,
    RetireDocuments,
    ScopeKind,
    SubmissionId,
    SubmissionStatus,
    TaskId,
    conversations_of,
)
from pidurable_actors.records.codec import decode_document, encode_record
from pidurable_actors.records.log import encode_changes
from pidurable_actors.storage._protocol import LiveTask
from pidurable_actors.storage._rules import Base, Delta, contradiction, index_row

__all__ = ["Contents", "DocumentRow", "LogRow", "Rows", "TaskRow", "Undo"]

_K = TypeVar("_K", int, tuple[str, str])
_R = TypeVar("_R")
Undo: TypeAlias = list[Callable[[], object]]
DocumentName: TypeAlias = tuple[ScopeKind, int, str, str]


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

    def drop_below(self, key: _K) -> None:
        """Take out the rows of smaller keys, for good."""
        end = bisect_left(self._keys, key)
        for gone in self._keys[:end]:
            del self._rows[gone]
        del self._keys[:end]

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
    """An entry's text, what it is found by, and the commit that appended it."""

    kind: str
    commit: CommitNumber
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
    """The text of a document's record, and its newest base."""

    id: int
    text: str
    base: Base


@attrs.frozen
class LogRow:
    """A logged commit: the text of its changes, and the conversations that they touch."""

    number: CommitNumber
    at_ms: int
    conversations: frozenset[ConversationId]
    text: str


@attrs.define
class Contents:
    """All that is stored, and who may write it.

    `entries` holds one transcript per conversation and `entry_homes` tells which one an entry is
    in. `memos` keeps each task's memos in the order they were recorded. `deltas` and `old_bases`
    are those of a document's id, oldest first.
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
    document_names: dict[int, DocumentName] = attrs.Factory(dict)
    deltas: dict[int, list[Delta]] = attrs.Factory(dict)
    old_bases: dict[int, list[Base]] = attrs.Factory(dict)
    log: Rows[int, LogRow] = attrs.Factory(Rows)

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
            document_names=dict(self.document_names),
            deltas={key: list(deltas) for key, deltas in self.deltas.items()},
            old_bases={key: list(bases) for key, bases in self.old_bases.items()},
            log=self.log.copy(),
        )

    def write(self, batch: Batch, undo: Undo) -> None:
        """Make the changes of one batch, log them, and append how to undo each.

        Raises:
            StorageCorrupt: one contradicts what is stored; the steps of those before it are in
                `undo`.
            StorageError: a name cannot be stored.
        """
        for change in batch.changes:
            self._make(change, batch.number, undo)
        if batch.logged:
            touched = frozenset(conversations_of(batch.changes))
            row = LogRow(batch.number, batch.at_ms, touched, encode_changes(batch.changes))
            self.log.put(batch.number, row, undo)

    def _make(self, change: Change, commit: CommitNumber, undo: Undo) -> None:
        match change:
            case PutConversation(record, text):
                owner = record.owner.task_id if record.owner else None
                self.conversations.put(record.id, ConversationRow(owner, text), undo)
            case AppendEntry():
                self._append_entry(change, commit, undo)
            case PutTask(record, text):
                _check_names(record.kind)
                self.tasks.put(record.id, TaskRow(index_row(record), text), undo)
            case PutMemo():
                self._put_memo(change, undo)
            case DropMemos(task_id):
                dropped = self.memos.pop(task_id, {})
                undo.append(partial(self.memos.__setitem__, task_id, dropped))
            case PutSubmission():
                self._put_submission(change, undo)
            case PutDocument():
                self._put_document(change, commit, undo)
            case ChangeDocument():
                self._change_document(change, commit, undo)
            case RetireDocuments():
                self._retire_documents(change, undo)
            case _:
                assert_never(change)

    def _append_entry(self, change: AppendEntry, commit: CommitNumber, undo: Undo) -> None:
        record = change.record
        _check_names(record.kind)
        _refuse(record.id in self.entry_homes, f"entry {record.id} is stored already")
        self.entry_homes[record.id] = record.conversation_id
        undo.append(partial(self.entry_homes.pop, record.id))
        transcript = self.entries.setdefault(record.conversation_id, Rows())
        transcript.put(record.id, EntryRow(record.kind, commit, change.text), undo)

    def _put_memo(self, change: PutMemo, undo: Undo) -> None:
        task_id, name = change.task_id, change.name
        _check_names(name)
        memos = self.memos.setdefault(task_id, {})
        _refuse(name in memos, f"memo {name!r} of task {task_id} is recorded already")
        memos[name] = change.text
        undo.append(partial(memos.pop, name))

    def _put_submission(self, change: PutSubmission, undo: Undo) -> None:
        record = change.record
        if record.request_id is not None:
            _check_names(record.request_id)
            request = (record.conversation_id, record.request_id)
            holder = self.requests.get(request)
            _refuse(holder not in (None, record.id), f"request {request} has submission {holder}")
            if holder is None:
                self.requests[request] = record.id
                undo.append(partial(self.requests.pop, request))
        row = SubmissionRow(record.conversation_id, record.status, change.text)
        self.submissions.put(record.id, row, undo)

    def _put_document(self, change: PutDocument, commit: CommitNumber, undo: Undo) -> None:
        record, base = change.record, Base(commit, change.record.version, change.value_text)
        _check_names(record.kind, record.key)
        name = _name(record)
        _refuse(
            self.document_names.get(record.id, name) != name,
            f"document {record.id} has another name than {name}",
        )
        scope = self.documents.setdefault((record.scope, record.scope_id), Rows())
        old = scope.get((record.kind, record.key))
        _refuse(old is not None and old.id != record.id, f"document {name} exists")

        if old is None:
            self.document_names[record.id] = name
            undo.append(partial(self.document_names.pop, record.id))
        elif record.history == "latest":
            _drop(self.deltas, record.id, undo)
            _drop(self.old_bases, record.id, undo)
        else:
            self._set_base_aside(old, commit, undo)
        scope.put((record.kind, record.key), DocumentRow(record.id, change.text, base), undo)

    def _set_base_aside(self, old: DocumentRow, commit: CommitNumber, undo: Undo) -> None:
        # What this very commit did before is in the new base, and nobody can ask for it alone.
        if old.base.commit < commit:
            _append(self.old_bases, old.id, old.base, undo)
        deltas = self.deltas.get(old.id, [])
        while deltas and deltas[-1].commit == commit:
            undo.append(partial(deltas.append, deltas.pop()))

    def _change_document(self, change: ChangeDocument, commit: CommitNumber, undo: Undo) -> None:
        record = change.record
        _refuse(
            self.document_names.get(record.id) != _name(record),
            f"there is no document {record.id} with the name {_name(record)}",
        )
        _append(self.deltas, record.id, Delta(commit, change.text), undo)

    def _retire_documents(self, change: RetireDocuments, undo: Undo) -> None:
        scope = self.scope("task", change.task_id)
        for row in list(scope.all()):
            record = attrs.evolve(decode_document(row.text), retired_at_ms=change.at_ms)
            retired = attrs.evolve(row, text=encode_record(record))
            scope.put((record.kind, record.key), retired, undo)


def _name(record: DocumentRecord) -> DocumentName:
    return record.scope, record.scope_id, record.kind, record.key


def _append(table: dict[int, list[_R]], key: int, item: _R, undo: Undo) -> None:
    items = table.setdefault(key, [])
    items.append(item)
    undo.append(items.pop)


def _drop(table: dict[int, list[_R]], key: int, undo: Undo) -> None:
    dropped = table.pop(key, None)
    if dropped is not None:
        undo.append(partial(table.__setitem__, key, dropped))


def _refuse(contradicts: bool, what: str) -> None:
    if contradicts:
        raise contradiction(what)


def _check_names(*names: str) -> None:
    # A disk takes no lone surrogate, so neither does the reference.
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise StorageError(
                f"the name {name!a} cannot be stored: {error}", wrote=False
            ) from error
