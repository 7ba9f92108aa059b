"""What a run sees of the world: the host's values, those of the tasks above it, and who asked.

The caller of a submission is stored with it, so it is there after a restart; the host's values are
those of the process that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import trio
import trio.testing
from pytest import mark

from pidurable_actors import (
    CALLER,
    Aborted,
    AgentChoice,
    Completed,
    Context,
    ContextKey,
    Conversation,
    Extension,
    Models,
    Next,
    Outcome,
    Registry,
    Reply,
    ScriptedContext,
    ScriptedModel,
    TaskActor,
    ToolApi,
    Tx,
    WaitFor,
    current_context,
    open_harness,
    phase,
    tool,
)
from pidurable_actors._json import JsonObject
from pidurable_actors.records import TaskId, TaskRecord
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import MODEL, call, calling, open_agent
from tests._tasks import At, One, Opened, opened

TENANT: ContextKey[str] = ContextKey("tenant")
ROLE: ContextKey[str] = ContextKey("role")

ADA: JsonObject = {"name": "Ada"}
BOB: JsonObject = {"name": "Bob"}


class Looks(TaskActor[str, None], kind="test.looks"):
    """Notes what it sees, in its phase and in its handler."""

    seen: ClassVar[dict[str, Context]] = {}

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        assert current_context().values.items() >= self.context.values.items()
        self.seen[self.input] = self.context
        if self.input == "stays":
            await trio.sleep_forever()
        return Completed(None)

    async def abort(self) -> Outcome:
        self.seen["handler"] = self.context
        await trio.sleep(1)
        assert not self.context.cancelled
        return Aborted()


class Gives(TaskActor[str, None], kind="test.gives"):
    """Gives its work a role, from what is stored of it; waits for that work without a run."""

    asked: ClassVar[list[TaskId]] = []

    def start(self) -> One:
        return One()

    @classmethod
    async def run_values(cls, tx: Tx, task: TaskRecord) -> Mapping[ContextKey[Any], Any]:
        cls.asked.append(task.id)
        return {ROLE: task.input}

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        def create(tx: Tx) -> Next[None]:
            mine = tx.create_conversation(owner=self.task_id)
            made = [
                tx.create_task(Looks, "child", owner=self.task_id),
                tx.create_task(Looks, "inside", conversation_id=mine.id),
                tx.create_task(Looks, "stays", owner=self.task_id),
            ]
            tx.create_task(Looks, "aside", conversation_id=mine.id, background=True)
            return WaitFor(made, At())

        return await self.commit(create)

    @phase(At)
    async def at(self, at: At) -> Next[None]:
        return Completed(None)


def contexts_of(on: Opened) -> int:
    """How many contexts are kept."""
    return len(on.root._core.engine.supervisor._contexts)


async def test_the_hosts_values_are_seen_everywhere_below_and_its_deadline_nowhere() -> None:
    Looks.seen.clear()
    with Context(values={TENANT: "acme"}, deadline=trio.current_time() + 1e6).scope():
        async with opened(MemoryStorage(), Looks, Gives) as on:
            on.harness.resume()
            task = await on.start(Gives, "admin")
            await trio.testing.wait_all_tasks_blocked()
            await on.harness.abort_task(task)
    assert {name: seen.get(TENANT) for name, seen in Looks.seen.items()} == dict.fromkeys(
        ["child", "inside", "stays", "aside", "handler"], "acme"
    )
    assert all(seen.deadline == float("inf") for seen in Looks.seen.values())


async def test_the_end_of_the_hosts_context_ends_the_body_and_no_run_sees_it() -> None:
    Looks.seen.clear()
    storage = MemoryStorage()
    host = Context(values={TENANT: "acme"})
    with host.scope():
        async with opened(storage, Looks) as on:
            on.harness.resume()
            await on.start(Looks, "stays")
            await trio.testing.wait_all_tasks_blocked()
            host.cancel("the host has had enough")
            await trio.sleep_forever()
    assert Looks.seen["stays"].reason == "close"
    async with opened(storage, Looks) as on:
        (view,) = on.harness.inspect().tasks
        assert (view.status, view.restarts) == ("pending", 0)


async def test_values_come_down_to_all_work_and_to_nothing_else() -> None:
    Looks.seen.clear()
    async with opened(MemoryStorage(), Looks, Gives) as on:
        on.harness.resume()
        task = await on.start(Gives, "admin")
        await trio.testing.wait_all_tasks_blocked()
        await on.start(Looks, "another")
        await trio.testing.wait_all_tasks_blocked()
        await on.harness.abort_task(task)
        assert {name: seen.get(ROLE) for name, seen in Looks.seen.items()} == {
            "child": "admin",
            "inside": "admin",
            "stays": "admin",
            "handler": "admin",
            # Background work is not its conversation's owner's.
            "aside": None,
            "another": None,
        }
        assert contexts_of(on) == 0


async def test_values_are_looked_up_again_after_a_restart_and_once_for_all_work() -> None:
    storage = MemoryStorage()
    async with opened(storage, Looks, Gives) as on:
        on.harness.resume()
        task = await on.start(Gives, "admin")
        await trio.testing.wait_all_tasks_blocked()
    Looks.seen.clear()
    Gives.asked.clear()
    async with opened(storage, Looks, Gives) as on:
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert Looks.seen["stays"].get(ROLE) == "admin"
        for _ in range(5):
            await on.start(Looks, "later", owner=task)
        await trio.testing.wait_all_tasks_blocked()
        assert Looks.seen["later"].get(ROLE) == "admin"
        assert Gives.asked == [task]


async def test_values_of_a_class_that_fails_to_say_them_are_a_fault_of_the_run() -> None:
    class Silent(Looks, kind="test.silent"):
        @classmethod
        async def run_values(cls, tx: Tx, task: TaskRecord) -> Mapping[ContextKey[Any], Any]:
            raise LookupError("not stored")

    async with opened(MemoryStorage(), Silent) as on:
        outcome = await on.run(Silent, "x")
        assert outcome.status == "faulted"
        assert "not stored" in str(outcome)


# --- the caller ---


class Seen:
    """Who was seen as the caller, by whom."""

    def __init__(self) -> None:
        self.callers: dict[str, JsonObject | None] = {}
        self.hold = False

    def note(self, where: str, context: Context) -> None:
        """Note whom a run works for."""
        self.callers[where] = context.get(CALLER)

    def registry(self) -> Registry:
        """Tools that look, and that own work which looks."""

        @tool("look", replay="safe")
        async def look(*, api: ToolApi) -> str:
            """Look for whom it works."""
            self.note("tool", api.context)
            assert current_context().get(CALLER) == api.context.get(CALLER)
            if self.hold:
                await trio.sleep_forever()
            return "looked"

        @tool("delegate", replay="safe")
        async def delegate(*, api: ToolApi) -> str:
            """Let others look: a task, one in the background, and a subagent."""
            task = await api.create_task("task", Reports, "task of the tool")
            aside = await api.create_task("aside", Reports, "in the background", background=True)
            helper = await api.create_conversation("helper", agent=AgentChoice(model=MODEL))
            if self.hold:
                await trio.sleep_forever()
            await api.wait_for_task(task)
            await api.wait_for_task(aside)
            return await (await helper.submit("look", request_id="q")).answer()

        Reports.to = self
        return Registry([Extension("seen", tools=[look, delegate], tasks=[Reports])])


class Reports(TaskActor[str, None], kind="test.reports"):
    """Notes whom it works for."""

    to: ClassVar[Seen]

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        self.to.note(self.input, self.context)
        return Completed(None)


def script(at: ScriptedContext) -> Reply:
    """Call the tool that the input names, then end."""
    return Reply("done") if at.answers else calling(call(at.user_text))


@mark.parametrize("cut", ["never", "close", "crash"])
async def test_a_tool_sees_who_asked_also_after_a_restart(cut: str) -> None:
    seen, storage = Seen(), MemoryStorage()
    seen.hold = cut != "never"
    async with open_agent(storage, ScriptedModel(script), registry=seen.registry()) as agent:
        asked = await agent.root.submit("look", caller=ADA)
        await trio.testing.wait_all_tasks_blocked()
        assert seen.callers == {"tool": ADA}
        crashed = storage.snapshot()
    if cut == "never":
        return
    seen.callers.clear()
    seen.hold = False
    left = crashed if cut == "crash" else storage
    async with open_agent(left, ScriptedModel(script), registry=seen.registry()) as agent:
        await (await agent.harness.submission(asked.id)).wait()
    assert seen.callers == {"tool": ADA}


@mark.parametrize("crashed", [False, True])
async def test_all_work_of_a_call_works_for_who_asked(crashed: bool) -> None:
    """A task and a subagent that a tool owns, also when a crash came before the one began."""
    seen, storage = Seen(), MemoryStorage()
    seen.hold = crashed
    async with open_agent(storage, ScriptedModel(script), registry=seen.registry()) as agent:
        asked = await agent.root.submit("delegate", caller=ADA)
        await trio.testing.wait_all_tasks_blocked()
        left = storage.snapshot()
        if not crashed:
            await asked.wait()
    if crashed:
        seen.hold = False
        async with open_agent(left, ScriptedModel(script), registry=seen.registry()) as agent:
            await (await agent.harness.submission(asked.id)).wait()
    assert seen.callers == {"task of the tool": ADA, "in the background": None, "tool": ADA}


async def test_each_run_works_for_its_own_caller_and_for_nobody_when_none_is_named() -> None:
    seen = Seen()
    found: list[JsonObject | None] = []

    def each(at: ScriptedContext) -> Reply:
        return Reply("done") if at.answers % 2 else calling(call("look", f"c{at.answers}"))

    model = ScriptedModel(each)
    async with open_agent(MemoryStorage(), model, registry=seen.registry()) as agent:
        for caller in (ADA, None, BOB):
            await (await agent.root.submit("look", caller=caller)).wait()
            found.append(seen.callers.pop("tool"))
    assert found == [ADA, None, BOB]


async def test_fifty_conversations_at_once_see_each_their_own_caller() -> None:
    """C06: runs that interleave at every step; a value that leaked would be another's."""
    wrong: list[tuple[int, JsonObject | None]] = []
    looked: set[int] = set()

    @tool("look", replay="safe")
    async def look(number: int, *, api: ToolApi) -> str:
        """Look for whom it works, again and again while others do."""
        for _ in range(10):
            found = [context.get(CALLER) for context in (api.context, current_context())]
            wrong.extend((number, other) for other in found if other != {"number": number})
            await trio.lowlevel.checkpoint()
            await trio.sleep(0.001 * (number % 7))
        looked.add(number)
        return "looked"

    def number_of(at: ScriptedContext) -> Reply:
        if at.answers:
            return Reply("done")
        return calling(call("look", f"c{at.user_text}", number=int(at.user_text)))

    async def ask(conversation: Conversation, number: int) -> None:
        submission = await conversation.submit(str(number), caller={"number": number})
        assert (await submission.wait()).status == "done"

    registry = Registry([Extension("look", tools=[look])])
    models = Models([ScriptedModel(number_of)])
    async with (
        open_harness(MemoryStorage(), models=models, registry=registry) as harness,
        trio.open_nursery() as nursery,
    ):
        for number in range(50):
            agent = AgentChoice(model=MODEL)
            conversation = await harness.create_conversation(agent=agent)
            nursery.start_soon(ask, conversation, number)
    assert looked == set(range(50))
    assert wrong == []


async def test_who_joins_a_run_lends_it_no_rights_not_even_after_a_restart() -> None:
    """A run without a caller is steered by one; its tools work for nobody before and after."""
    seen: list[object] = []

    @tool("who", replay="safe")
    async def who(*, api: ToolApi) -> str:
        """Look for whom it works."""
        caller = api.context.get(CALLER)
        seen.append(caller)
        await trio.sleep(10)
        return "seen"

    def twice(at: ScriptedContext) -> Reply:
        rounds = len(at.tool_results("who"))
        return calling(call("who", f"c{rounds}")) if rounds < 2 else Reply("done")

    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(twice), who) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        await agent.root.submit("and now", when_busy="steer", caller=ADA)
        await trio.sleep(15)
        left = storage.snapshot()
    async with open_agent(left, ScriptedModel(twice), who) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
    assert len(seen) >= 3
    assert set(map(str, seen)) == {"None"}
