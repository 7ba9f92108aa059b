"""The storage actor: drives the line, owns the lane, and writes what was admitted.

Callers run their callbacks one at a time, in the order they came, in their own Trio task; what a
callback wrote is admitted and queued, and the next callback runs at once, not held up by the disk.
The actor takes what is queued, writes it in one backend transaction, then settles, publishes and
acknowledges each commit in order.

Invariants: nothing is published or acknowledged before storage has it; after the first storage
error nothing is written any more; an admitted commit is always awaited to its outcome, so that
`Cancelled` out of `commit` means that nothing was stored.

Size: one actor; a third of it is what its calls promise.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar, cast, final, overload

import trio

from pidurable_actors._clock import monotonic
from pidurable_actors._limits import LIMITS
from pidurable_actors.actors._callbacks import Callbacks
from pidurable_actors.context import current_context
from pidurable_actors.errors import StorageError
from pidurable_actors.records import Batch, ConversationId
from pidurable_actors.runtime import Reporter
from pidurable_actors.session import (
    Binding,
    CommitWitness,
    Line,
    Publication,
    Tx,
    whole_conversation,
)
from pidurable_actors.storage import Lane, PromptStorage, Storage

__all__ = ["StorageActor"]

T = TypeVar("T")

UNBOUND: Final = Binding()
"""A commit that belongs to no conversation."""

_BRIEF_COMMITS: Final = 8
"""A group up to this size is likely written before a parked task could be woken."""


@final
class _Queued:
    """An admitted commit and the task that waits for its outcome."""

    __slots__ = ("batch", "done", "error", "parked", "task", "values")

    def __init__(self, batch: Batch, values: Mapping[object, object]) -> None:
        self.batch = batch
        self.values = values
        self.task = trio.lowlevel.current_task()
        self.parked = False
        self.done = False
        self.error: BaseException | None = None


@final
class StorageActor:
    """The only writer of one open storage.

    Args:
        storage: the backend, already open.
        lane: where it runs.
        report: the host's reports.
        publish: called with each commit once storage has it, in order; must not raise.
        failed: called once, with the error that ended the storage.
        broken: called with what went wrong in settling or publishing: a bug.
        witness: told when the caller of a commit goes on.
    """

    def __init__(
        self,
        storage: Storage,
        lane: Lane,
        *,
        report: Reporter,
        publish: Callable[[Publication], None],
        failed: Callable[[BaseException], None],
        broken: Callable[[BaseException], None],
        witness: CommitWitness | None = None,
    ) -> None:
        self._broken = broken
        self._witness = witness
        self._storage = storage
        self._prompt = storage if isinstance(storage, PromptStorage) else None
        self._lane = lane
        self._publish = publish
        self._failed = failed
        self._lock = trio.StrictFIFOLock()
        self._callbacks = Callbacks(report)
        self._queue: deque[_Queued] = deque()
        self._parked: trio.lowlevel.Task | None = None
        self._writing: list[_Queued] = []
        self._stopping = False
        self._progress = trio.Event()
        self._line: Line | None = None

    @property
    def line(self) -> Line:
        """The line that this actor drives."""
        assert self._line is not None, "the line is attached before the first call"
        return self._line

    def attach(self, line: Line) -> None:
        """Take the line, whose reader this actor is."""
        self._line = line

    async def read(self, look: Callable[[Storage], T]) -> T:
        """Look something up in storage: what is durable, and nothing else.

        Raises:
            StorageError: storage failed; the harness ends.
            StorageRequestError: the look-up itself was wrong; only this call fails.
            HarnessClosed, SessionFailed: the storage is no longer there.

        Durability: what is returned is stored.

        Cancellation: the look-up is finished; the cancellation arrives at the next checkpoint.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.line.check()
        try:
            return await self._lane.run(partial(look, self._storage))
        except StorageError as error:
            self.fail(error)
            raise

    @overload
    async def commit(
        self, change: Callable[[Tx], Awaitable[T]], binding: Binding = UNBOUND
    ) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T], binding: Binding = UNBOUND) -> T: ...

    # Protected, because Ctrl-C between admission and queueing would leave a hole in the sequence.
    @trio.lowlevel.enable_ki_protection
    async def commit(self, change: Callable[[Tx], Any], binding: Binding = UNBOUND) -> Any:
        """Run a callback in its turn and store what it wrote.

        Args:
            change: plain or async function of the transaction.
            binding: the conversation and task that the commit belongs to.

        Returns:
            What `change` returned.

        Raises:
            CommitReentered: called from inside a callback of the same harness.
            HarnessClosed, SessionFailed: nothing is admitted any more.
            StorageError: storage failed while writing this commit; the harness ends.
            CallbackTooSlow: the callback held the line too long; rolled back.
            Exception: whatever `change` raised; rolled back.

        Durability: on return everything that `change` wrote is stored and published.

        Cancellation: `Cancelled` means that nothing was stored. Once the callback has returned the
            outcome is awaited and returned.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.refuse_in_callback()
        if self._lock.locked():
            await self._lock.acquire()
        else:
            self._lock.acquire_nowait()
        try:
            self.line.check()
            result, batch = await self._run_callback(change, binding)
        finally:
            self._lock.release()
        if batch is None:
            await trio.lowlevel.cancel_shielded_checkpoint()
        elif self._parked is not None and not self._writing and _nobody_else_runs():
            await self._write_alone(batch)
        else:
            await self._stored(batch)
        if batch is not None and self._witness is not None:
            self._witness.acknowledged(batch.number)
        return result

    async def warm(self, conversation_id: ConversationId) -> None:
        """Load a conversation before the line is taken, so that its callback need not read.

        Raises:
            StorageError: storage failed; the harness ends.

        Durability: stores nothing.

        Cancellation: nothing happened.
        """
        conversations = self.line.state.conversations
        if self.line.read_only or conversations.get(conversation_id) is not None:
            return
        forgotten = conversations.forgotten
        record, documents = await self.read(whole_conversation(conversation_id))
        # If any was forgotten meanwhile, it may have been this one, after a change.
        if record is not None and conversations.forgotten == forgotten:
            conversations.remember(record, documents)

    async def catch_up(self) -> None:
        """Wait until everything that is admitted now is stored.

        Raises:
            SessionFailed: the storage failed first.

        Durability: it is stored on return.

        Cancellation: only the wait ends.
        """
        await self.wait_durable(self.line.state.number)

    async def wait_durable(self, number: int) -> None:
        """Wait until commit `number` is stored.

        Raises:
            SessionFailed: the storage failed first.

        Durability: it is stored on return.

        Cancellation: only the wait ends.
        """
        while self.line.state.durable_number < number:
            self.line.check()
            await self._progress.wait()
        await trio.lowlevel.checkpoint()

    def refuse_in_callback(self) -> None:
        """Refuse a call that would wait for the very callback it is made from.

        Raises:
            CommitReentered: the caller is a callback of this harness, or a child task of one.
        """
        self._callbacks.refuse_inside()

    async def run(self) -> None:
        """Write what is queued until told to stop; ends when the queue is empty.

        Durability: each commit is stored before it is acknowledged.

        Cancellation: not cancelled; the engine stops it.
        """
        while True:
            if not self._queue or self._writing:
                if self._stopping and not self._writing:
                    # Whoever waits for a commit that will not come learns that the line is closed.
                    self._tell_progress()
                    return
                self._parked = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._unpark)
                continue
            group = self._take()
            if self.line.status == "failed":
                self._refuse(group)
                continue
            await self._write(group)

    def stop(self) -> None:
        """End `run` once everything queued has its outcome."""
        self._stopping = True
        self._wake()

    def abandon(self, error: BaseException) -> None:
        """Refuse everything, because this actor has a bug and writes no more."""
        self.line.fail(error)
        group, self._writing = self._writing, []
        self._refuse([queued for queued in group if not queued.done])
        self._refuse(list(self._queue))
        self._queue.clear()
        self._tell_progress()

    def fail(self, error: BaseException) -> None:
        """Refuse everything from now on, because storage failed."""
        if self.line.status != "failed":
            self.line.fail(error)
            self._failed(error)
        self._tell_progress()
        self._wake()

    # --- callbacks ---

    async def _run_callback(
        self, change: Callable[[Tx], Awaitable[T] | T], binding: Binding
    ) -> tuple[T, Batch | None]:
        tx = self.line.begin(binding)
        began_s = monotonic()
        try:
            result = self._callbacks.call(change, tx)
            if inspect.isawaitable(result):
                result = await self._callbacks.finish(cast("Awaitable[T]", result))
            if tx.has_names:
                await tx.settle_names()
            batch = self.line.admit(tx)
        finally:
            tx.close()
        self._callbacks.took(change, monotonic() - began_s)
        return result, batch

    # --- writing ---

    async def _stored(self, batch: Batch) -> None:
        queued = _Queued(batch, current_context().values)
        queued.parked = True
        self._queue.append(queued)
        self._wake()
        await trio.lowlevel.wait_task_rescheduled(_not_abortable)
        assert queued.done, "rescheduled by _settle"
        if queued.error is not None:
            raise queued.error

    async def _write_alone(self, batch: Batch) -> None:
        """Write in the caller's task, when there is no other commit that could join it.

        Profile: the two task switches through the actor are half of what a lone commit costs.
        """
        queued = _Queued(batch, current_context().values)
        await self._write([queued], alone=True)
        if queued.error is not None:
            raise queued.error

    def _take(self) -> list[_Queued]:
        queue = self._queue
        if len(queue) <= LIMITS.batch_commits:
            group = list(queue)
            queue.clear()
            return group
        return [queue.popleft() for _ in range(LIMITS.batch_commits)]

    async def _write(self, group: list[_Queued], *, alone: bool = False) -> None:
        self._writing = group
        batches = [queued.batch for queued in group]
        try:
            if alone and self._wrote_promptly(batches):
                await trio.lowlevel.cancel_shielded_checkpoint()
            else:
                await self._lane.run(
                    partial(self._storage.apply, batches), brief=len(group) <= _BRIEF_COMMITS
                )
        except Exception as error:  # noqa: BLE001 - whatever a backend raises ends the session
            self._writing = []
            for queued in group:
                _settle(queued, error)
            self.fail(error)
            return
        try:
            for at in range(0, len(group), LIMITS.acknowledge_at_once):
                if at:
                    await trio.lowlevel.cancel_shielded_checkpoint()
                for queued in group[at : at + LIMITS.acknowledge_at_once]:
                    self.line.settle(queued.batch)
                    self._publish(Publication(queued.batch, queued.values))
                    _settle(queued)
        except BaseException as error:  # noqa: BLE001 - a bug of the engine, in a caller's task
            self.abandon(error)
            self._broken(error)
            return
        self._writing = []
        self._tell_progress()
        if self._queue or self._stopping:
            self._wake()

    def _wrote_promptly(self, batches: list[Batch]) -> bool:
        """Whether the storage took the batches without a wait, in this thread.

        Profile: 15 us, against 60 to 200 us by way of the storage's thread. It is for a lone commit
        only, so that the event loop never waits for more than one.
        """
        return self._prompt is not None and self._lane.idle and self._prompt.apply_promptly(batches)

    def _tell_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    def _refuse(self, group: list[_Queued]) -> None:
        for queued in group:
            _settle(queued, self.line.refusal())

    def _wake(self) -> None:
        if self._parked is not None:
            task, self._parked = self._parked, None
            trio.lowlevel.reschedule(task)

    def _unpark(self, _: object) -> trio.lowlevel.Abort:
        self._parked = None
        return trio.lowlevel.Abort.SUCCEEDED


def _settle(queued: _Queued, error: BaseException | None = None) -> None:
    queued.done = True
    queued.error = error
    if queued.parked:
        trio.lowlevel.reschedule(queued.task)


def _nobody_else_runs() -> bool:
    return trio.lowlevel.current_statistics().tasks_runnable == 0


def _not_abortable(_: object) -> trio.lowlevel.Abort:
    # An admitted commit has an outcome that the caller must learn.
    return trio.lowlevel.Abort.FAILED
