"""Whether a memo kept its one value for as long as its task lives.

Owns memos: those that commits record, those that the runtime believes a task to have, and those
that are stored at the end. The invariant: it passes exactly when each name is recorded at most once
per task, only the end of a task drops its memos, and a live task has what was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pidurable_actors._json import decode_json
from pidurable_actors.records import (
    Change,
    DropMemos,
    PutMemo,
    PutTask,
    TaskId,
    TaskRecord,
    Terminal,
    is_live,
)
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["memos_single"]

_PROMISE: Final = (
    "a memo of a task is recorded once; it has that value over all lives until its task has ended"
)
_NONE: Final[Mapping[str, str]] = {}


def memos_single(world: World) -> None:
    """Over all lives a memo has one value, and it is there while its task is live.

    Raises:
        AssertionError: it was recorded again, is not stored, or was dropped before the end.
    """
    memos = _Memos()
    for batch in world.history.batches():
        for change in batch.changes:
            memos.take(batch.number, change)
        memos.check_drops(batch.number)
    for task in world.records.tasks.values():
        if is_live(task):
            memos.check_stored(task)


class _Memos:
    def __init__(self) -> None:
        self._texts: dict[TaskId, dict[str, str]] = {}
        self._dropped: set[TaskId] = set()

    def take(self, commit: int, change: Change) -> None:
        """Take one change."""
        match change:
            case PutMemo(task_id, name, text):
                self._record(commit, task_id, name, text)
            case DropMemos(task_id):
                self._dropped.add(task_id)
                self._texts.pop(task_id, None)
            case PutTask(task) if isinstance(task.state, Terminal):
                self._dropped.discard(task.id)
            case PutTask(task):
                self._compare(commit, task)
            case _:
                pass

    def check_drops(self, commit: int) -> None:
        """The tasks whose memos the commit dropped end in it."""
        if self._dropped:
            live = min(self._dropped)
            raise _broken(f"commit {commit} dropped the memos of task {live}, which is live.")

    def check_stored(self, task: TaskRecord) -> None:
        """What a live task has at the end is what was recorded."""
        texts = self._texts.get(task.id, _NONE)
        recorded = {name: decode_json(text) for name, text in texts.items()}
        if task.memos != recorded:
            raise _broken(
                f"live task {task.id} ({task.kind}) is stored with memos {dict(task.memos)!r}; "
                f"recorded were {recorded!r}."
            )

    def _record(self, commit: int, task_id: TaskId, name: str, text: str) -> None:
        texts = self._texts.setdefault(task_id, {})
        if name in texts:
            raise _broken(
                f"commit {commit} recorded memo {name!r} of task {task_id} as {text}; "
                f"it was recorded before, as {texts[name]}."
            )
        texts[name] = text

    def _compare(self, commit: int, task: TaskRecord) -> None:
        """What the runtime goes on with is what the storage was given."""
        unstored = task.memos.keys() ^ self._texts.get(task.id, _NONE).keys()
        if unstored:
            raise _broken(
                f"at commit {commit} task {task.id} ({task.kind}) goes on with other memos than "
                f"are stored; they differ in {sorted(unstored)}."
            )


def _broken(seen: str) -> AssertionError:
    return broken("memos_single", _PROMISE, seen)
