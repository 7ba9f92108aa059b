"""Trying a task again; a function of a transaction."""

from __future__ import annotations

import attrs

from pidurable_actors.errors import TaskRefused
from pidurable_actors.records import (
    FailedOutcome,
    FaultedOutcome,
    Parked,
    Pending,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.session import Tx

__all__ = ["retry_task"]


async def retry_task(tx: Tx, record: TaskRecord) -> TaskId:
    """Send a parked task round again, or start a successor of one that faulted or failed.

    Returns:
        The id of the task that runs now.

    Raises:
        TaskRefused: the task is in another state, was retried before, or its owner is ending.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    state = record.state
    if isinstance(state, Parked):
        if record.abort_requested:
            raise TaskRefused(f"task {record.id} is being aborted.", record.id)
        tx.tasks.put(attrs.evolve(record, state=Pending(checkpoint=state.checkpoint), restarts=0))
        return record.id
    if not isinstance(state, Terminal) or not isinstance(
        state.outcome, FaultedOutcome | FailedOutcome
    ):
        raise TaskRefused(
            f"task {record.id} is {state.status}; "
            "only parked, faulted and failed tasks are retried.",
            record.id,
        )
    if record.retried_as is not None:
        raise TaskRefused(
            f"task {record.id} was retried before, as task {record.retried_as}.", record.id
        )
    if state.outcome.checkpoint is None:
        raise TaskRefused(f"task {record.id} ended without a checkpoint.", record.id)
    return tx.tasks.succeed(record, state.outcome.checkpoint, state.outcome.memos)
