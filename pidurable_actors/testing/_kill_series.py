"""Processes that are killed at any instant, in real time, one after the other on the same files.

Owns the search of `kill_at_random`: when the kills come, and the check of what is there when the
last process has come to its end. The invariant: a round is named by its number, and the same seed
and number give the same times.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Final, final

from pidurable_actors._clock import SeededChance
from pidurable_actors.testing._disks import scratch
from pidurable_actors.testing._errands import (
    LOG,
    STORAGE,
    Answer,
    DiskMaker,
    Errand,
    Life,
    resumed,
)
from pidurable_actors.testing._explorer import Check
from pidurable_actors.testing._findings import StoryStuck
from pidurable_actors.testing._forker import Forkers, program_of
from pidurable_actors.testing._logbook import Log, read_log
from pidurable_actors.testing._remains import failure_of, raise_told
from pidurable_actors.testing._trace import Crashed, Stored
from pidurable_actors.testing._world import Story

__all__ = ["Series"]

_UNDISTURBED: Final = 0


@final
class Series:
    """The rounds of one story.

    Args:
        story: what the processes run.
        checks: what must hold at the end of each round.
        disk: makes the storage.
        seed: chooses the times.
        timeout_s: real seconds after which a process counts as hanging.

    Attributes:
        kills: how many processes died, by SIGKILL or by their own hand.
        writes: how many durable writes they made.
    """

    def __init__(
        self,
        story: Story,
        checks: tuple[Check, ...],
        disk: DiskMaker,
        *,
        seed: int,
        timeout_s: float,
    ) -> None:
        self.kills = 0
        self.writes = 0
        self._program = program_of(story, disk)
        self._checks = checks
        self._maker = disk
        self._seed = seed
        self._timeout_s = timeout_s
        self._base = scratch()

    def run(self, numbers: Sequence[int], *, kills: int, longest_ms: int | None) -> None:
        """Play rounds.

        Args:
            numbers: which.
            kills: how many processes are killed in each.
            longest_ms: how late a kill may come, in milliseconds; by default the time that a
                process takes which is left alone.

        Raises:
            CrashFailure: the story or a check failed.
        """
        with Forkers(self._program, timeout_s=self._timeout_s) as forkers:
            longest_s = (longest_ms or 0) / 1000
            if kills and longest_ms is None:
                longest_s = self._play(forkers, [self._errand(_UNDISTURBED, ())])
            times = [(number, self._times(number, kills, longest_s)) for number in numbers]
            self._play(forkers, [self._errand(*each) for each in times])

    def close(self) -> None:
        """Remove what was kept outside the process."""
        shutil.rmtree(self._base, ignore_errors=True)

    def _times(self, number: int, kills: int, longest_s: float) -> tuple[float, ...]:
        chance = SeededChance(f"kills {self._seed}/{number}")
        return tuple(chance.uniform(0, longest_s) for _ in range(kills))

    def _errand(self, number: int, times: tuple[float, ...]) -> Errand:
        place = self._base / str(number)
        (place / STORAGE).mkdir(parents=True)
        return Errand(
            place=place,
            seed=self._seed,
            real_time=True,
            lives=(*(Life(kill_after_s=after_s) for after_s in times), Life()),
            limit_s=0,
            timeout_s=self._timeout_s,
        )

    def _play(self, forkers: Forkers, errands: Sequence[Errand]) -> float:
        """Have rounds played, and check them; how long the last took."""
        took_s = 0.0
        for errand, answer in zip(errands, forkers.answers(errands), strict=True):
            self._check(errand, answer)
            shutil.rmtree(errand.place)
            took_s = answer.seconds
        return took_s

    def _check(self, errand: Errand, answer: Answer) -> None:
        log = read_log(errand.place / LOG, renamed=self._program.renamed_here)
        self.kills += answer.deaths
        self.writes += sum(1 for _ in log.trace.of(Stored))
        try:
            raise_told(answer, log, errand.place, program=self._program, timeout_s=self._timeout_s)
            self._check_end(errand, answer, log)
        except Exception as error:  # whatever it is, it is named with its round and raised again
            replay = f"{self._seed}:{errand.place.name}"
            places = tuple(crash.where for crash in log.trace.of(Crashed))
            raise failure_of("kill_at_random", replay, places, error) from error

    def _check_end(self, errand: Errand, answer: Answer, log: Log) -> None:
        if log.came is None or answer.end != "ended":
            raise StoryStuck(f"{answer.deaths} processes died, and none came to its end.")
        disk = self._maker(place=errand.place / STORAGE)
        world = resumed(
            disk,
            errand.place,
            seed=self._seed,
            life=answer.lives,
            trace=log.trace,
            real_time=True,
        )
        world.reports.extend(log.came.reports)
        world.inspection = log.came.inspection
        try:
            for check in self._checks:
                check(world)
        finally:
            world.close()
            disk.close()
