"""Corners of the engine that only trouble reaches: reports, closes and bugs in odd moments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import Completed, Next, Settings, TaskActor, Tx, open_harness, phase
from pidurable_actors._clock import TrioClock
from pidurable_actors.errors import HarnessBug, SessionFailed
from pidurable_actors.records import FaultedOutcome, TaskId, TaskOutcome, TaskRecord
from pidurable_actors.runtime import Report
from pidurable_actors.storage.memory import MemoryStorage
from tests._fakes import BrokenClock, DiskError, FailingStorage, ThroughStorage
from tests._tasks import At, CountTo, One, Sleeper, Ticker, append, opened, outcome_of


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
    storage = FailingStorage(MemoryStorage())
    with raises(SessionFailed) as told:
        async with opened(storage, Stuck) as on:
            for _ in range(3):
                await on.start(Stuck)
            on.harness.resume()
            await trio.testing.wait_all_tasks_blocked()
            storage.armed = 0
    assert isinstance(told.value.__cause__, DiskError)
    assert on.kinds() == ["storage_failed"]
    assert (await on.harness.closed()).reason == "failed"


@mark.parametrize("at_once", [1, 3])
async def test_a_report_handler_that_wants_to_end_the_process_ends_it(at_once: int) -> None:
    def report(told: Report) -> None:
        raise KeyboardInterrupt

    storage = FailingStorage(MemoryStorage())
    with raises((KeyboardInterrupt, BaseExceptionGroup)):
        async with opened(storage, on_report=report) as on, trio.open_nursery() as nursery:
            storage.armed = 0
            for number in range(at_once):
                nursery.start_soon(on.root.commit, append(str(number)))
    async with opened(storage.inner):
        pass


async def test_a_bug_in_a_decision_of_the_supervisor_ends_the_harness() -> None:
    clock = BrokenClock(TrioClock())
    with raises(HarnessBug) as told:
        async with opened(MemoryStorage(), Ticker, clock=clock) as on:
            await on.start(Ticker, CountTo(1))
            clock.broken = True
            on.harness.resume()
            await trio.sleep_forever()
    assert isinstance(told.value.__cause__, ZeroDivisionError)


async def test_a_bug_closes_the_storage_and_leaves_no_thread() -> None:
    before = threading.active_count()
    memory = MemoryStorage()
    clock = BrokenClock(TrioClock())
    with raises(HarnessBug):
        async with opened(
            ThroughStorage(memory, blocking=True), Stuck, Sleeper, clock=clock
        ) as on:
            await on.start(Stuck)
            await on.start(Sleeper, 1.0)
            on.harness.resume()
            await trio.testing.wait_all_tasks_blocked()
            clock.broken = True
            await trio.sleep_forever()
    assert threading.active_count() == before
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
    async def ended_by_runtime(
        cls, tx: Tx, task: TaskRecord, outcome: TaskOutcome
    ) -> TaskOutcome:
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
        assert sorted(str(r.error) for r in on.reports) == ["'in the hook'", "its own"]


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
            lambda: on.harness.root(),
            lambda: on.harness.conversation(1),
            lambda: on.harness.conversations(),
            lambda: on.harness.create_conversation(),
            lambda: on.harness.get_task(task),
            lambda: on.harness.wait_for_task(task),
            lambda: on.harness.abort_task(task),
            lambda: on.harness.usage(),
            lambda: on.root.entries(),
            lambda: on.root.record(),
            lambda: on.root.busy(),
            lambda: on.root.wait_for_idle(),
            lambda: on.root.abort(),
            lambda: on.root.configure(thinking_level="low"),
        ):
            with trio.testing.assert_checkpoints():
                await call()
    with trio.testing.assert_checkpoints():
        await on.harness.closed()
