"""Questions as a host handles them: what is listed, in which order, and who may not answer."""

from __future__ import annotations

from typing import Any

import trio
from pytest import mark, raises

from pidurable_actors import AgentChoice, Ask, Harness, Reply
from pidurable_actors.context import BACKGROUND
from pidurable_actors.errors import (
    AlreadyAnswered,
    ContextCancelled,
    HarnessClosed,
    PiDurableError,
    ReadOnlySession,
    RefusedError,
    StorageRequestError,
)
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from tests._agents import MODEL as REFERENCE
from tests._agents import call, calling, open_agent, turns
from tests.tasks.asking import MODEL, Desk, open_question

ASK = Ask("How many?")


def three() -> Any:
    """A model that makes three calls in one turn."""
    return turns(calling(*(call("order", f"c{n}", item=f"{n}") for n in range(3))), Reply("done"))


async def listed(harness: Harness, **options: Any) -> list[str]:
    """The ids of all pages, two at a time."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await harness.questions(limit=2, cursor=cursor, **options)
        found += [question.id for question in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_open_questions_of_all_conversations_are_listed_in_pages_oldest_first() -> None:
    desk = Desk()
    async with open_agent(MemoryStorage(), three(), desk.order(ASK)) as agent:
        other = await agent.harness.create_conversation(agent=AgentChoice(model=REFERENCE))
        await other.submit("go")
        await trio.sleep(1)
        await agent.root.submit("go")
        await trio.sleep(1)
        found = await listed(agent.harness)
        records = [await agent.harness.question(one) for one in found]
        assert [it.conversation_id for it in records] == [other.id] * 3 + [agent.root.id] * 3
        times = [it.asked_at_ms for it in records]
        assert times == sorted(times)
        assert await listed(agent.harness, conversation_id=other.id) == found[:3]
        assert await listed(agent.harness, conversation_id=agent.root.id) == found[3:]
        assert await listed(agent.harness, conversation_id=77) == []

        page = await agent.harness.questions(limit=2)
        await agent.harness.answer(found[1], 1, by="ann")
        await agent.harness.answer(found[2], 1, by="ann")
        rest = await agent.harness.questions(limit=2, cursor=page.next_cursor)
        assert [it.id for it in rest.items] == found[3:5], "what ended meanwhile is passed over"
        assert await listed(agent.harness) == [found[0], *found[3:]]


async def test_a_page_is_refused_when_its_cursor_is_of_another_listing() -> None:
    async with open_agent(MemoryStorage(), three(), Desk().order(ASK)) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        page = await agent.harness.questions(limit=1)
        for wrong in (
            {"cursor": page.next_cursor, "conversation_id": 1},
            {"cursor": "nonsense"},
            {"limit": 0},
            {"limit": 1_001},
        ):
            with raises(StorageRequestError):
                await agent.harness.questions(**wrong)


@mark.parametrize(
    "wrong",
    ["", "7", "1.1", "999.1", "{id} ", " {id}", "0{id}", "{id}0", "\uff11.1", "{id}\n", 7, None],
)
async def test_an_id_is_taken_as_it_is_written(wrong: Any) -> None:
    """C58: no two spellings name one question, and an id that nobody gave is none."""
    async with open_agent(MemoryStorage(), turns(*MODEL), Desk().order(ASK)) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        given = wrong.format(id=asked.id) if isinstance(wrong, str) else wrong
        with raises(StorageRequestError):
            await agent.harness.question(given)
        with raises(StorageRequestError):
            await agent.harness.answer(given, 1, by="ann")
        assert await open_question(agent.harness) == asked


async def test_a_harness_that_only_looks_lists_and_answers_nothing(tmp_path: Any) -> None:
    path = tmp_path / "agent.sqlite"
    async with open_agent(SqliteStorage(path), turns(*MODEL), Desk().order(ASK)) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        async with open_agent(SqliteStorage(path), turns(*MODEL), read_only=True) as reader:
            assert (await reader.harness.questions()).items == (asked,)
            assert await reader.harness.question(asked.id) == asked
            with raises(ReadOnlySession):
                await reader.harness.answer(asked.id, 1, by="ann")
            with raises(ReadOnlySession):
                await reader.root.signal("paid", by="bank")
        assert await open_question(agent.harness) == asked


async def test_an_answer_of_many_people_at_once_is_that_of_the_first() -> None:
    desk, refused = Desk(), []

    async def person(harness: Harness, question_id: str, value: int) -> None:
        try:
            await harness.answer(question_id, value, by=f"person {value}")
        except AlreadyAnswered as error:
            refused.append((value, error.value))

    async with open_agent(MemoryStorage(), turns(*MODEL), desk.order(ASK)) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        async with trio.open_nursery() as people:
            for value in range(5):
                people.start_soon(person, agent.harness, asked.id, value)
        await submission.wait()
        won = (await agent.harness.question(asked.id)).value
        assert sorted(refused) == [(value, won) for value in range(5) if value != won]
    assert desk.log == ["order tea", f"resume 0 tea {won}"]


async def test_a_call_that_is_over_and_a_harness_that_is_closed_take_no_answer() -> None:
    async with open_agent(MemoryStorage(), turns(*MODEL), Desk().order(ASK)) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        with raises(ContextCancelled):
            await agent.harness.answer(asked.id, 1, by="ann", context=BACKGROUND.child(timeout=0))
        assert await open_question(agent.harness) == asked
    with raises(HarnessClosed):
        await agent.harness.answer(asked.id, 1, by="ann")


def test_what_a_refused_answer_is_told_of_is_an_attribute() -> None:
    error = AlreadyAnswered("7.1", "answered", value=None, by="ann", at_ms=3)
    assert isinstance(error, RefusedError)
    assert isinstance(error, PiDurableError)
    assert str(error) == "'7.1' was answered by 'ann'; that stands."
    assert "expired" in str(AlreadyAnswered("7.1", "expired"))
    assert "withdrawn" in str(AlreadyAnswered("7.1", "withdrawn"))
