"""Corners of the engine that only trouble reaches: reports, closes and bugs in odd moments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import (
    BACKGROUND,
    Completed,
    Context,
    Next,
    Settings,
    SleepUntil,
    TaskActor,
    Tx,
    WaitFor,
    open_harness,
    phase,
)
from pidurable_actors._clock import TrioClock
from pidurable_actors.actors import StorageActor
from pidurable_actors.actors._endings import stop_crash_loop
from pidurable_actors.actors._invocation import Invocation
from pidurable_actors.errors import HarnessBug, SessionFailed, StorageCorrupt
from pidurable_actors.records import (
    AbortedOutcome,
    CompletedOutcome,
    FaultedOutcome,
    TaskId,
    TaskOutcome,
    TaskRecord,
    Waiting,
)
from pidurable_actors.runtime import Report, Reporter, end_task
from pidurable_actors.session import Binding, Line, SessionState
from pidurable_actors.storage import Head, Lane
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing._through import ThroughStorage
from pidurable_actors.testing.faults import BrokenClock, DiskError, FaultyStorage, HangingStorage
from tests._tasks import (
    At,
    CountTo,
    One,
    Opened,
    Sleeper,
    Ticker,
    append,
    opened,
    outcome_of,
    until,
)


class Stuck(TaskActor[None, None], kind="test.stuck"):
    """Runs until it is stopped."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        await trio.sleep_forever()
        raise AssertionError


class FailingClose(ThroughStorage):
    """Fails its close."""

    def close(self) -> None:
        super().close()
        raise OSError("while closing")


async def test_a_close_that_fails_is_reported_and_the_block_ends_normally() -> None:
    storage = FailingClose(MemoryStorage())
    async with opened(storage) as on:
        await on.root.commit(append("x"))
    assert [(r.kind, r.reason, str(r.error)) for r in on.reports] == [
        ("storage_failed", "close", "while closing")
    ]


async def test_a_storage_that_fails_during_the_close_is_raised_at_the_end_of_the_block() -> None:
    storage = FaultyStorage(MemoryStorage())
    with raises(SessionFailed) as told:
        async with opened(storage, Stuck) as on:
            for _ in range(3):
                await on.start(Stuck)
            on.harness.resume()
            await trio.testing.wait_all_tasks_blocked()
            storage.arm(at_write=1)
    assert isinstance(told.value.__cause__, DiskError)
    assert on.kinds() == ["storage_failed"]
    assert (await on.harness.closed()).reason == "failed"


@mark.parametrize("at_once", [1, 3])
async def test_a_report_handler_that_wants_to_end_the_process_ends_it(at_once: int) -> None:
    def report(told: Report) -> None:
        raise KeyboardInterrupt

    storage = FaultyStorage(MemoryStorage())
    with raises((KeyboardInterrupt, BaseExceptionGroup)):
        async with opened(storage, on_report=report) as on, trio.open_nursery() as nursery:
            storage.arm(at_write=1)
            for number in range(at_once):
                nursery.start_soon(on.root.commit, append(str(number)))
    async with opened(storage.inner):
        pass


async def test_a_bug_in_a_decision_of_the_supervisor_ends_the_harness() -> None:
    clock = BrokenClock()
    with raises(HarnessBug) as told:
        async with opened(MemoryStorage(), Ticker, clock=clock) as on:
            await on.start(Ticker, CountTo(1))
            clock.broken = True
            on.harness.resume()
            await trio.sleep_forever()
    assert isinstance(told.value.__cause__, ZeroDivisionError)


async def test_a_bug_closes_the_storage_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    memory = MemoryStorage()
    clock = BrokenClock()
    with raises(HarnessBug):
        async with opened(ThroughStorage(memory, blocking=True), Stuck, Sleeper, clock=clock) as on:
            await on.start(Stuck)
            await on.start(Sleeper, 1.0)
            on.harness.resume()
            await trio.testing.wait_all_tasks_blocked()
            clock.broken = True
            await trio.sleep_forever()
    assert set(threading.enumerate()) <= before
    async with opened(memory, Stuck, Sleeper):
        pass


class HasHook(TaskActor[bool, None], kind="test.has-hook"):
    """Leaves something behind when the runtime ends it, or fails to."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        raise ValueError("its own")

    @classmethod
    async def ended_by_runtime(cls, tx: Tx, task: TaskRecord, outcome: TaskOutcome) -> TaskOutcome:
        if task.input:
            raise LookupError("in the hook")
        append("left behind")(tx)
        assert isinstance(outcome, FaultedOutcome)
        return FaultedOutcome(error="with my own words")


async def test_a_class_says_what_it_leaves_when_the_runtime_ends_it() -> None:
    async with opened(MemoryStorage(), HasHook) as on:
        outcome = await on.run(HasHook, False)
        assert isinstance(outcome, FaultedOutcome)
        assert outcome.error == "with my own words"
        assert len((await on.root.entries()).items) == 1


async def test_a_class_that_fails_to_say_so_is_ended_without_it_and_reported() -> None:
    async with opened(MemoryStorage(), HasHook) as on:
        outcome = await on.run(HasHook, True)
        assert isinstance(outcome, FaultedOutcome)
        assert "its own" in str(outcome.error)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(str(r.error) for r in on.reports) == ["in the hook", "its own"]


async def test_a_hook_that_fails_at_the_restart_limit_is_done_without_too() -> None:
    class Hangs(HasHook, kind="test.has-hook"):
        @phase(One)
        async def one(self, at: One) -> Next[None]:
            await trio.sleep_forever()
            raise AssertionError

    for fails in (False, True):
        storage = MemoryStorage()
        settings = Settings(restart_limit=1)
        async with opened(storage, Hangs, settings=settings) as on:
            task = await on.start(Hangs, fails)
            on.harness.resume()
            await trio.testing.wait_all_tasks_blocked()
            crashed = storage.snapshot()
        async with opened(crashed, Hangs, Ticker, settings=settings) as on:
            assert (await on.run(Ticker, CountTo(2))).status == "completed"
            assert outcome_of(await on.harness.wait_for_task(task)).status == "faulted"
            assert len((await on.root.entries()).items) == (0 if fails else 1)
        told = ["handler_failed", "task_faulted"] if fails else ["task_faulted"]
        assert on.kinds() == told


@mark.slow
async def test_a_plain_callback_that_blocks_the_thread_is_stored_and_reported() -> None:
    async with opened(MemoryStorage()) as on:

        def slow(tx: Tx) -> None:
            append("x")(tx)
            threading.Event().wait(5.1)

        await on.root.commit(slow)
        (report,) = on.reports
        assert (report.kind, report.reason) == ("callback_slow", "blocked")
        assert "slow" in report.detail


async def test_a_harness_without_a_report_handler_runs_as_well() -> None:
    async with open_harness(MemoryStorage()) as harness:
        root = await harness.root()
        task = await root.commit(lambda tx: tx.create_task(Stuck, None))
        harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        (view,) = harness.inspect().tasks
        assert (view.id, view.why) == (task, "blocked")


async def test_the_runtime_provides_only_what_the_harness_has() -> None:
    class Asks(TaskActor[None, str], kind="test.asks"):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            with raises(LookupError, match="provides no int"):
                self.runtime.service(int)
            assert self.runtime.record.id == self.task_id
            return Completed("asked")

    async with opened(MemoryStorage(), Asks) as on:
        assert (await on.run(Asks)).status == "completed"


async def test_an_abort_of_an_owner_passes_by_children_that_are_marked_already() -> None:
    class Owner(TaskActor[None, None], kind="test.owner-of-two"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            def create(tx: Tx) -> None:
                for _ in range(2):
                    tx.create_task(Sleeper, 3_600.0, owner=self.task_id)

            await self.commit(create)
            await trio.sleep_forever()
            raise AssertionError

    async with opened(MemoryStorage(), Owner, Sleeper) as on:
        on.harness.resume()
        task = await on.start(Owner)
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            for each in (task + 1, task, task + 2):
                nursery.start_soon(_abort, on.harness.abort_task, each)
        for each in (task + 1, task, task + 2):
            assert outcome_of(await on.harness.get_task(each)).status == "aborted"


async def _abort(abort: Callable[..., Any], task_id: int) -> None:
    await abort(TaskId(task_id), reason=f"of {task_id}")


async def test_every_public_call_checkpoints() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        task = await on.start(Ticker, CountTo(1))
        await on.harness.wait_for_task(task)
        for call in (
            lambda: on.root.commit(append("x")),
            lambda: on.harness.commit(lambda tx: None),
            on.harness.root,
            lambda: on.harness.conversation(1),
            on.harness.conversations,
            on.harness.create_conversation,
            lambda: on.harness.get_task(task),
            lambda: on.harness.wait_for_task(task),
            lambda: on.harness.abort_task(task),
            on.harness.usage,
            on.root.entries,
            on.root.record,
            on.root.busy,
            on.root.wait_for_idle,
            on.root.abort,
            lambda: on.root.configure(thinking_level="low"),
        ):
            with trio.testing.assert_checkpoints():
                await call()
    with trio.testing.assert_checkpoints():
        await on.harness.closed()


async def test_what_is_no_exception_fails_only_its_task_as_long_as_it_ends_no_process() -> None:
    class Odd(TaskActor[bool, None], kind="test.odd"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            await self.sleep(0)
            if self.input:
                raise BaseExceptionGroup("a group", [GeneratorExit()])
            raise GeneratorExit

    async with opened(MemoryStorage(), Odd) as on:
        for in_a_group in (False, True):
            outcome = await on.run(Odd, in_a_group)
            assert isinstance(outcome, FaultedOutcome)
            assert "GeneratorExit" in str(outcome.error)


async def nowhere(_: object, __: object) -> Context:
    await trio.lowlevel.checkpoint()
    return BACKGROUND


async def test_a_run_that_has_not_begun_stands_nowhere() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        task = await on.start(Ticker, CountTo(1))
        record = await on.harness.get_task(task)
        engine = on.root._core.engine
        assert (
            Invocation(
                engine.host, Ticker, record, context_of=nowhere, kinds=lambda _: None
            ).stack()
            == ""
        )


async def test_children_that_end_in_one_commit_release_their_owner_once() -> None:
    class Holds(TaskActor[None, str], kind="test.holds-two"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            def create(tx: Tx) -> Next[str]:
                for _ in range(2):
                    tx.create_task(Sleeper, 3_600.0, owner=self.task_id)
                return Completed("held")

            return await self.commit(create)

    async with opened(MemoryStorage(), Holds, Sleeper) as on:
        on.harness.resume()
        owner = await on.start(Holds)
        await trio.testing.wait_all_tasks_blocked()

        async def end_both(tx: Tx) -> None:
            for child in (TaskId(owner + 1), TaskId(owner + 2)):
                end_task(tx, await tx.task(child), CompletedOutcome())

        await on.root.commit(end_both)
        assert outcome_of(await on.harness.get_task(owner)) == CompletedOutcome(result="held")
        assert on.harness.inspect().tasks == ()


async def test_awaited_tasks_that_end_in_one_commit_wake_their_waiter_once() -> None:
    class Waits(TaskActor[str, str], kind="test.waits-for-two"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            async def create(tx: Tx) -> Next[str]:
                children = [
                    tx.create_task(Sleeper, 3_600.0 + n, owner=self.task_id) for n in range(3)
                ]
                policy: Any = self.input
                return WaitFor(children, At(), policy=policy)

            return await self.commit(create)

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("woken")

    for policy in ("all_settled", "fail_fast"):
        async with opened(MemoryStorage(), Waits, Sleeper) as on:
            on.harness.resume()
            waiter = await on.start(Waits, policy)
            await trio.testing.wait_all_tasks_blocked()

            async def end(tx: Tx, first: int, last: int, waiter: int = waiter) -> None:
                for n in range(first, last + 1):
                    end_task(tx, await tx.task(TaskId(waiter + n)), AbortedOutcome())

            await on.root.commit(partial(end, first=1, last=2))
            if policy == "all_settled":
                assert (await on.harness.get_task(waiter)).state.status == "waiting"
                await on.root.commit(partial(end, first=3, last=3))
            outcome = outcome_of(await on.harness.wait_for_task(waiter))
            assert outcome == CompletedOutcome(result="woken")


async def test_the_writer_may_be_stopped_while_it_has_nothing_to_write() -> None:
    async with opened(MemoryStorage()) as on:
        writer = StorageActor(
            MemoryStorage(),
            Lane("test", inline=True, timeout_s=1),
            report=Reporter(None),
            publish=lambda publication: None,
            failed=lambda error: None,
            broken=lambda error: None,
        )
        writer.attach(on.root._core.engine.line)
        with trio.move_on_after(1) as scope:
            await writer.run()
        assert scope.cancelled_caught
        writer.stop()
        await writer.run()


async def test_rules_hold_when_one_commit_waits_ends_and_wakes() -> None:
    """Write, in one commit each, moves that no task makes alone, and look at what the rules add."""
    async with opened(MemoryStorage(), Stuck, Sleeper) as on:
        on.harness.resume()
        first, second = await on.start(Stuck), await on.start(Stuck)
        asleep = [await on.start(Sleeper, 60.0) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked()

        async def wait_for(tx: Tx, waiter: TaskId, awaited: TaskId) -> None:
            record = await tx.task(waiter)
            state = Waiting(checkpoint={"phase": "one"}, on=(awaited,))
            tx.tasks.put(attrs.evolve(record, state=state))

        async def wait_and_end(tx: Tx) -> None:
            await wait_for(tx, first, asleep[0])
            end_task(tx, await tx.task(asleep[0]), CompletedOutcome())

        await on.root.commit(wait_and_end)
        assert (await on.harness.get_task(first)).state.status == "running"

        async def end_both(tx: Tx) -> None:
            end_task(tx, await tx.task(second), CompletedOutcome())
            end_task(tx, await tx.task(asleep[1]), CompletedOutcome())

        await on.root.commit(lambda tx: wait_for(tx, second, asleep[1]))
        await on.root.commit(end_both)
        assert outcome_of(await on.harness.get_task(second)).status == "completed"


async def test_a_task_that_has_its_outcome_is_neither_ended_nor_parked_again() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        task = await on.start(Ticker, CountTo(1))
        await on.harness.wait_for_task(task)

        async def stop(tx: Tx) -> None:
            for policy in ("end", "park"):
                assert await stop_crash_loop(tx, Ticker, task, policy) is None

        await on.root.commit(stop)


class WithoutRecords(ThroughStorage):
    """Lists tasks that it cannot read."""

    def task(self, task_id: TaskId) -> TaskRecord | None:
        return None


async def test_a_live_task_that_cannot_be_read_fails_the_open_and_is_not_passed_over() -> None:
    memory = MemoryStorage()
    async with opened(memory, Stuck) as on:
        task = await on.start(Stuck)
    with raises(StorageCorrupt, match=f"task {task} is listed as live"):
        async with opened(WithoutRecords(memory), Stuck):
            raise AssertionError
    async with opened(memory, Stuck):
        pass


async def test_a_contradiction_that_the_engine_finds_itself_is_raised_as_it_is() -> None:
    bug = HarnessBug("task 7 cannot go from here to there")

    def contradict(tx: Tx) -> None:
        raise bug

    with raises(HarnessBug) as told:
        async with opened(MemoryStorage(), Stuck) as on:
            await on.start(Stuck)
            on.root._core.engine.line.rules.append(contradict)
            on.harness.resume()
            await trio.sleep_forever()
    assert told.value is bug


async def test_the_end_of_the_process_in_the_writer_leaves_nobody_waiting() -> None:
    """Fail a write that the writer makes for others, with a report handler that wants the end."""

    def report(told: Report) -> None:
        raise KeyboardInterrupt

    storage = HangingStorage(failing := FaultyStorage(MemoryStorage()))
    told: list[str] = []

    async def call(on: Opened, name: str) -> None:
        try:
            await on.root.commit(append(name))
        except (SessionFailed, DiskError) as error:
            told.append(type(error).__name__)

    with raises(KeyboardInterrupt):
        async with opened(storage, on_report=report) as on, trio.open_nursery() as nursery:
            storage.hang()
            nursery.start_soon(call, on, "first")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(call, on, "second")
            nursery.start_soon(call, on, "third")
            await trio.testing.wait_all_tasks_blocked()
            failing.arm(at_write=2)
            storage.release()
    assert told == ["DiskError", "DiskError"]


async def test_a_look_at_a_task_that_has_moved_on_does_nothing() -> None:
    """Ask the supervisor for tasks that have ended, or were never reserved, as a late event may."""
    async with opened(MemoryStorage(), Ticker, Sleeper) as on:
        ended = await on.start(Ticker, CountTo(1))
        await on.harness.wait_for_task(ended)
        asleep = await on.start(Sleeper, 60.0)
        await trio.testing.wait_all_tasks_blocked()
        supervisor = on.root._core.engine.supervisor
        supervisor._unstarted.add(asleep)
        for task in (ended, asleep):
            supervisor._look_at(task)
        await supervisor._stop_loop(await on.harness.get_task(ended))
        await trio.testing.wait_all_tasks_blocked()
        assert (await on.harness.get_task(asleep)).state.status == "sleeping"
        assert on.reports == []


async def test_a_storage_fails_once() -> None:
    with raises(SessionFailed) as told:
        async with opened(MemoryStorage()) as on:
            first, second = DiskError(), DiskError()
            writer = on.root._core.engine.storage
            writer.fail(first)
            writer.fail(second)
    assert told.value.__cause__ is first
    assert [report.error for report in on.reports] == [first]


async def test_a_line_of_its_own_starts_nothing() -> None:
    head = Head(commit=0, next_id=2, epoch=1)
    async with opened(MemoryStorage()) as on:
        reader = on.root._core.engine.storage
        line = Line(SessionState(head), reader, TrioClock(), read_only=False, log=lambda: 0)
        assert not line.schedulable("test", 1)
        assert line.begin(Binding()).next_id == 2


class SlowReads(ThroughStorage):
    """Answers some look-ups only after a while of real time.

    Attributes:
        slow: how many more it answers slowly.
    """

    slow = 0

    def before_read(self) -> None:
        if self.slow:
            self.slow -= 1
            threading.Event().wait(5.1)


@mark.slow
@mark.real_time
async def test_a_storage_that_is_slow_under_a_decision_is_no_bug() -> None:
    """Let one read of the supervisor's commit take longer than a callback may hold the line.

    The commit looks at a sleeping child and its sleeping owner; it is cut off between the two reads,
    and must be made again.
    """

    class Owns(TaskActor[None, None], kind="test.owns-a-sleeper"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            def create(tx: Tx) -> Next[None]:
                tx.create_task(Sleeper, 3_600.0, owner=self.task_id)
                return SleepUntil(tx.now_ms + 3_600_000, At())

            return await self.commit(create)

        @phase(At)
        async def at(self, at: At) -> Next[None]:
            return Completed(None)

    storage = SlowReads(MemoryStorage(), blocking=True)
    async with opened(storage, Owns, Sleeper) as on:
        on.harness.resume()
        owner = await on.start(Owns)
        await until(lambda: [v.status for v in on.harness.inspect().tasks] == ["sleeping"] * 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on.harness.wait_for_task, owner + 1)
            await trio.testing.wait_all_tasks_blocked()
            storage.slow = 1
            supervisor = on.root._core.engine.supervisor
            supervisor._mark_below(owner)
            supervisor._look_at(owner)
        assert outcome_of(await on.harness.get_task(owner + 1)).status == "aborted"
        assert [(r.kind, r.reason) for r in on.reports] == [("callback_slow", "cancelled")]
