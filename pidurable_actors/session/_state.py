"""What the line knows: the index of live work and the records that are not yet durable.

Owns, in memory, the newest state that callbacks see (the *head*) and, per live task, the durable
state that everybody else sees. It changes only in two places: `admit` when a batch enters the
queue, `settle` when the storage has it. It never reads storage and never decides anything.

Cold things cost nothing: ended tasks, settled submissions and entries leave with `settle`;
documents stay only while their conversation has live work; a task that sleeps long keeps its index
row (a `TaskSlot`) without its record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeVar, final

import attrs

from pidurable_actors._json import JSON
from pidurable_actors.records import (
    AppendEntry,
    Batch,
    CommitNumber,
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    EntryRecord,
    PutConversation,
    PutDocument,
    PutSubmission,
    PutTask,
    ScopeKind,
    Sleeping,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    TaskStatus,
    Terminal,
    Waiting,
)
from pidurable_actors.storage import Head, LiveTask

__all__ = ["CachedDocument", "DocKey", "Pending", "SessionState", "TaskSlot"]

_K = TypeVar("_K")
_V = TypeVar("_V")

_COLD_AFTER_MS = 5_000
"""A task that sleeps longer than this is dropped to its index row."""


@attrs.frozen
class DocKey:
    """Identity of a document."""

    kind: str
    scope: ScopeKind
    scope_id: int
    key: str


@attrs.frozen
class CachedDocument:
    """The newest value of a document and the commit that made it."""

    record: DocumentRecord
    value: JSON
    number: int


@final
class TaskSlot:
    """Index row of one live task.

    `head` is what callbacks see, `durable` what everybody else sees; both are None while the task
    is cold, when storage has the one record. The plain fields repeat `head`, so that the scheduler
    can look at a cold task.
    """

    __slots__ = (
        "abort_requested",
        "background",
        "conversation_id",
        "durable",
        "head",
        "id",
        "kind",
        "owner",
        "status",
        "until_ms",
        "version",
    )

    def __init__(self, row: LiveTask) -> None:
        self.id = row.id
        self.conversation_id = row.conversation_id
        self.kind = row.kind
        self.version = row.version
        self.owner = row.owner
        self.background = row.background
        self.status: TaskStatus = row.status
        self.abort_requested = row.abort_requested
        self.until_ms = row.until_ms
        self.head: TaskRecord | None = None
        self.durable: TaskRecord | None = None

    def show(self, record: TaskRecord) -> None:
        """Make `record` the head."""
        self.head = record
        state = record.state
        self.status = state.status
        self.abort_requested = record.abort_requested
        self.until_ms = state.until_ms if isinstance(state, Sleeping) else None
        self.version = record.version

    @property
    def ended(self) -> bool:
        """Whether the head is terminal; the slot stays until that is durable."""
        return self.status == "terminal"


@attrs.define
class Pending:
    """A record that is admitted and not yet durable."""

    record: ConversationRecord | SubmissionRecord
    number: int


@final
class SessionState:
    """The head and the durable index of one open storage."""

    def __init__(self, head: Head) -> None:
        self.number = CommitNumber(head.commit)
        self.durable_number = CommitNumber(head.commit)
        self.next_id = head.next_id
        self.tasks: dict[TaskId, TaskSlot] = {}
        self.children: dict[TaskId, set[TaskId]] = {}  # owner -> live tasks it owns
        self.conversation_tasks: dict[ConversationId, set[TaskId]] = {}  # all live tasks of it
        self.waiters: dict[TaskId, set[TaskId]] = {}  # awaited task -> tasks that wait for it
        self.remaining: dict[TaskId, int] = {}  # waiting task -> awaited tasks still live
        self.conversations: dict[ConversationId, Pending] = {}
        self.submissions: dict[SubmissionId, Pending] = {}
        self.requests: dict[tuple[ConversationId, str], SubmissionId] = {}
        self.entries: dict[ConversationId, deque[EntryRecord]] = {}
        self.documents: dict[DocKey, CachedDocument] = {}
        self.documents_of: dict[ConversationId, set[DocKey]] = {}

    def load(self, rows: Iterable[LiveTask]) -> None:
        """Take index rows read from storage, before anything is admitted."""
        for row in rows:
            self._insert(TaskSlot(row))

    def load_record(self, record: TaskRecord) -> None:
        """Take the record of a cold task; head and durable state are the same then."""
        slot = self.tasks.get(record.id)
        if slot is not None and slot.head is None:
            slot.head = slot.durable = record
            if isinstance(record.state, Waiting) and record.id not in self.remaining:
                self._wait(record.id, record.state)

    def live(self, task_id: TaskId) -> TaskSlot | None:
        """The slot of a task that has not ended in the head."""
        slot = self.tasks.get(task_id)
        return None if slot is None or slot.ended else slot

    def ordinary_below(self, task_id: TaskId) -> int:
        """How many live tasks `task_id` owns; each stays live until what it owns has ended."""
        return len(self.children.get(task_id, ()))

    def is_busy(self, conversation_id: ConversationId) -> bool:
        """Whether the conversation has live work that is not in the background."""
        tasks = self.conversation_tasks.get(conversation_id, ())
        return any(not self.tasks[task_id].background for task_id in tasks)

    # --- the two places of change ---

    def admit(self, batch: Batch) -> None:
        """Make the changes of an admitted batch visible to later callbacks."""
        assert batch.number == self.number + 1, "batches are admitted in order"
        self.number = batch.number
        for change in batch.changes:
            match change:
                case PutTask():
                    self._admit_task(change.record)
                case AppendEntry():
                    entry = change.record
                    self.entries.setdefault(entry.conversation_id, deque()).append(entry)
                case PutSubmission():
                    submission = change.record
                    self.submissions[submission.id] = Pending(submission, batch.number)
                    if submission.request_id is not None:
                        key = (submission.conversation_id, submission.request_id)
                        self.requests[key] = submission.id
                case PutConversation():
                    self.conversations[change.record.id] = Pending(change.record, batch.number)
                case _:
                    # Memos are in the record of their task; documents come with their value below.
                    pass

    def admit_document(self, key: DocKey, document: CachedDocument) -> None:
        """Make a document's new value visible to later callbacks."""
        self.documents[key] = document
        if key.scope == "conversation":
            self.documents_of.setdefault(ConversationId(key.scope_id), set()).add(key)

    def settle(self, batch: Batch, now_ms: int) -> None:
        """Drop what storage now has and nobody needs in memory."""
        assert batch.number == self.durable_number + 1, "batches are settled in order"
        self.durable_number = batch.number
        touched: set[ConversationId] = set()
        for change in batch.changes:
            match change:
                case PutTask():
                    self._settle_task(change.record, now_ms)
                    touched.add(change.record.conversation_id)
                case AppendEntry():
                    self._settle_entry(change.record)
                case PutSubmission():
                    self._settle_submission(change.record, batch.number)
                case PutConversation():
                    pending = self.conversations.get(change.record.id)
                    if pending is not None and pending.number <= batch.number:
                        del self.conversations[change.record.id]
                case PutDocument():
                    self._settle_document(change.record, batch.number, touched)
                case _:
                    pass
        for conversation_id in touched:
            self._forget_documents(conversation_id)

    # --- tasks ---

    def _admit_task(self, record: TaskRecord) -> None:
        slot = self.tasks.get(record.id)
        if slot is None:
            slot = TaskSlot(_row(record))
            self._insert(slot)
        before = slot.head.state if slot.head is not None else None
        slot.show(record)
        if isinstance(before, Waiting) and before is not record.state:
            self._unwait(record.id, before)
        if isinstance(record.state, Waiting) and before is not record.state:
            self._wait(record.id, record.state)
        if isinstance(record.state, Terminal):
            self._remove_from_index(slot)

    def _settle_task(self, record: TaskRecord, now_ms: int) -> None:
        slot = self.tasks.get(record.id)
        if slot is None:
            return
        if isinstance(record.state, Terminal):
            del self.tasks[record.id]
            return
        slot.durable = record
        if (
            slot.head is record
            and isinstance(record.state, Sleeping)
            and record.id not in self.waiters  # what is waited for may have to be marked at once
            and record.state.until_ms - now_ms > _COLD_AFTER_MS
        ):
            slot.head = slot.durable = None

    def _insert(self, slot: TaskSlot) -> None:
        self.tasks[slot.id] = slot
        self.conversation_tasks.setdefault(slot.conversation_id, set()).add(slot.id)
        if slot.owner is not None:
            self.children.setdefault(slot.owner, set()).add(slot.id)

    def _remove_from_index(self, slot: TaskSlot) -> None:
        _discard(self.conversation_tasks, slot.conversation_id, slot.id)
        if slot.owner is not None:
            _discard(self.children, slot.owner, slot.id)
        for waiter in self.waiters.pop(slot.id, ()):
            self.remaining[waiter] -= 1

    def _wait(self, task_id: TaskId, state: Waiting) -> None:
        live = [awaited for awaited in dict.fromkeys(state.on) if self.live(awaited) is not None]
        self.remaining[task_id] = len(live)
        for awaited in live:
            self.waiters.setdefault(awaited, set()).add(task_id)

    def _unwait(self, task_id: TaskId, state: Waiting) -> None:
        del self.remaining[task_id]
        for awaited in state.on:
            _discard(self.waiters, awaited, task_id)

    # --- the rest ---

    def _settle_entry(self, entry: EntryRecord) -> None:
        pending = self.entries[entry.conversation_id]
        assert pending[0].id == entry.id, "entries of a conversation settle in order"
        if len(pending) == 1:
            del self.entries[entry.conversation_id]
        else:
            pending.popleft()

    def _settle_submission(self, submission: SubmissionRecord, number: int) -> None:
        pending = self.submissions.get(submission.id)
        if pending is not None and pending.number <= number:
            del self.submissions[submission.id]
            if submission.request_id is not None:
                self.requests.pop((submission.conversation_id, submission.request_id), None)

    def _settle_document(
        self, record: DocumentRecord, number: int, touched: set[ConversationId]
    ) -> None:
        if record.scope == "conversation":
            touched.add(ConversationId(record.scope_id))
            return
        key = DocKey(record.kind, record.scope, record.scope_id, record.key)
        cached = self.documents.get(key)
        if cached is not None and cached.number <= number:
            del self.documents[key]

    def _forget_documents(self, conversation_id: ConversationId) -> None:
        if conversation_id in self.conversation_tasks:
            return
        keys = self.documents_of.get(conversation_id)
        for key in tuple(keys or ()):
            if self.documents[key].number <= self.durable_number:
                del self.documents[key]
                _discard(self.documents_of, conversation_id, key)


def _row(record: TaskRecord) -> LiveTask:
    return LiveTask(
        id=record.id,
        conversation_id=record.conversation_id,
        kind=record.kind,
        version=record.version,
        status=record.state.status,
        owner=record.owner,
        background=record.background,
        abort_requested=record.abort_requested,
        until_ms=None,
    )


def _discard(index: dict[_K, set[_V]], key: _K, value: _V) -> None:
    members = index.get(key)
    if members is not None:
        members.discard(value)
        if not members:
            del index[key]
