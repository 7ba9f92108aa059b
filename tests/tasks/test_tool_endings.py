"""Calls that end in other ways: cut off too often, parked, aborted, finished during a close."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from pidurable_actors import Reply, Settings, ToolApi, tool
from pidurable_actors.records import (
    FailedOutcome,
    Parked,
    ToolResultMessage,
    text_of,
)
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from tests._agents import (
    STORE_FIRST,
    Agent,
    all_tasks,
    call,
    calling,
    codes,
    ended,
    error_text,
    interrupted,
    open_agent,
    peek,
    turns,
)
from tests.tasks.cutting import MODEL, Outside, cut_off, finish


async def die(storage: MemoryStorage, outside: Outside, settings: Settings) -> MemoryStorage:
    """One more process that ends by a crash while the tool runs."""
    async with open_agent(
        storage, turns(*MODEL), outside.tool("safe", hangs=True), settings=settings
    ) as agent:
        agent.harness.resume()
        await trio.sleep(0.5)
        return storage.snapshot()


async def test_a_tool_cut_off_too_often_is_not_run_again_and_the_run_goes_on() -> None:
    outside = Outside()
    settings = Settings(restart_limit=3, progress=STORE_FIRST)
    storage = await cut_off(outside, outside.tool("safe", hangs=True), "crash")
    for _ in range(2):
        storage = await die(storage, outside, settings)
    assert len(outside.lines) == 3
    reports: list[tuple[str, str]] = []
    async with open_agent(storage, turns(*MODEL), outside.tool("safe"), settings=settings) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
        (result,) = (await agent.results()).values()
        assert codes(await agent.result_entry("c1")) == ["restart_limit"]
        reports += [(report.kind, report.reason) for report in agent.reports]
    expected = "working\n" + error_text(
        "Tool append was cut off too often and may have partially run; it is not run again"
    )
    assert text_of(result.content) == expected
    assert len(outside.lines) == 3
    assert reports == [("task_interrupted", "restart_limit")]
    with peek(storage) as stored:
        (task,) = [task for task in all_tasks(stored) if task.kind == "pi.tool"]
    outcome = ended(task).outcome
    assert isinstance(outcome, FailedOutcome)
    assert outcome.error == {"reason": "restart_limit"}


async def test_closes_never_count_toward_the_limit() -> None:
    outside = Outside()
    settings = Settings(restart_limit=2)
    storage = await cut_off(outside, outside.tool("safe", hangs=True), "close")
    for _ in range(5):
        async with open_agent(
            storage, turns(*MODEL), outside.tool("safe", hangs=True), settings=settings
        ) as agent:
            agent.harness.resume()
            await trio.sleep(0.5)
    assert (await finish(storage, outside.tool("safe"), settings=settings)).text == "appended"


async def park(outside: Outside) -> tuple[MemoryStorage, Settings]:
    """A storage whose tool call is parked at the next look."""
    settings = Settings(restart_limit=1, on_restart_limit="park", progress=STORE_FIRST)
    return await cut_off(outside, outside.tool("safe", hangs=True), "crash"), settings


async def test_a_parked_tool_keeps_its_conversation_busy_until_it_is_retried() -> None:
    outside = Outside()
    storage, settings = await park(outside)
    async with open_agent(storage, turns(*MODEL), outside.tool("safe"), settings=settings) as agent:
        submission = await agent.root.submit("go", request_id="r1")
        await trio.sleep(100)
        (task_id,) = agent.tool_tasks()
        assert isinstance((await agent.harness.get_task(task_id)).state, Parked)
        assert await agent.root.busy()
        assert [(r.kind, r.reason) for r in agent.reports] == [("task_parked", "restart_limit")]
        assert await agent.harness.retry_task(task_id) == task_id
        assert (await submission.wait()).status == "done"
        assert (await agent.lines())[2] == "result c1 appended"


async def test_a_parked_tool_can_be_aborted() -> None:
    outside = Outside()
    storage, settings = await park(outside)
    async with open_agent(storage, turns(*MODEL), outside.tool("safe"), settings=settings) as agent:
        submission = await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        await agent.root.abort()
        assert (await submission.wait()).reason == "aborted"
        assert (await agent.lines())[2] == "error c1 working\n" + error_text(
            "Tool append was aborted and may have partially run"
        )
    assert outside.lines == ["hello"]


async def test_a_tool_that_finishes_while_the_harness_closes_keeps_its_result() -> None:
    """The effect is shielded by its author: it happened, its result is known, it is stored."""

    @tool()
    async def critical() -> str:
        """Do something that must not be torn."""
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        return "did it"

    storage = MemoryStorage()
    model = turns(calling(call("critical")), Reply("done"))
    async with open_agent(storage, model, critical) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
    async with open_agent(storage, model, critical) as agent:
        await agent.ask("go", request_id="r1")
        assert (await agent.lines())[2] == "result c1 did it"


@pytest.mark.parametrize("kind", ["swallows", "raises", "passes"])
async def test_an_aborted_call_has_one_aborted_result_whatever_the_tool_does(kind: str) -> None:
    """C28: three calls, one of which does not let its cancellation through or raises its own."""

    @tool()
    async def stubborn(*, api: ToolApi) -> str:
        """Take the abort badly."""
        await api.output("so far\n")
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if kind == "swallows":
                return "anyway"
            if kind == "raises":
                raise ValueError("in the way") from None
            raise

    @tool()
    async def quick() -> str:
        """Be quick."""
        await trio.lowlevel.checkpoint()
        return "quick"

    calls = (call("quick", "c1"), call("stubborn", "c2"), call("stubborn", "c3"))
    async with open_agent(
        MemoryStorage(), turns(calling(*calls), Reply("never")), quick, stubborn
    ) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.abort(reason="enough")
        assert (await submission.wait()).reason == "aborted"
        results = await agent.results()
        texts = {name: text_of(result.content) for name, result in results.items()}
        aborted = "so far\n" + error_text("Tool stubborn was aborted and may have partially run")
        assert texts == {"c1": "quick", "c2": aborted, "c3": aborted}
        assert codes(await agent.result_entry("c2")) == ["aborted"]
        dropped = [r.reason for r in agent.reports if r.kind == "task_interrupted"]
        assert dropped == (["value_dropped"] * 2 if kind == "swallows" else [])


async def test_an_aborted_call_alone_is_told_to_the_model_and_the_run_goes_on() -> None:
    outside = Outside()
    async with open_agent(
        MemoryStorage(), turns(*MODEL), outside.tool("unsafe", hangs=True)
    ) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(0.5)
        (task_id,) = agent.tool_tasks()
        record = await agent.harness.abort_task(task_id, reason="too slow")
        assert ended(record).outcome.status == "aborted"
        assert (await submission.wait()).status == "done"
        assert (await _result(agent)).is_error


async def test_a_cancelled_host_leaves_the_call_to_the_next_process() -> None:
    outside = Outside()
    storage = MemoryStorage()
    with trio.move_on_after(1):
        async with open_agent(storage, turns(*MODEL), outside.tool("unsafe", hangs=True)) as agent:
            await agent.ask("go", request_id="r1")
    found = await finish(storage, outside.tool("unsafe"))
    assert codes(found.entry) == ["interrupted"]
    assert outside.lines == ["hello"]


async def test_the_table_holds_on_sqlite_too(tmp_path: Path) -> None:
    outside = Outside()
    path = tmp_path / "agent.sqlite"
    async with open_agent(
        SqliteStorage(path), turns(*MODEL), outside.tool("unsafe", hangs=True)
    ) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(2)
    found = await finish(SqliteStorage(path), outside.tool("unsafe"))
    assert found.text == "working\n" + interrupted("append")


async def _result(agent: Agent) -> ToolResultMessage:
    (result,) = (await agent.results()).values()
    return result
