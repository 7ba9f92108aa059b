"""Each fault is one fault and stores what the real storage stores; and what a harness makes of it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import (
    AgentChoice,
    Completed,
    Harness,
    Models,
    Next,
    Reply,
    ScriptedModel,
    Settings,
    TaskActor,
    WaitFor,
    open_harness,
    phase,
)
from pidurable_actors._clock import TrioClock, WallClock
from pidurable_actors.errors import MisuseError, SessionFailed, StorageError, StorageHung
from pidurable_actors.records import ROOT_ID, TaskId
from pidurable_actors.storage import PromptStorage, Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing._through import ThroughStorage
from pidurable_actors.testing.conformance import StorageConformance
from pidurable_actors.testing.conformance._scribe import Scribe
from pidurable_actors.testing.faults import (
    BrokenClock,
    Call,
    DiskError,
    FaultyStorage,
    HangingStorage,
    SteppedClock,
)
from tests._agents import MODEL
from tests._tasks import (
    At,
    CountTo,
    One,
    Opened,
    Sleeper,
    Ticker,
    append,
    notes,
    opened,
    outcome_of,
    registry_of,
    until,
)

# --- a wrapped storage without its fault is a storage ---


class TestFaultyStorageWithoutAFault(StorageConformance):
    def make_storage(self, tmp_path: Path) -> Storage:
        return FaultyStorage(MemoryStorage())

    def reopen(self, storage: Storage) -> Storage:
        return FaultyStorage(self.real(storage).peer())

    def break_claim(self, storage: Storage) -> None:
        self.real(storage).release()

    def real(self, storage: Storage) -> MemoryStorage:
        assert isinstance(storage, ThroughStorage)
        assert isinstance(storage.inner, MemoryStorage)
        return storage.inner


class TestHangingStorageWithoutAHang(TestFaultyStorageWithoutAFault):
    def make_storage(self, tmp_path: Path) -> Storage:
        return HangingStorage(MemoryStorage())


def test_every_write_of_a_wrapped_storage_passes_apply(tmp_path: Path) -> None:
    real = SqliteStorage(tmp_path / "agent.sqlite")
    assert isinstance(real, PromptStorage)
    for wrapped in (ThroughStorage(real), FaultyStorage(real), HangingStorage(real)):
        assert not isinstance(wrapped, PromptStorage)
        assert wrapped.blocking


# --- failing calls ---


def numbers(storage: Storage) -> list[object]:
    """The data of the root conversation's entries, oldest first."""
    return [entry.data for entry in reversed(storage.entries(ROOT_ID, before=10**9, limit=99))]


@mark.parametrize("wrote", [False, True])
def test_the_chosen_write_fails_and_no_other(wrote: bool) -> None:
    storage = FaultyStorage(MemoryStorage(), at_write=3, wrote=wrote)
    scribe = Scribe.open(storage)
    for number in (1, 2):
        scribe.entry(data=number)
    with raises(DiskError) as told:
        scribe.entry(data=3)
    assert (storage.failed, storage.writes, storage.groups) == (True, 3, [1] * (3 if wrote else 2))
    assert numbers(storage) == ([1, 2, 3] if wrote else [1, 2])
    # It says what is true: nothing was written, or nobody knows.
    assert told.value.wrote is (None if wrote else False)
    storage.close()
    Scribe.open(storage).entry(data=4)
    assert numbers(storage)[-1] == 4


def test_the_chosen_read_fails_and_no_other() -> None:
    storage = FaultyStorage(MemoryStorage(), at_read=2)
    scribe = Scribe.open(storage)
    entry = scribe.entry(data=1)
    assert storage.entry(entry.id) == entry
    with raises(DiskError) as told:
        storage.conversations(after=0, limit=9)
    assert told.value.wrote is False
    assert (storage.failed, storage.reads, storage.writes) == (True, 2, 1)
    assert storage.entry(entry.id) == entry


def test_a_fault_is_counted_from_where_it_is_armed_and_replaces_the_one_before() -> None:
    storage = FaultyStorage(MemoryStorage(), at_write=2, at_read=1)
    scribe = Scribe.open(storage)
    scribe.entry(data=1)
    storage.arm(at_write=3)
    for number in (2, 3):
        scribe.entry(data=number)
    assert numbers(storage) == [1, 2, 3]
    assert not storage.failed
    with raises(DiskError):
        scribe.entry(data=4)
    storage.arm()
    assert storage.failed


def test_the_error_may_be_chosen_but_not_a_dishonest_one() -> None:
    storage = FaultyStorage(MemoryStorage(), at_write=1, error=lambda: OSError(errno.EIO, "no"))
    with raises(OSError, match="no"):
        Scribe.open(storage).entry()

    lying = FaultyStorage(
        MemoryStorage(), at_write=1, wrote=True, error=lambda: StorageError("no", wrote=False)
    )
    with raises(MisuseError, match="says that nothing was written"):
        Scribe.open(lying).entry()
    assert numbers(lying) == []


def test_calls_are_counted_from_one() -> None:
    with raises(MisuseError, match="counted from 1"):
        FaultyStorage(MemoryStorage(), at_write=0)
    with raises(MisuseError, match="counted from 1"):
        FaultyStorage(MemoryStorage()).arm(at_read=-1)


# --- calls that do not return ---


def wait_held(storage: HangingStorage) -> None:
    for _ in range(5_000):
        if storage.held:
            return
        threading.Event().wait(0.001)
    raise AssertionError("nothing was held")


@mark.parametrize("kind", ["open", "write", "read", "close"])
def test_the_chosen_kind_of_call_is_held_until_it_is_released_and_leaves_no_thread(
    kind: Call,
) -> None:
    """Make every kind of call in a thread; only the chosen one must wait."""
    before = set(threading.enumerate())
    done: list[str] = []

    def work() -> None:
        scribe = Scribe.open(storage)
        done.append("open")
        scribe.entry(data=1)
        done.append("write")
        storage.entries(ROOT_ID, before=99, limit=9)
        done.append("read")
        storage.close()
        done.append("close")

    thread = threading.Thread(target=work)
    with HangingStorage(MemoryStorage()) as storage:
        storage.hang(kind)
        thread.start()
        wait_held(storage)
        calls = ["open", "write", "read", "close"]
        assert done == calls[: calls.index(kind)]
        storage.release()
        assert not storage.held
    assert done == calls
    assert not thread.is_alive()
    assert set(threading.enumerate()) == before
    storage.open(read_only=False)
    assert numbers(storage) == [1]


def test_a_hang_that_would_stop_its_own_thread_is_refused() -> None:
    storage = HangingStorage(MemoryStorage())
    scribe = Scribe.open(storage)
    storage.hang()
    with raises(MisuseError, match="inline_storage"):
        scribe.entry()
    assert numbers(storage) == []


async def test_leaving_the_block_of_a_storage_that_is_in_use_is_refused() -> None:
    async with opened(storage := HangingStorage(MemoryStorage(), join_s=0.05)) as on:
        with raises(MisuseError, match="close the harness"), storage:
            storage.hang()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(on.root.commit, append("x"))
                await until(lambda: storage.held)
                storage.release()


@mark.parametrize("kind", ["open", "write", "read", "close"])
async def test_a_file_that_hangs_is_given_up_and_its_thread_is_left_and_reported(
    tmp_path: Path, kind: Call
) -> None:
    """Hang each kind of call of a harness on a file; the block must end, and say why."""
    before = set(threading.enumerate())
    storage = HangingStorage(SqliteStorage(tmp_path / "agent.sqlite"))
    told: list[tuple[str, str]] = []

    async def run() -> None:
        async with opened(
            storage,
            settings=Settings(commit_timeout_s=0.05),
            on_report=lambda report: told.append((report.kind, report.reason)),
        ) as on:
            storage.hang(kind)
            if kind == "close":
                return
            with raises(StorageHung):
                await (on.root.entries() if kind == "read" else on.root.commit(append("late")))

    with storage:
        if kind == "open":
            storage.hang("open")
            with raises(StorageHung):
                await run()
        elif kind == "close":
            await run()
            assert told == [("close_held", "storage_hung")]
        else:
            with raises(SessionFailed) as ended:
                await run()
            assert isinstance(ended.value.__cause__, StorageHung)
            assert told == [("storage_failed", ""), ("close_held", "storage_hung")]
        (left,) = set(threading.enumerate()) - before
        assert left.daemon
    assert set(threading.enumerate()) == before
    async with opened(SqliteStorage(tmp_path / "agent.sqlite")) as again:
        # Its outcome was unknown; the disk answered late, and it had been stored.
        assert await notes(again.root) == (["late"] if kind == "write" else [])


# --- clocks ---


async def test_a_stepped_clock_is_another_clock_and_a_step() -> None:
    clock = SteppedClock()
    began_ms = clock.now_ms()
    await trio.sleep(2)
    assert clock.now_ms() == began_ms + 2_000 == TrioClock().now_ms()
    clock.step_ms -= 3_000
    assert clock.now_ms() == began_ms - 1_000
    assert SteppedClock(clock).now_ms() == clock.now_ms()


async def test_a_broken_clock_is_another_clock_until_it_raises() -> None:
    clock = BrokenClock(stepped := SteppedClock())
    stepped.step_ms = 5
    assert clock.now_ms() == TrioClock().now_ms() + 5
    clock.broken = True
    with raises(ZeroDivisionError):
        clock.now_ms()
    assert BrokenClock().now_ms() == TrioClock().now_ms()


@mark.parametrize("step_s", [3_600, -3_600])
async def test_c52_a_wall_clock_that_is_set_neither_delays_a_sleeper_nor_wakes_it_twice(
    step_s: int,
) -> None:
    """Set the wall an hour on, or back, while a task sleeps for 90 minutes of running time.

    What is due wakes soon after a step forward, as after a suspended night; a step back changes
    nothing, because time that runs is made up for.
    """
    wall = SteppedClock()
    clock = WallClock(wall_ns=lambda: wall.now_ms() * 1_000_000, running_s=trio.current_time)
    async with opened(MemoryStorage(), Sleeper, clock=clock) as on:
        task = await on.start(Sleeper, 5_400.0)
        on.harness.resume()
        await trio.sleep(60)
        wall.step_ms += step_s * 1_000
        await on.harness.wait_for_task(task)
        due_s = 5_400 - max(step_s, 0)
        assert due_s <= trio.current_time() <= due_s + 2
        record = await on.harness.get_task(task)
        assert (record.restarts, outcome_of(record).status) == (0, "completed")


# --- a failing file ---


@mark.parametrize("wrote", [False, True])
@mark.parametrize("error", [None, lambda: OSError(errno.EIO, "input/output error")])
async def test_a_failing_write_ends_the_harness_and_the_file_is_whole(
    tmp_path: Path, wrote: bool, error: Callable[[], Exception] | None
) -> None:
    path = tmp_path / "agent.sqlite"
    storage = FaultyStorage(SqliteStorage(path), wrote=wrote, error=error)
    with raises(SessionFailed) as ended:
        async with opened(storage) as on:
            await on.root.commit(append("first"))
            storage.arm(at_write=1)
            with raises((DiskError, OSError)) as met:
                await on.root.commit(append("second"))
            with raises(SessionFailed):
                await on.root.commit(append("third"))
    assert ended.value.__cause__ is met.value
    async with opened(SqliteStorage(path)) as again:
        assert await notes(again.root) == (["first", "second"] if wrote else ["first"])


# --- reads that fail while a crashed harness is opened and resumed ---


class Gathers(TaskActor[list[int], int], kind="test.gathers"):
    """Waits for other tasks; how many there were."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[int]:
        return WaitFor([TaskId(number) for number in self.input], At(len(self.input)))

    @phase(At)
    async def at(self, at: At) -> Next[int]:
        return Completed(at.n)


@attrs.frozen
class Crashed:
    """What a process left that died with work in every state."""

    storage: MemoryStorage
    tasks: list[TaskId]


def opening(storage: Storage) -> AbstractAsyncContextManager[Harness]:
    model = ScriptedModel(lambda _: Reply("answer", delay_s=60))
    registry = registry_of(Ticker, Sleeper, Gathers)
    return open_harness(storage, models=Models([model]), registry=registry)


def states(harness: Harness) -> set[str]:
    return {task.status for task in harness.inspect().tasks}


async def crash() -> Crashed:
    memory = MemoryStorage()
    async with opening(memory) as harness:
        root = await harness.root(agent=AgentChoice(model=MODEL))
        on = Opened(harness, root, [])
        tasks = [await on.start(Sleeper, 3_600.0) for _ in range(3)]
        tasks.append(await on.start(Gathers, list(tasks)))
        await root.submit("go", request_id="r")
        await until(lambda: {"sleeping", "waiting", "running"} <= states(harness))
        tasks += [await on.start(Ticker, CountTo(2)) for _ in range(3)]
        return Crashed(memory.snapshot(), tasks)


async def recover(storage: Storage, tasks: list[TaskId]) -> None:
    async with opening(storage) as harness:
        root = await harness.root(agent=AgentChoice(model=MODEL))
        harness.resume()
        for task in tasks:
            assert outcome_of(await harness.wait_for_task(task)).status == "completed"
        assert (await (await root.submit("go", request_id="r")).wait()).status == "done"


async def test_c12_no_read_of_an_open_or_a_resume_may_fail_unnoticed() -> None:
    """Fail the n-th read, for each n, of a process that opens what a crash left and finishes it.

    It is told, as a whole; and the next process, on what that one left, finishes all.
    """
    crashed = await crash()
    reads = 0
    failed = True
    while failed:
        reads += 1
        memory = crashed.storage.snapshot()
        storage = FaultyStorage(memory, at_read=reads)
        try:
            await recover(storage, crashed.tasks)
        except (DiskError, SessionFailed) as error:
            assert storage.failed
            assert isinstance(error.__cause__ or error, DiskError)
        else:
            assert not storage.failed, f"read {reads} failed and nobody was told"
        failed = storage.failed
        await recover(memory, crashed.tasks)
    assert reads > 10
