"""Who may call a tool: a model, other tools, and for whom; asked before anything of it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from pidurable_actors import (
    CALLER,
    AgentChoice,
    Context,
    Extension,
    Registry,
    Reply,
    ScriptedModel,
    Tool,
    ToolApi,
    tool,
)
from pidurable_actors._json import JsonObject
from pidurable_actors.errors import DefinitionError
from pidurable_actors.models import ScriptedContext
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    MODEL,
    Agent,
    call,
    calling,
    codes,
    error_text,
    open_agent,
    registry_of,
    turns,
)

ADMIN: JsonObject = {"role": "admin", "tenant": "acme"}


async def execute() -> str:
    """Do it."""
    await trio.lowlevel.checkpoint()
    return "did it"


class Gate:
    """A tool that asks, and what it was asked."""

    def __init__(self, answer: Callable[[JsonObject], Any]) -> None:
        self.asked: list[JsonObject] = []
        self.entered = 0
        self._answer = answer

    def allow(self, caller: JsonObject) -> bool:
        """The predicate."""
        self.asked.append(caller)
        answer: bool = self._answer(caller)
        return answer

    def tool(self, **options: Any) -> Tool:
        """``act(n=0)``."""

        @tool("act", allow=self.allow, **options)
        async def act(n: int = 0) -> str:
            """Act."""
            await trio.lowlevel.checkpoint()
            self.entered += 1
            return "did it"

        return act


async def act(
    gate: Gate, caller: JsonObject | None, *, arguments: dict[str, Any] | None = None
) -> tuple[str, Agent]:
    """One run that calls ``act`` for `caller`; the line of its result, and the agent."""
    model = turns(calling(call("act", **(arguments or {}))), Reply("done"))
    async with open_agent(MemoryStorage(), model, gate.tool()) as agent:
        settled = await (await agent.root.submit("go", caller=caller)).wait()
        assert settled.status == "done"
        if gate.entered:
            assert (await agent.result_entry("c1")).data == {"details": None}
        else:
            assert codes(await agent.result_entry("c1")) == ["blocked"]
        return (await agent.lines())[2], agent


BLOCKED = "error c1 " + error_text("Tool act is not allowed for this caller")


# --- callers ---


def test_a_tool_is_the_models_to_call_unless_it_says_otherwise() -> None:
    assert Tool("act", execute).callers == {"model"}
    assert tool()(execute).callers == {"model"}


def test_callers_may_be_given_in_any_collection() -> None:
    assert Tool("act", execute, callers={"tools"}).callers == {"tools"}
    assert tool(callers=["model", "tools", "model"])(execute).callers == {"model", "tools"}
    assert Tool("act", execute, callers=(name for name in ("tools",))).callers == {"tools"}


@pytest.mark.parametrize("callers", ["tools", (), ("people",), ("model", "people"), None, 7, [[]]])
def test_callers_that_are_none_are_refused(callers: Any) -> None:
    with pytest.raises(DefinitionError, match="'model' and 'tools'"):
        Tool("act", execute, callers=callers)
    with pytest.raises(DefinitionError, match="'model' and 'tools'"):
        tool(callers=callers)(execute)


def test_the_registry_tells_which_tools_may_be_called_by_whom() -> None:
    of_models, of_tools, of_both = (
        Tool("a", execute),
        Tool("b", execute, callers=["tools"]),
        Tool("c", execute, callers=["tools", "model"]),
    )
    registry = registry_of(of_models, of_tools, of_both)
    assert set(registry.tools()) == {"a", "b", "c"}
    assert set(registry.tools(called_by="model")) == {"a", "c"}
    assert set(registry.tools(called_by="tools")) == {"b", "c"}


def test_code_around_a_tool_changes_nothing_of_who_may_call_it() -> None:
    async def around(run: Any, _: object, __: object) -> object:
        return await run()

    gate = Gate(lambda _: False)
    wrapped = gate.tool(callers=["tools"]).around(around)
    assert wrapped.callers == {"tools"}
    assert not wrapped.allows(ADMIN)
    registry = Registry(
        [
            Extension("a", tools=[gate.tool(callers=["tools"])]),
            Extension("b", wrap_tool=lambda made: made.around(around)),
        ]
    )
    assert registry.tools(called_by="model") == {}


async def test_a_model_is_told_only_of_the_tools_that_it_may_call() -> None:
    model = turns(Reply("hi"))
    tools = (
        Tool("seen", execute),
        Tool("hidden", execute, callers=["tools"]),
        Tool("asking", execute, allow=lambda _: False),
    )
    async with open_agent(MemoryStorage(), model, *tools) as agent:
        await agent.ask()
    assert {spec.name for spec in model.requests[0].tools} == {"seen", "asking"}


async def test_a_model_that_calls_a_tool_of_tools_is_told_that_there_is_none() -> None:
    async def texts(*tools: Tool) -> list[str]:
        model = turns(calling(call("hidden")), Reply("done"))
        async with open_agent(MemoryStorage(), model, *tools) as agent:
            await agent.ask()
            assert codes(await agent.result_entry("c1")) == ["tool_unavailable"]
            return await agent.lines()

    asked = Gate(lambda _: True)
    hidden = Tool("hidden", execute, callers=["tools"], allow=asked.allow)
    assert await texts(hidden) == await texts()
    assert asked.asked == []


async def test_a_tool_that_the_model_may_not_call_makes_no_round_sequential() -> None:
    @tool()
    async def slow() -> str:
        """Take ten seconds."""
        await trio.sleep(10)
        return "slow"

    hidden = Tool("hidden", execute, callers=["tools"], mode="sequential")
    model = turns(calling(call("slow", "c1"), call("slow", "c2"), call("hidden", "c3")), Reply("x"))
    async with open_agent(MemoryStorage(), model, slow, hidden) as agent:
        await agent.ask()
    assert trio.current_time() == pytest.approx(10)


# --- allow ---


async def test_a_tool_runs_for_a_caller_that_it_allows() -> None:
    gate = Gate(lambda caller: caller["tenant"] == "acme")
    line, _ = await act(gate, ADMIN)
    assert line == "result c1 did it"
    assert (gate.asked, gate.entered) == ([ADMIN], 1)


async def test_a_tool_does_not_run_for_a_caller_that_it_does_not_allow() -> None:
    gate = Gate(lambda caller: caller["tenant"] == "other")
    line, agent = await act(gate, ADMIN)
    assert (line, gate.entered, agent.reports) == (BLOCKED, 0, [])


async def test_a_run_without_a_caller_is_refused_without_being_asked_about() -> None:
    gate = Gate(lambda _: True)
    line, agent = await act(gate, None)
    assert (line, gate.asked, gate.entered, agent.reports) == (BLOCKED, [], 0, [])


@pytest.mark.parametrize("answer", [1, "yes", None, partial(int)])
async def test_an_answer_that_is_no_bool_is_a_refusal_and_reported(answer: object) -> None:
    gate = Gate(lambda _: answer)
    line, agent = await act(gate, ADMIN)
    assert (line, gate.entered) == (BLOCKED, 0)
    assert [report.kind for report in agent.reports] == ["handler_failed"]


async def test_a_predicate_that_raises_refuses_and_is_reported() -> None:
    gate = Gate(lambda caller: caller["missing"])
    line, agent = await act(gate, ADMIN)
    assert (line, gate.entered) == (BLOCKED, 0)
    (report,) = agent.reports
    assert report.kind == "handler_failed"
    assert isinstance(report.error, KeyError)
    assert report.task_id is not None


async def test_a_caller_that_is_not_allowed_learns_nothing_of_the_arguments() -> None:
    gate = Gate(lambda _: False)
    line, _ = await act(gate, ADMIN, arguments={"wrong": 1})
    assert line == BLOCKED


async def test_a_predicate_cannot_change_for_whom_a_run_works() -> None:
    seen: list[JsonObject | None] = []

    def promote(caller: JsonObject) -> bool:
        caller["role"] = "admin"
        return True

    @tool(allow=promote)
    async def look(*, api: ToolApi) -> str:
        """Look for whom it works."""
        await trio.lowlevel.checkpoint()
        seen.append(api.context.get(CALLER))
        return "seen"

    model = turns(calling(call("look")), Reply("done"))
    async with open_agent(MemoryStorage(), model, look) as agent:
        await (await agent.root.submit("go", caller={"role": "guest"})).wait()
    assert seen == [{"role": "guest"}]


@pytest.mark.parametrize("allow", ["admin", True, execute, Gate(lambda _: True).tool()])
def test_a_predicate_that_is_no_plain_function_is_refused(allow: Any) -> None:
    with pytest.raises(DefinitionError, match="plain function"):
        Tool("act", execute, allow=allow)


async def test_a_call_that_is_cut_off_before_its_intent_asks_again_and_not_after_it() -> None:
    """The first process dies while it asks, the second while it runs; the third only runs."""
    storage = MemoryStorage()
    left: list[MemoryStorage] = []

    def dying(_: JsonObject) -> bool:
        left.append(storage.snapshot())
        return True

    @tool("act", replay="safe", allow=dying)
    async def first() -> str:
        """Act."""
        await trio.lowlevel.checkpoint()
        left.append(storage.snapshot())
        return "did it"

    model = turns(calling(call("act")), Reply("done"))
    async with open_agent(storage, model, first) as agent:
        await (await agent.root.submit("go", request_id="r1", caller=ADMIN)).wait()
    while_asked, while_run = left
    gate = Gate(lambda caller: caller == {})
    for crashed, line, asked in (
        (while_asked, BLOCKED, [ADMIN]),
        (while_run, "result c1 did it", []),
    ):
        gate.asked.clear()
        async with open_agent(crashed, model, gate.tool(replay="safe")) as agent:
            await (await agent.root.submit("go", request_id="r1", caller=ADMIN)).wait()
            assert (await agent.lines())[2] == line
        assert gate.asked == asked


async def test_what_the_host_says_of_itself_makes_no_caller() -> None:
    """Only what is stored counts: the next process may have another host."""
    gate = Gate(lambda _: True)
    with Context(values={CALLER: ADMIN}).scope():
        line, _ = await act(gate, None)
    assert (line, gate.asked) == (BLOCKED, [])


async def test_a_run_that_a_tool_starts_works_for_whom_the_tool_does() -> None:
    gate = Gate(lambda caller: caller == ADMIN)

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.answers:
            return Reply("done")
        return calling(call("act" if ctx.user_text == "below" else "ask"))

    @tool()
    async def ask(*, api: ToolApi) -> str:
        """Ask another agent."""
        below = await api.create_conversation("below", agent=AgentChoice(model=MODEL))
        return await (await below.submit("below", request_id="r1")).answer()

    async with open_agent(MemoryStorage(), ScriptedModel(script), ask, gate.tool()) as agent:
        await (await agent.root.submit("go", caller=ADMIN)).wait()
        assert (await agent.lines())[2] == "result c1 done"
    assert (gate.asked, gate.entered) == ([ADMIN], 1)
