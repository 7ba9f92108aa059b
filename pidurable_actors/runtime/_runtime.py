"""The runtime that a task author sees: what one run of a task may ask of the engine.

A protocol, so that task code, built-in tasks and tests meet the same surface and nothing imports
the engine. Every method raises `InvocationEnded` once the run is over.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, overload

from pidurable_actors._json import JSON
from pidurable_actors.context import Context, ContextKey
from pidurable_actors.records import (
    ConversationId,
    EntryId,
    EntryRecord,
    TaskId,
    TaskOutcome,
    TaskRecord,
)
from pidurable_actors.runtime._conversations import ConversationHandle
from pidurable_actors.runtime._reports import Report
from pidurable_actors.session import Tx
from pidurable_actors.settings import AgentChoice, Settings

__all__ = ["MISSING", "TASK", "Missing", "Runtime", "ServiceLookup"]

T = TypeVar("T")


class _Missing(enum.Enum):
    MISSING = "missing"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing.MISSING
"""What `memo` returns for a name that nobody set; None is a value like any other."""

Missing: TypeAlias = Literal[_Missing.MISSING]

TASK: Final[ContextKey[TaskId]] = ContextKey("task")
"""The task whose code runs; a value of the context of every run."""


class ServiceLookup(Protocol):
    """What the harness provides, looked up by type; see `Runtime.service`."""

    def __call__(self, kind: type[T]) -> T:
        """What it provides under a type.

        Raises:
            LookupError: it provides nothing of that type.
        """
        ...


class Runtime(Protocol):
    """One run of one task, as its code sees it."""

    @property
    def task_id(self) -> TaskId:
        """The task."""
        ...

    @property
    def conversation_id(self) -> ConversationId:
        """The conversation that it belongs to."""
        ...

    @property
    def record(self) -> TaskRecord:
        """The task's newest record that this run has seen stored."""
        ...

    @property
    def context(self) -> Context:
        """The context of the run."""
        ...

    @property
    def settings(self) -> Settings:
        """The harness's settings."""
        ...

    def now_ms(self) -> int:
        """Durable time, epoch milliseconds."""
        ...

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]]) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T]) -> T: ...

    async def commit(self, change: Callable[[Tx], Any]) -> Any:
        """Commit, bound to the task and its conversation; see `TaskActor.commit`.

        Durability: on return everything that the callback wrote is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def memo(self, name: str) -> JSON | Missing:
        """A memo's value; see `TaskActor.memo`.

        Durability: reads; stores nothing.

        Cancellation: nothing happened.
        """
        ...

    async def set_memo(self, name: str, value: JSON) -> JSON:
        """Record a memo; see `TaskActor.set_memo`.

        Durability: on return the winner is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def get_task(self, task_id: TaskId) -> TaskRecord:
        """The durable record of a task.

        Durability: reads; stores nothing.

        Cancellation: nothing happened.
        """
        ...

    async def wait_for_task(self, task_id: TaskId) -> TaskRecord:
        """Wait until a task has ended; its terminal record.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        ...

    async def outcomes(self, task_ids: Sequence[TaskId]) -> list[TaskOutcome]:
        """The outcomes of ended tasks, in the order asked for.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        ...

    async def entry(self, entry_id: EntryId) -> EntryRecord:
        """A durable transcript entry.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        ...

    async def transcript(self, conversation_id: ConversationId) -> list[EntryRecord]:
        """The durable entries that a model's view is made from, oldest first.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        ...

    async def conversation(self, conversation_id: int) -> ConversationHandle:
        """The handle of a conversation; see `TaskActor.conversation`.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        ...

    async def create_conversation(
        self, key: str, *, agent: AgentChoice | None = None
    ) -> ConversationHandle:
        """A conversation that the task owns; see `TaskActor.create_conversation`.

        Durability: on return it exists in storage.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def look(self, change: Callable[[Tx], Awaitable[T]]) -> T:
        """Read, in turn with commits, without storing anything.

        Durability: stores nothing.

        Cancellation: nothing happened.
        """
        ...

    def report(self, error: BaseException) -> None:
        """Hand an error to the host's `on_report` and go on."""
        ...

    def tell(self, report: Report) -> None:
        """Hand a report to the host."""
        ...

    def service(self, kind: type[T]) -> T:
        """What the harness provides under a type, for built-in tasks.

        Raises:
            LookupError: it provides nothing of that type.
        """
        ...
