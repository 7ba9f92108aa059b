"""Whether a commit was stored whose caller was told otherwise.

Owns the other half of an acknowledgement: `Cancelled`, or any error, out of a commit means that
nothing was stored. A life that was cut off proves nothing here, because its callers are gone. The
invariant: it passes exactly when every opening that closed acknowledged all that it stored.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["stored_is_acknowledged"]

_PROMISE: Final = (
    "an error out of a commit, Cancelled included, means that nothing was stored; every commit has "
    "a caller, the runtime's own too"
)


def stored_is_acknowledged(world: World) -> None:
    """In a harness that closed, the caller of each stored commit got its result.

    Raises:
        AssertionError: one was stored and its caller was not told so.
    """
    for opening in world.history.openings:
        if not opening.finished or not opening.watched:
            continue
        untold = {batch.number for batch in opening.stored}.difference(opening.acknowledged)
        if untold:
            raise broken(
                "stored_is_acknowledged",
                _PROMISE,
                f"life {opening.life} stored commit {min(untold)}, and its caller did not get the "
                "result.",
            )
