"""Turns: how many readers may run in one pass of the event loop.

A thousand readers of one conversation, all woken by one commit, would hold up the next commit by
all that they do. So a bounded number of readers is about at a time, and each lets the next one go
when it runs. Nobody starves, because turns are given in the order in which they were asked for; and
commits go on meanwhile, because between two passes their own tasks run too.

Profile (2 cores, 1,000 watchers, commits one after the other): 44 commits a second when all were
woken at once, 1,470 with four about, of 4,100 without any watcher. How many is a number and not a
time, because a story that is explored must take the same turns each time.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias, final

import trio

from pidurable_actors._limits import LIMITS

__all__ = ["Idle", "Turns"]

Idle: TypeAlias = "OrderedDict[trio.lowlevel.Task, None]"
"""Readers that wait for something to come, the longest waiting first."""


@final
class Turns:
    """The turns of all readers of one harness."""

    def __init__(self) -> None:
        self._waiting: Idle = OrderedDict()
        self._about = 0  # readers that were let go and did not run yet

    async def take(self) -> None:
        """Wait for a turn, which comes at once while few ask.

        Durability: stores nothing.

        Cancellation: the turn goes to somebody else.
        """
        if self._about >= LIMITS.readers_at_once:
            await self.wait(self._waiting)
            return
        self._about += 1
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._pass_on()

    async def wait(self, idle: Idle) -> None:
        """Wait among idle readers until they are woken, and then for a turn.

        Durability: stores nothing.

        Cancellation: only the wait ends.
        """
        task = trio.lowlevel.current_task()
        idle[task] = None

        def leave(_: object) -> trio.lowlevel.Abort:
            idle.pop(task, None)
            self._waiting.pop(task, None)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)
        self._pass_on()

    def wake(self, idle: Idle) -> None:
        """Let idle readers have a turn each."""
        self._waiting.update(idle)
        idle.clear()
        while self._waiting and self._about < LIMITS.readers_at_once:
            self._about += 1
            self._let_go()

    def _pass_on(self) -> None:
        """A reader runs: the next one may."""
        if self._waiting:
            self._let_go()
        else:
            self._about -= 1

    def _let_go(self) -> None:
        task, _ = self._waiting.popitem(last=False)
        trio.lowlevel.reschedule(task)
