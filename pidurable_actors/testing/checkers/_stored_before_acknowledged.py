"""Whether the caller of a commit was let go on too early.

Owns the order of two moments: the storage has a commit, its caller goes on. The invariant: it
passes exactly when each commit that was acknowledged had been stored by the same opening before,
and was acknowledged once.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors.testing._trace import Acknowledged, Opened, Stored
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["stored_before_acknowledged"]

_PROMISE: Final = "the caller of a commit goes on, once, after the storage said that it has it"


def stored_before_acknowledged(world: World) -> None:
    """A commit is acknowledged once, and not before the storage said that it has it.

    Raises:
        AssertionError: one was acknowledged before that, or twice.
    """
    life = 0
    waiting: set[int] = set()
    for event in world.history.events:
        match event:
            case Opened(life, _):
                waiting = set()
            case Stored(batches):
                waiting.update(batch.number for batch in batches)
            case Acknowledged(number) if number not in waiting:
                raise broken(
                    "stored_before_acknowledged",
                    _PROMISE,
                    f"in life {life} commit {number} was acknowledged before it was stored, "
                    "or a second time.",
                )
            case Acknowledged(number):
                waiting.discard(number)
            case _:
                pass
