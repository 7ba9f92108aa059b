"""What the process that tests and the processes that die tell each other.

Owns the words: what a forker loads, what it is to do, how that went, where in a directory the
lives of an errand leave what they leave; and how the words pass through a pipe. It starts and does
nothing. The invariant: one errand, one answer, in turn.
"""

from __future__ import annotations

import os
import pickle
import select
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs

from pidurable_actors._clock import monotonic
from pidurable_actors.testing._disks import Disk
from pidurable_actors.testing._outside import Left
from pidurable_actors.testing._trace import Crashed, Trace
from pidurable_actors.testing._world import AFTER_THE_END, CrashPoint, World

__all__ = [
    "FILES",
    "LOG",
    "OUTPUT",
    "STORAGE",
    "Answer",
    "DiskMaker",
    "End",
    "Errand",
    "Life",
    "Program",
    "receive",
    "resumed",
    "send",
]

STORAGE: Final = "storage"
"""In the place of an errand, the directory of the disk."""

FILES: Final = "files"
"""In the place of an errand, the world's directory."""

LOG: Final = "log"
"""In the place of an errand, the logbook."""

OUTPUT: Final = "output"
"""In the place of an errand, what its lives print."""

End: TypeAlias = Literal["ended", "raised", "died", "hung"]
_LENGTH_BYTES: Final = 8


class DiskMaker(Protocol):
    """Makes a disk that keeps files, such as `SqliteDisk`."""

    def __call__(self, *, place: Path | None = None) -> Disk:
        """A disk in an existing directory that it leaves, or in a new one that it removes."""
        ...


@attrs.frozen(kw_only=True)
class Program:
    """What a forker loads.

    Attributes:
        modules: name and file of what is imported first.
        renamed: modules that have another name in the forker.
        story: pickled.
        disk: pickled, its maker.
    """

    modules: tuple[tuple[str, str | None], ...]
    renamed: Mapping[str, str]
    story: bytes
    disk: bytes

    @property
    def renamed_here(self) -> Mapping[str, str]:
        """The modules that have another name here than in the forker."""
        return {there: here for here, there in self.renamed.items()}


@attrs.frozen(kw_only=True)
class Life:
    """One process, and when it is killed: never, at its n-th mark, or after a time."""

    kill_at: int = 0
    kill_after_s: float | None = None


@attrs.frozen(kw_only=True)
class Errand:
    """Lives in a row, on the same files.

    Attributes:
        place: an existing directory for all that they leave.
        seed: orders tasks and chance.
        real_time: use the machine's clock, and the storage on its own thread.
        lives: the last one is begun again when its process ends itself, unless it has a mark.
        limit_s: virtual seconds after which a story counts as stuck, unless time is real.
        timeout_s: real seconds after which a process counts as hanging, and is killed.
        deaths_max: after so many deaths it is not begun again.
    """

    place: Path
    seed: int
    real_time: bool
    lives: tuple[Life, ...]
    limit_s: float
    timeout_s: float
    deaths_max: int = 20


@attrs.frozen(kw_only=True)
class Answer:
    """How an errand went.

    Attributes:
        end: how the last life ended.
        words: the same in words.
        lives: how many there were.
        deaths: how many of them died.
        seconds: real time.
    """

    end: End
    words: str
    lives: int
    deaths: int
    seconds: float


def send(pipe: int, what: object) -> None:
    """Write an object to a pipe."""
    text = pickle.dumps(what)
    left = memoryview(len(text).to_bytes(_LENGTH_BYTES, "big") + text)
    while left:
        left = left[os.write(pipe, left) :]


def receive(pipe: int, *, timeout_s: float | None = None) -> Any:
    """Read an object from a pipe that only our own processes write to.

    Raises:
        EOFError: the other end is closed.
        TimeoutError: it did not come within `timeout_s` real seconds.
    """
    until_s = None if timeout_s is None else monotonic() + timeout_s
    length = int.from_bytes(_exactly(pipe, _LENGTH_BYTES, until_s), "big")
    return pickle.loads(_exactly(pipe, length, until_s))  # noqa: S301 - see the summary


def resumed(
    disk: Disk, place: Path, *, seed: int, life: int, trace: Trace, real_time: bool
) -> World:
    """The world that the lives on a trace have left in the place of an errand."""
    before = CrashPoint(
        where=AFTER_THE_END,
        places=(),
        image=None,
        outside=Left(),
        trace=trace,
        seen=len(trace),
        effects=0,
        now_ms=0,
    )
    world = World(
        disk,
        seed=seed,
        origin=before if len(trace) else None,
        life=life,
        marking=False,
        found=place / FILES,
        real_time=real_time,
    )
    world.places = tuple(crash.where for crash in trace.of(Crashed))
    return world


def _exactly(pipe: int, length: int, until_s: float | None) -> bytes:
    content = b""
    while len(content) < length:
        left_s = None if until_s is None else max(until_s - monotonic(), 0)
        if not select.select([pipe], [], [], left_s)[0]:
            raise TimeoutError
        more = os.read(pipe, length - len(content))
        if not more:
            raise EOFError
        content += more
    return content
