"""What happened to a world, in order: the evidence that the checks look at.

Owns the events and their order over all lives of a world. It judges nothing. The invariant: an
event that was noted is never changed; a crash forks the trace at its place without copying, so what
came before is shared by everything that is tried after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias, TypeVar, final

import attrs

from pidurable_actors.agent import Replay
from pidurable_actors.records import Batch, TaskId

__all__ = [
    "Acknowledged",
    "Began",
    "Crashed",
    "Effect",
    "Ended",
    "Event",
    "Opened",
    "Published",
    "Stored",
    "ToolEntered",
    "ToolLeft",
    "Trace",
]

E = TypeVar("E")


@attrs.frozen
class Opened:
    """A process became the owner of the storage and found `commit` as its newest commit."""

    life: int
    commit: int


@attrs.frozen
class Began:
    """A write of these commits began; whatever came of it, the next process may find them."""

    batches: tuple[Batch, ...]


@attrs.frozen
class Stored:
    """The storage said that it has these commits."""

    batches: tuple[Batch, ...]


@attrs.frozen
class Published:
    """A commit was shown."""

    batch: Batch


@attrs.frozen
class Acknowledged:
    """The caller of a commit went on."""

    number: int


@attrs.frozen
class Effect:
    """Something was done that a crash does not undo.

    Attributes:
        name: what; a second effect of the same name is the same thing done again.
        key: what the outside deduplicates by, if it does.
        repeatable: whether doing it again is harmless.
        life: which process did it, counted from 1.
    """

    name: str
    key: str | None = None
    repeatable: bool = False
    life: int = 1


@attrs.frozen
class ToolEntered:
    """The code of a tool began to run."""

    task_id: TaskId
    call_id: str
    name: str
    replay: Replay
    key: str


@attrs.frozen
class ToolLeft:
    """The code of a tool returned or raised."""

    task_id: TaskId
    call_id: str
    name: str


@attrs.frozen
class Crashed:
    """A process died; `where` says at which crash point."""

    where: str


@attrs.frozen
class Ended:
    """A process ran its story to the end and closed."""

    life: int


Event: TypeAlias = (
    Opened
    | Began
    | Stored
    | Published
    | Acknowledged
    | Effect
    | ToolEntered
    | ToolLeft
    | Crashed
    | Ended
)


@final
class Trace:
    """The events of one path through a world's lives.

    Args:
        before: the trace that it goes on from.
        length: how many events of `before` it has seen.

    Attributes:
        told: called with each event when it has been added.
    """

    __slots__ = ("_before", "_length", "_own", "told")

    def __init__(self, before: Trace | None = None, length: int = 0) -> None:
        self._before = before
        self._length = length
        self._own: list[Event] = []
        self.told: Callable[[Event], object] | None = None

    def note(self, event: Event) -> None:
        """Add an event."""
        self._own.append(event)
        if self.told is not None:
            self.told(event)

    def fork(self, length: int) -> Trace:
        """A trace that has seen the first `length` events of this one and goes its own way."""
        return Trace(self, length)

    def of(self, kind: type[E]) -> Iterator[E]:
        """The events of one kind, in order."""
        return (event for event in self if isinstance(event, kind))

    def __len__(self) -> int:
        return self._length + len(self._own)

    def __iter__(self) -> Iterator[Event]:
        if self._before is not None:
            yield from islice(self._before, self._length)
        yield from self._own
