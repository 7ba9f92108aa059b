"""Asking a model once: the stream, its silence limit, and storing what has come so far.

Partial answers are progress: behind the stream's back they are shown at most so often, and stored
within the time, that the settings give (on every event with 0). A crash loses no more than that.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from pidurable_actors.errors import ProviderError
from pidurable_actors.models import Accumulator, ModelProvider, ModelRequest
from pidurable_actors.settings import ProgressSettings, Settings

__all__ = ["Came", "as_provider_error", "ask", "follow", "was_refused"]


async def ask(
    provider: ModelProvider,
    request: ModelRequest,
    answer: Accumulator,
    settings: Settings,
    *,
    show: Callable[[], None],
    store: Callable[[], Awaitable[None]],
) -> None:
    """Stream one answer into `answer`.

    Args:
        provider: whom to ask.
        request: what.
        answer: takes the events; holds what has come when this raises.
        settings: silence limit and progress policy.
        show: shows what `answer` holds to those who watch.
        store: stores what `answer` holds.

    Raises:
        ProviderError: the provider failed or fell silent.

    Durability: partials are stored within ``settings.progress.persist_within_ms``.

    Cancellation: the stream is closed; `answer` holds what has come.
    """
    within_ms = settings.progress.persist_within_ms
    idle_s = settings.stream.idle_timeout_s
    error: Exception | None = None
    with trio.CancelScope(deadline=trio.current_time() + idle_s) as silence:
        async with trio.open_nursery() as nursery:
            came = Came()
            if within_ms:
                nursery.start_soon(follow, came, settings.progress, show, store)
            try:
                async with provider.stream(request) as events:
                    async for event in events:
                        silence.deadline = trio.current_time() + idle_s
                        answer.feed(event)
                        if within_ms:
                            came.tell()
                        else:
                            # Storing is not the model's silence.
                            silence.deadline = math.inf
                            await store()
                            silence.deadline = trio.current_time() + idle_s
            except Exception as raised:  # noqa: BLE001 - kept bare: a nursery would wrap it
                error = raised
            nursery.cancel_scope.cancel()
    if within_ms:
        # Whoever puts the pieces together that are shown gets the whole message.
        show()
    if silence.cancelled_caught:
        raise ProviderError(
            f"the model was silent for {idle_s:g} s", retryable=True, kind="timeout"
        )
    if error is not None:
        raise error


def as_provider_error(error: Exception, report: Callable[[BaseException], None]) -> ProviderError:
    """The error of a provider; any other is reported as a bug of it."""
    if isinstance(error, ProviderError):
        return error
    report(error)
    return ProviderError(f"{type(error).__name__}: {error}")


def was_refused(error: ProviderError) -> bool:
    """Whether the provider said no, or was not reached; one that fell silent may have worked."""
    return error.kind != "timeout"


class Came:
    """Something came that is not shown yet."""

    def __init__(self) -> None:
        self.event = trio.Event()

    def tell(self) -> None:
        """Say that something came."""
        if not self.event.is_set():
            self.event.set()


async def follow(
    came: Came,
    progress: ProgressSettings,
    show: Callable[[], None],
    store: Callable[[], Awaitable[None]],
) -> None:
    """Show and store progress as it comes, as often as the settings say; never returns.

    Durability: what came `persist_within_ms` ago is stored.

    Cancellation: what came last is neither shown nor stored.
    """
    within_s = progress.persist_within_ms / 1000
    interval_s = min(progress.interval_ms / 1000, within_s)
    turn = -math.inf  # when it may be shown again: what comes meanwhile gathers
    while True:
        await came.event.wait()
        due = trio.current_time() + within_s
        while trio.current_time() < due:
            await trio.sleep_until(min(turn, due))
            if trio.current_time() < due:
                came.event = trio.Event()
                show()
                turn = trio.current_time() + interval_s
                with trio.move_on_at(due):
                    await came.event.wait()
        await store()
