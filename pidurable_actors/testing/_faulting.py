"""The fault sweep: a story on a storage that fails at each of its calls, once for each.

Owns one question: when a write fails, stored or not, or a read does, and the harness ends with it,
does the next process find everything that was promised and go on? It crashes nothing; a harness
that survives the failure is a broken promise too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias, final, get_args

import attrs

from pidurable_actors._clock import monotonic
from pidurable_actors.errors import DefinitionError, PiDurableError, SessionFailed, StorageError
from pidurable_actors.storage import Storage
from pidurable_actors.testing._disks import Disk, Image, MemoryDisk
from pidurable_actors.testing._explorer import Check, checked, live
from pidurable_actors.testing._world import Story, World
from pidurable_actors.testing.checkers import invariants
from pidurable_actors.testing.faults import FaultyStorage

__all__ = ["FaultFailure", "FaultSweep", "fault_sweep"]

Fault: TypeAlias = Literal["write", "stored-write", "read"]


@attrs.frozen(kw_only=True)
class FaultSweep:
    """What a sweep has tried.

    Attributes:
        writes: calls of `apply` that failed, each once without and once with having stored.
        reads: look-ups and scans that failed.
        seconds: real time.
    """

    writes: int
    reads: int
    seconds: float

    def __str__(self) -> str:
        return f"failed {self.writes} writes and {self.reads} reads, {self.seconds:.2f} s"


class FaultFailure(PiDurableError, AssertionError):
    """A promise was broken after the storage had failed.

    Attributes:
        replay: what to hand to ``fault_sweep(..., replay=...)`` to run just this one.
        error: what failed; also the cause.
    """

    def __init__(self, replay: str, error: BaseException) -> None:
        self.replay = replay
        self.error = error
        super().__init__(
            f"the storage failed at {replay}: {type(error).__name__}: {error}\n"
            f"repeat it with fault_sweep(..., replay={replay!r})"
        )


def fault_sweep(
    story: Story,
    *,
    check: Check | Iterable[Check] = invariants,
    disk: Callable[[], Disk] = MemoryDisk,
    seed: int = 0,
    replay: str | None = None,
) -> FaultSweep:
    """Run a story once for each storage call, and fail that call.

    The failure must end the story's harness: the story's block raises `SessionFailed` or the
    storage's error. Then the story is run again on what the storage has. Not a coroutine: it starts
    Trio itself, in virtual time.

    Args:
        story: async function of a `World`.
        check: what must hold at the end of the second run; see `explore`.
        disk: makes the storage.
        seed: orders tasks.
        replay: run just this failure, as it was printed.

    Returns:
        What was tried.

    Raises:
        FaultFailure: the story or a check failed, or the failure did not end the harness.
        DefinitionError: `replay` is not what a failure prints.
    """
    sweep = _Sweep(story, (check,) if callable(check) else tuple(check), disk(), seed)
    try:
        if replay is not None:
            sweep.run(*_parsed(replay))
            return sweep.report()
        for fault in get_args(Fault):
            sweep.all(fault)
    finally:
        sweep.close()
    return sweep.report()


@final
class _Sweep:
    def __init__(self, story: Story, checks: tuple[Check, ...], disk: Disk, seed: int) -> None:
        self._story = story
        self._checks = checks
        self._disk = disk
        self._seed = seed
        self._writes = 0
        self._reads = 0
        self._began_s = monotonic()

    def all(self, fault: Fault) -> None:
        """Fail every call of one kind."""
        at = 1
        while self.run(fault, at):
            at += 1

    def run(self, fault: Fault, at: int) -> bool:
        """Fail one call; whether the story came to it."""
        faulty = _FaultyDisk(self._disk, fault, at)
        world = World(faulty, seed=self._seed, origin=None, life=1, marking=True)
        try:
            try:
                live(world, self._until_failure(faulty, f"when its storage failed at {fault} {at}"))
            except _StorageFailedError:
                pass
            else:
                assert not faulty.failed, "the harness went on after its storage had failed"
                return False
            again = World(self._disk, seed=self._seed, origin=world.points[-1], life=2)
            checked(again, self._story, self._checks)
        except Exception as error:  # whatever it is, it is named with its place and raised again
            raise FaultFailure(f"{fault}:{at}", error) from error
        finally:
            world.close()
        self._count(fault)
        return True

    def report(self) -> FaultSweep:
        """What was tried."""
        seconds = monotonic() - self._began_s
        return FaultSweep(writes=self._writes, reads=self._reads, seconds=seconds)

    def close(self) -> None:
        """Remove what was kept outside the process."""
        self._disk.close()

    def _until_failure(self, faulty: _FaultyDisk, where: str) -> Story:
        async def story(world: World) -> None:
            try:
                await self._story(world)
            except Exception as error:  # of a story with a nursery of its own it is a group
                if not faulty.failed or not _is_storage_failure(error):
                    raise
                world.mark(where)
                raise _StorageFailedError from error

        return story

    def _count(self, fault: Fault) -> None:
        self._writes += fault == "write"
        self._reads += fault == "read"


class _StorageFailedError(Exception):
    """The story ended as it should when its storage fails."""


def _is_storage_failure(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return error.split((SessionFailed, StorageError))[1] is None
    return isinstance(error, SessionFailed | StorageError)


@final
class _FaultyDisk:
    """A disk whose storage fails once, over all the harnesses of one life."""

    def __init__(self, disk: Disk, fault: Fault, at: int) -> None:
        self._disk = disk
        self._fault = fault
        self._left = at
        self._made: list[FaultyStorage] = []

    @property
    def failed(self) -> bool:
        """Whether the failure came."""
        return any(made.failed for made in self._made)

    def storage(self) -> Storage:
        """The storage, which fails when the calls of all before it and its own make the turn."""
        reading = self._fault == "read"
        done = sum(made.reads if reading else made.writes for made in self._made)
        at = self._left - done if done < self._left else None
        made = FaultyStorage(
            self._disk.storage(),
            at_write=None if reading else at,
            at_read=at if reading else None,
            wrote=self._fault == "stored-write",
        )
        self._made.append(made)
        return made

    def capture(self) -> Image:
        """As the disk."""
        return self._disk.capture()

    def torn(self, before: Image, after: Image) -> Iterator[tuple[str, Image]]:
        """Nothing: no write is cut in two."""
        return iter(())

    def restore(self, image: Image | None) -> None:
        """As the disk."""
        self._disk.restore(image)

    def close(self) -> None:
        """As the disk."""
        self._disk.close()


def _parsed(replay: str) -> tuple[Fault, int]:
    kind, _, at = replay.partition(":")
    for known in get_args(Fault):
        if kind == known and at.isdecimal() and int(at) > 0:
            fault: Fault = known
            return fault, int(at)
    raise DefinitionError(
        f"replay={replay!r}: write what the failure printed, such as 'write:3' or 'read:1'."
    )
