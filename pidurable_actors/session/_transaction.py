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

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, final

import attrs

from pidurable_actors._json import JSON, copy_json
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
    ConversationId,
    ConversationRecord,
    EntryDraft,
    EntryId,
    EntryRecord,
    ForkPoint,
    Owner,
    PutConversation,
    PutSubmission,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.records.codec import check_draft, encode_record
from pidurable_actors.session._conversations import CachedDocument, ConversationMemory, DocKey
from pidurable_actors.session._documents import DocumentDefinition
from pidurable_actors.session._drafts import Drafts, retired
from pidurable_actors.session._forks import Link, copied_documents, seen_entries, sees
from pidurable_actors.session._seams import (
    Binding,
    FreshIds,
    Reader,
    StartableTask,
    whole_conversation,
)
from pidurable_actors.session._state import SessionState
from pidurable_actors.session._task_ledger import TaskLedger

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
        tasks: the engine's own door to tasks; application callbacks do not need it.
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
        self._open = True
        self._ids = FreshIds(state.next_id)
        self._conversations: dict[ConversationId, ConversationRecord] = {}
        self._entries: list[EntryRecord] = []
        self._submissions: dict[SubmissionId, SubmissionRecord] = {}
        self._drafts: Drafts | None = None
        self.tasks = TaskLedger(state, now_ms=now_ms, ids=self._ids, schedulable=schedulable)
        self._used: set[ConversationId] = set()
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
        self._state.held.add(task_id)
        found = self.tasks.find(task_id)
        if found is None:
            found = await self._reader.read(lambda s: s.task(task_id))
            if found is not None:
                self._state.load_record(found)
        if found is None:
            raise StorageRequestError(f"there is no task {task_id}.")
        return found

    async def above(self, record: TaskRecord) -> TaskId | None:
        """The task whose ordinary work a task is: its owner, or the owner of its conversation.

        Durability: what is returned is admitted; such edges never change.

        Cancellation: the commit rolls back.
        """
        if record.owner is not None or record.background:
            return record.owner
        edge = (await self.conversation(record.conversation_id)).owner
        return None if edge is None else edge.task_id

    async def takes_work(self, conversation_id: ConversationId) -> bool:
        """Whether ordinary work may be created there: nobody owns it, or its owner goes on.

        Durability: what is returned is admitted.

        Cancellation: the commit rolls back.
        """
        edge = (await self.conversation(conversation_id)).owner
        if edge is None:
            return True
        try:
            self.tasks.check_owner(edge.task_id)
        except TaskRefused:
            return False
        return True

    async def load_tasks(self, task_ids: Sequence[TaskId]) -> None:
        """Load the cold ones among live tasks in one read, before `task` is asked for each.

        Durability: stores nothing.

        Cancellation: the commit rolls back.
        """
        self._state.held.update(task_ids)
        cold = [
            task_id
            for task_id in task_ids
            if (slot := self._state.live(task_id)) is not None and slot.head is None
        ]
        if cold:
            for record in await self._reader.read(lambda s: [s.task(task_id) for task_id in cold]):
                if record is not None:
                    self._state.load_record(record)

    async def submission(self, submission_id: SubmissionId) -> SubmissionRecord:
        """One submission.

        Raises:
            StorageRequestError: there is none with this id.

        Durability: what is returned is admitted, perhaps not stored yet; it is when the commit is.

        Cancellation: the commit rolls back.
        """
        self._check_open()
        found = self._submissions.get(submission_id)
        found = found or self._state.conversations.submission(submission_id)
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
        return await seen_entries(
            self.conversation,
            self._reader,
            lambda at: [*self._state.conversations.entries(at), *self._entries],
            Link(conversation_id, 2**63 - 1 if before is None else before),
            limit=limit,
            kind=kind,
        )

    async def entry(self, entry_id: EntryId) -> EntryRecord:
        """One entry, of any conversation.

        Raises:
            StorageRequestError: there is none with this id.

        Durability: what is returned is admitted, perhaps not stored yet; it is when the commit is.

        Cancellation: the commit rolls back.
        """
        self._check_open()
        found = next((entry for entry in self._entries if entry.id == entry_id), None)
        found = found or self._state.conversations.entry(entry_id)
        if found is None:
            found = await self._reader.read(lambda s: s.entry(entry_id))
        if found is None:
            raise StorageRequestError(f"there is no entry {entry_id}.")
        return found

    async def doc(
        self, definition: DocumentDefinition[D], scope_id: int | None = None, key: str = ""
    ) -> D:
        """The draft of a document, made with its initial value when there is none yet.

        Args:
            definition: what kind of document.
            scope_id: the conversation or task it belongs to; by default the bound one.
            key: which one of a family.

        Returns:
            What stands for an instance of the class. Change it in place; it dies with the callback.

        Raises:
            StorageRequestError: there is no such conversation or task.
            TaskRefused: the task that it belongs to has ended; its documents are retired.
            InvalidValue: a key that cannot be stored, or `migrate` made what does not fit.
            DefinitionError: it is stored in an older version, and there is no `migrate`.
            StorageTooNew: it is stored in a newer version.
            MisuseError: nothing says what it belongs to, or it is open as another class.

        Durability: what is returned is admitted, perhaps not stored yet; it is when the commit is.

        Cancellation: the commit rolls back.
        """
        self._check_open()
        bound = self.conversation_id if definition.scope == "conversation" else self._task_id
        belongs = 0 if definition.scope == "session" else bound if scope_id is None else scope_id
        if belongs is None:
            raise MisuseError(
                f"document {definition.kind!r} belongs to a {definition.scope}; "
                "name it, or use a commit that is bound to one."
            )
        if definition.scope == "conversation":
            await self.conversation(ConversationId(belongs))
        elif definition.scope == "task":
            await self._check_task_lives(TaskId(belongs))
        return await self._all_drafts().open(definition, belongs, key)

    def newest_entry(self, conversation_id: ConversationId) -> int:
        """The last entry appended there since it got live work; 0 for none. For its own tasks."""
        memory = self._state.conversations.get(conversation_id)
        return 0 if memory is None else memory.newest

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
            id=EntryId(self._ids.mint()),
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
        record = self.tasks.create(seed, where, owner=owner, background=background)
        self._name(where)
        return record.id

    def create_conversation(
        self, record: ConversationRecord | None = None, *, owner: TaskId | None = None
    ) -> ConversationRecord:
        """Create a conversation; the root one is passed in with its fixed id.

        Args:
            record: the root's record.
            owner: the live task that owns it, of any conversation: what runs at its top, unless in
                the background, is that task's work. It never changes.

        Returns:
            The record with its id, stored when the commit is.

        Raises:
            TaskRefused: the owner is missing, ending or abort-marked.
        """
        self._check_open()
        made = record
        if made is None:
            edge = None
            if owner is not None:
                edge = Owner(
                    conversation_id=self.tasks.check_owner(owner).conversation_id, task_id=owner
                )
            made = ConversationRecord(
                id=ConversationId(self._ids.mint()), owner=edge, created_at_ms=self.now_ms
            )
        self._conversations[made.id] = made
        return made

    async def fork(
        self, conversation_id: ConversationId, *, at: EntryId | None = None
    ) -> ConversationRecord:
        """Create a conversation that sees what another one does, up to an entry.

        Args:
            conversation_id: what is forked; of any depth.
            at: the last entry that the fork sees; by default the newest.

        Returns:
            The record with its id, stored when the commit is.

        Raises:
            StorageRequestError: there is no such conversation or entry, or it does not see it.

        Durability: stored with the commit.

        Cancellation: the commit rolls back.
        """
        await self.conversation(conversation_id)
        named = [] if at is None else [await self.entry(at)]
        seen = named or await self.entries(conversation_id, limit=1)
        where = f"conversation {conversation_id}"
        if not seen:
            raise StorageRequestError(f"{where} has no entry to fork at; create another one.")
        entry = seen[0]
        if not await sees(self.conversation, conversation_id, entry):
            raise StorageRequestError(f"{where} does not see entry {entry.id}.")
        made = ConversationRecord(
            id=ConversationId(self._ids.mint()),
            parent=ForkPoint(conversation_id=conversation_id, entry_id=entry.id),
            created_at_ms=self.now_ms,
        )
        copied = await copied_documents(
            self._state.conversations,
            self._reader,
            self._drafts,
            parent=conversation_id,
            at=entry,
            is_new=entry in self._entries,
        )
        for record, value in copied:
            self._all_drafts().copy_to(made.id, record, value)
        self._conversations[made.id] = made
        return made

    def create_submission(self, record: SubmissionRecord) -> SubmissionRecord:
        """Create a submission under a fresh id, whatever id `record` carries."""
        self._check_open()
        made = attrs.evolve(record, id=SubmissionId(self._ids.mint()))
        self.put_submission(made)
        return made

    def put_submission(self, record: SubmissionRecord) -> None:
        """Replace a submission."""
        self._check_open()
        self._submissions[record.id] = record
        self._name(record.conversation_id)

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
        return self.tasks.memo(task_id, name, value)

    # --- the end ---

    async def settle_names(self) -> None:
        """Look at every conversation that was written to, before `freeze`.

        Each must exist, and what was created in one that a task owns is that task's work.

        Raises:
            StorageRequestError: one does not exist.
            TaskRefused: its owner may own no new work.

        Durability: stores nothing.

        Cancellation: the commit rolls back.
        """
        for conversation_id in self._named:
            await self.conversation(conversation_id)
        for conversation_id in self.tasks.ungoverned:
            edge = (await self.conversation(conversation_id)).owner
            self.tasks.govern(conversation_id, None if edge is None else edge.task_id)

    @property
    def has_names(self) -> bool:
        """Whether `settle_names` has something to do."""
        return bool(self._named or self.tasks.ungoverned)

    def freeze(self) -> tuple[tuple[Change, ...], Mapping[DocKey, CachedDocument]]:
        """The changes to store and the new values of documents; the transaction is dead then.

        Raises:
            InvalidValue: a document's draft holds something that is not strict JSON.
        """
        changes: list[Change] = []
        documents: dict[DocKey, CachedDocument] = {}
        # Asked first, because most commits are one step of one task and a generator has its price.
        if self._conversations:
            changes.extend(
                PutConversation(c, encode_record(c)) for c in self._conversations.values()
            )
        if self._entries:
            changes.extend(AppendEntry(e, encode_record(e)) for e in self._entries)
        if self._drafts is not None:
            documents = dict(self._drafts.freeze(changes, self._ids))
        self.tasks.freeze(changes)
        changes.extend(retired(changes, documents, self._state.with_documents, self.now_ms))
        if self._submissions:
            changes.extend(PutSubmission(s, encode_record(s)) for s in self._submissions.values())
        self._open = False
        return tuple(changes), documents

    def close(self) -> None:
        """Make every later use fail, and let go of what was kept in memory for it."""
        self._open = False
        if self._drafts is not None:
            self._drafts.close()
        for conversation_id in self._used:
            self._state.rest(conversation_id)
        self._used.clear()
        self._state.held.clear()

    @property
    def next_id(self) -> int:
        """The first id that this transaction has not used."""
        return self._ids.next

    # --- helpers ---

    def _all_drafts(self) -> Drafts:
        if self._drafts is None:
            self._drafts = Drafts(self._state, self._reader, now_ms=self.now_ms)
        return self._drafts

    async def _check_task_lives(self, task_id: TaskId) -> None:
        if isinstance((await self.task(task_id)).state, Terminal):
            raise TaskRefused(f"task {task_id} has ended, and its documents with it.", task_id)

    def _name(self, conversation_id: ConversationId) -> None:
        # A commit is bound only to a conversation that exists.
        if (
            conversation_id != self.conversation_id
            and conversation_id not in self._conversations
            and self._state.conversations.get(conversation_id) is None
        ):
            self._named.add(conversation_id)

    async def _load(self, conversation_id: ConversationId) -> ConversationMemory:
        known = self._state.conversations.get(conversation_id)
        if known is not None:
            self._use(conversation_id)
            return known
        record, documents = await self._reader.read(whole_conversation(conversation_id))
        if record is None:
            raise StorageRequestError(f"there is no conversation {conversation_id}.")
        loaded = self._state.conversations.remember(record, documents)
        self._use(conversation_id)
        return loaded

    def _use(self, conversation_id: ConversationId) -> None:
        """Keep a loaded conversation in memory until the transaction is over."""
        self._state.conversations.wake(conversation_id)
        self._used.add(conversation_id)

    def _check_open(self) -> None:
        if not self._open:
            raise TransactionClosed(
                "this transaction ended with its callback; return what you need from the callback."
            )
