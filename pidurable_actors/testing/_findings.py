"""What an exploration has tried, and what it says when a story or a check failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from pidurable_actors.errors import PiDurableError
from pidurable_actors.testing._world import AFTER_THE_END

__all__ = ["CrashFailure", "Exploration", "StoryStuck"]


@attrs.frozen(kw_only=True)
class Exploration:
    """What an exploration has tried.

    Attributes:
        points: crash points met.
        recoveries: how often the story was started again; points that leave the same share one.
        depth: the greatest number of crashes on one path.
        effects: how often each effect was seen, over all paths.
        seconds: real time.
        seed: what orders tasks and chooses paths.
    """

    points: int
    recoveries: int
    depth: int
    effects: Mapping[str, int]
    seconds: float
    seed: int

    def __str__(self) -> str:
        kinds = len(self.effects)
        return (
            f"{self.points} crash points, {self.recoveries} recoveries to depth {self.depth}, "
            f"{sum(self.effects.values())} effects of {kinds} kind{'' if kinds == 1 else 's'}, "
            f"{self.seconds:.2f} s"
        )


class CrashFailure(PiDurableError, AssertionError):
    """A story or a check failed after crashes.

    Attributes:
        replay: what to hand as ``replay=`` to what raised it, to run just this path.
        places: where the process died, in words, crash by crash.
        error: what failed; also the cause.
    """

    def __init__(
        self, replay: str, places: Sequence[str], error: BaseException, *, how: str = ""
    ) -> None:
        self.replay = replay
        self.places = tuple(places)
        self.error = error
        where = ", then ".join(map(_in_words, self.places)) or "with no crash at all"
        how = how or f"explore(..., replay={replay!r}) or pytest --crash-replay={replay}"
        super().__init__(f"{where}: {type(error).__name__}: {error}\nrepeat it with {how}")


class StoryStuck(PiDurableError, AssertionError):
    """A story did not end: nothing that is live can move it on."""


def _in_words(place: str) -> str:
    return f"started again {place}" if place == AFTER_THE_END else f"killed {place}"
