"""Signals: what a tool waits for that another program sends, once for a conversation."""

from __future__ import annotations

from typing import Any

import attrs
import trio
from pytest import mark, raises

from pidurable_actors import EXPIRED, Answer, Reply, WaitForSignal
from pidurable_actors.errors import AlreadyAnswered, InvalidValue, MisuseError
from pidurable_actors.records import text_of
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import call, calling, open_agent, turns
from tests.tasks.asking import MODEL, Desk, open_question

WAIT = WaitForSignal("paid")


async def test_a_tool_that_waits_goes_on_when_the_signal_comes() -> None:
    storage, desk = MemoryStorage(), Desk()
    async with open_agent(storage, turns(*MODEL), desk.order(WAIT)) as agent:
        await agent.root.submit("go", request_id="r1")
        asked = await open_question(agent.harness)
        assert (asked.kind, asked.text) == ("signal", "paid")
    async with open_agent(storage, turns(*MODEL), desk.order(WAIT)) as agent:
        await agent.root.signal("paid", {"sum": 7}, by="bank")
        assert (await agent.ask("go", request_id="r1")).status == "done"
    (answer,) = desk.answers
    assert isinstance(answer, Answer)
    assert (answer.value, answer.by) == ({"sum": 7}, "bank")


async def test_a_signal_that_comes_before_the_wait_is_not_lost() -> None:
    storage, desk = MemoryStorage(), Desk()
    async with open_agent(storage, turns(*MODEL), desk.order(WAIT)) as agent:
        await agent.root.signal("paid", 7, by="bank")
        sent_ms = agent.harness._core.engine.clock.now_ms()
    await trio.sleep(3_600)
    async with open_agent(storage, turns(*MODEL), desk.order(WAIT)) as agent:
        assert (await agent.ask()).status == "done"
        assert (await agent.harness.questions()).items == ()
    assert desk.answers == [Answer(7, "bank", sent_ms)]


async def test_all_that_wait_for_a_signal_go_on_with_it_whenever_they_began() -> None:
    desk = Desk()
    calls = [call("order", f"c{n}", item=f"{n}") for n in range(3)]
    model = turns(calling(*calls), calling(call("order", "c3", item="3")), Reply("done"))
    async with open_agent(MemoryStorage(), model, desk.order(WAIT)) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        assert len((await agent.harness.questions()).items) == 3
        await agent.root.signal("paid", None, by="bank")
        assert (await submission.wait()).status == "done"
        texts = [text_of(result.content) for result in (await agent.results()).values()]
    assert texts == ["ordered None"] * 4


async def test_a_second_signal_of_a_name_is_told_of_the_first() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, turns(*MODEL)) as agent:
        await agent.root.signal("paid", 7, by="bank")
        sent_ms = agent.harness._core.engine.clock.now_ms()
    await trio.sleep(60)
    async with open_agent(storage, turns(*MODEL)) as agent:
        with raises(AlreadyAnswered) as refused:
            await agent.root.signal("paid", 8, by="thief")
        error = refused.value
        assert (error.question_id, error.outcome) == ("paid", "answered")
        assert (error.value, error.by, error.at_ms) == (7, "bank", sent_ms)


async def test_a_signal_after_the_deadline_comes_too_late_for_that_wait_and_not_for_the_next() -> (
    None
):
    desk = Desk()
    made = desk.order(attrs.evolve(WAIT, deadline_s=10), WAIT)
    async with open_agent(MemoryStorage(), turns(*MODEL), made) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(11)
        await agent.root.signal("paid", 7, by="bank")
        await submission.wait()
    assert desk.answers[0] is EXPIRED
    assert isinstance(desk.answers[1], Answer)


async def test_a_signal_is_of_one_conversation_and_of_the_name_as_it_is_written() -> None:
    """C58: another conversation, another case, another Unicode form and a space do not reach it."""
    desk, name = Desk(), "caf\u00e9"
    async with open_agent(MemoryStorage(), turns(*MODEL), desk.order(WaitForSignal(name))) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        other = await agent.harness.create_conversation()
        fork = await agent.root.fork()
        for conversation in (other, fork):
            await conversation.signal(name, "elsewhere", by="bank")
        for near in ("cafe\u0301", "CAF\u00c9", f"{name} ", f" {name}"):
            await agent.root.signal(near, "near", by="bank")
        await trio.sleep(1)
        assert await open_question(agent.harness) == asked
        await agent.root.signal(name, "here", by="bank")
        await submission.wait()
    assert [getattr(answer, "value", None) for answer in desk.answers] == ["here"]


async def test_a_wait_for_a_signal_is_not_answered_like_a_question() -> None:
    async with open_agent(MemoryStorage(), turns(*MODEL), Desk().order(WAIT)) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        with raises(MisuseError, match=r"conversation\.signal"):
            await agent.harness.answer(asked.id, 1, by="ann")
        assert await open_question(agent.harness) == asked


async def test_an_abort_withdraws_a_wait_and_a_later_signal_is_for_later_waits() -> None:
    desk = Desk()
    async with open_agent(MemoryStorage(), turns(*MODEL), desk.order(WAIT)) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        await agent.root.abort()
        await agent.root.signal("paid", 7, by="bank")
        assert (await agent.harness.question(asked.id)).status == "withdrawn"
    assert desk.answers == []


@mark.parametrize(
    ("name", "value", "by", "path"),
    [
        ("", 1, "bank", "name"),
        ("n" * 201, 1, "bank", "name"),
        ("\ud800", 1, "bank", "name"),
        (7, 1, "bank", "name"),
        ("paid", float("inf"), "bank", "value"),
        ("paid", 1, "", "by"),
    ],
)
async def test_a_signal_that_cannot_be_stored_is_refused(
    name: Any, value: Any, by: Any, path: str
) -> None:
    async with open_agent(MemoryStorage(), turns(*MODEL)) as agent:
        with raises(InvalidValue) as refused:
            await agent.root.signal(name, value, by=by)
        assert refused.value.path == path
