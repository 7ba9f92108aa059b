"""One process for each crash point, which dies there: what it leaves, next to the snapshot.

Owns the search of `kill_matrix`: which points, what is compared, and the recovery. The invariant: a
kill is named by its mark, counted from 1 over the points that do not lie within a write, and the
same story, seed and mark give the same kill.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import final

from pidurable_actors.errors import DefinitionError
from pidurable_actors.testing._disks import FileTree, Image, scratch
from pidurable_actors.testing._errands import FILES, LOG, STORAGE, Answer, DiskMaker, Errand, Life
from pidurable_actors.testing._explorer import Check, checked
from pidurable_actors.testing._forker import Forkers, program_of
from pidurable_actors.testing._logbook import LastWords, Log, read_log, unpickled
from pidurable_actors.testing._outside import Left
from pidurable_actors.testing._records import Records, read_records
from pidurable_actors.testing._remains import (
    KillMismatch,
    Picture,
    differences,
    failure_of,
    raise_told,
)
from pidurable_actors.testing._trace import Effect, Stored
from pidurable_actors.testing._world import CrashPoint, Story, World

__all__ = ["Matrix"]


@final
class Matrix:
    """The kills of one story.

    Args:
        story: what the processes run.
        checks: what must hold after each recovery.
        disk: makes the storage.
        seed: orders tasks.
        limit_s: virtual seconds after which a story counts as stuck.
        timeout_s: real seconds after which a process counts as hanging.

    Attributes:
        kills: how many processes died.
        writes: how many durable writes the undisturbed run made.
    """

    def __init__(
        self,
        story: Story,
        checks: tuple[Check, ...],
        disk: DiskMaker,
        *,
        seed: int,
        limit_s: float,
        timeout_s: float,
    ) -> None:
        self.kills = 0
        self.writes = 0
        self._program = program_of(story, disk)
        self._story = story
        self._checks = checks
        self._maker = disk
        self._disk = disk()
        self._seed = seed
        self._limit_s = limit_s
        self._timeout_s = timeout_s
        self._base = scratch()
        self._last: tuple[Image | None, Records] | None = None

    def run(self, *, every: int, only: int | None) -> None:
        """Run the story undisturbed, then kill it at the chosen marks and recover it.

        Args:
            every: kill at the first of so many marks.
            only: kill at this mark alone, or at none if it is 0.

        Raises:
            KillMismatch: a dead process left something else than the snapshot.
            CrashFailure: the story or a check failed.
            DefinitionError: `only` is no mark of this story.
        """
        with Forkers(self._program, timeout_s=self._timeout_s) as forkers:
            points = self._undisturbed()
            if only is not None and only > len(points):
                raise DefinitionError(
                    f"replay: the kill is at mark {only}, and there are {len(points)}; the story "
                    "has changed since."
                )
            marks = [*range(1, len(points) + 1, every)] if only is None else [only][:only]
            errands = [self._errand(mark) for mark in marks]
            answers = forkers.answers(errands)
            for mark, errand, answer in zip(marks, errands, answers, strict=True):
                self._confirm(mark, points[mark - 1], errand.place, answer)
                shutil.rmtree(errand.place)
                self.kills += 1

    def close(self) -> None:
        """Remove what was kept outside the process."""
        self._disk.close()
        shutil.rmtree(self._base, ignore_errors=True)

    def _undisturbed(self) -> list[CrashPoint]:
        world = World(self._disk, seed=self._seed, origin=None, life=1, marking=True)
        try:
            checked(world, self._story, self._checks, limit_s=self._limit_s)
        except Exception as error:  # whatever it is, it is named and raised again
            raise failure_of("kill_matrix", f"{self._seed}:0", (), error) from error
        self.writes = sum(1 for _ in world.trace.of(Stored))
        return [point for point in world.points if not point.torn]

    def _errand(self, mark: int) -> Errand:
        place = self._base / str(mark)
        (place / STORAGE).mkdir(parents=True)
        return Errand(
            place=place,
            seed=self._seed,
            real_time=False,
            lives=(Life(kill_at=mark),),
            limit_s=self._limit_s,
            timeout_s=self._timeout_s,
        )

    def _confirm(self, mark: int, point: CrashPoint, place: Path, answer: Answer) -> None:
        """Compare what is left, then go on from it."""
        replay = f"{self._seed}:{mark}"
        try:
            log = read_log(place / LOG, renamed=self._program.renamed_here)
            raise_told(answer, log, place, program=self._program, timeout_s=self._timeout_s)
            found = self._differences(point, log, place, answer)
            if not found:
                self._recover(log, place)
        except Exception as error:  # whatever it is, it is named with its kill and raised again
            raise failure_of("kill_matrix", replay, (point.where,), error) from error
        if found:
            raise KillMismatch(replay, point.where, found)

    def _differences(
        self, point: CrashPoint, log: Log, place: Path, answer: Answer
    ) -> tuple[str, ...]:
        if log.last_words is None:
            return (f"where: the snapshot is there, the process never came so far; {answer.words}",)
        return differences(self._snapshot(point), self._real(log, log.last_words, place))

    def _snapshot(self, point: CrashPoint) -> Picture:
        if self._last is None or self._last[0] is not point.image:
            self._last = point.image, self._records(point.image)
        events = tuple(point.trace)[: point.seen]
        return Picture(
            where=point.where,
            effects=tuple(event for event in events if isinstance(event, Effect)),
            externals=point.outside.objects,
            files=point.outside.files,
            records=self._last[1],
            events=events,
        )

    def _real(self, log: Log, words: LastWords, place: Path) -> Picture:
        # A copy is read, so that the recovery is the first to open what the dead process left.
        disk = self._maker(place=place / STORAGE)
        image = disk.capture()
        disk.close()
        return Picture(
            where=words.where,
            effects=tuple(log.trace.of(Effect)),
            externals=self._externals(words),
            files=_files(place / FILES),
            records=self._records(image),
            events=tuple(log.trace),
        )

    def _records(self, image: Image | None) -> Records:
        self._disk.restore(image)
        return read_records(self._disk.storage())

    def _externals(self, words: LastWords) -> Mapping[str, object]:
        externals: Mapping[str, object] = unpickled(
            words.externals, renamed=self._program.renamed_here
        )
        return externals

    def _recover(self, log: Log, place: Path) -> None:
        words = log.last_words
        assert words is not None, "the process came to its mark"
        disk = self._maker(place=place / STORAGE)
        origin = CrashPoint(
            where=words.where,
            places=(),
            image=None,
            outside=Left(self._externals(words)),
            trace=log.trace,
            seen=len(log.trace),
            effects=sum(1 for _ in log.trace.of(Effect)),
            now_ms=words.now_ms,
        )
        world = World(
            disk, seed=self._seed, origin=origin, life=2, marking=False, found=place / FILES
        )
        try:
            checked(world, self._story, self._checks, limit_s=self._limit_s)
        finally:
            disk.close()


def _files(directory: Path) -> dict[str, bytes]:
    if not directory.exists():
        return {}
    tree = FileTree(directory)
    try:
        return dict(tree.capture())
    finally:
        tree.forget()
