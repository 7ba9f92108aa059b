"""Whether something live has nothing that would move it on.

Owns the question of liveness at the end of a story, of the harness as it stood and of what is
stored after its close. It waits for nothing; a story that never ends is the explorer's to tell. The
invariant: it passes exactly when each live task is ready, runs, sleeps, waits for or is completing
over something live, or stands still for a reason that the harness names.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from pidurable_actors.harness import Inspection, TaskView
from pidurable_actors.records import (
    Completing,
    Running,
    TaskId,
    TaskRecord,
    Waiting,
    is_live,
)
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["nothing_stuck"]

_PROMISE: Final = (
    "a live task is ready, running, sleeping, waiting for or completing over something live, "
    "parked or blocked"
)


def nothing_stuck(world: World) -> None:
    """Each live task can be moved on, or the harness names why it stands still.

    Looked at when the story left its block, and at what is stored when the life has ended: there
    nothing is running any more, since a close gives it back, unless the storage had failed.

    Raises:
        AssertionError: a task waits for nothing, or runs though nobody runs it.
    """
    if world.inspection is not None:
        _check_view(world.inspection)
    tasks = {task.id: task for task in world.records.tasks.values() if is_live(task)}
    owners = {
        record.id: record.owner.task_id
        for record in world.records.conversations.values()
        if record.owner is not None
    }
    busy = {
        owner
        for task in tasks.values()
        if not task.background
        and (owner := task.owner or owners.get(task.conversation_id)) is not None
    }
    failed = any(report.kind == "storage_failed" for report in world.reports)
    for task in tasks.values():
        why = _stuck(task, tasks.keys(), busy)
        if isinstance(task.state, Running) and not failed:
            why = "is running, and the harness has closed"
        if why:
            raise _broken(f"stored at the end, task {task.id} ({task.kind}) {why}.")


def _stuck(task: TaskRecord, live: AbstractSet[TaskId], busy: AbstractSet[TaskId]) -> str:
    match task.state:
        case Waiting(on=on) if live.isdisjoint(on):
            return f"waits for {list(on)}, none of which is live"
        case Completing() if task.id not in busy:
            return "has its outcome, and nothing below it is live"
        case _:
            return ""


def _check_view(seen: Inspection) -> None:
    live = {task.id for task in seen.tasks}
    for task in seen.tasks:
        why = _stuck_in_view(seen, task, live)
        if why:
            raise _broken(f"when the story ended, task {task.id} ({task.kind}) {why}.")


def _stuck_in_view(seen: Inspection, task: TaskView, live: AbstractSet[TaskId]) -> str:
    if task.why == "not_scheduling" and seen.scheduling:
        return "was not scheduled by a harness that schedules"
    if task.why == "waiting" and live.isdisjoint(task.waiting_on):
        return f"waited for {list(task.waiting_on)}, none of which was live"
    return ""


def _broken(seen: str) -> AssertionError:
    return broken("nothing_stuck", _PROMISE, seen)
