"""The lane: where a blocking storage runs, strictly in order, off the Trio thread.

One daemon thread takes calls from a queue. The Trio thread first waits for the answer itself, for a
millisecond at most: a thread that answers from the page cache does so in some tens of microseconds,
a third of what waking a parked Trio task from another thread costs. Past that it parks and the
event loop goes on. A storage that does not block runs inline.

A call that does not return within the time limit (real time, whatever Trio's clock says) is given
up: the caller gets `StorageHung` and the lane is dead. Its thread is left behind; should the call
return after all, the thread gives the storage up and ends, so that it can be opened again.
Invariant: at most one call runs at a time, and none but that last one runs after one that was
given up.

Profile (2 cores): inline 15 µs, awaited by the Trio thread 60 µs, parked 140 µs per one-row commit.
"""

from __future__ import annotations

import math
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar, final

import trio
from outcome import Error, Outcome, capture

from pidurable_actors._clock import monotonic
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import StorageHung

__all__ = ["Lane"]

T = TypeVar("T")


@final
class _Call(Generic[T]):
    """One call on its way through the thread.

    `finished` is held until the thread is done with it; `parked` is set once the Trio task waits to
    be rescheduled. `settled` guards the two from each other.
    """

    __slots__ = ("finished", "guard", "parked", "result", "started_s", "work")

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.result: Outcome[T] | None = None
        self.parked: trio.lowlevel.Task | None = None
        self.started_s: float | None = None
        self.guard = threading.Lock()
        self.finished = threading.Lock()
        self.finished.acquire()


@final
class Lane:
    """Runs the calls of one storage.

    Args:
        name: for the thread and for messages.
        inline: run calls on the Trio thread; for storages that do not block, and for tests.
        timeout_s: real seconds after which a call counts as hung.
        give_up: closes the storage; called by the thread when a call that hung has returned.
    """

    def __init__(
        self,
        name: str,
        *,
        inline: bool,
        timeout_s: float,
        give_up: Callable[[], object] | None = None,
    ) -> None:
        self._close_late = give_up
        self._name = name
        self._inline = inline
        self._timeout_s = timeout_s
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread: threading.Thread | None = None
        self._watch: threading.Thread | None = None
        self._current: _Call[Any] | None = None
        self._ending = threading.Event()
        self._hung = False
        self._under_way = 0

    async def run(self, work: Callable[[], T], *, brief: bool = True) -> T:
        """Run `work` after everything handed over before it.

        Args:
            work: the call.
            brief: whether it is likely to end within the time that the Trio thread waits itself.

        Raises:
            StorageHung: it, or a call before it, did not return in time.

        Durability: that of `work`.

        Cancellation: not cancelled once handed over; the outcome is awaited, and a cancellation
            arrives at the caller's next checkpoint.
        """
        if self._inline:
            result = work()
            await trio.lowlevel.cancel_shielded_checkpoint()
            return result
        if self._hung:
            raise self._give_up()
        call = _Call(work)
        self._start()
        self._under_way += 1
        self._calls.put(call)
        if self.hung:
            # Given up between the check and the put: nobody will take the call.
            self._fail_queued()
        if brief and call.finished.acquire(timeout=LIMITS.idle_wait_s):
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._park(call)
        self._under_way -= 1
        assert call.result is not None, "a finished call has a result"
        return call.result.unwrap()

    def stop(self) -> None:
        """End the threads once what was handed over is done."""
        self._ending.set()
        self._calls.put(None)

    @property
    def idle(self) -> bool:
        """Whether no call is under way or waits for its turn; asked on the Trio thread."""
        return self._under_way == 0 and not self._hung

    @property
    def hung(self) -> bool:
        """Whether a call was given up."""
        return self._hung

    def join(self, timeout_s: float) -> bool:
        """Wait, in real time, for the threads to end; whether they did.

        A thread whose call was given up is not waited for: it may never end.
        """
        threads = [self._watch] if self._hung else [self._thread, self._watch]
        for thread in threads:
            if thread is not None:
                thread.join(timeout_s)
        return not any(t is not None and t.is_alive() for t in threads)

    # --- the Trio side ---

    def _start(self) -> None:
        if self._thread is None:
            self._token = trio.lowlevel.current_trio_token()
            self._thread = threading.Thread(
                target=self._work, name=f"lane {self._name}", daemon=True
            )
            self._thread.start()

    async def _park(self, call: _Call[T]) -> None:
        with call.guard:
            if call.result is not None:
                return
            call.parked = trio.lowlevel.current_task()
        # Only calls that take long need the watch; started here, it costs the others nothing.
        if self._watch is None and self._timeout_s != math.inf:
            self._watch = threading.Thread(
                target=self._watch_calls, name=f"watch {self._name}", daemon=True
            )
            self._watch.start()
        with _paused_autojump():
            await trio.lowlevel.wait_task_rescheduled(_not_abortable)

    def _give_up(self) -> StorageHung:
        return StorageHung(
            f"{self._name} did not answer within {self._timeout_s:g} s; its outcome is unknown. "
            "Check the disk, then open the storage again."
        )

    # --- the thread side ---

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.started_s = monotonic()
            self._current = call
            result = capture(call.work)
            self._current = None
            if self._hung:
                # Nobody is left to hear of it; a claim that stays would refuse the next open.
                if self._close_late is not None:
                    capture(self._close_late)
                return
            self._finish(call, result)
            del call, result

    def _finish(self, call: _Call[T], result: Outcome[T]) -> None:
        with call.guard:
            if call.result is not None:
                return
            call.result = result
            parked = call.parked
        call.finished.release()
        if parked is not None:
            self._wake(parked)

    def _wake(self, task: trio.lowlevel.Task) -> None:
        assert self._token is not None, "a parked task has started the lane"
        # A run that crashed is gone, and with it whoever waited.
        with suppress(trio.RunFinishedError, OSError):
            self._token.run_sync_soon(trio.lowlevel.reschedule, task)

    def _watch_calls(self) -> None:
        while not self._ending.wait(self._until_check()):
            call = self._current
            if call is None or call.started_s is None:
                continue
            if monotonic() - call.started_s >= self._timeout_s:
                self._hung = True
                self._finish(call, Error(self._give_up()))
                self._fail_queued()
                return

    def _until_check(self) -> float:
        call = self._current
        if call is None or call.started_s is None:
            return self._timeout_s
        return max(0.001, call.started_s + self._timeout_s - monotonic())

    def _fail_queued(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            if call is not None:
                self._finish(call, Error(self._give_up()))


def _not_abortable(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


_pauses: Final = trio.lowlevel.RunVar[tuple[int, float]]("autojump pauses", default=(0, 0.0))
"""How many calls hold the run's mock clock, and the threshold to put back after the last."""


@final
class _paused_autojump:  # noqa: N801 - reads as a verb at its one use
    """Keep a `MockClock` from jumping while the thread works: its work takes no virtual time."""

    __slots__ = ("_clock",)

    def __enter__(self) -> None:
        clock = trio.lowlevel.current_clock()
        # Looked up without importing it: production runs never load trio.testing.
        testing = sys.modules.get("trio.testing")
        mock = getattr(testing, "MockClock", None)
        self._clock: Any = clock if mock is not None and isinstance(clock, mock) else None
        if self._clock is not None:
            count, threshold = _pauses.get()
            if count == 0:
                threshold = self._clock.autojump_threshold
                self._clock.autojump_threshold = math.inf
            _pauses.set((count + 1, threshold))

    def __exit__(self, *_: object) -> None:
        if self._clock is not None:
            count, threshold = _pauses.get()
            _pauses.set((count - 1, threshold))
            if count == 1:
                self._clock.autojump_threshold = threshold
