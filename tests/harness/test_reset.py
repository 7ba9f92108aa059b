"""Resets: the model sees nothing of what came before; where they are placed, and what they end."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pidurable_actors import Reply, ScriptedModel, Settings, ToolResult, tool
from pidurable_actors.agent import INBOX
from pidurable_actors.errors import InvalidValue, NothingToRetry, RequestConflict
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import RESET, EntryDraft, TextBlock, UserMessage
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import call, calling, echo, open_agent, short
from tests._strict import strict_model, strictly


@tool(replay="safe")
async def work() -> str:
    """Work for ten seconds."""
    await trio.sleep(10)
    return "worked"


WORKING = (calling(call("work")), Reply("done"))


def note(text: str) -> EntryDraft:
    """A line of the user's that asks nothing."""
    return EntryDraft(kind="app.note", model=(UserMessage(content=(TextBlock(text=text),)),))


def slow(ctx: ScriptedContext) -> Reply:
    """An echo that takes ten seconds."""
    return Reply(f"re: {ctx.user_text}", delay_s=10)


def asked(model: ScriptedModel) -> list[list[str]]:
    """What each request said, without the system."""
    return [
        [short(message) for message in request.messages if message.role != "system"]
        for request in model.requests
    ]


async def ends(*submissions: Any) -> list[str]:
    """How submissions ended: their status, or the reason of it."""
    records = [await submission.wait() for submission in submissions]
    return [record.reason or record.status for record in records]


async def test_a_reset_of_an_idle_conversation_hides_what_came_before_and_keeps_it() -> None:
    model = ScriptedModel(strictly(echo))
    async with open_agent(MemoryStorage(), model) as agent:
        await agent.ask("one")
        record = await (await agent.root.reset()).wait()
        assert (record.status, record.type) == ("done", "write")
        await agent.ask("two")
        entry = (await agent.root.entries(RESET)).items[0]
        assert entry.head == entry.id == record.entry
        assert await agent.lines() == [
            "user one",
            "assistant re: one",
            "user two",
            "assistant re: two",
        ]
    assert asked(model) == [["user one"], ["user two"]]


async def test_a_handoff_is_what_is_seen_in_place_of_what_came_before() -> None:
    model = ScriptedModel(strictly(echo))
    async with open_agent(MemoryStorage(), model) as agent:
        await agent.ask("one")
        await agent.root.reset("So far: one.")
        await agent.ask("two")
    assert asked(model)[1] == ["user So far: one.two"]


async def test_a_reset_of_a_busy_conversation_ends_the_run_at_its_next_boundary() -> None:
    """What waits goes on: a steer and a follow-up start the next run, the oldest first."""
    model = strict_model(*WORKING)
    async with open_agent(MemoryStorage(), model, work) as agent:
        running = await agent.root.submit("go")
        await trio.sleep(1)
        follow = await agent.root.submit("follow")
        steer = await agent.root.submit("steer", when_busy="steer")
        await agent.root.reset()
        assert await ends(running) == ["reset"]
        assert trio.current_time() == 10
        assert await ends(follow, steer) == ["done", "done"]
        assert await agent.lines() == [
            "user go",
            "calls work(c1)",
            "result c1 worked",
            "user follow",
            "calls work(c1)",
            "result c1 worked",
            "user steer",
            "assistant done",
        ]
        assert (await agent.live()).run_failure is None
        assert not await agent.root.busy()
    assert asked(model)[1:2] == [["user follow"]]


async def test_a_run_that_was_reset_is_not_retried() -> None:
    async with open_agent(MemoryStorage(), strict_model(*WORKING), work) as agent:
        running = await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.reset()
        assert await ends(running) == ["reset"]
        failed = (await agent.live()).run_failure
        assert failed is not None
        assert (failed.reason, list(failed.submissions)) == ("reset", [])
        with pytest.raises(NothingToRetry):
            await agent.root.retry()


async def test_a_reset_with_a_handoff_goes_on_with_the_run() -> None:
    """C37: the steers that wait are placed behind it, in the same commit as the request."""
    model = ScriptedModel(
        strictly(lambda ctx: WORKING[0] if ctx.user_text == "go" else Reply("done"))
    )
    settings = Settings(steering_mode="all")
    async with open_agent(MemoryStorage(), model, work, settings=settings) as agent:
        running = await agent.root.submit("go")
        await trio.sleep(1)
        steers = [await agent.root.submit(text, when_busy="steer") for text in ("left", "right")]
        await agent.root.reset("So far: nothing.")
        assert await ends(running, *steers) == ["done"] * 3
        assert (await running.record()).answer == (await steers[1].record()).answer
    assert asked(model)[1] == ["user So far: nothing.leftright"]


async def test_a_reset_behind_the_last_boundary_leaves_the_answer_of_the_run() -> None:
    model = ScriptedModel(strictly(slow))
    async with open_agent(MemoryStorage(), model) as agent:
        running = await agent.root.submit("one")
        await trio.sleep(1)
        reset = await agent.root.reset()
        follow = await agent.root.submit("two")
        assert await ends(running, reset, follow) == ["done"] * 3
    assert asked(model) == [["user one"], ["user two"]]


@pytest.mark.parametrize(
    ("handoffs", "expected"), [((None, "on"), "done"), (("on", None), "reset")]
)
async def test_of_two_resets_the_last_decides(
    handoffs: tuple[str | None, ...], expected: str
) -> None:
    model = strict_model(WORKING[0], Reply("done"))
    async with open_agent(MemoryStorage(), model, work) as agent:
        running = await agent.root.submit("go")
        await trio.sleep(1)
        for handoff in handoffs:
            await agent.root.reset(handoff)
        assert await ends(running) == [expected]
        await agent.root.wait_for_idle()
        assert len((await agent.root.entries(RESET)).items) == 2
        assert (await agent.root.snapshot(INBOX)).items == []


async def test_writes_around_a_reset_keep_their_order() -> None:
    model = ScriptedModel(
        strictly(lambda ctx: WORKING[0] if ctx.user_text == "go" else Reply("done"))
    )
    async with open_agent(MemoryStorage(), model, work) as agent:
        running = await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.write(note("before"))
        await agent.root.reset("anew")
        await agent.root.write(note("after"))
        assert await ends(running) == ["done"]
    assert asked(model)[1] == ["user anewafter"]


async def test_a_reset_is_found_again_by_its_request_id() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        first = await agent.root.reset("x", request_id="r1")
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        assert await agent.root.reset("x", request_id="r1") == first
        with pytest.raises(RequestConflict):
            await agent.root.reset("y", request_id="r1")
        with pytest.raises(RequestConflict):
            await agent.root.reset(request_id="r1")
        assert len((await agent.root.entries(RESET)).items) == 1


async def test_a_queued_reset_is_withdrawn_and_then_resets_nothing() -> None:
    model = strict_model(*WORKING)
    async with open_agent(MemoryStorage(), model, work) as agent:
        running = await agent.root.submit("go")
        await trio.sleep(1)
        reset = await agent.root.reset()
        await reset.abort()
        assert await ends(running, reset) == ["done", "withdrawn"]
        assert (await agent.root.entries(RESET)).items == ()


async def test_an_abort_keeps_a_queued_reset_and_places_it() -> None:
    model = strict_model(*WORKING)
    async with open_agent(MemoryStorage(), model, work) as agent:
        running = await agent.root.submit("go")
        await trio.sleep(1)
        reset = await agent.root.reset()
        await agent.root.abort()
        assert await ends(running, reset) == ["aborted", "done"]
        with pytest.raises(NothingToRetry):
            await agent.root.retry()


@pytest.mark.parametrize("handoff", ["", "\ud800", 7])
async def test_a_handoff_that_is_no_text_is_refused_and_nothing_stored(handoff: Any) -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        with pytest.raises(InvalidValue) as refused:
            await agent.root.reset(handoff)
        assert refused.value.path.startswith("handoff") or handoff == "\ud800"
        assert await agent.entries() == []


# --- from a tool ---


def handing(*texts: str | None) -> list[Any]:
    """Tools ``hand1``, ``hand2`` and so on, whose results hand off with these texts."""

    def one(number: int, text: str | None) -> Any:
        @tool(f"hand{number}", replay="safe")
        async def hand() -> ToolResult:
            """Begin anew."""
            await trio.sleep(number)
            return ToolResult("handed", handoff=text)

        return hand

    return [one(number, text) for number, text in enumerate(texts, start=1)]


async def test_a_tool_begins_anew_with_a_text_after_its_round() -> None:
    model = ScriptedModel(
        strictly(lambda ctx: calling(call("hand1")) if ctx.user_text == "go" else Reply("done"))
    )
    async with open_agent(MemoryStorage(), model, *handing("Go on: 2 of 3.")) as agent:
        submission = await agent.root.submit("go")
        assert await submission.answer() == "done"
        (entry,) = (await agent.root.entries(RESET)).items
        assert entry.head == entry.id
        assert entry.data == {"by": "tool"}
        live = await agent.live()
        assert live.run is None
    assert asked(model) == [["user go"], ["user Go on: 2 of 3."]]


async def test_the_last_result_of_a_round_with_a_handoff_decides() -> None:
    model = ScriptedModel(
        strictly(
            lambda ctx: (
                calling(call("hand1", "c1"), call("hand2", "c2"), call("hand3", "c3"))
                if ctx.user_text == "go"
                else Reply("done")
            )
        )
    )
    async with open_agent(MemoryStorage(), model, *handing("one", "two", None)) as agent:
        await agent.ask()
    assert asked(model)[1] == ["user two"]


async def test_a_handoff_stands_although_a_later_result_asks_for_the_end() -> None:
    @tool(replay="safe")
    async def stop() -> ToolResult:
        """End the run."""
        await trio.sleep(5)
        return ToolResult("stopped", terminate=True)

    model = ScriptedModel(
        strictly(
            lambda ctx: (
                calling(call("hand1", "c1"), call("stop", "c2"))
                if ctx.user_text == "go"
                else Reply("done")
            )
        )
    )
    async with open_agent(MemoryStorage(), model, *handing("anew"), stop) as agent:
        assert (await agent.ask()).status == "done"
    assert asked(model)[1] == ["user anew"]


async def test_steers_are_placed_behind_the_handoff_of_a_tool() -> None:
    model = ScriptedModel(
        strictly(
            lambda ctx: (
                calling(call("hand1"), call("work", "c2"))
                if ctx.user_text == "go"
                else Reply("done")
            )
        )
    )
    async with open_agent(MemoryStorage(), model, *handing("anew"), work) as agent:
        running = await agent.root.submit("go")
        await trio.sleep(5)
        steer = await agent.root.submit("left", when_busy="steer")
        assert await ends(running, steer) == ["done", "done"]
    assert asked(model)[1] == ["user anewleft"]


async def test_a_queued_reset_wins_over_the_handoff_of_a_tool() -> None:
    model = ScriptedModel(strictly(lambda _: calling(call("hand1"), call("work", "c2"))))
    async with open_agent(MemoryStorage(), model, *handing("anew"), work) as agent:
        running = await agent.root.submit("go")
        await trio.sleep(5)
        await agent.root.reset()
        assert await ends(running) == ["reset"]
    assert len(model.requests) == 1


@pytest.mark.parametrize("after_s", [0.5, 5])
async def test_a_handoff_is_made_once_across_a_crash(after_s: float) -> None:
    """Killed inside the round, before and after the result that hands off is stored."""
    storage = MemoryStorage()

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.user_text == "go":
            return calling(call("hand1"), call("work", "c2"))
        return Reply("done")

    tools = [*handing("anew"), work]
    async with open_agent(storage, ScriptedModel(strictly(script)), *tools) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(after_s)
        crashed = storage.snapshot()
    model = ScriptedModel(strictly(script))
    async with open_agent(crashed, model, *tools) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
        assert len((await agent.root.entries(RESET)).items) == 1
    assert asked(model) == [["user anew"]]


async def test_a_handoff_of_an_earlier_round_is_not_made_again() -> None:
    """Three rounds, of which the second hands off: the third goes on from there."""

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.user_text == "go":
            return calling(call("hand1" if ctx.answers else "work"))
        return Reply("done") if ctx.answers else calling(call("work"))

    model = ScriptedModel(strictly(script))
    async with open_agent(MemoryStorage(), model, *handing("anew"), work) as agent:
        assert (await agent.ask()).status == "done"
        assert len((await agent.root.entries(RESET)).items) == 1
    assert asked(model)[-1] == ["user anew", "calls work(c1)", "result c1 worked"]
