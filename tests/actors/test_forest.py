"""Random forests of tasks, grown, aborted, crashed and closed, checked after every life.

A Hypothesis state machine plants scripts (see `Node`), aborts, and lets processes live on the same
world: each ends by a close or, at a place that is drawn, by a crash. After each life the ready-made
invariants of the crash kit look at everything that happened: ordinary owned work never outlives
its owner, nothing live is ever stuck, each move is one of the life cycle, restarts are counted. In
the end everything comes to its end, and nothing is left in memory.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import attrs
import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pidurable_actors import (
    Aborted,
    Checkpoint,
    Completed,
    Continue,
    Extension,
    Failed,
    Harness,
    Next,
    Outcome,
    Registry,
    SleepUntil,
    TaskActor,
    Tx,
    WaitFor,
    define_doc,
    phase,
)
from pidurable_actors._json import JSON
from pidurable_actors.records import TaskId, Terminal
from pidurable_actors.testing import MemoryDisk, World
from pidurable_actors.testing._explorer import live
from pidurable_actors.testing._world import CrashPoint
from pidurable_actors.testing.checkers import invariants

Script: TypeAlias = list[JSON]


@attrs.frozen
class Step(Checkpoint, phase="step"):
    """Which line of the script is next, and what was spawned so far."""

    at: int = 0
    spawned: list[int] = attrs.field(factory=list)


@attrs.define
class Planted:
    """The task of each script of the plan."""

    tasks: list[int] = attrs.field(factory=list)


PLANTED = define_doc("test.planted", Planted)


class Node(TaskActor[Script, str], kind="test.node"):
    """Runs a script, line by line.

    ``["sleep", seconds]``, ``["child", script]``, ``["background", script]``, ``["conversation",
    script]`` (at the top of a conversation that this task owns), ``["wait"]`` and ``["fail fast"]``
    (for what was spawned), and how it ends: ``["complete"]``, ``["fail"]``, ``["fault"]``,
    ``["for ever"]``.
    """

    def start(self) -> Step:
        return Step()

    @phase(Step)
    async def step(self, at: Step) -> Next[str]:
        await trio.lowlevel.checkpoint()
        word, *rest = cast("list[Any]", self.input[at.at])
        then = Step(at.at + 1, at.spawned)
        match word:
            case "sleep":
                return SleepUntil(self.now_ms() + rest[0] * 1000, then)
            case "child" | "background" | "conversation":
                return await self.spawn(word, rest[0], at)
            case "wait" | "fail fast" if at.spawned:
                tasks = [TaskId(task) for task in at.spawned]
                fast = word == "fail fast"
                return WaitFor(tasks, then, policy="fail_fast" if fast else "all_settled")
            case "wait" | "fail fast":
                return Continue(then)
            case "complete":
                return Completed("done")
            case "fail":
                return Failed("no")
            case "for ever":
                await trio.sleep_forever()
        raise ZeroDivisionError

    async def spawn(self, how: str, script: Script, at: Step) -> Next[str]:
        """Create a node and note it, in one commit."""

        def change(tx: Tx) -> Next[str]:
            if how == "conversation":
                mine = tx.create_conversation(owner=self.task_id)
                tx.create_task(Node, script, conversation_id=mine.id)
                return Continue(Step(at.at + 1, at.spawned))
            owner = self.task_id if how == "child" else None
            made = tx.create_task(Node, script, owner=owner, background=owner is None)
            # What is in the background is nobody's to wait for.
            return Continue(Step(at.at + 1, [*at.spawned, *([made] if owner else [])]))

        return await self.commit(change)

    async def abort(self) -> Outcome:
        checkpoint = self.runtime.record.state.checkpoint  # type: ignore[union-attr]
        for task_id in cast("list[int]", checkpoint["spawned"]):
            record = await self.get_task(TaskId(task_id))
            assert isinstance(record.state, Terminal), "its handler came before the end of its work"
        await trio.sleep(1)
        return Aborted("undone")


REGISTRY = Registry([Extension("forest", tasks=[Node])])


def scripts(depth: int = 3) -> st.SearchStrategy[Script]:
    """Scripts that spawn others down to a depth."""
    line: st.SearchStrategy[JSON] = st.builds(lambda s: ["sleep", s], st.integers(1, 20))
    if depth:
        spawned = st.sampled_from(["child", "child", "background", "conversation"])
        line |= st.builds(lambda how, inner: [how, inner], spawned, scripts(depth - 1))
        line |= st.sampled_from([["wait"], ["fail fast"]])
    end = st.sampled_from([["complete"], ["complete"], ["fail"], ["fault"], ["for ever"]])
    return st.builds(lambda lines, last: [*lines, last], st.lists(line, max_size=4), end)


class Forest(RuleBasedStateMachine):
    """A world, what was planted in it, and where its next process starts."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.plan: list[Script] = []
        self.aborts: list[tuple[int, int, bool]] = []
        self.origin: CrashPoint | None = None
        self.lives = 0

    @rule(script=scripts())
    def plant(self, script: Script) -> None:
        """One more tree, in the next process."""
        self.plan.append(script)

    @precondition(lambda self: self.plan)
    @rule(which=st.integers(0, 9), after_s=st.integers(0, 15), whole=st.booleans())
    def abort(self, which: int, after_s: int, whole: bool) -> None:
        """Abort a tree, or the whole conversation with its background work, in every process."""
        self.aborts.append((which % len(self.plan), after_s, whole))

    @precondition(lambda self: self.plan)
    @rule(span_s=st.integers(1, 30), place=st.floats(0, 1))
    def run(self, span_s: int, place: float) -> None:
        """A process lives for a while; it is closed, or dies somewhere on its way."""
        points = self.life(span_s).points
        self.origin = points[round(place * (len(points) - 1))]

    @invariant()
    def the_plan_is_small(self) -> None:
        """A bound for the generator, not a promise."""
        assert len(self.plan) < 100

    def teardown(self) -> None:
        """Let everything come to its end."""
        if self.plan:
            world = self.life(10_000, last=True)
            still = [task for task in world.records.tasks.values() if task.outcome is None]
            assert not still, f"live for ever: {still}"

    def life(self, span_s: int, *, last: bool = False) -> World:
        """Run one process and check all that has happened so far."""
        self.lives += 1
        world = World(self.disk, seed=1, origin=self.origin, life=self.lives, marking=True)

        async def story(_: World) -> None:
            async with world.open_harness(registry=REGISTRY) as harness:
                await self.play(harness, span_s, last=last)

        live(world, story)
        invariants(world)
        return world

    async def play(self, harness: Harness, span_s: int, *, last: bool) -> None:
        """Plant what is missing, abort in time, and wait."""
        root = await harness.root()

        async def plant(tx: Tx) -> list[int]:
            planted = await tx.doc(PLANTED)
            for script in self.plan[len(planted.tasks) :]:
                planted.tasks.append(tx.create_task(Node, script))
            return list(planted.tasks)

        tasks = await root.commit(plant)

        async def abort(which: int, after_s: int, whole: bool) -> None:
            await trio.sleep(after_s)
            if whole:
                await root.abort(background=True)
            else:
                await harness.abort_task(tasks[which])

        harness.resume()
        async with trio.open_nursery() as nursery:
            for one in self.aborts:
                nursery.start_soon(abort, *one)
            await trio.sleep(min(span_s, 100))
            if last:
                await root.abort(background=True)
                await harness.wait_for_idle()
                while views := harness.inspect().tasks:
                    await harness.abort_task(views[0].id)
                check_empty(harness)
            nursery.cancel_scope.cancel()


def check_empty(harness: Harness) -> None:
    """Nothing of what has ended is left in memory."""
    engine = harness._core.engine
    state, supervisor = engine.line.state, engine.supervisor
    for index in (state.tasks, state.children, state.waiters, state.remaining):
        assert not index, index
    assert state.roots == 0
    assert not supervisor.running
    assert len(supervisor._shells) == len(supervisor._contexts) == 0


_FEW = settings(
    max_examples=40,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestForest = pytest.mark.slow(Forest.TestCase)
TestForest.settings = _FEW


class Large(Forest):
    """The same, for longer."""


TestLargeForest = pytest.mark.soak(Large.TestCase)
TestLargeForest.settings = settings(_FEW, max_examples=2_000, stateful_step_count=25)
