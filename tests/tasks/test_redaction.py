"""Redaction and environments: what a call puts out has no secrets, and runs where it should."""

from __future__ import annotations

from typing import Literal

import pytest
import trio

from pidurable_actors import (
    AgentChoice,
    Ask,
    EnvTarget,
    Extension,
    Models,
    Registry,
    Reply,
    Settings,
    ToolApi,
    ToolCall,
    ToolResult,
    open_harness,
    tool,
)
from pidurable_actors.agent import LIVE, HookApi, ToolCallEvent, hook
from pidurable_actors.records import text_of
from pidurable_actors.settings import ProgressSettings, RedactedCall
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    MODEL,
    all_entries,
    call,
    calling,
    codes,
    error_text,
    in_order,
    open_agent,
    peek,
    turns,
)

SECRET = "sk-123456"


def hide(text: str, _: RedactedCall) -> str:
    """Without the secret."""
    return text.replace(SECRET, "***")


ONE_CALL = (calling(call("leak")), Reply("ok"))


async def test_output_is_redacted_before_it_is_shown_or_stored_even_when_it_comes_in_pieces() -> (
    None
):
    shown: list[str] = []

    @tool(redact=hide)
    async def leak(*, api: ToolApi) -> str:
        """Leak."""
        await api.output("the key is sk-12")
        await trio.sleep(0.2)
        await api.output("3456\nand more")
        await trio.sleep(0.2)
        return f"done with {SECRET}"

    storage = MemoryStorage()
    async with open_agent(storage, turns(*ONE_CALL), leak) as agent:
        async with agent.root.watch() as watch:
            await agent.root.submit("go")
            async for frame in watch:
                shown += [str(slot.output) for slot in frame.view.live.tools.values()]
                if frame.view.live.run is None and len(frame.view.entries) > 2:
                    break
        assert "the key is ***\n" in shown
        assert not any("sk-" in text for text in shown)
        assert text_of((await agent.results())["c1"].content) == "done with ***"
    with peek(storage):
        assert SECRET not in str(all_entries(storage))


async def test_results_details_diagnostics_and_errors_are_redacted_by_tool_and_settings() -> None:
    @tool(redact=lambda text, _: text.replace("Ann", "A."))
    async def leak(fail: bool = False, *, api: ToolApi) -> ToolResult:
        """Leak."""
        api.details({"who": ["Ann", SECRET], "Ann": 1})
        api.diagnostic("note", f"{SECRET} of Ann")
        if fail:
            raise ValueError(f"Ann has {SECRET}")
        return ToolResult("Ann", handoff=f"tell {SECRET}")

    told: list[RedactedCall] = []

    def everywhere(text: str, about: RedactedCall) -> str:
        told.append(about)
        return hide(text, about)

    model = in_order(
        calling(call("leak", "c1", fail=True)), calling(call("leak", "c2")), Reply("ok")
    )
    async with open_agent(
        MemoryStorage(), model, leak, settings=Settings(redact=everywhere)
    ) as agent:
        await agent.ask()
        failed = await agent.result_entry("c1")
        assert codes(failed) == ["tool_error", "note"]
        assert failed.model is not None
        assert text_of(failed.model[0].content) == error_text("ValueError: A. has ***")
        assert isinstance(failed.data, dict)
        assert failed.data["details"] == {"who": ["A.", "***"], "Ann": 1}
        assert SECRET not in str(await agent.entries())
        assert told[0] == RedactedCall(
            tool_name="leak", call_id="c1", conversation_id=agent.root.id
        )
        assert "user tell ***" in await agent.lines()


async def test_what_cannot_be_redacted_is_withheld_and_reported() -> None:
    def broken(text: str, _: RedactedCall) -> str:
        raise ZeroDivisionError(text)

    @tool(redact=broken)
    async def leak(*, api: ToolApi) -> str:
        """Leak."""
        await api.output(f"{SECRET}\n")
        return SECRET

    async with open_agent(MemoryStorage(), turns(*ONE_CALL), leak) as agent:
        assert (await agent.ask()).status == "done"
        assert text_of((await agent.results())["c1"].content) == (
            "[withheld: it could not be redacted]"
        )
        assert {report.kind for report in agent.reports} == {"handler_failed"}


async def test_output_that_is_cut_off_was_redacted_and_what_was_held_back_is_not_lost() -> None:
    @tool(redact=hide)
    async def leak(*, api: ToolApi) -> str:
        """Leak."""
        await api.output(f"first {SECRET}\nhalf a line {SECRET}")
        await trio.sleep_forever()

    settings = Settings(progress=ProgressSettings(persist_within_ms=0))
    async with open_agent(MemoryStorage(), turns(*ONE_CALL), leak, settings=settings) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        (slot,) = (await agent.root.snapshot(LIVE)).tools.values()
        assert str(slot.output) == "first ***\n"
        await agent.root.abort()
        text = text_of((await agent.results())["c1"].content)
        assert text.startswith("first ***\nhalf a line ***\n<harness>")


async def test_a_hook_cannot_put_a_secret_back() -> None:
    @tool(redact=hide)
    async def leak() -> str:
        """Leak."""
        return "nothing"

    @hook.after_tool
    async def add(_: ToolCallEvent, result: ToolResult, __: HookApi) -> ToolResult:
        return ToolResult(f"{text_of(result.content)} {SECRET}")

    registry = Registry([Extension("test", tools=[leak], hooks=[add])])
    async with open_agent(MemoryStorage(), turns(*ONE_CALL), registry=registry) as agent:
        await agent.ask()
        assert text_of((await agent.results())["c1"].content) == "nothing ***"


async def test_each_call_gets_the_environment_of_its_conversation() -> None:
    built: list[EnvTarget] = []

    async def env(target: EnvTarget) -> str:
        built.append(target)
        await trio.lowlevel.checkpoint()
        return f"a shell in {target.cwd}"

    @tool()
    async def leak(*, api: ToolApi) -> str:
        """Leak."""
        assert await api.env() is await api.env()
        return f"{await api.env()} of {api.cwd}, {', '.join(api.models.names)}"

    async with open_harness(
        MemoryStorage(),
        models=Models([turns(*ONE_CALL)]),
        registry=Registry([Extension("test", tools=[leak])]),
        settings=Settings(agent=AgentChoice(cwd="/srv")),
        env=env,
    ) as harness:
        root = await harness.root(agent=AgentChoice(model=MODEL))
        other = await harness.create_conversation(agent=AgentChoice(model=MODEL, cwd="/srv/other"))
        for place, where in ((root, "/srv"), (other, "/srv/other")):
            await (await place.submit("go")).wait()
            texts = [
                text_of(message.content)
                for entry in (await place.entries("pi.tool-result")).items
                for message in entry.model or ()
            ]
            assert texts == [f"a shell in {where} of {where}, scripted"]
        assert [(it.conversation_id, it.cwd) for it in built] == [
            (root.id, "/srv"),
            (other.id, "/srv/other"),
        ]
        assert (built[0].tool_name, built[0].call_id) == ("leak", "c1")


async def test_without_environments_a_tool_that_asks_for_one_is_told_so() -> None:
    @tool()
    async def leak(*, api: ToolApi) -> str:
        """Leak."""
        await api.env()
        return ""

    async with open_agent(MemoryStorage(), turns(*ONE_CALL), leak) as agent:
        await agent.ask()
        (result,) = (await agent.results()).values()
        assert "open it with env=" in text_of(result.content)


@pytest.mark.parametrize("size", [10, 9_000, 20_000])
async def test_a_line_that_does_not_end_is_held_back_only_so_long(size: int) -> None:
    @tool(redact=hide)
    async def leak(*, api: ToolApi) -> str:
        """Leak."""
        await api.output("x" * size)
        await trio.sleep_forever()

    settings = Settings(progress=ProgressSettings(persist_within_ms=0))
    async with open_agent(MemoryStorage(), turns(*ONE_CALL), leak, settings=settings) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        (slot,) = (await agent.root.snapshot(LIVE)).tools.values()
        assert len(slot.output) == (0 if size == 10 else size)


async def test_a_long_output_does_not_let_half_of_its_last_line_out() -> None:
    @tool(redact=hide)
    async def leak(*, api: ToolApi) -> str:
        """Leak."""
        await api.output("a line\n" * 2_000 + SECRET[:4])
        await api.output(f"{SECRET[4:]}\n")
        await trio.sleep_forever()

    settings = Settings(progress=ProgressSettings(persist_within_ms=0))
    async with open_agent(MemoryStorage(), turns(*ONE_CALL), leak, settings=settings) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        (slot,) = (await agent.root.snapshot(LIVE)).tools.values()
        assert str(slot.output).endswith("a line\n***\n")


async def test_arguments_that_are_refused_are_redacted_by_the_tool_itself() -> None:
    @tool(redact=hide)
    async def leak(kind: Literal["a", "b"]) -> str:
        """Leak."""
        return kind

    model = turns(calling(ToolCall("leak", {"kind": "a", SECRET: 1}, id="c1")), Reply("ok"))
    async with open_agent(MemoryStorage(), model, leak) as agent:
        await agent.ask()
        entry = await agent.result_entry("c1")
        assert codes(entry) == ["invalid_arguments"]
        assert "***" in str(entry)
        assert SECRET not in str(entry)


async def test_what_a_tool_had_said_of_its_result_is_redacted_while_its_question_is_open() -> None:
    @tool(redact=hide)
    async def leak(*, api: ToolApi) -> Ask:
        """Leak, and ask."""
        api.details({"key": SECRET})
        api.diagnostic("note", SECRET)
        await api.output(SECRET)
        return Ask("Go on?")

    @leak.resume
    async def leaked(*_: object) -> str:
        return "ok"

    storage = MemoryStorage()
    async with open_agent(storage, turns(*ONE_CALL), leak) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        (task_id,) = agent.tool_tasks()
        assert SECRET not in str(await agent.harness.get_task(task_id))
        (question,) = (await agent.harness.questions()).items
        await agent.harness.answer(question.id, True, by="ann")
        await agent.root.wait_for_idle()
        entry = await agent.result_entry("c1")
        assert isinstance(entry.data, dict)
        assert entry.data["details"] == {"key": "***"}
        assert codes(entry) == ["note"]


async def test_the_code_of_an_error_is_kept_when_nothing_can_be_redacted() -> None:
    def broken(text: str, _: RedactedCall) -> str:
        raise ZeroDivisionError(text)

    @tool(redact=broken)
    async def leak(*, api: ToolApi) -> str:
        """Leak, and fail."""
        api.diagnostic("note", SECRET)
        raise ValueError(SECRET)

    async with open_agent(MemoryStorage(), turns(*ONE_CALL), leak) as agent:
        await agent.ask()
        entry = await agent.result_entry("c1")
        assert codes(entry)[0] == "tool_error"
        assert SECRET not in str(entry)
