"""Whether a commit that somebody relies on is still there.

Owns the lower bound of what a process may find. It does not look into commits; that what is found
under a number is that commit is `prefix_durable`'s. The invariant: it passes exactly when every
opening, and the end, found at least the newest commit that was acknowledged or shown before.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors.testing._trace import Acknowledged, Opened, Published
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["acknowledged_kept"]

_PROMISE: Final = (
    "a commit whose caller went on, or that was shown, is found by whoever opens the storage later"
)


def acknowledged_kept(world: World) -> None:
    """A commit that was acknowledged or shown is found by every later opening and at the end.

    Raises:
        AssertionError: one was lost.
    """
    newest, how = 0, ""
    for event in world.history.events:
        match event:
            case Acknowledged(number) if number > newest:
                newest, how = number, "acknowledged"
            case Published(batch) if batch.number > newest:
                newest, how = batch.number, "shown"
            case Opened(life, commit) if commit < newest:
                raise _broken(newest, how, f"life {life} found only commit {commit}")
            case _:
                pass
    if world.records.commit < newest:
        raise _broken(newest, how, f"at the end only commit {world.records.commit} is stored")


def _broken(newest: int, how: str, found: str) -> AssertionError:
    return broken("acknowledged_kept", _PROMISE, f"commit {newest} was {how}, and {found}.")
