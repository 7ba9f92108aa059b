"""The cancellation sweep: a story, cancelled at each of its checkpoints, once for each.

Owns two questions. Of the caller, whose block on an open harness is cancelled while the harness
stays: do its waits end, does the work go on, and is nothing half-made? And of the surroundings,
when the whole story is cancelled and the harness closes: does the next process go on as if nothing
had been asked twice? It crashes nothing; see `explore` for that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Literal, TypeAlias, final, get_args

import attrs
import trio

from pidurable_actors import Harness
from pidurable_actors._clock import monotonic
from pidurable_actors.errors import DefinitionError, PiDurableError
from pidurable_actors.testing._disks import Disk, MemoryDisk
from pidurable_actors.testing._explorer import Check, checked, live
from pidurable_actors.testing._world import Story, World
from pidurable_actors.testing.checkers import invariants

__all__ = ["CancelFailure", "CancelSweep", "cancel_sweep"]

Body: TypeAlias = AbstractAsyncContextManager[None]
Cut: TypeAlias = Literal["caller", "story"]
_PATIENCE_S: Final = 86_400.0


@attrs.frozen(kw_only=True)
class CancelSweep:
    """What a sweep has tried.

    Attributes:
        caller: checkpoints at which the block on the harness was cancelled.
        story: checkpoints at which the whole story was cancelled.
        seconds: real time.
    """

    caller: int
    story: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"cancelled at {self.caller} checkpoints of the caller and {self.story} of the story, "
            f"{self.seconds:.2f} s"
        )


class CancelFailure(PiDurableError, AssertionError):
    """A promise was broken after a cancellation.

    Attributes:
        replay: what to hand to ``cancel_sweep(..., replay=...)`` to run just this one.
        place: which checkpoint it was.
        error: what failed; also the cause.
    """

    def __init__(self, replay: str, place: str, error: BaseException) -> None:
        self.replay = replay
        self.place = place
        self.error = error
        super().__init__(
            f"{place}: {type(error).__name__}: {error}\n"
            f"repeat it with cancel_sweep(..., replay={replay!r})"
        )


def cancel_sweep(
    story: Story,
    *,
    check: Check | Iterable[Check] = invariants,
    disk: Callable[[], Disk] = MemoryDisk,
    seed: int = 0,
    work_ends: bool = True,
    replay: str | None = None,
) -> CancelSweep:
    """Run a story once for each of its checkpoints, and cancel it there.

    First the caller: the block of ``async with world.open_harness()`` is cancelled and left; the
    harness stays open until nothing moves any more, closes, and the story is run again to its end.
    Then the surroundings: the whole story is cancelled, so that the harness closes, and the story
    is run again. Not a coroutine: it starts Trio itself, in virtual time.

    Args:
        story: async function of a `World`.
        check: what must hold at the end of the second run; see `explore`. The ready-made checks
            also prove that no commit was stored whose caller got `Cancelled`.
        disk: makes the storage.
        seed: orders tasks.
        work_ends: demand that what the cancelled caller had begun comes to its end without it;
            False for stories whose work needs its caller.
        replay: run just this cancellation, as a failure printed it.

    Returns:
        What was tried.

    Raises:
        CancelFailure: the story or a check failed.
        DefinitionError: `replay` is not what a failure prints.
    """
    sweep = _Sweep(story, (check,) if callable(check) else tuple(check), disk(), seed, work_ends)
    try:
        if replay is not None:
            kind, at = _parsed(replay)
            sweep.run(kind, at)
            return sweep.report(**{kind: 1})
        return sweep.report(caller=sweep.all("caller"), story=sweep.all("story"))
    finally:
        sweep.close()


@final
class _Sweep:
    def __init__(
        self, story: Story, checks: tuple[Check, ...], disk: Disk, seed: int, work_ends: bool
    ) -> None:
        self._story = story
        self._checks = checks
        self._disk = disk
        self._seed = seed
        self._work_ends = work_ends
        self._began_s = monotonic()

    def all(self, kind: Cut) -> int:
        """Cancel at every checkpoint; how many there were."""
        at = 1
        while self.run(kind, at):
            at += 1
        return at - 1

    def run(self, kind: Cut, at: int) -> bool:
        """Cancel at one checkpoint; whether the story came to it."""
        cut = _CutAt(at)
        world = World(self._disk, seed=self._seed, origin=None, life=1, marking=True)
        try:
            live(world, self._cancelled(kind, cut), instruments=[cut])
            if not cut.done:
                return False
            again = World(self._disk, seed=self._seed, origin=world.points[-1], life=2)
            checked(again, self._story, self._checks)
        except Exception as error:  # whatever it is, it is named with its place and raised again
            place = f"cancelled at checkpoint {at} of the {kind}{cut.where}"
            raise CancelFailure(f"{kind}:{at}", place, error) from error
        finally:
            world.close()
        return True

    def report(self, *, caller: int = 0, story: int = 0) -> CancelSweep:
        """What was tried."""
        return CancelSweep(caller=caller, story=story, seconds=monotonic() - self._began_s)

    def close(self) -> None:
        """Remove what was kept outside the process."""
        self._disk.close()

    def _cancelled(self, kind: Cut, cut: _CutAt) -> Story:
        async def story(world: World) -> None:
            with trio.CancelScope() as whole:
                if kind == "story":
                    cut.arm(whole)
                else:
                    world.body = self._body(cut, whole)
                await self._story(world)
                cut.disarm()

        return story

    def _body(self, cut: _CutAt, whole: trio.CancelScope) -> Callable[[Harness], Body]:
        @asynccontextmanager
        async def body(harness: Harness) -> AsyncIterator[None]:
            with trio.CancelScope() as caller:
                cut.arm(caller)
                yield
                cut.disarm()
            if caller.cancelled_caught:
                if self._work_ends:
                    await _work_goes_on(harness)
                # What the story would do with results that it does not have is not its subject.
                whole.cancel()
                await trio.lowlevel.checkpoint()

        return body


@final
class _CutAt(trio.abc.Instrument):
    """Cancels a scope when the task that armed it comes to its n-th checkpoint since."""

    def __init__(self, at: int) -> None:
        self.done = False
        self.where = ""
        self._left = at
        self._task: trio.lowlevel.Task | None = None
        self._scope: trio.CancelScope | None = None

    def arm(self, scope: trio.CancelScope) -> None:
        """Count from here, in this task."""
        if not self.done:
            self._task, self._scope = trio.lowlevel.current_task(), scope

    def disarm(self) -> None:
        """Count no more."""
        self._task = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task has come to a checkpoint."""
        if task is not self._task or self._scope is None:
            return
        self._left -= 1
        if self._left == 0:
            self.done, self._task = True, None
            self.where = f", in {_innermost(task)}"
            self._scope.cancel(reason="the cancellation sweep")


async def _work_goes_on(harness: Harness) -> None:
    """Wait, in virtual time, until what was begun has come to its end.

    Raises:
        AssertionError: it has not.
    """
    with trio.move_on_after(_PATIENCE_S):
        pause_s = 0.001
        while _moving(harness):
            await trio.sleep(pause_s)
            pause_s = min(pause_s * 2, 60.0)
    still = _moving(harness)
    assert not still, f"the work did not go on when its caller was cancelled; still live: {still}"


def _moving(harness: Harness) -> list[str]:
    """What is live and should come to its end by itself."""
    seen = harness.inspect()
    if not seen.scheduling:
        return []
    return [f"task {t.id} {t.kind} ({t.why})" for t in seen.tasks if t.why != "parked"]


def _innermost(task: trio.lowlevel.Task) -> str:
    """The innermost frame of a waiting task that is not Trio's."""
    frames = [
        frame
        for frame, _ in task.iter_await_frames()
        if not frame.f_globals.get("__name__", "").startswith("trio.")
    ]
    return frames[-1].f_code.co_qualname if frames else task.name


def _parsed(replay: str) -> tuple[Cut, int]:
    kind, _, at = replay.partition(":")
    for known in get_args(Cut):
        if kind == known and at.isdecimal() and int(at) > 0:
            return known, int(at)
    raise DefinitionError(
        f"replay={replay!r}: write what the failure printed, such as 'caller:12' or 'story:3'."
    )
