"""A fork that is cut anywhere in a tool round asks its model with what a strict provider takes."""

from __future__ import annotations

from pytest import mark

from pidurable_actors import Conversation, Reply, ScriptedModel, tool
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import AssistantMessage, UserMessage
from tests._agents import call, calling, open_agent, short
from tests._strict import check_strictly
from tests.documents.kit import Place


@tool()
async def left() -> str:
    """Go left."""
    return "went left"


@tool(mode="sequential")
async def right() -> str:
    """Go right."""
    return "went right"


def script(ctx: ScriptedContext) -> Reply:
    """Two rounds of calls for "go", with call ids that come again; anything else is answered."""
    check_strictly(ctx.messages, ctx.request.tools)
    if ctx.user_text != "go":
        return Reply(f"re: {ctx.user_text}")
    asked = [it for it in ctx.messages if isinstance(it, UserMessage)]
    rounds = sum(
        bool(it.tool_calls) for it in ctx.messages if isinstance(it, AssistantMessage)
    ) - 2 * (len(asked) - 1)
    if rounds < 2:
        return calling(call("left", "c1"), call("right", "c2"), call("left", "c3"))
    return Reply("there")


@mark.slow
async def test_a_fork_cut_at_any_entry_asks_a_legal_question_and_its_parent_is_as_it_was(
    place: Place,
) -> None:
    """The transcript of two tool rounds is cut at each of its entries, and each cut goes on.

    The script checks every request strictly. A second level forks the answer of each fork again at
    every entry, so that cuts within cuts are tried as well.
    """
    async with open_agent(place(), ScriptedModel(script), left, right) as agent:
        await agent.ask("go")
        entries = await agent.entries()
        lines = await agent.lines()
        assert len(entries) == 10
        forks: list[tuple[Conversation, int]] = []
        for at, entry in enumerate(entries):
            fork = await agent.root.fork(at=entry.id)
            submission = await (await fork.submit("on")).wait()
            assert submission.status == "done"
            assert (await _lines(fork))[: at + 1] == lines[: at + 1]
            assert (await _lines(fork))[at + 1 :] == ["user on", "assistant re: on"]
            forks.append((fork, at))
        assert await agent.lines() == lines
        for fork, at in forks[1::3]:
            for entry in (await fork.entries()).items:
                again = await fork.fork(at=entry.id)
                submission = await (await again.submit("more")).wait()
                assert submission.status == "done"
            assert len(await _lines(fork)) == at + 3
        assert not agent.reports


async def test_a_call_that_lost_its_result_to_a_cut_has_an_error_in_its_place(
    place: Place,
) -> None:
    asked: list[list[str]] = []

    def noted(ctx: ScriptedContext) -> Reply:
        asked.append([short(message) for message in ctx.messages])
        return script(ctx)

    async with open_agent(place(), ScriptedModel(noted), left, right) as agent:
        await agent.ask("go")
        entries = await agent.entries()
        fork = await agent.root.fork(at=entries[2].id)
        await (await fork.submit("on")).wait()
    ids = ["c1", "c2", "c3"]
    (first,) = [line.split()[1] for line in asked[-1] if line.startswith("result")]
    missing = [line for line in asked[-1] if line.startswith("error")]
    assert [line.split()[1] for line in missing] == [it for it in ids if it != first]
    assert all("has no result" in line for line in missing)
    assert asked[-1][0] == "user go"
    assert asked[-1][-1] == "user on"


async def test_a_fork_of_a_run_that_goes_on_is_idle_and_asks_on_its_own(place: Place) -> None:
    """The parent waits for a slow answer; the fork is asked, answers, and disturbs nothing."""

    def slow(ctx: ScriptedContext) -> Reply:
        check_strictly(ctx.messages, ctx.request.tools)
        return Reply(f"re: {ctx.user_text}", delay_s=60 if ctx.user_text == "slow" else 0)

    async with open_agent(place(), ScriptedModel(slow)) as agent:
        waiting = await agent.root.submit("slow")
        fork = await agent.root.fork()
        assert not await fork.busy()
        assert await (await fork.submit("quick")).answer() == "re: quick"
        assert await agent.root.busy()
        assert await waiting.answer() == "re: slow"
        assert await agent.lines() == ["user slow", "assistant re: slow"]
        assert await _lines(fork) == ["user slow", "user quick", "assistant re: quick"]


async def _lines(at: Conversation) -> list[str]:
    page = await at.entries(limit=1_000)
    return [short(message) for entry in reversed(page.items) for message in entry.model or ()]
