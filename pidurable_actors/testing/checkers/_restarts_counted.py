"""Whether a cut was counted, and nothing else was.

Owns the count of restarts at the opening of a storage. The invariant: it passes exactly when the
first commit of an opening makes each task pending that was stored as running, with one more
restart, and no other commit raises a count.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from pidurable_actors.records import Batch, PutTask, TaskId, TaskRecord
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["restarts_counted"]

_PROMISE: Final = (
    "the first commit of an opening counts one restart for each task that was cut off while it "
    "ran, before anything runs; a clean close counts none"
)


def restarts_counted(world: World) -> None:
    """A task that was running when its process ended is pending next, with one more restart.

    It is counted in the first commit of the opening; progress sets the count to zero, and nothing
    else raises it. A close gives its tasks back before, so it counts none.

    Raises:
        AssertionError: a cut was not counted, or something else was.
    """
    tasks: dict[TaskId, TaskRecord] = {}
    openings = world.history.openings
    for opening, group in groupby(world.history.kept, key=lambda kept: kept.opening):
        cut = {task.id: task for task in tasks.values() if task.state.status == "running"}
        life = openings[opening].life
        for at, kept in enumerate(group):
            if at == 0:
                _check_cut(life, kept.batch, cut)
            for task in _tasks(kept.batch):
                before = tasks.get(task.id)
                counted = 0 if before is None else before.restarts
                if task.restarts > counted and (at or task.id not in cut):
                    raise _broken(
                        f"commit {kept.batch.number} of life {life} raised the restarts of task "
                        f"{task.id} ({task.kind}) from {counted} to {task.restarts}, "
                        "and it had not been cut off."
                    )
                tasks[task.id] = task


def _check_cut(life: int, first: Batch, cut: dict[TaskId, TaskRecord]) -> None:
    written = {task.id: task for task in _tasks(first)}
    for task_id, left in cut.items():
        task = written.get(task_id)
        due = left.restarts + 1
        if task is None or task.state.status != "pending" or task.restarts != due:
            now = "left as it was" if task is None else f"{task.state.status}, {task.restarts}"
            raise _broken(
                f"task {task_id} ({left.kind}) was running when the process before life {life} "
                f"ended; commit {first.number}, its first, has it {now}; due was pending, {due}."
            )


def _tasks(batch: Batch) -> Iterator[TaskRecord]:
    return (change.record for change in batch.changes if isinstance(change, PutTask))


def _broken(seen: str) -> AssertionError:
    return broken("restarts_counted", _PROMISE, seen)
