"""The publisher: hands each durable commit to those who look at it.

Owns the listeners and the waits. A wait is for a key (a task, a submission, a conversation) that a
commit touched; whoever waits registers first, then looks at durable state, and looks again after
each wake, so no wake is lost and one too many does no harm. Ending the harness wakes everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, final

import trio

from pidurable_actors.records import (
    PutSubmission,
    PutTask,
    SubmissionRecord,
    TaskRecord,
    Terminal,
)
from pidurable_actors.session import Publication

__all__ = ["Publisher", "Wait", "WaitKey"]

WaitKey: TypeAlias = tuple[str, int]
"""``("task", id)``, ``("submission", id)``, ``("conversation", id)`` or ``("harness", 0)``."""


@final
class Wait:
    """One event, how many look at it, and the durable record that set it, if one did."""

    __slots__ = ("event", "record", "watchers")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.record: TaskRecord | SubmissionRecord | None = None
        self.watchers = 0


@final
class Publisher:
    """Fan-out of durable commits."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Publication], None]] = []
        self._at_end: list[Callable[[], None]] = []
        self._waits: dict[WaitKey, Wait] = {}
        self._ended = False

    def listen(self, listener: Callable[[Publication], None]) -> None:
        """Call `listener` with every commit, in order; it is the engine's and must not raise."""
        self._listeners.append(listener)

    def at_end(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the last commit was published; it must not raise."""
        self._at_end.append(listener)

    def publish(self, publication: Publication) -> None:
        """Hand one commit on; synchronous, so that everybody sees commits in order."""
        for listener in self._listeners:
            listener(publication)
        if not self._waits:
            return
        for change in publication.batch.changes:
            match change:
                case PutTask():
                    if isinstance(change.record.state, Terminal):
                        self._wake(("task", change.record.id), change.record)
                        self._wake(("conversation", change.record.conversation_id))
                        self._wake(("harness", 0))
                case PutSubmission():
                    self._wake(("submission", change.record.id), change.record)
                    self._wake(("conversation", change.record.conversation_id))
                case _:
                    pass

    @contextmanager
    def watch(self, key: WaitKey) -> Iterator[Wait]:
        """Its event is set by the next commit that touches `key`, or by the end of the harness.

        Enter it *before* looking at what is durable: what comes while the look is under way must
        not be missed.
        """
        wait = self._waits.get(key)
        if wait is None:
            wait = Wait()
            if self._ended:
                wait.event.set()
            else:
                self._waits[key] = wait
        wait.watchers += 1
        try:
            yield wait
        finally:
            wait.watchers -= 1
            if not wait.watchers and self._waits.get(key) is wait:
                del self._waits[key]

    def end(self) -> None:
        """Wake everybody; nothing will be published any more."""
        self._ended = True
        for key in tuple(self._waits):
            self._wake(key)

    def finish(self) -> None:
        """Say that the last commit was published."""
        for listener in self._at_end:
            listener()

    def _wake(self, key: WaitKey, record: TaskRecord | SubmissionRecord | None = None) -> None:
        wait = self._waits.pop(key, None)
        if wait is not None:
            wait.record = record
            wait.event.set()
