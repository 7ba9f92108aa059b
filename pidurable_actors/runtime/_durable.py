"""What a returned step means for a task's record; pure but for reads of the transaction.

Owns the rules that a step must keep: progress on every step, waits only on what can end before the
waiter. It never starts anything.
"""

from __future__ import annotations

from typing import Any

import attrs

from pidurable_actors._json import JsonObject, check_json, check_text
from pidurable_actors.errors import InvalidValue, MisuseError, TaskRefused
from pidurable_actors.records import (
    ENDED,
    AbortedOutcome,
    CompletedOutcome,
    Completing,
    FailedOutcome,
    FaultedOutcome,
    LiveState,
    Running,
    Sleeping,
    TaskId,
    TaskOutcome,
    TaskRecord,
    Terminal,
    Waiting,
)
from pidurable_actors.runtime._outcomes import (
    Aborted,
    Completed,
    Continue,
    Failed,
    Next,
    SleepUntil,
    WaitFor,
)
from pidurable_actors.runtime._task_actor import TaskActor
from pidurable_actors.runtime._values import to_json
from pidurable_actors.session import Tx

__all__ = [
    "OUTCOME_TYPES",
    "STEP_TYPES",
    "NoProgress",
    "checkpoint_in",
    "end_task",
    "store_step",
    "store_wait",
]

OUTCOME_TYPES = (Completed, Failed, Aborted)
STEP_TYPES = (Continue, SleepUntil, WaitFor, *OUTCOME_TYPES)


class NoProgress(MisuseError):
    """A phase returned the checkpoint it was entered with; it would loop for ever."""

    def __init__(self) -> None:
        super().__init__(
            "phase returned without progress: it must return another checkpoint, a sleep, a wait "
            "or an outcome."
        )


async def store_wait(
    tx: Tx, cls: type[TaskActor[Any, Any]], record: TaskRecord, step: WaitFor
) -> TaskRecord:
    """Write a wait as the task's new state; reads the tasks waited for.

    Raises:
        NoProgress: all have ended and the checkpoint is the same again.
        TaskRefused: a wait that cannot end, or ``fail_fast`` on a task that is no own child.
        StorageRequestError: one of the tasks does not exist.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    checkpoint = cls.store_checkpoint(step.checkpoint)
    ids = tuple(dict.fromkeys(TaskId(task_id) for task_id in step.tasks))
    live: list[TaskRecord] = []
    failed: TaskId | None = None
    for task_id in ids:
        awaited = await tx.task(task_id)
        await _check_wait(tx, record, awaited, step)
        if not isinstance(awaited.state, Terminal):
            live.append(awaited)
        elif awaited.state.outcome.status != "completed":
            failed = failed or task_id
    if not live:
        if checkpoint == checkpoint_in(record):
            raise NoProgress
        return _live(tx, record, Running(checkpoint=checkpoint))
    if step.policy == "fail_fast" and failed is not None:
        # It failed before anybody waited for it; the others are stopped now.
        for other in live:
            if not other.abort_requested:
                reason = f"task {failed} did not complete"
                tx.tasks.put(attrs.evolve(other, abort_requested=True, abort_reason=reason))
    return _live(tx, record, Waiting(checkpoint=checkpoint, on=ids, policy=step.policy))


def store_step(
    tx: Tx, cls: type[TaskActor[Any, Any]], record: TaskRecord, step: Next[Any]
) -> TaskRecord:
    """Write what a phase returned, other than a wait, as the task's new state.

    Raises:
        NoProgress: the same checkpoint again.
        MisuseError, InvalidValue: the step is not one this task may take.
    """
    match step:
        case Continue():
            checkpoint = cls.store_checkpoint(step.checkpoint)
            if checkpoint == checkpoint_in(record):
                raise NoProgress
            return _live(tx, record, Running(checkpoint=checkpoint))
        case SleepUntil():
            checkpoint = cls.store_checkpoint(step.checkpoint)
            return _live(tx, record, Sleeping(checkpoint=checkpoint, until_ms=_when_ms(step)))
        case Completed():
            return end_task(tx, record, CompletedOutcome(result=to_json(step.result, "result")))
        case Failed():
            outcome = FailedOutcome(
                error=to_json(step.error, "error"), result=to_json(step.result, "result")
            )
            return end_task(tx, record, outcome)
        case Aborted():
            check_text(step.reason, "reason")
            return end_task(tx, record, AbortedOutcome(reason=step.reason))
        case _:
            raise MisuseError(
                f"a phase of {cls.__name__} returned {step!r}; it must return Continue, "
                "SleepUntil, WaitFor, Completed, Failed or Aborted."
            )


def end_task(tx: Tx, record: TaskRecord, outcome: TaskOutcome) -> TaskRecord:
    """Write an outcome; held while the task owns live work, else the end. Clears `restarts`."""
    if isinstance(outcome, FailedOutcome | FaultedOutcome):
        # Kept, so that the task can be tried again from where it stood.
        outcome = attrs.evolve(outcome, checkpoint=checkpoint_in(record), memos=record.memos)
    if tx.tasks.below(record.id):
        ended = attrs.evolve(record, state=Completing(outcome=outcome), restarts=0)
    else:
        ended = attrs.evolve(
            record, state=Terminal(outcome=outcome), restarts=0, ended_at_ms=tx.now_ms
        )
    tx.tasks.put(ended)
    return ended


def checkpoint_in(record: TaskRecord) -> JsonObject | None:
    """The stored checkpoint, None once the task has an outcome."""
    state = record.state
    return None if isinstance(state, ENDED) else state.checkpoint


def _when_ms(step: SleepUntil) -> int:
    try:
        when_ms = int(step.when_ms)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidValue("when_ms", f"{step.when_ms!r} is no time in milliseconds") from error
    check_json(when_ms, "when_ms")
    return when_ms


def _live(tx: Tx, record: TaskRecord, state: LiveState) -> TaskRecord:
    stepped = record.stepped(state)
    tx.tasks.put(stepped)
    return stepped


async def _check_wait(tx: Tx, record: TaskRecord, awaited: TaskRecord, step: WaitFor) -> None:
    if step.policy == "fail_fast" and awaited.owner != record.id:
        raise TaskRefused(
            f"fail_fast waits on own children; task {awaited.id} is not one.", awaited.id
        )
    above: TaskId | None = record.id
    # An owner is older than its work, so only what is older than the waiter can be above it.
    while above is not None and above >= awaited.id:
        if above == awaited.id:
            raise TaskRefused(
                f"task {record.id} cannot wait for task {awaited.id}, which cannot end before it.",
                awaited.id,
            )
        above = await tx.above(await tx.task(above))
