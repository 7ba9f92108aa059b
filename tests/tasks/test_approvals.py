"""Hooks that want a person's yes: what is asked, what an answer does, and that it is done once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import attrs
import trio
from pytest import mark, raises

from pidurable_actors import Approve, Question, Reply, Tx, tool
from pidurable_actors._json import JsonObject, fingerprint
from pidurable_actors.agent import Block, HookApi, Rewrite, ToolCallEvent, hook
from pidurable_actors.errors import AlreadyAnswered, InvalidValue
from pidurable_actors.records import Sleeping, text_of
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import Agent, call, calling, codes, error_text, open_agent, turns
from tests.tasks.asking import PAY, Desk, open_question, with_hooks

SURE = Approve("Sure?")


@hook.before_tool
async def doubles(event: ToolCallEvent, api: HookApi) -> Rewrite:
    """Rewrites the arguments."""
    await trio.lowlevel.checkpoint()
    return Rewrite({**event.arguments, "amount": event.arguments["amount"] * 2})  # type: ignore[operator]


@hook.before_tool
async def never(event: ToolCallEvent, api: HookApi) -> Block:
    """Blocks."""
    await trio.lowlevel.checkpoint()
    return Block("never on Mondays")


async def result_of(agent: Agent, call_id: str = "c1") -> str:
    """The text of a result."""
    return text_of((await agent.results())[call_id].content)


def blocked(why: str) -> str:
    """What the model reads of a payment that is blocked."""
    return error_text(f"Tool pay was blocked: {why}")


async def test_a_call_waits_for_a_yes_and_then_runs_once_with_its_stored_arguments() -> None:
    storage, desk = MemoryStorage(), Desk()
    registry = with_hooks(*desk.gate(SURE), tools=(desk.pay(),))
    async with open_agent(storage, turns(*PAY), registry=registry) as agent:
        await agent.root.submit("go", request_id="r1")
        asked = await open_question(agent.harness)
        assert (asked.kind, asked.text, asked.call_id) == ("approve", "Sure?", "c1")
        assert asked.arguments == {"amount": 7}
        assert asked.fingerprint == fingerprint({"amount": 7})
        assert desk.log == ["gate Sure?"]
    async with open_agent(storage, turns(*PAY), registry=registry) as agent:
        await agent.harness.answer(asked.id, True, by="ann")
        assert (await agent.ask("go", request_id="r1")).status == "done"
        assert await result_of(agent) == "paid 7"
    assert desk.log == ["gate Sure?", "pay 7"]


@mark.parametrize(
    ("answer", "why"),
    [
        (False, "it was not approved"),
        ({"approved": False}, "it was not approved"),
        ({"approved": False, "reason": "too much"}, "too much"),
    ],
)
async def test_a_no_blocks_the_call_with_its_reason(answer: Any, why: str) -> None:
    desk = Desk()
    registry = with_hooks(*desk.gate(SURE), tools=(desk.pay(),))
    async with open_agent(MemoryStorage(), turns(*PAY), registry=registry) as agent:
        submission = await agent.root.submit("go")
        await agent.harness.answer((await open_question(agent.harness)).id, answer, by="ann")
        assert (await submission.wait()).status == "done"
        assert await result_of(agent) == blocked(why)
        assert codes(await agent.result_entry("c1")) == ["blocked"]
    assert desk.log == ["gate Sure?"]


async def test_a_call_that_nobody_approved_in_time_is_blocked_and_says_so() -> None:
    desk = Desk()
    registry = with_hooks(*desk.gate(Approve("Sure?", deadline_s=60)), tools=(desk.pay(),))
    async with open_agent(MemoryStorage(), turns(*PAY), registry=registry) as agent:
        began = trio.current_time()
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        await submission.wait()
        assert 60 <= trio.current_time() - began < 60.1
        assert await result_of(agent) == blocked("nobody approved it in time")
        assert (await agent.harness.question(asked.id)).status == "expired"
        with raises(AlreadyAnswered):
            await agent.harness.answer(asked.id, True, by="ann")
    assert desk.log == ["gate Sure?"]


async def test_later_hooks_still_rewrite_and_the_question_is_about_what_they_leave() -> None:
    desk = Desk()
    registry = with_hooks(*desk.gate(SURE), doubles, tools=(desk.pay(),))
    async with open_agent(MemoryStorage(), turns(*PAY), registry=registry) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        assert asked.arguments == {"amount": 14}
        assert asked.fingerprint == fingerprint({"amount": 14})
        await agent.harness.answer(asked.id, True, by="ann")
        await submission.wait()
    assert desk.log == ["gate Sure?", "pay 14"]


async def test_a_later_hook_that_blocks_leaves_nothing_to_ask() -> None:
    desk = Desk()
    registry = with_hooks(*desk.gate(SURE), never, tools=(desk.pay(),))
    async with open_agent(MemoryStorage(), turns(*PAY), registry=registry) as agent:
        await agent.ask()
        assert await result_of(agent) == blocked("never on Mondays")
        assert (await agent.harness.questions()).items == ()


async def test_several_hooks_ask_one_after_the_other_each_about_the_arguments_of_then() -> None:
    desk = Desk()
    gates = desk.gate(SURE, Approve("Really?"), Approve("Cross your heart?"))
    registry = with_hooks(*gates, tools=(desk.pay(),))
    async with open_agent(MemoryStorage(), turns(*PAY), registry=registry) as agent:
        submission = await agent.root.submit("go")
        seen = []
        values: list[Any] = [True, {"approved": True, "arguments": {"amount": 5}}, True]
        for value in values:
            asked = await open_question(agent.harness)
            seen.append((asked.text, asked.arguments))
            await agent.harness.answer(asked.id, value, by="ann")
        await submission.wait()
    assert seen == [
        ("Sure?", {"amount": 7}),
        ("Really?", {"amount": 7}),
        ("Cross your heart?", {"amount": 5}),
    ]
    assert desk.log == ["gate Sure?", "gate Really?", "gate Cross your heart?", "pay 5"]


async def test_the_first_no_of_several_asks_nobody_else() -> None:
    desk = Desk()
    registry = with_hooks(*desk.gate(SURE, Approve("Really?")), tools=(desk.pay(),))
    async with open_agent(MemoryStorage(), turns(*PAY), registry=registry) as agent:
        submission = await agent.root.submit("go")
        await agent.harness.answer((await open_question(agent.harness)).id, False, by="ann")
        await submission.wait()
        assert (await agent.harness.questions()).items == ()


@mark.parametrize(
    ("value", "path"),
    [
        (None, "value"),
        ("yes", "value"),
        (1, "value"),
        ([], "value"),
        ({}, "value.approved"),
        ({"approved": "yes"}, "value.approved"),
        ({"approved": True, "argument": {}}, "value.argument"),
        ({"approved": True, "arguments": None}, "value.arguments"),
        ({"approved": True, "arguments": [1]}, "value.arguments"),
        ({"approved": False, "arguments": {"amount": 1}}, "value.arguments"),
        ({"approved": False, "reason": 7}, "value.reason"),
        ({"approved": True, "arguments": {"amount": "7"}}, "value.arguments.amount"),
        ({"approved": True, "arguments": {"amount": 7, "to": 1}}, "value.arguments.to"),
    ],
)
async def test_an_answer_that_means_nothing_is_refused_and_nothing_is_stored(
    value: Any, path: str
) -> None:
    desk = Desk()
    registry = with_hooks(*desk.gate(SURE), tools=(desk.pay(),))
    async with open_agent(MemoryStorage(), turns(*PAY), registry=registry) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        with raises(InvalidValue) as refused:
            await agent.harness.answer(asked.id, value, by="ann")
        assert refused.value.path == path
        assert await open_question(agent.harness) == asked


async def test_arguments_that_a_person_wrote_are_checked_again_when_they_are_used() -> None:
    """Answer while the tool is gone; it comes back with a schema that they do not fit."""
    storage, desk = MemoryStorage(), Desk()
    registry = with_hooks(*desk.gate(SURE), tools=(desk.pay(),))
    async with open_agent(storage, turns(*PAY), registry=registry) as agent:
        await agent.root.submit("go", request_id="r1")
        asked = await open_question(agent.harness)
    async with open_agent(storage, turns(*PAY)) as agent:
        value: Any = {"approved": True, "arguments": {"amount": "all"}}
        await agent.harness.answer(asked.id, value, by="ann")
    async with open_agent(storage, turns(*PAY), registry=registry) as agent:
        await agent.ask("go", request_id="r1")
        assert codes(await agent.result_entry("c1")) == ["invalid_arguments"]
        assert "amount: expected an integer" in await result_of(agent)
    assert desk.log == ["gate Sure?"]


ORDERS = list(permutations(range(3)))


@mark.parametrize("order", ORDERS)
@mark.parametrize("how", ["crash", "close"])
async def test_three_gated_calls_are_decided_in_any_order_with_a_restart_between(
    order: Sequence[int], how: str
) -> None:
    """C55: each is asked about once, runs with exactly its arguments, and the denied one does not.

    The second is denied, the third is changed. After each decision the process ends.
    """
    calls = [call("pay", f"c{n}", amount=n) for n in range(3)]
    values: list[Any] = [True, False, {"approved": True, "arguments": {"amount": 22}}]
    model = (calling(*calls), Reply("done"))
    storage, desk = MemoryStorage(), Desk()
    registry = with_hooks(*desk.gate(SURE), tools=(desk.pay(),))
    asked: dict[str, Question] = {}
    for nth in order:
        async with open_agent(storage, turns(*model), registry=registry) as agent:
            await agent.root.submit("go", request_id="r1")
            await trio.sleep(1)
            found = {it.call_id: it for it in (await agent.harness.questions()).items}
            asked = asked or found
            assert found.items() <= asked.items(), "nobody is asked again"
            await agent.harness.answer(found[f"c{nth}"].id, values[nth], by="ann")
            await trio.sleep(1)
            crashed = storage.snapshot()
        storage = crashed if how == "crash" else storage
    async with open_agent(storage, turns(*model), registry=registry) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
        assert [await result_of(agent, f"c{n}") for n in range(3)] == [
            "paid 0",
            blocked("it was not approved"),
            "paid 22",
        ]
        for question in asked.values():
            with raises(AlreadyAnswered):
                await agent.harness.answer(question.id, True, by="bob")
    assert desk.log.count("gate Sure?") == 3
    assert sorted(desk.log[3:]) == ["pay 0", "pay 22"]


async def test_a_call_that_a_tool_makes_waits_for_a_yes_too() -> None:
    desk = Desk()

    @tool("outer")
    async def outer(*, api: Any) -> str:
        """Pay by another tool."""
        return text_of((await api.call("pay", {"amount": 3}, key="pay")).content)

    tools = (outer, desk.pay(callers=["tools"]))
    model = turns(calling(call("outer")), Reply("done"))
    registry = with_hooks(*desk.gate(SURE), tools=tools)
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        assert asked.arguments == {"amount": 3}
        await agent.harness.answer(asked.id, False, by="ann")
        await submission.wait()
        assert await result_of(agent) == blocked("it was not approved")
    assert "pay 3" not in desk.log


async def test_an_abort_withdraws_an_approval_and_the_call_has_not_run() -> None:
    desk = Desk()
    registry = with_hooks(*desk.gate(SURE), tools=(desk.pay(),))
    async with open_agent(MemoryStorage(), turns(*PAY), registry=registry) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        await agent.root.abort()
        assert (await agent.harness.question(asked.id)).status == "withdrawn"
        assert await result_of(agent) == error_text("Tool pay was aborted")
    assert desk.log == ["gate Sure?"]


async def test_a_yes_is_for_the_arguments_that_were_shown_and_for_no_others() -> None:
    """Change the arguments in the stored checkpoint behind the question's back."""
    desk = Desk()
    registry = with_hooks(*desk.gate(SURE), tools=(desk.pay(),))
    async with open_agent(MemoryStorage(), turns(*PAY), registry=registry) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)

        async def change(tx: Tx) -> None:
            record = await tx.task(asked.task_id)
            assert isinstance(record.state, Sleeping)
            checkpoint: JsonObject = {**record.state.checkpoint, "arguments": {"amount": 7_000}}
            state = attrs.evolve(record.state, checkpoint=checkpoint)
            tx.tasks.put(attrs.evolve(record, state=state))

        await agent.harness.commit(change)
        await agent.harness.answer(asked.id, True, by="ann")
        await submission.wait()
        assert await result_of(agent) == blocked("somebody approved other arguments")
    assert desk.log == ["gate Sure?"]


async def test_whom_a_run_works_for_is_looked_at_again_after_the_question() -> None:
    storage, desk = MemoryStorage(), Desk()
    allowed = {"ann"}

    def may(caller: JsonObject) -> bool:
        return caller["name"] in allowed

    registry = with_hooks(*desk.gate(SURE), tools=(desk.pay(allow=may),))
    async with open_agent(storage, turns(*PAY), registry=registry) as agent:
        submission = await agent.root.submit("go", caller={"name": "ann"})
        asked = await open_question(agent.harness)
        allowed.clear()
        await agent.harness.answer(asked.id, True, by="bob")
        await submission.wait()
        text = error_text("Tool pay is not allowed for this caller")
        assert await result_of(agent) == text
    assert desk.log == ["gate Sure?"]
