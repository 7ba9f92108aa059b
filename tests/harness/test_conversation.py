"""Conversations: choices, reading, refusals, and calls that are cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from pidurable_actors import (
    Models,
    ScriptedModel,
    open_harness,
)
from pidurable_actors.agent import AGENT, AgentState
from pidurable_actors.errors import (
    HarnessClosed,
    InvalidValue,
    ReadOnlySession,
    StorageRequestError,
    UnknownModel,
)
from pidurable_actors.records import ROOT_ID, EntryDraft, TextBlock, UserMessage
from pidurable_actors.runtime import UNSET
from pidurable_actors.settings import AgentChoice
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    MODEL,
    all_tasks,
    echo,
    ended,
    open_agent,
    peek,
)


async def test_a_conversation_without_a_model_ends_the_run_unanswered() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        other = await agent.harness.create_conversation()
        settled = await (await other.submit("hello")).wait()
        assert (settled.status, settled.reason) == ("unanswered", "no_model")
        assert "configure" in str(settled.detail)
        await other.configure(model=MODEL)
        assert (await (await other.submit("hello")).wait()).status == "done"


@pytest.mark.parametrize("reference", ["scripted", "nobody/demo", "/x", "scripted/"])
async def test_a_model_that_nobody_provides_is_refused_where_it_is_chosen(reference: str) -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        with pytest.raises(UnknownModel):
            await agent.root.configure(model=reference)
        with pytest.raises(UnknownModel):
            await agent.harness.root(agent=AgentChoice(model=reference))
        with pytest.raises(UnknownModel):
            await agent.harness.create_conversation(agent=AgentChoice(model=reference))
        assert (await agent.root.agent()).model == MODEL
        assert [c.id for c in (await agent.harness.conversations()).items] == [ROOT_ID]


async def test_a_model_that_is_gone_when_it_is_asked_ends_the_run_unanswered() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)):
        pass
    models = Models([ScriptedModel(echo, name="other")])
    async with open_harness(storage, models=models) as harness:
        root = await harness.root()
        settled = await (await root.submit("hello")).wait()
        assert (settled.status, settled.reason) == ("unanswered", "no_model")
        assert MODEL in str(settled.detail)


async def test_configure_changes_what_is_named_and_none_clears() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        await agent.root.configure(thinking_level="high", max_output_tokens=100)
        assert await agent.root.agent() == AgentState(
            model=MODEL, thinking_level="high", max_output_tokens=100
        )
        await agent.root.configure(thinking_level=None)
        assert await agent.root.agent() == AgentState(model=MODEL, max_output_tokens=100)
        await agent.root.configure()
        assert await agent.root.agent() == AgentState(model=MODEL, max_output_tokens=100)


def test_a_choice_that_is_left_as_it_is_has_a_name() -> None:
    assert repr(UNSET) == "UNSET"


async def test_a_configured_choice_reaches_the_next_request() -> None:
    model = ScriptedModel(echo)
    async with open_agent(MemoryStorage(), model) as agent:
        await agent.root.configure(
            model="scripted/other", thinking_level="low", max_output_tokens=7
        )
        await agent.ask()
    (request,) = model.requests
    assert request.model_id == "other"
    assert request.options.thinking_level == "low"
    assert request.options.max_output_tokens == 7


@pytest.mark.parametrize(
    "choice", [{"thinking_level": "enormous"}, {"max_output_tokens": 0}, {"model": 7}]
)
async def test_a_choice_that_means_nothing_is_refused(choice: dict[str, object]) -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        with pytest.raises((InvalidValue, UnknownModel)):
            await agent.root.configure(**choice)  # type: ignore[arg-type]
        with pytest.raises((InvalidValue, UnknownModel)):
            await agent.harness.create_conversation(agent=AgentChoice(**choice))  # type: ignore[arg-type]
        assert await agent.root.agent() == AgentState(model=MODEL)


async def test_each_conversation_keeps_one_session_id_at_its_provider() -> None:
    model = ScriptedModel(echo)
    storage = MemoryStorage()
    async with open_agent(storage, model) as agent:
        await agent.ask("one")
    async with open_agent(storage, model) as agent:
        await agent.ask("two")
        other = await agent.harness.create_conversation(agent=AgentChoice(model=MODEL))
        await (await other.submit("three")).wait()
    one, two, three = (request.session_id for request in model.requests)
    assert one == two != three
    assert one is not None
    assert one[14] == "7"


async def test_conversation_handles_are_equal_when_their_ids_are() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        assert await agent.harness.conversation(ROOT_ID) == agent.root
        assert hash(await agent.harness.root()) == hash(agent.root)
        other = await agent.harness.create_conversation()
        assert other != agent.root
        assert repr(agent.root) == "Conversation(id=1)"
        with pytest.raises(StorageRequestError):
            await agent.harness.conversation(99)


async def test_a_read_only_harness_reads_conversations_and_changes_none() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        await agent.ask("hello")
    async with open_agent(storage, ScriptedModel(echo), read_only=True) as agent:
        root = agent.root
        assert await agent.lines() == ["user hello", "assistant re: hello"]
        assert (await root.usage()).models[MODEL].requests == 1
        record = await root.record()
        assert record is not None
        assert record.id == ROOT_ID
        calls: list[Callable[[], Awaitable[object]]] = [
            root.abort,
            root.wait_for_idle,
            lambda: root.configure(thinking_level="low"),
            agent.harness.create_conversation,
            lambda: root.commit(lambda tx: tx.append_entry(ROOT_ID, _note("no"))),
        ]
        for refused in calls:
            with pytest.raises(ReadOnlySession):
                await refused()


async def test_entries_come_in_pages_newest_first() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        for number in range(3):
            await agent.ask(str(number))
        page = await agent.root.entries(limit=4)
        rest = await agent.root.entries(limit=4, cursor=page.next_cursor)
        ids = [entry.id for entry in (*page.items, *rest.items)]
        assert ids == sorted(ids, reverse=True)
        assert len(ids) == 6
        assert rest.next_cursor is None
        assert len((await agent.root.entries("pi.user")).items) == 3
        bad: list[Callable[[], Awaitable[object]]] = [
            lambda: agent.root.entries(limit=0),
            lambda: agent.root.entries(limit=1_001),
            lambda: agent.root.entries(cursor="garbage"),
            lambda: agent.root.entries(cursor="WyJ4Il0="),
            lambda: agent.root.entries("pi.user", cursor=page.next_cursor),
        ]
        for refused in bad:
            with pytest.raises(StorageRequestError):
                await refused()


async def test_a_document_that_nobody_wrote_has_its_initial_value() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        other = await agent.harness.create_conversation()
        assert await other.snapshot(AGENT) == AgentState()
        assert (await other.usage()).models == {}


async def test_every_call_is_a_checkpoint() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        root = agent.root
        submission = await root.submit("hello")
        await submission.wait()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: root.submit("more"),
            lambda: root.write(_note("noted")),
            lambda: root.submit("hello", request_id="r1"),
            lambda: root.submit("hello", request_id="r1"),
            submission.wait,
            submission.record,
            submission.abort,
            lambda: agent.harness.submission(submission.id),
            root.wait_for_idle,
            root.abort,
            root.entries,
            root.record,
            root.busy,
            root.agent,
            root.usage,
            root.configure,
            lambda: root.commit(lambda _: None),
        ]
        for made in calls:
            with assert_checkpoints():
                await made()


@pytest.mark.parametrize("ticks", range(12))
async def test_a_call_that_is_cancelled_at_any_point_leaves_nothing_half_done(ticks: int) -> None:
    """C56: submit is all or nothing; asking again with the same request id shows which."""
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:

        async def submit() -> None:
            await agent.root.submit("hello", request_id="r1")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(submit)
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        again = await agent.root.submit("hello", request_id="r1")
        assert (await again.wait()).status == "done"
        assert await agent.lines() == ["user hello", "assistant re: hello"]


async def test_every_call_after_the_close_is_refused() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        root = agent.root
    calls: list[Callable[[], Awaitable[object]]] = [
        root.abort,
        root.wait_for_idle,
        root.entries,
        root.record,
        root.busy,
        root.agent,
        root.usage,
        root.configure,
        lambda: root.commit(lambda _: None),
    ]
    for refused in calls:
        with pytest.raises(HarnessClosed):
            await refused()


async def test_an_entry_that_could_not_be_read_again_is_refused() -> None:
    """What is written is decoded by the next process: a bad block must never get in."""
    bad = [
        EntryDraft(kind="app.note", data={1, 2}),  # type: ignore[arg-type]
        EntryDraft(kind="app.note", data=float("nan")),
        EntryDraft(kind="app.note", model=(UserMessage(content=("text",)),)),  # type: ignore[arg-type]
        EntryDraft(kind="app.note", model=(UserMessage(content=(TextBlock(text=7),)),)),  # type: ignore[arg-type]
        EntryDraft(kind="app.note", model=("hello",)),  # type: ignore[arg-type]
    ]
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        for draft in bad:
            with pytest.raises(InvalidValue):
                await agent.root.write(draft)
        await agent.root.write(EntryDraft(kind="app.note", data={"nul": "\0", "big": 2**63 - 1}))
        await wait_all_tasks_blocked()
        assert [entry.data for entry in await agent.entries()] == [{"nul": "\0", "big": 2**63 - 1}]


async def test_the_task_of_a_finished_run_carries_the_answer() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        settled = await agent.ask()
    with peek(storage) as stored:
        (task,) = all_tasks(stored)
    outcome = ended(task).outcome
    assert outcome.status == "completed"
    assert outcome.result == settled.answer


def _note(text: str) -> EntryDraft:
    return EntryDraft(kind="app.note", model=(UserMessage(content=(TextBlock(text=text),)),))
