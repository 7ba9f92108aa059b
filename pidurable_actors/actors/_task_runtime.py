"""What the code of one run may ask of the engine: the `Runtime` that task authors see.

Holds what the run's code has done so far (the step that a commit stored) and whether the run is
over; after that every call is refused, also from a stray child task. It decides nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, final, overload

import trio

from pidurable_actors._json import JSON
from pidurable_actors._limits import LIMITS
from pidurable_actors.actors._endings import in_words
from pidurable_actors.actors._invocation_host import InvocationHost
from pidurable_actors.context import Context
from pidurable_actors.errors import (
    InvocationEnded,
    MisuseError,
    StorageRequestError,
    TaskRefused,
)
from pidurable_actors.records import (
    ConversationId,
    EntryId,
    EntryRecord,
    TaskId,
    TaskOutcome,
    TaskRecord,
    Terminal,
)
from pidurable_actors.runtime import (
    MISSING,
    OUTCOME_TYPES,
    STEP_TYPES,
    ConversationDoor,
    ConversationHandle,
    Missing,
    Next,
    Report,
    TaskActor,
    WaitFor,
    store_step,
    store_wait,
)
from pidurable_actors.session import Binding, Tx
from pidurable_actors.settings import AgentChoice, Settings
from pidurable_actors.storage import Storage

__all__ = ["TaskRuntime"]

T = TypeVar("T")


@final
class TaskRuntime:
    """The runtime of one run.

    Args:
        host: the engine.
        cls: the task class.
        record: the durable record when the run began.
        context: the context of the run.
    """

    def __init__(
        self,
        host: InvocationHost,
        cls: type[TaskActor[Any, Any]],
        record: TaskRecord,
        context: Context,
    ) -> None:
        self.run_context = context
        self.over = False
        self.aborting = False
        self.stored: object = None  # the step that a commit of the present phase stored
        self._host = host
        self._cls = cls
        self._record = record
        self.binding = Binding(record.conversation_id, record.id)

    @property
    def task_id(self) -> TaskId:
        """The task."""
        return self._record.id

    @property
    def conversation_id(self) -> ConversationId:
        """Its conversation."""
        return self._record.conversation_id

    @property
    def record(self) -> TaskRecord:
        """The newest durable record."""
        self._check()
        return self._host.durable_task(self.task_id) or self._record

    @property
    def context(self) -> Context:
        """The context of the run."""
        self._check()
        return self.run_context

    @property
    def settings(self) -> Settings:
        """The harness's settings."""
        self._check()
        return self._host.settings

    def now_ms(self) -> int:
        """Durable time."""
        self._check()
        return self._host.now_ms()

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]]) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T]) -> T: ...

    async def commit(self, change: Callable[[Tx], Any]) -> Any:
        """See `TaskActor.commit`.

        Durability: stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._check_no_step()
        step: object = None

        async def bound(tx: Tx) -> object:
            nonlocal step
            self._check_no_step()
            result = change(tx)
            if inspect.isawaitable(result):
                result = await result
            if isinstance(result, STEP_TYPES):
                await self._store(tx, result)
                # Noted in the callback, so that no commit comes between it and the return.
                step = self.stored = result
            return result

        try:
            return await self._host.commit(bound, self.binding)
        except BaseException:  # whatever it was, the step was rolled back with the commit
            if step is not None and step is self.stored:
                self.stored = None
            raise

    async def memo(self, name: str) -> JSON | Missing:
        """See `TaskActor.memo`.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        self._check()
        await trio.lowlevel.checkpoint()
        record = self._host.durable_task(self.task_id)
        return MISSING if record is None else record.memos.get(name, MISSING)

    async def set_memo(self, name: str, value: JSON) -> JSON:
        """See `TaskActor.set_memo`.

        Durability: the winner is stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._check()
        return await self._host.commit(
            lambda tx: tx.set_memo(self.task_id, name, value), self.binding
        )

    async def get_task(self, task_id: TaskId) -> TaskRecord:
        """See `TaskActor.get_task`.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        self._check()
        return await self._host.get_task(task_id)

    async def wait_for_task(self, task_id: TaskId) -> TaskRecord:
        """See `TaskActor.wait_for_task`.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        self._check()
        above: TaskId | None = self.task_id
        # An owner is older than its work, so only what is older than this can be above it.
        while above is not None and above >= task_id:
            if above == task_id:
                raise TaskRefused(
                    f"task {self.task_id} cannot wait for task {task_id}, "
                    "which cannot end before it.",
                    task_id,
                )
            above = await self._host.above(await self._host.get_task(above))
        return await self._host.wait_for_task(task_id)

    async def outcomes(self, task_ids: Sequence[TaskId]) -> list[TaskOutcome]:
        """See `TaskActor.outcomes`.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        self._check()
        await trio.lowlevel.checkpoint()
        outcomes: list[TaskOutcome] = []
        for task_id in task_ids:
            record = await self._host.get_task(task_id)
            if not isinstance(record.state, Terminal):
                raise StorageRequestError(f"task {task_id} has not ended.")
            outcomes.append(record.state.outcome)
        return outcomes

    async def entry(self, entry_id: EntryId) -> EntryRecord:
        """See `TaskActor.entry`.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        self._check()
        found = await self._host.read(lambda storage: storage.entry(entry_id))
        if found is None:
            raise StorageRequestError(f"there is no entry {entry_id}.")
        return found

    async def transcript(self, conversation_id: ConversationId) -> list[EntryRecord]:
        """The durable entries that a model's view is made from, oldest first.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        self._check()
        entries: list[EntryRecord] = []
        head = 0
        before = 2**63 - 1
        while True:
            page = await self._host.read(_entry_page(conversation_id, before))
            entries.extend(page)
            head = head or next((entry.head for entry in page if entry.head is not None), 0)
            if len(page) < LIMITS.page or page[-1].id <= head:
                break
            before = page[-1].id
        entries.reverse()
        return entries

    async def conversation(self, conversation_id: int) -> ConversationHandle:
        """See `TaskActor.conversation`.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        self._check()
        return await self._host.service(ConversationDoor).open(conversation_id)

    async def create_conversation(
        self, key: str, *, agent: AgentChoice | None = None
    ) -> ConversationHandle:
        """See `TaskActor.create_conversation`.

        Durability: on return it exists in storage.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._check()
        door = self._host.service(ConversationDoor)
        door.check(agent)
        name = f"pi.conversation/{key}"

        async def once(tx: Tx) -> int:
            known = (await tx.task(self.task_id)).memos.get(name)
            if isinstance(known, int):
                return known
            made = await door.create(tx, self.task_id, agent)
            tx.set_memo(self.task_id, name, made.id)
            return made.id

        return await door.open(await self.commit(once))

    def report(self, error: BaseException) -> None:
        """Hand an error to the host."""
        self._check()
        self._host.report(
            Report(
                kind="handler_failed",
                error=error,
                detail=in_words(error),
                task_id=self.task_id,
                conversation_id=self.conversation_id,
            )
        )

    async def look(self, change: Callable[[Tx], Awaitable[T]]) -> T:
        """Read, in turn with commits, without storing anything.

        Durability: stores nothing.

        Cancellation: nothing happened.
        """
        self._check()
        return await self._host.commit(change, self.binding)

    def tell(self, report: Report) -> None:
        """Hand a report to the host."""
        self._check()
        self._host.report(report)

    def service(self, kind: type[T]) -> T:
        """What the harness provides under a type."""
        self._check()
        return self._host.service(kind)

    async def _store(self, tx: Tx, step: Next[Any]) -> None:
        if self.aborting and not isinstance(step, OUTCOME_TYPES):
            raise MisuseError(
                f"the abort handler stored {step!r}; it must end the task, with Completed, Failed "
                "or Aborted."
            )
        record = tx.tasks.find(self.task_id)
        assert record is not None, "a running task is loaded"
        if isinstance(step, WaitFor):
            await store_wait(tx, self._cls, record, step)
        else:
            store_step(tx, self._cls, record, step)

    def _check_no_step(self) -> None:
        self._check()
        if self.stored is not None:
            raise MisuseError(
                "this phase has stored its next step; it must return it and commit nothing more."
            )

    def _check(self) -> None:
        if self.over:
            raise InvocationEnded(self.task_id)


def _entry_page(
    conversation_id: ConversationId, before: int
) -> Callable[[Storage], list[EntryRecord]]:
    return lambda storage: storage.entries(conversation_id, before=before, limit=LIMITS.page)
