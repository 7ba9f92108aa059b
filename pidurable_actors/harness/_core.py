"""What handles share: the engine and the process's services, behind the checks of every call.

Handles hold a reference to this and an id, nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import attrs

from pidurable_actors.actors import Engine
from pidurable_actors.agent import AgentServices
from pidurable_actors.context import current_context
from pidurable_actors.errors import ReadOnlySession, TaskRefused
from pidurable_actors.records import ConversationId, TaskId
from pidurable_actors.runtime import TASK
from pidurable_actors.session import Binding, Tx
from pidurable_actors.storage import Storage

__all__ = ["Core"]

T = TypeVar("T")


@attrs.frozen
class Core:
    """The engine of one harness and what its conversations run with."""

    engine: Engine
    services: AgentServices

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]], binding: Binding) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T], binding: Binding) -> T: ...

    async def commit(self, change: Callable[[Tx], Any], binding: Binding) -> Any:
        """Commit, unless the harness is closing.

        Durability: stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self.engine.storage.refuse_in_callback()
        self.engine.check_open()
        if binding.conversation_id is not None:
            await self.engine.storage.warm(binding.conversation_id)
        return await self.engine.storage.commit(change, binding)

    async def read(self, look: Callable[[Storage], T]) -> T:
        """Read what is durable.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        self.engine.check_open()
        return await self.engine.storage.read(look)

    async def refuse_waiting_inside(
        self, *, conversation_id: ConversationId | None = None, task_id: TaskId | None = None
    ) -> None:
        """Refuse a wait, made by the code of a task, for what cannot end before that task.

        That is the task itself, whatever it is the work of, and their conversations, which stay
        busy as long as they run.

        Raises:
            TaskRefused: the wait would never end.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        at = current_context().get(TASK)
        host = self.engine.host
        while at is not None:
            record = await host.get_task(at)
            busy = None if record.background else record.conversation_id
            if at == task_id or (conversation_id is not None and busy == conversation_id):
                what = f"task {at}" if at == task_id else f"conversation {conversation_id}"
                raise TaskRefused(
                    f"the code of a task waits for {what}, which cannot end before it.", at
                )
            at = await host.above(record)

    def need_progress(self) -> None:
        """Start scheduling, for a call that asks for progress.

        Raises:
            ReadOnlySession: the harness only looks.
            CommitReentered: the call is made from inside a commit callback.
            HarnessClosed, SessionFailed: it is too late.
        """
        self.engine.storage.refuse_in_callback()
        self.engine.check_open()
        if self.engine.read_only:
            raise ReadOnlySession(
                "this harness was opened with read_only=True and schedules nothing; "
                "open the storage as owner to make progress."
            )
        self.engine.resume()
