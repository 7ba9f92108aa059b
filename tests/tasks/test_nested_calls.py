"""Tools that call tools: what such a call is, what it gives, and how it ends with its caller."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import CALLER, Reply, Settings, Text, ToolApi, ToolResult, Tx, tool
from pidurable_actors._json import JSON, JsonObject
from pidurable_actors._limits import LIMITS
from pidurable_actors.agent import ToolSlot
from pidurable_actors.errors import InvalidValue, InvocationEnded, MisuseError
from pidurable_actors.records import (
    CompletedOutcome,
    FailedOutcome,
    ImageBlock,
    TaskId,
    TextBlock,
    Usage,
    text_of,
)
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import STORE_FIRST, ended, error_text, open_agent, turns
from tests.tasks.nesting import (
    MODEL,
    Inner,
    Ran,
    adder,
    one_call,
    outer,
    outer_text,
    run,
    tasks_of,
)


async def test_a_tool_gets_the_result_of_the_tool_that_it_calls() -> None:
    async def body(api: ToolApi) -> str:
        result = await api.call("add", {"a": 2, "b": 3}, key="sum")
        assert not result.is_error
        return f"<{text_of(result.content)}>"

    assert (await run(outer(body), adder())).text == "<5>"


async def test_a_nested_call_is_a_task_that_the_calling_one_owns() -> None:
    seen: list[TaskId] = []

    async def body(api: ToolApi) -> ToolResult:
        seen.append(api.task_id)
        return await api.call("add", {"a": 2}, key="sum")

    ran = await run(outer(body), adder())
    (caller,) = tasks_of(ran.storage, "pi.tool")
    made = ran.call()
    assert made.owner == caller.id == seen[0]
    assert isinstance(made.input, dict)
    assert (made.input["tool_name"], made.input["arguments"]) == ("add", {"a": 2})


async def test_a_result_is_kept_as_the_outcome_of_its_task_and_comes_back_whole() -> None:
    """Give every part of a result a value, and look at the outcome and at what the caller gets."""
    image = ImageBlock(data="aGk=", media_type="image/png")
    seen: list[ToolResult] = []

    @tool("inner", callers=["tools"])
    async def inner(*, api: ToolApi) -> ToolResult:
        """Return all that a result may have."""
        await trio.lowlevel.checkpoint()
        api.diagnostic("odd", "something odd")
        return ToolResult(
            (TextBlock(text="seen"), image),
            details={"n": [1.5, None]},
            usage=Usage(input_tokens=3),
            is_error=True,
            diagnostics=({"code": "first"},),
        )

    async def body(api: ToolApi) -> str:
        seen.append(await one_call(api))
        return "ok"

    ran = await run(outer(body), inner)
    diagnostics: list[JSON] = [{"code": "first"}, {"code": "odd", "message": "something odd"}]
    assert ended(ran.call()).outcome == CompletedOutcome(
        result={
            "content": [
                {"type": "text", "text": "seen"},
                {"type": "image", "data": "aGk=", "media_type": "image/png"},
            ],
            "details": {"n": [1.5, None]},
            "is_error": True,
            "diagnostics": diagnostics,
        }
    )
    assert seen == [
        ToolResult(
            (TextBlock(text="seen"), image),
            details={"n": [1.5, None]},
            is_error=True,
            diagnostics=diagnostics,  # type: ignore[arg-type]
        )
    ]


async def test_a_nested_call_leaves_nothing_in_the_transcript() -> None:
    async with open_agent(MemoryStorage(), turns(*MODEL), outer(one_call), Inner().tool()) as agent:
        await agent.ask()
        assert await agent.lines() == [
            "user go",
            "calls outer(c1)",
            "result c1 did it",
            "assistant done",
        ]


async def test_what_a_nested_call_used_counts_once() -> None:
    @tool("inner", callers=["tools"])
    async def inner() -> ToolResult:
        """Use something."""
        await trio.lowlevel.checkpoint()
        return ToolResult("x", usage=Usage(input_tokens=3, cost=0.25))

    async with open_agent(MemoryStorage(), turns(*MODEL), outer(one_call), inner) as agent:
        await agent.ask()
        usage = await agent.root.usage()
    assert usage.tools == {"outer": 1, "inner": 1}
    assert usage.models["tool/inner"].cost == 0.25
    assert "tool/outer" not in usage.models


@tool("fails", callers=["tools"])
async def fails(*, api: ToolApi) -> str:
    """Fail."""
    await api.output("so far")
    api.details({"step": 2})
    raise ValueError("no such thing")


@tool("slow", callers=["tools"], timeout_s=3)
async def slow() -> str:
    """Take an hour."""
    await trio.sleep(3_600)
    return "never"


@tool("strange", callers=["tools"])
async def strange() -> Any:
    """Return nothing."""
    await trio.lowlevel.checkpoint()


@tool("models")
async def models() -> str:
    """Be called by models."""
    await trio.lowlevel.checkpoint()
    return "never"


@tool("refuses", callers=["tools"], allow=lambda caller: caller.get("role") == "admin")
async def refuses() -> str:
    """Be called for administrators."""
    await trio.lowlevel.checkpoint()
    return "never"


ERRORS = {
    "a tool that is not installed": ("nobody", {}, "tool_unavailable", "is not available"),
    "a tool that tools may not call": ("models", {}, "tool_unavailable", "is not available"),
    "a tool that is not allowed": ("refuses", {}, "blocked", "is not allowed for this caller"),
    "an argument of a wrong type": ("add", {"a": "x"}, "invalid_arguments", "a"),
    "a missing argument": ("add", {}, "invalid_arguments", "a"),
    "an exception": ("fails", {}, "tool_error", "ValueError: no such thing"),
    "a deadline": ("slow", {}, "timeout", "did not finish within 3 s"),
    "no result": ("strange", {}, "tool_error", "NoneType"),
}


@pytest.mark.parametrize("case", ERRORS)
async def test_what_goes_wrong_in_a_nested_call_is_an_error_result(case: str) -> None:
    name, arguments, code, says = ERRORS[case]
    seen: list[ToolResult] = []

    async def body(api: ToolApi) -> str:
        seen.append(await api.call(name, dict(arguments), key="one"))
        return "went on"

    tools = (adder(), fails, slow, strange, models, refuses)
    ran = await run(outer(body), *tools, caller={"role": "guest"})
    assert ran.text == "went on"
    assert ran.reports == []
    (result,) = seen
    assert result.is_error
    assert result.diagnostics[0]["code"] == code
    assert says in text_of(result.content)
    outcome = ended(ran.call()).outcome
    assert isinstance(outcome, FailedOutcome)
    assert isinstance(outcome.error, dict)
    assert outcome.error["code"] == code


async def test_an_error_keeps_the_output_and_the_details_of_the_nested_call() -> None:
    async def body(api: ToolApi) -> ToolResult:
        return await api.call("fails", {}, key="one")

    ran = await run(outer(body), fails)
    assert ran.text == "so far\n" + error_text("ValueError: no such thing")
    assert ran.data == {"details": {"step": 2}, "diagnostics": [{"code": "tool_error"}]}


async def test_a_nested_call_works_for_the_caller_of_the_run() -> None:
    seen: list[JsonObject | None] = []

    @tool("inner", callers=["tools"], allow=lambda caller: caller["role"] == "admin")
    async def inner(*, api: ToolApi) -> str:
        """Look for whom it works."""
        await trio.lowlevel.checkpoint()
        caller = api.context.get(CALLER)
        seen.append(caller)
        return "ok"

    assert (await run(outer(one_call), inner, caller={"role": "admin"})).text == "ok"
    assert seen == [{"role": "admin"}]


async def test_a_key_names_one_call_that_is_made_once() -> None:
    inner = Inner()
    results: list[ToolResult] = []

    async def body(api: ToolApi) -> str:
        async def again() -> None:
            results.append(await one_call(api))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(again)
            nursery.start_soon(again)
        await again()
        return "ok"

    ran = await run(outer(body), inner.tool())
    assert inner.entered == 1
    assert len(results) == 3
    assert results[0] == results[1] == results[2]
    assert len(tasks_of(ran.storage)) == 1


async def test_calls_with_keys_of_their_own_run_at_the_same_time() -> None:
    @tool("inner", callers=["tools"])
    async def inner(n: int) -> str:
        """Take ten seconds."""
        await trio.sleep(10)
        return str(n)

    async def body(api: ToolApi) -> str:
        texts: dict[int, str] = {}

        async def one(n: int) -> None:
            result = await api.call("inner", {"n": n}, key=f"n-{n}")
            texts[n] = text_of(result.content)

        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(one, n)
        return " ".join(texts[n] for n in sorted(texts))

    assert (await run(outer(body), inner)).text == "0 1 2"
    assert trio.current_time() == pytest.approx(10)


@pytest.mark.parametrize(
    ("name", "arguments"), [("inner", {"a": 1}), ("add", {"a": 2}), ("add", {"a": True})]
)
async def test_a_key_that_stands_for_another_call_is_refused_by_name(
    name: str, arguments: dict[str, Any]
) -> None:
    inner = Inner()

    async def body(api: ToolApi) -> str:
        await api.call("add", {"a": 1}, key="the sum")
        with pytest.raises(MisuseError, match="'the sum'"):
            await api.call(name, arguments, key="the sum")
        return "refused"

    ran = await run(outer(body), adder(), inner.tool())
    assert ran.text == "refused"
    assert inner.entered == 0
    assert len(tasks_of(ran.storage)) == 1


async def test_a_key_whose_memo_the_tool_wrote_itself_is_refused() -> None:
    async def body(api: ToolApi) -> str:
        await api.set_memo("pi.call/one", "mine")
        with pytest.raises(MisuseError, match="'one'"):
            await one_call(api)
        return "refused"

    assert (await run(outer(body), Inner().tool())).text == "refused"


async def test_the_order_of_arguments_makes_no_other_call() -> None:
    async def body(api: ToolApi) -> ToolResult:
        await api.call("add", {"a": 1, "b": 2}, key="sum")
        return await api.call("add", {"b": 2, "a": 1}, key="sum")

    assert (await run(outer(body), adder())).text == "3"


LONG = LIMITS.name_length - len("pi.call/")
BAD: list[tuple[Any, Any, Any, str]] = [
    ("add", {"a": {1}}, "k", "arguments"),
    ("add", {"a": float("nan")}, "k", "arguments"),
    ("add", [1], "k", "arguments"),
    ("add", {"a": 1}, "", "key"),
    ("add", {"a": 1}, "x" * (LONG + 1), "key"),
    ("add", {"a": 1}, 7, "key"),
    ("add", {"a": 1}, "\ud800", "key"),
    (adder(), {"a": 1}, "k", "tool_name"),
]


@pytest.mark.parametrize(("name", "arguments", "key", "path"), BAD)
async def test_a_call_that_cannot_be_stored_is_refused_on_the_spot(
    name: Any, arguments: Any, key: Any, path: str
) -> None:
    async def body(api: ToolApi) -> ToolResult:
        with pytest.raises(InvalidValue) as refused:
            await api.call(name, arguments, key=key)
        assert refused.value.path.startswith(path)
        return await api.call("add", {"a": 1}, key="x" * LONG)

    ran = await run(outer(body), adder())
    assert ran.text == "2"
    assert len(tasks_of(ran.storage)) == 1


async def test_the_arguments_are_those_of_the_moment_of_the_call() -> None:
    """They are changed while the call waits for a commit that came before it."""
    free = trio.Event()

    async def hold(_: Tx) -> None:
        await free.wait()

    async def body(api: ToolApi) -> ToolResult:
        arguments: dict[str, Any] = {"a": 1}
        result = ToolResult("none")

        async def one() -> None:
            nonlocal result
            result = await api.call("add", arguments, key="sum")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.commit, hold)
            await wait_all_tasks_blocked()
            nursery.start_soon(one)
            await wait_all_tasks_blocked()
            arguments["a"] = "changed"
            free.set()
        return result

    assert (await run(outer(body), adder())).text == "2"


async def test_a_nested_call_may_call_in_turn() -> None:
    keys: list[str] = []

    @tool("down", callers=["model", "tools"])
    async def down(n: int, *, api: ToolApi) -> str:
        """Call itself until it is down."""
        keys.append(api.idempotency_key)
        assert api.call_id == "c1"
        if not n:
            return "down"
        result = await api.call("down", {"n": n - 1}, key="next")
        return f"{n} {text_of(result.content)}"

    async def body(api: ToolApi) -> ToolResult:
        return await api.call("down", {"n": 5}, key="first")

    ran = await run(outer(body), down)
    assert ran.text == "5 4 3 2 1 down"
    assert len(set(keys)) == 6
    made = tasks_of(ran.storage)
    assert [task.owner for task in made[1:]] == [task.id for task in made[:-1]]


async def test_the_output_of_a_nested_call_is_shown_apart_from_its_callers() -> None:
    inner = Inner()

    async def body(api: ToolApi) -> ToolResult:
        await api.output("calling\n")
        return await one_call(api)

    async with open_agent(
        MemoryStorage(),
        turns(*MODEL),
        outer(body),
        inner.tool(hangs=True),
        settings=Settings(progress=STORE_FIRST),
    ) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        slots = (await agent.live()).tools
        assert list(slots.values()) == [
            ToolSlot(call_id="c1", tool_name="outer", output=Text("calling\n")),
            ToolSlot(call_id="", tool_name="inner", output=Text("working\n")),
        ]


async def test_the_api_of_a_call_that_is_over_calls_nothing() -> None:
    kept: list[ToolApi] = []

    async def body(api: ToolApi) -> str:
        await trio.lowlevel.checkpoint()
        kept.append(api)
        return "x"

    model = turns(MODEL[0], Reply("done", delay_s=10))
    async with open_agent(MemoryStorage(), model, outer(body), adder()) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        with pytest.raises(InvocationEnded):
            await kept[0].call("add", {"a": 1}, key="late")
        await submission.wait()


# --- ends ---


async def test_an_aborted_call_ends_after_the_nested_one_and_keeps_its_output() -> None:
    inner = Inner()
    storage = MemoryStorage()

    async def body(api: ToolApi) -> ToolResult:
        await api.output("so far\n")
        return await one_call(api)

    async with open_agent(storage, turns(*MODEL), outer(body), inner.tool(hangs=True)) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(0.01)  # less than what output may wait to be stored
        await agent.root.abort(reason="enough")
        assert (await submission.wait()).reason == "aborted"
        aborted = error_text("Tool outer was aborted and may have partially run")
        assert await outer_text(agent) == "so far\n" + aborted
    (caller,) = tasks_of(storage, "pi.tool")
    (made,) = tasks_of(storage)
    assert ended(made).outcome.status == ended(caller).outcome.status == "aborted"
    assert made.ended_at_ms is not None
    assert caller.ended_at_ms is not None
    assert made.ended_at_ms <= caller.ended_at_ms


async def test_a_nested_call_that_is_aborted_alone_is_an_error_result() -> None:
    inner = Inner()
    async with open_agent(
        MemoryStorage(), turns(*MODEL), outer(one_call), inner.tool(hangs=True)
    ) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        (made,) = [t.id for t in agent.harness.inspect().tasks if t.kind == "pi.call"]
        await agent.harness.abort_task(made, reason="too slow")
        assert (await submission.wait()).status == "done"
        assert await outer_text(agent) == error_text(
            "Tool inner was aborted and may have partially run"
        )
        data = (await agent.result_entry("c1")).data
    assert data == {"diagnostics": [{"code": "aborted"}]}


@pytest.mark.parametrize("how", ["deadline", "error"])
async def test_a_caller_that_fails_ends_the_call_that_it_waits_for(how: str) -> None:
    inner = Inner()

    async def body(api: ToolApi) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one_call, api)
            await trio.sleep(2)
            raise ValueError("no")

    made = outer(one_call, timeout_s=3) if how == "deadline" else outer(body)
    ran = await run(made, inner.tool(hangs=True))
    code = {"deadline": "timeout", "error": "tool_error"}[how]
    assert ran.data == {"diagnostics": [{"code": code}]}
    assert ended(ran.call()).outcome.status == "aborted"
    assert trio.current_time() < 4


async def test_a_caller_that_waits_no_longer_ends_after_the_call() -> None:
    @tool("inner", callers=["tools"])
    async def inner() -> str:
        """Take ten seconds."""
        await trio.sleep(10)
        return "did it"

    async def body(api: ToolApi) -> str:
        with trio.move_on_after(1):
            await one_call(api)
        return "gave up"

    ran = await run(outer(body), inner)
    assert ran.text == "gave up"
    assert trio.current_time() == pytest.approx(10)
    (caller,) = tasks_of(ran.storage, "pi.tool")
    assert ended(ran.call()).outcome.status == ended(caller).outcome.status == "completed"


async def test_a_nested_call_that_faults_is_an_error_result() -> None:
    """Its details fit as such, and nested in the outcome they are one level too deep."""

    @tool("inner", callers=["tools"])
    async def inner() -> ToolResult:
        """Return something very deep."""
        await trio.lowlevel.checkpoint()
        deep: Any = "down"
        for _ in range(LIMITS.json_depth):
            deep = [deep]
        return ToolResult("x", details=deep)

    ran: Ran = await run(outer(one_call), inner)
    assert ran.text == error_text("Tool inner failed and may have partially run")
    assert ran.data == {"diagnostics": [{"code": "tool_error"}]}
    assert ran.reports == ["task_faulted"]
    assert ended(ran.call()).outcome.status == "faulted"


@pytest.mark.parametrize("bad", ["text", {}, {"code": 1}, {"code": "x", "more": {1}}])
async def test_diagnostics_that_are_none_are_a_tool_error(bad: Any) -> None:
    @tool("inner", callers=["tools"])
    async def inner() -> ToolResult:
        """Return something strange."""
        await trio.lowlevel.checkpoint()
        return attrs.evolve(ToolResult("x"), diagnostics=[bad])

    ran = await run(outer(one_call), inner)
    assert ran.data == {"diagnostics": [{"code": "tool_error"}]}
