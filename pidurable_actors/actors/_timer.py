"""The timer actor: one heap of durable deadlines.

Owns the heap and nothing else; what is due is handed on, and whether it still sleeps is looked up
there. It looks at the durable clock at least once a second, so that a machine that was suspended or
whose clock was set forward wakes its sleepers at once; Trio's own clock cannot be set, and is left
alone until the next time comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import final

import trio

from pidurable_actors._clock import Clock
from pidurable_actors._limits import LIMITS
from pidurable_actors.records import NEVER_MS, TaskId

__all__ = ["TimerActor"]


@final
class TimerActor:
    """Wakes tasks when the durable clock reaches their time.

    Args:
        clock: durable time.
        due: called with the tasks that are due, at most `LIMITS.wake_at_once` at a time.
        sleeps: whether a task still sleeps until a time.
        check_s: how long to sleep at most without a look at the clock.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        due: Callable[..., None],
        sleeps: Callable[[TaskId, int], bool],
        check_s: float,
    ) -> None:
        self._check_s = check_s
        self._clock = clock
        self._due = due
        self._sleeps = sleeps
        self._heap: list[tuple[int, TaskId]] = []
        self._changed = trio.Event()
        self._running = False

    def add(self, until_ms: int, task_id: TaskId) -> None:
        """Wake `task_id` at `until_ms`, unless that is never.

        Adding again adds a second wake-up, which does no harm.
        """
        if until_ms >= NEVER_MS:
            return
        earliest = not self._heap or until_ms < self._heap[0][0]
        heapq.heappush(self._heap, (until_ms, task_id))
        if earliest:
            self._changed.set()

    def resume(self) -> None:
        """Start waking."""
        self._running = True
        self._changed.set()

    def next_ms(self) -> int | None:
        """The earliest time at which a task is due, None when none sleeps."""
        # Sleepers that were stopped stay in the heap until their time comes or somebody asks.
        while self._heap and not self._sleeps(self._heap[0][1], self._heap[0][0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    async def run(self) -> None:
        """Wake what is due, for ever.

        Durability: stores nothing.

        Cancellation: stops; the heap is rebuilt from storage at the next open.
        """
        while True:
            self._changed = trio.Event()
            with trio.move_on_after(self._wait_s()):
                await self._changed.wait()
            self._wake()
            await trio.lowlevel.checkpoint()

    def _wait_s(self) -> float:
        if not self._running or not self._heap:
            return float("inf")
        ahead_s = (self._heap[0][0] - self._clock.now_ms()) / 1000
        return min(max(ahead_s, 0.0), self._check_s)

    def _wake(self) -> None:
        now_ms = self._clock.now_ms()
        due: list[TaskId] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < LIMITS.wake_at_once:
            due.append(heapq.heappop(self._heap)[1])
        if due:
            self._due(*due)
