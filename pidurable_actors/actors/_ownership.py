"""Rules of ownership, as functions of a transaction; the line runs most of them in every commit.

They complete, in the very commit in which a task gets its outcome, what follows from it: a held
outcome is released, an owner that only waited for its work ends, a waiter is woken. So no crash can
come between an end and its consequences. Each costs the neighbours of the task, never the number
of live tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import attrs

from pidurable_actors._json import check_text
from pidurable_actors.actors._transitions import check_transition
from pidurable_actors.records import (
    CompletedOutcome,
    Completing,
    Pending,
    Running,
    TaskId,
    TaskRecord,
    Terminal,
    Waiting,
    is_live,
)
from pidurable_actors.session import Tx

__all__ = ["check_states", "mark_below", "settle_ended", "with_abort"]


def settle_ended(tx: Tx) -> None:
    """Release held outcomes, end owners that only waited for their work, wake waiters."""
    ended = tx.tasks.ended
    if ended:
        _follow(tx, deque(record.id for record in ended))
    for record in tuple(tx.tasks.written):
        if isinstance(record.state, Waiting) and all(map(tx.tasks.has_ended, record.state.on)):
            _wake(tx, record)


def check_states(tx: Tx) -> None:
    """Refuse a move that the life cycle does not have."""
    for record in tx.tasks.written:
        before = tx.tasks.admitted(record.id)
        if before is not None:
            check_transition(before, record)


async def mark_below(tx: Tx, task_ids: Sequence[TaskId]) -> None:
    """Mark live work, because the task above each is aborted or did not complete.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    await tx.load_tasks(task_ids)
    for task_id in task_ids:
        owner = tx.tasks.above(task_id)
        if owner is None or not tx.tasks.is_live(task_id):
            continue
        above, record = await tx.task(owner), await tx.task(task_id)
        if not record.abort_requested:
            wanted = above.abort_requested
            reason = above.abort_reason if wanted else f"task {owner} did not complete"
            tx.tasks.put(with_abort(record, reason))


def with_abort(record: TaskRecord, reason: str) -> TaskRecord:
    """A record that has no abort mark yet, with one.

    Raises:
        InvalidValue: the reason cannot be stored.
    """
    check_text(reason, "reason")
    return attrs.evolve(record, abort_requested=True, abort_reason=reason)


def _follow(tx: Tx, todo: deque[TaskId]) -> None:
    """Do what the ends in `todo` lead to, and the ends that those lead to."""
    gone: dict[TaskId, int] = {}  # waiting task -> awaited tasks that end in this commit
    told: set[TaskId] = set()
    stopped: set[TaskId] = set()
    while todo:
        record = tx.tasks.find(todo.popleft())
        if record is None or record.id in told:
            continue
        if isinstance(record.state, Completing) and not tx.tasks.below(record.id):
            record = attrs.evolve(
                record, state=Terminal(outcome=record.state.outcome), ended_at_ms=tx.now_ms
            )
            tx.tasks.put(record)
        if not isinstance(record.state, Terminal):
            continue
        told.add(record.id)
        for waiter in tx.tasks.waiters(record.id):
            _tell_waiter(tx, waiter, gone)
            if not _completed(record) and waiter not in stopped:
                stopped.add(waiter)
                _fail_fast(tx, waiter, record.id)
        above = tx.tasks.above(record.id)
        if above is not None:
            owner = tx.tasks.find(above)
            if owner is not None and isinstance(owner.state, Completing):
                todo.append(owner.id)


def _tell_waiter(tx: Tx, waiter_id: TaskId, gone: dict[TaskId, int]) -> None:
    """Wake a waiter if this was the last that it waited for."""
    waiter = tx.tasks.find(waiter_id)
    if waiter is None or not isinstance(waiter.state, Waiting):
        return
    gone[waiter_id] = gone.get(waiter_id, 0) + 1
    if gone[waiter_id] >= tx.tasks.remaining(waiter_id):
        _wake(tx, waiter)


def _fail_fast(tx: Tx, waiter_id: TaskId, ended: TaskId) -> None:
    """Mark the others that a task waits for, if that is its policy; once, at the first failure."""
    waiter = tx.tasks.find(waiter_id)
    if waiter is None or not isinstance(waiter.state, Waiting) or tx.tasks.failed_fast(waiter_id):
        return
    for awaited in waiter.state.on if waiter.state.policy == "fail_fast" else ():
        other = tx.tasks.find(awaited)
        if other is not None and is_live(other) and not other.abort_requested:
            tx.tasks.put(with_abort(other, f"task {ended} did not complete"))


def _wake(tx: Tx, waiter: TaskRecord) -> None:
    assert isinstance(waiter.state, Waiting), "only waiting tasks are woken"
    # A marked task is not woken to its checkpoint: its abort handler is reserved for it.
    runs = tx.tasks.can_run(waiter) and not waiter.abort_requested
    state = (Running if runs else Pending)(checkpoint=waiter.state.checkpoint)
    tx.tasks.put(attrs.evolve(waiter, state=state))


def _completed(record: TaskRecord) -> bool:
    return isinstance(record.state, Terminal) and isinstance(record.state.outcome, CompletedOutcome)
