"""Whether somebody was shown what the storage did not keep.

Owns the contents of publications; their order is `stored_before_published`'s. The invariant: it
passes exactly when each commit that was shown is, change for change, the one that is stored under
its number at the end, so that the sum of what was shown is what a later life finds.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors.records import Batch
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["views_survive"]

_PROMISE: Final = (
    "what was shown adds up to what a later life finds: nobody sees a change that is not kept"
)


def views_survive(world: World) -> None:
    """Every commit that was shown is stored as it was shown.

    Raises:
        AssertionError: one was shown that is not stored, or not with these changes.
    """
    history = world.history
    for opening in history.openings:
        for shown in opening.published:
            if shown.number > len(history.kept):
                raise broken(
                    "views_survive",
                    _PROMISE,
                    f"life {opening.life} showed commit {shown.number}, which is not stored.",
                )
            stored = history.kept[shown.number - 1].batch
            if stored is not shown and stored != shown:
                raise broken(
                    "views_survive",
                    _PROMISE,
                    f"life {opening.life} showed commit {shown.number} as something else than what "
                    f"is stored under its number.\n{_difference(shown, stored)}",
                )


def _difference(shown: Batch, stored: Batch) -> str:
    only_shown = [change for change in shown.changes if change not in stored.changes]
    only_stored = [change for change in stored.changes if change not in shown.changes]
    return f"  only shown:  {only_shown!r}\n  only stored: {only_stored!r}"
