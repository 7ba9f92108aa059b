"""Sleepers: woken when the durable clock says so, whatever else goes on and whoever sets it."""

from __future__ import annotations

from typing import Any, ClassVar

import trio
import trio.testing
from pytest import mark

from pidurable_actors import Completed, Next, SleepUntil, TaskActor, Tx, phase
from pidurable_actors._clock import TrioClock
from pidurable_actors.records import CompletedOutcome
from pidurable_actors.runtime import Report
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import SteppedClock
from tests._tasks import (
    NOTE,
    At,
    CountTo,
    Note,
    One,
    Sleeper,
    Ticker,
    append,
    opened,
    outcome_of,
    until,
)

HOUR_MS = 3_600_000


class Busy(TaskActor[float, None], kind="test.busy"):
    """Runs for its input in seconds."""

    entered: ClassVar[int] = 0

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        type(self).entered += 1
        await self.sleep(self.input)
        return Completed(None)


class Ticks(TaskActor[int, list[int]], kind="test.ticks"):
    """Sleeps a second at a time; the result is when it woke."""

    woke: ClassVar[list[int]] = []

    def start(self) -> At:
        return At(0)

    @phase(At)
    async def at(self, at: At) -> Next[list[int]]:
        self.woke.append(self.now_ms())
        if at.n == self.input:
            return Completed([])
        return SleepUntil(self.now_ms() + 1_000, At(at.n + 1))


async def test_c10_a_sleeper_wakes_while_another_task_runs_and_the_next_wake_is_the_earliest() -> (
    None
):
    async with opened(MemoryStorage(), Sleeper, Busy) as on:
        on.harness.resume()
        await on.start(Busy, 60.0)
        long, short = await on.start(Sleeper, 20.0), await on.start(Sleeper, 5.0)
        await trio.testing.wait_all_tasks_blocked()
        epoch_ms = TrioClock().now_ms()
        assert on.harness.next_wake_ms() == epoch_ms + 5_000
        outcome = outcome_of(await on.harness.wait_for_task(short))
        assert outcome == CompletedOutcome(result=epoch_ms + 5_000)
        assert on.harness.next_wake_ms() == epoch_ms + 20_000
        await on.harness.abort_task(long)
        assert on.harness.next_wake_ms() is None
        sleeper = await on.start(Sleeper, 1.0)
        await on.harness.wait_for_task(sleeper)
        assert trio.current_time() == 6
        await on.root.wait_for_idle()
        assert trio.current_time() == 60


async def test_the_next_wake_is_known_before_anything_runs() -> None:
    storage = MemoryStorage()
    async with opened(storage, Sleeper) as on:
        on.harness.resume()
        task = await on.start(Sleeper, 5.0)
        await trio.testing.wait_all_tasks_blocked()
    async with opened(storage, Sleeper) as on:
        due_ms = on.harness.next_wake_ms()
        assert due_ms is not None
        await trio.sleep(60)
        assert (await on.harness.get_task(task)).state.status == "sleeping"
        outcome = outcome_of(await on.harness.wait_for_task(task))
        assert isinstance(outcome, CompletedOutcome)
        assert outcome.result == TrioClock().now_ms()


async def test_hours_and_days_pass_in_virtual_time() -> None:
    async with opened(MemoryStorage(), Sleeper) as on:
        await on.run(Sleeper, 90 * 24 * 3_600.0)
        assert trio.current_time() == 90 * 24 * 3_600


async def test_c52_a_clock_that_is_set_forward_wakes_its_sleepers_within_a_second() -> None:
    clock = SteppedClock()
    async with opened(MemoryStorage(), Sleeper, clock=clock) as on:
        task = await on.start(Sleeper, 9 * 3_600.0)
        on.harness.resume()
        await trio.sleep(10)
        clock.step_ms += 9 * HOUR_MS
        await on.harness.wait_for_task(task)
        assert trio.current_time() <= 11


async def test_c52_a_clock_that_is_set_back_wakes_nobody_twice() -> None:
    """Set a raw clock back while a task ticks: it may take longer, and nothing comes twice.

    `WallClock` itself never goes back; this is about the engine under a clock that does.
    """
    Ticks.woke.clear()
    clock = SteppedClock()
    async with opened(MemoryStorage(), Ticks, clock=clock) as on:
        task = await on.start(Ticks, 5)
        on.harness.resume()
        await trio.sleep(2.5)
        clock.step_ms -= 10_000
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"
    assert len(Ticks.woke) == 6
    assert trio.current_time() <= 5 + 10 + 2


@mark.slow
async def test_sleepers_that_are_due_at_the_same_moment_all_wake() -> None:
    async with opened(MemoryStorage(), Sleeper) as on:
        until_ms = TrioClock().now_ms() + 30_000

        def create(tx: Tx) -> list[Any]:
            return [tx.create_task(Sleeper, 30.0) for _ in range(700)]

        tasks = await on.root.commit(create)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert on.harness.next_wake_ms() == until_ms
        await on.root.wait_for_idle()
        assert trio.current_time() == 30
        for task in tasks:
            assert outcome_of(await on.harness.get_task(task)).status == "completed"


async def test_c19_a_hundred_wake_ups_do_not_start_a_second_run() -> None:
    Busy.entered = 0
    async with opened(MemoryStorage(), Busy, Sleeper, Ticker) as on:
        task = await on.start(Busy, 2.0)
        on.harness.resume()
        await until(lambda: Busy.entered == 1)
        for number in range(100):
            on.harness.resume()
            await on.root.commit(append(str(number)))
            await on.root.write(NOTE.new(Note(str(number))))
            await on.start(Ticker, CountTo(2))
            with trio.move_on_after(0):
                await on.harness.wait_for_task(task)
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"
    assert Busy.entered == 1


@mark.parametrize("wait_s", [0, 1])
async def test_cancelling_a_wait_does_not_cancel_the_work(wait_s: float) -> None:
    async with opened(MemoryStorage(), Busy) as on:
        task = await on.start(Busy, 50.0)
        for _ in range(3):
            with trio.move_on_after(wait_s) as scope:
                await on.harness.wait_for_task(task)
            assert scope.cancelled_caught
            with trio.move_on_after(wait_s) as scope:
                await on.root.wait_for_idle()
            assert scope.cancelled_caught
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"


async def test_c48_a_report_handler_that_raises_does_no_harm() -> None:
    class Faults(TaskActor[None, None], kind="test.faults"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            raise ValueError("its own")

    def raising(report: Report) -> None:
        raise ExceptionGroup("from the handler", [LookupError()])

    async with opened(MemoryStorage(), Faults, Ticker, on_report=raising) as on:
        outcome = await on.run(Faults)
        assert outcome.status == "faulted"
        assert "its own" in str(outcome)
        assert (await on.run(Ticker, CountTo(2))).status == "completed"
    assert [report.kind for report in on.reports] == ["task_faulted"]


class Dozes(TaskActor[int, None], kind="test.dozes"):
    """Sleeps until now, over and over: each time it is due before its run has ended."""

    def start(self) -> At:
        return At(0)

    @phase(At)
    async def at(self, at: At) -> Next[None]:
        return Completed(None) if at.n == self.input else SleepUntil(self.now_ms(), At(at.n + 1))


@mark.slow
async def test_a_sleeper_that_is_due_while_its_run_is_still_ending_is_woken() -> None:
    async with opened(MemoryStorage(), Dozes) as on:
        on.harness.resume()
        tasks = [await on.start(Dozes, 20) for _ in range(50)]
        with trio.fail_after(3_600):  # virtual: a sleeper that is lost would sleep for ever
            for task in tasks:
                assert outcome_of(await on.harness.wait_for_task(task)) == CompletedOutcome()
