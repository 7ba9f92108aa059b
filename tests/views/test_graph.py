"""Watching the live tasks: after every commit the graph is the one that is stored."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pidurable_actors import Harness, Settings, Tx
from pidurable_actors.records import ConversationId, TaskId
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.views import GraphTask, GraphView
from tests._tasks import Sleeper, opened, registry_of
from tests.actors.test_forest import Node, Script, end_all, scripts
from tests.views.following import GRAPH, Frames, Replica, replicated, settled


async def test_the_graph_shows_live_tasks_and_the_conversations_that_they_own() -> None:
    """One task sleeps; another owns a conversation in which one works, and waits for it."""
    replica = Replica()
    script: Script = [
        ["conversation", [["sleep", 3], ["complete"]]],
        ["child", [["sleep", 1], ["complete"]]],
        ["wait"],
        ["complete"],
    ]
    async with (
        replicated(MemoryStorage(), replica, registry=registry_of(Node, Sleeper)) as harness,
        harness.watch_task_graph() as watch,
        trio.open_nursery() as nursery,
    ):
        root = await harness.root()
        frames = Frames(replica, GRAPH)
        nursery.start_soon(frames.follow, watch)
        top = await root.commit(lambda tx: tx.create_task(Node, script))
        lone = await root.commit(lambda tx: tx.create_task(Sleeper, 2.0, background=True))
        harness.resume()
        await trio.sleep(0.5)
        view = frames.frames[-1].view
        assert isinstance(view, GraphView)
        tasks = view.tasks
        mine = [it for it in tasks.values() if it.owner == top]
        assert [it.status for it in mine] == ["sleeping"]
        assert tasks[top].status == "waiting"
        assert set(tasks[top].waiting_on) == set(tasks) - {top, lone}
        assert tasks[lone].background
        assert tasks[lone].until_ms is not None
        (owned,) = view.conversations.items()
        assert owned[1] == top
        assert tasks[max(tasks)].conversation_id in (1, owned[0])
        assert "4 tasks" in repr(view)
        await harness.wait_for_task(top)
        await settled()
        view = frames.frames[-1].view
        assert isinstance(view, GraphView)
        assert not view.tasks
        assert not view.conversations
        frames.check_complete()
        watch.stop()


async def test_an_abort_is_shown_as_it_goes() -> None:
    seen: list[tuple[str, bool]] = []
    async with opened(MemoryStorage(), Node) as on:
        task = await on.start(Node, [["undo", "slowly"], ["for ever"]])
        async with on.harness.watch_task_graph() as watch, trio.open_nursery() as nursery:

            async def look() -> None:
                async for frame in watch:
                    shown = frame.view.tasks.get(task)
                    seen.append(("gone", False) if shown is None else flags(shown))

            nursery.start_soon(look)
            on.harness.resume()
            await trio.sleep(1)
            await on.harness.abort_task(task)
            await on.harness.wait_for_task(task)
            await settled()
            watch.stop()
    assert seen[0] == ("pending", False)
    assert ("running", True) in seen
    assert seen[-1] == ("gone", False)


def flags(task: GraphTask) -> tuple[str, bool]:
    return task.status, task.abort_requested


@pytest.mark.slow
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(
    trees=st.lists(scripts(), min_size=1, max_size=3),
    aborted=st.lists(st.integers(0, 9), max_size=3),
    spans=st.lists(st.floats(0, 9), min_size=1, max_size=3),
)
def test_of_random_forests_each_frame_is_what_is_stored(
    trees: list[Script], aborted: list[int], spans: list[float]
) -> None:
    """Grow trees, abort some of their tasks, end and begin the process; watch all the while."""

    async def play() -> None:
        storage, replica = MemoryStorage(), Replica()
        for at, span in enumerate([*spans, 2_000.0]):
            async with replicated(
                storage,
                replica,
                registry=registry_of(Node),
                settings=Settings(restart_limit=100),
                inline=True,
            ) as harness:
                await live(harness, replica, trees if at == 0 else [], aborted, span)

    trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))


async def live(
    harness: Harness, replica: Replica, trees: list[Script], aborted: list[int], span: float
) -> None:
    """One process."""
    root = await harness.root()
    frames, late = Frames(replica, GRAPH), Frames(replica, GRAPH)
    async with harness.watch_task_graph() as watch, trio.open_nursery() as nursery:
        nursery.start_soon(frames.follow, watch)
        for tree in trees:
            await root.commit(partial(plant, tree=tree))
        harness.resume()
        for which in aborted:
            await trio.sleep(span / 4)
            tasks = harness.inspect().tasks
            if tasks:
                await harness.abort_task(tasks[which % len(tasks)].id)
        async with harness.watch_task_graph() as second:
            nursery.start_soon(late.follow, second)
            await trio.sleep(span)
            if span > 1_000:
                await end_all(harness)
            number = replica.number
            await settled()
            second.stop()
        frames.check_complete(number)
        late.check_complete(number)
        watch.stop()


def plant(tx: Tx, *, tree: Script) -> TaskId:
    return tx.create_task(Node, tree)


def test_a_task_of_the_graph_is_a_record() -> None:
    task = GraphTask(
        id=TaskId(3),
        conversation_id=ConversationId(1),
        kind="x",
        status="pending",
        owner=None,
        background=False,
        abort_requested=False,
        restarts=0,
        phase="one",
        waiting_on=(),
        until_ms=None,
    )
    assert task.id == 3
