"""Reserving: which ready tasks may run here, and what is stored of that.

Owns what is known to be blocked. A reservation is written into a transaction of the supervisor,
checked against the newest state; it takes effect when that commit is stored, and everything that
follows from it (reports, blocks) waits in the decision until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias, final

import attrs

from pidurable_actors.actors._decisions import blocked_by, startable
from pidurable_actors.actors._endings import about, give_back, in_words
from pidurable_actors.actors._migration import migrated
from pidurable_actors.actors._ownership import mark_below
from pidurable_actors.errors import ClosedError, StorageError
from pidurable_actors.records import (
    Completing,
    Parked,
    Running,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.runtime import Report, ServiceLookup, TaskActor
from pidurable_actors.session import TaskSlot, Tx
from pidurable_actors.settings import Settings

__all__ = ["Decision", "KindLookup", "Reservations"]

AnyActor: TypeAlias = TaskActor[Any, Any]
KindLookup: TypeAlias = Callable[[str], type[AnyActor] | None]


@attrs.frozen(kw_only=True)
class Decision:
    """What one commit of the supervisor takes up, and what follows once it is stored.

    Attributes:
        ready: tasks to be looked at.
        marks: work that gets an abort mark, because of the task above it.
        unstarted: those of `ready` that are stored as running and could not be started.
        blocked: why some of them cannot run here.
        reports: what the host is told.
        looped: those that were cut off too often.
    """

    ready: list[TaskId]
    marks: list[TaskId]
    unstarted: set[TaskId]
    blocked: dict[TaskId, str] = attrs.field(factory=dict)
    reports: list[Report] = attrs.field(factory=list)
    looped: list[TaskRecord] = attrs.field(factory=list)


@final
class Reservations:
    """What may run in this process.

    Args:
        kinds: the installed task class of a kind.
        settings: read live.
        services: what the harness provides, for classes that say what blocks their tasks.
    """

    def __init__(
        self, kinds: KindLookup, settings: Callable[[], Settings], services: ServiceLookup
    ) -> None:
        self._kinds = kinds
        self._settings = settings
        self._services = services
        self.blocked: dict[TaskId, str] = {}

    def reason(self, kind: str, version: int) -> str | None:
        """Why tasks of this kind and stored version cannot run here; None when they can."""
        cls = self._kinds(kind)
        if cls is None:
            return blocked_by(kind, version, None)
        known = cls.definition
        return blocked_by(kind, version, known.version, migrates=known.migrates)

    def why_blocked(self, slot: TaskSlot) -> str | None:
        """Why a live task cannot run here; None when it can."""
        return self.reason(slot.kind, slot.version) or self.blocked.get(slot.id)

    def runs_as_stored(self, kind: str, version: int) -> bool:
        """Whether a task of this kind and version can start without a migration."""
        cls = self._kinds(kind)
        return cls is not None and cls.definition.version == version

    async def take_up(self, tx: Tx, decision: Decision, running: Collection[TaskId]) -> None:
        """Write what a decision leads to: abort marks below, and reservations.

        Args:
            tx: the supervisor's transaction.
            decision: what to take up; what follows is noted in it.
            running: tasks that have an invocation.

        Durability: stored with the commit of `tx`.

        Cancellation: the commit rolls back.
        """
        await mark_below(tx, decision.marks)
        await tx.load_tasks(decision.ready)
        for task_id in decision.ready:
            await self._reserve(tx, task_id, decision, running)

    async def _reserve(
        self, tx: Tx, task_id: TaskId, decision: Decision, running: Collection[TaskId]
    ) -> None:
        if not tx.tasks.is_live(task_id):
            return
        record = await tx.task(task_id)
        if task_id in decision.unstarted and isinstance(record.state, Running):
            give_back(tx, record)
            return
        why = startable(record, now_ms=tx.now_ms, below=tx.tasks.below(task_id))
        if why is None or task_id in running:
            return
        fit = await self._fit(tx, record, decision, for_abort=why == "abort")
        if fit is None:
            return
        self.blocked.pop(task_id, None)
        parked = isinstance(fit.state, Parked)
        if fit.restarts >= self._settings().restart_limit and not parked:
            decision.looped.append(fit)
            return
        assert not isinstance(fit.state, Completing | Terminal), "no outcome is startable"
        tx.tasks.put(
            attrs.evolve(
                fit,
                state=Running(checkpoint=fit.state.checkpoint),
                started_at_ms=fit.started_at_ms or tx.now_ms,
                # The abort handler of a parked task gets tries of its own.
                restarts=0 if parked else fit.restarts,
            )
        )

    async def _fit(
        self, tx: Tx, record: TaskRecord, decision: Decision, *, for_abort: bool
    ) -> TaskRecord | None:
        """The record as the installed class reads it; None when the task is blocked."""
        cls = self._kinds(record.kind)
        blocked = self.reason(record.kind, record.version)
        error: Exception | None = None
        if blocked is None and cls is not None:
            try:
                fit = migrated(record, cls)
            except Exception as raised:  # noqa: BLE001 - user code blocks only its own task
                blocked, error = f"migrating it failed: {in_words(raised)}", raised
            else:
                if for_abort or not cls.definition.blocks:
                    return fit
                blocked, error = await self._asked(tx, fit, cls)
                if blocked is None:
                    return fit
        assert blocked is not None, "a task without a class is blocked"
        # Told once, however often it is looked at again.
        if self.blocked.get(record.id) != blocked:
            decision.blocked[record.id] = blocked
            decision.reports.append(about("task_blocked", record, detail=blocked, error=error))
        return None

    async def _asked(
        self, tx: Tx, record: TaskRecord, cls: type[AnyActor]
    ) -> tuple[str | None, Exception | None]:
        """Why the class says that its task cannot run now, and what it raised."""
        try:
            return await cls.blocked_by(tx, record, self._services), None
        except (ClosedError, StorageError):
            raise
        except Exception as raised:  # noqa: BLE001 - user code blocks only its own task
            return f"whether it can run is not known: {in_words(raised)}", raised
