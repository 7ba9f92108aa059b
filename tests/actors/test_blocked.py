"""Blocked tasks, and closes that are held: what is told, and when it goes on."""

from __future__ import annotations

from typing import Any, ClassVar

import trio
import trio.testing
from pytest import mark

from pidurable_actors import Completed, Extension, Next, Settings, TaskActor, phase
from pidurable_actors.errors import ClosedError
from pidurable_actors.records import CompletedOutcome
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import HangingStorage
from tests._tasks import At, CountTo, One, Sleeper, Ticker, opened, outcome_of, registry_of, until


class TickerTwo(TaskActor[CountTo, str], kind="test.ticker", version=2):
    """A newer version of the ticker."""

    def start(self) -> At:
        return At()

    @phase(At)
    async def at(self, at: At) -> Next[str]:
        return Completed("the second version")


async def left_pending() -> tuple[MemoryStorage, int]:
    """A storage with a ticker that never ran."""
    storage = MemoryStorage()
    async with opened(storage, Ticker) as on:
        return storage, await on.start(Ticker, CountTo(3))


async def test_a_kind_that_is_not_installed_blocks_its_task_which_is_reported_once() -> None:
    storage, task = await left_pending()
    registry = registry_of(Sleeper)
    async with opened(storage, registry=registry) as on:
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        (view,) = on.harness.inspect().tasks
        assert (view.why, view.detail) == ("blocked", "task kind 'test.ticker' is not installed")
        assert (view.status, view.restarts) == ("pending", 0)
        # What has nothing to do with it changes nothing.
        registry.install(Extension("other"))
        await trio.testing.wait_all_tasks_blocked()
        assert [(r.kind, r.task_id) for r in on.reports] == [("task_blocked", task)]

        registry.install(Extension("ticker", tasks=[Ticker]))
        record = await on.harness.wait_for_task(task)
        assert outcome_of(record) == CompletedOutcome(result="counted to 3")
        assert on.kinds() == ["task_blocked"]


async def test_a_sleeper_whose_kind_has_gone_is_blocked_when_it_is_due() -> None:
    storage = MemoryStorage()
    registry = registry_of(Sleeper)
    async with opened(storage, registry=registry) as on:
        task = await on.start(Sleeper, 10.0)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        registry.uninstall("tests")
        await trio.sleep(20)
        (view,) = on.harness.inspect().tasks
        assert (view.why, view.status) == ("blocked", "sleeping")
        assert [(r.kind, r.task_id) for r in on.reports] == [("task_blocked", task)]
        registry.install(Extension("tests", tasks=[Sleeper]))
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"


@mark.parametrize(("stored", "installed"), [(Ticker, TickerTwo), (TickerTwo, Ticker)])
async def test_another_version_blocks_its_task(stored: Any, installed: Any) -> None:
    storage = MemoryStorage()
    async with opened(storage, stored) as on:
        task = await on.start(stored, CountTo(3))
    registry = registry_of(installed)
    async with opened(storage, registry=registry) as on:
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        (view,) = on.harness.inspect().tasks
        older = stored is Ticker
        assert view.why == "blocked"
        assert ("older" if older else "newer") in view.detail
        registry.install(Extension("tests", tasks=[stored]))
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"


@mark.parametrize("then", ["nothing", "the same", "another version"])
async def test_a_kind_that_goes_between_reservation_and_start_leaves_its_task_pending(
    then: str,
) -> None:
    """Hold the write that creates a running task, and change the registry meanwhile."""
    storage = HangingStorage(MemoryStorage())
    registry = registry_of(Ticker)
    async with opened(storage, registry=registry) as on, trio.open_nursery() as nursery:
        on.harness.resume()
        storage.hang()
        nursery.start_soon(on.start, Ticker, CountTo(3))
        await trio.testing.wait_all_tasks_blocked()
        registry.uninstall("tests")
        if then == "another version":
            registry.install(Extension("tests", tasks=[TickerTwo]))
        storage.release()
        await until(lambda: bool(on.reports))
        if then == "the same":
            registry.install(Extension("tests", tasks=[Ticker]))
            await on.root.wait_for_idle()
            assert on.harness.inspect().tasks == ()
        else:
            (view,) = on.harness.inspect().tasks
            assert (view.status, view.why, view.restarts) == ("pending", "blocked", 0)
    assert on.kinds() == ["task_blocked"]


async def test_a_kind_that_is_installed_again_while_it_waits_to_start_is_started() -> None:
    storage = HangingStorage(MemoryStorage())
    registry = registry_of(Ticker)
    async with opened(storage, registry=registry) as on, trio.open_nursery() as nursery:
        on.harness.resume()
        storage.hang()
        nursery.start_soon(on.start, Ticker, CountTo(3))
        await trio.testing.wait_all_tasks_blocked()
        registry.uninstall("tests")
        registry.install(Extension("tests", tasks=[Ticker]))
        storage.release()
        await until(lambda: bool(storage.groups) and on.harness.inspect().tasks == ())
        await on.root.wait_for_idle()
    assert on.reports == []


# --- a close that is held ---


class Shielded(TaskActor[float, str], kind="test.shielded"):
    """Holds a close for its input in seconds."""

    ended: ClassVar[list[float]] = []

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[str]:
        with trio.CancelScope(shield=True):
            await self.stubborn_step()
        return Completed("done")

    async def stubborn_step(self) -> None:
        await trio.sleep(self.input)
        self.ended.append(trio.current_time())


async def test_shielded_code_holds_the_close_and_is_reported_with_its_stack() -> None:
    storage = MemoryStorage()
    async with opened(storage, Shielded, settings=Settings(close_grace_s=3)) as on:
        task = await on.start(Shielded, 20.0)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() == 20
    held, dropped = on.reports
    assert (held.kind, held.task_id) == ("close_held", task)
    assert "stubborn_step" in held.detail
    assert (dropped.kind, dropped.reason) == ("task_interrupted", "value_dropped")
    async with opened(storage, Shielded) as on:
        record = await on.harness.get_task(task)
        assert (record.state.status, record.restarts) == ("pending", 0)


async def test_a_close_within_its_grace_is_not_reported() -> None:
    async with opened(MemoryStorage(), Shielded) as on:
        await on.start(Shielded, 2.0)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() == 2
    assert on.kinds() == ["task_interrupted"]


async def test_a_harness_that_is_closing_says_so_and_takes_nothing_new() -> None:
    async with trio.open_nursery() as nursery, opened(MemoryStorage(), Shielded, Ticker) as on:
        await on.start(Shielded, 5.0)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        refused: list[str] = []

        async def meanwhile() -> None:
            await trio.sleep(1)
            assert on.harness.inspect().closing
            try:
                await on.start(Ticker, CountTo(1))
            except ClosedError as error:
                refused.append(type(error).__name__)

        nursery.start_soon(meanwhile)
    assert refused == ["HarnessClosed"]
