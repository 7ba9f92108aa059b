"""Nested calls that a crash or a close cuts off: what is found again, and what is not done again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from pidurable_actors import NOT_DONE, Settings, Tool, ToolApi, ToolResult
from pidurable_actors.agent import Replay
from pidurable_actors.records import FailedOutcome, TaskRecord, text_of
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.tasks._nested import NestedInput
from pidurable_actors.tasks.tool import NestedCall
from tests._agents import STORE_FIRST, ended, error_text, interrupted, open_agent, turns
from tests.tasks.nesting import (
    MODEL,
    Inner,
    adder,
    cut,
    go_on,
    one_call,
    outer,
    outer_text,
    tasks_of,
)

CUTS = pytest.mark.parametrize("close", [False, True], ids=["crash", "close"])


def only(storage: MemoryStorage, kind: str = "pi.call") -> TaskRecord:
    """The one stored task of a kind."""
    (found,) = tasks_of(storage, kind)
    return found


@CUTS
async def test_a_safe_call_of_a_safe_caller_runs_again_with_its_key(*, close: bool) -> None:
    inner = Inner()
    caller = outer(one_call, replay="safe")
    storage = await cut(caller, inner.tool("safe", hangs=True), close=close)
    assert inner.entered == 1
    assert await go_on(storage, caller, inner.tool("safe")) == "did it"
    assert inner.keys == inner.keys[:1] * 2
    assert only(storage).owner == only(storage, "pi.tool").id


@CUTS
async def test_an_unsafe_call_of_a_safe_caller_is_not_run_again(*, close: bool) -> None:
    """Its caller is run again, and gets what a model would get."""
    inner = Inner()
    results: list[ToolResult] = []

    async def body(api: ToolApi) -> str:
        results.append(await one_call(api))
        return "went on"

    caller = outer(body, replay="safe")
    storage = await cut(caller, inner.tool("unsafe", hangs=True), close=close)
    assert await go_on(storage, caller, inner.tool("unsafe")) == "went on"
    assert inner.entered == 1
    (result,) = results
    assert text_of(result.content) == "working\n" + interrupted("inner")
    assert (result.is_error, result.diagnostics) == (True, ({"code": "interrupted"},))
    assert isinstance(ended(only(storage)).outcome, FailedOutcome)


@CUTS
async def test_a_call_that_has_ended_is_not_run_again_when_its_caller_is(*, close: bool) -> None:
    inner = Inner()
    results: list[ToolResult] = []

    async def body(api: ToolApi) -> str:
        results.append(await one_call(api))
        await trio.sleep(1)
        return "both"

    caller = outer(body, replay="safe")
    storage = await cut(caller, inner.tool("safe"), close=close)
    assert await go_on(storage, caller, inner.tool("safe")) == "both"
    assert inner.entered == 1
    assert results == [ToolResult("did it", details={"run": 1})] * 2


async def test_a_call_that_failed_is_not_made_again_when_its_tool_comes_back() -> None:
    inner = Inner()
    results: list[ToolResult] = []

    async def body(api: ToolApi) -> str:
        results.append(await one_call(api))
        await trio.sleep(1)
        return "both"

    caller = outer(body, replay="safe")
    storage = await cut(caller)
    assert await go_on(storage, caller, inner.tool()) == "both"
    assert inner.entered == 0
    assert results[0] == results[1]
    assert results[0].diagnostics == ({"code": "tool_unavailable"},)


@CUTS
@pytest.mark.parametrize("replay", ["safe", "unsafe"])
async def test_an_unsafe_caller_is_interrupted_and_its_call_ends_before_it(
    replay: Replay, *, close: bool
) -> None:
    inner = Inner()
    caller = outer(one_call)
    storage = await cut(caller, inner.tool(replay, hangs=True), close=close)
    assert await go_on(storage, caller, inner.tool(replay, hangs=True)) == interrupted("outer")
    made, calling = only(storage), only(storage, "pi.tool")
    assert isinstance(ended(calling).outcome, FailedOutcome)
    # An unsafe one may have found that it was interrupted before its caller could end it.
    assert ended(made).outcome.status in ("aborted", "failed")
    assert inner.entered == 1 or replay == "safe"
    assert made.ended_at_ms is not None
    assert calling.ended_at_ms is not None
    assert made.ended_at_ms <= calling.ended_at_ms


@CUTS
@pytest.mark.parametrize("happened", [False, True])
async def test_a_call_that_can_be_looked_up_asks_its_own_handler(
    *, happened: bool, close: bool
) -> None:
    inner = Inner()

    def looked_up(*, hangs: bool) -> Tool:
        made = inner.tool("reconcile", hangs=hangs)

        @made.reconcile
        async def find(_: Mapping[str, Any], api: ToolApi) -> object:
            await trio.lowlevel.checkpoint()
            assert api.idempotency_key == inner.keys[0]
            return "found" if happened else NOT_DONE

        return made

    caller = outer(one_call, replay="safe")
    storage = await cut(caller, looked_up(hangs=True), close=close)
    expected = "found" if happened else "did it"
    assert await go_on(storage, caller, looked_up(hangs=False)) == expected
    assert inner.entered == (1 if happened else 2)


async def test_a_reconciling_caller_finds_what_it_called() -> None:
    """The handler has the api of the call, and with it the calls that the call had made."""
    inner = Inner()

    def looked_up() -> Tool:
        made = outer(_call_then_hang, replay="reconcile")

        @made.reconcile
        async def find(_: Mapping[str, Any], api: ToolApi) -> object:
            return await one_call(api)

        return made

    storage = await cut(looked_up(), inner.tool("safe"))
    assert await go_on(storage, looked_up(), inner.tool("safe")) == "did it"
    assert inner.entered == 1


async def _call_then_hang(api: ToolApi) -> None:
    await one_call(api)
    await trio.sleep_forever()


@pytest.mark.parametrize("now", [None, "unsafe", "model"])
async def test_a_safe_call_whose_tool_is_gone_or_changed_is_interrupted(now: str | None) -> None:
    inner = Inner()
    caller = outer(one_call, replay="safe")
    storage = await cut(caller, inner.tool("safe", hangs=True))
    changed = {
        None: (),
        "unsafe": (inner.tool("unsafe"),),
        "model": (Tool("inner", inner.tool().execute, replay="safe"),),
    }
    text = await go_on(storage, caller, *changed[now])
    assert text == "working\n" + interrupted("inner")
    assert inner.entered == 1


async def test_a_rerun_that_calls_something_else_under_a_key_is_told_so() -> None:
    inner = Inner()
    storage = await cut(outer(one_call, replay="safe"), inner.tool("safe", hangs=True))

    async def changed(api: ToolApi) -> ToolResult:
        return await api.call("add", {"a": 1}, key="one")

    text = await go_on(storage, outer(changed, replay="safe"), adder(), inner.tool("safe"))
    assert text.startswith("<harness>\n[error] MisuseError: api.call: key 'one' stands for")


async def test_a_call_is_found_again_after_many_restarts() -> None:
    inner = Inner()
    caller = outer(one_call, replay="safe")
    storage = await cut(caller, inner.tool("safe", hangs=True))
    for _ in range(3):
        async with open_agent(
            storage, turns(*MODEL), caller, inner.tool("safe", hangs=True)
        ) as agent:
            agent.harness.resume()
            await trio.sleep(0.5)
            storage = storage.snapshot()
    assert await go_on(storage, caller, inner.tool("safe")) == "did it"
    assert inner.keys == inner.keys[:1] * 5
    assert len(tasks_of(storage)) == 1


async def test_a_call_that_is_cut_off_too_often_ends_with_a_result_that_says_so() -> None:
    """Alone: a caller that is cut off with it reaches the limit in the same open."""
    inner = Inner()
    settings = Settings(restart_limit=1, progress=STORE_FIRST)
    storage = MemoryStorage()
    wanted = NestedInput(entry=1, call_id="c1", tool_name="inner", arguments={})
    async with open_agent(
        storage, turns(*MODEL), inner.tool("safe", hangs=True), settings=settings
    ) as agent:
        agent.harness.resume()
        made = await agent.root.commit(lambda tx: tx.create_task(NestedCall, wanted))
        await trio.sleep(0.5)
        storage = storage.snapshot()
    async with open_agent(storage, turns(*MODEL), inner.tool("safe"), settings=settings) as agent:
        outcome = ended(await agent.harness.wait_for_task(made)).outcome
        assert [(r.kind, r.reason) for r in agent.reports] == [
            ("task_interrupted", "restart_limit")
        ]
        assert await agent.entries() == []
    assert inner.entered == 1
    assert isinstance(outcome, FailedOutcome)
    assert outcome.error == {"reason": "restart_limit"}
    assert isinstance(outcome.result, dict)
    assert outcome.result["diagnostics"] == [{"code": "restart_limit"}]
    assert outcome.result["is_error"] is True


async def test_a_caller_that_is_cut_off_too_often_takes_its_call_with_it() -> None:
    inner = Inner()
    settings = Settings(restart_limit=1)
    caller = outer(one_call, replay="safe")
    storage = await cut(caller, inner.tool("safe", hangs=True))
    text = await go_on(storage, caller, inner.tool("safe"), settings=settings)
    assert text == error_text(
        "Tool outer was cut off too often and may have partially run; it is not run again"
    )
    assert inner.entered == 1
    assert ended(only(storage)).outcome.status in ("aborted", "failed")


async def test_an_abort_in_the_next_process_reaches_the_nested_call_first() -> None:
    inner = Inner()
    caller = outer(one_call, replay="safe")
    storage = await cut(caller, inner.tool("safe", hangs=True))
    async with open_agent(storage, turns(*MODEL), caller, inner.tool("safe", hangs=True)) as agent:
        submission = await agent.root.submit("go", request_id="r1")
        await agent.root.abort()
        assert (await submission.wait()).reason == "aborted"
        assert "was aborted and may have partially run" in await outer_text(agent)
    made, calling = only(storage), only(storage, "pi.tool")
    assert ended(made).outcome.status == ended(calling).outcome.status == "aborted"
