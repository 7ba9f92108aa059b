"""Whether an owner ended before the work that it owns.

Owns the tree of tasks and conversations, rebuilt from commits and from nothing else. The invariant:
it passes exactly when after each stored commit no ended task has a live ordinary task directly
below it; since that holds for every pair, it holds for the whole chain.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors.records import (
    Batch,
    ConversationId,
    PutConversation,
    PutTask,
    TaskId,
    TaskRecord,
    is_live,
)
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["owned_work_ends_first"]

_PROMISE: Final = "a task ends after all ordinary work that it owns, over crashes too"


def owned_work_ends_first(world: World) -> None:
    """After each stored commit, no ended task owns live work that is not in the background.

    Work belongs to the task that owns it, or to the task that owns its conversation.

    Raises:
        AssertionError: an owner ended first, or work was made below an ended one.
    """
    tree = _Tree()
    for batch in world.history.batches():
        tree.take(batch)


class _Tree:
    def __init__(self) -> None:
        self._owners: dict[ConversationId, TaskId] = {}
        self._ended: set[TaskId] = set()
        self._below: dict[TaskId, set[TaskId]] = {}  # owner -> its live ordinary work

    def take(self, batch: Batch) -> None:
        """Take one commit, then look at what it changed."""
        ends: list[TaskRecord] = []
        live: list[tuple[TaskRecord, TaskId]] = []
        for change in batch.changes:
            if isinstance(change, PutConversation) and change.record.owner is not None:
                self._owners[change.record.id] = change.record.owner.task_id
            elif isinstance(change, PutTask):
                task = change.record
                owner = self._put(task)
                if not is_live(task):
                    ends.append(task)
                elif owner is not None:
                    live.append((task, owner))
        for task in ends:
            below = self._below.get(task.id)
            if below:
                raise _broken(
                    f"commit {batch.number} ended task {task.id} ({task.kind}) while task "
                    f"{min(below)}, which it owns, is live."
                )
        for task, owner in live:
            if owner in self._ended:
                raise _broken(
                    f"commit {batch.number} has task {task.id} ({task.kind}) live below task "
                    f"{owner}, which had ended."
                )

    def _put(self, task: TaskRecord) -> TaskId | None:
        """Take a task; its owner, if it is ordinary work that a task owns."""
        if not is_live(task):
            self._ended.add(task.id)
        if task.background:
            return None
        owner = task.owner or self._owners.get(task.conversation_id)
        if owner is None:
            return None
        below = self._below.setdefault(owner, set())
        if is_live(task):
            below.add(task.id)
        else:
            below.discard(task.id)
        return owner


def _broken(seen: str) -> AssertionError:
    return broken("owned_work_ends_first", _PROMISE, seen)
