"""Random forests of tasks, grown, aborted, crashed and closed, checked after every life.

A Hypothesis state machine plans trees of scripts (see `Node`) and what a host does to them, and
lets processes live on the same world: each ends by a close or, at a place that is drawn, by a
crash. After each life the invariants of the crash kit look at everything that happened, and the
checks below at what they do not know: abort handlers run bottom-up, an outcome that was held
stands, an abort reaches everything below, and no crash changes the outcome of a tree that nobody
aborted. In the end everything comes to its end, and nothing of it is left in memory.

Size: one machine with all that it checks.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, TypeAlias, cast, get_args

import attrs
import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

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
    Settings,
    SleepUntil,
    TaskActor,
    Tx,
    WaitFor,
    define_doc,
    phase,
)
from pidurable_actors.errors import TaskRefused
from pidurable_actors.harness import TaskView
from pidurable_actors.records import (
    Completing,
    ConversationId,
    FaultedOutcome,
    PutConversation,
    PutTask,
    TaskId,
    TaskRecord,
    Terminal,
    Waiting,
    is_live,
)
from pidurable_actors.testing import MemoryDisk, World
from pidurable_actors.testing._explorer import live
from pidurable_actors.testing._trace import Effect, Stored
from pidurable_actors.testing._world import CrashPoint
from pidurable_actors.testing.checkers import invariants

Script: TypeAlias = list[list[Any]]  # the words of a line, of which some are scripts
Deed: TypeAlias = Literal["abort", "abort conversation", "abort all", "orphan", "retry", "graft"]
DEEDS: tuple[Deed, ...] = get_args(Deed)


@attrs.frozen
class Step(Checkpoint, phase="step"):
    """Which line of the script is next, and what was spawned so far.

    Attributes:
        own: the tasks that this one owns.
        others: those in conversations that it owns.
    """

    at: int = 0
    own: list[int] = attrs.field(factory=list)
    others: list[int] = attrs.field(factory=list)


@attrs.define
class Planted:
    """The task of each tree of the plan; stored with them, so no crash plants one twice."""

    tasks: list[int] = attrs.field(factory=list)


PLANTED = define_doc("test.planted", Planted, scope="session")


class Node(TaskActor[Script, str], kind="test.node"):
    """Runs a script, line by line.

    ``sleep seconds``, ``memo``, ``child script``, ``background script``, ``conversation script``
    (at the top of a conversation that this task owns), ``wait`` (for all that was spawned), ``fail
    fast`` (for its own children), ``cross n`` (wait for a planted tree), ``undo how``, which only
    says what the abort handler does; and at last ``complete``, ``fail``, ``fault`` or ``for ever``.
    """

    def start(self) -> Step:
        return Step()

    @phase(Step)
    async def step(self, at: Step) -> Next[str]:
        await trio.lowlevel.checkpoint()
        word, *rest = self.input[at.at]
        then = attrs.evolve(at, at=at.at + 1)
        match word:
            case "sleep":
                return SleepUntil(self.now_ms() + rest[0] * 1000, then)
            case "memo":
                await self.set_memo(f"line {at.at}", self.now_ms())
                await trio.sleep(1)
            case "child" | "background" | "conversation":
                return await self.spawn(word, rest[0], then)
            case "wait" if at.own or at.others:
                return WaitFor([TaskId(task) for task in at.own + at.others], then)
            case "fail fast" if at.own:
                return WaitFor([TaskId(task) for task in at.own], then, policy="fail_fast")
            case "cross":
                planted = await self.commit(lambda tx: tx.doc(PLANTED))
                tasks = [TaskId(task) for task in planted.tasks[rest[0] :][:1]]
                return WaitFor(tasks, then) if tasks else Continue(then)
            case "complete":
                return Completed("done")
            case "fail":
                return Failed("no")
            case "fault":
                raise ZeroDivisionError
            case "for ever":
                await trio.sleep_forever()
        return Continue(then)

    async def spawn(self, how: str, script: Script, then: Step) -> Next[str]:
        """Create a node and note it, in one commit."""

        def change(tx: Tx) -> Next[str]:
            if how == "child":
                made = tx.create_task(Node, script, owner=self.task_id)
                return Continue(attrs.evolve(then, own=[*then.own, made]))
            if how == "conversation":
                mine = tx.create_conversation(owner=self.task_id)
                made = tx.create_task(Node, script, conversation_id=mine.id)
                return Continue(attrs.evolve(then, others=[*then.others, made]))
            tx.create_task(Node, script, background=True)  # nobody's work, so nobody waits for it
            return Continue(then)

        return await self.commit(change)

    async def abort(self) -> Outcome:
        self.note()
        match [rest[0] for word, *rest in self.input if word == "undo"][:1]:
            case ["slowly"]:
                await trio.sleep(3)
            case ["not"]:
                raise ZeroDivisionError
            case ["but complete"]:
                return Completed("done all the same")
        return Aborted("undone")

    def note(self) -> None:
        """Tell the world that the handler began; overridden by what knows a world."""


def registry_in(world: World, *, code: bool) -> Registry:
    """A registry whose nodes leave word in a world; an empty one in a process without the code."""

    class Noting(Node, kind="test.node"):
        def note(self) -> None:
            world.effect(f"undo {self.task_id}", repeatable=True)

    return Registry([Extension("forest", tasks=[Noting])] if code else [])


def scripts(depth: int = 3) -> st.SearchStrategy[Script]:
    """Scripts that spawn others down to a depth."""
    line: st.SearchStrategy[list[Any]] = st.builds(lambda s: ["sleep", s], st.integers(1, 8))
    line |= st.sampled_from(["slowly", "not", "but complete"]).map(lambda how: ["undo", how])
    line |= st.just(["memo"])
    if depth:
        spawned = st.sampled_from(["child", "child", "background", "conversation"])
        inner = st.builds(lambda how, script: [how, script], spawned, scripts(depth - 1))
        line |= inner
        line |= st.sampled_from([["wait"], ["fail fast"]])
        line |= st.builds(lambda tree: ["cross", tree], st.integers(0, 4))
        line = inner | line  # a tree that branches
    ends = ["complete", "complete", "fail", "fault", "for ever"]
    end = st.sampled_from(ends).map(lambda word: [word])
    lines = st.lists(line, min_size=min(depth, 2), max_size=5)
    script = st.builds(lambda lines, last: [*lines, last], lines, end)
    return script | teams(scripts(depth - 1)) if depth else script


def teams(members: st.SearchStrategy[Script]) -> st.SearchStrategy[Script]:
    """Scripts that spawn others and stop at the first that does not complete."""
    children = st.lists(members.map(lambda script: ["child", script]), min_size=2, max_size=3)
    return children.map(lambda lines: [*lines, ["fail fast"], ["complete"]])


@attrs.frozen
class Act:
    """What a host does in a process, at a time, to the live task that `which` picks then."""

    deed: Deed
    at_s: int
    which: int
    script: Script


class Forest(RuleBasedStateMachine):
    """A world, what is planned for it, and where its next process starts."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.plan: list[Script] = []
        self.acts: list[Act] = []
        self.touched: set[int] = set()
        self.origin: CrashPoint | None = None
        self.lives = 0
        self.settings = Settings()

    @initialize(park=st.booleans(), limit=st.sampled_from([1, 3, 100]))
    def choose(self, park: bool, limit: int) -> None:
        """What becomes of a task that is cut off too often."""
        self.settings = Settings(restart_limit=limit, on_restart_limit="park" if park else "end")

    @rule(trees=st.lists(scripts(), min_size=1, max_size=2))
    def plant(self, trees: list[Script]) -> None:
        """More trees, in the next process."""
        self.plan += trees

    @precondition(lambda self: self.plan)
    @rule(
        deed=st.sampled_from(DEEDS),
        at_s=st.integers(0, 8),
        which=st.integers(0, 9),
        script=scripts(1),
    )
    def act(self, deed: Deed, at_s: int, which: int, script: Script) -> None:
        """One more deed, in the next process."""
        self.acts.append(Act(deed, at_s, which, script))

    @precondition(lambda self: self.plan)
    @rule(
        span_s=st.integers(1, 20),
        seed=st.integers(0, 3),
        code=st.integers(0, 3).map(bool),
        crash=st.none() | st.floats(0, 1),
    )
    def run(self, span_s: int, seed: int, code: bool, crash: float | None) -> None:
        """A process lives for a while; it is closed, or dies somewhere on its way."""
        points = self.life(span_s, seed=seed, code=code).points
        self.origin = points[round((1 if crash is None else crash) * (len(points) - 1))]

    def teardown(self) -> None:
        """Let everything come to its end."""
        if self.plan:
            self.life(2_000, last=True)

    def life(self, span_s: int, *, seed: int = 0, code: bool = True, last: bool = False) -> World:
        """Run one process and check all that has happened so far."""
        self.lives += 1
        world = World(self.disk, seed=seed, origin=self.origin, life=self.lives, marking=True)

        async def story(_: World) -> None:
            await trio.sleep(-world.clock.now_ms() % 1000 / 1000)
            async with world.open_harness(
                registry=registry_in(world, code=code), settings=self.settings
            ) as harness:
                tasks = await self.play(harness, span_s)
                check_still(harness.inspect().tasks, now_ms=world.clock.now_ms(), code=code)
                if last:
                    await self.check_outcomes(harness, tasks)
                    await end_all(harness)

        live(world, story)
        self.acts = []
        for check in (invariants, handlers_ran_bottom_up, held_outcomes_stood, aborts_arrived):
            check(world)
        if last:
            assert not [task for task in world.records.tasks.values() if is_live(task)]
        return world

    async def play(self, harness: Harness, span_s: int) -> list[int]:
        """Plant what is missing and do the deeds in time, until all stands still for a moment."""
        root = await harness.root()

        async def plant(tx: Tx) -> list[int]:
            planted = await tx.doc(PLANTED)
            for script in self.plan[len(planted.tasks) :]:
                planted.tasks.append(tx.create_task(Node, script))
            return list(planted.tasks)

        tasks = await root.commit(plant)
        harness.resume()
        async with trio.open_nursery() as nursery:
            for act in self.acts:
                nursery.start_soon(self.perform, harness, act)
            # Whatever happens in a life happens at full seconds, so in between nothing is under way.
            await trio.sleep(span_s + 0.5)
            nursery.cancel_scope.cancel()
        return tasks

    async def perform(self, harness: Harness, act: Act) -> None:
        """Do one deed; that it comes too late is no fault."""
        await trio.sleep(act.at_s)
        tasks = harness.inspect().tasks
        if not tasks:
            return
        task = tasks[act.which % len(tasks)]
        place = await harness.conversation(task.conversation_id)
        match act.deed:
            case "abort" | "orphan":
                self.touched.add(task.id)
                await harness.abort_task(task.id, orphan=act.deed == "orphan")
            case "abort conversation" | "abort all":
                self.touched |= {one.id for one in tasks if one.conversation_id == place.id}
                await place.abort(background=act.deed == "abort all")
            case "retry":
                with suppress(TaskRefused):
                    await harness.retry_task(task.id)
            case "graft":
                with suppress(TaskRefused):
                    await place.commit(lambda tx: tx.create_task(Node, act.script, owner=task.id))

    async def check_outcomes(self, harness: Harness, tasks: list[int]) -> None:
        """A tree that nobody aborted came to the outcome of its script, whatever was cut off."""
        due = {"complete": "completed", "fail": "failed", "fault": "faulted"}
        for task_id, script in zip(tasks, self.plan, strict=True):
            outcome = (await harness.get_task(task_id)).outcome
            crossed = any(word == "cross" for word, *_ in script)
            if outcome is None or crossed or task_id in self.touched:
                continue
            if not (isinstance(outcome, FaultedOutcome) and outcome.by_restart_limit):
                assert outcome.status == due[str(script[-1][0])], (task_id, outcome)


async def end_all(harness: Harness) -> None:
    """Abort whatever does not end by itself; nothing of it is left in memory then."""
    while views := harness.inspect().tasks:
        await harness.abort_task(views[0].id)
    await harness.wait_for_idle()
    engine = harness._core.engine
    state, supervisor = engine.line.state, engine.supervisor
    indexes = (state.tasks, state.children, state.waiters, state.remaining, state.busy)
    more = (state.owners, state.conversation_tasks, state.failed_fast, supervisor.running)
    for index in (*indexes, *more):
        assert not index, index
    assert state.roots == len(supervisor._shells) == len(supervisor._contexts) == 0


def check_still(views: tuple[TaskView, ...], *, now_ms: int, code: bool) -> None:
    """When nothing is under way, nothing is ready, and what waits has what it waits for."""
    below = {view.above for view in views}
    for view in views:
        assert view.why not in ("ready", "not_scheduling"), view
        assert view.why != "blocked" or not code, view
        assert view.why not in ("aborting", "completing") or view.id in below, view
        assert view.why != "sleeping" or cast("int", view.until_ms) > now_ms, view


def handlers_ran_bottom_up(world: World) -> None:
    """When an abort handler began, all ordinary work below it had ended, and it had not."""
    tasks: dict[int, TaskRecord] = {}
    owners: dict[ConversationId, TaskId] = {}
    for event in world.trace:
        if isinstance(event, Stored):
            for change in (change for batch in event.batches for change in batch.changes):
                if isinstance(change, PutTask):
                    tasks[change.record.id] = change.record
                elif isinstance(change, PutConversation) and change.record.owner is not None:
                    owners[change.record.id] = change.record.owner.task_id
        elif isinstance(event, Effect):
            mine = tasks[int(event.name.removeprefix("undo "))]
            assert is_live(mine), f"the handler of {mine} came after its end"
            assert mine.abort_requested, f"the handler of {mine} came unasked"
            for task in tasks.values():
                assert above(task, owners) != mine.id or not is_live(task), (mine, task)


def held_outcomes_stood(world: World) -> None:
    """A task that was completing ended with the outcome that it held."""
    held: dict[int, object] = {}
    for _, change in world.history.changes(PutTask):
        task = change.record
        if isinstance(task.state, Completing | Terminal):
            outcome = task.state.outcome
            assert held.setdefault(task.id, outcome) == outcome, (task, held[task.id])


def aborts_arrived(world: World) -> None:
    """At the end of a life each abort had reached what it must.

    A mark goes to everything below a task that is aborted or holds an outcome other than completed,
    and to the others of a ``fail_fast`` when one of them ended with such an outcome.
    """
    seen = world.records
    owners = {c.id: c.owner.task_id for c in seen.conversations.values() if c.owner is not None}
    bad = {task.id for task in seen.tasks.values() if badly(task)}
    doomed = bad | {task.id for task in seen.tasks.values() if task.abort_requested}
    for task in filter(is_live, seen.tasks.values()):
        assert task.abort_requested or above(task, owners) not in doomed, task
        if isinstance(task.state, Waiting) and task.state.policy == "fail_fast":
            on = [seen.tasks[one] for one in task.state.on]
            others = [one for one in on if is_live(one)]
            if any(badly(one) for one in on if not is_live(one)):
                assert all(one.abort_requested for one in others), (task, others)


def badly(task: TaskRecord) -> bool:
    """Whether it has an outcome, held or not, other than completed."""
    return isinstance(task.state, Completing | Terminal) and (
        task.state.outcome.status != "completed"
    )


def above(task: TaskRecord, owners: dict[ConversationId, TaskId]) -> TaskId | None:
    """The task whose ordinary work it is."""
    return None if task.background else task.owner or owners.get(task.conversation_id)


@pytest.mark.slow
def test_an_abort_handler_begins_when_the_ends_below_are_stored() -> None:
    """In some orders the work ends, and is not stored yet, when its owner has been stopped."""
    for seed in range(20):
        forest = Forest()
        forest.plan.append([["child", [["memo"], ["complete"]]], ["for ever"]])
        forest.acts.append(Act("abort", 1, 0, []))
        forest.life(3, seed=seed)


@pytest.mark.slow
def test_an_abort_that_is_cut_off_anywhere_reaches_everything_in_the_next_process() -> None:
    """Each crash point of a life in which a tree of three levels is aborted."""
    below: list[Script] = [[["sleep", 5], ["complete"]], [["undo", "slowly"], ["for ever"]]]
    inner: Script = [*(["child", one] for one in below), ["wait"], ["complete"]]
    forest = Forest()
    forest.plan.append([["child", inner], ["conversation", inner], ["fail"]])
    forest.plan.append([["child", inner], ["conversation", inner], ["for ever"]])
    forest.acts.append(Act("abort all", 1, 0, []))
    for point in forest.life(3).points:
        forest.lives, forest.origin = 1, point
        forest.life(2)
        forest.life(2_000, last=True)


TestForest = pytest.mark.slow(Forest.TestCase)
TestForest.settings = settings(
    max_examples=60,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


class Large(Forest):
    """The same, for longer."""


TestLargeForest = pytest.mark.soak(Large.TestCase)
TestLargeForest.settings = settings(TestForest.settings, max_examples=1_000, stateful_step_count=20)
