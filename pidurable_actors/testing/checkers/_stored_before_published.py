"""Whether a commit was shown too early, out of turn, or not at all.

Owns the order of publications. That what is shown is what is stored is `views_survive`'s. The
invariant: it passes exactly when each opening showed the commits that it stored one after the
other, each once and after it was stored, and one that closed showed them all.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors.testing._trace import Opened, Published, Stored
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["stored_before_published"]

_PROMISE: Final = (
    "commits are shown in their order, each once, after the storage said that it has it"
)


def stored_before_published(world: World) -> None:
    """Commits are shown in order, each once and after it was stored; a close leaves out none.

    Raises:
        AssertionError: one was shown before it was stored, out of turn, or never.
    """
    life = stored = shown = 0
    for event in world.history.events:
        match event:
            case Opened(life, commit):
                stored = shown = commit
            case Stored(batches) if batches:
                stored = batches[-1].number
            case Published(batch):
                shown += 1
                if batch.number > stored:
                    raise _broken(
                        f"life {life} showed commit {batch.number} and had stored up to {stored}."
                    )
                if batch.number != shown:
                    raise _broken(
                        f"life {life} showed commit {batch.number} where {shown} was due."
                    )
            case _:
                pass
    for opening in world.history.openings:
        missing = len(opening.stored) - len(opening.published)
        if opening.finished and opening.watched and missing:
            raise _broken(
                f"life {opening.life} closed without having shown the last {missing} of the "
                f"{len(opening.stored)} commits that it stored."
            )


def _broken(seen: str) -> AssertionError:
    return broken("stored_before_published", _PROMISE, seen)
