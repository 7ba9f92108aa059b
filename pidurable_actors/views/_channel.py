"""A channel: one thing that is watched, its newest value, and the steps that led to it.

Owns what all watchers of one thing share. A step is made once for each commit, however many look;
each watcher only keeps its place among the steps. Whoever falls so far behind that a step is no
longer kept gets the newest value in its place. Nobody is waited for.

Two values are kept: the durable one, and the shown one, which has the progress of running tasks as
well. Invariant: the durable value is the one before with the operations of the newest durable step;
the shown value is the durable one with whatever progress there is.

What cannot be told as a step, because it needs what the value has not, makes the value be read
anew; everybody gets it whole then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, final

import attrs
import trio

from pidurable_actors._frozen import Value
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import HarnessBug, HarnessClosed, PiDurableError, SessionFailed
from pidurable_actors.records import Batch, Change, Operation
from pidurable_actors.storage import Storage
from pidurable_actors.views._turns import Idle, Turns

__all__ = ["Channel", "EndReason", "Frame", "Read", "StaleValue", "Step", "Subject"]

T = TypeVar("T")
V = TypeVar("V")

EndReason: TypeAlias = Literal[
    "stopped", "cancelled", "session_closed", "session_failed", "retired"
]
"""Why a watch has ended: by `stop` or the end of its block, by the context that it was given, with
its harness, or because what it watches was retired."""


class Read(Protocol):
    """Reads what is durable."""

    def __call__(self, look: Callable[[Storage], T], /) -> Awaitable[T]:
        """The result of ``look(storage)``."""
        ...


class StaleValue(Exception):
    """What a commit did shows something that a value does not have: it must be read anew."""


class Subject(Protocol):
    """What is watched: how its value is read, and how commits and progress change it; pure."""

    @property
    def key(self) -> Hashable:
        """Its identity: one channel for each."""
        ...

    @property
    def is_ours(self) -> bool:
        """Whether only code of the runtime runs here, so that any other error is a bug of it."""
        ...

    def read(self, storage: Storage) -> Callable[[], Value]:
        """What makes the value of what a storage has.

        That is called outside of the storage's thread: a definition that does not go together with
        what is stored is no fault of the storage.
        """
        ...

    def ended(self, storage: Storage) -> EndReason | None:
        """Why nothing can come any more, by what a storage has."""
        ...

    def show(self, value: Value, number: int) -> Any:
        """What watchers get for a value, which includes the commits up to a number."""
        ...

    def after(self, value: Value, changes: Sequence[Change]) -> tuple[Value, tuple[Operation, ...]]:
        """A value after changes, and what leads from the view of the one to that of the other.

        Raises:
            StaleValue: it cannot be told from the value and the changes.
        """
        ...

    def progress(self, value: Value) -> tuple[Value, tuple[Operation, ...]]:
        """A value with the progress that it does not have yet, and what leads there."""
        ...

    def shown_operations(
        self, before: Value, after: Value, operations: Sequence[Operation]
    ) -> Sequence[Operation]:
        """What leads from one shown value to the next, given what the commit between them did."""
        ...

    def is_notable(self, changes: Sequence[Change]) -> bool:
        """Whether events tell of changes that leave the value as it is."""
        ...

    def end(self, changes: Sequence[Change]) -> EndReason | None:
        """Why nothing more can come after changes."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class Frame(Generic[V]):
    """What one commit made of what is watched, or progress between commits.

    The `operations` of a durable frame lead from the view of the durable frame before to its own
    view; those of a provisional frame lead from the view of the frame before, whichever it was. So
    a copy elsewhere keeps the newest durable view, applies durable operations to it, and shows it
    with the provisional ones applied on top until the next durable frame.

    Attributes:
        number: the commit, a cursor; None when it is provisional: shown and not stored yet. The
            next durable frame replaces or confirms it.
        view: the whole new view, immutable.
        operations: what led to it; None when the view replaces everything before, as in the first
            frame, and after more was missed than is kept.
    """

    number: int | None
    view: V
    operations: tuple[Operation, ...] | None

    @property
    def provisional(self) -> bool:
        """Whether it is shown and not stored yet."""
        return self.number is None


@attrs.frozen(kw_only=True, eq=False)
class Step:
    """What one commit, or progress between commits, did; shared by all who watch.

    Attributes:
        frame: what a watch is given; None when the commit left the view as it was.
        number: the commit; None for progress.
        changes: what the commit wrote.
        shown: from what was shown before to what is shown after it; None for progress that only
            puts back what a commit took out of the view.
        told: the events, once somebody asked for them.
    """

    frame: Frame[Any] | None
    number: int | None
    changes: tuple[Change, ...] = ()
    shown: tuple[Operation, ...] | None = None
    told: list[Any] = attrs.field(factory=list)


@final
class Channel:
    """One watched thing; `read` makes it ready.

    Args:
        subject: what is watched.
        read: reads what is durable.
        turns: those of all readers.
    """

    def __init__(self, subject: Subject, read: Read, turns: Turns) -> None:
        self.turns = turns
        self.subject = subject
        self.watchers = 0
        self.number = 0
        self.durable: Value = None
        self.shown: Value = None
        self.ready = False
        self.end: EndReason | None = None
        self.error: BaseException | None = None
        self._read = read
        self._reading = trio.Lock()
        self._early: list[Batch] = []  # commits that came before the value was read
        self._steps: deque[Step] = deque(maxlen=LIMITS.watch_frames)
        self._next = 0  # place of the next step
        self._all: list[Frame[Any]] | None = None  # what `whole` gives, until something comes
        self._newest: tuple[Value, int, Any] | None = None  # a value, its number, its view
        self._idle: Idle = OrderedDict()

    @property
    def place(self) -> int:
        """Where the next step will be."""
        return self._next

    @property
    def oldest(self) -> int:
        """The place of the oldest step that is kept."""
        return self._next - len(self._steps)

    def step(self, place: int) -> Step:
        """The step at a place that is kept."""
        return self._steps[place - self.oldest]

    async def read(self) -> None:
        """Read the value, unless somebody else was faster, and apply what came since.

        One reads at a time; when that one is cancelled, the next does.

        Raises:
            StorageError: it cannot be read.
            HarnessClosed, SessionFailed: it is too late.
            PiDurableError: what is stored does not fit the definition.

        Durability: stores nothing.

        Cancellation: nothing happened.
        """
        subject = self.subject

        def look(storage: Storage) -> tuple[Callable[[], Value], EndReason | None, int]:
            return subject.read(storage), subject.ended(storage), storage.head().commit

        async with self._reading:
            while not self.ready and self.end is None:
                make, end, number = await self._read(look)
                self._begin(make(), number)
                if end is not None:
                    self.finish(end)

    def _begin(self, value: Value, number: int) -> None:
        self.ready = True
        self._all = None
        self.durable = self.shown = value
        self.number = number
        early, self._early = self._early, []
        for batch in early:
            self.commit(batch)
        self.progress()

    def commit(self, batch: Batch) -> None:
        """Take a commit that is durable; never raises."""
        if not self.ready:
            self._early.append(batch)
            return
        if batch.number <= self.number or self.end is not None:
            return
        self.number = batch.number
        try:
            self._take(batch)
            end = self.subject.end(batch.changes)
        except BaseException as error:  # noqa: BLE001 - raised to those who watch, and only them
            self._fail(error)
            return
        if end is not None:
            self.finish(end)

    def progress(self) -> None:
        """Show the progress that there is and was not shown; never raises."""
        if not self.ready or self.end is not None:
            return
        try:
            self.shown, operations = self.subject.progress(self.shown)
            if operations:
                frame = self._frame(None, self.shown, operations)
                self._add(Step(frame=frame, number=None, shown=operations))
        except BaseException as error:  # noqa: BLE001 - raised to those who watch, and only them
            self._fail(error)

    def finish(self, reason: EndReason) -> None:
        """Let every watcher end once it has seen everything."""
        if self.end is None:
            self.end = reason
            self.turns.wake(self._idle)

    def whole(self) -> list[Frame[Any]]:
        """Frames that replace everything: the durable value, and the shown one if it differs."""
        # Made once, however many have fallen behind.
        if self._all is None or self._all[0].number != self.number:
            self._all = [self._frame(self.number, self.durable, None)]
            if self.shown is not self.durable:
                self._all.append(self._frame(None, self.shown, None))
        return self._all

    async def wait(self) -> None:
        """Wait for the next step or the end.

        Durability: stores nothing.

        Cancellation: only the wait ends.
        """
        if self.ready or self.end is not None:
            await self.turns.wait(self._idle)
            return
        try:
            await self.read()
        except (HarnessClosed, SessionFailed):
            # The end itself is told when the last commit is, by whoever closes.
            if self.end is None:
                await self.turns.wait(self._idle)
        self.wake()

    def wake(self) -> None:
        """Let everybody look again."""
        self.turns.wake(self._idle)

    def _fail(self, error: BaseException) -> None:
        """Let every watcher fail, because what came cannot be shown."""
        if self.subject.is_ours and not isinstance(error, PiDurableError):
            bug = HarnessBug()
            bug.__cause__ = error
            error = bug
        self.error = error
        self.finish("stopped")

    def _take(self, batch: Batch) -> None:
        try:
            durable, operations = self.subject.after(self.durable, batch.changes)
        except StaleValue:
            # Storage has the commit: what is read from now on includes it.
            self.ready = False
            self._steps.clear()
            self._next += 1
            self._all = None
            self.turns.wake(self._idle)
            return
        before, self.durable = self.durable, durable
        if operations:
            self._change(batch, before, operations)
        elif self.subject.is_notable(batch.changes):
            self._add(Step(frame=None, number=batch.number, changes=batch.changes, shown=()))

    def _change(self, batch: Batch, before: Value, operations: tuple[Operation, ...]) -> None:
        shown_before = self.shown
        self.shown, again = self.subject.progress(self.durable)
        shown = operations
        if again or shown_before is not before:
            shown = tuple(self.subject.shown_operations(shown_before, self.shown, operations))
        frame = self._frame(batch.number, self.durable, operations)
        self._add(Step(frame=frame, number=batch.number, changes=batch.changes, shown=shown))
        if again:
            self._add(Step(frame=self._frame(None, self.shown, again), number=None))

    def _frame(
        self, number: int | None, value: Value, operations: tuple[Operation, ...] | None
    ) -> Frame[Any]:
        newest = self._newest
        if newest is None or newest[0] is not value or newest[1] != self.number:
            newest = self._newest = (value, self.number, self.subject.show(value, self.number))
        view = newest[2]
        return Frame(number=number, view=view, operations=operations)

    def _add(self, step: Step) -> None:
        self._steps.append(step)
        self._next += 1
        self._all = None
        self.turns.wake(self._idle)
