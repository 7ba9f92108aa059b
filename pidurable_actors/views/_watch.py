"""Watches and event streams: the steps of one channel, for one reader at its own pace.

Owns a place among a channel's steps, and what is handed out next. A reader that raises, stalls or
is cancelled ends or delays its own feed and nothing else: it is never waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, Self, TypeAlias, TypeVar, final

from pidurable_actors.context import Context, within
from pidurable_actors.errors import ContextCancelled
from pidurable_actors.views._channel import Channel, EndReason, Frame, Step
from pidurable_actors.views._events import Event

__all__ = ["EventStream", "Feed", "Watch"]

V = TypeVar("V")
T = TypeVar("T")

_BEHIND: Final = -1
"""The place of a reader who has seen nothing."""


@final
class Feed(Generic[T]):
    """Items that come as something changes; iterate it with ``async for``.

    The first says how everything is; the others come as commits and progress do. A feed that falls
    100 steps behind gets everything anew in place of what it missed. Iterating ends when the feed
    does, and `end` then says why.

    Args:
        channel: whose steps.
        whole: the items that say how everything is.
        items: those of one step.
        first: the items to begin with; None to begin with how everything is.
        place: that of the step behind `first`.
        context: ends the feed when it is cancelled.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        whole: Callable[[Channel], Iterable[T]],
        items: Callable[[Step], Iterable[T]],
        first: Iterable[T] | None = None,
        place: int = 0,
        context: Context | None = None,
    ) -> None:
        self._channel = channel
        self._whole = whole
        self._items = items
        self._context = context
        self._waiting: deque[T] = deque(() if first is None else first)
        self._place = _BEHIND if first is None else place
        if first is None and channel.ready:
            self._catch_up()
        self._end: EndReason | None = None
        self._stopped = False
        self._failure: BaseException | None = None

    @property
    def end(self) -> EndReason | None:
        """Why the feed has ended; None while it has not."""
        return self._end

    def stop(self) -> None:
        """End the feed, from any task; whoever iterates it is woken. Again does nothing."""
        self._stopped = True
        self._channel.wake()

    def close(self) -> None:
        """Note that nobody will iterate it any more."""
        self._finish("stopped")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """The next item.

        Raises:
            StopAsyncIteration: the feed has ended; `end` says why.
            PiDurableError: what is stored can no longer be shown, because it does not fit the
                definition it is watched with; once, then the feed has ended.
            StorageError: it had to be read anew, and could not be.

        Durability: what an item with a number shows is stored.

        Cancellation: no item is lost.
        """
        try:
            with within(self._context):
                if self._has_news():
                    await self._channel.turns.take()
                while not self._has_news():
                    await self._channel.wait()
        except ContextCancelled:
            self._finish("cancelled")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._end is not None:
            raise StopAsyncIteration
        return self._waiting.popleft()

    def _has_news(self) -> bool:
        """Whether an item is waiting or the feed has ended, after looking at the channel."""
        channel = self._channel
        if self._stopped:
            self._finish("stopped")
        while self._end is None and not self._waiting:
            if self._place == channel.place or not channel.ready:
                if channel.end is not None:
                    self._finish(channel.end)
                    self._failure = channel.error
                break
            if self._place < channel.oldest:
                self._catch_up()
            else:
                self._waiting.extend(self._items(channel.step(self._place)))
                self._place += 1
        return self._end is not None or bool(self._waiting)

    def _catch_up(self) -> None:
        self._waiting.extend(self._whole(self._channel))
        self._place = self._channel.place

    def _finish(self, reason: EndReason) -> None:
        if self._end is None:
            self._end = reason


Watch: TypeAlias = Feed[Frame[V]]
"""The frames of what is watched.

After the first, exactly one frame comes for each commit that touches it, and between them
provisional ones; see `Frame`.
"""

EventStream: TypeAlias = Feed[Event]
"""The events of a conversation; the first is a `Snapshot`."""
