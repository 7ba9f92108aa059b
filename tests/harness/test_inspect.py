"""Pictures of a harness: what is live, who owns it, why it does not run, and what is held up."""

from __future__ import annotations

from typing import Any

import attrs
import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import (
    Aborted,
    Completed,
    Harness,
    Next,
    Outcome,
    Reply,
    ScriptedModel,
    TaskActor,
    Tx,
    WaitFor,
    open_harness,
    phase,
)
from pidurable_actors._limits import LIMITS
from pidurable_actors.harness import OwnedConversation, TaskGraph, TaskView
from pidurable_actors.records import SubmissionId, SubmissionRecord
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import HangingStorage
from tests._agents import open_agent
from tests._tasks import At, CountTo, One, Sleeper, Ticker, append, opened, registry_of, until


class Stands(TaskActor[str, None], kind="test.stands"):
    """Stands as its input says."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        if self.input == "ends":
            return Completed(None)
        if self.input == "waits":

            def wait(tx: Tx) -> Next[None]:
                return WaitFor([tx.create_task(Sleeper, 60.0, owner=self.task_id)], At())

            return await self.commit(wait)
        with trio.CancelScope(shield=self.input == "is shielded"):
            await self.stubborn_step()
        return Completed(None)

    async def stubborn_step(self) -> None:
        await trio.sleep(30)

    @phase(At)
    async def at(self, at: At) -> Next[None]:
        return Completed(None)

    async def abort(self) -> Outcome:
        await trio.sleep(10)
        return Aborted()


def whys(harness: Harness) -> dict[int, str]:
    """Why each task runs or does not."""
    return {view.id: view.why for view in harness.inspect().tasks}


async def test_a_graph_has_an_edge_from_all_ordinary_work_to_what_is_above_it() -> None:
    async with opened(MemoryStorage(), Stands, Sleeper) as on:
        assert on.harness.task_graph() == TaskGraph(tasks=(), conversations=())
        on.harness.resume()
        top = await on.start(Stands, "waits")
        await trio.testing.wait_all_tasks_blocked()
        asleep = top + 1
        mine = await on.harness.commit(lambda tx: tx.create_conversation(owner=top))
        idle = await on.harness.commit(lambda tx: tx.create_conversation(owner=top))
        inside = await on.start(Stands, "runs", conversation_id=mine.id)
        below = await on.start(Stands, "runs", conversation_id=mine.id, owner=inside)
        aside = await on.start(Stands, "runs", conversation_id=mine.id, background=True)
        await trio.testing.wait_all_tasks_blocked()

        graph = on.harness.task_graph()
        assert [(view.id, view.owner, view.above) for view in graph.tasks] == [
            (top, None, None),
            (asleep, top, top),
            (inside, None, top),
            (below, inside, inside),
            (aside, None, None),
        ]
        assert [view.background for view in graph.tasks] == [False] * 4 + [True]
        # Nothing goes on in the idle one, and nothing of it is in memory.
        assert graph.conversations == (OwnedConversation(id=mine.id, owner=top),)
        assert idle.id not in {owned.id for owned in graph.conversations}
        waiting = graph.tasks[0]
        assert (waiting.why, waiting.phase, waiting.waiting_on) == ("waiting", "at", (asleep,))
        assert graph.tasks == on.harness.inspect().tasks


async def test_a_graph_is_the_same_after_a_restart_though_nothing_is_loaded() -> None:
    storage = MemoryStorage()
    async with opened(storage, Stands, Sleeper) as on:
        on.harness.resume()
        top = await on.start(Stands, "waits")
        mine = await on.harness.commit(lambda tx: tx.create_conversation(owner=top))
        await on.start(Sleeper, 3_600.0, conversation_id=mine.id)
        await on.start(Sleeper, 3_600.0, conversation_id=mine.id, background=True)
        await trio.testing.wait_all_tasks_blocked()
        before = on.harness.task_graph()
    assert before.conversations == (OwnedConversation(id=mine.id, owner=top),)
    async with opened(storage, Stands, Sleeper) as on:
        after = on.harness.task_graph()
    assert after.conversations == before.conversations
    assert list(map(edges, after.tasks)) == list(map(edges, before.tasks))
    assert [view.status for view in after.tasks] == ["waiting", "sleeping", "sleeping", "sleeping"]


def edges(view: TaskView) -> dict[str, Any]:
    """A view without what depends on whether its record is in memory."""
    return attrs.asdict(view, filter=lambda field, _: field.name not in ("phase", "until_ms"))


async def test_owned_conversations_leave_the_graph_with_their_last_work() -> None:
    async with opened(MemoryStorage(), Stands) as on:
        on.harness.resume()
        top = await on.start(Stands, "runs")
        mine = await on.harness.commit(lambda tx: tx.create_conversation(owner=top))
        for _ in range(2):
            inside = await on.start(Stands, "ends", conversation_id=mine.id)
            await on.harness.wait_for_task(inside)
            assert on.harness.task_graph().conversations == ()
        assert on.root._core.engine.line.state.owners == {}


async def test_a_picture_says_why_each_task_does_not_run() -> None:
    registry = registry_of(Stands, Sleeper, Ticker)
    async with opened(MemoryStorage(), registry=registry) as on:
        ticking = await on.start(Ticker, CountTo(1))
        assert whys(on.harness) == {ticking: "not_scheduling"}
        registry.install(next(iter(registry_of(Stands, Sleeper).extensions)))
        on.harness.resume()
        runs, waits = await on.start(Stands, "runs"), await on.start(Stands, "waits")
        await trio.testing.wait_all_tasks_blocked()
        marked = await on.start(Stands, "runs")
        below = await on.start(Stands, "runs", owner=marked)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await on.harness.abort_task(marked)
        assert whys(on.harness) == {
            ticking: "blocked",
            runs: "running",
            waits: "waiting",
            waits + 1: "sleeping",
            marked: "aborting",
            below: "running",
        }


async def test_nothing_is_in_a_picture_before_it_is_durable() -> None:
    with HangingStorage(MemoryStorage()) as storage:
        async with opened(storage, Stands) as on, trio.open_nursery() as nursery:
            on.harness.resume()
            top = await on.start(Stands, "runs")
            await trio.testing.wait_all_tasks_blocked()
            storage.hang()

            def create(tx: Tx) -> None:
                mine = tx.create_conversation(owner=top)
                tx.create_task(Stands, "runs", conversation_id=mine.id)

            nursery.start_soon(on.harness.commit, create)
            nursery.start_soon(on.root.submit, "hello")
            await until(lambda: on.harness.inspect().commits_waiting == 2)
            graph, seen = on.harness.task_graph(), on.harness.inspect()
            assert [view.id for view in graph.tasks] == [top]
            assert graph.conversations == ()
            assert seen.unsettled == {}
            storage.release()
            await until(lambda: on.harness.inspect().commits_waiting == 0)
            assert len(on.harness.task_graph().tasks) > 1
            assert len(on.harness.task_graph().conversations) == 1


async def test_unsettled_submissions_are_counted_for_each_conversation() -> None:
    """Those of earlier processes too, before anything is scheduled."""
    storage = MemoryStorage()
    model = ScriptedModel(lambda _: Reply("slow", delay_s=60))
    async with open_agent(storage, model) as agent:
        other = await agent.harness.create_conversation()
        assert agent.harness.inspect().unsettled == {}
        first = await agent.root.submit("one")
        for text in ("two", "three"):
            await agent.root.submit(text)
        assert agent.harness.inspect().unsettled == {agent.root.id: 3}
        await first.wait()
        assert agent.harness.inspect().unsettled == {agent.root.id: 2}
        await other.commit(append("a note"))
    async with open_agent(storage, model) as agent:
        assert agent.harness.inspect().unsettled == {agent.root.id: 2}
        await agent.root.abort()
        assert agent.harness.inspect().unsettled == {}
        assert agent.root._core.engine.line.state.unsettled == {}


async def test_more_unsettled_submissions_than_a_page_holds_are_all_counted() -> None:
    many = LIMITS.page + 10
    storage = MemoryStorage()
    async with opened(storage) as on:

        def queue(tx: Tx) -> None:
            for _ in range(many):
                submission = SubmissionRecord(
                    id=SubmissionId(0), conversation_id=on.root.id, type="input", status="queued"
                )
                tx.create_submission(submission)

        await on.root.commit(queue)
        assert on.harness.inspect().unsettled == {on.root.id: many}
    async with opened(storage) as on:
        assert on.harness.inspect().unsettled == {on.root.id: many}


async def test_what_holds_a_close_is_shown_with_its_stack() -> None:
    pictures: list[Any] = []
    async with trio.open_nursery() as nursery, opened(MemoryStorage(), Stands) as on:
        on.harness.resume()
        held = await on.start(Stands, "is shielded")
        await on.start(Stands, "runs")
        await trio.testing.wait_all_tasks_blocked()
        assert on.harness.inspect().holding == {}

        async def meanwhile() -> None:
            await trio.sleep(1)
            pictures.append(on.harness.inspect())

        nursery.start_soon(meanwhile)
    (picture,) = pictures
    assert picture.closing
    assert list(picture.holding) == [held]
    assert "stubborn_step" in picture.holding[held]
    assert not on.harness.inspect().holding


@mark.parametrize("read_only", [False, True])
async def test_pictures_are_taken_by_whoever_looks(read_only: bool) -> None:
    storage = MemoryStorage()
    async with opened(storage, Stands) as on:
        top = await on.start(Stands, "runs")
        await on.start(Stands, "runs", owner=top)
    async with open_harness(storage, read_only=read_only) as harness:
        assert [view.above for view in harness.task_graph().tasks] == [None, top]
        assert {view.why for view in harness.inspect().tasks} == {"blocked"}
    with raises(attrs.exceptions.FrozenInstanceError):
        harness.task_graph().tasks = ()  # type: ignore[misc]
