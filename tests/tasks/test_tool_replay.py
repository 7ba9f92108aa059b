"""Every row of the replay table, for a crash and for a close, and across changed tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from pidurable_actors import NOT_DONE, UNKNOWN, ToolApi, ToolResult, tool
from pidurable_actors.agent import Replay
from pidurable_actors.records import (
    FailedOutcome,
    Running,
    text_of,
)
from pidurable_actors.settings import ProgressSettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    all_tasks,
    codes,
    ended,
    interrupted,
    open_agent,
    peek,
    turns,
)
from tests.tasks.cutting import CUTS, MODEL, Cut, Outside, Photographed, cut_off, finish

ROWS: list[tuple[Replay, Replay | None, bool]] = [
    # stored, current (None: the tool is gone), whether it is run again
    ("safe", "safe", True),
    ("safe", "unsafe", False),
    ("safe", "reconcile", False),
    ("safe", None, False),
    ("unsafe", "safe", False),
    ("unsafe", "unsafe", False),
    ("unsafe", "reconcile", False),
    ("unsafe", None, False),
    ("reconcile", "safe", False),
    ("reconcile", "unsafe", False),
    ("reconcile", None, False),
]


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize(("stored", "current", "again"), ROWS)
async def test_stored_and_current_policy_decide_together(
    stored: Replay, current: Replay | None, how: Cut, *, again: bool
) -> None:
    outside = Outside()
    asked: list[object] = []

    async def never(arguments: object, _: object) -> object:
        await trio.lowlevel.checkpoint()
        asked.append(arguments)
        return "appended before"

    first = outside.tool(stored, hangs=True, handler=never)
    storage = await cut_off(outside, first, how)
    tools = () if current is None else (outside.tool(current, handler=never),)
    found = await finish(storage, *tools)
    assert found.status == "done"
    assert asked == []
    if again:
        assert outside.lines == ["hello", "hello"]
        assert (found.text, found.result.is_error) == ("appended", False)
        assert ended(found.task).outcome.status == "completed"
        return
    assert outside.lines == ["hello"]
    assert found.text == "working\n" + interrupted("append")
    assert found.result.is_error
    assert codes(found.entry) == ["interrupted"]
    assert isinstance(ended(found.task).outcome, FailedOutcome)


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("", interrupted("append")),
        ("working\n", "working\n" + interrupted("append")),
        ("working", "working\n" + interrupted("append")),
        ("two\n\n", "two\n\n" + interrupted("append")),
    ],
)
async def test_the_text_of_an_interrupted_call_is_exact(how: Cut, says: str, expected: str) -> None:
    assert interrupted("append") == (
        "<harness>\n[error] Tool append was interrupted and may have partially run\n</harness>"
    )
    outside = Outside()
    storage = await cut_off(outside, outside.tool("unsafe", hangs=True, says=says), how)
    found = await finish(storage, outside.tool("unsafe"))
    assert found.text == expected
    assert len(found.result.content) == 1


async def test_output_that_was_not_stored_yet_is_lost_with_a_crash() -> None:
    outside = Outside()
    first = outside.tool("unsafe", hangs=True)
    storage = await cut_off(outside, first, "crash", progress=ProgressSettings())
    assert (await finish(storage, outside.tool("unsafe"))).text == interrupted("append")


async def test_output_that_was_not_stored_yet_is_stored_by_a_close() -> None:
    outside = Outside()
    first = outside.tool("unsafe", hangs=True)
    storage = await cut_off(outside, first, "close", progress=ProgressSettings())
    found = await finish(storage, outside.tool("unsafe"))
    assert found.text == "working\n" + interrupted("append")


async def test_a_safe_call_keeps_its_arguments_and_its_key_over_reruns() -> None:
    outside = Outside()
    storage = await cut_off(outside, outside.tool("safe", hangs=True), "crash")
    for _ in range(3):
        async with open_agent(storage, turns(*MODEL), outside.tool("safe", hangs=True)) as agent:
            agent.harness.resume()
            await trio.sleep(0.5)
            storage = storage.snapshot()
    await finish(storage, outside.tool("safe"))
    assert outside.lines == ["hello"] * 5
    assert len(set(outside.keys)) == 1


async def test_arguments_that_no_longer_fit_the_tool_are_an_error_and_not_a_run() -> None:
    outside = Outside()
    storage = await cut_off(outside, outside.tool("safe", hangs=True), "crash")

    @tool("append", replay="safe")
    async def append(number: int) -> str:
        """Take something else now."""
        await trio.lowlevel.checkpoint()
        outside.lines.append("wrong")
        return str(number)

    found = await finish(storage, append)
    assert codes(found.entry) == ["tool_error"]
    assert outside.lines == ["hello"]


@pytest.mark.parametrize("how", CUTS)
async def test_reconcile_that_finds_the_effect_stores_its_result(how: Cut) -> None:
    outside = Outside()
    asked: list[tuple[object, str]] = []

    async def find(arguments: Mapping[str, Any], api: ToolApi) -> ToolResult:
        await trio.lowlevel.checkpoint()
        asked.append((dict(arguments), api.idempotency_key))
        api.diagnostic("looked_up", "found it")
        return ToolResult("Opened TICKET-1", details={"id": 1})

    storage = await cut_off(outside, outside.tool("reconcile", hangs=True, handler=find), how)
    found = await finish(storage, outside.tool("reconcile", handler=find))
    assert (found.text, found.result.is_error) == ("Opened TICKET-1", False)
    assert outside.lines == ["hello"]
    assert asked == [({"line": "hello"}, outside.keys[0])]
    assert found.entry.data == {
        "details": {"id": 1},
        "diagnostics": [{"code": "looked_up", "message": "found it"}],
    }


async def test_reconcile_may_find_plain_text() -> None:
    outside = Outside()

    async def find(_: object, __: object) -> object:
        await trio.lowlevel.checkpoint()
        return "appended before"

    storage = await cut_off(outside, outside.tool("reconcile", hangs=True, handler=find), "crash")
    found = await finish(storage, outside.tool("reconcile", handler=find))
    assert found.text == "appended before"


@pytest.mark.parametrize("how", CUTS)
async def test_reconcile_that_says_not_done_lets_it_run_with_the_same_key(how: Cut) -> None:
    outside = Outside()

    async def find(_: object, __: object) -> object:
        await trio.lowlevel.checkpoint()
        return NOT_DONE

    storage = await cut_off(outside, outside.tool("reconcile", hangs=True, handler=find), how)
    found = await finish(storage, outside.tool("reconcile", handler=find))
    assert (found.text, found.result.is_error) == ("appended", False)
    assert outside.lines == ["hello", "hello"]
    assert len(set(outside.keys)) == 1


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("answer", [UNKNOWN, ValueError("no idea"), None, 7])
async def test_reconcile_that_cannot_tell_is_an_interruption(how: Cut, answer: object) -> None:
    outside = Outside()

    async def find(_: object, __: object) -> object:
        await trio.lowlevel.checkpoint()
        if isinstance(answer, Exception):
            raise answer
        return answer

    first = outside.tool("reconcile", hangs=True, handler=find)
    storage = await cut_off(outside, first, how)
    reports: list[str] = []
    async with open_agent(storage, turns(*MODEL), outside.tool("reconcile", handler=find)) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
        (result,) = (await agent.results()).values()
        assert codes(await agent.result_entry("c1")) == ["interrupted"]
        reports += [report.kind for report in agent.reports]
    assert text_of(result.content) == "working\n" + interrupted("append")
    assert outside.lines == ["hello"]
    assert reports == ([] if answer is UNKNOWN else ["handler_failed"])


async def test_a_reconcile_that_is_cut_off_is_asked_again() -> None:
    outside = Outside()
    asked: list[int] = []

    async def find(_: object, __: object) -> object:
        asked.append(1)
        await trio.sleep(10 if len(asked) == 1 else 0)
        return "appended before"

    first = outside.tool("reconcile", hangs=True, handler=find)
    storage = await cut_off(outside, first, "crash")
    async with open_agent(storage, turns(*MODEL), outside.tool("reconcile", handler=find)) as agent:
        agent.harness.resume()
        await trio.sleep(1)
        storage = storage.snapshot()
    found = await finish(storage, outside.tool("reconcile", handler=find))
    assert found.text == "appended before"
    assert len(asked) == 2


async def test_cut_off_before_the_intent_the_call_runs_in_full() -> None:
    """The crash point between the start of the task and its intent."""
    outside = Outside()
    storage = Photographed(MemoryStorage())
    async with open_agent(storage, turns(*MODEL), outside.tool("unsafe")) as agent:
        await agent.ask("go", request_id="r1")
    tried = 0
    for left in storage.pictures:
        if not _is_at(left, "call"):
            continue
        again = Outside()
        found = await finish(left, again.tool("unsafe"))
        assert (found.text, again.lines) == ("appended", ["hello"])
        tried += 1
    assert tried


def _is_at(storage: MemoryStorage, phase: str) -> bool:
    with peek(storage.snapshot()) as stored:
        return any(
            isinstance(task.state, Running) and task.state.checkpoint["phase"] == phase
            for task in all_tasks(stored)
        )
