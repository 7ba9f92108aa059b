"""Rounds: parallel calls run together, sequential ones in order, and each has its one result."""

from __future__ import annotations

import pytest
import trio

from pidurable_actors import Reply, ScriptedModel, Settings, tool
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import ToolResultMessage, text_of
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    MODEL,
    STORE_FIRST,
    call,
    calling,
    error_text,
    open_agent,
    registry_of,
    turns,
)

THREE = (call("wait", "c1", s=3), call("wait", "c2", s=2), call("wait", "c3", s=1))


@tool(replay="safe")
async def wait(s: int) -> str:
    """Wait for some seconds."""
    await trio.sleep(s)
    return f"waited {s}"


@tool(mode="sequential", replay="safe")
async def ordered(s: int) -> str:
    """Wait, with nobody beside."""
    await trio.sleep(s)
    return f"waited {s}"


async def test_the_calls_of_a_round_run_together_and_the_model_sees_call_order() -> None:
    model = turns(calling(*THREE), Reply("done"))
    async with open_agent(MemoryStorage(), model, wait) as agent:
        await agent.ask()
        assert trio.current_time() == pytest.approx(3)
        # Each result is stored when its tool ends; the model's view has them in call order.
        assert [line.split()[1] for line in (await agent.lines())[2:5]] == ["c3", "c2", "c1"]
    assert _results(model) == ["c1", "c2", "c3"]


@pytest.mark.parametrize("by_tool", [True, False])
async def test_a_sequential_round_runs_in_call_order(*, by_tool: bool) -> None:
    last = call("ordered" if by_tool else "wait", "c3", s=1)
    model = turns(calling(*THREE[:2], last), Reply("done"))
    settings = Settings() if by_tool else Settings(tool_mode="sequential")
    async with open_agent(MemoryStorage(), model, wait, ordered, settings=settings) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        assert len(agent.tool_tasks()) == 1
        await submission.wait()
        assert trio.current_time() == pytest.approx(6)
        assert [line.split()[1] for line in (await agent.lines())[2:5]] == ["c1", "c2", "c3"]


async def test_a_crash_between_the_calls_of_a_sequential_round_goes_on_with_the_next() -> None:
    storage = MemoryStorage()
    settings = Settings(tool_mode="sequential")
    model = turns(calling(*THREE), Reply("done"))
    async with open_agent(storage, model, wait, settings=settings) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(3.5)
        crashed = storage.snapshot()
    async with open_agent(crashed, turns(calling(*THREE), Reply("done")), wait) as agent:
        await agent.ask("go", request_id="r1")
        lines = await agent.lines()
    assert lines[2] == "result c1 waited 3"
    assert sorted(lines[3:5]) == ["result c2 waited 2", "result c3 waited 1"]


async def test_an_abort_in_a_sequential_round_answers_the_calls_that_never_started() -> None:
    settings = Settings(tool_mode="sequential")
    async with open_agent(
        MemoryStorage(), turns(calling(*THREE), Reply("never")), wait, settings=settings
    ) as agent:
        await agent.root.submit("go")
        await trio.sleep(3.5)
        await agent.root.abort()
        running = error_text("Tool wait was aborted and may have partially run")
        assert (await agent.lines())[2:] == [
            "result c1 waited 3",
            f"error c2 {running}",
            f"error c3 {error_text('Tool wait was aborted')}",
        ]


async def test_a_failing_call_does_not_stop_the_others() -> None:
    @tool()
    async def fail() -> str:
        """Fail."""
        await trio.lowlevel.checkpoint()
        raise ValueError("no")

    model = turns(calling(call("fail", "c0"), *THREE), Reply("done"))
    async with open_agent(MemoryStorage(), model, wait, fail) as agent:
        assert (await agent.ask()).status == "done"
    results = _messages(model)
    assert [(result.call_id, result.is_error) for result in results] == [
        ("c0", True),
        ("c1", False),
        ("c2", False),
        ("c3", False),
    ]


@pytest.mark.slow
async def test_thirty_two_calls_that_end_together_all_have_their_result() -> None:
    """C30, with steering coming in; order is call order in the model's view."""
    model = turns(
        *(calling(*(call("wait", f"r{r}-{n}", s=1) for n in range(32))) for r in range(5)),
        Reply("done"),
    )
    async with open_agent(MemoryStorage(), model, wait) as agent:
        submission = await agent.root.submit("go")
        for number in range(5):
            await agent.root.submit(f"steer {number}", when_busy="steer")
        assert (await submission.wait()).status == "done"
        lines = await agent.lines()
        assert (await agent.root.usage()).tools == {"wait": 160}
    assert sum(line.startswith("result") for line in lines) == 160
    for number in range(5):
        sent = [m.call_id for m in _messages(model, number + 1)]
        assert sent == [f"r{r}-{n}" for r in range(number + 1) for n in range(32)]


async def test_call_ids_that_a_model_uses_again_get_their_own_results() -> None:
    model = turns(
        calling(call("wait", "same", s=1)), calling(call("wait", "same", s=2)), Reply("done")
    )
    async with open_agent(MemoryStorage(), model, wait) as agent:
        assert (await agent.ask()).status == "done"
    assert [text_of(result.content) for result in _messages(model)] == ["waited 1", "waited 2"]


async def test_a_tool_that_is_installed_later_is_there_at_the_next_request() -> None:
    registry = registry_of()
    model = turns(calling(call("wait", s=1)), calling(call("wait", "c2", s=1)), Reply("done"))

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.answers == 1:
            registry.install(registry_of(wait).extensions[0])
        return [calling(call("wait", s=1)), calling(call("wait", "c2", s=1)), Reply("done")][
            ctx.answers
        ]

    model = ScriptedModel(script)
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask()
        assert (await agent.lines())[2].startswith("error c1")
        assert (await agent.lines())[4] == "result c2 waited 1"
    assert [len(request.tools) for request in model.requests] == [0, 0, 1]


async def test_settings_are_read_live() -> None:
    current = [Settings(tool_mode="sequential", progress=STORE_FIRST)]
    model = turns(calling(*THREE[:2]), calling(*THREE[1:]), Reply("done"))
    async with open_agent(MemoryStorage(), model, wait, settings=lambda: current[0]) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(4)
        current[0] = Settings()
        await submission.wait()
        assert trio.current_time() == pytest.approx(5 + 2)


@pytest.mark.slow
async def test_conversations_work_beside_each_other() -> None:
    """C06: what one says never turns up in another."""

    def script(ctx: ScriptedContext) -> Reply:
        word = ctx.user_text
        if ctx.answers:
            return Reply(f"{word}: {text_of(_last(ctx).content)}", delay_s=len(word) % 3)
        return calling(call("say", word=word))

    @tool()
    async def say(word: str) -> str:
        """Say a word after a while."""
        await trio.sleep(len(word) % 5)
        return word

    async with open_agent(MemoryStorage(), ScriptedModel(script), say) as agent:
        words = ["x" * n for n in range(1, 51)]
        conversations = [await agent.harness.create_conversation() for _ in words]
        for conversation in conversations:
            await conversation.configure(model=MODEL)
        handles = [await c.submit(w) for c, w in zip(conversations, words, strict=True)]
        for handle, word, conversation in zip(handles, words, conversations, strict=True):
            await handle.wait()
            texts = [
                text_of(message.content)
                for entry in (await conversation.entries()).items
                for message in entry.model or ()
            ]
            assert texts == [f"{word}: {word}", word, "", word]


def _last(ctx: ScriptedContext) -> ToolResultMessage:
    return ctx.tool_results()[-1]


def _messages(model: ScriptedModel, request: int = -1) -> list[ToolResultMessage]:
    return [m for m in model.requests[request].messages if isinstance(m, ToolResultMessage)]


def _results(model: ScriptedModel) -> list[str]:
    return [message.call_id for message in _messages(model)]
