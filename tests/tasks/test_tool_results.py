"""What a tool may return and raise, and what its api does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pidurable_actors import (
    Approve,
    Reply,
    Settings,
    ToolApi,
    ToolResult,
    tool,
)
from pidurable_actors.errors import InvocationEnded
from pidurable_actors.records import (
    FailedOutcome,
    ImageBlock,
    TextBlock,
    Usage,
    text_of,
)
from pidurable_actors.runtime import MISSING
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from tests._agents import (
    call,
    calling,
    codes,
    error_text,
    open_agent,
    turns,
)
from tests.tasks.calls import run_tool


async def test_an_exception_of_a_tool_is_the_models_to_read() -> None:
    @tool()
    async def fail() -> str:
        """Fail."""
        await trio.lowlevel.checkpoint()
        raise ValueError("no such thing")

    ran = await run_tool(fail)
    assert ran.text == error_text("ValueError: no such thing")
    assert codes(ran.entry) == ["tool_error"]
    assert isinstance(ran.outcomes[0], FailedOutcome)
    assert ran.reports == []


async def test_a_group_of_exceptions_of_a_tool_is_the_models_to_read() -> None:
    @tool()
    async def fail() -> str:
        """Fail twice at once."""

        async def child(number: int) -> None:
            raise ValueError(str(number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(child, 1)
            nursery.start_soon(child, 2)
        return "never"

    ran = await run_tool(fail)
    assert "ExceptionGroup" in ran.text
    assert codes(ran.entry) == ["tool_error"]


class Strange:
    """Something that is no result."""


@pytest.mark.parametrize(
    "returned",
    [
        None,
        7,
        Strange(),
        ToolResult(("text",)),  # type: ignore[arg-type]
        ToolResult("x", details={1, 2}),  # type: ignore[arg-type]
        ToolResult("x", details=float("nan")),
        "lone \ud800 surrogate",
    ],
)
async def test_a_return_value_that_is_no_result_is_a_tool_error(returned: object) -> None:
    @tool()
    async def strange() -> Any:
        """Return something strange."""
        await trio.lowlevel.checkpoint()
        return returned

    ran = await run_tool(strange)
    assert codes(ran.entry) == ["tool_error"]
    assert isinstance(ran.outcomes[0], FailedOutcome)
    assert ran.reports == []


async def test_a_tool_that_returns_what_a_hook_does_is_told_how_tools_ask() -> None:
    @tool()
    async def strange() -> Any:
        """Ask like a hook."""
        await trio.lowlevel.checkpoint()
        return Approve("Really?")

    assert "to ask a person, return Ask" in (await run_tool(strange)).text


async def test_a_result_may_carry_images_details_usage_and_an_error_mark() -> None:
    image = ImageBlock(data="aGk=", media_type="image/png")

    @tool()
    async def look() -> ToolResult:
        """Look."""
        await trio.lowlevel.checkpoint()
        return ToolResult(
            (TextBlock(text="seen"), image),
            details={"n": 1},
            usage=Usage(input_tokens=3, cost=0.25),
            is_error=True,
        )

    storage = MemoryStorage()
    async with open_agent(storage, turns(calling(call("look")), Reply("done")), look) as agent:
        await agent.ask()
        (result,) = (await agent.results()).values()
        entry = await agent.result_entry("c1")
        usage = await agent.root.usage()
    assert result.content == (TextBlock(text="seen"), image)
    assert result.is_error
    assert entry.data == {"details": {"n": 1}}
    assert usage.models["tool/look"].cost == 0.25
    assert usage.tools == {"look": 1}


async def test_text_with_nul_and_other_odd_characters_comes_back_as_it_was(tmp_path: Path) -> None:
    odd = "nul \0 separator \u2028 bom \ufeff high \U0001f600"

    @tool()
    async def say() -> str:
        """Say something odd."""
        await trio.lowlevel.checkpoint()
        return odd

    model = turns(calling(call("say")), Reply("done"))
    async with open_agent(SqliteStorage(tmp_path / "a.sqlite"), model, say) as agent:
        await agent.ask()
        (result,) = (await agent.results()).values()
    assert text_of(result.content) == odd


@pytest.mark.parametrize("setting", [False, True])
async def test_a_call_that_takes_too_long_is_cancelled_and_becomes_an_error(
    *, setting: bool
) -> None:
    @tool(timeout_s=None if setting else 3)
    async def slow(*, api: ToolApi) -> str:
        """Take an hour."""
        await api.output("so far\n")
        await trio.sleep(3_600)
        return "never"

    ran = await run_tool(slow, settings=Settings(tool_timeout_s=3 if setting else 1_000))
    assert trio.current_time() == pytest.approx(3)
    assert ran.text == "so far\n" + error_text("Tool slow did not finish within 3 s")
    assert codes(ran.entry) == ["timeout"]


async def test_a_tool_that_does_not_let_its_deadline_through_has_timed_out_all_the_same() -> None:
    @tool(timeout_s=3)
    async def stubborn() -> str:
        """Swallow the cancellation."""
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "fine"

    ran = await run_tool(stubborn)
    assert codes(ran.entry) == ["timeout"]


async def test_a_tool_reads_and_writes_through_its_api() -> None:
    seen: list[object] = []

    @tool()
    async def use(*, api: ToolApi) -> ToolResult:
        """Use the api."""
        seen.append(await api.memo("m"))
        seen.append(await api.set_memo("m", 1))
        seen.append(await api.set_memo("m", 2))
        seen.append(await api.memo("m"))
        seen.append(await api.commit(lambda tx: tx.conversation_id))
        seen.append((api.conversation_id, api.context.cancelled))
        api.details({"kept": True})
        api.diagnostic("odd", "something odd")
        return ToolResult("used")

    ran = await run_tool(use)
    assert seen == [MISSING, 1, 1, 1, 1, (1, False)]
    assert ran.entry.data == {
        "details": {"kept": True},
        "diagnostics": [{"code": "odd", "message": "something odd"}],
    }


async def test_details_and_diagnostics_of_a_tool_that_fails_are_kept() -> None:
    @tool()
    async def fail(*, api: ToolApi) -> str:
        """Fail with details."""
        await api.output("so far")
        api.details({"step": 2})
        api.diagnostic("odd", "something odd")
        raise ValueError("no")

    ran = await run_tool(fail)
    assert codes(ran.entry) == ["tool_error", "odd"]
    assert ran.entry.data["details"] == {"step": 2}
    assert ran.text == "so far\n" + error_text("ValueError: no")


async def test_details_that_are_no_json_are_refused_on_the_spot() -> None:
    @tool()
    async def fail(*, api: ToolApi) -> str:
        """Set bad details."""
        await trio.lowlevel.checkpoint()
        api.details({1, 2})  # type: ignore[arg-type]
        return "never"

    ran = await run_tool(fail)
    assert "InvalidValue" in ran.text


async def test_the_api_of_a_call_that_is_over_is_refused() -> None:
    kept: list[ToolApi] = []

    @tool()
    async def keep(*, api: ToolApi) -> str:
        """Keep the api."""
        await trio.lowlevel.checkpoint()
        kept.append(api)
        return "x"

    async with open_agent(
        MemoryStorage(), turns(calling(call("keep")), Reply("done", delay_s=10)), keep
    ) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        (api,) = kept
        with pytest.raises(InvocationEnded):
            await api.output("late")
        with pytest.raises(InvocationEnded):
            api.details(1)
        with pytest.raises(InvocationEnded):
            api.diagnostic("late", "")
        with pytest.raises(InvocationEnded):
            await api.commit(lambda _: None)
        with pytest.raises(InvocationEnded):
            await api.memo("m")
        with pytest.raises(InvocationEnded):
            await api.set_memo("m", 1)
        await submission.wait()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_process_passes_through_a_tool_and_closes(
    kind: type[BaseException],
) -> None:
    @tool()
    async def stop() -> str:
        """End the process."""
        await trio.lowlevel.checkpoint()
        raise kind("stop")

    with pytest.raises(kind):
        async with open_agent(
            MemoryStorage(), turns(calling(call("stop")), Reply("done")), stop
        ) as agent:
            await agent.ask()
