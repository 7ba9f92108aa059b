"""The transaction that a commit callback works on.

Collects writes, reads its own writes and everything admitted before, and turns into the changes of
one batch. It performs no effect and never waits but for a storage read. A transaction and every
draft that it handed out die when the callback returns.

Reads look, in order, at the transaction, at what is admitted, at storage. A record missing from
memory cannot change meanwhile: callbacks run one at a time, and records leave memory only when
storage has them.

Size: one public class; half of it is what it promises to whoever writes callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar, final

import attrs

from pidurable_actors._json import JSON, JsonObject, copy_json, decode_json, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import (
    MisuseError,
    StorageRequestError,
    TaskRefused,
    TransactionClosed,
)
from pidurable_actors.records import (
    AppendEntry,
    Change,
    Completing,
    ConversationId,
    ConversationRecord,
    DropMemos,
    EntryDraft,
    EntryId,
    EntryRecord,
    Pending,
    PutConversation,
    PutMemo,
    PutSubmission,
    PutTask,
    Running,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.records.codec import check_draft, encode_record, encode_task
from pidurable_actors.session._conversations import CachedDocument, ConversationMemory, DocKey
from pidurable_actors.session._documents import DocumentDefinition
from pidurable_actors.session._drafts import Drafts
from pidurable_actors.session._seams import Binding, Reader, StartableTask, whole_conversation
from pidurable_actors.session._state import SessionState
from pidurable_actors.session._task_checks import check_owner, memo_text

__all__ = ["Tx"]

D = TypeVar("D")
T = TypeVar("T")


@final
class Tx:
    """The reads and writes of one commit. Made by the runtime, for one callback.

    Writes are plain calls and take effect, together, when the callback returns. Reads are awaited;
    they answer from memory without a checkpoint where they can, and from storage where they must.

    Attributes:
        now_ms: the time of the commit, epoch milliseconds.
        conversation_id: the conversation that the commit is bound to, if any.
    """

    def __init__(
        self,
        state: SessionState,
        reader: Reader,
        *,
        now_ms: int,
        binding: Binding,
        schedulable: Callable[[str, int], bool],
    ) -> None:
        self.now_ms = now_ms
        self.conversation_id = binding.conversation_id
        self._task_id = binding.task_id
        self._state = state
        self._reader = reader
        self._schedulable = schedulable
        self._open = True
        self._next_id = state.next_id
        self._conversations: dict[ConversationId, ConversationRecord] = {}
        self._entries: list[EntryRecord] = []
        self._tasks: dict[TaskId, TaskRecord] = {}
        self._memos: dict[tuple[TaskId, str], str] = {}
        self._submissions: dict[SubmissionId, SubmissionRecord] = {}
        self._drafts = Drafts(state, reader, now_ms=now_ms)
        self._new_below: dict[TaskId, int] = {}
        self._named: set[ConversationId] = set()  # written to, and not known to exist yet

    # --- reads ---

    async def conversation(self, conversation_id: ConversationId) -> ConversationRecord:
        """One conversation.

        Raises:
            StorageRequestError: there is none with this id.

        Durability: what is returned is admitted, perhaps not stored yet; it is when the commit is.

        Cancellation: the commit rolls back.
        """
        self._check_open()
        created = self._conversations.get(conversation_id)
        if created is not None:
            return created
        return (await self._load(conversation_id)).record

    async def task(self, task_id: TaskId) -> TaskRecord:
        """One task with its memos.

        Raises:
            StorageRequestError: there is none with this id.

        Durability: what is returned is admitted, perhaps not stored yet; it is when the commit is.

        Cancellation: the commit rolls back.
        """
        self._check_open()
        found = self.task_in_memory(task_id)
        if found is None:
            found = await self._reader.read(lambda s: s.task(task_id))
            if found is not None:
                self._state.load_record(found)
        if found is None:
            raise StorageRequestError(f"there is no task {task_id}.")
        return found

    async def load_tasks(self, task_ids: Sequence[TaskId]) -> None:
        """Load the cold ones among live tasks in one read, before `task` is asked for each.

        Durability: stores nothing.

        Cancellation: the commit rolls back.
        """
        cold = [
            task_id
            for task_id in task_ids
            if (slot := self._state.live(task_id)) is not None and slot.head is None
        ]
        if cold:
            for record in await self._reader.read(lambda s: [s.task(task_id) for task_id in cold]):
                if record is not None:
                    self._state.load_record(record)

    def task_in_memory(self, task_id: TaskId) -> TaskRecord | None:
        """The task if it is live and loaded; None says nothing about storage."""
        found = self._tasks.get(task_id)
        if found is None:
            slot = self._state.tasks.get(task_id)
            found = None if slot is None else slot.head
        return found

    async def submission(self, submission_id: SubmissionId) -> SubmissionRecord:
        """One submission.

        Raises:
            StorageRequestError: there is none with this id.

        Durability: what is returned is admitted, perhaps not stored yet; it is when the commit is.

        Cancellation: the commit rolls back.
        """
        self._check_open()
        found = self._submissions.get(submission_id)
        if found is None:
            found = self._state.conversations.submission(submission_id)
        if found is None:
            found = await self._reader.read(lambda s: s.submission(submission_id))
        if found is None:
            raise StorageRequestError(f"there is no submission {submission_id}.")
        return found

    async def submission_by_request(
        self, conversation_id: ConversationId, request_id: str
    ) -> SubmissionRecord | None:
        """The submission that used `request_id` in this conversation, None when none did.

        Durability: what is returned is admitted, perhaps not stored yet; it is when the commit is.

        Cancellation: the commit rolls back.
        """
        self._check_open()
        for record in self._submissions.values():
            if (record.conversation_id, record.request_id) == (conversation_id, request_id):
                return record
        pending_id = self._state.conversations.request(conversation_id, request_id)
        if pending_id is not None:
            return await self.submission(pending_id)
        return await self._reader.read(
            lambda s: s.submission_by_request(conversation_id, request_id)
        )

    async def entries(
        self,
        conversation_id: ConversationId,
        *,
        before: EntryId | None = None,
        limit: int = LIMITS.page,
        kind: str | None = None,
    ) -> list[EntryRecord]:
        """Entries that the conversation sees, newest first, this commit's own included.

        Args:
            conversation_id: whose transcript.
            before: only entries with a smaller id.
            limit: at most so many.
            kind: only entries of this kind.

        Durability: what is returned is admitted, perhaps not stored yet; it is when the commit is.

        Cancellation: the commit rolls back.
        """
        self._check_open()
        bound = 2**63 - 1 if before is None else before
        fresh = [*self._state.conversations.entries(conversation_id), *self._entries]
        mine = [
            entry
            for entry in reversed(fresh)
            if entry.conversation_id == conversation_id
            and entry.id < bound
            and (kind is None or entry.kind == kind)
        ]
        if len(mine) >= limit:
            return mine[:limit]
        stored = await self._reader.read(
            lambda s: s.entries(conversation_id, before=bound, limit=limit, kind=kind)
        )
        # A batch may have become durable since `mine` was made: keep one of each.
        seen = {entry.id for entry in mine}
        return [*mine, *(entry for entry in stored if entry.id not in seen)][:limit]

    async def doc(
        self, definition: DocumentDefinition[D], scope_id: int | None = None, key: str = ""
    ) -> D:
        """The draft of a document, made with its initial value when there is none yet.

        Args:
            definition: what kind of document.
            scope_id: the conversation or task it belongs to; by default the bound one.
            key: which one of a family.

        Returns:
            An instance of the definition's class. Change it in place; what it holds when the
            callback returns is stored.

        Durability: what is returned is admitted, perhaps not stored yet; it is when the commit is.

        Cancellation: the commit rolls back.
        """
        self._check_open()
        defaults = {"session": 0, "conversation": self.conversation_id, "task": self._task_id}
        belongs = scope_id if scope_id is not None else defaults[definition.scope]
        if belongs is None:
            raise MisuseError(
                f"document {definition.kind!r} belongs to a {definition.scope}; "
                "name it, or use a commit that is bound to one."
            )
        if definition.scope == "conversation":
            await self.conversation(ConversationId(belongs))
        return await self._drafts.open(definition, belongs, key)

    # --- writes ---

    def append_entry(self, conversation_id: ConversationId, draft: EntryDraft) -> EntryRecord:
        """Append an entry to a conversation's transcript.

        Args:
            conversation_id: whose transcript.
            draft: the entry; an entry kind's ``new(...)`` makes one.

        Returns:
            The record with its id, stored when the commit is.

        Raises:
            InvalidValue: a part of it is not strict JSON.
        """
        self._check_open()
        check_draft(draft)
        entry = EntryRecord(
            id=EntryId(self._mint()),
            conversation_id=conversation_id,
            kind=draft.kind,
            model=draft.model,
            data=copy_json(draft.data),
            head=draft.head,
            edits=draft.edits,
            by_task_id=self._task_id,
            at_ms=self.now_ms,
        )
        self._entries.append(entry)
        self._name(conversation_id)
        return entry

    def create_task(
        self,
        actor: StartableTask[T],
        task_input: T,
        *,
        owner: TaskId | None = None,
        background: bool = False,
        conversation_id: ConversationId | None = None,
    ) -> TaskId:
        """Create a task; it starts when the scheduler runs and the commit is durable.

        Args:
            actor: the `TaskActor` class.
            task_input: its input.
            owner: the task of the same conversation that owns it; by default the conversation does.
            background: not ended by the conversation's ordinary abort; only without `owner`.
            conversation_id: where it belongs; by default the bound conversation.

        Raises:
            InvalidValue: input or checkpoint is not strict JSON.
            TaskRefused: the owner is missing, of another conversation, ending or abort-marked, or
                `background` was combined with `owner`.
            MisuseError: no conversation is named and none is bound.
        """
        self._check_open()
        seed = actor.seed(task_input)
        where = conversation_id if conversation_id is not None else self.conversation_id
        if where is None:
            raise MisuseError("create_task needs conversation_id= in a harness.commit.")
        if owner is not None:
            self._check_owner(owner, where, background=background)
        start = self._schedulable(seed.kind, seed.version)
        record = TaskRecord(
            id=TaskId(self._mint()),
            conversation_id=where,
            kind=seed.kind,
            version=seed.version,
            input=seed.input,
            owner=owner,
            background=background,
            # Created running where it will be started at once: one write instead of two.
            state=(Running if start else Pending)(checkpoint=seed.checkpoint),
            started_at_ms=self.now_ms if start else None,
        )
        self._add_task(record)
        self._name(where)
        return record.id

    def succeed_task(
        self, record: TaskRecord, checkpoint: JsonObject, memos: Mapping[str, JSON]
    ) -> TaskId:
        """Start a successor of an ended task from a checkpoint and memos; links both records.

        Raises:
            TaskRefused: the owner of the task is missing or ending.
        """
        self._check_open()
        if record.owner is not None:
            self._check_owner(record.owner, record.conversation_id, background=False)
        start = self._schedulable(record.kind, record.version)
        successor = TaskRecord(
            id=TaskId(self._mint()),
            conversation_id=record.conversation_id,
            kind=record.kind,
            version=record.version,
            input=record.input,
            owner=record.owner,
            background=record.background,
            state=(Running if start else Pending)(checkpoint=checkpoint),
            started_at_ms=self.now_ms if start else None,
            retry_of=record.id,
            memos=memos,
        )
        self._add_task(successor)
        for name, value in memos.items():
            self._memos[successor.id, name] = encode_json(value)
        self._tasks[record.id] = attrs.evolve(record, retried_as=successor.id)
        return successor.id

    def create_conversation(self, record: ConversationRecord | None = None) -> ConversationRecord:
        """Create a conversation; the root one is passed in with its fixed id."""
        self._check_open()
        made = record or ConversationRecord(
            id=ConversationId(self._mint()), created_at_ms=self.now_ms
        )
        self._conversations[made.id] = made
        return made

    def create_submission(self, record: SubmissionRecord) -> SubmissionRecord:
        """Create a submission under a fresh id, whatever id `record` carries."""
        self._check_open()
        made = attrs.evolve(record, id=SubmissionId(self._mint()))
        self.put_submission(made)
        return made

    def put_submission(self, record: SubmissionRecord) -> None:
        """Replace a submission."""
        self._check_open()
        self._submissions[record.id] = record
        self._name(record.conversation_id)

    def put_task(self, record: TaskRecord) -> None:
        """Replace a live task's record.

        Raises:
            TaskRefused: the task has ended; an outcome is settled once.
        """
        self._check_open()
        before = self.task_in_memory(record.id)
        assert before is not None, "a task is read before it is written"
        if isinstance(before.state, Terminal) and before.state is not record.state:
            raise TaskRefused(f"task {record.id} has ended.", record.id)
        self._tasks[record.id] = record
        if isinstance(record.state, Terminal) and record.owner is not None:
            self._new_below[record.owner] = self._new_below.get(record.owner, 0) - 1

    def set_memo(self, task_id: TaskId, name: str, value: JSON) -> JSON:
        """Record a memo of a live task; the first writer wins.

        Args:
            task_id: whose memo.
            name: free, within the length limit.
            value: strict JSON, bounded by the memo limits.

        Returns:
            The winner: `value`, or what was recorded before.

        Raises:
            InvalidValue: not strict JSON, too large, or a bad name.
            TaskRefused: the task has ended.
        """
        self._check_open()
        record = self.task_in_memory(task_id)
        if record is None or isinstance(record.state, Terminal | Completing):
            raise TaskRefused(f"task {task_id} has ended; it records no more memos.", task_id)
        if name in record.memos:
            return record.memos[name]
        text = memo_text(name, value, record.memos)
        self._memos[task_id, name] = text
        # Through text, so that the caller may change its own value afterwards.
        kept = decode_json(text)
        self._tasks[task_id] = attrs.evolve(record, memos={**record.memos, name: kept})
        return kept

    # --- what the rules of the line look at ---

    @property
    def ended(self) -> list[TaskRecord]:
        """Tasks of this transaction that hold an outcome, in the order they were written."""
        return [r for r in self._tasks.values() if isinstance(r.state, Completing | Terminal)]

    @property
    def written(self) -> Iterable[TaskRecord]:
        """Tasks that this transaction wrote, each in its newest form."""
        return self._tasks.values()

    def admitted_task(self, task_id: TaskId) -> TaskRecord | None:
        """A live task as it was before this transaction, None when it is new or not in memory."""
        slot = self._state.tasks.get(task_id)
        return None if slot is None else slot.head

    def below(self, task_id: TaskId) -> int:
        """How many live tasks `task_id` owns, as of this transaction."""
        return self._state.ordinary_below(task_id) + self._new_below.get(task_id, 0)

    def children(self, task_id: TaskId) -> tuple[TaskId, ...]:
        """The live tasks that `task_id` owns, before this transaction."""
        return tuple(self._state.children.get(task_id, ()))

    def is_live(self, task_id: TaskId) -> bool:
        """Whether a task exists and is not terminal, as of this transaction."""
        record = self._tasks.get(task_id)
        if record is not None:
            return not isinstance(record.state, Terminal)
        return self._state.live(task_id) is not None

    def waiters(self, task_id: TaskId) -> Iterable[TaskId]:
        """Tasks that wait for `task_id`, among others."""
        return tuple(self._state.waiters.get(task_id, ()))

    def remaining(self, task_id: TaskId) -> int:
        """How many tasks `task_id` still waited for before this transaction."""
        return self._state.remaining.get(task_id, 0)

    def has_ended(self, task_id: TaskId) -> bool:
        """Whether a task, known to exist, is terminal as of this transaction."""
        return not self.is_live(task_id)

    def can_run(self, record: TaskRecord) -> bool:
        """Whether the scheduler would start the task now."""
        return self._schedulable(record.kind, record.version)

    def is_busy(self, conversation_id: ConversationId) -> bool:
        """Whether the conversation has live work that is not in the background."""
        tasks = set(self._state.conversation_tasks.get(conversation_id, ()))
        tasks |= {r.id for r in self._tasks.values() if r.conversation_id == conversation_id}
        return any(
            not (self._tasks.get(task) or self._state.tasks[task]).background
            for task in tasks
            if self.is_live(task)
        )

    # --- the end ---

    async def settle_names(self) -> None:
        """Make sure that every conversation that was written to exists, before `freeze`.

        Raises:
            StorageRequestError: one does not.

        Durability: stores nothing.

        Cancellation: the commit rolls back.
        """
        for conversation_id in self._named:
            await self.conversation(conversation_id)

    @property
    def has_names(self) -> bool:
        """Whether `settle_names` has something to do."""
        return bool(self._named)

    def freeze(self) -> tuple[tuple[Change, ...], Mapping[DocKey, CachedDocument]]:
        """The changes to store and the new values of documents; the transaction is dead then.

        Raises:
            InvalidValue: a document's draft holds something that is not strict JSON.
        """
        changes: list[Change] = []
        changes.extend(PutConversation(c, encode_record(c)) for c in self._conversations.values())
        changes.extend(AppendEntry(e, encode_record(e)) for e in self._entries)
        documents = self._drafts.freeze(changes, self._mint)
        changes.extend(PutMemo(task, name, text) for (task, name), text in self._memos.items())
        for task in self._tasks.values():
            if isinstance(task.state, Terminal) and task.memos:
                changes.append(DropMemos(task.id))
                task = attrs.evolve(task, memos={})  # noqa: PLW2901 - one record, two forms
            changes.append(PutTask(task, encode_task(task)))
        changes.extend(PutSubmission(s, encode_record(s)) for s in self._submissions.values())
        self._open = False
        return tuple(changes), documents

    def close(self) -> None:
        """Make every later use fail."""
        self._open = False

    @property
    def next_id(self) -> int:
        """The first id that this transaction has not used."""
        return self._next_id

    # --- helpers ---

    def _name(self, conversation_id: ConversationId) -> None:
        if (
            conversation_id not in self._conversations
            and self._state.conversations.get(conversation_id) is None
        ):
            self._named.add(conversation_id)

    async def _load(self, conversation_id: ConversationId) -> ConversationMemory:
        known = self._state.conversations.get(conversation_id)
        if known is not None:
            return known
        record, documents = await self._reader.read(whole_conversation(conversation_id))
        if record is None:
            raise StorageRequestError(f"there is no conversation {conversation_id}.")
        return self._state.conversations.remember(record, documents)

    def _add_task(self, record: TaskRecord) -> None:
        self._tasks[record.id] = record
        if record.owner is not None:
            self._new_below[record.owner] = self._new_below.get(record.owner, 0) + 1

    def _check_owner(self, owner: TaskId, where: ConversationId, *, background: bool) -> None:
        if background:
            raise TaskRefused("background work is owned by its conversation, not by a task.")
        # The index row is enough, so an owner that sleeps need not be loaded.
        check_owner(owner, self._tasks.get(owner) or self._state.live(owner), where)

    def _mint(self) -> int:
        minted = self._next_id
        self._next_id += 1
        return minted

    def _check_open(self) -> None:
        if not self._open:
            raise TransactionClosed(
                "this transaction ended with its callback; return what you need from the callback."
            )
