"""One run of one task: phase after phase, until it waits, sleeps, ends or is stopped.

Owns the TaskActor object, the context that its code runs in, and what the code may ask of the
engine. User code fails only its own task: whatever it raises becomes the task's outcome. It never
decides what runs next; it stores what the phase returned, and that is all.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast, final, overload

import attrs
import trio

from pidurable_actors._json import JSON
from pidurable_actors._limits import LIMITS
from pidurable_actors.context import Context
from pidurable_actors.errors import (
    ClosedError,
    InvalidValue,
    InvocationEnded,
    MisuseError,
    StorageError,
    StorageRequestError,
    TaskRefused,
)
from pidurable_actors.records import (
    ConversationId,
    EntryId,
    EntryRecord,
    FaultedOutcome,
    Pending,
    Running,
    TaskId,
    TaskOutcome,
    TaskRecord,
    Terminal,
)
from pidurable_actors.runtime import (
    MISSING,
    STEP_TYPES,
    Missing,
    Next,
    Report,
    TaskActor,
    checkpoint_of,
    end_task,
    input_of,
    store_step,
)
from pidurable_actors.session import Binding, Tx
from pidurable_actors.settings import Settings
from pidurable_actors.storage import Storage

__all__ = ["Invocation", "InvocationHost", "StopReason"]

T = TypeVar("T")
StopReason: TypeAlias = Literal["abort", "close", "failed"]
AnyActor: TypeAlias = TaskActor[Any, Any]


class InvocationHost(Protocol):
    """What an invocation needs of the engine."""

    @property
    def settings(self) -> Settings:
        """The harness's settings."""
        ...

    def now_ms(self) -> int:
        """Durable time."""
        ...

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]], binding: Binding) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T], binding: Binding) -> T: ...

    async def commit(self, change: Callable[[Tx], Any], binding: Binding) -> Any:
        """Commit through the storage actor."""
        ...

    async def read(self, look: Callable[[Storage], T]) -> T:
        """Look something up in storage."""
        ...

    def durable_task(self, task_id: TaskId) -> TaskRecord | None:
        """The durable record of a live task that is loaded."""
        ...

    async def get_task(self, task_id: TaskId) -> TaskRecord:
        """The durable record of any task."""
        ...

    async def wait_for_task(self, task_id: TaskId) -> TaskRecord:
        """Wait for a task's end."""
        ...

    def report(self, report: Report) -> None:
        """Tell the host."""
        ...

    def service(self, kind: type[T]) -> T:
        """What the harness provides under a type."""
        ...


@final
class Invocation:
    """Runs one task that was reserved; also the `Runtime` that its code sees.

    Args:
        host: the engine.
        cls: the task class, as installed when the run began.
        record: the durable record, ``running``.
        base: the context that the run's context is made below.
    """

    def __init__(
        self, host: InvocationHost, cls: type[AnyActor], record: TaskRecord, base: Context
    ) -> None:
        self.trio_task: trio.lowlevel.Task | None = None
        self._host = host
        self._cls = cls
        self._record = record
        self._base = base
        self._context = Context(parent=base)
        self._stop: StopReason | None = None
        self._over = False
        self._aborting = False
        self._stored: object = None  # the step that a commit of the present phase stored

    # --- the engine's side ---

    async def run(self) -> None:
        """Run until the task waits, sleeps, ends or is stopped.

        Durability: each step is stored before the next begins.

        Cancellation: not cancelled from outside; `stop` ends it.
        """
        self.trio_task = trio.lowlevel.current_task()
        try:
            await self._run()
        except (ClosedError, StorageError):
            # The harness is ending; what is stored says where the task stands.
            return
        finally:
            self._over = True

    def stop(self, reason: StopReason) -> None:
        """End the run: cancel its code and let `run` return."""
        if self._stop in (None, "abort"):
            self._stop = reason
        if not (reason == "abort" and self._aborting):
            self._context.cancel(reason)

    def stack(self) -> str:
        """Where the run stands, for a report."""
        if self.trio_task is None:
            return ""
        frames = [
            f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
            for frame, line in self.trio_task.iter_await_frames()
        ]
        return "\n".join(frames[-8:])

    async def _run(self) -> None:
        try:
            actor = self._cls()
            actor.attach(self, input_of(self._cls, self._record))
        except Exception as error:  # noqa: BLE001 - user code and its data fail only their task
            await self._fault(error)
            return
        record: TaskRecord | None = self._record
        while record is not None and isinstance(record.state, Running):
            if self._stop in ("close", "failed"):
                await self._release()
                return
            if record.abort_requested:
                await self._abort(actor)
                return
            await self._phase(actor, record)
            record = self._host.durable_task(self.task_id)

    async def _phase(self, actor: AnyActor, record: TaskRecord) -> None:
        assert isinstance(record.state, Running), "phases run while the task is running"
        try:
            checkpoint, method = checkpoint_of(self._cls, record.state.checkpoint)
        except InvalidValue as invalid:
            await self._fault(invalid)
            return
        self._stored = None
        step, error = await self._guard(lambda: getattr(actor, method)(checkpoint))
        if self._stop is not None:
            if step is not None and not self._has_stored_step():
                self._report_dropped()
            return
        fault = error or await self._take_step(cast("Next[Any]", step))
        if fault is not None:
            await self._fault(fault)

    async def _take_step(self, step: Next[Any]) -> BaseException | None:
        if self._stored is not None:
            if step is self._stored:
                return None
            return MisuseError(
                f"the phase stored {self._stored!r} in a commit and returned {step!r}; "
                "it must return the very object that its commit callback returned."
            )
        try:
            await self._store(step)
        except (ClosedError, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - a step that cannot be stored is the task's fault
            return error
        return None

    async def _store(self, step: Next[Any]) -> None:
        async def change(tx: Tx) -> None:
            record = tx.task_in_memory(self.task_id)
            assert record is not None, "a running task is loaded"
            await store_step(tx, self._cls, record, step)

        await self._host.commit(change, self._binding)

    async def _abort(self, actor: AnyActor) -> None:
        record = self._host.durable_task(self.task_id)
        if record is None or not await self._nothing_below():
            await self._release()
            return
        self._aborting = True
        self._stop = None if self._stop == "abort" else self._stop
        # A fresh context with the same values: the run's own is cancelled.
        self._context = Context(parent=self._base)
        self._stored = None
        outcome, error = await self._guard(actor.abort)
        if self._stop is not None:
            await self._release()
            return
        fault = error or await self._take_step(cast("Next[Any]", outcome))
        if fault is not None:
            await self._fault(fault)

    async def _nothing_below(self) -> bool:
        return await self._host.commit(lambda tx: tx.below(self.task_id) == 0, self._binding)

    async def _guard(
        self, call: Callable[[], Awaitable[object]]
    ) -> tuple[object, BaseException | None]:
        """Run user code in the run's context: what it returned, or what it raised."""
        returned = False
        result: object = None
        try:
            with self._context.scope():
                result = await call()
                returned = True
        except (KeyboardInterrupt, SystemExit):
            raise
        except trio.Cancelled as cancelled:
            # Nobody cancelled this run, so the scope it belongs to is the task's own, misused.
            return None, cancelled
        except BaseExceptionGroup as group:
            fatal, rest = group.split((KeyboardInterrupt, SystemExit))
            if fatal is not None:
                raise
            return None, rest
        except Exception as error:  # noqa: BLE001 - user code fails only its own task
            return None, error
        if not returned and self._stop is None:
            reason = self._context.reason or "cancelled"
            return None, TaskRefused(f"the context of task {self.task_id} was cancelled: {reason}")
        return result, None

    async def _release(self) -> None:
        """Give the task back, without counting a restart."""

        def change(tx: Tx) -> None:
            record = tx.task_in_memory(self.task_id)
            if record is not None and isinstance(record.state, Running):
                tx.put_task(attrs.evolve(record, state=Pending(checkpoint=record.state.checkpoint)))

        if self._stop != "failed":
            await self._host.commit(change, self._binding)

    async def _fault(self, error: BaseException) -> None:
        outcome = FaultedOutcome(error=_describe(error))
        ended = await self._host.commit(
            lambda tx: end_by_runtime(tx, self._cls, self.task_id, outcome), self._binding
        )
        if ended:
            self._host.report(
                Report(
                    kind="task_faulted",
                    error=error,
                    detail=f"{type(error).__name__}: {error}",
                    task_id=self.task_id,
                    conversation_id=self.conversation_id,
                )
            )

    def _has_stored_step(self) -> bool:
        return self._stored is not None

    def _report_dropped(self) -> None:
        self._host.report(
            Report(
                kind="task_interrupted",
                reason="value_dropped",
                detail="the run was stopped; what its phase returned was not stored",
                task_id=self.task_id,
                conversation_id=self.conversation_id,
            )
        )

    @property
    def _binding(self) -> Binding:
        return Binding(self._record.conversation_id, self._record.id)

    # --- the task author's side ---

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
        return self._context

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
        self._check()
        if self._stored is not None:
            raise MisuseError(
                "this phase has stored its next step; it must return it and commit nothing more."
            )

        async def bound(tx: Tx) -> object:
            self._check()
            result = change(tx)
            if inspect.isawaitable(result):
                result = await result
            if isinstance(result, STEP_TYPES):
                record = tx.task_in_memory(self.task_id)
                assert record is not None, "a running task is loaded"
                await store_step(tx, self._cls, record, result)
            return result

        result = await self._host.commit(bound, self._binding)
        if isinstance(result, STEP_TYPES):
            self._stored = result
        return result

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
            lambda tx: tx.set_memo(self.task_id, name, value), self._binding
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
        while above is not None:
            if above == task_id:
                raise TaskRefused(
                    f"task {self.task_id} cannot wait for task {task_id}, which cannot end before it.",
                    task_id,
                )
            above = (await self._host.get_task(above)).owner
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

    def report(self, error: BaseException) -> None:
        """Hand an error to the host."""
        self._check()
        self._host.report(
            Report(
                kind="handler_failed",
                error=error,
                detail=f"{type(error).__name__}: {error}",
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
        return await self._host.commit(change, self._binding)

    def tell(self, report: Report) -> None:
        """Hand a report to the host."""
        self._check()
        self._host.report(report)

    def service(self, kind: type[T]) -> T:
        """What the harness provides under a type."""
        self._check()
        return self._host.service(kind)

    def _check(self) -> None:
        if self._over:
            raise InvocationEnded(self.task_id)


def _entry_page(
    conversation_id: ConversationId, before: int
) -> Callable[[Storage], list[EntryRecord]]:
    return lambda storage: storage.entries(conversation_id, before=before, limit=LIMITS.page)


async def end_by_runtime(
    tx: Tx, cls: type[AnyActor] | None, task_id: TaskId, outcome: TaskOutcome
) -> bool:
    """End a task without its own code, in one commit with what its class leaves behind.

    Returns:
        Whether the task was live.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    record = await tx.task(task_id)
    if isinstance(record.state, Terminal) or record.state.status == "completing":
        return False
    if cls is not None:
        outcome = await cls.ended_by_runtime(tx, record, outcome)
        record = await tx.task(task_id)
    end_task(tx, record, outcome)
    return True


def _describe(error: BaseException) -> JSON:
    trace = "".join(traceback.format_exception(error))
    return {
        "type": type(error).__name__,
        "message": _storable(str(error)),
        "trace": _storable(trace[-LIMITS.error_chars :]),
    }


def _storable(text: str) -> str:
    # A message may hold anything, a lone surrogate included; the record must stay storable.
    return text[: LIMITS.error_chars].encode("utf-8", "backslashreplace").decode()
