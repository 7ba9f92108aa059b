"""Compactions that the code of a run asks for: hooks and tools."""

from __future__ import annotations

import pytest
import trio

from pidurable_actors import AgentChoice, Reply, Tool, ToolApi, tool
from pidurable_actors.agent import INBOX, LIVE, HookApi, hook
from pidurable_actors.errors import TaskRefused
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import COMPACTION, AssistantMessage, TaskId, ToolResultMessage
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import MODEL, Answer, call, calling, ended
from tests.tasks.compacting import LONG, Compacting, compacting, echoing, is_summary


async def queue_both(it: Compacting) -> list[str]:
    """A run with a steer and a follow-up behind it; what their answers are."""
    await it.grow(3)
    first = await it.root.submit("go")
    steer = await it.root.submit("left", when_busy="steer")
    follow_up = await it.root.submit("then")
    return [await handle.answer() for handle in (first, steer, follow_up)]


async def test_one_asked_for_when_a_run_ends_is_over_before_the_queue_goes_on() -> None:
    """C35: from ``on_yield``, with a steer and a follow-up queued.

    Neither is taken before the summary is placed, and the next request has the compacted context.
    """
    asked: list[TaskId] = []
    queued: list[int] = []

    @hook.on_yield
    async def compacts(message: AssistantMessage, api: HookApi) -> None:
        if len(asked) == 0 and "go" in str(message.content):
            asked.append(await (await api.conversation()).compact())

    script = echoing(Reply("short", delay_s=5), delay_s=0.1)
    async with (
        compacting(MemoryStorage(), script, hooks=(compacts,)) as it,
        trio.open_nursery() as nursery,
    ):

        async def look() -> None:
            await trio.sleep(3)
            inbox = [line for line in await it.agent.lines() if line in ("user left", "user then")]
            queued.append(len(inbox))

        nursery.start_soon(look)
        assert await queue_both(it) == ["re: go", "re: left", "re: then"]
        assert (await it.outcome(asked[0])).status == "completed"
        assert queued == [0]
        kinds = [entry.kind for entry in await it.agent.entries()]
        assert kinds[-5:] == ["pi.compaction", *["pi.user", "pi.assistant"] * 2]
        assert it.seen(4)[0] == it.seen(5)[0] == "summary short"
        assert it.seen(4)[-1] == "user left"


def calling_then_echoing(ctx: ScriptedContext) -> Answer:
    """A run with one round of calls."""
    if is_summary(ctx.request):
        return Reply("short", delay_s=5)
    if ctx.user_text == "go" and not isinstance(ctx.last, ToolResultMessage):
        return calling(call("work"))
    return Reply(f"re: {ctx.user_text[:20]}", delay_s=0.1)


@tool("work")
async def work() -> str:
    """Work for a while."""
    await trio.sleep(1)
    return "done"


async def test_one_asked_for_after_the_tools_is_over_before_the_next_request() -> None:
    """C35: from ``after_tools``; the run itself waits, and the steer joins it after the summary."""
    asked: list[TaskId] = []

    @hook.after_tools
    async def compacts(results: object, api: HookApi) -> None:
        asked.append(await (await api.conversation()).compact("in the middle"))

    script = calling_then_echoing
    async with compacting(MemoryStorage(), script, work, hooks=(compacts,)) as it:
        answers = await queue_both(it)
        assert answers == ["re: left", "re: left", "re: then"]
        assert (await it.outcome(asked[0])).status == "completed"
        lines = [entry.kind for entry in await it.agent.entries()]
        at = lines.index("pi.compaction")
        assert lines[at - 1 : at + 2] == ["pi.tool-result", "pi.compaction", "pi.user"]
        seen = it.seen(4)
        assert seen[0] == "summary short"
        assert seen[-3:] == ["calls work(c1)", "result c1 done", "user left"]


def waiting_tool(outcomes: list[str]) -> Tool:
    """A tool that compacts the conversation that called it, and waits for that."""

    @tool("work")
    async def compacts(*, api: ToolApi) -> str:
        """Compact."""
        task = await (await api.conversation(1)).compact()
        outcomes.append((await api.wait_for_task(task)).state.status)
        return "compacted"

    return compacts


async def test_a_tool_may_wait_for_a_compaction_of_its_own_conversation() -> None:
    """Goal: no deadlock. The call that waits is of the newest turn, so it is never summarized."""
    outcomes: list[str] = []
    async with compacting(MemoryStorage(), calling_then_echoing, waiting_tool(outcomes)) as it:
        await it.grow(3)
        assert (await it.agent.ask("go")).status == "done"
        assert outcomes == ["terminal"]
        assert it.seen()[0] == "summary short"
        assert it.seen()[-2:] == ["calls work(c1)", "result c1 compacted"]


async def test_while_a_summary_waits_for_its_place_no_other_is_made() -> None:
    """Goal: nothing is summarized twice. Method: two compactions within one call of a tool."""
    outcomes: list[str] = []

    @tool("work")
    async def compacts(*, api: ToolApi) -> str:
        """Compact twice."""
        for _ in range(2):
            task = await (await api.conversation(1)).compact()
            outcomes.append(ended(await api.wait_for_task(task)).outcome.status)
        return "compacted"

    async with compacting(MemoryStorage(), calling_then_echoing, compacts) as it:
        await it.grow(3)
        assert (await it.agent.ask("go")).status == "done"
        assert outcomes == ["completed", "failed"]
        assert len(it.summarized) == len(await it.summaries()) == 1


async def test_a_conversation_whose_owner_has_ended_is_compacted_in_the_background_only() -> None:
    """Ordinary work belongs to the owner. What nobody waits for may be done all the same."""
    owned: list[int] = []

    @tool("work")
    async def delegates(*, api: ToolApi) -> str:
        """Ask in a conversation of its own."""
        helper = await api.create_conversation("helper", agent=AgentChoice(model=MODEL))
        owned.append(helper.id)
        for at in range(3):
            await (await helper.submit(f"{at} {LONG}")).wait()
        return "done"

    async with compacting(MemoryStorage(), calling_then_echoing, delegates) as it:
        assert (await it.agent.ask("go")).status == "done"
        helper = await it.harness.conversation(owned[0])
        with pytest.raises(TaskRefused):
            await helper.compact()
        assert (await it.outcome(await helper.compact(background=True))).status == "completed"
        assert len((await helper.entries(COMPACTION)).items) == 1


async def test_the_end_of_the_owner_withdraws_what_a_compaction_held() -> None:
    """The compaction is the owner's work, and the input that waits for it has nobody to answer."""
    owned: list[int] = []

    @tool("work")
    async def delegates(*, api: ToolApi) -> str:
        """Compact a conversation of its own, and never return."""
        helper = await api.create_conversation("helper", agent=AgentChoice(model=MODEL))
        owned.append(helper.id)
        for at in range(3):
            await (await helper.submit(f"{at} {LONG}")).wait()
        await helper.compact()
        await helper.submit("held")
        await trio.sleep(3_600)
        return ""

    async with compacting(MemoryStorage(), calling_then_echoing, delegates) as it:
        await it.root.submit("go")
        await trio.sleep(3)
        helper = await it.harness.conversation(owned[0])
        assert (await helper.snapshot(LIVE)).held
        await it.root.abort()
        live = await helper.snapshot(LIVE)
        assert (live.compactions, live.held) == ([], False)
        assert (await helper.snapshot(INBOX)).items == []


async def test_the_code_of_a_run_may_reset_its_conversation() -> None:
    @hook.after_tools
    async def resets(results: object, api: HookApi) -> None:
        await (await api.conversation()).reset("go on from here")

    async with compacting(MemoryStorage(), calling_then_echoing, work, hooks=(resets,)) as it:
        await it.grow(1)
        await it.agent.ask("go")
        assert it.seen() == ["user go on from here"]
