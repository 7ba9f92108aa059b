"""Whether a tool ran again that must not, or before its intent was stored.

Owns the runs of tools, beside the intents that commits hold. What a run did outside is
`effects_once`'s. The invariant: it passes exactly when each run of a tool was entered with the key
of an intent that was stored before and still is, and an unsafe call was entered once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from pidurable_actors.records import Batch, PutTask, TaskId
from pidurable_actors.runtime import checkpoint_in
from pidurable_actors.tasks.tool import Execute, NestedCall, ToolTask
from pidurable_actors.testing._trace import Began, Crashed, Opened, Stored, ToolEntered
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["unsafe_runs_once"]

Run: TypeAlias = tuple[TaskId, str]
"""The task of a call, and the model's id of it."""

_KINDS: Final = (ToolTask.definition.kind, NestedCall.definition.kind)
_PROMISE: Final = (
    "a tool runs after its intent is stored, each time with the key that is stored there, and an "
    'unsafe one (replay="unsafe") at most once'
)


def unsafe_runs_once(world: World) -> None:
    """A tool's code is entered after its intent is stored; that of an unsafe one at most once.

    When another policy lets it run again, it has the same idempotency key. Counted over all lives,
    for each call.

    Raises:
        AssertionError: it ran again, with another key, or too early.
    """
    intents = _Intents()
    entered: dict[Run, int] = {}
    life, place = 0, ""
    for event in world.history.events:
        match event:
            case Opened(life, commit):
                intents.found(commit)
            case Began(batches):
                intents.begin(batches)
            case Stored(batches):
                intents.store(batches)
            case Crashed(place):
                pass
            case ToolEntered():
                intents.check(event)
                run = (event.task_id, event.call_id)
                if event.replay == "unsafe" and run in entered:
                    killed = f", after the process was killed {place}" if place else ""
                    raise _broken(
                        event, f"ran in life {entered[run]} and again in life {life}{killed}."
                    )
                entered[run] = life
            case _:
                pass


class _Intents:
    """The keys that are stored, and the commit since which each is."""

    def __init__(self) -> None:
        self._keys: dict[TaskId, tuple[int, str]] = {}
        self._under_way: tuple[Batch, ...] = ()

    def begin(self, batches: tuple[Batch, ...]) -> None:
        """A write begins."""
        self._under_way = batches

    def store(self, batches: Iterable[Batch]) -> None:
        """A write is there."""
        self._under_way = ()
        for batch in batches:
            for change in batch.changes:
                if isinstance(change, PutTask) and change.record.kind in _KINDS:
                    at = checkpoint_in(change.record)
                    if at is not None and at["phase"] == Execute.phase_name:
                        self._note(change.record.id, batch.number, str(at.get("key")))

    def found(self, commit: int) -> None:
        """Forget what was lost, and take what was under way and is there all the same."""
        self._keys = {task: note for task, note in self._keys.items() if note[0] <= commit}
        self.store([batch for batch in self._under_way if batch.number <= commit])

    def check(self, event: ToolEntered) -> None:
        """The intent of a run is stored.

        Raises:
            AssertionError: it is not, or has another key.
        """
        note = self._keys.get(event.task_id)
        if note is None:
            raise _broken(event, "ran before its intent was stored.")
        if note[1] != event.key:
            raise _broken(event, f"ran with key {event.key}; its intent has {note[1]}.")

    def _note(self, task_id: TaskId, commit: int, key: str) -> None:
        if self._keys.get(task_id, (0, ""))[1] != key:
            self._keys[task_id] = (commit, key)


def _broken(event: ToolEntered, seen: str) -> AssertionError:
    told = f"tool {event.name!r}, call {event.call_id!r} of task {event.task_id}, {seen}"
    return broken("unsafe_runs_once", _PROMISE, told)
