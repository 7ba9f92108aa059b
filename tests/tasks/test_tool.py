"""One tool call: what the model may send, what the tool may return, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import (
    Reply,
    Settings,
    Tool,
    ToolApi,
    ToolCall,
    ToolResult,
    tool,
)
from pidurable_actors.errors import InvocationEnded, ProviderError
from pidurable_actors.models import Garbage
from pidurable_actors.records import (
    CompletedOutcome,
    FailedOutcome,
    ImageBlock,
    Running,
    TextBlock,
    Usage,
    text_of,
)
from pidurable_actors.runtime import MISSING
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.tasks.tool import ToolInput, ToolTask
from tests._agents import (
    all_tasks,
    call,
    calling,
    codes,
    ended,
    error_text,
    in_order,
    open_agent,
    peek,
    turns,
)


class Counter:
    """Counts, from outside, how often a tool's body was entered."""

    def __init__(self) -> None:
        self.entered = 0

    def tool(self, **options: Any) -> Tool:
        """An ``add`` tool that counts."""

        @tool("add", **options)
        async def add(
            a: Annotated[int, "the first number"], b: Annotated[int, "the second"] = 1
        ) -> str:
            """Add two numbers."""
            self.entered += 1
            await trio.lowlevel.checkpoint()
            return str(a + b)

        return add


async def run_tool(made: Tool, *calls: ToolCall, settings: Settings | None = None) -> Ran:
    """One round with these calls; the tool's own name by default."""
    storage = MemoryStorage()
    model = turns(calling(*(calls or (call(made.name),))), Reply("done"))
    async with open_agent(storage, model, made, settings=settings) as agent:
        settled = await agent.ask()
        assert settled.status == "done"
        results = await agent.results()
        entry = await agent.result_entry(next(iter(results)))
        reports = [report.kind for report in agent.reports]
    with peek(storage) as stored:
        outcomes = [ended(task).outcome for task in all_tasks(stored) if task.kind == "pi.tool"]
    return Ran(results, entry, outcomes, reports)


class Ran:
    """What a round came to."""

    def __init__(self, results: Any, entry: Any, outcomes: Any, reports: Sequence[str]) -> None:
        self.results = results
        self.entry = entry
        self.outcomes = outcomes
        self.reports = reports

    @property
    def text(self) -> str:
        """The text of the one result."""
        (result,) = self.results.values()
        return text_of(result.content)

    @property
    def is_error(self) -> bool:
        """Whether the one result is an error."""
        (result,) = self.results.values()
        return bool(result.is_error)


async def test_the_model_is_told_name_description_and_schema() -> None:
    model = turns(Reply("hi"))
    async with open_agent(MemoryStorage(), model, Counter().tool()) as agent:
        await agent.ask()
    (spec,) = model.requests[0].tools
    assert (spec.name, spec.description) == ("add", "Add two numbers.")
    assert spec.parameters["required"] == ["a"]
    assert spec.parameters["additionalProperties"] is False
    properties = spec.parameters["properties"]
    assert isinstance(properties, dict)
    first = properties["a"]
    assert isinstance(first, dict)
    assert (first["type"], first["description"]) == ("integer", "the first number")


async def test_the_result_of_a_call_reaches_the_model_with_its_call_id() -> None:
    counter = Counter()
    ran = await run_tool(counter.tool(), call("add", a=2, b=3))
    assert (ran.text, ran.is_error, counter.entered) == ("5", False, 1)
    assert ran.outcomes == [CompletedOutcome()]
    assert ran.entry.kind == "pi.tool-result"
    assert ran.entry.by_task_id is not None


BAD_CALLS = {
    "an unknown tool": (call("nobody"), "tool_unavailable", "Tool nobody is not available"),
    "an argument of a wrong type": (call("add", a="x"), "invalid_arguments", "a"),
    "a missing argument": (call("add"), "invalid_arguments", "a"),
    "an argument that is not there": (call("add", a=1, c=2), "invalid_arguments", "c"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
async def test_a_bad_call_is_answered_by_one_error_result_and_the_run_goes_on(case: str) -> None:
    """C23: the model is told, the tool's body is not entered, nothing is retried."""
    made, code, says = BAD_CALLS[case]
    counter = Counter()
    ran = await run_tool(counter.tool(), made)
    assert ran.is_error
    assert ran.text.startswith("<harness>\n[error] ")
    assert says in ran.text
    assert codes(ran.entry) == [code]
    assert counter.entered == 0
    (outcome,) = ran.outcomes
    assert isinstance(outcome, FailedOutcome)
    assert isinstance(outcome.error, dict)
    assert outcome.error["code"] == code


async def test_arguments_that_are_no_json_are_answered_by_an_error_result() -> None:
    counter = Counter()
    model = turns(Reply(tool_calls=[call("add", a=1)], fault=Garbage()), Reply("done"))
    async with open_agent(MemoryStorage(), model, counter.tool()) as agent:
        assert (await agent.ask()).status == "done"
        assert codes(await agent.result_entry("c1")) == ["invalid_arguments"]
        assert "not valid JSON" in (await agent.lines())[2]
        answer = (await agent.entries())[1]
        assert answer.data == {"malformed": {"c1": '{"'}}
    assert counter.entered == 0


async def test_a_call_id_used_twice_in_one_answer_runs_once() -> None:
    counter = Counter()
    model = turns(calling(call("add", a=1), call("add", a=2)), Reply("done"))
    async with open_agent(MemoryStorage(), model, counter.tool()) as agent:
        assert (await agent.ask()).status == "done"
        results = await agent.results()
        assert codes(await agent.result_entry("c1-2")) == ["invalid_arguments"]
    assert {name: result.is_error for name, result in results.items()} == {
        "c1": False,
        "c1-2": True,
    }
    assert "c1" in text_of(results["c1-2"].content)
    assert counter.entered == 1


async def test_calls_without_an_id_are_made_one_and_run() -> None:
    counter = Counter()
    model = turns(calling(call("add", "", a=1), call("add", "", a=2)), Reply("done"))
    async with open_agent(MemoryStorage(), model, counter.tool()) as agent:
        assert (await agent.ask()).status == "done"
        results = await agent.results()
    assert sorted(text_of(result.content) for result in results.values()) == ["2", "3"]
    assert counter.entered == 2


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


async def test_the_intent_is_stored_before_the_tool_runs() -> None:
    seen: list[object] = []
    storage = MemoryStorage()

    @tool(replay="safe")
    async def look(word: str, *, api: ToolApi) -> str:
        """Look at what is stored while this runs."""
        await trio.lowlevel.checkpoint()
        with peek(storage.snapshot()) as stored:
            record = stored.task(api.task_id)
            assert record is not None
            assert isinstance(record.state, Running)
            seen.append(record.state.checkpoint)
            seen.append(api.idempotency_key)
        return word

    model = turns(calling(call("look", word="x")), Reply("done"))
    async with open_agent(storage, model, look) as agent:
        await agent.ask()
    checkpoint, key = seen
    assert checkpoint == {
        "phase": "execute",
        "arguments": {"word": "x"},
        "replay": "safe",
        "key": key,
    }
    assert isinstance(key, str)
    assert len(key) == 32


async def test_an_omitted_policy_is_stored_as_unsafe() -> None:
    assert Counter().tool().replay == "unsafe"
    storage = MemoryStorage()
    gate = trio.Event()

    @tool()
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "x"

    async with open_agent(storage, turns(calling(call("wait")), Reply("done")), wait) as agent:
        submission = await agent.root.submit("go")
        await wait_all_tasks_blocked()
        (task_id,) = agent.tool_tasks()
        record = await agent.harness.get_task(task_id)
        assert isinstance(record.state, Running)
        assert record.state.checkpoint["replay"] == "unsafe"
        gate.set()
        await submission.wait()


async def test_the_key_of_a_call_is_its_own() -> None:
    keys: list[str] = []

    @tool()
    async def note(*, api: ToolApi) -> str:
        """Note the key."""
        await trio.lowlevel.checkpoint()
        keys.append(api.idempotency_key)
        return api.call_id

    model = turns(calling(*(call("note", f"c{n}") for n in range(10))), Reply("done"))
    async with open_agent(MemoryStorage(), model, note) as agent:
        await agent.ask()
        results = await agent.results()
    assert len(set(keys)) == 10
    assert all(text_of(result.content) == name for name, result in results.items())


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


async def test_arguments_are_those_of_a_schema_written_by_hand() -> None:
    async def execute(**arguments: object) -> str:
        await trio.lowlevel.checkpoint()
        return repr(arguments)

    made = Tool(
        "by-hand",
        execute,
        description="Takes a number.",
        parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
    )
    assert (await run_tool(made, call("by-hand", n=1))).text == "{'n': 1}"
    assert (await run_tool(made, call("by-hand", n="x"))).is_error


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


async def test_a_call_whose_answer_is_gone_ends_with_an_error_result() -> None:
    """A task that cannot read its own call faults; the call still gets its one result."""
    async with open_agent(MemoryStorage(), turns(Reply("done"))) as agent:
        await agent.ask()
        task_input = ToolInput(entry=(await agent.entries())[0].id, call_id="c9", tool_name="add")
        task_id = await agent.root.commit(lambda tx: tx.create_task(ToolTask, task_input))
        record = await agent.harness.wait_for_task(task_id)
        assert ended(record).outcome.status == "faulted"
        assert codes(await agent.result_entry("c9")) == ["tool_error"]
        assert [report.kind for report in agent.reports] == ["task_faulted"]


async def test_a_model_error_after_a_round_keeps_the_results() -> None:
    counter = Counter()
    refusal = ProviderError("no")
    async with open_agent(
        MemoryStorage(), in_order(calling(call("add", a=1)), refusal), counter.tool()
    ) as agent:
        assert (await agent.ask()).reason == "model_error"
        assert (await agent.lines())[-1] == "result c1 2"
