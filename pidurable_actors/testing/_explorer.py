"""The crash explorer: a story, run again from every place where it could have been cut off.

Owns the search: which points are tried, in which order, and what a failure says. Stories run in
`_world`; checks look at what a path has come to. The invariant: a path is named by the places of
its crashes, and the same story, seed and path give the same run, so a failure is one line to
repeat.

Theory: a crash is not acted out. What would survive it is copied while the story runs undisturbed,
and the story is started again on the copy. Nothing is unwound, so no `finally` and no shield can
write after the death. Points that leave the same are recovered once, for the last of them, which
has seen the most promises made. Paths are tried by their number of crashes, so that what fails
first has the fewest.

Credit: systematic search from TigerBeetle's simulator and `exhaustigen`; the snapshot form was
tried against unwinding (which hung on its first shielded wait) and forking (a third of the speed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, final

import trio
import trio.testing

from pidurable_actors._clock import SeededChance, monotonic
from pidurable_actors.errors import DefinitionError
from pidurable_actors.testing._disks import Disk, MemoryDisk
from pidurable_actors.testing._findings import CrashFailure, Exploration, StoryStuck
from pidurable_actors.testing._scheduling import seeded_scheduling
from pidurable_actors.testing._trace import Ended
from pidurable_actors.testing._world import AFTER_THE_END, CrashPoint, Story, World
from pidurable_actors.testing.checkers import invariants

__all__ = ["Check", "checked", "explore", "live"]

Check: TypeAlias = Callable[[World], object]
"""Looks at a world whose story has ended, and raises if a promise was broken."""

Path: TypeAlias = tuple[int, ...]
_LIMIT_S: Final = 7 * 86_400.0


def explore(
    story: Story,
    *,
    check: Check | Iterable[Check] = invariants,
    disk: Callable[[], Disk] = MemoryDisk,
    depth: int = 1,
    budget: int | None = None,
    seed: int = 0,
    checkpoints: bool = False,
    limit_s: float = _LIMIT_S,
    replay: str | None = None,
) -> Exploration:
    """Run a story, and run it again from every crash point, in virtual time.

    A crash point is a place where a death would leave something new: before and after each durable
    write and within it, before and after each effect and each run of a tool. The story must then
    come to its end, and the checks must hold. Not a coroutine: it starts Trio itself.

    What bypasses the world (a real network call, a module's global) is not covered.

    Args:
        story: async function of a `World`; it starts or continues, and the same code runs after
            each crash.
        check: what must hold when the story has ended: one function of the world, or several. The
            ready-made ones are in `pidurable_actors.testing.checkers`.
        disk: makes the storage, such as `MemoryDisk` or `SqliteDisk`.
        depth: how many crashes a path may have; every path is tried unless `budget` ends it.
        budget: at most so many recoveries: first the paths of one crash, then random longer ones.
        seed: orders tasks and chooses random paths; the same seed repeats the whole exploration.
        checkpoints: also crash at every Trio checkpoint at which outside state has changed.
        limit_s: virtual seconds after which a story counts as stuck.
        replay: run just this path, as a failure printed it.

    Returns:
        What was tried.

    Raises:
        CrashFailure: a story or a check failed; of the failing paths, one with the fewest crashes.
        DefinitionError: an argument is out of range, or `replay` names no path of this story.
    """
    __tracebackhide__ = True  # pytest shows the story, not the search
    if depth < 1:
        raise DefinitionError(f"depth is {depth}; it must be 1 or more.")
    explorer = _Explorer(
        story,
        (check,) if callable(check) else tuple(check),
        disk(),
        seed=seed,
        checkpoints=checkpoints,
        limit_s=limit_s,
    )
    try:
        if replay is not None:
            seed_there, path = _parsed(replay)
            explorer.seed = seed_there
            explorer.replay(path)
        elif budget is None:
            explorer.exhaust(depth)
        else:
            explorer.spend(depth, budget)
    finally:
        explorer.close()
    return explorer.report()


@final
class _Explorer:
    def __init__(
        self,
        story: Story,
        checks: tuple[Check, ...],
        disk: Disk,
        *,
        seed: int,
        checkpoints: bool,
        limit_s: float,
    ) -> None:
        self.seed = seed
        self._story = story
        self._checks = checks
        self._disk = disk
        self._checkpoints = checkpoints
        self._limit_s = limit_s
        self._runs = 0
        self._points = 0
        self._tried: set[Path] = set()
        self._marked: set[Path] = set()
        self._effects: Counter[str] = Counter()
        self._began_s = monotonic()

    def exhaust(self, depth: int) -> None:
        """Try every path, those with the fewest crashes first."""
        __tracebackhide__ = True  # pytest shows the story, not the search
        root = self._run((), None, marking=True)
        for crashes in range(1, depth + 1):
            self._visit((), root, crashes)

    def spend(self, depth: int, budget: int) -> None:
        """Try the paths of one crash in order, then random longer ones."""
        __tracebackhide__ = True  # pytest shows the story, not the search
        root = self._run((), None, marking=True)
        for at, point in enumerate(root):
            if self._runs >= budget:
                return
            self._run((at,), point)
        chance = SeededChance(f"paths {self.seed}")
        while depth > 1 and root and self._runs < budget:
            self._walk(root, depth, budget, chance)

    def replay(self, path: Path) -> None:
        """Run one path."""
        __tracebackhide__ = True  # pytest shows the story, not the search
        points = self._run((), None, marking=True)
        for length, at in enumerate(path, 1):
            if at >= len(points):
                raise DefinitionError(
                    f"replay: crash {length} is at point {at}, and there are {len(points)}; the "
                    "story has changed since."
                )
            points = self._run(path[:length], points[at], marking=True)

    def report(self) -> Exploration:
        """What was tried so far."""
        return Exploration(
            points=self._points,
            recoveries=len(self._tried) - 1,
            depth=max(map(len, self._tried)),
            effects=dict(self._effects),
            seconds=monotonic() - self._began_s,
            seed=self.seed,
        )

    def close(self) -> None:
        """Remove what was kept outside the process."""
        self._disk.close()

    def _visit(self, path: Path, points: list[CrashPoint], crashes: int) -> None:
        __tracebackhide__ = True  # pytest shows the story, not the search
        for at, point in enumerate(points):
            inner = self._run((*path, at), point, marking=crashes > 1)
            if crashes > 1:
                self._visit((*path, at), inner, crashes - 1)

    def _walk(
        self, points: list[CrashPoint], depth: int, budget: int, chance: SeededChance
    ) -> None:
        path: Path = ()
        while points and len(path) < depth and self._runs < budget:
            at = chance.below(len(points))
            path = (*path, at)
            try:
                points = self._run(path, points[at], marking=True)
            except CrashFailure as failure:
                raise self._shrunk(path, failure) from failure.error

    def _run(
        self, path: Path, origin: CrashPoint | None, *, marking: bool = False
    ) -> list[CrashPoint]:
        """Run one life and check it; its distinct points when it is marked."""
        __tracebackhide__ = True  # pytest shows the story, not the search
        world = World(
            self._disk, seed=self.seed, origin=origin, life=len(path) + 1, marking=marking
        )
        try:
            instruments = [_Checkpoints(world)] if marking and self._checkpoints else []
            live(world, self._story, instruments=instruments, limit_s=self._limit_s)
            for check in self._checks:
                check(world)
        except Exception as error:  # whatever it is, it is named with its path and raised again
            raise self._failure(path, world, error) from error
        finally:
            world.close()
        self._count(path, world)
        return _distinct(world.points)

    def _count(self, path: Path, world: World) -> None:
        """Take note of a run; a path is run again to go deeper, and counts once."""
        self._runs += bool(path)
        if path not in self._tried:
            self._tried.add(path)
            self._effects.update(e.name for e in world.effects if e.life == world.life)
        if world.points and path not in self._marked:
            self._marked.add(path)
            self._points += len(world.points)

    def _failure(self, path: Path, world: World, error: Exception) -> CrashFailure:
        return CrashFailure(_replay(self.seed, path), world.places, error)

    def _shrunk(self, path: Path, failure: CrashFailure) -> CrashFailure:
        """The same failure with fewer crashes, if leaving some out still fails."""
        for length in range(2, len(path)):
            for shorter in _subsequences(path, length):
                try:
                    self.replay(shorter)
                except CrashFailure as smaller:
                    return smaller
                except DefinitionError:
                    continue
        return failure


def live(
    world: World,
    story: Story,
    *,
    instruments: Sequence[trio.abc.Instrument] = (),
    limit_s: float = _LIMIT_S,
) -> None:
    """Run one life of a world to its end, in virtual time, its tasks ordered by the seed.

    Args:
        world: where.
        story: what.
        instruments: told of each step of Trio.
        limit_s: virtual seconds after which it counts as stuck.

    Raises:
        StoryStuck: it did not end within `limit_s` virtual seconds.
        StorageError: what the life before left cannot be read.
        Exception: what the story raised.
    """

    async def main() -> None:
        with trio.move_on_after(limit_s) as limit:
            await story(world)
        if limit.cancelled_caught:
            raise StoryStuck(_stuck(world, limit_s))
        world.trace.note(Ended(world.life))
        world.mark(AFTER_THE_END)

    world.look()
    with seeded_scheduling(world.seed):
        trio.run(
            main,
            clock=trio.testing.MockClock(autojump_threshold=0),
            instruments=tuple(instruments),
        )


def checked(
    world: World, story: Story, checks: Iterable[Check], *, limit_s: float = _LIMIT_S
) -> None:
    """Run the last life of a path, check it, and remove what it kept outside the process.

    Raises:
        Exception: what the story or a check raised.
    """
    try:
        live(world, story, limit_s=limit_s)
        for check in checks:
            check(world)
    finally:
        world.close()


@final
class _Checkpoints(trio.abc.Instrument):
    """Marks a point wherever a task gives way and outside state has changed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task has come to a checkpoint."""
        self._world.mark_if_changed(f"at a checkpoint of {task.name}")


def _stuck(world: World, limit_s: float) -> str:
    seen = world.inspection
    live_tasks = () if seen is None else seen.tasks
    told = "".join(f"\n  task {t.id} {t.kind}: {t.why} {t.detail}" for t in live_tasks)
    return f"the story did not end within {limit_s:g} virtual seconds; live were:{told or ' none'}"


def _distinct(points: Iterable[CrashPoint]) -> list[CrashPoint]:
    """Of the points that leave the same the last, in the order of the first of each."""
    return list({point.left: point for point in points}.values())


def _replay(seed: int, path: Path) -> str:
    return f"{seed}:{'.'.join(map(str, path))}"


def _parsed(replay: str) -> tuple[int, Path]:
    seed, _, path = replay.partition(":")
    try:
        return int(seed), tuple(int(at) for at in path.split(".") if at)
    except ValueError:
        raise DefinitionError(
            f"replay={replay!r}: write what the failure printed, such as '0:12' or '0:12.7'."
        ) from None


def _subsequences(path: Path, length: int) -> Iterator[Path]:
    for left_out in range(len(path)):
        shorter = path[:left_out] + path[left_out + 1 :]
        if len(shorter) == length:
            yield shorter
        elif len(shorter) > length:
            yield from _subsequences(shorter, length)
