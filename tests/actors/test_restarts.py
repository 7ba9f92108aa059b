"""Crashes and closes: what counts as being cut off, what resets the count, and where it ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import Completed, Continue, Next, Settings, SleepUntil, TaskActor, phase
from pidurable_actors.errors import SessionFailed, StorageRequestError, TaskRefused
from pidurable_actors.records import CompletedOutcome, FaultedOutcome, TaskRecord
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import FaultyStorage, HangingStorage
from tests._tasks import At, CountTo, One, Opened, Sleeper, Ticker, opened, outcome_of, until


class Hangs(TaskActor[None, str], kind="test.hangs"):
    """Hangs at a step, for ever, so that it can be cut off there."""

    hangs_at: ClassVar[int] = 1
    entered: ClassVar[list[int]] = []

    def start(self) -> At:
        return At()

    @phase(At)
    async def at(self, at: At) -> Next[str]:
        self.entered.append(at.n)
        if at.n == type(self).hangs_at:
            await trio.sleep_forever()
        if at.n == 12:
            return Completed("through")
        return Continue(At(at.n + 1))


class Memos(TaskActor[None, str], kind="test.memos"):
    """Records a memo in each run, and never gets further."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[str]:
        await self.set_memo(f"m{self.now_ms()}", True)
        await self.commit(lambda tx: None)
        await trio.sleep_forever()
        raise AssertionError


async def crash(
    storage: MemoryStorage, *tasks: type[TaskActor[Any, Any]], settings: Settings | None = None
) -> MemoryStorage:
    """Run until nothing moves, then die: what a crash at that moment leaves."""
    async with opened(storage, *tasks, settings=settings) as on:
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        return storage.snapshot()


async def record_in(storage: MemoryStorage, task_id: int) -> TaskRecord:
    """A task as it is stored, without opening anything."""
    peer = storage.snapshot()
    peer.open(read_only=False)
    record = peer.task(task_id)  # type: ignore[arg-type]
    assert record is not None
    return record


async def created(storage: MemoryStorage, cls: type[TaskActor[Any, Any]]) -> int:
    """A task that was created and did not run."""
    async with opened(storage, cls) as on:
        return await on.start(cls)


async def test_killed_it_shows_running_and_the_next_open_makes_it_pending_and_counts() -> None:
    Hangs.hangs_at = 2
    storage = MemoryStorage()
    task = await created(storage, Hangs)
    storage = await crash(storage, Hangs)
    found = await record_in(storage, task)
    assert (found.state.status, found.restarts) == ("running", 0)
    async with opened(storage, Hangs) as on:
        record = await on.harness.get_task(task)
        assert (record.state.status, record.restarts) == ("pending", 1)
        assert record.state.checkpoint == {"phase": "at", "n": 2}  # type: ignore[union-attr]


async def test_a_clean_close_gives_back_without_counting() -> None:
    Hangs.hangs_at = 2
    storage = MemoryStorage()
    task = await created(storage, Hangs)
    for _ in range(8):
        await crash(storage, Hangs)  # looked at through the block's end: a clean close
        found = await record_in(storage, task)
        assert (found.state.status, found.restarts) == ("pending", 0)


async def test_what_is_created_or_woken_in_the_moment_of_the_close_is_not_counted() -> None:
    """Close at each step of a busy time; no close may leave a task as if it had been cut off."""
    for steps in range(60):
        storage = MemoryStorage()
        async with opened(storage, Ticker, Hangs) as on:
            on.harness.resume()
            async with trio.open_nursery() as nursery:
                for n in range(5):
                    nursery.start_soon(on.start, Ticker, CountTo(n + 2))
                nursery.start_soon(on.start, Hangs)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        async with opened(storage, Ticker, Hangs) as on:
            assert [v.restarts for v in on.harness.inspect().tasks if v.restarts] == []


@mark.parametrize("policy", ["end", "park"])
async def test_c07_at_the_limit_it_is_not_run_again(policy: Any) -> None:
    Hangs.hangs_at = 1
    Hangs.entered.clear()
    settings = Settings(restart_limit=3, on_restart_limit=policy)
    storage = MemoryStorage()
    task = await created(storage, Hangs)
    for _ in range(3):
        storage = await crash(storage, Hangs, settings=settings)
    assert Hangs.entered == [1, 1, 1]
    async with opened(storage, Hangs, Ticker, settings=settings) as on:
        other = await on.start(Ticker, CountTo(3))
        assert outcome_of(await on.harness.wait_for_task(other)).status == "completed"
        record = await on.harness.get_task(task)
        if policy == "end":
            outcome = outcome_of(record)
            assert isinstance(outcome, FaultedOutcome)
            assert outcome.error == {"reason": "restart_limit", "restarts": 3}
        else:
            assert record.state.status == "parked"
        assert [(r.kind, r.reason, r.task_id) for r in on.reports] == [
            ("task_faulted" if policy == "end" else "task_parked", "restart_limit", task)
        ]
    assert Hangs.entered == [1, 1, 1]


async def test_c08_progress_resets_the_count() -> None:
    Hangs.entered.clear()
    settings = Settings(restart_limit=2)
    storage = MemoryStorage()
    task = await created(storage, Hangs)
    for step in range(1, 12):
        Hangs.hangs_at = step
        storage = await crash(storage, Hangs, settings=settings)
    Hangs.hangs_at = 0
    async with opened(storage, Hangs, settings=settings) as on:
        outcome = outcome_of(await on.harness.wait_for_task(task))
    assert outcome == CompletedOutcome(result="through")
    assert on.reports == []


async def test_memos_alone_are_no_progress() -> None:
    settings = Settings(restart_limit=2)
    storage = MemoryStorage()
    task = await created(storage, Memos)
    for _ in range(2):
        storage = await crash(storage, Memos, settings=settings)
    async with opened(storage, Memos, settings=settings) as on:
        outcome = outcome_of(await on.harness.wait_for_task(task))
        assert isinstance(outcome, FaultedOutcome)
        assert outcome.memos != {}


async def test_there_may_be_no_limit() -> None:
    Hangs.hangs_at = 1
    settings = Settings(restart_limit=math.inf)
    storage = MemoryStorage()
    task = await created(storage, Hangs)
    for _ in range(12):
        storage = await crash(storage, Hangs, settings=settings)
    async with opened(storage, Hangs, settings=settings) as on:
        assert (await on.harness.get_task(task)).restarts == 12
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert (await on.harness.get_task(task)).state.status == "running"


async def test_sleepers_and_what_was_pending_are_not_counted() -> None:
    storage = MemoryStorage()
    async with opened(storage, Sleeper) as on:
        on.harness.resume()
        asleep = await on.start(Sleeper, 3_600.0)
        await trio.testing.wait_all_tasks_blocked()
        crashed = storage.snapshot()
    for _ in range(3):
        crashed = await crash(crashed, Sleeper)
    async with opened(crashed, Sleeper) as on:
        record = await on.harness.get_task(asleep)
        assert (record.state.status, record.restarts) == ("sleeping", 0)


# --- parked, and trying again ---


async def parked(limit: int = 2) -> tuple[MemoryStorage, int]:
    """A storage with a parked task."""
    Hangs.hangs_at = 1
    settings = Settings(restart_limit=limit, on_restart_limit="park")
    storage = MemoryStorage()
    task = await created(storage, Hangs)
    for _ in range(limit):
        storage = await crash(storage, Hangs, settings=settings)
    await crash(storage, Hangs, settings=settings)
    assert (await record_in(storage, task)).state.status == "parked"
    return storage, task


async def test_a_parked_task_stays_parked_and_its_waits_stay_open_until_it_is_tried_again() -> None:
    storage, task = await parked()
    settings = Settings(restart_limit=2, on_restart_limit="park")
    async with opened(storage, Hangs, settings=settings) as on, trio.open_nursery() as nursery:
        ends: list[str] = []

        async def wait(on: Opened) -> None:
            ends.append(outcome_of(await on.harness.wait_for_task(task)).status)

        nursery.start_soon(wait, on)
        await trio.testing.wait_all_tasks_blocked()
        assert ends == []
        assert on.reports == []
        (view,) = on.harness.inspect().tasks
        assert (view.why, view.restarts) == ("parked", 2)
        Hangs.hangs_at = 0
        assert await on.harness.retry_task(task) == task
        await until(lambda: bool(ends))
        assert ends == ["completed"]


async def test_a_parked_task_that_is_tried_again_counts_from_zero() -> None:
    storage, task = await parked()
    settings = Settings(restart_limit=2, on_restart_limit="park")
    async with opened(storage, Hangs, settings=settings) as on:
        await on.harness.retry_task(task)
        await trio.testing.wait_all_tasks_blocked()
        record = await on.harness.get_task(task)
        assert (record.state.status, record.restarts) == ("running", 0)


@mark.parametrize("policy", ["end", "park"])
async def test_a_parked_task_can_be_aborted_and_runs_its_handler(policy: Any) -> None:
    storage, task = await parked()
    settings = Settings(restart_limit=2, on_restart_limit=policy)
    async with opened(storage, Hangs, settings=settings) as on:
        record = await on.harness.abort_task(task, reason="give up")
        assert outcome_of(record).status == "aborted"


class Deadly(TaskActor[None, None], kind="test.deadly"):
    """Its abort handler is what kills the process."""

    handled: ClassVar[int] = 0

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        return SleepUntil(self.now_ms() + 3_600_000, One())

    async def abort(self) -> Any:
        type(self).handled += 1
        await trio.sleep_forever()


@mark.parametrize("policy", ["end", "park"])
async def test_an_abort_handler_that_is_cut_off_again_and_again_ends_at_the_limit(
    policy: Any,
) -> None:
    Deadly.handled = 0
    settings = Settings(restart_limit=3, on_restart_limit=policy)
    storage = MemoryStorage()
    async with opened(storage, Deadly, settings=settings) as on:
        on.harness.resume()
        task = await on.start(Deadly)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await on.harness.abort_task(task)
        crashed = storage.snapshot()
    for _ in range(10):
        crashed = await crash(crashed, Deadly, settings=settings)
    assert Deadly.handled == 3
    assert outcome_of(await record_in(crashed, task)).status == "faulted"


class Flaky(TaskActor[None, str], kind="test.flaky"):
    """Fails at its third step until told otherwise."""

    fails: ClassVar[Callable[[], Any] | None] = None

    def start(self) -> At:
        return At()

    @phase(At)
    async def at(self, at: At) -> Next[str]:
        await self.set_memo(f"at-{at.n}", at.n)
        if at.n == 3:
            if type(self).fails is not None:
                raise ValueError("flaky")
            return Completed(str(await self.memo("at-1")))
        return Continue(At(at.n + 1))


async def test_a_faulted_task_is_tried_again_as_a_new_one_from_its_last_checkpoint() -> None:
    storage = MemoryStorage()
    async with opened(storage, Flaky) as on:
        Flaky.fails = dict
        task = await on.start(Flaky)
        assert outcome_of(await on.harness.wait_for_task(task)).status == "faulted"
        Flaky.fails = None
        again = await on.harness.retry_task(task)
        assert again > task
        record = await on.harness.wait_for_task(again)
        assert outcome_of(record) == CompletedOutcome(result="1")
        assert record.retry_of == task
        assert (await on.harness.get_task(task)).retried_as == again
        with raises(TaskRefused, match=f"retried before, as task {again}"):
            await on.harness.retry_task(task)
        with raises(TaskRefused, match="only parked, faulted and failed"):
            await on.harness.retry_task(again)
    async with opened(storage, Flaky) as on:
        assert (await on.harness.get_task(task)).retried_as == again


async def test_what_cannot_be_tried_again_is_refused() -> None:
    async with opened(MemoryStorage(), Ticker, Sleeper) as on:
        done = await on.start(Ticker, CountTo(2))
        await on.harness.wait_for_task(done)
        asleep = await on.start(Sleeper, 60.0)
        for task in (done, asleep):
            with raises(TaskRefused) as told:
                await on.harness.retry_task(task)
            assert told.value.task_id == task
        with raises(StorageRequestError, match="no task 999"):
            await on.harness.retry_task(999)


async def test_a_parked_task_that_is_being_aborted_is_not_tried_again() -> None:
    storage, task = await parked()
    settings = Settings(restart_limit=2, on_restart_limit="park")
    # Its kind is not installed, so the mark stays.
    async with opened(storage, settings=settings) as on:
        with trio.move_on_after(1):
            await on.harness.abort_task(task)
        with raises(TaskRefused, match="being aborted"):
            await on.harness.retry_task(task)


async def test_a_task_that_ended_without_its_code_cannot_be_tried_from_nowhere() -> None:
    async with opened(MemoryStorage(), Flaky) as on:
        Flaky.fails = dict
        task = await on.start(Flaky)
        await on.harness.wait_for_task(task)
        outcomes = [outcome_of(await on.harness.get_task(task))]
        assert isinstance(outcomes[0], FaultedOutcome)
        assert outcomes[0].checkpoint == {"phase": "at", "n": 3}


# --- the moment between admission and start ---


@mark.parametrize("fails", [False, True])
async def test_a_task_that_is_stored_as_running_during_the_close_is_given_back(fails: bool) -> None:
    """Hold the write that creates a running task until the close has begun."""
    storage = HangingStorage(failing := FaultyStorage(MemoryStorage()))
    created: list[int] = []

    async def create(on: Opened) -> None:
        with suppress(SessionFailed):
            created.append(await on.start(Hangs))

    async def close() -> None:
        async with opened(storage, Hangs) as on:
            on.harness.resume()
            storage.hang()
            outside.start_soon(create, on)
            await trio.testing.wait_all_tasks_blocked()

    async with trio.open_nursery() as outside:
        outside.start_soon(_open_later, storage, failing, fails)
        if fails:
            with raises(SessionFailed):
                await close()
        else:
            await close()
    peer = failing.inner.snapshot()  # type: ignore[attr-defined]
    peer.open(read_only=False)
    record = peer.task(created[0])
    assert (record.state.status, record.restarts) == ("running" if fails else "pending", 0)


async def _open_later(storage: HangingStorage, failing: FaultyStorage, fails: bool) -> None:
    await until(lambda: storage.held)
    for _ in range(200):
        await trio.lowlevel.checkpoint()
    if fails:
        failing.arm(at_write=2)
    storage.release()


# --- trying again below an owner ---


class Family(TaskActor[bool, str], kind="test.family"):
    """Owns a flaky child; waits for ever, or ends at once."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[str]:
        child = await self.commit(lambda tx: tx.create_task(Flaky, None, owner=self.task_id))
        await self.wait_for_task(child)
        if self.input:
            await trio.sleep_forever()
        return Completed("ended")


@mark.parametrize("lives", [False, True])
async def test_a_child_is_tried_again_only_under_an_owner_that_goes_on(lives: bool) -> None:
    async with opened(MemoryStorage(), Family, Flaky) as on:
        Flaky.fails = dict
        owner = await on.start(Family, lives)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        child = owner + 1
        assert outcome_of(await on.harness.get_task(child)).status == "faulted"
        Flaky.fails = None
        if lives:
            again = await on.harness.retry_task(child)
            record = await on.harness.wait_for_task(again)
            assert outcome_of(record).status == "completed"
            assert record.owner == owner
        else:
            with raises(TaskRefused, match="ending or missing"):
                await on.harness.retry_task(child)
