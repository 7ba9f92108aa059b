"""A storage that fails ends its harness: nothing is retried, nobody is left waiting."""

from __future__ import annotations

import threading

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import Next, Settings, TaskActor, Tx, phase
from pidurable_actors.errors import SessionFailed, StorageError, StorageHung
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import DiskError, FaultyStorage, HangingStorage
from tests._tasks import CountTo, One, Sleeper, Ticker, append, notes, opened, outcome_of, until


class Stuck(TaskActor[None, None], kind="test.stuck"):
    """Runs until it is stopped."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        await trio.sleep_forever()
        raise AssertionError


async def expect(error: type[Exception], opening: object, told: list[BaseException]) -> None:
    """Wait for something that must fail with `error`."""
    try:
        await opening  # type: ignore[misc]
    except error as raised:
        told.append(raised)


@mark.parametrize("wrote", [False, True])
@mark.parametrize("error", [DiskError, OSError])
async def test_the_call_that_met_it_raises_it_and_everything_later_fails_from_it(
    wrote: bool, error: type[Exception]
) -> None:
    storage = FaultyStorage(MemoryStorage(), wrote=wrote, error=error)
    with raises(SessionFailed) as at_the_end:
        async with opened(storage, Stuck) as on:
            await on.root.commit(append("first"))
            storage.arm(at_write=1)
            with raises(error) as met:
                await on.root.commit(append("second"))
            for call in (
                lambda: on.root.commit(append("third")),
                lambda: on.root.submit("no"),
                on.root.entries,
                lambda: on.harness.wait_for_task(3),
            ):
                with raises(SessionFailed) as later:
                    await call()
                assert later.value.__cause__ is met.value
            # The body is not cancelled; it learns of the end if it asks.
            ended = await on.harness.closed()
            assert (ended.reason, ended.error) == ("failed", met.value)
            await trio.lowlevel.checkpoint()
    assert at_the_end.value.__cause__ is met.value
    assert [(r.kind, r.error) for r in on.reports] == [("storage_failed", met.value)]

    async with opened(storage.inner) as again:
        assert await notes(again.root) == (["first", "second"] if wrote else ["first"])


async def test_pending_waits_and_queued_commits_fail_from_it_and_running_work_is_stopped() -> None:
    """Let one write fail while others are queued behind it, waits are pending and a task runs."""
    storage = HangingStorage(failing := FaultyStorage(MemoryStorage()))
    told: list[BaseException] = []
    with raises(SessionFailed):
        async with opened(storage, Stuck) as on, trio.open_nursery() as nursery:
            task = await on.start(Stuck)
            on.harness.resume()
            await until(lambda: any(view.why == "running" for view in on.harness.inspect().tasks))
            nursery.start_soon(expect, SessionFailed, on.harness.wait_for_task(task), told)
            nursery.start_soon(expect, SessionFailed, on.root.wait_for_idle(), told)
            await trio.testing.wait_all_tasks_blocked()
            storage.hang()
            failing.arm(at_write=1)
            nursery.start_soon(expect, DiskError, on.root.commit(append("met it")), told)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(expect, SessionFailed, on.root.commit(append("queued")), told)
            await trio.testing.wait_all_tasks_blocked()
            storage.release()
            await on.harness.closed()
    assert sorted(type(error).__name__ for error in told) == ["DiskError"] + ["SessionFailed"] * 3
    (met,) = (error for error in told if isinstance(error, DiskError))
    assert all(error is met or error.__cause__ is met for error in told)

    async with opened(failing.inner, Stuck) as again:
        # It was running when the storage went: that counts as a cut.
        assert (await again.harness.get_task(task)).restarts == 1


async def test_a_callback_under_way_when_storage_fails_is_told_and_stores_nothing() -> None:
    storage = HangingStorage(failing := FaultyStorage(MemoryStorage()))
    told: list[BaseException] = []
    gate = trio.Event()

    async def slow(tx: Tx) -> None:
        append("slow")(tx)
        await gate.wait()

    with raises(SessionFailed):
        async with opened(storage) as on, trio.open_nursery() as nursery:
            storage.hang()
            failing.arm(at_write=1)
            nursery.start_soon(expect, DiskError, on.root.commit(append("fails")), told)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(expect, SessionFailed, on.root.commit(slow), told)
            await trio.testing.wait_all_tasks_blocked()
            storage.release()
            await on.harness.closed()
            gate.set()
    assert [type(error) for error in told] == [DiskError, SessionFailed]
    async with opened(failing.inner) as again:
        assert await notes(again.root) == []


async def test_a_storage_error_in_a_commit_of_the_supervisor_is_no_bug_of_the_runtime() -> None:
    for error in (DiskError, OSError):
        storage = FaultyStorage(MemoryStorage(), error=error)
        with raises(SessionFailed) as told:
            async with opened(storage, Ticker) as on:
                await on.start(Ticker, CountTo(3))
                storage.arm(at_write=1)
                on.harness.resume()
                await on.harness.closed()
        assert isinstance(told.value.__cause__, error)
        assert on.kinds() == ["storage_failed"]


async def test_a_storage_error_in_a_commit_of_a_task_is_no_fault_of_the_task() -> None:
    for error in (DiskError, OSError):
        storage = FaultyStorage(MemoryStorage(), error=error)
        with raises(SessionFailed):
            async with opened(storage, Ticker) as on:
                on.harness.resume()
                task = await on.start(Ticker, CountTo(50))
                storage.arm(at_write=6)
                await on.harness.wait_for_task(task)
        assert on.kinds() == ["storage_failed"]
        async with opened(storage.inner, Ticker) as on:
            assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"


async def test_a_failing_read_raises_its_error_and_ends_the_harness() -> None:
    storage = FaultyStorage(MemoryStorage())
    with raises(SessionFailed) as told:
        async with opened(storage) as on:
            storage.arm(at_read=1)
            with raises(DiskError):
                await on.root.entries()
            with raises(SessionFailed):
                await on.root.entries()
    assert isinstance(told.value.__cause__, DiskError)


async def test_c12_reads_that_fail_during_recovery_fail_the_open_and_the_next_open_recovers_all() -> (
    None
):
    """Fail the n-th read of an open with 250 tasks, for each n; the open fails as a whole."""
    crashed = MemoryStorage()
    async with opened(crashed, Sleeper, Ticker) as on:
        tasks = [await on.start(Sleeper, 3600.0) for _ in range(200)]
        tasks += [await on.start(Ticker, CountTo(3)) for _ in range(50)]
    failures = 0
    for at in range(1, 101):
        storage = FaultyStorage(crashed, at_read=at)
        try:
            async with opened(storage, Sleeper, Ticker):
                assert not storage.failed
                break
        except StorageError as error:
            assert isinstance(error, DiskError)
            failures += 1
        except SessionFailed:
            failures += 1
    assert failures >= 2
    async with opened(crashed, Sleeper, Ticker) as on:
        for task in tasks:
            assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"


@mark.real_time
async def test_a_storage_that_hangs_is_given_up_in_real_time_and_the_close_does_not_wait_for_it() -> (
    None
):
    with HangingStorage(MemoryStorage()) as storage:
        with raises(SessionFailed) as told:
            async with opened(storage, settings=Settings(commit_timeout_s=0.05)) as on:
                storage.hang()
                with raises(StorageHung, match=r"within 0.05 s"):
                    await on.root.commit(append("lost"))
        assert isinstance(told.value.__cause__, StorageHung)
        assert [(r.kind, r.reason) for r in on.reports] == [
            ("storage_failed", ""),
            ("close_held", "storage_hung"),
        ]


async def test_a_storage_that_hangs_is_given_up_although_virtual_time_stands_still() -> None:
    with HangingStorage(MemoryStorage()) as storage, raises(SessionFailed):
        async with opened(storage, settings=Settings(commit_timeout_s=0.05)) as on:
            began = trio.current_time()
            storage.hang()
            with raises(StorageHung):
                await on.root.commit(append("lost"))
            assert trio.current_time() == began


async def test_no_thread_is_left_after_a_close_or_a_failed_open() -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        async with opened(HangingStorage(MemoryStorage())) as on:
            await on.root.commit(append("x"))
    memory = MemoryStorage()
    async with opened(memory):
        for _ in range(3):
            with raises(Exception, match="in use"):
                async with opened(HangingStorage(memory.peer())):
                    raise AssertionError
    assert set(threading.enumerate()) <= before
