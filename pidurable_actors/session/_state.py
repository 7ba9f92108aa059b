"""What the line knows: the index of live work and the records that are not yet durable.

Owns, in memory, the newest state that callbacks see (the *head*) and, per live task, the durable
state that everybody else sees. It changes only in two places: `admit` when a batch enters the
queue, `settle` when the storage has it. It never reads storage and never decides anything.

Cold things cost nothing: ended tasks leave with `settle`, and a task that sleeps long keeps its
index row (a `TaskSlot`) without its record. Conversations have a module of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar, final

from pidurable_actors._json import encode_json
from pidurable_actors.records import (
    AppendEntry,
    Batch,
    ChangeDocument,
    CommitNumber,
    ConversationId,
    PutConversation,
    PutDocument,
    PutMemo,
    PutSubmission,
    PutTask,
    RetireDocuments,
    Sleeping,
    SubmissionId,
    SubmissionRecord,
    SubmissionStatus,
    TaskId,
    TaskRecord,
    TaskStatus,
    Terminal,
    Waiting,
)
from pidurable_actors.session._conversations import CachedDocument, Conversations, DocKey
from pidurable_actors.storage import Head, LiveTask

__all__ = ["UNSETTLED", "SessionState", "TaskSlot", "above"]

_K = TypeVar("_K")
_V = TypeVar("_V")

UNSETTLED: Final[tuple[SubmissionStatus, ...]] = ("queued", "placed")
"""What a submission is until it is answered or given up."""

_COLD_AFTER_MS = 5_000
"""A task that sleeps longer than this is dropped to its index row."""


@final
class TaskSlot:
    """Index row of one live task.

    `above` is the task whose ordinary work this is: its owner, or the owner of its conversation.
    `head` is what callbacks see, `durable` what everybody else sees; both are None while the task
    is cold, when storage has the one record. The plain fields repeat `head`, so that the scheduler
    can look at a cold task.
    """

    __slots__ = (
        "abort_requested",
        "above",
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
        self.above = above(row.owner, row.conversation_owner, background=row.background)
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


@final
class SessionState:
    """The head and the durable index of one open storage."""

    def __init__(self, head: Head) -> None:
        self.number = CommitNumber(head.commit)
        self.durable_number = CommitNumber(head.commit)
        self.next_id = head.next_id
        self.tasks: dict[TaskId, TaskSlot] = {}
        self.children: dict[TaskId, set[TaskId]] = {}  # task -> live tasks that are its work
        self.settled_above: dict[TaskId, TaskId] = {}  # of what the batch settled last has ended
        self.roots = 0  # live tasks that are neither in the background nor anybody's work
        self.busy: dict[ConversationId, int] = {}  # live tasks at its top, not in the background
        self.owners: dict[ConversationId, TaskId] = {}  # of those with live tasks, who owns it
        self.conversation_tasks: dict[ConversationId, set[TaskId]] = {}  # all live tasks of it
        self.waiters: dict[TaskId, set[TaskId]] = {}  # awaited task -> tasks that wait for it
        self.remaining: dict[TaskId, int] = {}  # waiting task -> awaited tasks still live
        self.failed_fast: set[TaskId] = set()  # of those, where one has ended not completed
        self.held: set[TaskId] = set()  # what the present transaction has read stays in memory
        self.unsettled: dict[SubmissionId, ConversationId] = {}  # as storage has them
        self.conversations = Conversations()
        self.with_documents: set[TaskId] = set()  # live tasks to which documents belong
        self._memo_bytes: dict[TaskId, int] = {}  # of tasks that recorded a memo lately

    def load(self, rows: Iterable[LiveTask]) -> None:
        """Take index rows read from storage, before anything is admitted."""
        for row in rows:
            self._insert(TaskSlot(row), row.conversation_owner)
            if row.has_documents:
                self.with_documents.add(row.id)

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
        """How many live tasks are its own work; each stays live until its own work has ended."""
        return len(self.children.get(task_id, ()))

    def memo_bytes(self, record: TaskRecord) -> int:
        """How much the admitted memos of a live task hold, encoded; kept, so that it adds up."""
        known = self._memo_bytes.get(record.id)
        if known is None:
            slot = self.tasks.get(record.id)
            memos = {} if slot is None or slot.head is None else slot.head.memos
            known = self._memo_bytes[record.id] = len(encode_json(memos).encode())
        return known

    # --- the two places of change ---

    def admit(self, batch: Batch, documents: Mapping[DocKey, CachedDocument]) -> None:
        """Make the changes of an admitted batch visible to later callbacks."""
        assert batch.number == self.number + 1, "batches are admitted in order"
        self.number = batch.number
        self.next_id = batch.next_id
        # Conversations first: a new task may be somebody's work by way of its conversation.
        self.conversations.admit(batch)
        for change in batch.changes:
            if isinstance(change, PutTask):
                self._admit_task(change.record)
            elif isinstance(change, PutMemo) and change.task_id in self._memo_bytes:
                self._memo_bytes[change.task_id] += len(change.text.encode()) + len(change.name)
        for key, document in documents.items():
            self.conversations.admit_document(key, document)
            if key.scope == "task":
                self.with_documents.add(TaskId(key.scope_id))
        for change in batch.changes:
            if isinstance(change, RetireDocuments):
                self.with_documents.discard(change.task_id)
                self.conversations.forget_of_task(change.task_id)

    def settle(self, batch: Batch, now_ms: int) -> None:
        """Drop what storage now has and nobody needs in memory."""
        assert batch.number == self.durable_number + 1, "batches are settled in order"
        self.durable_number = batch.number
        self.settled_above.clear()
        self.conversations.settle(batch)
        for change in batch.changes:
            match change:
                case PutTask():
                    self._settle_task(change.record, now_ms)
                    self.rest(change.record.conversation_id)
                case PutDocument() | ChangeDocument() if change.record.scope == "conversation":
                    self.rest(ConversationId(change.record.scope_id))
                case PutConversation():
                    self.rest(change.record.id)
                case PutSubmission():
                    self.note_submission(change.record)
                    self.rest(change.record.conversation_id)
                case AppendEntry():
                    self.rest(change.record.conversation_id)
                case _:
                    pass

    def rest(self, conversation_id: ConversationId) -> None:
        """Let a conversation be forgotten, unless it has live work or is not yet durable."""
        if conversation_id not in self.conversation_tasks:
            self.conversations.rest(conversation_id, self.durable_number)

    def note_submission(self, record: SubmissionRecord) -> None:
        """Take a submission as storage has it."""
        if record.status in UNSETTLED:
            self.unsettled[record.id] = record.conversation_id
        else:
            self.unsettled.pop(record.id, None)

    # --- tasks ---

    def _admit_task(self, record: TaskRecord) -> None:
        slot = self.tasks.get(record.id)
        if slot is None:
            owner = self.conversations.owner(record.conversation_id)
            slot = TaskSlot(_row(record, owner))
            self._insert(slot, owner)
        before = slot.head.state if slot.head is not None else None
        slot.show(record)
        if isinstance(before, Waiting) and before is not record.state:
            self._unwait(record.id, before)
        if isinstance(record.state, Waiting) and before is not record.state:
            self._wait(record.id, record.state)
        if isinstance(record.state, Terminal):
            self._remove_from_index(slot, record.state)

    def _settle_task(self, record: TaskRecord, now_ms: int) -> None:
        slot = self.tasks.get(record.id)
        if slot is None:
            return
        if isinstance(record.state, Terminal):
            del self.tasks[record.id]
            if slot.above is not None:
                self.settled_above[record.id] = slot.above
            self._memo_bytes.pop(record.id, None)
            self.with_documents.discard(record.id)
            return
        slot.durable = record
        if (
            slot.head is record
            and isinstance(record.state, Sleeping)
            # What is waited for, or will be by this transaction, may have to be marked at once.
            and record.id not in self.waiters
            and record.id not in self.held
            and record.state.until_ms - now_ms > _COLD_AFTER_MS
        ):
            slot.head = slot.durable = None

    def _insert(self, slot: TaskSlot, conversation_owner: TaskId | None) -> None:
        self.tasks[slot.id] = slot
        if conversation_owner is not None:
            self.owners[slot.conversation_id] = conversation_owner
        self.conversation_tasks.setdefault(slot.conversation_id, set()).add(slot.id)
        self.conversations.wake(slot.conversation_id)
        if slot.above is not None:
            self.children.setdefault(slot.above, set()).add(slot.id)
        elif not slot.background:
            self.roots += 1
        if slot.owner is None and not slot.background:
            self.busy[slot.conversation_id] = self.busy.get(slot.conversation_id, 0) + 1

    def _remove_from_index(self, slot: TaskSlot, end: Terminal) -> None:
        _discard(self.conversation_tasks, slot.conversation_id, slot.id)
        if slot.conversation_id not in self.conversation_tasks:
            self.owners.pop(slot.conversation_id, None)
        if slot.above is not None:
            _discard(self.children, slot.above, slot.id)
        elif not slot.background:
            self.roots -= 1
        if slot.owner is None and not slot.background:
            self.busy[slot.conversation_id] -= 1
            if not self.busy[slot.conversation_id]:
                del self.busy[slot.conversation_id]
        completed = end.outcome.status == "completed"
        for waiter in self.waiters.pop(slot.id, ()):
            self.remaining[waiter] -= 1
            if not completed:
                self.failed_fast.add(waiter)

    def _wait(self, task_id: TaskId, state: Waiting) -> None:
        live = [awaited for awaited in dict.fromkeys(state.on) if self.live(awaited) is not None]
        self.remaining[task_id] = len(live)
        for awaited in live:
            self.waiters.setdefault(awaited, set()).add(task_id)

    def _unwait(self, task_id: TaskId, state: Waiting) -> None:
        del self.remaining[task_id]
        self.failed_fast.discard(task_id)
        for awaited in state.on:
            _discard(self.waiters, awaited, task_id)


def above(
    owner: TaskId | None, conversation_owner: TaskId | None, *, background: bool
) -> TaskId | None:
    """The task whose ordinary work a task is, None when it is nobody's."""
    return conversation_owner if owner is None and not background else owner


def _row(record: TaskRecord, conversation_owner: TaskId | None) -> LiveTask:
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
        conversation_owner=conversation_owner,
    )


def _discard(index: dict[_K, set[_V]], key: _K, value: _V) -> None:
    members = index.get(key)
    if members is not None:
        members.discard(value)
        if not members:
            del index[key]
