"""What a path came to, told once for all checks: the openings of its storage and what each left.

Owns the reading of a trace beside what is stored at its end. It judges nothing: where the two do
not fit together it says so in plain fields, and a check makes a broken promise of it. The
invariant: the commits that it tells are numbered from 1 without a gap, and each was at least begun
by the opening that it is told of.

A commit counts as kept when every later opening, and the end, found at least its number. One whose
write was under way at a crash is kept exactly when it was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar, final

import attrs

from pidurable_actors.records import Batch
from pidurable_actors.testing._records import Fold, Records
from pidurable_actors.testing._trace import (
    Acknowledged,
    Began,
    Ended,
    Event,
    Opened,
    Published,
    Stored,
)

__all__ = ["History", "Kept", "Opening"]

C = TypeVar("C")


@attrs.define
class Opening:
    """From one opening of the storage to the next, or to the end of the path.

    Attributes:
        life: which process it was, counted from 1.
        found: the newest commit that it found.
        began: the commits whose write began, by number.
        stored: the commits that the storage said it has, in order.
        published: the commits that were shown, in order.
        acknowledged: the commits whose caller went on, in the order they did.
        finished: whether its harness closed, rather than being cut off.
    """

    life: int
    found: int
    began: dict[int, Batch] = attrs.field(factory=dict)
    stored: list[Batch] = attrs.field(factory=list)
    published: list[Batch] = attrs.field(factory=list)
    acknowledged: list[int] = attrs.field(factory=list)
    finished: bool = False

    @property
    def watched(self) -> bool:
        """Whether anybody told of its commits.

        A story that calls `pidurable_actors.open_harness` itself has no witness there.
        """
        return bool(self.published or self.acknowledged)


@attrs.frozen
class Kept:
    """A commit that is stored at the end, and which opening it comes from, counted from 0."""

    opening: int
    batch: Batch


@final
class History:
    """The openings of a path, and the commits that are still there.

    Args:
        trace: everything that happened.
        records: what is stored at the end.
        life: the life that is looked at, which is the last.

    Attributes:
        events: the trace.
        openings: in order.
        kept: the commits that are stored, from 1 on.
        strangers: commits that were found and that no opening had begun to write.
        records: what is stored at the end.
        at_start: what the commits add up to that the last life found; None when it opened nothing.
        at_end: what the commits add up to that are stored at the end.
    """

    def __init__(self, trace: Iterable[Event], *, records: Records, life: int) -> None:
        self.events: Final = tuple(trace)
        self.records: Final = records
        self.openings: Final[list[Opening]] = []
        self.kept: Final[list[Kept]] = []
        self.strangers: Final[list[int]] = []
        self.at_start: Records | None = None
        self._life = life
        self._changes: dict[type, list[tuple[int, Any]]] | None = None
        for event in self.events:
            self._take(event)
        self._found(records.commit)
        self.at_end: Final = _sum(self.kept)

    def changes(self, kind: type[C]) -> Sequence[tuple[int, C]]:
        """The changes of one kind in the commits that are stored, each with its commit's number."""
        if self._changes is None:
            self._changes = {}
            for kept in self.kept:
                for change in kept.batch.changes:
                    self._changes.setdefault(type(change), []).append((kept.batch.number, change))
        return self._changes.get(kind, [])

    def batches(self) -> Iterator[Batch]:
        """The commits that are stored, in order."""
        return (kept.batch for kept in self.kept)

    def _take(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._open(event)
            return
        if not self.openings:
            return
        now = self.openings[-1]
        match event:
            case Began(batches):
                now.began.update((batch.number, batch) for batch in batches)
            case Stored(batches):
                now.stored.extend(batches)
            case Published(batch):
                now.published.append(batch)
            case Acknowledged(number):
                now.acknowledged.append(number)
            case Ended(life):
                now.finished = now.life == life
            case _:
                pass

    def _open(self, event: Opened) -> None:
        if self.openings and self.openings[-1].life == event.life:
            # A life opens its storage again only when its harness is gone.
            self.openings[-1].finished = True
        self._found(event.commit)
        self.openings.append(Opening(event.life, event.commit))
        if event.life == self._life and self.at_start is None:
            self.at_start = _sum(self.kept)

    def _found(self, commit: int) -> None:
        """Settle what is kept when the storage was found to end with `commit`."""
        del self.kept[commit:]
        if not self.openings:
            return
        last = self.openings[-1]
        stored: dict[int, Batch] = {batch.number: batch for batch in last.stored}
        for number in range(len(self.kept) + 1, commit + 1):
            batch = stored.get(number) or last.began.get(number)
            if batch is None:
                self.strangers.append(number)
                return
            self.kept.append(Kept(len(self.openings) - 1, batch))


def _sum(kept: Iterable[Kept]) -> Records:
    fold = Fold()
    fold.add(one.batch for one in kept)
    return fold.records()
