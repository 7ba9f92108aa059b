"""Subagents: conversations that a tool's call or a task owns, found again, steered and stopped."""

from __future__ import annotations

import attrs
import pytest
import trio

from pidurable_actors import (
    AgentChoice,
    Checkpoint,
    Completed,
    Extension,
    Next,
    Registry,
    Reply,
    ScriptedModel,
    TaskActor,
    Tool,
    ToolApi,
    phase,
    tool,
)
from pidurable_actors.errors import InvocationEnded, TaskRefused, UnknownModel
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import ROOT_ID, AbortedOutcome, TaskRecord, Terminal
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    MODEL,
    Agent,
    all_submissions,
    all_tasks,
    call,
    calling,
    ended,
    open_agent,
    peek,
)

AGENT = AgentChoice(model=MODEL)


@tool(replay="safe")
async def research(question: str, *, api: ToolApi) -> str:
    """Ask a researcher."""
    helper = await api.create_conversation("researcher", agent=AGENT)
    return await (await helper.submit(question, request_id="question")).answer()


def asks_research(ctx: ScriptedContext) -> Reply:
    """The root asks for research; the researcher takes a minute."""
    if ctx.user_text == "go":
        return Reply("done") if ctx.answers else calling(call("research", question="why?"))
    return Reply(f"re: {ctx.user_text}", delay_s=60)


@attrs.frozen
class Work(Checkpoint, phase="work"):
    """The only step."""


class Worker(TaskActor[str, str], kind="test.worker"):
    """Asks in a conversation of its own."""

    def start(self) -> Work:
        return Work()

    @phase(Work)
    async def work(self, at: Work) -> Next[str]:
        mine = await self.create_conversation("mine", agent=AGENT)
        return Completed(await (await mine.submit(self.input, request_id="q")).answer())


@tool(replay="safe")
async def spawn(question: str, *, api: ToolApi) -> str:
    """Start a worker in the background."""
    return str(await api.create_task("worker", Worker, question, background=True))


def spawns(ctx: ScriptedContext) -> Reply:
    """The root spawns; the worker's model calls a slow tool, then answers what it is asked."""
    if ctx.user_text == "go":
        return Reply("done") if ctx.answers else calling(call("spawn", question="why?"))
    if not ctx.answers:
        return calling(call("slow", "s1"))
    return Reply(f"re: {ctx.user_text}")


@tool(replay="safe")
async def slow() -> str:
    """Take a minute."""
    await trio.sleep(60)
    return "slow"


def lab(*tools: Tool) -> Registry:
    """A registry with the worker."""
    return Registry([Extension("lab", tools=tools, tasks=[Worker])])


async def owned(agent: Agent) -> int:
    """The one conversation that a task owns."""
    (found,) = [
        c.id
        for c in (await agent.harness.conversations()).items
        if (record := await c.record()) is not None and record.owner is not None
    ]
    return found


def kinds(agent: Agent) -> list[str]:
    """What is live."""
    return sorted(view.kind for view in agent.harness.inspect().tasks)


async def worker(agent: Agent) -> TaskRecord:
    """The one worker that is live."""
    (view,) = [v for v in agent.harness.inspect().tasks if v.kind == "test.worker"]
    return await agent.harness.get_task(view.id)


async def test_a_call_waits_for_its_subagent_and_returns_what_it_answers() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(asks_research), research) as agent:
        assert (await agent.ask()).status == "done"
        (result,) = (await agent.results()).values()
        assert result.content[0].text == "re: why?"  # type: ignore[union-attr]
        helper = await agent.harness.conversation(await owned(agent))
        record = await helper.record()
    assert record is not None
    assert record.owner is not None
    assert record.owner.conversation_id == 1


async def test_an_aborted_call_takes_its_subagent_with_it_lowest_first() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(asks_research), research) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        assert kinds(agent) == ["pi.generation", "pi.generation", "pi.tool"]
        await agent.root.abort(reason="enough")
        assert kinds(agent) == []
    with peek(storage) as stored:
        tasks = all_tasks(stored)
        assert [record.reason for record in all_submissions(stored)] == ["aborted", "aborted"]
    (inner,) = [task for task in tasks if task.conversation_id != ROOT_ID]
    (outer,) = [task for task in tasks if task.kind == "pi.tool"]
    assert isinstance(ended(inner).outcome, AbortedOutcome)
    assert inner.id > outer.id
    assert (inner.ended_at_ms or 0) <= (outer.ended_at_ms or 0)


async def test_a_subagent_is_found_again_after_a_restart_and_asked_once() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(asks_research), research) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        left = storage.snapshot()
    async with open_agent(left, ScriptedModel(asks_research), research) as agent:
        assert (await agent.ask(request_id="r1")).status == "done"
        helper = await agent.harness.conversation(await owned(agent))
        asked = (await helper.entries("pi.user")).items
        assert len(asked) == 1


async def test_a_background_subagent_outlives_its_call_and_can_be_listed_and_steered() -> None:
    async with open_agent(
        MemoryStorage(), ScriptedModel(spawns), registry=lab(spawn, slow)
    ) as agent:
        assert (await agent.ask()).status == "done"
        assert "test.worker" in kinds(agent)
        await agent.root.wait_for_idle()
        await agent.harness.wait_for_idle()
        assert "test.worker" in kinds(agent), "background work keeps nobody busy"

        started = await worker(agent)
        mine = await agent.harness.conversation(await owned(agent))
        steer = await mine.submit("hurry", when_busy="steer")
        assert await steer.answer() == "re: hurry"
        record = await agent.harness.wait_for_task(started.id)
        assert record.outcome is not None
        assert record.outcome.status == "completed"


async def test_a_background_subagent_is_stopped_by_name_and_survives_an_ordinary_abort() -> None:
    async with open_agent(
        MemoryStorage(), ScriptedModel(spawns), registry=lab(spawn, slow)
    ) as agent:
        await agent.ask()
        started = await worker(agent)
        await trio.sleep(1)
        await agent.root.abort()
        assert "test.worker" in kinds(agent)
        record = await agent.harness.abort_task(started.id, reason="no more")
        assert record.outcome == AbortedOutcome(reason="no more")
        assert kinds(agent) == [], "its conversation's run ended with it"


async def test_an_abort_reaches_background_work_when_asked() -> None:
    async with open_agent(
        MemoryStorage(), ScriptedModel(spawns), registry=lab(spawn, slow)
    ) as agent:
        await agent.ask()
        await trio.sleep(1)
        await agent.root.abort(background=True, reason="all of it")
        assert kinds(agent) == []


async def test_what_a_subagent_had_queued_is_withdrawn_when_its_owner_ends() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(asks_research), research) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        helper = await agent.harness.conversation(await owned(agent))
        queued = await helper.submit("and then?")
        await agent.root.abort()
        settled = await queued.wait()
        assert (settled.status, settled.reason) == ("unanswered", "withdrawn")
        with pytest.raises(TaskRefused, match="nobody would answer"):
            await helper.submit("too late")


async def test_a_tool_that_waits_for_its_own_conversation_is_told() -> None:
    """C14: the wait could never end, because the run waits for the tool."""

    @tool(replay="safe")
    async def talks_to_itself(*, api: ToolApi) -> str:
        """Ask the conversation that waits for this."""
        mine = await api.conversation(api.conversation_id)
        return await (await mine.submit("more?", request_id="more")).answer()

    def script(ctx: ScriptedContext) -> Reply:
        return Reply("done") if ctx.answers else calling(call("talks_to_itself"))

    async with open_agent(MemoryStorage(), ScriptedModel(script), talks_to_itself) as agent:
        assert (await agent.ask()).status == "done"
        (result,) = (await agent.results()).values()
        assert result.is_error
        assert "TaskRefused" in result.content[0].text  # type: ignore[union-attr]


async def test_one_key_makes_one_conversation_and_one_task() -> None:
    made: list[object] = []

    @tool(replay="safe")
    async def twice(*, api: ToolApi) -> str:
        """Make things twice."""
        made.extend([(await api.create_conversation("a")).id for _ in range(2)])
        made.append((await api.create_conversation("b")).id)
        made.extend([await api.create_task("a", Worker, "x", background=True) for _ in range(2)])
        with pytest.raises(UnknownModel):
            await api.create_conversation("c", agent=AgentChoice(model="nobody/x"))
        kept.append(api)
        return "made"

    kept: list[ToolApi] = []

    def script(ctx: ScriptedContext) -> Reply:
        return Reply("done") if ctx.answers else calling(call("twice"))

    async with open_agent(MemoryStorage(), ScriptedModel(script), registry=lab(twice)) as agent:
        await agent.ask()
        a, again, b, task, task_again = made
        assert a == again != b
        assert task == task_again
        with pytest.raises(InvocationEnded):
            await kept[0].create_conversation("late")


async def test_a_task_with_work_in_a_conversation_of_its_own_ends_after_it() -> None:
    class Leaves(TaskActor[None, str], kind="test.leaves"):
        """Asks, and does not wait."""

        def start(self) -> Work:
            return Work()

        @phase(Work)
        async def work(self, at: Work) -> Next[str]:
            mine = await self.create_conversation("mine", agent=AGENT)
            await mine.submit("why?", request_id="q")
            return Completed("left")

    registry = Registry([Extension("lab", tasks=[Leaves])])
    async with open_agent(
        MemoryStorage(), ScriptedModel(lambda _: Reply("so", delay_s=60)), registry=registry
    ) as agent:
        task = await agent.root.commit(lambda tx: tx.create_task(Leaves, None))
        agent.harness.resume()
        await trio.sleep(1)
        assert (await agent.harness.get_task(task)).state.status == "completing"
        record = await agent.harness.wait_for_task(task)
        assert isinstance(record.state, Terminal)
        assert trio.current_time() >= 60
