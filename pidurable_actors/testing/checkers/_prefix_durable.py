"""Whether what is found is a whole prefix of what was written.

Owns the comparison of a storage with the commits that made it. It knows nothing of who was promised
what; a commit that was lost after its promise is `acknowledged_kept`'s. The invariant: it passes
exactly when a run of whole commits, numbered from 1 without a gap, adds up to what is stored, both
when a life begins and when it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pidurable_actors.testing._history import Opening
from pidurable_actors.testing._records import Records
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["prefix_durable"]

_PROMISE: Final = (
    "a storage holds the commits up to one of them, each whole and none twice, and nothing else"
)

_KINDS: Final = ("conversations", "entries", "tasks", "submissions", "documents", "retired")


def prefix_durable(world: World) -> None:
    """What is stored is the sum of the commits up to its newest, each of them whole.

    Commits are numbered from 1 over all lives, without a gap or a repeat. A write that was under
    way at a crash may be there or not, a group of commits also in part, but no commit is halved.
    Looked at when the life began, where a recovery's storage could be read before it, and at its
    end.

    Raises:
        AssertionError: a commit is out of turn, was found without having been written, or is there
            in part.
    """
    history = world.history
    for opening in history.openings:
        _check_numbers(opening)
    if history.strangers:
        number = history.strangers[0]
        raise _broken(f"commit {number} is stored, and no process had begun to write it.")
    if world.recovered is not None and history.at_start is not None:
        _check_sum("when the last life began", world.recovered, history.at_start)
    _check_sum("at the end", history.records, history.at_end)


def _check_numbers(opening: Opening) -> None:
    due = opening.found
    for batch in opening.stored:
        due += 1
        if batch.number != due:
            raise _broken(
                f"life {opening.life} found commit {opening.found} and stored commit "
                f"{batch.number} where {due} was due."
            )


def _check_sum(when: str, stored: Records, expected: Records) -> None:
    if stored == expected:
        return
    if stored.commit != expected.commit:
        raise _broken(
            f"{when} the storage is at commit {stored.commit}; "
            f"the commits that were written add up to {expected.commit}."
        )
    differences = (
        _difference(kind, getattr(stored, kind), getattr(expected, kind)) for kind in _KINDS
    )
    told = next(difference for difference in differences if difference)
    raise _broken(f"{when}, at commit {stored.commit}, {told}")


def _difference(
    kind: str, stored: Mapping[object, object], expected: Mapping[object, object]
) -> str:
    keys = {**expected, **stored}
    differing = next((key for key in keys if stored.get(key) != expected.get(key)), None)
    if differing is None:
        return ""
    return (
        f"{kind}[{differing!r}] is not what the commits say.\n"
        f"  stored:  {stored.get(differing)!r}\n"
        f"  written: {expected.get(differing)!r}"
    )


def _broken(seen: str) -> AssertionError:
    return broken("prefix_durable", _PROMISE, seen)
