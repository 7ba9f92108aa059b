"""Keeping a harness open: open, run, and open again after a failure, for services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

from pidurable_actors.errors import SessionFailed, StorageError, StorageInUse
from pidurable_actors.harness._harness import Harness

__all__ = ["supervise_harness"]


async def supervise_harness(
    factory: Callable[[], AbstractAsyncContextManager[Harness]],
    body: Callable[[Harness], Awaitable[None]],
    *,
    first_wait_s: float = 0.1,
    longest_wait_s: float = 30.0,
    healthy_after_s: float = 60.0,
) -> None:
    """Run `body` on a harness, and open the storage again when it failed.

    A failing storage ends a harness; what it holds is consistent, so opening it again is the
    recovery. Waits between failures double up to `longest_wait_s`; a harness that stayed open for
    `healthy_after_s` starts them over. The harness's failure also cancels the body. A storage that
    hung stays in use until its last call returns, so after the first open that is waited for, too.

    Args:
        factory: opens a harness, such as ``lambda: open_harness(SqliteStorage(path), ...)``; called
            for each attempt, with a new storage object.
        body: what to do with it; returning ends the supervision.
        first_wait_s: seconds before the first attempt to open again.
        longest_wait_s: the longest wait.
        healthy_after_s: how long a harness must stay open for the waits to start over.

    Raises:
        StorageInUse: another owner has the storage at the first open.
        Exception: whatever `body` or opening raises, other than a failed storage.

    Durability: that of `body`.

    Cancellation: closes the harness and ends.
    """
    wait_s = first_wait_s
    was_open = False
    while True:
        opened_s = trio.current_time()
        is_open = False
        try:
            async with factory() as harness:
                was_open = is_open = True
                await _run_until_failure(harness, body)
        except (StorageError, SessionFailed, StorageInUse) as error:
            # In use by our own last opening; what the body meets elsewhere is the body's.
            if isinstance(error, StorageInUse) and (is_open or not was_open):
                raise
            if trio.current_time() - opened_s >= healthy_after_s:
                wait_s = first_wait_s
        else:
            return
        await trio.sleep(wait_s)
        wait_s = min(wait_s * 2, longest_wait_s)


async def _run_until_failure(harness: Harness, body: Callable[[Harness], Awaitable[None]]) -> None:
    error: Exception | None = None
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await harness.closed()
            nursery.cancel_scope.cancel(reason="the harness ended")

        nursery.start_soon(watch)
        try:
            await body(harness)
        except Exception as raised:  # noqa: BLE001 - kept bare: a nursery would wrap it
            error = raised
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error
