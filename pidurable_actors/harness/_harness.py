"""The harness as its host sees it: conversations, tasks and commits.

What can be seen of it is in `_harness_reading`.

Size: one public class; most of it is what its calls promise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, final, overload

from pidurable_actors._json import JSON
from pidurable_actors.actors import ClosedEnd, orphan_blocked, with_abort
from pidurable_actors.agent import Question, check_agent, new_conversation
from pidurable_actors.context import Context, within
from pidurable_actors.errors import StorageRequestError, TaskRefused
from pidurable_actors.harness import _questions
from pidurable_actors.harness._builtin import BUILT_IN
from pidurable_actors.harness._conversation import Conversation
from pidurable_actors.harness._harness_reading import HarnessReading
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
from pidurable_actors.settings import AgentChoice

__all__ = ["Harness"]

T = TypeVar("T")
AnyActor: TypeAlias = TaskActor[Any, Any]

_UNBOUND = Binding()


@final
class Harness(HarnessReading):
    """One open storage plus the actors that run on it; made by `open_harness`."""

    # --- conversations ---

    async def root(
        self, *, agent: AgentChoice | None = None, context: Context | None = None
    ) -> Conversation:
        """The root conversation, created at first use with `agent`, else returned unchanged.

        Args:
            agent: what it runs with when it is created now.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            UnknownModel: no installed provider serves the model of `agent`.
            ReadOnlySession: it does not exist yet and the harness only looks.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return it exists in storage.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        check_agent(self._core.services, agent)

        async def create(tx: Tx) -> None:
            try:
                await tx.conversation(ROOT_ID)
            except StorageRequestError:
                record = ConversationRecord(id=ROOT_ID, created_at_ms=tx.now_ms)
                await new_conversation(tx, self._core.services, agent=agent, record=record)

        with within(context):
            if await self._core.read(lambda storage: storage.conversation(ROOT_ID)) is None:
                await self._core.commit(create, _UNBOUND)
        return Conversation(ROOT_ID, self._core)

    async def create_conversation(
        self,
        *,
        agent: AgentChoice | None = None,
        owner: int | None = None,
        context: Context | None = None,
    ) -> Conversation:
        """A new conversation.

        Args:
            agent: what it runs with.
            owner: the live task whose work is what runs in it, unless in the background: the task's
                end waits for that work, and an abort of the task reaches it.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            UnknownModel: no installed provider serves the model of `agent`.
            TaskRefused: the owner is missing, ending or being aborted.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return it exists in storage.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        services = self._core.services
        check_agent(services, agent)
        above = None if owner is None else TaskId(owner)
        with within(context):
            made = await self._core.commit(
                lambda tx: new_conversation(tx, services, agent=agent, owner=above), _UNBOUND
            )
        return Conversation(made.id, self._core)

    async def conversation(
        self, conversation_id: int, *, context: Context | None = None
    ) -> Conversation:
        """A conversation by its id.

        Args:
            conversation_id: which.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: there is none with this id.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        wanted = ConversationId(conversation_id)
        with within(context):
            found = await self._core.read(lambda storage: storage.conversation(wanted))
        if found is None:
            raise StorageRequestError(f"there is no conversation {conversation_id}.")
        return Conversation(wanted, self._core)

    async def conversations(
        self, *, limit: int = 50, cursor: str | None = None, context: Context | None = None
    ) -> Page[Conversation]:
        """The conversations, by id.

        Args:
            limit: conversations in the page.
            cursor: from the previous page.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: a bad limit or cursor.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        check_limit(limit)
        query: list[JSON] = ["conversations"]
        after = read_cursor(cursor, query, 0)
        with within(context):
            records = await self._core.read(
                lambda storage: storage.conversations(after=after, limit=limit)
            )
        following = write_cursor(query, records[-1].id) if len(records) == limit else None
        return Page(tuple(Conversation(r.id, self._core) for r in records), following)

    async def submission(self, submission_id: int, *, context: Context | None = None) -> Submission:
        """A submission by its id, also one of an earlier process.

        Args:
            submission_id: which.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: there is none with this id.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        wanted = SubmissionId(submission_id)
        with within(context):
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

    async def get_task(self, task_id: int, *, context: Context | None = None) -> TaskRecord:
        """The durable record of a task.

        Args:
            task_id: which.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: there is none with this id.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        with within(context):
            self._core.engine.check_open()
            return await self._core.engine.host.get_task(TaskId(task_id))

    async def wait_for_task(self, task_id: int, *, context: Context | None = None) -> TaskRecord:
        """Wait until a task has ended; asks for progress.

        Args:
            task_id: which.
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            Its terminal record; ``record.state.outcome`` says how it ended.

        Raises:
            StorageRequestError: there is none with this id.
            TaskRefused: the code of a task waits for one that cannot end before it.
            ReadOnlySession: the task has not ended and the harness schedules nothing.
            HarnessClosed, SessionFailed: the harness ended first.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        host = self._core.engine.host
        with within(context):
            if not host.is_live(TaskId(task_id)):
                record = await self.get_task(task_id)
                if isinstance(record.state, Terminal):
                    return record
            await self._core.refuse_waiting_inside(task_id=TaskId(task_id))
            self._core.need_progress()
            return await host.wait_for_task(TaskId(task_id))

    async def abort_task(
        self,
        task_id: int,
        *,
        reason: str = "",
        orphan: bool = False,
        context: Context | None = None,
    ) -> TaskRecord:
        """Mark a task for abort and wait until it has ended; asks for progress.

        Its running phase is cancelled; its ordinary work is aborted first; then its `abort` handler
        decides the outcome. A task that is blocked keeps the mark, and this call waits, until its
        kind is installed.

        Args:
            task_id: which.
            reason: kept in the outcome.
            orphan: end what is blocked, the task and its ordinary work alike, without its code: as
                ``orphaned``, with nothing undone.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: there is none with this id.
            InvalidValue: the reason cannot be stored.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: the mark is stored before anything stops; on return the end is stored.

        Cancellation: only the wait ends; once the mark is stored, the abort goes on.
        """
        wanted = TaskId(task_id)
        why_blocked = self._core.engine.supervisor.why_blocked

        async def mark(tx: Tx) -> None:
            record = await tx.task(wanted)
            if isinstance(record.state, Terminal):
                return
            if not record.abort_requested:
                tx.tasks.put(with_abort(record, reason))
            if orphan:
                await orphan_blocked(tx, wanted, why_blocked, BUILT_IN.get, reason)

        with within(context):
            self._core.need_progress()
            await self._core.commit(mark, _UNBOUND)
            return await self.wait_for_task(task_id)

    async def retry_task(self, task_id: int, *, context: Context | None = None) -> TaskId:
        """Try a parked task, or an ended one that faulted or failed, again; asks for progress.

        A parked task goes on with its restart count at zero. For a terminal ``faulted`` or
        ``failed`` application task a new task starts from the last checkpoint and memos it had;
        both records say so.

        Args:
            task_id: which.
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            The id of the task that runs now.

        Raises:
            TaskRefused: the task is neither, was retried before, is built in, or its owner is
                ending.
            StorageRequestError: there is none with this id.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return the new start is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        wanted = TaskId(task_id)

        async def again(tx: Tx) -> TaskId:
            record = await tx.task(wanted)
            cls = BUILT_IN.get(record.kind)
            if cls is not None and isinstance(record.state, Terminal):
                raise TaskRefused(
                    f"task {task_id} is built in ({record.kind}); submit its work again.", wanted
                )
            return await retry_task(tx, record)

        with within(context):
            self._core.need_progress()
            return await self._core.commit(again, _UNBOUND)

    async def wait_for_idle(self, *, context: Context | None = None) -> None:
        """Wait until nothing but background work is live anywhere; asks for progress.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            ReadOnlySession, HarnessClosed, SessionFailed: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: the ends of the work are stored.

        Cancellation: only the wait ends.
        """
        with within(context):
            while True:
                with self._core.engine.publisher.watch(("harness", 0)) as wait:
                    self._core.need_progress()
                    if not await self._core.engine.is_at_work():
                        return
                    await wait.event.wait()

    # --- questions ---

    async def answer(
        self, question_id: str, value: JSON, *, by: str, context: Context | None = None
    ) -> Question:
        """Answer a question, once; the call that waits for it goes on. Asks for progress.

        When the tool that is to go on is not here, the answer is stored all the same, and the call
        is blocked until it is. When the deadline has come by the time of the commit, the question
        has expired, whether that is stored yet or not.

        Args:
            question_id: which; see `questions`.
            value: the answer, as JSON that fits the question's schema. To an approval it is
                ``True``, ``False``, or an object with ``approved``, and ``arguments`` in place of
                those of the call, or a ``reason`` against it.
            by: who answers; stored.
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            The question with its answer.

        Raises:
            AlreadyAnswered: it was answered before, has expired, or was withdrawn; ``withdrawn``
                also from the moment in which the call is marked for abort.
            StorageRequestError: there is none with this id.
            InvalidValue: the value does not fit; the error names the field.
            MisuseError: it waits for a signal; see `Conversation.signal`.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return the answer is stored; the call goes on even if the process dies now.

        Cancellation: `Cancelled` means that nothing was stored; answering again is safe in any
            case.
        """
        with within(context):
            return await _questions.answer(self._core, question_id, value, by)

    # --- changing ---

    @overload
    async def commit(
        self, change: Callable[[Tx], Awaitable[T]], *, context: Context | None = None
    ) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T], *, context: Context | None = None) -> T: ...

    async def commit(self, change: Callable[[Tx], Any], *, context: Context | None = None) -> Any:
        """Commit; conversations are named in each write. See `Conversation.commit`.

        Args:
            change: plain or async function of the transaction.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return everything that `change` wrote is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        with within(context):
            return await self._core.commit(change, _UNBOUND)

    async def closed(self, *, context: Context | None = None) -> ClosedEnd:
        """Wait for the end of the harness, so that a host can open it again.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            CommitReentered: called from inside a commit callback, which the close waits for.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: stores nothing.

        Cancellation: only the wait ends.
        """
        self._core.engine.storage.refuse_in_callback()
        with within(context):
            return await self._core.engine.wait_closed()
