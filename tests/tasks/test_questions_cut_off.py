"""A call that is cut off while it goes on after an answer: what its replay policy lets happen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio

from pidurable_actors import NOT_DONE, UNKNOWN, Ask, Settings, Tool, ToolApi
from pidurable_actors.agent import Replay
from pidurable_actors.records import text_of
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import STORE_FIRST, Agent, codes, interrupted, open_agent, turns
from tests.tasks.asking import MODEL, Desk, open_question
from tests.tasks.cutting import CUTS, Cut

ASK = Ask("How many?")
OPTIONS = Settings(progress=STORE_FIRST)
Handler = Callable[[Mapping[str, Any], ToolApi], Awaitable[object]]


async def cut_off(desk: Desk, how: Cut, replay: Replay) -> MemoryStorage:
    """Ask, answer, and end the process while the handler hangs."""
    storage = MemoryStorage()
    made = desk.order(ASK, replay=replay, hangs=True)
    if replay == "reconcile":
        made.reconcile(_unused)
    async with open_agent(storage, turns(*MODEL), made, settings=OPTIONS) as agent:
        await agent.root.submit("go", request_id="r1")
        await agent.harness.answer((await open_question(agent.harness)).id, None, by="ann")
        await trio.sleep(1)
        assert desk.log == ["order tea", "resume 0 tea None"]
        crashed = storage.snapshot()
    return crashed if how == "crash" else storage


async def finish(storage: MemoryStorage, made: Tool | None) -> tuple[str, list[str]]:
    """Open again; the text of the result and its codes."""
    tools = () if made is None else (made,)
    async with open_agent(storage, turns(*MODEL), *tools, settings=OPTIONS) as agent:
        settled = await agent.ask("go", request_id="r1")
        assert settled.status == "done"
        return await _result(agent)


async def _result(agent: Agent) -> tuple[str, list[str]]:
    (result,) = (await agent.results()).values()
    entry = await agent.result_entry("c1")
    return text_of(result.content), codes(entry) if result.is_error else []


async def _unused(_: Mapping[str, Any], __: ToolApi) -> object:
    raise AssertionError("nobody asks in this process")


STOPPED = ("looking\ntold 0\n" + interrupted("order"), ["interrupted"])


@pytest.mark.parametrize("how", CUTS)
async def test_a_safe_one_goes_on_again_with_the_same_answer_and_state(how: Cut) -> None:
    desk = Desk()
    storage = await cut_off(desk, how, "safe")
    assert await finish(storage, desk.order(ASK, replay="safe")) == ("ordered None", [])
    assert desk.log == ["order tea", "resume 0 tea None", "resume 0 tea None"]
    assert desk.answers[0] == desk.answers[1]
    assert len(set(desk.keys)) == 1


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize(
    ("stored", "present"),
    [("unsafe", "unsafe"), ("unsafe", "safe"), ("safe", "unsafe"), ("safe", None)],
)
async def test_any_other_is_interrupted(how: Cut, stored: Replay, present: Replay | None) -> None:
    desk = Desk()
    storage = await cut_off(desk, how, stored)
    made = None if present is None else desk.order(ASK, replay=present)
    assert await finish(storage, made) == STOPPED
    assert desk.log == ["order tea", "resume 0 tea None"]


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize(
    ("found", "result", "again"),
    [
        ("it is ordered", ("it is ordered", []), False),
        (NOT_DONE, ("ordered None", []), True),
        (UNKNOWN, STOPPED, False),
    ],
)
async def test_one_that_can_be_looked_up_is_looked_up(
    how: Cut, found: object, result: tuple[str, list[str]], again: bool
) -> None:
    desk = Desk()
    storage = await cut_off(desk, how, "reconcile")
    made = desk.order(ASK, replay="reconcile")

    @made.reconcile
    async def look_up(arguments: Mapping[str, Any], api: ToolApi) -> object:
        assert arguments == {"item": "tea"}
        assert api.idempotency_key == desk.keys[0]
        await trio.lowlevel.checkpoint()
        return found

    assert await finish(storage, made) == result
    assert desk.log[2:] == (["resume 0 tea None"] if again else [])


async def test_what_was_looked_up_may_be_a_question_again() -> None:
    desk = Desk()
    storage = await cut_off(desk, "crash", "reconcile")
    made = desk.order(ASK, replay="reconcile")

    @made.reconcile
    async def look_up(arguments: Mapping[str, Any], api: ToolApi) -> object:
        await trio.lowlevel.checkpoint()
        return Ask("Was it done?", state=0)

    async with open_agent(storage, turns(*MODEL), made, settings=OPTIONS) as agent:
        agent.harness.resume()
        asked = await open_question(agent.harness)
        assert asked.text == "Was it done?"
        await agent.harness.answer(asked.id, "yes", by="ann")
        await agent.ask("go", request_id="r1")
        assert await _result(agent) == ("ordered 'yes'", [])


async def test_output_of_a_handler_that_runs_again_is_shown_once() -> None:
    desk = Desk()
    storage = await cut_off(desk, "crash", "safe")
    made = desk.order(ASK, replay="safe", hangs=True)
    async with open_agent(storage, turns(*MODEL), made, settings=OPTIONS) as agent:
        agent.harness.resume()
        await trio.sleep(1)
        (slot,) = (await agent.live()).tools.values()
        assert str(slot.output) == "looking\ntold 0\n"


@pytest.mark.parametrize("how", CUTS)
async def test_one_that_is_cut_off_before_it_asked_is_interrupted_and_asks_nobody(how: Cut) -> None:
    storage, desk = MemoryStorage(), Desk()
    hanging = desk.order(ASK, replay="unsafe")
    asks = hanging.execute

    async def hang(**arguments: Any) -> object:
        await asks(**arguments)
        return await trio.sleep_forever()

    made = hanging.around(lambda call, arguments, api: hang(**arguments, api=api))
    async with open_agent(storage, turns(*MODEL), made, settings=OPTIONS) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        crashed = storage.snapshot()
    storage = crashed if how == "crash" else storage
    text = "looking\n" + interrupted("order")
    assert await finish(storage, desk.order(ASK)) == (text, ["interrupted"])
    assert desk.log == ["order tea"]
