"""One run of one task: phase after phase, until it waits, sleeps, ends or is stopped.

Owns the TaskActor object and the context that its code runs in. User code fails only its own task:
whatever it raises becomes the task's outcome. It never decides what runs next; it stores what the
phase returned, and that is all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast, final

import trio

from pidurable_actors.actors._endings import (
    about,
    describe_error,
    end_by_runtime,
    give_back,
    in_words,
    with_hook,
)
from pidurable_actors.actors._invocation_host import InvocationHost
from pidurable_actors.actors._task_runtime import TaskRuntime
from pidurable_actors.context import BACKGROUND, Context
from pidurable_actors.errors import (
    ClosedError,
    InvalidValue,
    MisuseError,
    StorageError,
    TaskRefused,
)
from pidurable_actors.records import (
    FaultedOutcome,
    Running,
    TaskId,
    TaskRecord,
)
from pidurable_actors.runtime import (
    OUTCOME_TYPES,
    TASK,
    Next,
    TaskActor,
    WaitFor,
    checkpoint_of,
    input_of,
    store_step,
    store_wait,
)
from pidurable_actors.session import Tx

__all__ = ["Invocation", "StopReason"]

T = TypeVar("T")
StopReason: TypeAlias = Literal["abort", "close", "failed"]
AnyActor: TypeAlias = TaskActor[Any, Any]
ContextOf: TypeAlias = Callable[[TaskId, type[AnyActor]], Awaitable[Context]]


@final
class Invocation:
    """Runs one task that was reserved.

    Args:
        host: the engine.
        cls: the task class, as installed when the run began.
        record: the durable record, ``running``.
        context_of: the context that the run's context is made below.
        kinds: what is installed now, asked between phases.
    """

    def __init__(
        self,
        host: InvocationHost,
        cls: type[AnyActor],
        record: TaskRecord,
        *,
        context_of: ContextOf,
        kinds: Callable[[str], type[AnyActor] | None],
    ) -> None:
        self._kinds = kinds
        self.trio_task: trio.lowlevel.Task | None = None
        self._host = host
        self._cls = cls
        self._record = record
        self._context_of = context_of
        self._base = BACKGROUND
        self._runtime = TaskRuntime(host, cls, record, Context())
        self._stop: StopReason | None = None
        self._aborting = False

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
            self._runtime.over = True

    def stop(self, reason: StopReason) -> None:
        """End the run: cancel its code and let `run` return."""
        if reason == "abort" and self._aborting:
            return
        if self._stop in (None, "abort"):
            self._stop = reason
        self._runtime.run_context.cancel(reason)

    def _new_context(self) -> Context:
        return Context(parent=self._base, values={TASK: self._record.id})

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
            self._base = await self._context_of(self._record.id, self._cls)
            self._runtime.run_context = self._new_context()
            if self._stop is not None:
                # Stopped before it had its context.
                self._runtime.run_context.cancel(self._stop)
            actor = self._cls()
            actor.attach(self._runtime, input_of(self._cls, self._record))
        except (ClosedError, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - user code and its data fail only their task
            await self._fault(error)
            return
        fault = await self._in_context(lambda: self._phases(actor))
        record = self._host.durable_task(self._record.id)
        if record is None or not isinstance(record.state, Running):
            if fault is not None:
                # Its code failed after it had stored how it goes on, or ends.
                await self._fault(fault)
            return
        if self._stop in ("close", "failed"):
            await self._release()
        elif record.abort_requested:
            await self._abort(actor)
        elif fault is None and self._replaced:
            # The next phase is the new class's.
            await self._release()
        else:
            assert fault is not None, "a run that is not stopped goes on until it is over"
            await self._fault(fault)

    async def _phases(self, actor: AnyActor) -> BaseException | None:
        """Run phase after phase; what the task's code did wrong, None when it did nothing wrong."""
        record = self._host.durable_task(self._record.id)
        while record is not None and isinstance(record.state, Running):
            if self._stop is not None or record.abort_requested or self._replaced:
                return None
            try:
                checkpoint, method = checkpoint_of(self._cls, record.state.checkpoint)
            except InvalidValue as invalid:
                return invalid
            fault = await self._call(partial(getattr(actor, method), checkpoint))
            if fault is not None:
                return fault
            record = self._host.durable_task(self._record.id)
        return None

    @property
    def _replaced(self) -> bool:
        """Whether another class is installed for the kind; one that is gone goes on to its end."""
        return self._kinds(self._record.kind) not in (self._cls, None)

    async def _call(self, code: Callable[[], Awaitable[object]]) -> BaseException | None:
        """Run user code and store the step it returns; what went wrong, if anything."""
        self._runtime.stored = None
        step: object = None
        error: Exception | None = None
        try:
            step = await _call_user(code)
        except Exception as raised:  # noqa: BLE001 - user code fails only its own task
            error = raised
        if not self._aborting and (self._stop is not None or await self._abort_came(error)):
            self._report_dropped(step, error)
            return None
        if error is None and self._aborting and not isinstance(step, OUTCOME_TYPES):
            return MisuseError(
                f"the abort handler returned {step!r}; it must return Completed, Failed or Aborted."
            )
        return error or await self._take_step(cast("Next[Any]", step))

    async def _abort_came(self, error: Exception | None) -> bool:
        """Whether what the code raised came of an abort that it is yet to be stopped for.

        From the moment a mark is admitted a commit may refuse the task new work; the run is
        cancelled only when the mark is stored. The abort handler must not be lost to that.
        """
        return error is not None and await self._host.abort_came(self._record.id)

    async def _take_step(self, step: Next[Any]) -> BaseException | None:
        if self._runtime.stored is not None:
            if step is self._runtime.stored:
                return None
            return MisuseError(
                f"the phase stored {self._runtime.stored!r} in a commit and returned {step!r}; "
                "it must return the very object that its commit callback returned."
            )
        try:
            if isinstance(step, WaitFor):
                await self._host.commit(partial(self._store_wait, step), self._runtime.binding)
            else:
                await self._host.commit(partial(self._store, step), self._runtime.binding)
        except (ClosedError, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - a step that cannot be stored is the task's fault
            return error
        return None

    def _store(self, step: Next[Any], tx: Tx) -> None:
        store_step(tx, self._cls, self._newest(tx), step)

    async def _store_wait(self, step: WaitFor, tx: Tx) -> None:
        await store_wait(tx, self._cls, self._newest(tx), step)

    def _newest(self, tx: Tx) -> TaskRecord:
        record = tx.tasks.find(self._record.id)
        assert record is not None, "a running task is loaded"
        return record

    async def _abort(self, actor: AnyActor) -> None:
        # Stored, not only admitted: the handler sees final outcomes, and a crash leaves them.
        work_ended = await self._host.work_ended(self._record.id)
        if not work_ended or self._stop in ("close", "failed"):
            await self._release()
            return
        self._aborting = self._runtime.aborting = True
        # A fresh context with the same values: the run's own is cancelled.
        self._runtime.run_context = self._new_context()
        fault = await self._in_context(lambda: self._call(actor.abort))
        record = self._host.durable_task(self._record.id)
        if fault is None and (record is None or not isinstance(record.state, Running)):
            return
        if self._stop in ("close", "failed"):
            await self._release()
        else:
            await self._fault(fault or TaskRefused("the abort handler was cancelled"))

    async def _in_context(
        self, run: Callable[[], Awaitable[BaseException | None]]
    ) -> BaseException | None:
        """Run in the run's context; what the task's code did wrong, if anything."""
        context = self._runtime.run_context
        ended = False
        fault: BaseException | None = None
        try:
            with context.scope():
                fault = await run()
                ended = True
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseExceptionGroup as group:
            fatal, rest = group.split((KeyboardInterrupt, SystemExit))
            if fatal is not None:
                raise
            if self._stop is not None and not self._aborting:
                self._report_dropped(None, rest)
                return None
            return rest
        except BaseException as error:  # noqa: BLE001 - only what ends the process leaves its task
            # Also a Cancelled: nobody cancelled this run, so a scope of the task is misused.
            return error
        if not ended and self._stop is None:
            return TaskRefused(
                f"the context of task {self._record.id} was cancelled: {context.reason}"
            )
        return fault

    async def _release(self) -> None:
        """Give the task back, without counting a restart."""

        def change(tx: Tx) -> None:
            record = tx.tasks.find(self._record.id)
            if record is not None and isinstance(record.state, Running):
                give_back(tx, record)

        if self._stop != "failed":
            await self._host.commit(change, self._runtime.binding)

    async def _fault(self, error: BaseException) -> None:
        outcome = FaultedOutcome(error=describe_error(error))
        await with_hook(
            lambda change: self._host.commit(change, self._runtime.binding),
            self._cls,
            lambda tx, cls: end_by_runtime(tx, cls, self._record.id, outcome),
            self._runtime.report,
        )
        self._host.report(about("task_faulted", self._record, error=error, detail=in_words(error)))

    def _report_dropped(self, step: object, error: BaseException | None) -> None:
        """Name what a stopped run still returned or raised; the stop wins over both."""
        if self._runtime.stored is not None or (step is None and error is None):
            return
        self._host.report(
            about(
                "task_interrupted",
                self._record,
                reason="value_dropped" if error is None else "error_dropped",
                detail="the run was stopped; what its phase came to was not stored",
                error=error,
            )
        )


@trio.lowlevel.disable_ki_protection
async def _call_user(call: Callable[[], Awaitable[object]]) -> object:
    # The engine's own frames are protected, so that Ctrl-C cannot tear a step of it apart.
    return await call()
