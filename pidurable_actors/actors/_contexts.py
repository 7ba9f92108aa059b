"""The values that a task's runs see: those of the host, of the tasks above it, and its own.

Owns one `Context` per live task that has work or values of its own, so that its children find it
while it waits without a run. After a restart a context is built again from what is stored, top
down. Values are inherited; what ends a run is the supervisor's, so nothing here is ever cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, final

from pidurable_actors.actors._host import Host
from pidurable_actors.context import Context
from pidurable_actors.records import TaskId
from pidurable_actors.runtime import TaskActor
from pidurable_actors.session import Binding, Tx

__all__ = ["Contexts"]

AnyActor: TypeAlias = TaskActor[Any, Any]


@final
class Contexts:
    """The contexts of one harness.

    Args:
        host: where stored values are looked up.
        kinds: the installed task class of a kind.
        above: the task whose ordinary work a live task is.
        base: the host's values, without its deadline and cancellation.
    """

    def __init__(
        self,
        host: Host,
        *,
        kinds: Callable[[str], type[AnyActor] | None],
        above: Callable[[TaskId], TaskId | None],
        base: Context,
    ) -> None:
        self._host = host
        self._kinds = kinds
        self._above = above
        self._base = base
        self._known: dict[TaskId, Context] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def of(self, task_id: TaskId, cls: type[AnyActor]) -> Context:
        """The context that a run of a live task is made below.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        known = self._known.get(task_id)
        if known is not None:
            return known
        above = self._above(task_id)
        parent = self._base if above is None else await self._of_owner(above)
        if not cls.definition.has_values:
            return parent
        # Kept, because it is asked for by every run of the task and of its work.
        context = self._known[task_id] = await self._below(parent, task_id, cls)
        return context

    def forget(self, task_id: TaskId) -> None:
        """Let go of the context of a task that has ended."""
        self._known.pop(task_id, None)

    async def _of_owner(self, owner: TaskId) -> Context:
        """The context of a task that has work, and of those above it where they are missing."""
        missing: list[TaskId] = []
        at: TaskId | None = owner
        while at is not None and at not in self._known:
            missing.append(at)
            at = self._above(at)
        context = self._base if at is None else self._known[at]
        for task_id in reversed(missing):
            record = await self._host.get_task(task_id)
            cls = self._kinds(record.kind)
            if cls is not None:
                context = await self._below(context, task_id, cls)
            self._known[task_id] = context
        return context

    async def _below(self, parent: Context, task_id: TaskId, cls: type[AnyActor]) -> Context:
        if not cls.definition.has_values:
            return parent

        async def look(tx: Tx) -> Context:
            values = await cls.run_values(tx, await tx.task(task_id))
            return Context(parent=parent, values=values)

        return await self._host.commit(look, Binding())
