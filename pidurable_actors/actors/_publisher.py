"""The publisher: hands each durable commit to those who look at it.

Owns the listeners and the waits. A wait is for a key (a task, a submission, a conversation) that a
commit touched; whoever waits looks again at durable state after each wake, so a wake too many does
no harm. Ending the harness wakes everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

import trio

from pidurable_actors.records import PutSubmission, PutTask, Terminal
from pidurable_actors.session import Publication

__all__ = ["Publisher", "WaitKey"]

WaitKey: TypeAlias = tuple[str, int]
"""``("task", id)``, ``("submission", id)``, ``("conversation", id)`` or ``("session", 0)``."""

_ANYTHING: Final[WaitKey] = ("session", 0)


@final
class Publisher:
    """Fan-out of durable commits."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Publication], None]] = []
        self._waits: dict[WaitKey, trio.Event] = {}
        self._ended = False

    def listen(self, listener: Callable[[Publication], None]) -> None:
        """Call `listener` with every commit, in order; it is the engine's and must not raise."""
        self._listeners.append(listener)

    def publish(self, publication: Publication) -> None:
        """Hand one commit on; synchronous, so that everybody sees commits in order."""
        for listener in self._listeners:
            listener(publication)
        if not self._waits:
            return
        self._wake(_ANYTHING)
        for change in publication.batch.changes:
            match change:
                case PutTask():
                    self._wake(("conversation", change.record.conversation_id))
                    if isinstance(change.record.state, Terminal):
                        self._wake(("task", change.record.id))
                case PutSubmission():
                    self._wake(("submission", change.record.id))
                    self._wake(("conversation", change.record.conversation_id))
                case _:
                    pass

    async def wait_change(self, key: WaitKey) -> None:
        """Wait for the next commit that touches `key`, or for the end of the harness.

        Durability: stores nothing.

        Cancellation: only the wait ends.
        """
        if self._ended:
            await trio.lowlevel.checkpoint()
            return
        event = self._waits.get(key)
        if event is None:
            event = self._waits[key] = trio.Event()
        try:
            await event.wait()
        finally:
            # The last waiter of an event that was never set takes it along.
            if not event.is_set() and not event.statistics().tasks_waiting:
                self._waits.pop(key, None)

    def end(self) -> None:
        """Wake everybody; nothing will be published any more."""
        self._ended = True
        for key in tuple(self._waits):
            self._wake(key)

    def _wake(self, key: WaitKey) -> None:
        event = self._waits.pop(key, None)
        if event is not None:
            event.set()
