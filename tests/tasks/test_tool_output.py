"""Output of a running tool: bounded, counted, and stored in time."""

from __future__ import annotations

import pytest
import trio

from pidurable_actors import Reply, Settings, ToolApi, tool
from pidurable_actors.records import text_of
from pidurable_actors.settings import ProgressSettings
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.tasks._tool_run import OUTPUT_CHARS, OUTPUT_LINES
from tests._agents import (
    STORE_FIRST,
    Agent,
    call,
    calling,
    codes,
    error_text,
    open_agent,
    turns,
)


async def stored_output(agent: Agent) -> str:
    """What the live document has of the one running tool."""
    (slot,) = (await agent.live()).tools.values()
    return str(slot.output)


async def said(*chunks: str | bytes) -> str:
    """What is kept of a tool's output, without the error at its end."""

    @tool()
    async def say(*, api: ToolApi) -> str:
        """Say something, then fail, so that the output is in the result."""
        for chunk in chunks:
            await api.output(chunk)
        raise ValueError("end")

    async with open_agent(
        MemoryStorage(), turns(calling(call("say")), Reply("done")), say
    ) as agent:
        await agent.ask()
        (result,) = (await agent.results()).values()
    text = text_of(result.content)
    ending = error_text("ValueError: end")
    assert text.endswith(ending)
    return text[: -len(ending)]


async def test_output_is_stored_within_the_time_of_the_settings() -> None:
    @tool()
    async def tick(*, api: ToolApi) -> str:
        """Say a character ten times a second."""
        for _ in range(100):
            await api.output("x")
            await trio.sleep(0.1)
        return "ticked"

    storage = MemoryStorage()
    async with open_agent(storage, turns(calling(call("tick")), Reply("done")), tick) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(0.05)
        before = _commit(storage)
        for second in range(1, 9):
            await trio.sleep_until(second + 0.05)
            assert second * 10 - 10 <= len(await stored_output(agent)) <= second * 10 + 1
        assert _commit(storage) - before <= 9
        await submission.wait()
        assert "x" not in (await agent.lines())[2]


async def test_with_zero_output_is_stored_when_the_call_returns() -> None:
    seen: list[str] = []

    @tool()
    async def say(*, api: ToolApi) -> str:
        """Say two things, and look."""
        for text in ("one ", "two"):
            await api.output(text)
            seen.append(await stored_output(holder[0]))
        return "said"

    holder: list[Agent] = []
    async with open_agent(
        MemoryStorage(),
        turns(calling(call("say")), Reply("done")),
        say,
        settings=Settings(progress=STORE_FIRST),
    ) as agent:
        holder.append(agent)
        await agent.ask()
    assert seen == ["one ", "one two"]


async def test_a_tool_that_says_nothing_stores_nothing() -> None:
    @tool()
    async def quiet() -> str:
        """Be quiet."""
        await trio.sleep(60)
        return "quiet"

    storage = MemoryStorage()
    settings = Settings(progress=ProgressSettings(persist_within_ms=10))
    async with open_agent(
        storage, turns(calling(call("quiet")), Reply("done")), quiet, settings=settings
    ) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        before = _commit(storage)
        await trio.sleep(50)
        assert _commit(storage) == before
        await submission.wait()


async def test_short_output_is_kept_whole() -> None:
    assert await said("working\n", "more") == "working\nmore\n"
    assert await said() == ""


async def test_of_long_output_the_end_is_kept_and_what_is_dropped_is_counted() -> None:
    text = await said("a" * OUTPUT_CHARS, "b" * 10)
    assert text == "[10 characters dropped]\n" + "a" * (OUTPUT_CHARS - 10) + "b" * 10 + "\n"


async def test_of_many_lines_the_last_are_kept_and_what_is_dropped_is_counted() -> None:
    text = await said(*(f"{n:05}\n" for n in range(OUTPUT_LINES + 3)))
    lines = text.splitlines()
    assert lines[0] == "[18 characters dropped]"
    assert lines[1] == "00003"
    assert len(lines) == OUTPUT_LINES + 1


@pytest.mark.slow
async def test_small_pieces_are_counted_like_large_ones() -> None:
    pieces = ["0123456789\n"] * 20_000
    assert await said(*pieces) == await said("".join(pieces))


async def test_bytes_are_text_also_when_a_character_is_cut() -> None:
    euro = "€".encode()
    assert await said(b"price: ", euro[:1], euro[1:], b" \xff!") == "price: € \ufffd!\n"
    assert await said(b"cut ", euro[:2]) == "cut \ufffd\n"


async def test_what_cannot_be_stored_is_replaced_in_output() -> None:
    assert await said("lone \ud800", "nul \0") == "lone ?nul \0\n"


async def test_a_diagnostic_that_cannot_be_stored_is_refused_on_the_spot() -> None:
    @tool()
    async def say(*, api: ToolApi) -> str:
        """Add a bad diagnostic."""
        await trio.lowlevel.checkpoint()
        api.diagnostic("odd", "\ud800")
        return "never"

    async with open_agent(
        MemoryStorage(), turns(calling(call("say")), Reply("done")), say
    ) as agent:
        await agent.ask()
        assert codes(await agent.result_entry("c1")) == ["tool_error"]
        assert agent.reports == []


@pytest.mark.slow
async def test_a_result_of_megabytes_is_stored_and_read_again() -> None:
    """C33: nothing refuses in the middle of a commit."""

    @tool()
    async def big() -> str:
        """Return ten megabytes."""
        await trio.lowlevel.checkpoint()
        return "x" * 10_000_000

    async with open_agent(
        MemoryStorage(), turns(calling(call("big")), Reply("done")), big
    ) as agent:
        assert (await agent.ask()).status == "done"
        (result,) = (await agent.results()).values()
        assert len(text_of(result.content)) == 10_000_000


def _commit(storage: MemoryStorage) -> int:
    look = storage.snapshot()
    head = look.open(read_only=True)
    look.close()
    return head.commit
