"""Every row of the replay table, for a crash and for a close, and across changed tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import trio

from pidurable_actors import NOT_DONE, UNKNOWN, Reply, Settings, Tool, ToolApi, ToolResult, tool
from pidurable_actors.agent import Replay
from pidurable_actors.records import (
    EntryRecord,
    FailedOutcome,
    Parked,
    Running,
    TaskRecord,
    ToolResultMessage,
    text_of,
)
from pidurable_actors.settings import ProgressSettings
from pidurable_actors.storage import Storage
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
from tests.crash.sweep import World

Cut = Literal["crash", "close"]
CUTS: tuple[Cut, ...] = ("crash", "close")
MODEL = (calling(call("append", line="hello")), Reply("done"))
Handler = Callable[[Mapping[str, Any], ToolApi], Awaitable[object]]


@attrs.define
class Outside:
    """The file that the tool appends to, and what it saw."""

    lines: list[str] = attrs.field(factory=list)
    keys: list[str] = attrs.field(factory=list)

    def tool(
        self,
        replay: Replay,
        *,
        hangs: bool = False,
        says: str = "working\n",
        handler: Handler | None = None,
    ) -> Tool:
        """``append``: appends, says something, and hangs or returns."""

        @tool("append", replay=replay)
        async def append(line: str, *, api: ToolApi) -> str:
            """Append a line to a file."""
            self.lines.append(line)
            self.keys.append(api.idempotency_key)
            if says:
                await api.output(says)
            if hangs:
                await trio.sleep_forever()
            return "appended"

        if handler is not None:
            append.reconcile(handler)
        return append


@attrs.frozen
class Found:
    """What the second process left."""

    result: ToolResultMessage
    entry: EntryRecord
    task: TaskRecord
    status: str

    @property
    def text(self) -> str:
        """The text of the result."""
        return text_of(self.result.content)


async def cut_off(outside: Outside, first: Tool, how: Cut, **settings: Any) -> MemoryStorage:
    """Run until the tool hangs, then end the process."""
    storage = MemoryStorage()
    options = Settings(**{"progress": STORE_FIRST, **settings})
    async with open_agent(storage, turns(*MODEL), first, settings=options) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(0.5)
        assert outside.lines == ["hello"]
        crashed = storage.snapshot()
    return crashed if how == "crash" else storage


async def finish(storage: Storage, *tools: Tool, settings: Settings | None = None) -> Found:
    """Open the storage again and let the run end."""
    async with open_agent(storage, turns(*MODEL), *tools, settings=settings) as agent:
        settled = await agent.ask("go", request_id="r1")
        (result,) = (await agent.results()).values()
        entry = await agent.result_entry("c1")
        assert (await agent.lines())[-1] == "assistant done"
    with peek(storage) as stored:
        (task,) = [task for task in all_tasks(stored) if task.kind == "pi.tool"]
    return Found(result, entry, task, settled.status)


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


# --- reconcile ---


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


# --- before the intent ---


async def test_cut_off_before_the_intent_the_call_runs_in_full() -> None:
    """The crash point between the start of the task and its intent."""
    outside = Outside()
    world = World(MemoryStorage())
    async with open_agent(world.watched(), turns(*MODEL), outside.tool("unsafe")) as agent:
        await agent.ask("go", request_id="r1")
    tried = 0
    for point in world.points:
        if not _is_at(point.storage, "call"):
            continue
        again = Outside()
        found = await finish(point.storage, again.tool("unsafe"))
        assert (found.text, again.lines) == ("appended", ["hello"])
        tried += 1
    assert tried


def _is_at(storage: MemoryStorage, phase: str) -> bool:
    with peek(storage.snapshot()) as stored:
        return any(
            isinstance(task.state, Running) and task.state.checkpoint["phase"] == phase
            for task in all_tasks(stored)
        )


# --- the restart limit ---


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
    expected = "working\n" + error_text("Tool append was cut off too often and is not run again")
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
            "Tool append was aborted"
        )
    assert outside.lines == ["hello"]


# --- close and abort, seen from inside the tool ---


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
        aborted = "so far\n" + error_text("Tool stubborn was aborted")
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
