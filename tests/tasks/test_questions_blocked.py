"""C53: the tool that is to go on after an answer is not here; the call waits for it, and is told so."""

from __future__ import annotations

from typing import Any

import trio
from pytest import mark, raises
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import Approve, Ask, Extension, Registry, Selection, tool
from pidurable_actors.errors import AlreadyAnswered
from pidurable_actors.harness import TaskView
from pidurable_actors.records import OrphanedOutcome, text_of
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import Agent, codes, ended, error_text, open_agent, registry_of, turns
from tests.tasks.asking import MODEL, PAY, Desk, open_question, with_hooks

ASK = Ask("How many?")


async def asked(desk: Desk, asks: Ask = ASK) -> tuple[MemoryStorage, str]:
    """A storage in which a call waits, and its question."""
    storage = MemoryStorage()
    async with open_agent(storage, turns(*MODEL), desk.order(asks)) as agent:
        await agent.root.submit("go", request_id="r1")
        return storage, (await open_question(agent.harness)).id


def view_of(agent: Agent) -> TaskView:
    """The one call."""
    (view,) = [view for view in agent.harness.inspect().tasks if view.kind == "pi.tool"]
    return view


async def result_of(agent: Agent) -> str:
    """The text of the one result."""
    (result,) = (await agent.results()).values()
    return text_of(result.content)


@mark.parametrize("there", ["nothing", "another name"])
async def test_an_answer_is_stored_and_the_call_blocked_until_its_tool_is_here(there: str) -> None:
    desk = Desk()
    storage, question = await asked(desk)
    registry = registry_of(*(() if there == "nothing" else (desk.pay(name="order_2"),)))
    async with open_agent(storage, turns(*MODEL), registry=registry) as agent:
        agent.harness.resume()
        await wait_all_tasks_blocked()
        assert (view_of(agent).why, agent.reports) == ("sleeping", [])
        await agent.harness.answer(question, 3, by="ann")
        await wait_all_tasks_blocked()
        view = view_of(agent)
        assert (view.why, view.detail) == ("blocked", "tool 'order' is not installed")
        assert (view.status, view.phase, view.restarts) == ("sleeping", "asked", 0)
        assert (await agent.harness.question(question)).value == 3
        with raises(AlreadyAnswered):
            await agent.harness.answer(question, 4, by="bob")
        registry.install(Extension("other"))
        await wait_all_tasks_blocked()
        assert [(r.kind, r.task_id, r.detail) for r in agent.reports] == [
            ("task_blocked", view.id, "tool 'order' is not installed")
        ]
        registry.install(Extension("late", tools=[desk.order(ASK)]))
        assert (await agent.ask("go", request_id="r1")).status == "done"
        assert await result_of(agent) == "ordered 3"
        assert len(agent.reports) == 1
    assert desk.log == ["order tea", "resume 0 tea 3"]


async def test_a_blocked_call_goes_on_in_the_process_that_has_its_tool() -> None:
    desk = Desk()
    storage, question = await asked(desk)
    async with open_agent(storage, turns(*MODEL)) as agent:
        await agent.harness.answer(question, 3, by="ann")
        await wait_all_tasks_blocked()
    for _ in range(7):  # more than the restart limit: blocked is not cut off
        async with open_agent(storage, turns(*MODEL)) as agent:
            agent.harness.resume()
            await wait_all_tasks_blocked()
            assert view_of(agent).why == "blocked"
            storage = storage.snapshot()
    async with open_agent(storage, turns(*MODEL), desk.order(ASK)) as agent:
        await agent.ask("go", request_id="r1")
        assert await result_of(agent) == "ordered 3"


async def test_a_tool_that_the_conversation_has_not_chosen_blocks_until_it_is() -> None:
    desk = Desk()
    storage, question = await asked(desk)
    async with open_agent(storage, turns(*MODEL), desk.order(ASK)) as agent:
        await agent.root.configure(tools=Selection(remove=["order"]))
        await agent.harness.answer(question, 3, by="ann")
        await wait_all_tasks_blocked()
        view = view_of(agent)
        assert (view.why, view.detail) == (
            "blocked",
            "tool 'order' is not among those that the conversation has chosen",
        )
        await agent.root.configure(tools=None)
        assert (await agent.ask("go", request_id="r1")).status == "done"
        assert await result_of(agent) == "ordered 3"
        assert [report.kind for report in agent.reports] == ["task_blocked"]


async def test_an_expiry_is_stored_though_the_tool_is_not_here() -> None:
    desk = Desk()
    storage, question = await asked(desk, Ask("How many?", deadline_s=60))
    registry = registry_of()
    async with open_agent(storage, turns(*MODEL), registry=registry) as agent:
        agent.harness.resume()
        await trio.sleep(61)
        assert (await agent.harness.question(question)).status == "expired"
        assert view_of(agent).why == "blocked"
        registry.install(Extension("late", tools=[desk.order(ASK)]))
        await agent.ask("go", request_id="r1")
        assert await result_of(agent) == "ordered EXPIRED"


async def test_an_abort_wins_over_a_stored_expiry() -> None:
    """C51: the call has its expiry, and its tool is gone; then it is aborted."""
    desk = Desk()
    storage, question = await asked(desk, Ask("How many?", deadline_s=60))
    async with open_agent(storage, turns(*MODEL)) as agent:
        agent.harness.resume()
        await trio.sleep(61)
        assert view_of(agent).why == "blocked"
        await agent.root.abort()
        text = error_text("Tool order was aborted and may have partially run")
        assert await result_of(agent) == f"looking\n{text}"
        assert (await agent.harness.question(question)).status == "expired"
    async with open_agent(storage, turns(*MODEL), desk.order(ASK)) as agent:
        await agent.root.wait_for_idle()
    assert desk.log == ["order tea"]


async def test_arguments_that_the_tool_takes_no_more_are_an_error_result() -> None:
    desk = Desk()
    storage, question = await asked(desk)

    @tool("order")
    async def order(what: str) -> str:
        """Order."""
        raise AssertionError("it does not run")

    @order.resume
    async def go_on(*_: object) -> str:
        raise AssertionError("it does not run")

    async with open_agent(storage, turns(*MODEL), order) as agent:
        await agent.harness.answer(question, 3, by="ann")
        assert (await agent.ask("go", request_id="r1")).status == "done"
        assert codes(await agent.result_entry("c1")) == ["invalid_arguments"]
        assert "item: unknown; known are what" in await result_of(agent)


async def test_a_tool_that_came_back_without_a_handler_is_told_so() -> None:
    desk = Desk()
    storage, question = await asked(desk)

    @tool("order")
    async def order(item: str) -> str:
        """Order."""
        raise AssertionError("it does not run")

    async with open_agent(storage, turns(*MODEL), order) as agent:
        await agent.harness.answer(question, 3, by="ann")
        await agent.ask("go", request_id="r1")
        text = (
            "tool order has no handler for the answer to its question; add one with @order.resume"
        )
        assert await result_of(agent) == "looking\n" + error_text(text)


async def test_an_approved_call_waits_for_its_tool_and_a_denied_one_does_not() -> None:
    for answer, why, text in (
        (True, "blocked", "paid 7"),
        (False, "", error_text("Tool pay was blocked: it was not approved")),
    ):
        storage, desk = MemoryStorage(), Desk()
        gates = desk.gate(Approve("Sure?"))
        registry = with_hooks(*gates, tools=(desk.pay(),))
        async with open_agent(storage, turns(*PAY), registry=registry) as agent:
            await agent.root.submit("go", request_id="r1")
            question = (await open_question(agent.harness)).id
        later = Registry()
        async with open_agent(storage, turns(*PAY), registry=later) as agent:
            await agent.harness.answer(question, answer, by="ann")
            await wait_all_tasks_blocked()
            assert [v.why for v in agent.harness.inspect().tasks if v.kind == "pi.tool"] == (
                [why] if why else []
            )
            later.install(Extension("late", tools=[desk.pay()]))
            await agent.ask("go", request_id="r1")
            assert await result_of(agent) == text
        assert desk.log == ["gate Sure?"] + ["pay 7"] * (answer is True)


async def test_a_question_of_several_is_asked_though_the_tool_is_not_here() -> None:
    storage, desk = MemoryStorage(), Desk()
    registry = with_hooks(*desk.gate(Approve("One?"), Approve("Two?")), tools=(desk.pay(),))
    async with open_agent(storage, turns(*PAY), registry=registry) as agent:
        await agent.root.submit("go", request_id="r1")
        question = (await open_question(agent.harness)).id
    async with open_agent(storage, turns(*PAY)) as agent:
        await agent.harness.answer(question, True, by="ann")
        assert (await open_question(agent.harness)).text == "Two?"
        assert agent.reports == []


async def test_a_blocked_call_can_be_ended_without_its_tool_and_leaves_its_result() -> None:
    desk = Desk()
    storage, question = await asked(desk)
    async with open_agent(storage, turns(*MODEL)) as agent:
        await agent.harness.answer(question, 3, by="ann")
        await wait_all_tasks_blocked()
        record = await agent.harness.abort_task(view_of(agent).id, orphan=True, reason="gone")
        outcome: Any = ended(record).outcome
        assert outcome == OrphanedOutcome(reason="gone: tool 'order' is not installed")
        assert (await agent.ask("go", request_id="r1")).status == "done"
        text = error_text("Tool order failed and may have partially run")
        assert await result_of(agent) == f"looking\n{text}"
