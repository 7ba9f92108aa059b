"""Whether every task went through its life as the table says.

Owns nothing but the comparison; the table is the runtime's. The invariant: it passes exactly when
each task enters the storage pending or running, and each later status of it is one that the table
allows after the one before, over all lives.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors.actors import TRANSITIONS
from pidurable_actors.records import PutTask, TaskId, TaskStatus
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["transitions_legal"]

_PROMISE: Final = "the status of a task changes as `pidurable_actors.actors.TRANSITIONS` says"
_FIRST: Final[tuple[TaskStatus, ...]] = ("pending", "running")


def transitions_legal(world: World) -> None:
    """A task begins pending or running, and each change of its status is in the table.

    Raises:
        AssertionError: one is not.
    """
    statuses: dict[TaskId, TaskStatus] = {}
    for commit, change in world.history.changes(PutTask):
        task = change.record
        before, after = statuses.get(task.id), task.state.status
        allowed = _FIRST if before is None else TRANSITIONS[before]
        if after not in allowed:
            raise broken(
                "transitions_legal",
                _PROMISE,
                f"commit {commit} took task {task.id} ({task.kind}) from "
                f"{before or 'nothing'} to {after}.",
            )
        statuses[task.id] = after
