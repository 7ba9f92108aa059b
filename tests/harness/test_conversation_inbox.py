"""The inbox: follow-ups, steering, writes, abort, and runs that end unanswered."""

from __future__ import annotations

import pytest
import trio

from pidurable_actors import (
    Reply,
    ScriptedModel,
    Settings,
    ToolApi,
    tool,
)
from pidurable_actors.agent import AGENT, INBOX
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import EntryDraft, TextBlock, UserMessage
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    all_tasks,
    call,
    calling,
    echo,
    error_text,
    open_agent,
    peek,
    turns,
)


def slow_echo(ctx: ScriptedContext) -> Reply:
    return Reply(f"re: {ctx.user_text}", delay_s=10)


async def test_follow_ups_start_a_run_each_oldest_first() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(slow_echo)) as agent:
        submissions = [await agent.root.submit(name) for name in ("one", "two", "three")]
        answers = [(await submission.wait()).answer for submission in submissions]
        lines = await agent.lines()
    assert lines == [
        "user one",
        "assistant re: one",
        "user two",
        "assistant re: two",
        "user three",
        "assistant re: three",
    ]
    assert len(set(answers)) == 3


async def test_follow_up_mode_all_starts_one_run_for_all_that_waits() -> None:
    settings = Settings(follow_up_mode="all")
    async with open_agent(MemoryStorage(), ScriptedModel(slow_echo), settings=settings) as agent:
        submissions = [await agent.root.submit(name) for name in ("one", "two", "three")]
        answers = [(await submission.wait()).answer for submission in submissions]
        lines = await agent.lines()
    assert lines == [
        "user one",
        "assistant re: one",
        "user two",
        "user three",
        "assistant re: three",
    ]
    assert answers[1] == answers[2] != answers[0]


@tool()
async def work(*, api: ToolApi) -> str:
    """Work for ten seconds."""
    await trio.sleep(10)
    return "worked"


@pytest.mark.parametrize(("mode", "joined"), [("one", 1), ("all", 2)])
async def test_steering_joins_the_run_after_the_tool_round(mode: str, joined: int) -> None:
    model = turns(calling(call("work")), Reply("answer"), Reply("second answer"))
    settings = Settings(steering_mode=mode)  # type: ignore[arg-type]
    async with open_agent(MemoryStorage(), model, work, settings=settings) as agent:
        first = await agent.root.submit("go")
        await trio.sleep(5)
        steers = [await agent.root.submit(name, when_busy="steer") for name in ("left", "right")]
        answer = (await first.wait()).answer
        answers = [(await steer.wait()).answer for steer in steers]
        lines = await agent.lines()
    if joined == 2:
        end = ["user left", "user right", "assistant answer"]
    else:
        end = ["user left", "assistant answer", "user right", "assistant second answer"]
    assert lines == ["user go", "calls work(c1)", "result c1 worked", *end]
    assert [given == answer for given in answers] == [True, joined == 2]


async def test_steering_that_comes_too_late_starts_the_next_run() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(slow_echo)) as agent:
        await agent.root.submit("one")
        late = await agent.root.submit("two", when_busy="steer")
        assert (await late.wait()).status == "done"
        assert (await agent.lines())[2:] == ["user two", "assistant re: two"]


async def test_a_write_on_an_idle_conversation_is_placed_at_once_and_asks_nobody() -> None:
    model = ScriptedModel(echo)
    async with open_agent(MemoryStorage(), model) as agent:
        written = await agent.root.write(EntryDraft(kind="app.note", data={"n": 1}))
        record = await written.wait()
        (entry,) = await agent.entries()
    assert (record.status, record.type, record.entry) == ("done", "write", entry.id)
    assert (entry.kind, entry.data) == ("app.note", {"n": 1})
    assert model.requests == ()


async def test_writes_are_placed_at_each_boundary_before_the_inputs() -> None:
    model = turns(calling(call("work")), Reply("done", delay_s=5), Reply("next"))
    async with open_agent(MemoryStorage(), model, work) as agent:
        await agent.root.submit("go")
        await trio.sleep(5)
        follow = await agent.root.submit("follow")
        await agent.root.submit("steer", when_busy="steer")
        await agent.root.write(_note("in the round"))
        await trio.sleep(7)
        await agent.root.write(_note("in the answer"))
        await follow.wait()
        assert await agent.lines() == [
            "user go",
            "calls work(c1)",
            "result c1 worked",
            "user in the round",
            "user steer",
            "assistant done",
            "user in the answer",
            "user follow",
            "assistant next",
        ]


async def test_a_write_is_found_again_by_its_request_id() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        first = await agent.root.write(_note("once"), request_id="w1")
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        assert await agent.root.write(_note("once"), request_id="w1") == first
        assert await agent.lines() == ["user once"]


async def test_abort_withdraws_inputs_keeps_writes_and_returns_when_idle() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(slow_echo)) as agent:
        running = await agent.root.submit("one")
        queued = await agent.root.submit("two")
        note = await agent.root.write(_note("kept"))
        await agent.root.abort(reason="enough")
        assert not await agent.root.busy()
        records = [await running.record(), await queued.record(), await note.record()]
        assert [(record.status, record.reason) for record in records] == [
            ("unanswered", "aborted"),
            ("unanswered", "withdrawn"),
            ("done", None),
        ]
        assert records[0].detail == "enough"
        assert await agent.lines() == ["user one", "user kept"]
        live = await agent.live()
        assert live.run_failure is not None
        assert (live.run_failure.reason, live.run_failure.detail) == ("aborted", "enough")
        assert (live.run, live.generation, live.tools) == (None, None, {})
        assert (await agent.ask("three")).status == "done"
    with peek(storage) as stored:
        assert [task.state.status for task in all_tasks(stored)] == ["terminal", "terminal"]


async def test_abort_ends_running_tools_with_an_aborted_result() -> None:
    model = turns(calling(call("work", "c1"), call("work", "c2")), Reply("never"))
    async with open_agent(MemoryStorage(), model, work) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(5)
        await agent.root.abort()
        assert (await submission.record()).reason == "aborted"
        expected = error_text("Tool work was aborted and may have partially run")
        lines = await agent.lines()
        assert lines[:2] == ["user go", "calls work(c1) work(c2)"]
        assert sorted(lines[2:]) == [f"error c1 {expected}", f"error c2 {expected}"]
        assert trio.current_time() == 5


async def test_abort_keeps_the_half_answer_and_its_usage() -> None:
    model = turns(Reply("half whole", chunk=5, chunk_delay_s=10))
    async with open_agent(MemoryStorage(), model) as agent:
        await agent.root.submit("go")
        await trio.sleep(15)
        await agent.root.abort()
        assert await agent.lines() == ["user go", "assistant half  (aborted)"]
        (usage,) = (await agent.root.usage()).models.values()
        assert usage.requests == 1
        assert usage.input_tokens > 0


async def test_abort_of_an_idle_conversation_returns() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        await agent.root.abort()
        await agent.ask("hello")
        await agent.root.abort()
        assert (await agent.ask("again")).status == "done"


async def test_a_cancelled_abort_goes_on_once_it_is_stored() -> None:
    @tool()
    async def slow_to_stop() -> str:
        """Take two seconds to stop."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    model = turns(calling(call("slow_to_stop")), Reply("never"))
    async with open_agent(MemoryStorage(), model, slow_to_stop) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        with trio.move_on_after(1) as impatient:
            await agent.root.abort()
        assert impatient.cancelled_caught
        assert (await submission.wait()).reason == "aborted"
        assert trio.current_time() == 3


async def test_a_failed_run_leaves_the_inbox_and_the_next_submission_places_the_oldest() -> None:
    failing = [True]

    def script(ctx: ScriptedContext) -> Reply:
        if failing:
            failing.clear()
            raise RuntimeError("broken script")
        return Reply(f"re: {ctx.user_text}")

    async with open_agent(MemoryStorage(), ScriptedModel(script)) as agent:
        # Both are handed in before the first run has started.
        one = await agent.root.submit("one")
        two = await agent.root.submit("two")
        assert (await one.wait()).reason == "model_error"
        await agent.root.wait_for_idle()
        assert (await two.record()).status == "queued"
        assert len((await agent.root.snapshot(INBOX)).items) == 1
        three = await agent.root.submit("three")
        assert (await three.wait()).status == "done"
        assert await agent.lines() == [
            "user one",
            "user two",
            "assistant re: two",
            "user three",
            "assistant re: three",
        ]


async def test_a_tool_is_entered_once_whatever_happens_around_it() -> None:
    """C19: steers, commits, resumes and waits while it runs start no second copy of it."""
    entered: list[int] = []

    @tool()
    async def long() -> str:
        """Take two seconds."""
        entered.append(1)
        await trio.sleep(2)
        return "done"

    settings = Settings(steering_mode="all")
    async with open_agent(
        MemoryStorage(), turns(calling(call("long")), Reply("x")), long, settings=settings
    ) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(0.1)
        for number in range(100):
            await agent.root.submit(str(number), when_busy="steer")
            await agent.root.write(_note("noted"))
            await agent.root.commit(lambda tx: tx.doc(AGENT))
            agent.harness.resume()
            with trio.move_on_after(0.001):
                await submission.wait()
        assert (await submission.wait()).status == "done"
    assert len(entered) == 1


def _note(text: str) -> EntryDraft:
    return EntryDraft(kind="app.note", model=(UserMessage(content=(TextBlock(text=text),)),))
