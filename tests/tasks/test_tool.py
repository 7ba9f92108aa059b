"""One tool call: what the model may send, and what is stored before the tool runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import (
    Reply,
    Tool,
    ToolApi,
    tool,
)
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import Garbage
from pidurable_actors.records import (
    CompletedOutcome,
    FailedOutcome,
    Running,
    text_of,
)
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.tasks.tool import ToolInput, ToolTask
from tests._agents import (
    call,
    calling,
    codes,
    ended,
    in_order,
    open_agent,
    peek,
    turns,
)
from tests.tasks.calls import Counter, run_tool


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


async def test_a_model_error_after_a_round_keeps_the_results() -> None:
    counter = Counter()
    refusal = ProviderError("no")
    async with open_agent(
        MemoryStorage(), in_order(calling(call("add", a=1)), refusal), counter.tool()
    ) as agent:
        assert (await agent.ask()).reason == "model_error"
        assert (await agent.lines())[-1] == "result c1 2"


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


async def test_code_around_a_tool_sees_its_call_and_decides_its_result() -> None:
    told: list[object] = []

    async def around(
        run: Callable[[], Awaitable[object]], arguments: Mapping[str, Any], api: ToolApi
    ) -> object:
        told.append((dict(arguments), api.call_id))
        result = await run()
        return f"<{result}>"

    counter = Counter()
    ran = await run_tool(counter.tool().around(around), call("add", a=2, b=3))
    assert (ran.text, ran.is_error, counter.entered) == ("<5>", False, 1)
    assert told == [({"a": 2, "b": 3}, "c1")]


async def test_code_around_a_tool_keeps_what_the_model_sees_and_the_policy() -> None:
    @tool(replay="safe", mode="sequential", timeout_s=3)
    async def plain(text: str) -> str:
        """Say it."""
        await trio.lowlevel.checkpoint()
        return text

    @tool()
    async def with_api(*, api: ToolApi) -> str:
        """Say the id."""
        await trio.lowlevel.checkpoint()
        return api.call_id

    async def refuse(_: object, __: object, ___: object) -> object:
        await trio.lowlevel.checkpoint()
        raise PermissionError("not today")

    wrapped = plain.around(refuse)
    assert wrapped.spec == plain.spec
    assert (wrapped.replay, wrapped.mode, wrapped.timeout_s) == ("safe", "sequential", 3)
    assert plain.execute is not wrapped.execute
    assert "not today" in (await run_tool(wrapped, call("plain", text="x"))).text
    assert (await run_tool(plain, call("plain", text="x"))).text == "x"

    async def through(run: Callable[[], Awaitable[object]], _: object, __: object) -> object:
        return await run()

    assert (await run_tool(with_api.around(through), call("with_api"))).text == "c1"
