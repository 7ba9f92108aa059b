"""Progress: what a running task shows before it is stored.

A task that streams says how to bring the live document of its conversation up to date; whoever
watches applies that to a draft of what is stored, again after every commit. So the same function
shows the progress and stores it, and neither counts what the other has done. Nothing is kept here
but who is at it: the progress of a task that nobody watches costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, final

from pidurable_actors.records import ConversationId

__all__ = ["ProgressBoard", "WriteProgress"]

WriteProgress: TypeAlias = Callable[[Any], None]
"""Brings a draft of the live document up to date; does nothing when that is up to date."""


@final
class ProgressBoard:
    """The tasks of one harness that show progress, by conversation."""

    def __init__(self) -> None:
        self._sources: dict[ConversationId, list[WriteProgress]] = {}
        self._listeners: list[Callable[[ConversationId], None]] = []

    def listen(self, listener: Callable[[ConversationId], None]) -> None:
        """Call `listener` whenever there is progress; it is the engine's and must not raise."""
        self._listeners.append(listener)

    def sources(self, conversation_id: ConversationId) -> Sequence[WriteProgress]:
        """How to bring the live document of a conversation up to date."""
        return self._sources.get(conversation_id, ())

    @contextmanager
    def showing(
        self, conversation_id: ConversationId, write: WriteProgress
    ) -> Iterator[Callable[[], None]]:
        """Show progress while the block runs; call what it gives when there is more.

        Args:
            conversation_id: whose live document is written.
            write: brings a draft of it up to date; plain, quick, and does not raise.
        """
        sources = self._sources.setdefault(conversation_id, [])
        sources.append(write)
        try:
            yield lambda: self._tell(conversation_id)
        finally:
            sources.remove(write)
            if not sources:
                del self._sources[conversation_id]

    def _tell(self, conversation_id: ConversationId) -> None:
        for listener in self._listeners:
            listener(conversation_id)
