"""`terminate` ends a run when all results of a round agree; and what else results may ask for."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pidurable_actors import Reply, ScriptedModel, Settings, ToolApi, ToolResult, tool
from pidurable_actors.agent import AGENT, hook
from pidurable_actors.errors import InvalidValue
from pidurable_actors.models import ScriptedContext
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import Agent, call, calling, open_agent, short
from tests._strict import strict_model, strictly
from tests.tasks.hooking import Noted, hooking


def ending(name: str, *, seconds: float = 0, agrees: bool = True, **options: Any) -> Any:
    """A tool whose result asks for the end of the run, or does not."""

    @tool(name, replay="safe", **options)
    async def end() -> ToolResult:
        """End the run."""
        await trio.sleep(seconds)
        return ToolResult(f"{name} done", terminate=agrees)

    return end


YES, LATE, NO = ending("yes"), ending("late", seconds=5), ending("no", agrees=False)
ORDERED = ending("ordered", mode="sequential", seconds=5)


def script(*names: str) -> Any:
    """Calls these tools when it is asked to go, and answers else."""
    calls = [call(name, f"c{at}") for at, name in enumerate(names)]

    def reply(ctx: ScriptedContext) -> Reply:
        if ctx.user_text == "go" and not ctx.tool_results():
            return calling(*calls)
        return Reply("answer")

    return strictly(reply)


ROUNDS = [
    (["yes"], True),
    (["yes", "late"], True),
    (["late", "yes", "yes"], True),
    (["yes", "no"], False),
    (["no", "late"], False),
    (["yes", "ordered"], True),
    (["ordered", "no", "yes"], False),
    (["no", "ordered"], False),
    (["yes", "missing"], False),
]


@pytest.mark.parametrize(("names", "ends"), ROUNDS)
async def test_a_run_ends_after_a_round_exactly_when_all_its_results_agree(
    names: list[str], *, ends: bool
) -> None:
    """In parallel rounds and in sequential ones; the answer is the one that made the calls."""
    model = ScriptedModel(script(*names))
    async with open_agent(MemoryStorage(), model, YES, LATE, NO, ORDERED) as agent:
        settled = await agent.ask()
        assert settled.status == "done"
        assert len(model.requests) == (1 if ends else 2)
        answers = (await agent.root.entries("pi.assistant")).items
        assert settled.answer == answers[0].id
        assert len(answers) == len(model.requests)
        live = await agent.live()
        assert (live.run, live.generation, live.tools) == (None, None, {})


@pytest.mark.parametrize("names", [["yes", "late"], ["ordered", "late"], ["late", "no"]])
@pytest.mark.parametrize("after_s", [1, 6])
async def test_what_results_agreed_on_survives_a_crash_in_the_round(
    names: list[str], after_s: float
) -> None:
    storage = MemoryStorage()
    tools = YES, LATE, NO, ORDERED
    model = ScriptedModel(script(*names))
    async with open_agent(storage, model, *tools) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(after_s)
        crashed = storage.snapshot()
    model = ScriptedModel(script(*names))
    async with open_agent(crashed, model, *tools) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
        last = (await agent.lines())[-1]
        assert last.startswith("assistant" if "no" in names else "result")


async def test_what_an_earlier_round_agreed_on_is_forgotten() -> None:
    """One of two asks for the end in the first round, the other one in the second."""
    rounds = [calling(call("yes", "c1"), call("no", "c2")), calling(call("no", "c1"))]
    model = strict_model(*rounds, calling(call("yes", "c1")), Reply("never"))
    async with open_agent(MemoryStorage(), model, YES, NO) as agent:
        await agent.ask()
        assert (await agent.lines())[-1] == "result c1 yes done"
    assert len(model.requests) == 3


async def test_what_waits_goes_on_when_a_round_ends_the_run() -> None:
    model = ScriptedModel(script("late"))
    async with open_agent(MemoryStorage(), model, LATE) as agent:
        first = await agent.root.submit("go")
        await trio.sleep(1)
        follow = await agent.root.submit("follow")
        steer = await agent.root.submit("steer", when_busy="steer")
        records = [await it.wait() for it in (first, follow, steer)]
        assert [it.status for it in records] == ["done"] * 3
        assert (await agent.lines())[3:] == [
            "user follow",
            "assistant answer",
            "user steer",
            "assistant answer",
        ]


async def test_a_reset_that_waits_is_placed_behind_a_round_that_ends_the_run() -> None:
    model = ScriptedModel(script("late"))
    async with open_agent(MemoryStorage(), model, LATE) as agent:
        first = await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.reset()
        assert (await first.wait()).status == "done"
        await agent.ask("more")
        assert [short(it) for it in model.requests[-1].messages] == ["user more"]


async def test_a_result_that_a_hook_replaces_asks_for_what_the_hook_says() -> None:
    async def stay(*_: object) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return ToolResult("stay")

    registry = hooking(hook.after_tool(stay), tools=[YES])
    model = ScriptedModel(script("yes"))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask()
        assert (await agent.lines())[-1] == "assistant answer"


async def test_after_tools_is_told_of_a_round_that_ends_the_run_and_on_yield_is_not_asked() -> None:
    noted = Noted()
    hooks = noted.at("after_tools", "after_tools"), noted.at("on_yield", "on_yield")
    registry = hooking(*hooks, tools=[YES])
    async with open_agent(MemoryStorage(), ScriptedModel(script("yes")), registry=registry) as it:
        await it.ask()
    assert noted.names == ["after_tools"]


@pytest.mark.parametrize(
    "wrong",
    [
        ToolResult("x", handoff=""),
        ToolResult("x", handoff=7),  # type: ignore[arg-type]
        ToolResult("x", handoff="\ud800"),
        ToolResult("x", add_tools=[1]),  # type: ignore[list-item]
        ToolResult("x", add_tools=["\ud800"]),
    ],
)
async def test_a_wish_that_cannot_be_stored_is_an_error_of_the_tool(wrong: ToolResult) -> None:
    @tool()
    async def wishing() -> ToolResult:
        """Wish."""
        await trio.lowlevel.checkpoint()
        return wrong

    model = strict_model(calling(call("wishing")), Reply("done"))
    async with open_agent(MemoryStorage(), model, wishing) as agent:
        assert (await agent.ask()).status == "done"
        assert (await agent.results())["c1"].is_error


# --- add_tools ---


def test_one_name_in_the_place_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidValue, match="names are a list of texts, not 'deploy'"):
        ToolResult("x", add_tools="deploy")


@tool(replay="safe")
async def unlock() -> ToolResult:
    """Unlock what is locked."""
    await trio.lowlevel.checkpoint()
    return ToolResult("unlocked", add_tools=["locked", "unlock", "unknown"])


@tool(replay="safe")
async def locked() -> str:
    """Do what was locked."""
    await trio.lowlevel.checkpoint()
    return "opened"


UNLOCKING = (
    calling(call("locked", "c1"), call("unlock", "c2")),
    calling(call("locked", "c3")),
    Reply("done"),
)


def offered(model: ScriptedModel) -> list[list[str]]:
    """The names of the tools of each request."""
    return [sorted(it.name for it in request.tools) for request in model.requests]


async def start(agent: Agent) -> None:
    """Leave the tool out of the choice, and ask."""
    await agent.root.configure(tools=["unlock"])
    await agent.ask()


async def test_tools_that_a_result_adds_may_be_called_from_the_next_request_on() -> None:
    model = strict_model(*UNLOCKING)
    async with open_agent(MemoryStorage(), model, unlock, locked) as agent:
        await start(agent)
        results = await agent.results()
        assert results["c1"].is_error
        assert not results["c3"].is_error
        state = await agent.root.snapshot(AGENT)
        assert list(state.tools_added) == ["locked", "unlock", "unknown"]
    assert offered(model) == [["unlock"], ["locked", "unlock"], ["locked", "unlock"]]


async def test_added_tools_stay_across_a_restart_until_tools_are_chosen_anew() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, strict_model(*UNLOCKING), unlock, locked) as agent:
        await start(agent)
    model = strict_model(Reply("x"))
    async with open_agent(storage, model, unlock, locked) as agent:
        await agent.ask("more")
        await agent.root.configure(instructions="Still there.")
        await agent.ask("more")
        await agent.root.configure(tools=["unlock"])
        await agent.ask("more")
        await agent.root.configure(tools=None)
        await agent.ask("more")
    both = ["locked", "unlock"]
    assert offered(model) == [both, both, ["unlock"], both]


async def test_added_tools_do_not_come_from_extensions_that_take_no_part() -> None:
    storage = MemoryStorage()
    model = strict_model(calling(call("unlock", "c1")), Reply("done"))
    registry = hooking([], tools=[unlock])
    async with open_agent(storage, model, registry=registry) as agent:
        await agent.root.configure(extensions=["tools"], tools=["unlock"])
        await agent.ask()
    assert offered(model) == [["unlock"], ["unlock"]]


async def test_wishes_of_a_nested_call_are_ignored() -> None:
    inner = ending("inner", callers=["tools"])

    @tool(replay="safe")
    async def outer(*, api: ToolApi) -> str:
        """Call the other one."""
        found = await api.call("inner", {}, key="one")
        return f"{found.terminate}"

    model = strict_model(calling(call("outer")), Reply("done"))
    settings = Settings(tool_mode="sequential")
    async with open_agent(MemoryStorage(), model, outer, inner, settings=settings) as agent:
        await agent.ask()
        assert (await agent.lines())[-1] == "assistant done"
