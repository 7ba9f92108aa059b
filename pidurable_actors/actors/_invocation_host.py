"""The seam between a run and the engine: what a run may ask, whoever answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, overload

from pidurable_actors.records import TaskId, TaskRecord
from pidurable_actors.runtime import Report
from pidurable_actors.session import Binding, Tx
from pidurable_actors.settings import Settings
from pidurable_actors.storage import Storage

__all__ = ["InvocationHost"]

T = TypeVar("T")


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

    async def abort_came(self, task_id: TaskId) -> bool:
        """Whether an abort mark of a live task is admitted; then it is stored on return."""
        ...

    async def work_ended(self, task_id: TaskId) -> bool:
        """Whether nothing below a marked task lives; then the ends below it are stored."""
        ...

    async def get_task(self, task_id: TaskId) -> TaskRecord:
        """The durable record of any task."""
        ...

    async def above(self, record: TaskRecord) -> TaskId | None:
        """The task whose ordinary work a task is."""
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
