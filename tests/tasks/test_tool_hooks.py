"""Hooks of a tool call: block, rewrite, replace, and be told of an abort; and nested calls."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
import trio

from pidurable_actors import (
    MISSING,
    Completed,
    Conversation,
    Reply,
    Tool,
    ToolApi,
    ToolResult,
    tool,
)
from pidurable_actors._limits import LIMITS
from pidurable_actors.agent import Block, Hook, HookApi, Rewrite, ToolCallEvent, hook
from pidurable_actors.records import text_of
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import all_entries, all_tasks, call, calling, codes, open_agent, peek
from tests._strict import strict_model
from tests.tasks.hooking import (
    ADDING,
    BAD_TEXT,
    Noted,
    add,
    hooking,
    reports_of,
    run_hooks,
)

ONE = (call("add", a=1, b=2),)


def before(answer: Any) -> Hook:
    """A ``before_tool`` hook with this answer."""
    return Noted().at("before_tool", "it", answer)


async def test_a_block_is_the_error_that_the_model_reads_and_the_tool_is_not_run() -> None:
    noted = Noted()
    model = strict_model(*ADDING)
    registry = hooking(before(Block("not on a Sunday")), noted.at("before_tool", "next"))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        assert (await agent.ask()).status == "done"
        entry = await agent.result_entry("c1")
        assert codes(entry) == ["blocked"]
        assert "Tool add was blocked: not on a Sunday" in (await agent.lines())[2]
        assert reports_of(agent) == []
    assert noted.names == [], "what is blocked is asked no further"


async def test_a_rewrite_is_what_the_next_hook_sees_what_is_stored_and_what_is_run() -> None:
    seen: list[object] = []

    async def look(event: ToolCallEvent, api: HookApi) -> None:
        await trio.lowlevel.checkpoint()
        seen.append((event.call_id, event.tool.name, dict(event.arguments), event.called_by))

    async def slow(event: ToolCallEvent, _: ToolResult, __: HookApi) -> None:
        seen.append(dict(event.arguments))
        await trio.sleep(5)

    hooks = before(Rewrite({"a": 10, "b": 20})), hook.before_tool(look), hook.after_tool(slow)
    storage = MemoryStorage()
    async with open_agent(storage, strict_model(*ADDING), registry=hooking(*hooks)) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        (task_id,) = agent.tool_tasks()
        record = await agent.harness.get_task(task_id)
        stored: Any = record.state
        assert stored.checkpoint["arguments"] == {"a": 10, "b": 20}
        await submission.wait()
        assert (await agent.lines())[2] == "result c1 30"
    assert seen == [("c1", "add", {"a": 10, "b": 20}, "model"), {"a": 10, "b": 20}]


async def test_what_a_hook_does_to_its_arguments_without_returning_them_changes_nothing() -> None:
    seen: list[object] = []

    async def spoil(event: ToolCallEvent, _: HookApi) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(dict(event.arguments))
        event.arguments["a"] = 100

    async def spoil_later(event: ToolCallEvent, _: ToolResult, __: HookApi) -> None:
        await spoil(event, __)

    hooks = [hook.before_tool(spoil)], [hook.before_tool(spoil), hook.after_tool(spoil_later)]
    ran = await run_hooks(MemoryStorage(), *hooks, [hook.after_tool(spoil_later)], calls=ONE)
    assert ran.lines[2] == "result c1 3"
    assert seen == [{"a": 1, "b": 2}] * 4


async def test_arguments_are_checked_before_the_hooks_and_again_after_them() -> None:
    noted = Noted()
    asked = noted.at("before_tool", "asked")
    wrong = await run_hooks(MemoryStorage(), asked, calls=[call("add", a="one")])
    assert "Invalid arguments" in wrong.lines[2]
    assert noted.names == []
    rewritten = await run_hooks(MemoryStorage(), before(Rewrite({"a": "one"})), calls=ONE)
    assert "Invalid arguments" in rewritten.lines[2]
    assert "a" in rewritten.lines[2]


@pytest.mark.parametrize(
    "answer",
    [
        Rewrite({"a": math.nan}),
        Rewrite({"a": {1}}),  # type: ignore[dict-item]
        Block(BAD_TEXT),
        Block(7),  # type: ignore[arg-type]
        Rewrite({"a": 1, "b": object()}),  # type: ignore[dict-item]
        "no",
        False,
    ],
)
async def test_a_verdict_that_means_nothing_blocks_the_call(answer: Any) -> None:
    ran = await run_hooks(MemoryStorage(), before(answer), calls=ONE)
    assert "was blocked: a check of extension 'e1' failed" in ran.lines[2]
    assert (ran.status, ran.reports) == ("done", ["hook_failed before_tool"])


async def test_a_rewrite_to_what_is_no_object_is_an_invalid_argument() -> None:
    ran = await run_hooks(MemoryStorage(), before(Rewrite(["a"])), calls=ONE)  # type: ignore[arg-type]
    assert "Invalid arguments" in ran.lines[2] or "was blocked" in ran.lines[2]
    assert ran.status == "done"


async def test_a_call_outside_of_what_is_allowed_is_asked_of_no_hook() -> None:
    noted = Noted()
    every = [noted.at(point, point) for point in ("before_tool", "after_tool")]
    ran = await run_hooks(MemoryStorage(), every, calls=[call("other"), call("add", "c2", a=1)])
    assert "Tool other is not available" in ran.lines[2] + ran.lines[3]
    assert noted.names == ["before_tool", "after_tool"]


async def test_a_decision_in_a_memo_is_the_same_when_the_call_is_cut_and_asked_again() -> None:
    said: list[object] = []

    async def decide(event: ToolCallEvent, api: HookApi) -> Block | None:
        name = f"coin {event.call_id}"
        known = await api.memo(name)
        said.append(known)
        coin = await api.set_memo(name, len(said) % 2 == 1) if known is MISSING else known
        await trio.sleep(10 if len(said) == 1 else 0)
        return Block("tails") if coin else None

    storage = MemoryStorage()
    registry = hooking(hook.before_tool(decide))
    async with open_agent(storage, strict_model(*ADDING), registry=registry) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(5)
        crashed = storage.snapshot()
    async with open_agent(crashed, strict_model(*ADDING), registry=registry) as agent:
        await agent.ask("go", request_id="r1")
        assert "was blocked: tails" in (await agent.lines())[2]
    assert said == [MISSING, True]


async def test_a_call_that_is_run_again_is_not_asked_again() -> None:
    """The intent has what the hooks decided; a safe tool that was cut off goes on with it."""
    noted = Noted()

    async def ten(event: ToolCallEvent, _: HookApi) -> Rewrite:
        await trio.lowlevel.checkpoint()
        noted.asked.append(("before", event.arguments))
        return Rewrite({"a": 10})

    def slow(seconds: float) -> Tool:
        @tool("add", replay="safe")
        async def add_slowly(a: int, b: int = 1) -> str:
            """Add two numbers."""
            await trio.sleep(seconds)
            return str(a + b)

        return add_slowly

    storage = MemoryStorage()
    first = hooking(hook.before_tool(ten), tools=[slow(10)])
    async with open_agent(storage, strict_model(*ADDING), registry=first) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(5)
        crashed = storage.snapshot()
    after = noted.at("after_tool", "after")
    second = hooking(hook.before_tool(ten), after, tools=[slow(0)])
    async with open_agent(crashed, strict_model(*ADDING), registry=second) as agent:
        await agent.ask("go", request_id="r1")
        assert (await agent.lines())[2] == "result c1 11"
    assert noted.names == ["before", "after"]


# --- after_tool ---


async def test_after_tool_replaces_a_result_before_it_is_stored() -> None:
    async def hide(_: ToolCallEvent, result: ToolResult, __: HookApi) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return attrs.evolve(result, content=f"[{text_of(result.content)}]", details={"hidden": 1})

    hooks = hook.after_tool(hide), hook.after_tool(hide)
    storage = MemoryStorage()
    async with open_agent(storage, strict_model(*ADDING), registry=hooking(*hooks)) as agent:
        await agent.ask()
        assert (await agent.lines())[2] == "result c1 [[3]]"
        data: Any = (await agent.result_entry("c1")).data
        assert data["details"] == {"hidden": 1}
    with peek(storage) as stored:
        kept = [entry.model for entry in all_entries(stored)]
    assert not any("'3'" in str(model) for model in kept)


@pytest.mark.parametrize(
    "wrong",
    [
        ToolResult("x", details={1, 2}),  # type: ignore[arg-type]
        ToolResult(BAD_TEXT),
        ToolResult(("no block",)),  # type: ignore[arg-type]
        ToolResult("x", handoff=""),
        ToolResult("x", diagnostics=[{"code": BAD_TEXT}]),
        "text",
    ],
)
async def test_a_result_of_a_hook_that_cannot_be_stored_is_reported_and_the_tools_kept(
    wrong: Any,
) -> None:
    ran = await run_hooks(MemoryStorage(), Noted().at("after_tool", "it", wrong), calls=ONE)
    assert ran.lines[2:] == ["result c1 3", "assistant done"]
    assert ran.reports == ["hook_failed after_tool"]


async def test_an_after_tool_hook_that_takes_too_long_is_skipped_and_the_others_are_asked() -> None:
    noted = Noted()

    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    hooks = hook.after_tool(hang), noted.at("after_tool", "next")
    ran = await run_hooks(MemoryStorage(), *hooks, calls=ONE)
    assert ran.lines[2] == "result c1 3"
    assert ran.reports == ["hook_failed after_tool"]
    assert noted.names == ["next"]
    assert trio.current_time() == LIMITS.hook_s


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_a_result_is_not_lost_to_a_stop_that_comes_while_after_tool_is_asked(
    how: str,
) -> None:
    noted = Noted()

    async def slow(_: ToolCallEvent, result: ToolResult, __: HookApi) -> ToolResult:
        await trio.sleep(3)
        noted.asked.append(("slow", result))
        return ToolResult("replaced")

    storage = MemoryStorage()
    model = strict_model(*ADDING)
    registry = hooking(hook.after_tool(slow))
    async with open_agent(storage, model, registry=registry) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        if how == "abort":
            await agent.root.abort()
            assert (await agent.lines())[2] == "result c1 replaced"
    async with open_agent(storage, model, registry=hooking()) as agent:
        settled = await agent.ask("go", request_id="r1")
        assert settled.status == ("done" if how == "close" else "unanswered")
        assert (await agent.lines())[2] == "result c1 replaced"
    assert noted.names == ["slow"]


async def test_a_crash_while_after_tool_is_asked_leaves_the_call_cut_off() -> None:
    async def hang(*_: object) -> None:
        await trio.sleep(5)

    storage = MemoryStorage()
    async with open_agent(
        storage, strict_model(*ADDING), registry=hooking(hook.after_tool(hang))
    ) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        crashed = storage.snapshot()
    async with open_agent(crashed, strict_model(*ADDING), registry=hooking()) as agent:
        await agent.ask("go", request_id="r1")
        assert "Tool add was interrupted and may have partially run" in (await agent.lines())[2]


# --- on_abort ---


@tool("add")
async def add_forever(a: int, b: int = 1) -> str:
    """Add two numbers, some day."""
    await trio.sleep(math.inf)
    return str(a + b)


async def test_on_abort_is_told_of_the_call_as_it_was_run_before_its_result_is_stored() -> None:
    told: list[object] = []

    async def tell(event: ToolCallEvent, api: HookApi) -> None:
        conversation = await api.conversation()
        assert isinstance(conversation, Conversation)
        stored = (await conversation.entries("pi.tool-result")).items
        told.append((event.call_id, dict(event.arguments), event.tool.name, len(stored)))
        event.arguments["a"] = 0

    hooks = [before(Rewrite({"a": 10})), hook.on_abort(tell)], hook.on_abort(tell)
    registry = hooking(*hooks, tools=[add_forever])
    async with open_agent(MemoryStorage(), strict_model(*ADDING), registry=registry) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.abort()
        assert "was aborted and may have partially run" in (await agent.lines())[2]
        assert reports_of(agent) == []
    assert told == [("c1", {"a": 10}, "add", 0)] * 2


@pytest.mark.parametrize("wrong", [ValueError("broken"), 7])
async def test_on_abort_that_fails_is_reported_and_the_call_aborted_all_the_same(
    wrong: Any,
) -> None:
    noted = Noted()
    hooks = noted.at("on_abort", "bad", wrong), noted.at("on_abort", "good")
    registry = hooking(*hooks, tools=[add_forever])
    async with open_agent(MemoryStorage(), strict_model(*ADDING), registry=registry) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.abort()
        assert codes(await agent.result_entry("c1")) == ["aborted"]
        assert reports_of(agent) == ["hook_failed on_abort"]
    assert noted.names == ["bad", "good"]


async def test_an_abort_does_not_wait_for_ever_for_a_hook() -> None:
    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    registry = hooking(hook.on_abort(hang), tools=[add_forever])
    async with open_agent(MemoryStorage(), strict_model(*ADDING), registry=registry) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.abort()
        assert trio.current_time() == 1 + LIMITS.hook_s
        assert codes(await agent.result_entry("c1")) == ["aborted"]
        assert reports_of(agent) == ["hook_failed on_abort"]


async def test_on_abort_of_a_call_whose_code_was_removed_is_the_hook_that_it_began_with() -> None:
    noted = Noted()
    registry = hooking(noted.at("on_abort", "old"), tools=[add_forever])
    async with open_agent(MemoryStorage(), strict_model(*ADDING), registry=registry) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        for name in ("tools", "e1"):
            registry.uninstall(name)
        await agent.root.abort()
        assert codes(await agent.result_entry("c1")) == ["aborted"]
    assert noted.names == ["old"]


@pytest.mark.parametrize("how", ["crash", "close"])
async def test_on_abort_is_told_again_when_it_was_cut_off(how: str) -> None:
    told: list[int] = []

    async def slow(*_: object) -> None:
        told.append(1)
        await trio.sleep(5)

    storage = MemoryStorage()
    registry = hooking(hook.on_abort(slow), tools=[add_forever])
    async with open_agent(storage, strict_model(*ADDING), registry=registry) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        with trio.move_on_after(1):
            await agent.root.abort()
        crashed = storage.snapshot()
    left = crashed if how == "crash" else storage
    async with open_agent(left, strict_model(*ADDING), registry=registry) as agent:
        assert (await agent.ask("go", request_id="r1")).reason == "aborted"
        assert [line.split()[0] for line in await agent.lines()] == ["user", "calls", "error"]
    assert len(told) == 2


# --- nested calls ---


async def test_nested_calls_are_asked_about_like_those_of_a_model() -> None:
    seen: list[tuple[str, str, str]] = []

    async def look(event: ToolCallEvent, _: HookApi) -> Block | None:
        await trio.lowlevel.checkpoint()
        seen.append(("before", event.tool.name, event.called_by))
        return Block("no") if event.arguments.get("a") == 13 else None

    async def replace(event: ToolCallEvent, result: ToolResult, _: HookApi) -> ToolResult | None:
        await trio.lowlevel.checkpoint()
        seen.append(("after", event.tool.name, event.called_by))
        return ToolResult("nested") if event.called_by == "tools" else None

    @tool()
    async def outer(*, api: ToolApi) -> str:
        """Call add twice."""
        texts = [text_of((await api.call("inner", {"a": a}, key=str(a))).content) for a in (1, 13)]
        return " | ".join(texts)

    inner = Tool("inner", add.execute, callers=["tools"])
    registry = hooking([hook.before_tool(look), hook.after_tool(replace)], tools=[outer, inner])
    model = strict_model(calling(call("outer")), Reply("done"))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask()
        line = (await agent.lines())[2]
    assert line.startswith("result c1 nested | ")
    assert "Tool inner was blocked: no" in line
    assert seen == [
        ("before", "outer", "model"),
        ("before", "inner", "tools"),
        ("after", "inner", "tools"),
        ("before", "inner", "tools"),
        ("after", "outer", "model"),
    ]


async def test_hooks_of_two_calls_of_a_round_are_asked_side_by_side_with_memos_of_their_own() -> (
    None
):
    found: list[object] = []

    async def once(event: ToolCallEvent, api: HookApi) -> None:
        found.append(await api.memo("seen"))
        await api.set_memo("seen", event.call_id)
        await trio.sleep(5)
        found.append(await api.memo("seen"))

    calls = [call("add", f"c{n}", a=n) for n in (1, 2)]
    await run_hooks(MemoryStorage(), hook.before_tool(once), calls=calls)
    assert found[:2] == [MISSING, MISSING]
    assert sorted(map(str, found[2:])) == ["c1", "c2"]
    assert trio.current_time() == 5


async def test_a_tool_whose_commit_returns_a_next_step_still_has_its_result() -> None:
    """What the callback of a tool returns is the tool's, and decides nothing of its call."""

    @tool("add")
    async def odd(a: int, b: int = 1, *, api: ToolApi) -> str:
        """Add two numbers."""
        assert await api.commit(lambda _: Completed(7)) == Completed(7)
        return str(a + b)

    storage = MemoryStorage()
    async with open_agent(storage, strict_model(*ADDING), registry=hooking(tools=[odd])) as agent:
        assert (await agent.ask()).status == "done"
        assert (await agent.lines())[2] == "result c1 3"
    with peek(storage) as stored:
        assert {task.kind for task in all_tasks(stored)} == {"pi.generation", "pi.tool"}
