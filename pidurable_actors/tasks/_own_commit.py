"""Commits of code that a task asks, such as a tool or a hook: they decide nothing of the task."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pidurable_actors.runtime import Runtime
from pidurable_actors.session import Tx

__all__ = ["own_commit"]


async def own_commit(runtime: Runtime, change: Callable[[Tx], Any]) -> Any:
    """Commit for code that is not the task's own, and return what `change` returned.

    What the callback of a task returns may be its next step. What that of a tool or a hook returns
    is theirs alone, whatever it is.

    Durability: on return everything that the callback wrote is stored.

    Cancellation: `Cancelled` means that nothing was stored.
    """
    returned: Any = None

    async def aside(tx: Tx) -> None:
        nonlocal returned
        returned = change(tx)
        if inspect.isawaitable(returned):
            returned = await returned

    await runtime.commit(aside)
    return returned
