"""Time and chance: the only module that reads a clock or a random source.

Durable times are epoch milliseconds from a `Clock`. Within a process a clock never goes back: a
wall clock that is set back keeps advancing by monotonic time until the wall has caught up, so a
sleeper neither fires twice nor waits for the length of the step; a step forward, or a suspended
machine that wakes, is followed at once.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import Final, Protocol, final

import trio

__all__ = [
    "Chance",
    "Clock",
    "SeededChance",
    "SystemChance",
    "TrioClock",
    "WallClock",
    "default_clock",
    "monotonic",
]

_TRIO_EPOCH_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z, where virtual time starts

monotonic: Final = time.monotonic
"""Real seconds for watchdogs; never stored and never virtual."""


class Clock(Protocol):
    """Where durable time comes from."""

    def now_ms(self) -> int:
        """Epoch milliseconds; never less than what this clock returned before."""
        ...


class Chance(Protocol):
    """Where jitter and keys come from."""

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        ...

    def key(self) -> str:
        """A key that nobody can guess and that never comes twice."""
        ...

    def session_id(self, now_ms: int) -> str:
        """A UUIDv7 for `now_ms`."""
        ...


@final
class WallClock:
    """The machine's wall clock, made monotonic within the process.

    Args:
        wall_ns: epoch nanoseconds; may be set, forward and back.
        running_s: seconds that only go on.
    """

    __slots__ = ("_offset_ms", "_running_s", "_wall_ns")

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        running_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall_ns = wall_ns
        self._running_s = running_s
        # What running time is behind; it only grows, so that time lost to rounding comes back.
        self._offset_ms = self._wall_ns() / 1e6 - self._running_s() * 1000

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        running_ms = self._running_s() * 1000
        self._offset_ms = max(self._offset_ms, self._wall_ns() / 1e6 - running_ms)
        return int(running_ms + self._offset_ms)


@final
class TrioClock:
    """Trio's own time as epoch milliseconds; virtual under `trio.testing.MockClock`.

    Args:
        epoch_ms: what Trio's time zero stands for.
    """

    __slots__ = ("_epoch_ms",)

    def __init__(self, epoch_ms: int = _TRIO_EPOCH_MS) -> None:
        self._epoch_ms = epoch_ms

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        # Rounded, so that a sleep until t that ends at t by Trio's clock is seen to have ended.
        return self._epoch_ms + round(trio.current_time() * 1000)


@final
class SystemChance:
    """The operating system's random source."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return self._random.uniform(low, high)

    def key(self) -> str:
        """128 random bits as 32 hexadecimal digits."""
        return f"{self._random.getrandbits(128):032x}"

    def session_id(self, now_ms: int) -> str:
        """A UUIDv7: 48 bits of time, then random bits (RFC 9562, section 5.7)."""
        return uuid7(now_ms, self._random.getrandbits(74))


@final
class SeededChance:
    """Chance that repeats: the same seed gives the same draws. For tests; its keys can be guessed.

    Args:
        seed: any text; two lives that must not make the same keys have different ones.
    """

    __slots__ = ("_random",)

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return self._random.uniform(low, high)

    def below(self, count: int) -> int:
        """A whole number from 0 to `count` - 1."""
        return self._random.randrange(count)

    def key(self) -> str:
        """128 drawn bits as 32 hexadecimal digits."""
        return f"{self._random.getrandbits(128):032x}"

    def session_id(self, now_ms: int) -> str:
        """A UUIDv7 of drawn bits."""
        return uuid7(now_ms, self._random.getrandbits(74))


def uuid7(now_ms: int, bits: int) -> str:
    """The UUIDv7 of a time and 74 random bits."""
    high, low = bits >> 62, bits & ((1 << 62) - 1)
    value = (now_ms & ((1 << 48) - 1)) << 80 | 7 << 76 | high << 64 | 2 << 62 | low
    return str(uuid.UUID(int=value))


def default_clock() -> Clock:
    """The wall clock, or Trio's clock when the run has one of its own (such as `MockClock`)."""
    clock = trio.lowlevel.current_clock()
    # Trio's system clock has no public name; MockClock lives beside it, and can be set.
    is_system = type(clock).__module__.startswith("trio._core") and not hasattr(clock, "jump")
    return WallClock() if is_system else TrioClock()
