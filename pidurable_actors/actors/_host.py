"""The engine as its invocations see it: commits, durable reads, waits, reports and services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, final, overload

import trio

from pidurable_actors._clock import Clock
from pidurable_actors.actors._publisher import Publisher
from pidurable_actors.actors._storage_actor import StorageActor
from pidurable_actors.errors import StorageRequestError
from pidurable_actors.records import TaskId, TaskRecord, Terminal
from pidurable_actors.runtime import Report, Reporter
from pidurable_actors.session import Binding, Tx
from pidurable_actors.settings import Settings
from pidurable_actors.storage import Storage

__all__ = ["Host"]

T = TypeVar("T")


@final
class Host:
    """What invocations ask of the engine; see `InvocationHost`.

    Args:
        storage: where commits and reads go.
        publisher: where waits are.
        clock: durable time.
        settings: read live.
        report: the host's reports.
        services: what built-in tasks find under a type.
    """

    def __init__(
        self,
        storage: StorageActor,
        publisher: Publisher,
        *,
        clock: Clock,
        settings: Callable[[], Settings],
        report: Reporter,
        services: Mapping[type, object],
    ) -> None:
        self._storage = storage
        self._publisher = publisher
        self._clock = clock
        self._settings = settings
        self._reporter = report
        self._services = services

    @property
    def settings(self) -> Settings:
        """The harness's settings."""
        return self._settings()

    def now_ms(self) -> int:
        """Durable time."""
        return self._clock.now_ms()

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]], binding: Binding) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T], binding: Binding) -> T: ...

    async def commit(self, change: Callable[[Tx], Any], binding: Binding) -> Any:
        """Commit through the storage actor.

        Durability: stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        return await self._storage.commit(change, binding)

    async def read(self, look: Callable[[Storage], T]) -> T:
        """Look something up in storage.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        return await self._storage.read(look)

    def durable_task(self, task_id: TaskId) -> TaskRecord | None:
        """The durable record of a live task that is loaded."""
        slot = self._storage.line.state.tasks.get(task_id)
        return None if slot is None else slot.durable

    async def abort_came(self, task_id: TaskId) -> bool:
        """Whether an abort mark of a live task is admitted; then it is stored on return.

        Durability: as it says.

        Cancellation: only the wait ends.
        """
        state = self._storage.line.state
        slot = state.live(task_id)
        if slot is None or not slot.abort_requested:
            return False
        await self._storage.wait_durable(state.number)
        return True

    async def work_ended(self, task_id: TaskId) -> bool:
        """Whether nothing below a task lives; then the ends of what was below it are stored.

        For a task that is given no new work.

        Durability: as it says.

        Cancellation: only the wait ends.
        """
        state = self._storage.line.state
        if state.ordinary_below(task_id):
            await trio.lowlevel.checkpoint()
            return False
        await self._storage.wait_durable(state.number)
        return True

    def is_live(self, task_id: TaskId) -> bool:
        """Whether a task is known to have no durable end; False says nothing about storage."""
        line = self._storage.line
        # A reader's memory is of its open; the owner beside it goes on.
        return not line.read_only and task_id in line.state.tasks

    async def get_task(self, task_id: TaskId) -> TaskRecord:
        """The durable record of any task.

        Raises:
            StorageRequestError: there is none with this id.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        # A reader's memory is of its open; the owner beside it goes on.
        found = None if self._storage.line.read_only else self.durable_task(task_id)
        if found is None:
            found = await self._storage.read(lambda storage: storage.task(task_id))
        else:
            await trio.lowlevel.checkpoint()
        if found is None:
            raise StorageRequestError(f"there is no task {task_id}.")
        return found

    async def above(self, record: TaskRecord) -> TaskId | None:
        """The task whose ordinary work a task is: its owner, or the owner of its conversation.

        Durability: reads what is stored; such edges never change.

        Cancellation: nothing happened.
        """
        if record.owner is not None or record.background:
            await trio.lowlevel.checkpoint()
            return record.owner
        found = await self._storage.read(lambda s: s.conversation(record.conversation_id))
        return None if found is None or found.owner is None else found.owner.task_id

    async def wait_for_task(self, task_id: TaskId) -> TaskRecord:
        """Wait until a task has ended.

        Raises:
            StorageRequestError: there is none with this id.
            HarnessClosed, SessionFailed: the harness ended first.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        self._storage.refuse_in_callback()
        while True:
            with self._publisher.watch(("task", task_id)) as wait:
                if not self.is_live(task_id):
                    record = await self.get_task(task_id)
                    if isinstance(record.state, Terminal):
                        return record
                self._storage.line.check()
                await wait.event.wait()
                if isinstance(wait.record, TaskRecord):
                    return wait.record

    def report(self, report: Report) -> None:
        """Tell the host."""
        self._reporter(report)

    def service(self, kind: type[T]) -> T:
        """What the harness provides under a type."""
        found = self._services.get(kind)
        if not isinstance(found, kind):
            raise LookupError(f"the harness provides no {kind.__name__}.")  # noqa: TRY004 - missing
        return found
