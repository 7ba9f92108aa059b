"""The harness as its host sees it: conversations, tasks, commits and what goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, final, overload

from pidurable_actors._json import JSON
from pidurable_actors.actors import ClosedEnd, with_abort
from pidurable_actors.agent import (
    AGENT,
    PROVIDER,
    USAGE,
    UsageState,
)
from pidurable_actors.errors import MisuseError, StorageRequestError, TaskRefused
from pidurable_actors.harness._builtin import BUILT_IN
from pidurable_actors.harness._choice import AgentChoice, apply_choice
from pidurable_actors.harness._conversation import Conversation
from pidurable_actors.harness._core import Core
from pidurable_actors.harness._inspect import Inspection, inspect_engine
from pidurable_actors.harness._pages import Page, check_limit, read_cursor, write_cursor
from pidurable_actors.harness._retry import retry_task
from pidurable_actors.harness._submission import Submission
from pidurable_actors.records import (
    ROOT_ID,
    ConversationId,
    ConversationRecord,
    SubmissionId,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.runtime import TaskActor
from pidurable_actors.session import Binding, Tx

__all__ = ["Harness"]

T = TypeVar("T")
AnyActor: TypeAlias = TaskActor[Any, Any]

_UNBOUND = Binding()


@final
class Harness:
    """One open storage plus the actors that run on it; made by `open_harness`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # --- conversations ---

    async def root(self, *, agent: AgentChoice | None = None) -> Conversation:
        """The root conversation, created at first use with `agent`, else returned unchanged.

        Args:
            agent: what it runs with when it is created now.

        Raises:
            UnknownModel: no installed provider serves the model of `agent`.
            ReadOnlySession: it does not exist yet and the harness only looks.
            HarnessClosed, SessionFailed: it is too late.

        Durability: on return it exists in storage.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._check_model(agent)
        found = await self._core.read(lambda storage: storage.conversation(ROOT_ID))
        if found is None:

            async def create(tx: Tx) -> None:
                try:
                    await tx.conversation(ROOT_ID)
                except StorageRequestError:
                    record = ConversationRecord(id=ROOT_ID, created_at_ms=tx.now_ms)
                    await self._create(tx, record, agent)

            await self._core.commit(create, _UNBOUND)
        return Conversation(ROOT_ID, self._core)

    async def create_conversation(self, *, agent: AgentChoice | None = None) -> Conversation:
        """A new conversation.

        Args:
            agent: what it runs with.

        Raises:
            UnknownModel: no installed provider serves the model of `agent`.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.

        Durability: on return it exists in storage.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._check_model(agent)
        made = await self._core.commit(lambda tx: self._create(tx, None, agent), _UNBOUND)
        return Conversation(made.id, self._core)

    async def conversation(self, conversation_id: int) -> Conversation:
        """A conversation by its id.

        Raises:
            StorageRequestError: there is none with this id.
            HarnessClosed, SessionFailed: it is too late.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        wanted = ConversationId(conversation_id)
        if await self._core.read(lambda storage: storage.conversation(wanted)) is None:
            raise StorageRequestError(f"there is no conversation {conversation_id}.")
        return Conversation(wanted, self._core)

    async def conversations(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Conversation]:
        """The conversations, by id.

        Raises:
            StorageRequestError: a bad limit or cursor.
            HarnessClosed, SessionFailed: it is too late.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        check_limit(limit)
        query: list[JSON] = ["conversations"]
        after = read_cursor(cursor, query, 0)
        records = await self._core.read(
            lambda storage: storage.conversations(after=after, limit=limit)
        )
        following = write_cursor(query, records[-1].id) if len(records) == limit else None
        return Page(tuple(Conversation(r.id, self._core) for r in records), following)

    async def submission(self, submission_id: int) -> Submission:
        """A submission by its id, also one of an earlier process.

        Raises:
            StorageRequestError: there is none with this id.
            HarnessClosed, SessionFailed: it is too late.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        wanted = SubmissionId(submission_id)
        found = await self._core.read(lambda storage: storage.submission(wanted))
        if found is None:
            raise StorageRequestError(f"there is no submission {submission_id}.")
        return Submission(found.id, found.conversation_id, self._core)

    # --- tasks ---

    def resume(self) -> None:
        """Start scheduling: go on with what an earlier process left. Again does nothing.

        Raises:
            ReadOnlySession: the harness only looks.
            HarnessClosed, SessionFailed: it is too late.
        """
        self._core.need_progress()

    async def get_task(self, task_id: int) -> TaskRecord:
        """The durable record of a task.

        Raises:
            StorageRequestError: there is none with this id.
            HarnessClosed, SessionFailed: it is too late.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        self._core.engine.check_open()
        return await self._core.engine.host.get_task(TaskId(task_id))

    async def wait_for_task(self, task_id: int) -> TaskRecord:
        """Wait until a task has ended; asks for progress.

        Returns:
            Its terminal record; ``record.state.outcome`` says how it ended.

        Raises:
            StorageRequestError: there is none with this id.
            ReadOnlySession: the task has not ended and the harness schedules nothing.
            HarnessClosed, SessionFailed: the harness ended first.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        host = self._core.engine.host
        if not host.is_live(TaskId(task_id)):
            record = await self.get_task(task_id)
            if isinstance(record.state, Terminal):
                return record
        self._core.need_progress()
        return await host.wait_for_task(TaskId(task_id))

    async def abort_task(self, task_id: int, *, reason: str = "") -> TaskRecord:
        """Mark a task for abort and wait until it has ended; asks for progress.

        Its running phase is cancelled; what it owns is aborted first; then its `abort` handler
        decides the outcome.

        Raises:
            StorageRequestError: there is none with this id.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.

        Durability: the mark is stored before anything stops; on return the end is stored.

        Cancellation: only the wait ends; once the mark is stored, the abort goes on.
        """
        self._core.need_progress()
        wanted = TaskId(task_id)

        async def mark(tx: Tx) -> None:
            record = await tx.task(wanted)
            if not isinstance(record.state, Terminal) and not record.abort_requested:
                tx.tasks.put(with_abort(record, reason))

        await self._core.commit(mark, _UNBOUND)
        return await self.wait_for_task(task_id)

    async def retry_task(self, task_id: int) -> TaskId:
        """Try a parked task, or an ended one that faulted or failed, again; asks for progress.

        A parked task goes on with its restart count at zero. For a terminal ``faulted`` or
        ``failed`` application task a new task starts from the last checkpoint and memos it had;
        both records say so.

        Returns:
            The id of the task that runs now.

        Raises:
            TaskRefused: the task is neither, was retried before, is built in, or its owner is
                ending.
            StorageRequestError: there is none with this id.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.

        Durability: on return the new start is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._core.need_progress()
        wanted = TaskId(task_id)

        async def again(tx: Tx) -> TaskId:
            record = await tx.task(wanted)
            cls = BUILT_IN.get(record.kind)
            if cls is not None and isinstance(record.state, Terminal):
                raise TaskRefused(
                    f"task {task_id} is built in ({record.kind}); submit its work again.", wanted
                )
            return await retry_task(tx, record)

        return await self._core.commit(again, _UNBOUND)

    # --- changing and looking ---

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]]) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T]) -> T: ...

    async def commit(self, change: Callable[[Tx], Any]) -> Any:
        """Commit; conversations are named in each write. See `Conversation.commit`.

        Durability: on return everything that `change` wrote is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        return await self._core.commit(change, _UNBOUND)

    def inspect(self) -> Inspection:
        """What is live and why it does or does not run."""
        return inspect_engine(self._core.engine)

    def next_wake_ms(self) -> int | None:
        """When the earliest sleeping task is due, epoch milliseconds; None when none sleeps."""
        return self._core.engine.supervisor.next_wake_ms()

    async def usage(self) -> UsageState:
        """What all conversations have used together.

        Raises:
            HarnessClosed, SessionFailed: it is too late.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        total = UsageState()
        cursor: str | None = None
        while True:
            page = await self.conversations(limit=1_000, cursor=cursor)
            for conversation in page.items:
                total.merge(await conversation.snapshot(USAGE))
            if page.next_cursor is None:
                return total
            cursor = page.next_cursor

    async def closed(self) -> ClosedEnd:
        """Wait for the end of the harness, so that a host can open it again.

        Durability: stores nothing.

        Cancellation: only the wait ends.
        """
        return await self._core.engine.wait_closed()

    # --- helpers ---

    def _check_model(self, agent: AgentChoice | None) -> None:
        if agent is not None and not isinstance(agent, AgentChoice):
            raise MisuseError(f"agent= takes AgentChoice(model=...), not {agent!r}.")
        if agent is not None and agent.model is not None:
            self._core.services.models.resolve(agent.model)

    async def _create(
        self, tx: Tx, record: ConversationRecord | None, agent: AgentChoice | None
    ) -> ConversationRecord:
        made = tx.create_conversation(record)
        if agent is not None:
            apply_choice(await tx.doc(AGENT, made.id), agent)
        provider = await tx.doc(PROVIDER, made.id)
        provider.session_id = self._core.services.chance.session_id(tx.now_ms)
        return made
