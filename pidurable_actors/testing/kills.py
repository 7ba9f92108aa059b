"""Real kills: stories in processes that die by SIGKILL, on real files, and go on from there.

Owns two questions. `kill_matrix`: is what a process leaves that died at a crash point what the
snapshot of that point says? If so, what `explore` finds by snapshots holds for real deaths.
`kill_at_random`: does a story come to its end when its processes are killed at any instant, in real
time, with the storage on its own thread? It never forks and never kills; `_forker` has the
processes. The invariant: what is compared and checked is what a dead process left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from pidurable_actors._clock import SystemChance, monotonic
from pidurable_actors.errors import DefinitionError
from pidurable_actors.testing._disks import SqliteDisk
from pidurable_actors.testing._errands import DiskMaker
from pidurable_actors.testing._explorer import Check
from pidurable_actors.testing._kill_matrix import Matrix
from pidurable_actors.testing._kill_series import Series
from pidurable_actors.testing._remains import KillMismatch
from pidurable_actors.testing._world import Story
from pidurable_actors.testing.checkers import invariants

__all__ = ["KillMismatch", "KillReport", "kill_at_random", "kill_matrix"]

_LIMIT_S: Final = 7 * 86_400.0
_TIMEOUT_S: Final = 30.0


@attrs.frozen(kw_only=True)
class KillReport:
    """What was tried.

    Attributes:
        kills: processes that died, by SIGKILL or by their own hand.
        writes: durable writes: in a matrix those of the undisturbed run, else those of all lives.
        seconds: real time.
        seed: what ordered tasks and chose times.
    """

    kills: int
    writes: int
    seconds: float
    seed: int

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.writes} writes, {self.seconds:.2f} s"


def kill_matrix(
    story: Story,
    *,
    check: Check | Iterable[Check] = invariants,
    disk: DiskMaker = SqliteDisk,
    seed: int = 0,
    every: int = 1,
    limit_s: float = _LIMIT_S,
    timeout_s: float = _TIMEOUT_S,
    replay: str | None = None,
) -> KillReport:
    """Run a story, and for each of its crash points a process that really dies there.

    The story runs undisturbed first, in virtual time, as `explore` does it. Then, for each point
    that does not lie within a write, a process of its own runs it in the same way and kills itself
    by SIGKILL when it has come there. What it left must equal the snapshot of the point: the stored
    records, the effects, the world's directory, what is registered by `world.external`, and the
    trace. The story is then run to its end on the very files that are left, and the checks must
    hold. Not a coroutine: it starts Trio itself.

    Args:
        story: async function of a `World` that another process can find: a function of a module, or
            `functools.partial` of one.
        check: what must hold when the story has ended; see `explore`. It runs in this process.
        disk: makes the storage, such as `SqliteDisk`; another process must find it too.
        seed: orders tasks; the same seed repeats the same kills.
        every: kill at the first of so many points only.
        limit_s: virtual seconds after which a story counts as stuck.
        timeout_s: real seconds after which a process that has not died is killed, and reported.
        replay: only this kill, as a failure printed it.

    Returns:
        What was tried.

    Raises:
        KillMismatch: a dead process left something else than the snapshot says.
        CrashFailure: the story or a check failed, or a process did not die in time.
        DefinitionError: an argument is out of range, another process cannot find the story, or
            `replay` names no kill of it.
        ChildProcessError: the process that begins the others died, or does not answer.
    """
    if every < 1:
        raise DefinitionError(f"every is {every}; it must be 1 or more.")
    began_s = monotonic()
    seed, only = (seed, None) if replay is None else _parsed(replay)
    matrix = Matrix(
        story,
        (check,) if callable(check) else tuple(check),
        disk,
        seed=seed,
        limit_s=limit_s,
        timeout_s=timeout_s,
    )
    try:
        matrix.run(every=every, only=only)
    finally:
        matrix.close()
    return KillReport(
        kills=matrix.kills, writes=matrix.writes, seconds=monotonic() - began_s, seed=seed
    )


def kill_at_random(
    story: Story,
    *,
    check: Check | Iterable[Check] = invariants,
    disk: DiskMaker = SqliteDisk,
    kills: int = 3,
    rounds: int = 10,
    seed: int | None = None,
    longest_ms: int | None = None,
    timeout_s: float = _TIMEOUT_S,
    replay: str | None = None,
) -> KillReport:
    """Kill the processes of a story at random times, in real time, until one may come to its end.

    In each round a process runs the story on new files and is killed by SIGKILL after a random
    time; then the next one on the same files, and so on; the last one is left alone, and the checks
    are applied to what is there then, with the traces of all lives. A process that ends itself, as
    a tool that calls ``os._exit`` does, has died too: the last one is then begun again.

    Time is real, and the storage on its own thread, so no two runs are alike; the seed repeats the
    times of the kills, and which way Trio's tasks and the disk take then is new each time.

    Args:
        story: as for `kill_matrix`; it may not use `world.external`, because an object in memory
            cannot survive a kill that comes at any time.
        check: what must hold at the end of each round. It runs in this process.
        disk: makes the storage; another process must find it too.
        kills: how many processes are killed in a round.
        rounds: how many rounds.
        seed: chooses the times; by default a new one, which a failure begins with.
        longest_ms: kills come within so many milliseconds of the start of a process; by default
            within the time that a process takes when it is left alone, which is tried first.
        timeout_s: real seconds after which a process that should end is killed, and reported.
        replay: only this round, as a failure printed it.

    Returns:
        What was tried.

    Raises:
        CrashFailure: the story or a check failed, or a process did not end in time.
        DefinitionError: an argument is out of range, or another process cannot find the story.
        ChildProcessError: the process that begins the others died, or does not answer.
    """
    if kills < 0 or rounds < 1:
        raise DefinitionError(f"{kills} kills in {rounds} rounds: there must be a round.")
    began_s, numbers = monotonic(), range(1, rounds + 1)
    if replay is not None:
        seed, only = _parsed(replay)
        numbers = range(only, only + 1)
    elif seed is None:
        seed = int(SystemChance().key()[:8], 16)
    series = Series(
        story,
        (check,) if callable(check) else tuple(check),
        disk,
        seed=seed,
        timeout_s=timeout_s,
    )
    try:
        series.run(numbers, kills=kills, longest_ms=longest_ms)
    finally:
        series.close()
    return KillReport(
        kills=series.kills, writes=series.writes, seconds=monotonic() - began_s, seed=seed
    )


def _parsed(replay: str) -> tuple[int, int]:
    seed, _, at = replay.partition(":")
    if seed.removeprefix("-").isdecimal() and at.isdecimal():
        return int(seed), int(at)
    raise DefinitionError(f"replay={replay!r}: write what the failure printed, such as '0:12'.")
