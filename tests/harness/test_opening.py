"""What a caller of `open_harness` sees, however the body, the storage or the engine ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio
import trio.testing
from pytest import RaisesGroup, mark, raises

from pidurable_actors import Conversation, Next, Settings, TaskActor, Tx, open_harness, phase
from pidurable_actors.agent import AGENT
from pidurable_actors.errors import (
    HarnessBug,
    HarnessClosed,
    ReadOnlySession,
    SessionFailed,
    StorageInUse,
)
from pidurable_actors.records import Batch, Running, TaskId
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing._through import ThroughStorage
from pidurable_actors.testing.faults import BrokenClock, FaultyStorage
from tests._tasks import CountTo, One, Sleeper, Ticker, append, notes, opened, outcome_of, until


class Waits(TaskActor[None, None], kind="test.waits"):
    """Runs until it is stopped."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        await trio.sleep_forever()
        raise AssertionError


class Raises(TaskActor[str, None], kind="test.raises"):
    """Raises what ends a process."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        await trio.lowlevel.checkpoint()
        raise {"interrupt": KeyboardInterrupt, "exit": SystemExit}[self.input]("now")


class RaisesInAGroup(TaskActor[None, None], kind="test.raises-in-a-group"):
    """Raises it from a nursery of its own."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._child)
        raise AssertionError

    async def _child(self) -> None:
        await trio.lowlevel.checkpoint()
        raise SystemExit(3)


# --- normal end ---


async def test_after_the_block_the_storage_is_free_and_the_handles_say_closed() -> None:
    storage = MemoryStorage()
    async with opened(storage) as on:
        await on.root.commit(append("x"))
    assert (await on.harness.closed()).reason == "closed"
    with raises(HarnessClosed):
        await on.root.commit(append("y"))
    async with opened(storage) as again:
        assert await notes(again.root) == ["x"]


async def test_closed_returns_to_everybody_who_waits_for_it() -> None:
    ends: list[str] = []
    async with trio.open_nursery() as nursery, opened(MemoryStorage()) as on:

        async def wait() -> None:
            end = await on.harness.closed()
            assert end.error is None
            ends.append(end.reason)

        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert ends == []
    assert ends == ["closed", "closed"]


async def test_a_wait_that_is_pending_at_the_close_is_told() -> None:
    told: list[type[Exception]] = []
    async with trio.open_nursery() as nursery, opened(MemoryStorage(), Waits) as on:
        task = await on.start(Waits)

        async def wait() -> None:
            try:
                await on.harness.wait_for_task(task)
            except HarnessClosed as error:
                told.append(type(error))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
    assert told == [HarnessClosed]


# --- cancellation from outside ---


async def test_the_hosts_cancellation_ends_the_body_and_closes_in_order() -> None:
    storage = MemoryStorage()
    with trio.move_on_after(3) as scope:
        async with opened(storage, Waits) as on:
            task = await on.start(Waits)
            on.harness.resume()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert on.reports == []
    assert (await on.harness.closed()).reason == "closed"
    async with opened(storage, Waits) as again:
        record = await again.harness.get_task(task)
        assert (record.state.status, record.restarts) == ("pending", 0)


async def test_a_cancelled_nursery_of_the_host_ends_it_too() -> None:
    storage = MemoryStorage()

    async def service() -> None:
        async with opened(storage, Waits) as on:
            await on.start(Waits)
            on.harness.resume()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(service)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    async with opened(storage, Waits):
        pass


async def test_cancelled_while_opening_the_storage_is_free_again() -> None:
    for steps in range(12):
        storage = MemoryStorage()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, scope, steps)
                async with opened(storage):
                    await trio.sleep_forever()
        assert scope.cancelled_caught
        async with opened(storage):
            pass


async def _cancel_after(scope: trio.CancelScope, steps: int) -> None:
    for _ in range(steps):
        await trio.lowlevel.cancel_shielded_checkpoint()
    scope.cancel()


async def test_cancelled_during_the_close_the_close_is_finished_and_the_bodys_error_stands() -> (
    None
):
    class Holds(TaskActor[None, None], kind="test.holds"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            await trio.lowlevel.checkpoint()
            raise AssertionError

    with raises(LookupError, match="of the body"), trio.move_on_after(3):
        async with opened(MemoryStorage(), Holds) as on:
            await on.start(Holds)
            on.harness.resume()
            await trio.testing.wait_all_tasks_blocked()
            raise LookupError("of the body")
    assert trio.current_time() == 5


# --- the body raises ---


async def test_what_the_body_raises_comes_out_bare() -> None:
    storage = MemoryStorage()
    error = LookupError("mine")
    with raises(LookupError) as told:
        async with opened(storage, Waits) as on:
            await on.start(Waits)
            on.harness.resume()
            raise error
    assert told.value is error
    async with opened(storage, Waits) as again:
        (view,) = again.harness.inspect().tasks
        assert (view.status, view.restarts) == ("pending", 0)


async def test_a_group_comes_out_only_if_the_body_raised_one() -> None:
    async def fail(error: Exception) -> None:
        raise error

    with RaisesGroup(ValueError, KeyError):
        async with open_harness(MemoryStorage()), trio.open_nursery() as nursery:
            nursery.start_soon(fail, ValueError())
            nursery.start_soon(fail, KeyError())


@mark.parametrize("error", [KeyboardInterrupt, SystemExit, StopAsyncIteration, GeneratorExit])
async def test_what_the_body_raises_may_be_anything(error: type[BaseException]) -> None:
    storage = MemoryStorage()
    with raises(error):
        async with opened(storage):
            raise error
    async with opened(storage):
        pass


# --- what ends the process ---


@mark.parametrize(("what", "error"), [("interrupt", KeyboardInterrupt), ("exit", SystemExit)])
async def test_what_ends_the_process_passes_through_a_phase_and_closes(
    what: str, error: type[BaseException]
) -> None:
    storage = MemoryStorage()
    with raises(error) as told:
        async with opened(storage, Raises, Waits) as on:
            task = await on.start(Raises, what)
            other = await on.start(Waits)
            await on.harness.wait_for_task(task)
    assert told.value.args == ("now",)
    async with opened(storage, Raises, Waits) as again:
        for each in (task, other):
            record = await again.harness.get_task(each)
            assert (record.state.status, record.restarts) == ("pending", 0)


async def test_what_ends_the_process_passes_through_from_a_nursery_of_a_phase() -> None:
    storage = MemoryStorage()
    with RaisesGroup(SystemExit):
        async with opened(storage, RaisesInAGroup) as on:
            await on.harness.wait_for_task(await on.start(RaisesInAGroup))
    async with opened(storage, RaisesInAGroup) as again:
        (view,) = again.harness.inspect().tasks
        assert (view.status, view.restarts) == ("pending", 0)


async def test_what_ends_the_process_passes_through_a_callback_of_the_body() -> None:
    storage = MemoryStorage()

    def change(tx: Tx) -> None:
        append("gone")(tx)
        raise KeyboardInterrupt

    with raises(KeyboardInterrupt):
        async with opened(storage) as on:
            await on.root.commit(change)
    async with opened(storage) as again:
        assert await notes(again.root) == []


# --- a bug of the runtime ---


async def test_a_bug_of_the_runtime_cancels_the_body_and_is_raised_with_what_the_body_raised() -> (
    None
):
    for body_error in (None, LookupError("of the body")):
        clock = BrokenClock()
        with raises(HarnessBug) as told:
            async with opened(MemoryStorage(), Sleeper, clock=clock) as on:
                await on.start(Sleeper, 10.0)
                on.harness.resume()
                await trio.testing.wait_all_tasks_blocked()
                clock.broken = True
                try:
                    await trio.sleep_forever()
                finally:
                    if body_error is not None:
                        raise body_error
        assert isinstance(told.value.__cause__, ZeroDivisionError)
        assert told.value.body_error is body_error
        ended = await on.harness.closed()
        assert (ended.reason, ended.error) == ("failed", told.value.__cause__)


@mark.parametrize("blocking", [False, True])
async def test_a_bug_while_a_commit_is_published_leaves_nobody_waiting(blocking: bool) -> None:
    """Break the clock while a write is held, so that settling it fails: an outcome must come."""
    clock = BrokenClock()
    storage = _Breaking(MemoryStorage(), blocking=blocking, clock=clock)
    told: list[BaseException] = []

    async def call(root: Conversation) -> None:
        try:
            await root.commit(append("x"))
        except (SessionFailed, ZeroDivisionError) as error:
            told.append(error)

    with raises(HarnessBug):
        async with opened(storage, Waits, clock=clock) as on:
            await on.start(Waits)
            on.harness.resume()
            await until(lambda: on.harness.inspect().tasks[0].why == "running")
            storage.breaks = True
            # Shielded, because the bug cancels the body.
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(call, on.root)
    assert len(told) == 3


class _Breaking(ThroughStorage):
    """Breaks a clock with the first write after it was told to."""

    def __init__(self, inner: MemoryStorage, *, blocking: bool, clock: BrokenClock) -> None:
        super().__init__(inner, blocking=blocking)
        self._clock = clock
        self.breaks = False

    def apply(self, batches: Sequence[Batch]) -> None:
        super().apply(batches)
        if self.breaks:
            self._clock.broken = True


# --- several ---


async def test_harnesses_nest_and_do_not_mix() -> None:
    first, second = MemoryStorage("a"), MemoryStorage("b")
    async with opened(first, Ticker) as one:
        async with opened(second, Ticker) as two:
            await one.root.commit(append("one"))
            await two.root.commit(append("two"))
            assert (await two.run(Ticker, CountTo(3))).status == "completed"
        assert await notes(one.root) == ["one"]
        assert (await one.run(Ticker, CountTo(3))).status == "completed"


async def test_many_harnesses_run_beside_each_other() -> None:
    async def serve(number: int) -> None:
        async with opened(MemoryStorage(), Ticker) as on:
            assert (await on.run(Ticker, CountTo(number))).status == "completed"
            await on.root.commit(append(str(number)))
            assert await notes(on.root) == [str(number)]

    async with trio.open_nursery() as nursery:
        for number in range(1, 11):
            nursery.start_soon(serve, number)


async def test_a_failing_harness_does_not_touch_another() -> None:
    storage = FaultyStorage(MemoryStorage())
    async with opened(MemoryStorage()) as good:
        with raises(SessionFailed):
            async with opened(storage) as bad:
                storage.arm(at_write=1)
                with raises(Exception, match="disk"):
                    await bad.root.commit(append("x"))
        await good.root.commit(append("x"))


async def test_a_second_owner_is_refused_at_once_and_the_first_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    async with opened(SqliteStorage(path)) as on:
        with raises(StorageInUse):
            async with opened(SqliteStorage(path)):
                raise AssertionError
        await on.root.commit(append("still here"))
        assert await notes(on.root) == ["still here"]
    async with opened(SqliteStorage(path)) as again:
        assert await notes(again.root) == ["still here"]


# --- looking before anything runs ---


async def test_only_calls_that_ask_for_progress_start_the_scheduler() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        task = await on.start(Ticker, CountTo(2))
        await on.root.entries()
        await on.root.configure(thinking_level="low")
        await on.harness.get_task(task)
        await trio.testing.wait_all_tasks_blocked()
        assert not on.harness.inspect().scheduling
        assert (await on.harness.get_task(task)).state.status == "pending"
        await on.harness.wait_for_task(task)
        assert on.harness.inspect().scheduling


async def test_resume_is_plain_and_again_does_nothing() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        task = await on.start(Ticker, CountTo(2))
        on.harness.resume()
        on.harness.resume()
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"
        on.harness.resume()


async def test_a_reader_looks_beside_the_owner_and_changes_and_schedules_nothing() -> None:
    storage = MemoryStorage()
    async with opened(storage, Ticker) as on:
        await on.root.commit(append("seen"))
        task = await on.start(Ticker, CountTo(2))
        async with open_harness(storage.peer(), read_only=True) as reader:
            root = await reader.root()
            assert await notes(root) == ["seen"]
            (view,) = reader.inspect().tasks
            assert (view.id, view.why) == (task, "blocked")
            for call in (
                lambda: root.commit(append("no")),
                lambda: root.submit("no"),
                lambda: reader.wait_for_task(task),
                lambda: reader.abort_task(task),
                lambda: reader.retry_task(task),
                root.wait_for_idle,
            ):
                with raises(ReadOnlySession):
                    await call()
            with raises(ReadOnlySession):
                reader.resume()
            # What the owner does meanwhile is seen.
            await on.harness.wait_for_task(task)
            assert outcome_of(await reader.get_task(task)).status == "completed"
            assert outcome_of(await reader.wait_for_task(task)).status == "completed"
            # In a commit that only reads as well, twice over.
            for model in ("scripted/a", "scripted/b"):
                await on.root.commit(partial(choose, model=model))
                assert await root.commit(chosen) == model
            ended = await root.commit(lambda tx: tx.task(TaskId(task)))
            assert outcome_of(ended).status == "completed"
        await on.root.commit(append("still the owner"))


async def choose(tx: Tx, *, model: str) -> None:
    (await tx.doc(AGENT)).model = model


async def chosen(tx: Tx) -> str | None:
    return (await tx.doc(AGENT)).model


async def test_a_reader_leaves_what_a_crash_left_as_it_is() -> None:
    storage = MemoryStorage()
    async with opened(storage, Waits) as on:
        task = await on.start(Waits)
        on.harness.resume()
        await until(lambda: any(v.why == "running" for v in on.harness.inspect().tasks))
        crashed = storage.snapshot()
    first = crashed.snapshot()
    first.open(read_only=False)
    async with open_harness(first.peer(), read_only=True) as reader:
        record = await reader.get_task(TaskId(task))
        assert isinstance(record.state, Running)


# --- settings ---


async def test_settings_may_be_a_function_that_is_asked_at_each_decision() -> None:
    policy = Settings(restart_limit=1)
    storage = MemoryStorage()
    async with opened(storage, Waits, settings=lambda: policy) as on:
        task = await on.start(Waits)
        on.harness.resume()
        await until(lambda: any(v.why == "running" for v in on.harness.inspect().tasks))
        crashed = storage.snapshot()
    policy = Settings(restart_limit=2)
    async with opened(crashed, Waits, settings=lambda: policy) as on:
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert (await on.harness.get_task(task)).state.status == "running"
