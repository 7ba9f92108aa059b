"""Storages and clocks that misbehave on request, for tests of what an application does about it.

    memory = MemoryStorage()
    storage = FaultyStorage(memory, at_write=3)        # the third write fails, nothing else does
    async with open_harness(storage, ...) as harness:  # ends with SessionFailed
        ...
    async with open_harness(memory, ...) as harness:   # the next process: everything is as stored
        ...

Each class wraps the real thing and adds one fault. It never changes what is stored, never repairs
and never repeats a fault that was not asked for again; the invariant: whatever is not the fault is
the answer of the wrapped storage or clock.

| fault | class | how |
|---|---|---|
| a write fails, stored or not | `FaultyStorage` | ``at_write=n``, ``wrote=True`` |
| a look-up or a scan fails | `FaultyStorage` | ``at_read=n`` |
| a call does not return | `HangingStorage` | ``hang()``, ``release()`` |
| somebody sets the clock | `SteppedClock` | ``step_ms += 3_600_000`` |
| the clock raises | `BrokenClock` | ``broken = True`` |

Every write of a wrapped storage passes `Storage.apply`, also a lone one that the real storage would
have taken without a change of thread. Damage to files is in `pidurable_actors.testing.damage`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Self, TypeAlias, final

from pidurable_actors._clock import Clock, TrioClock
from pidurable_actors.errors import MisuseError, StorageError
from pidurable_actors.records import Batch
from pidurable_actors.storage import Head, Storage
from pidurable_actors.testing._through import ThroughStorage

__all__ = ["BrokenClock", "Call", "DiskError", "FaultyStorage", "HangingStorage", "SteppedClock"]

Call: TypeAlias = Literal["open", "write", "read", "close"]
"""A kind of storage call; a look-up and a scan are both a read."""


class DiskError(StorageError):
    """What a `FaultyStorage` raises unless it is given an error of its own.

    Args:
        wrote: ``False`` when it is known that nothing was written, ``None`` when it is unknown.
    """

    def __init__(self, *, wrote: Literal[False] | None = None) -> None:
        super().__init__("the disk is gone", wrote=wrote)


@final
class FaultyStorage(ThroughStorage):
    """Fails one write, one read, or one of each; every other call goes through, also later ones.

    A harness that went on after the failure would therefore be seen to: what it then wrote is
    stored.

    Args:
        inner: the real storage, not yet open.
        at_write: which call of `apply` fails, 1 for the first; None for none.
        at_read: which look-up or scan fails, 1 for the first; None for none. Opening is not a read.
        wrote: whether the failing write stores its batches before it raises, as a disk may whose
            answer was lost.
        error: makes what is raised; by default a `DiskError` that says what is true: ``wrote`` is
            None when the batches were stored, False when they were not.

    Attributes:
        failed: whether an armed fault has come.
        writes: how many calls of `apply` there were, the failed one among them.
        reads: how many look-ups and scans there were, the failed one among them.

    Raises:
        MisuseError: a number is less than 1.
    """

    def __init__(
        self,
        inner: Storage,
        *,
        at_write: int | None = None,
        at_read: int | None = None,
        wrote: bool = False,
        error: Callable[[], Exception] | None = None,
    ) -> None:
        super().__init__(inner)
        self.failed = False
        self.writes = 0
        self.reads = 0
        self._wrote = wrote
        self._error = error
        self._at_write: int | None = None
        self._at_read: int | None = None
        self.arm(at_write=at_write, at_read=at_read)

    def arm(self, *, at_write: int | None = None, at_read: int | None = None) -> None:
        """Choose what fails from here on, in place of what was armed before.

        Args:
            at_write: which of the coming calls of `apply` fails, 1 for the next; None for none.
            at_read: the same for look-ups and scans.

        Raises:
            MisuseError: a number is less than 1.
        """
        for number in (at_write, at_read):
            if number is not None and number < 1:
                raise MisuseError(f"calls are counted from 1, so none is the {number}th.")
        self._at_write = None if at_write is None else self.writes + at_write
        self._at_read = None if at_read is None else self.reads + at_read

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store the batches, or fail when it is this call's turn; see `Storage.apply`.

        Raises:
            MisuseError: the error says that nothing was written, of a write that is stored.
        """
        self.writes += 1
        if self.writes != self._at_write:
            super().apply(batches)
            return
        error = self._made(wrote=self._wrote)
        if self._wrote:
            super().apply(batches)
        self.failed = True
        raise error

    def before_read(self) -> None:
        """Fail when it is this read's turn."""
        self.reads += 1
        if self.reads == self._at_read:
            self.failed = True
            raise self._made(wrote=False)

    def _made(self, *, wrote: bool) -> Exception:
        if self._error is None:
            return DiskError(wrote=None if wrote else False)
        error = self._error()
        if wrote and isinstance(error, StorageError) and error.wrote is False:
            raise MisuseError(f"{error!r} says that nothing was written, and wrote=True writes.")
        return error


@final
class HangingStorage(ThroughStorage):
    """Holds calls in the storage's thread until they are released, as a lost mount would.

    It starts without a fault. A call that was held goes on when it is released as if nothing had
    been: a write is stored then, however late, unless another owner has fenced it meanwhile.

        with HangingStorage(MemoryStorage()) as storage:
            async with open_harness(storage, settings=Settings(commit_timeout_s=0.1)) as harness:
                storage.hang()
                ...  # StorageHung, then SessionFailed

    The block of the storage goes around that of the harness: leaving it releases what is held and
    waits for the thread that the harness left behind.

    Args:
        inner: the real storage, not yet open.
        join_s: how long leaving the block waits for a thread that was held, in real seconds.
    """

    def __init__(self, inner: Storage, *, join_s: float = 5.0) -> None:
        super().__init__(inner, blocking=True)
        self._join_s = join_s
        self._hanging: Call | None = None
        self._released = threading.Event()
        self._released.set()
        self._asked_by: threading.Thread | None = None
        # Between the asking thread and the held one.
        self._guard = threading.Lock()
        self._held = threading.Event()
        self._threads: set[threading.Thread] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        for thread in self._threads:
            thread.join(self._join_s)
            if thread.is_alive() and error is None:
                raise MisuseError(
                    f"the thread {thread.name!r} is still in use; close the harness before leaving "
                    "the block of its storage."
                )

    @property
    def held(self) -> bool:
        """Whether a call is being held."""
        return self._held.is_set()

    def hang(self, call: Call = "write") -> None:
        """Hold the coming calls of one kind.

        Args:
            call: which kind; of a read, any look-up or scan.
        """
        with self._guard:
            self._asked_by = threading.current_thread()
            self._released.clear()
            self._hanging = call

    def release(self) -> None:
        """Let what is held go on, and hold nothing more."""
        with self._guard:
            self._hanging = None
            self._held.clear()
            self._released.set()

    def open(self, *, read_only: bool) -> Head:
        """Open, when let; see `Storage.open`."""
        self._pass("open")
        return super().open(read_only=read_only)

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store the batches, when let; see `Storage.apply`."""
        self._pass("write")
        super().apply(batches)

    def before_read(self) -> None:
        """Wait to be let."""
        self._pass("read")

    def close(self) -> None:
        """Close, when let."""
        self._pass("close")
        super().close()

    def _pass(self, call: Call) -> None:
        with self._guard:
            if self._hanging != call:
                return
            if threading.current_thread() is self._asked_by:
                raise MisuseError(
                    "a call that hangs on the thread that is to release it would stop for ever; "
                    "open the harness without inline_storage."
                )
            self._threads.add(threading.current_thread())
            self._held.set()
        self._released.wait()


@final
class SteppedClock:
    """Another clock's time plus a step, as of a wall clock that somebody sets.

    Unlike what `Clock` promises it goes back when its step does: that is the fault.

    Args:
        inner: the other clock; None for Trio's time, which is virtual under a `MockClock`.

    Attributes:
        step_ms: what is added, in milliseconds; change it to set the clock.
    """

    def __init__(self, inner: Clock | None = None) -> None:
        self._inner = inner or TrioClock()
        self.step_ms = 0

    def now_ms(self) -> int:
        """Epoch milliseconds, with the step."""
        return self._inner.now_ms() + self.step_ms


@final
class BrokenClock:
    """Another clock's time until it is broken; then it raises, which is a bug of the host.

    Args:
        inner: the other clock; None for Trio's time, which is virtual under a `MockClock`.

    Attributes:
        broken: whether it raises.
    """

    def __init__(self, inner: Clock | None = None) -> None:
        self._inner = inner or TrioClock()
        self.broken = False

    def now_ms(self) -> int:
        """Epoch milliseconds.

        Raises:
            ZeroDivisionError: it is broken.
        """
        if self.broken:
            raise ZeroDivisionError("the clock is broken")
        return self._inner.now_ms()
