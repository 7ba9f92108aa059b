"""Asking a model once: the stream, its silence limit, and storing what has come so far.

Partial answers are progress: they are stored behind the stream's back within the time that the
settings give (on every event with 0), so that a crash loses no more than that.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from pidurable_actors.errors import ProviderError
from pidurable_actors.models import Accumulator, ModelProvider, ModelRequest
from pidurable_actors.settings import Settings

__all__ = ["ask"]


async def ask(
    provider: ModelProvider,
    request: ModelRequest,
    answer: Accumulator,
    settings: Settings,
    store_partial: Callable[[], Awaitable[None]],
) -> None:
    """Stream one answer into `answer`.

    Args:
        provider: whom to ask.
        request: what.
        answer: takes the events; holds what has come when this raises.
        settings: silence limit and progress policy.
        store_partial: stores what `answer` holds.

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
            came = _Came()
            if within_ms:
                nursery.start_soon(_store_regularly, came, within_ms / 1000, store_partial)
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
                            await store_partial()
                            silence.deadline = trio.current_time() + idle_s
            except Exception as raised:  # noqa: BLE001 - kept bare: a nursery would wrap it
                error = raised
            nursery.cancel_scope.cancel()
    if silence.cancelled_caught:
        raise ProviderError(
            f"the model was silent for {idle_s:g} s", retryable=True, kind="timeout"
        )
    if error is not None:
        raise error


class _Came:
    """Something came that is not stored yet."""

    def __init__(self) -> None:
        self.event = trio.Event()

    def tell(self) -> None:
        if not self.event.is_set():
            self.event.set()


async def _store_regularly(
    came: _Came, within_s: float, store_partial: Callable[[], Awaitable[None]]
) -> None:
    while True:
        await came.event.wait()
        # Waiting first gathers what comes meanwhile: at most one write per interval.
        await trio.sleep(within_s)
        came.event = trio.Event()
        await store_partial()
