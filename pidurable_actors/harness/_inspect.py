"""What is live and why it does or does not run: a picture for people and programs."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from pidurable_actors.actors import Engine
from pidurable_actors.records import ConversationId, TaskId, TaskStatus, Waiting
from pidurable_actors.session import TaskSlot

__all__ = ["Inspection", "TaskView", "inspect_engine"]

Why: TypeAlias = Literal[
    "running", "ready", "sleeping", "waiting", "completing", "parked", "blocked", "not_scheduling"
]


@attrs.frozen(kw_only=True)
class TaskView:
    """One live task.

    Attributes:
        why: why it runs or does not.
        detail: what it is blocked by.
        phase: the step that it is at; None while it is not loaded or has its outcome.
        waiting_on: the tasks that it waits for.
        until_ms: when it wakes.
    """

    id: TaskId
    conversation_id: ConversationId
    kind: str
    status: TaskStatus
    why: Why
    owner: TaskId | None
    background: bool
    abort_requested: bool
    restarts: int = 0
    phase: str | None = None
    detail: str = ""
    waiting_on: tuple[TaskId, ...] = ()
    until_ms: int | None = None


@attrs.frozen(kw_only=True)
class Inspection:
    """A picture of one harness.

    Attributes:
        scheduling: whether tasks are started.
        closing: whether the harness is closing.
        tasks: what is live, by id.
    """

    scheduling: bool
    closing: bool
    tasks: tuple[TaskView, ...]


def inspect_engine(engine: Engine) -> Inspection:
    """Look at the live tasks of an engine, as they are durably."""
    slots = sorted(engine.line.state.tasks.values(), key=lambda slot: slot.id)
    return Inspection(
        scheduling=engine.supervisor.scheduling,
        closing=engine.closing,
        # A task with a head and nothing durable is being created: nobody may see it yet.
        tasks=tuple(_view(engine, s) for s in slots if s.durable is not None or s.head is None),
    )


def _view(engine: Engine, slot: TaskSlot) -> TaskView:
    """A picture of the durable record; of the index row while the record is not in memory."""
    record = slot.durable
    state = record.state if record is not None else None
    status = state.status if state is not None else slot.status
    checkpoint = getattr(state, "checkpoint", None)
    why, detail = _why(engine, slot, status)
    return TaskView(
        id=slot.id,
        conversation_id=slot.conversation_id,
        kind=slot.kind,
        status=status,
        why=why,
        detail=detail,
        owner=slot.owner,
        background=slot.background,
        abort_requested=(slot if record is None else record).abort_requested,
        restarts=record.restarts if record is not None else 0,
        phase=checkpoint["phase"] if checkpoint is not None else None,
        waiting_on=state.on if isinstance(state, Waiting) else (),
        until_ms=slot.until_ms if state is None else getattr(state, "until_ms", None),
    )


def _why(engine: Engine, slot: TaskSlot, status: TaskStatus) -> tuple[Why, str]:
    supervisor = engine.supervisor
    if slot.id in supervisor.running:
        return "running", ""
    if status in ("parked", "completing"):
        return ("parked" if status == "parked" else "completing"), ""
    blocked = supervisor.blocked_reason(slot.kind, slot.version)
    if blocked is not None:
        return "blocked", blocked
    if status in ("sleeping", "waiting"):
        return ("sleeping" if status == "sleeping" else "waiting"), ""
    return ("ready" if supervisor.scheduling else "not_scheduling"), ""
