"""Everything a storage holds, as records; read from the storage, or folded from commits.

Owns the comparable picture of a storage. It judges nothing. The invariant: reading a storage that
took a list of batches gives the same picture as folding that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar, final

import attrs

from pidurable_actors._frozen import Value, freeze
from pidurable_actors._json import JSON, decode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import StorageUnusable
from pidurable_actors.records import (
    AppendEntry,
    Batch,
    ChangeDocument,
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    DropMemos,
    EntryId,
    EntryRecord,
    Operation,
    PutConversation,
    PutDocument,
    PutMemo,
    PutSubmission,
    PutTask,
    RetireDocuments,
    ScopeKind,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    apply_operations,
)
from pidurable_actors.session import stored_documents
from pidurable_actors.storage import Storage

__all__ = ["DocumentKey", "Fold", "Records", "read_records"]

K = TypeVar("K")
R = TypeVar("R", bound="_HasId")
DocumentKey: TypeAlias = tuple[ScopeKind, int, str, str]
"""Scope, scope id, kind and key of a document."""
_TOP: Final = 2**63 - 1


class _HasId(Protocol):
    @property
    def id(self) -> int: ...


@attrs.frozen(kw_only=True)
class Records:
    """What is stored.

    Attributes:
        commit: the newest commit.
        conversations, entries, tasks, submissions: by id, ascending.
        documents: values by scope, scope id, kind and key.
        retired: when documents were retired, by the same; those that are in use are not in it.
    """

    commit: int = 0
    conversations: Mapping[ConversationId, ConversationRecord] = attrs.field(factory=dict)
    entries: Mapping[EntryId, EntryRecord] = attrs.field(factory=dict)
    tasks: Mapping[TaskId, TaskRecord] = attrs.field(factory=dict)
    submissions: Mapping[SubmissionId, SubmissionRecord] = attrs.field(factory=dict)
    documents: Mapping[DocumentKey, Value] = attrs.field(factory=dict)
    retired: Mapping[DocumentKey, int] = attrs.field(factory=dict)

    def transcript(self, conversation_id: int = 1) -> tuple[EntryRecord, ...]:
        """The entries that were appended to one conversation, oldest first."""
        return tuple(e for e in self.entries.values() if e.conversation_id == conversation_id)


def read_records(storage: Storage) -> Records:
    """Read all of a storage that is not open here.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        head = storage.open(read_only=True)
    except StorageUnusable:  # no owner ever opened it, so it holds nothing
        return Records()
    try:
        conversations = {
            record.id: record
            for record in _pages(lambda at: storage.conversations(after=at, limit=LIMITS.page))
        }
        tasks = {
            record.id: record
            for record in _pages(lambda at: storage.tasks(after=at, limit=LIMITS.page))
        }
        submissions = {
            record.id: record
            for record in _pages(lambda at: storage.submissions(after=at, limit=LIMITS.page))
        }
        own = [e for record in conversations for e in _own_entries(storage, record)]
        scopes: list[tuple[ScopeKind, int]] = [
            ("session", 0),
            *(("conversation", conversation_id) for conversation_id in conversations),
            *(("task", task_id) for task_id in tasks),
        ]
        documents = [found for scope in scopes for found in stored_documents(storage, *scope)]
        return Records(
            commit=head.commit,
            conversations=conversations,
            entries={entry.id: entry for entry in sorted(own, key=lambda entry: entry.id)},
            tasks=tasks,
            submissions=submissions,
            documents={_key(found.record): found.value for found in documents},
            retired={
                _key(found.record): found.record.retired_at_ms
                for found in documents
                if found.record.retired_at_ms is not None
            },
        )
    finally:
        storage.close()


@final
class Fold:
    """The picture that commits add up to; further commits are added as they come."""

    def __init__(self) -> None:
        self._commit = 0
        self._conversations: dict[ConversationId, ConversationRecord] = {}
        self._entries: dict[EntryId, EntryRecord] = {}
        self._tasks: dict[TaskId, TaskRecord] = {}
        self._memos: dict[TaskId, dict[str, str]] = {}  # as text, which is seldom asked for
        self._submissions: dict[SubmissionId, SubmissionRecord] = {}
        # A text, and what was done since it was put; worked out when asked for.
        self._documents: dict[DocumentKey, tuple[str, list[Operation]]] = {}
        self._retired: dict[DocumentKey, int] = {}

    def add(self, batches: Iterable[Batch]) -> None:
        """Take further commits, in order."""
        for batch in batches:
            for change in batch.changes:
                self._write(change)
            self._commit = batch.number

    def records(self) -> Records:
        """The picture now."""
        return Records(
            commit=self._commit,
            conversations=dict(sorted(self._conversations.items())),
            entries=dict(sorted(self._entries.items())),
            tasks={
                task_id: attrs.evolve(record, memos=_decoded(self._memos.get(task_id, {})))
                for task_id, record in sorted(self._tasks.items())
            },
            submissions=dict(sorted(self._submissions.items())),
            documents={
                key: apply_operations(freeze(decode_json(text)), operations)
                for key, (text, operations) in self._documents.items()
            },
            retired=dict(self._retired),
        )

    def _write(self, change: object) -> None:
        match change:
            case PutConversation(record):
                self._conversations[record.id] = record
            case AppendEntry(entry):
                self._entries[entry.id] = entry
            case PutTask(task):
                self._tasks[task.id] = task
            case PutMemo(task_id, name, text):
                self._memos.setdefault(task_id, {})[name] = text
            case DropMemos(task_id):
                self._memos.pop(task_id, None)
            case PutSubmission(submission):
                self._submissions[submission.id] = submission
            case PutDocument(document, _, value_text):
                self._documents[_key(document)] = (value_text, [])
                self._retire([_key(document)], document.retired_at_ms)
            case ChangeDocument(document, operations):
                self._documents[_key(document)][1].extend(operations)
            case RetireDocuments(task_id, at_ms):
                self._retire(
                    [key for key in self._documents if key[:2] == ("task", task_id)], at_ms
                )
            case _:
                raise AssertionError(f"a change that a fold does not know: {change!r}")

    def _retire(self, keys: Iterable[DocumentKey], at_ms: int | None) -> None:
        for key in keys:
            if at_ms is None:
                self._retired.pop(key, None)
            else:
                self._retired[key] = at_ms


def _own_entries(storage: Storage, conversation_id: ConversationId) -> Iterator[EntryRecord]:
    before = _TOP
    while True:
        page = storage.entries(conversation_id, before=before, limit=LIMITS.page)
        yield from (entry for entry in page if entry.conversation_id == conversation_id)
        if len(page) < LIMITS.page or page[-1].conversation_id != conversation_id:
            return
        before = page[-1].id


def _pages(scan: Callable[[int], list[R]]) -> Iterator[R]:
    after = 0
    while True:
        page = scan(after)
        yield from page
        if len(page) < LIMITS.page:
            return
        after = page[-1].id


def _decoded(texts: Mapping[K, str]) -> dict[K, JSON]:
    return {key: decode_json(text) for key, text in texts.items()}


def _key(record: DocumentRecord) -> DocumentKey:
    return (record.scope, record.scope_id, record.kind, record.key)
