"""What is live and why it does or does not run: pictures for people and programs.

Owns how live work is shown, and nothing else. A picture is made from memory, without a read of
storage, and shows what is durable: work that is admitted and not stored yet is in no picture. So
what nothing live needs is not in it either, such as conversations in which nothing goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from pidurable_actors.actors import Engine
from pidurable_actors.records import ConversationId, TaskId, TaskStatus, Waiting
from pidurable_actors.session import TaskSlot

__all__ = [
    "Inspection",
    "OwnedConversation",
    "TaskGraph",
    "TaskView",
    "inspect_engine",
    "inspect_graph",
]

Why: TypeAlias = Literal[
    "running",
    "ready",
    "sleeping",
    "waiting",
    "aborting",
    "completing",
    "parked",
    "blocked",
    "not_scheduling",
]


@attrs.frozen(kw_only=True)
class TaskView:
    """One live task.

    Attributes:
        status: what is stored.
        why: why it runs or does not. ``aborting`` has an abort mark, and its handler waits for the
            work below; ``ready`` will run as soon as there is time.
        owner: the task that owns it; None when its conversation does.
        above: the task whose ordinary work it is: `owner`, or the owner of its conversation.
        detail: what it is blocked by, or how much below it must end first.
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
    above: TaskId | None = None
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
        unsettled: how many submissions are neither answered nor given up, by conversation.
        commits_waiting: how many commits are admitted and not stored yet.
        holding: the runs that a close is waiting for, each with its stack; empty while it is open.
    """

    scheduling: bool
    closing: bool
    tasks: tuple[TaskView, ...]
    unsettled: Mapping[ConversationId, int] = attrs.field(factory=dict)
    commits_waiting: int = 0
    holding: Mapping[TaskId, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class OwnedConversation:
    """A conversation in which something is live, and the task that owns it."""

    id: ConversationId
    owner: TaskId


@attrs.frozen(kw_only=True)
class TaskGraph:
    """Who owns what of the live work.

    An edge goes from each task to its ``above``; a task without one is at the top, or in the
    background. Ordinary work ends before what is above it.

    Attributes:
        tasks: what is live, by id; an owner comes before its work.
        conversations: those that a task owns and in which something is live, by id.
    """

    tasks: tuple[TaskView, ...]
    conversations: tuple[OwnedConversation, ...]


def inspect_engine(engine: Engine) -> Inspection:
    """Look at the live tasks of an engine, as they are durably."""
    state = engine.line.state
    running = engine.supervisor.running
    return Inspection(
        scheduling=engine.supervisor.scheduling,
        closing=engine.closing,
        tasks=_views(engine),
        unsettled=dict(Counter(state.unsettled.values())),
        commits_waiting=state.number - state.durable_number,
        holding={at: run.stack() for at, run in running.items()} if engine.closing else {},
    )


def inspect_graph(engine: Engine) -> TaskGraph:
    """Look at who owns what among the live tasks of an engine."""
    tasks = _views(engine)
    owners = engine.line.state.owners
    conversations = sorted({task.conversation_id for task in tasks} & owners.keys())
    return TaskGraph(
        tasks=tasks,
        conversations=tuple(OwnedConversation(id=at, owner=owners[at]) for at in conversations),
    )


def _views(engine: Engine) -> tuple[TaskView, ...]:
    # A task with a head and nothing durable is being created: nobody may see it yet.
    slots = [s for s in engine.line.state.tasks.values() if s.durable is not None or s.head is None]
    slots.sort(key=lambda slot: slot.id)
    below = Counter(slot.above for slot in slots)
    return tuple(_view(engine, slot, below[slot.id]) for slot in slots)


def _view(engine: Engine, slot: TaskSlot, below: int) -> TaskView:
    """A picture of the durable record; of the index row while the record is not in memory."""
    record = slot.durable
    state = record.state if record is not None else None
    status = state.status if state is not None else slot.status
    checkpoint = getattr(state, "checkpoint", None)
    marked = (slot if record is None else record).abort_requested
    until_ms = slot.until_ms if state is None else getattr(state, "until_ms", None)
    why, detail = _why(engine, slot, status, marked=marked, below=below)
    return TaskView(
        id=slot.id,
        conversation_id=slot.conversation_id,
        kind=slot.kind,
        status=status,
        why=why,
        detail=detail,
        owner=slot.owner,
        above=slot.above,
        background=slot.background,
        abort_requested=marked,
        restarts=record.restarts if record is not None else 0,
        phase=checkpoint["phase"] if checkpoint is not None else None,
        waiting_on=state.on if isinstance(state, Waiting) else (),
        until_ms=until_ms,
    )


def _why(
    engine: Engine, slot: TaskSlot, status: TaskStatus, *, marked: bool, below: int
) -> tuple[Why, str]:
    supervisor = engine.supervisor
    if slot.id in supervisor.running:
        return "running", ""
    if status == "completing":
        return "completing", f"{below} live below"
    if status == "parked" and not marked:
        return "parked", ""
    blocked = supervisor.why_blocked(slot)
    if blocked is not None:
        return "blocked", blocked
    if marked and below:
        return "aborting", f"{below} live below"
    if status in ("sleeping", "waiting") and not marked:
        return ("sleeping" if status == "sleeping" else "waiting"), ""
    return ("ready" if supervisor.scheduling else "not_scheduling"), ""
