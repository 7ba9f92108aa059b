"""Aborts: the mark is stored, the run is stopped, the handler decides, also after a crash."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import (
    Aborted,
    Completed,
    Continue,
    Failed,
    Next,
    SleepUntil,
    TaskActor,
    Tx,
    WaitFor,
    phase,
)
from pidurable_actors.errors import StorageRequestError, TaskRefused
from pidurable_actors.records import AbortedOutcome, CompletedOutcome, FaultedOutcome
from pidurable_actors.storage.memory import MemoryStorage
from tests._tasks import (
    NOTE,
    At,
    CountTo,
    Note,
    One,
    Opened,
    Sleeper,
    Ticker,
    notes,
    opened,
    outcome_of,
    registry_of,
    until,
)


def runs(on: Opened) -> bool:
    return on.harness.inspect().tasks[0].why == "running"


class Charge(TaskActor[str, str], kind="test.charge"):
    """Stands in a step until it is stopped; its handler refunds, once."""

    refunds: ClassVar[list[str]] = []
    stands: ClassVar[str] = "running"

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[str]:
        if type(self).stands == "sleeping":
            return SleepUntil(self.now_ms() + 3_600_000, At())
        if type(self).stands == "waiting":

            async def wait(tx: Tx) -> WaitFor:
                child = tx.create_task(Charge, "child", owner=self.task_id)
                Charge.stands = "running"
                return WaitFor([child], At())

            return await self.commit(wait)
        await trio.sleep_forever()
        raise AssertionError

    @phase(At)
    async def at(self, at: At) -> Next[str]:
        return Completed("not stopped")

    async def abort(self) -> Any:
        if await self.set_memo("refunded", self.input) == self.input:
            self.refunds.append(self.input)
        await self.commit(
            lambda tx: tx.append_entry(self.conversation_id, NOTE.new(Note("undone")))
        )
        return Aborted(f"refunded {self.input}")


@mark.parametrize("stands", ["running", "sleeping", "waiting", "pending"])
async def test_the_handler_decides_wherever_the_task_stands(stands: str) -> None:
    Charge.refunds.clear()
    Charge.stands = stands
    async with opened(MemoryStorage(), Charge) as on:
        if stands != "pending":
            on.harness.resume()
        task = await on.start(Charge, "fee")
        await trio.testing.wait_all_tasks_blocked()
        assert (await on.harness.get_task(task)).state.status == stands
        record = await on.harness.abort_task(task, reason="changed my mind")
        assert outcome_of(record) == AbortedOutcome(reason="refunded fee")
        assert record.abort_reason == "changed my mind"
        assert Charge.refunds == (["child", "fee"] if stands == "waiting" else ["fee"])
        assert set(await notes(on.root)) == {"undone"}
        assert on.reports == []
        assert on.harness.next_wake_ms() is None


async def test_without_a_handler_the_reason_is_the_outcome() -> None:
    async with opened(MemoryStorage(), Sleeper) as on:
        task = await on.start(Sleeper, 60.0)
        record = await on.harness.abort_task(task, reason="no longer needed")
        assert outcome_of(record) == AbortedOutcome(reason="no longer needed")


async def test_the_first_reason_stands_and_a_second_abort_waits_with_the_first() -> None:
    Charge.refunds.clear()
    Charge.stands = "running"
    async with opened(MemoryStorage(), Charge) as on:
        task = await on.start(Charge, "fee")
        found: list[str] = []

        async def stop(reason: str) -> None:
            found.append((await on.harness.abort_task(task, reason=reason)).abort_reason)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop, "first")
            await trio.lowlevel.checkpoint()
            nursery.start_soon(stop, "second")
        assert len(set(found)) == 1
        assert Charge.refunds == ["fee"]
        # An ended task is not touched.
        assert (await on.harness.abort_task(task, reason="late")).abort_reason == found[0]


async def test_an_abort_of_nobody_and_a_reason_that_is_no_text_are_refused() -> None:
    async with opened(MemoryStorage(), Sleeper) as on:
        with raises(StorageRequestError, match="no task 999"):
            await on.harness.abort_task(999)
        task = await on.start(Sleeper, 60.0)
        with raises(Exception, match="reason: the text holds a lone surrogate"):
            await on.harness.abort_task(task, reason="\ud800")
        assert not (await on.harness.get_task(task)).abort_requested


async def test_cancelling_the_wait_does_not_take_the_abort_back() -> None:
    class Slow(TaskActor[None, None], kind="test.slow"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            await trio.sleep_forever()
            raise AssertionError

        async def abort(self) -> Any:
            await trio.sleep(10)
            return Aborted("after all")

    async with opened(MemoryStorage(), Slow) as on:
        task = await on.start(Slow)
        with trio.move_on_after(1) as scope:
            await on.harness.abort_task(task)
        assert scope.cancelled_caught
        assert outcome_of(await on.harness.wait_for_task(task)).status == "aborted"


async def test_a_handler_that_is_cut_off_by_a_crash_or_a_close_runs_again() -> None:
    class Twice(TaskActor[None, None], kind="test.twice"):
        handled: ClassVar[int] = 0

        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            await trio.sleep_forever()
            raise AssertionError

        async def abort(self) -> Any:
            type(self).handled += 1
            if type(self).handled == 1:
                await trio.sleep_forever()
            return Aborted("undone")

    for ending in ("crash", "close"):
        Twice.handled = 0
        storage = MemoryStorage()
        async with opened(storage, Twice) as on:
            task = await on.start(Twice)
            with trio.move_on_after(1):
                await on.harness.abort_task(task, reason="stop")
            crashed = storage.snapshot()
        async with opened(crashed if ending == "crash" else storage, Twice) as on:
            assert (await on.harness.get_task(task)).restarts == (1 if ending == "crash" else 0)
            record = await on.harness.wait_for_task(task)
            assert outcome_of(record) == AbortedOutcome(reason="undone")
        assert Twice.handled == 2


async def test_a_close_that_comes_while_an_abort_begins_does_not_wait_for_the_handler() -> None:
    """Close at each step of an abort whose handler takes an hour."""

    class Hour(TaskActor[None, None], kind="test.hour"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            await trio.sleep_forever()
            raise AssertionError

        async def abort(self) -> Any:
            await trio.sleep(3_600)
            return Aborted("after an hour")

    for steps in range(40):
        began = trio.current_time()
        async with opened(MemoryStorage(), Hour) as on, trio.open_nursery() as nursery:
            task = await on.start(Hour)
            on.harness.resume()
            await until(partial(runs, on))
            nursery.start_soon(on.harness.abort_task, task)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert trio.current_time() - began < 60


@mark.parametrize("step", [Continue(At()), SleepUntil(0, At()), WaitFor([], At()), None, "undone"])
@mark.parametrize("stored", [False, True])
async def test_a_handler_that_does_not_end_the_task_is_its_fault(step: Any, stored: bool) -> None:
    class GoesOn(TaskActor[None, None], kind="test.goes-on"):
        handled: ClassVar[int] = 0

        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[None]:
            await trio.sleep_forever()
            raise AssertionError

        async def abort(self) -> Any:
            type(self).handled += 1
            return await self.commit(lambda tx: step) if stored else step

    async with opened(MemoryStorage(), GoesOn) as on:
        task = await on.start(GoesOn)
        outcome = outcome_of(await on.harness.abort_task(task))
        assert isinstance(outcome, FaultedOutcome)
        assert "Completed, Failed or Aborted" in str(outcome.error)
    assert GoesOn.handled == 1


async def test_a_handler_may_end_it_in_any_way_also_in_its_own_commit() -> None:
    class Ends(TaskActor[int, str], kind="test.ends"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            await trio.sleep_forever()
            raise AssertionError

        async def abort(self) -> Any:
            if self.input == 0:
                return Completed("done anyway")
            if self.input == 1:
                return await self.commit(lambda tx: Failed("could not undo"))
            raise ValueError("in the handler")

    async with opened(MemoryStorage(), Ends) as on:
        found = []
        for number in range(3):
            task = await on.start(Ends, number)
            found.append(outcome_of(await on.harness.abort_task(task)).status)
    assert found == ["completed", "failed", "faulted"]


async def test_a_phase_that_swallows_the_stop_loses_its_value_and_a_report_says_so() -> None:
    class Swallows(TaskActor[None, str], kind="test.swallows"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            with suppress(trio.Cancelled):
                await trio.sleep_forever()
            return Completed("too late")

    storage = MemoryStorage()
    async with opened(storage, Swallows) as on:
        task = await on.start(Swallows)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert outcome_of(await on.harness.abort_task(task)).status == "aborted"
        left = await on.start(Swallows)
        await trio.testing.wait_all_tasks_blocked()
    assert [(r.kind, r.reason, r.task_id) for r in on.reports] == [
        ("task_interrupted", "value_dropped", task),
        ("task_interrupted", "value_dropped", left),
    ]
    async with opened(storage, Swallows) as on:
        assert (await on.harness.get_task(left)).state.status == "pending"


async def test_an_error_that_a_stopped_phase_raises_is_reported_and_the_stop_wins() -> None:
    class Untidy(TaskActor[bool, str], kind="test.untidy"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            try:
                if self.input:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self.child)
                        await trio.sleep_forever()
                await trio.sleep_forever()
            finally:
                raise ValueError("while tidying up")

        async def child(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise LookupError("in a child")

    async with opened(MemoryStorage(), Untidy) as on:
        for in_a_nursery in (False, True):
            task = await on.start(Untidy, in_a_nursery)
            on.harness.resume()
            await trio.testing.wait_all_tasks_blocked()
            assert outcome_of(await on.harness.abort_task(task)).status == "aborted"
    assert [(r.kind, r.reason) for r in on.reports] == [("task_interrupted", "error_dropped")] * 2


async def test_a_group_that_mixes_the_stop_with_an_error_is_reported_too() -> None:
    class Mixed(TaskActor[None, str], kind="test.mixed"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.child)
                await trio.sleep_forever()
            raise AssertionError

        async def child(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise LookupError("in a child")

    async with opened(MemoryStorage(), Mixed) as on:
        task = await on.start(Mixed)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert outcome_of(await on.harness.abort_task(task)).status == "aborted"
    assert [(r.kind, r.reason) for r in on.reports] == [("task_interrupted", "error_dropped")]


async def test_an_abort_of_a_blocked_task_keeps_its_mark_until_its_kind_is_there() -> None:
    Charge.refunds.clear()
    Charge.stands = "running"
    storage = MemoryStorage()
    async with opened(storage, Charge) as on:
        task = await on.start(Charge, "fee")
    registry = registry_of()
    async with opened(storage, registry=registry) as on:
        with trio.move_on_after(5):
            await on.harness.abort_task(task, reason="stop")
        (view,) = on.harness.inspect().tasks
        assert (view.why, view.abort_requested) == ("blocked", True)
        registry.install(next(iter(registry_of(Charge).extensions)))
        record = await on.harness.wait_for_task(task)
        assert outcome_of(record) == AbortedOutcome(reason="refunded fee")
    assert Charge.refunds == ["fee"]


# --- one level of ownership ---


class Owner(TaskActor[str, Any], kind="test.owner"):
    """Creates children and waits for them, or ends before them."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[Any]:
        async def create(tx: Tx) -> Any:
            children = [tx.create_task(Sleeper, 5.0 + n, owner=self.task_id) for n in range(2)]
            if self.input == "wait":
                return WaitFor(children, At(children[0]))
            if self.input == "complete":
                return Completed("held")
            return Failed("held")

        return await self.commit(create)

    @phase(At)
    async def at(self, at: At) -> Next[Any]:
        outcomes = await self.outcomes([at.n, at.n + 1])  # type: ignore[list-item]
        return Completed([outcome.status for outcome in outcomes])


async def test_an_owner_waits_without_code_and_reads_the_outcomes() -> None:
    async with opened(MemoryStorage(), Owner, Sleeper) as on:
        assert await on.run(Owner, "wait") == CompletedOutcome(result=["completed", "completed"])
        assert trio.current_time() == 6


async def test_an_outcome_is_held_until_the_work_below_has_ended() -> None:
    async with opened(MemoryStorage(), Owner, Sleeper) as on:
        task = await on.start(Owner, "complete")
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert (await on.harness.get_task(task)).state.status == "completing"
        views = {view.id: view for view in on.harness.inspect().tasks}
        assert (views[task].why, views[task].phase) == ("completing", None)
        with raises(TaskRefused, match="ending or missing"):
            await on.start(Ticker, CountTo(1), owner=task)
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"
        assert trio.current_time() == 6


@mark.parametrize("crashed", [False, True])
async def test_a_held_outcome_other_than_completed_aborts_the_work_below(crashed: bool) -> None:
    storage = MemoryStorage()
    async with opened(storage, Owner, Sleeper) as on:
        if not crashed:
            outcome = await on.run(Owner, "fail")
            assert outcome.status == "failed"
            assert trio.current_time() < 5
            return
        on.harness.resume()
        task = await on.start(Owner, "fail")
        await until(lambda: any(v.status == "completing" for v in on.harness.inspect().tasks))
        storage = storage.snapshot()
    began = trio.current_time()
    async with opened(storage, Owner, Sleeper) as on:
        assert outcome_of(await on.harness.wait_for_task(task)).status == "failed"
        assert trio.current_time() == began


@mark.parametrize("held", ["wait", "complete"])
async def test_an_abort_reaches_the_work_below_first_and_a_held_outcome_stands(held: str) -> None:
    async with opened(MemoryStorage(), Owner, Sleeper) as on:
        on.harness.resume()
        task = await on.start(Owner, held)
        await trio.testing.wait_all_tasks_blocked()
        record = await on.harness.abort_task(task, reason="all of it")
        assert outcome_of(record).status == ("aborted" if held == "wait" else "completed")
        for child in (task + 1, task + 2):
            below = await on.harness.get_task(child)
            assert outcome_of(below) == AbortedOutcome(reason="all of it")
            assert below.ended_at_ms is not None
            assert record.ended_at_ms is not None
            assert below.ended_at_ms <= record.ended_at_ms
        assert trio.current_time() < 5


class FailFast(TaskActor[bool, Any], kind="test.fail-fast"):
    """Waits for a child that fails at once and for one that takes an hour."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[Any]:
        def create(tx: Tx) -> int:
            tx.create_task(Fails, None, owner=self.task_id)
            return tx.create_task(Sleeper, 3_600.0, owner=self.task_id)

        last = await self.commit(create)
        if self.input:
            # It has failed long before anybody waits for it.
            await self.sleep(5)
        return WaitFor([last - 1, last], At(last), policy="fail_fast")  # type: ignore[list-item]

    @phase(At)
    async def at(self, at: At) -> Next[Any]:
        outcomes = await self.outcomes([at.n - 1, at.n])  # type: ignore[list-item]
        return Completed([outcome.status for outcome in outcomes])


class Fails(TaskActor[None, None], kind="test.fails-at-once"):
    """Fails at once."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        await self.sleep(1)
        return Failed("at once")


@mark.parametrize("before", [False, True])
async def test_fail_fast_stops_the_others_at_the_first_that_does_not_complete(before: bool) -> None:
    async with opened(MemoryStorage(), FailFast, Fails, Sleeper) as on:
        assert await on.run(FailFast, before) == CompletedOutcome(result=["failed", "aborted"])
        assert trio.current_time() < 10


async def test_fail_fast_on_a_task_that_is_no_own_child_is_a_fault() -> None:
    class Meddles(TaskActor[int, None], kind="test.meddles"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            return WaitFor([self.input], At(), policy="fail_fast")  # type: ignore[list-item]

        @phase(At)
        async def at(self, at: At) -> Next[None]:
            return Completed(None)

    async with opened(MemoryStorage(), Meddles, Sleeper) as on:
        other = await on.start(Sleeper, 60.0)
        outcome = await on.run(Meddles, other)
        assert isinstance(outcome, FaultedOutcome)
        assert "own children" in str(outcome.error)


async def test_a_task_that_waits_for_another_conversations_task_is_woken_too() -> None:
    class Waits(TaskActor[int, str], kind="test.waits-for"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            return WaitFor([self.input], At())  # type: ignore[list-item]

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("woken")

    storage = MemoryStorage()
    async with opened(storage, Waits, Sleeper) as on:
        other = await on.harness.create_conversation()
        asleep = await other.commit(lambda tx: tx.create_task(Sleeper, 30.0))
        task = await on.start(Waits, asleep)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        views = {view.id: view for view in on.harness.inspect().tasks}
        assert (views[task].why, views[task].waiting_on) == ("waiting", (asleep,))
        crashed = storage.snapshot()
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"
    async with opened(crashed, Waits, Sleeper) as on:
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"


@mark.slow
async def test_a_wait_for_more_tasks_than_a_page_holds_survives_a_crash() -> None:
    class Many(TaskActor[int, int], kind="test.many"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[int]:
            def create(tx: Tx) -> list[Any]:
                return [
                    tx.create_task(Sleeper, 60.0, owner=self.task_id) for _ in range(self.input)
                ]

            return WaitFor(await self.commit(create), At())

        @phase(At)
        async def at(self, at: At) -> Next[int]:
            return Completed(self.input)

    storage = MemoryStorage()
    async with opened(storage, Many, Sleeper) as on:
        task = await on.start(Many, 1_300)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        crashed = storage.snapshot()
    async with opened(crashed, Many, Sleeper) as on:
        assert outcome_of(await on.harness.wait_for_task(task)) == CompletedOutcome(result=1_300)
