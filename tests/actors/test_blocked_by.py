"""A task class may say why a stored task cannot run here now: then it waits, and is told of once."""

from __future__ import annotations

import attrs
import trio
from pytest import mark
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import Aborted, Completed, Extension, Next, SleepUntil, TaskActor, Tx, phase
from pidurable_actors.agent import AGENT, AgentServices
from pidurable_actors.records import (
    NEVER_MS,
    AbortedOutcome,
    CompletedOutcome,
    Sleeping,
    TaskRecord,
)
from pidurable_actors.runtime import ServiceLookup
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import HangingStorage
from tests._tasks import COUNT, At, One, Opened, Sleeper, opened, outcome_of, until


@attrs.define
class Need:
    """What the class below says, and how often it was asked."""

    why: str | None = "the oven is cold"
    asked: int = 0
    raises: bool = False


def baker(need: Need) -> type[TaskActor[None, str]]:
    """Sleeps a second, then bakes; when the oven is warm, that is."""

    class Baker(TaskActor[None, str], kind="test.baker"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            return SleepUntil(self.now_ms() + 1_000, At())

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("baked")

        async def abort(self) -> Aborted:
            return Aborted("cold bread")

        @classmethod
        async def blocked_by(cls, tx: Tx, task: TaskRecord, services: ServiceLookup) -> str | None:
            need.asked += 1
            assert services(AgentServices).registry is not None
            assert (await tx.doc(AGENT, task.conversation_id)).model is None
            if need.raises:
                raise ZeroDivisionError("a bug")
            return need.why

    return Baker


async def count(tx: Tx) -> None:
    """Change a document of the bound conversation."""
    (await tx.doc(COUNT)).n += 1


def view_of(on: Opened) -> tuple[str, str]:
    """Why the one task does not run."""
    (view,) = on.harness.inspect().tasks
    return view.why, view.detail


async def test_a_task_that_its_class_calls_blocked_waits_until_the_registry_changes() -> None:
    need = Need()
    storage = MemoryStorage()
    async with opened(storage, baker(need)) as on:
        task = await on.start(baker(need))
        on.harness.resume()
        await trio.sleep(60)
        assert view_of(on) == ("blocked", "the oven is cold")
        assert [(r.kind, r.detail) for r in on.reports] == [("task_blocked", "the oven is cold")]
    async with opened(storage, baker(need)) as on:
        on.harness.resume()
        await wait_all_tasks_blocked()
        assert view_of(on) == ("blocked", "the oven is cold")
        need.why = None
        on.harness._core.services.registry.install(Extension("gas"))
        record = await on.harness.wait_for_task(task)
        assert outcome_of(record) == CompletedOutcome(result="baked")
        assert record.restarts == 0


async def test_it_is_asked_again_when_a_document_of_its_conversation_changes() -> None:
    need = Need()
    async with opened(MemoryStorage(), baker(need)) as on:
        task = await on.start(baker(need))
        on.harness.resume()
        await trio.sleep(60)
        asked = need.asked
        other = await on.harness.create_conversation()

        await other.commit(count)
        await wait_all_tasks_blocked()
        assert need.asked == asked, "another conversation is none of its business"
        await on.root.commit(count)
        await wait_all_tasks_blocked()
        assert need.asked == asked + 1
        assert on.kinds() == ["task_blocked"]
        need.why = None
        await on.root.commit(count)
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"


async def test_another_reason_is_told_and_an_abort_needs_none() -> None:
    need = Need()
    async with opened(MemoryStorage(), baker(need)) as on:
        task = await on.start(baker(need))
        on.harness.resume()
        await trio.sleep(60)
        need.why = "no flour"
        on.harness._core.services.registry.install(Extension("gas"))
        await wait_all_tasks_blocked()
        assert [report.detail for report in on.reports] == ["the oven is cold", "no flour"]
        record = await on.harness.abort_task(task)
        assert outcome_of(record) == AbortedOutcome(reason="cold bread")


async def test_a_class_that_cannot_tell_blocks_its_task_with_what_it_raised() -> None:
    need = Need(raises=True)
    async with opened(MemoryStorage(), baker(need)) as on:
        await on.start(baker(need))
        on.harness.resume()
        await trio.sleep(60)
        assert view_of(on) == (
            "blocked",
            "whether it can run is not known: ZeroDivisionError: a bug",
        )
        (report,) = on.reports
        assert isinstance(report.error, ZeroDivisionError)


@mark.parametrize("what", ["the registry", "a document"])
async def test_what_it_needs_may_come_while_it_is_found_blocked(what: str) -> None:
    """Hold the commit in which the task is found blocked, and let what it needs come meanwhile."""
    need = Need()
    storage = HangingStorage(MemoryStorage())
    async with opened(storage, baker(need), Sleeper) as on, trio.open_nursery() as nursery:
        task = await on.start(baker(need))
        other = await on.start(Sleeper, 1.0)  # found ready in the same commit
        storage.hang()
        on.harness.resume()
        await until(lambda: need.asked > 0)
        await wait_all_tasks_blocked()
        assert on.reports == [], "that it is blocked waits for the storage"
        need.why = None
        if what == "the registry":
            on.harness._core.services.registry.install(Extension("gas"))
        else:
            nursery.start_soon(on.root.commit, count)
            await wait_all_tasks_blocked()
        storage.release()
        for at in (task, other):
            with trio.fail_after(60):
                assert outcome_of(await on.harness.wait_for_task(at)).status == "completed"


async def test_a_sleeper_that_sleeps_for_ever_is_in_no_timer_and_can_be_woken() -> None:
    class Waiter(TaskActor[None, str], kind="test.waiter"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            return SleepUntil(NEVER_MS, At())

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("woken")

    storage = MemoryStorage()
    async with opened(storage, Waiter) as on:
        task = await on.start(Waiter)
        on.harness.resume()
        await wait_all_tasks_blocked()
    async with opened(storage, Waiter) as on:
        on.harness.resume()
        began = trio.current_time()
        await trio.sleep(50_000)
        assert trio.current_time() == began + 50_000
        assert on.harness._core.engine.supervisor.next_wake_ms() is None

        async def wake(tx: Tx) -> None:
            record = await tx.task(task)
            assert isinstance(record.state, Sleeping)
            state = attrs.evolve(record.state, until_ms=tx.now_ms)
            tx.tasks.put(attrs.evolve(record, state=state))

        await on.harness.commit(wake)
        assert outcome_of(await on.harness.wait_for_task(task)) == CompletedOutcome(result="woken")
