"""Submissions: durable on return, exactly once by request id, waited for and withdrawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import Reply, ScriptedModel, Submission
from pidurable_actors.agent import INBOX
from pidurable_actors.errors import ConversationBusy, StorageRequestError, Unanswered
from pidurable_actors.records import (
    ROOT_ID,
    EntryDraft,
    ImageBlock,
)
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from tests._agents import all_entries, all_submissions, echo, open_agent, peek, turns

SLOW = Reply("at last", delay_s=60)


async def test_an_input_is_stored_when_submit_returns() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, turns(SLOW)) as agent:
        submission = await agent.root.submit("hello")
        with peek(storage.snapshot()) as stored:
            record = stored.submission(submission.id)
            entries = all_entries(stored)
    assert record is not None
    assert (record.status, record.entry) == ("placed", entries[0].id)
    assert [entry.kind for entry in entries] == ["pi.user"]


async def test_placing_and_starting_the_run_is_one_commit() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, turns(SLOW)) as agent:
        before = _commits(storage)
        await agent.root.submit("hello")
        snapshot = storage.snapshot()
    with peek(snapshot) as stored:
        (task,) = stored.live_tasks(after=0, limit=10)
        assert task.kind == "pi.generation"
        document = stored.document("pi.live", "conversation", ROOT_ID)
        assert document is not None
        assert document.commit == before + 1
        assert [record.status for record in all_submissions(stored)] == ["placed"]


async def test_a_settled_submission_names_its_answer() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        settled = await agent.ask("hello")
        lines, entries = await agent.lines(), await agent.entries()
    assert settled.status == "done"
    assert lines == ["user hello", "assistant re: hello"]
    assert settled.answer == entries[-1].id


async def test_a_hundred_clients_with_one_request_id_get_one_submission_and_one_run() -> None:
    model = ScriptedModel(echo)
    found: list[Submission] = []
    async with open_agent(MemoryStorage(), model) as agent:

        async def client() -> None:
            submission = await agent.root.submit("hello", request_id="r1")
            await submission.wait()
            found.append(submission)

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(client)
        lines = await agent.lines()
    assert len(set(found)) == 1
    assert lines == ["user hello", "assistant re: hello"]
    assert len(model.requests) == 1


@pytest.mark.parametrize("settled", [True, False])
async def test_a_request_id_finds_its_submission_after_a_restart(
    tmp_path: Path, *, settled: bool
) -> None:
    storage = SqliteStorage(tmp_path / "agent.sqlite")
    async with open_agent(storage, turns(Reply("hi", delay_s=5))) as agent:
        first = await agent.root.submit("hello", request_id="r1")
        if settled:
            await first.wait()
    async with open_agent(
        SqliteStorage(tmp_path / "agent.sqlite"), turns(Reply("hi"), Reply("again"))
    ) as agent:
        again = await agent.root.submit("hello", request_id="r1")
        record = await again.wait()
        lines = await agent.lines()
    assert again == first
    assert record.status == "done"
    assert lines == ["user hello", "assistant hi"]


async def test_a_request_id_finds_its_submission_after_a_crash() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, turns(SLOW)) as agent:
        first = await agent.root.submit("hello", request_id="r1")
        crashed = storage.snapshot()
    async with open_agent(crashed, ScriptedModel(echo)) as agent:
        again = await agent.root.submit("hello", request_id="r1")
        await again.wait()
        assert again == first
        assert await agent.lines() == ["user hello", "assistant re: hello"]


async def test_the_same_request_id_in_another_conversation_is_another_request() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        other = await agent.harness.create_conversation()
        first = await agent.root.submit("hello", request_id="r1")
        second = await other.submit("something else", request_id="r1")
    assert first != second


async def test_submit_while_busy_queues_in_the_inbox() -> None:
    async with open_agent(MemoryStorage(), turns(SLOW)) as agent:
        await agent.root.submit("one")
        two = await agent.root.submit("two")
        three = await agent.root.submit("three", when_busy="steer")
        inbox = await agent.root.snapshot(INBOX)
        record = await two.record()
    assert [(item.submission_id, item.type, item.when_busy) for item in inbox.items] == [
        (two.id, "input", "follow_up"),
        (three.id, "input", "steer"),
    ]
    assert record.status == "queued"
    assert record.entry is None


async def test_a_rejected_submit_writes_nothing() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, turns(SLOW)) as agent:
        await agent.root.submit("one")
        await wait_all_tasks_blocked()
        before = _commits(storage)
        with pytest.raises(ConversationBusy) as caught:
            await agent.root.submit("two", request_id="r2", when_busy="reject")
        assert caught.value.conversation_id == ROOT_ID
        assert _commits(storage) == before


async def test_reject_on_an_idle_conversation_is_placed_at_once() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        submission = await agent.root.submit("hello", when_busy="reject")
        assert (await submission.wait()).status == "done"


async def test_a_queued_submission_can_be_withdrawn_once() -> None:
    async with open_agent(MemoryStorage(), turns(SLOW, Reply("two"))) as agent:
        one = await agent.root.submit("one")
        two = await agent.root.submit("two")
        assert await two.abort() is True
        assert await two.abort() is False
        record = await two.wait()
        assert (record.status, record.reason, record.entry) == ("unanswered", "withdrawn", None)
        assert record.draft is None
        await one.wait()
        assert await agent.lines() == ["user one", "assistant at last"]
        assert (await agent.root.snapshot(INBOX)).items == []


async def test_a_placed_submission_is_not_withdrawn() -> None:
    async with open_agent(MemoryStorage(), turns(SLOW)) as agent:
        one = await agent.root.submit("one")
        assert await one.abort() is False
        assert (await one.record()).status == "placed"
        assert (await one.wait()).status == "done"
        assert await one.abort() is False


async def test_a_queued_write_can_be_withdrawn() -> None:
    async with open_agent(MemoryStorage(), turns(SLOW)) as agent:
        await agent.root.submit("one")
        note = await agent.root.write(EntryDraft(kind="app.note", data=1))
        assert await note.abort() is True
        await agent.root.wait_for_idle()
        assert [entry.kind for entry in await agent.entries()] == ["pi.user", "pi.assistant"]


async def test_a_wait_that_is_cancelled_does_not_cancel_the_work() -> None:
    async with open_agent(MemoryStorage(), turns(SLOW)) as agent:
        submission = await agent.root.submit("hello")
        with trio.move_on_after(1) as scope:
            await submission.wait()
        assert scope.cancelled_caught
        assert (await submission.wait()).status == "done"
        assert trio.current_time() == pytest.approx(60)


async def test_a_cancelled_submit_stored_nothing() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        with trio.move_on_after(0) as scope:
            await agent.root.submit("hello", request_id="r1")
        assert scope.cancelled_caught
        assert await agent.lines() == []
        assert (await agent.ask("another", request_id="r1")).status == "done"


async def test_a_submission_is_found_again_by_its_id_after_a_restart() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, turns(Reply("hi", delay_s=5))) as agent:
        first = await agent.root.submit("hello")
    async with open_agent(storage, turns(Reply("hi"))) as agent:
        found = await agent.harness.submission(first.id)
        assert found == first
        assert found.conversation_id == ROOT_ID
        assert (await found.wait()).status == "done"
        with pytest.raises(StorageRequestError, match="999"):
            await agent.harness.submission(999)


async def test_the_answer_is_text_or_says_why_there_is_none() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        submission = await agent.root.submit("hello")
        assert await submission.answer() == "re: hello"
        note = await agent.root.write(EntryDraft(kind="app.note"))
        with pytest.raises(Unanswered) as caught:
            await note.answer()
        assert caught.value.reason == "write"
    async with open_agent(MemoryStorage(), turns(SLOW)) as agent:
        aborted = await agent.root.submit("hello")
        await agent.root.abort(reason="enough")
        with pytest.raises(Unanswered) as caught:
            await aborted.answer()
        assert (caught.value.reason, caught.value.detail) == ("aborted", "enough")


async def test_an_answer_without_text_is_empty() -> None:
    async with open_agent(MemoryStorage(), turns(Reply(thinking="hm"))) as agent:
        assert await (await agent.root.submit("hello")).answer() == ""


async def test_waiting_again_for_a_settled_submission_returns_at_once() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        submission = await agent.root.submit("hello")
        assert await submission.wait() == await submission.wait()


async def test_handles_are_equal_when_their_ids_are() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        one = await agent.root.submit("one", request_id="r1")
        again = await agent.harness.submission(one.id)
        two = await agent.root.submit("two")
        assert one == again
        assert hash(one) == hash(again)
        assert one != two
        assert repr(one) == f"Submission(id={one.id}, conversation_id=1)"


async def test_an_input_may_be_an_image_alone() -> None:
    async with open_agent(MemoryStorage(), turns(Reply("nice"))) as agent:
        image = ImageBlock(data="aGk=", media_type="image/png")
        submission = await agent.root.submit((image,))
        assert (await submission.wait()).status == "done"
        message = (await agent.entries())[0].model
        assert message is not None
        assert message[0].content == (image,)


async def test_the_caller_is_stored_with_the_submission() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        submission = await agent.root.submit("hello", caller={"tenant": "acme"})
        await submission.wait()
    with peek(storage) as stored:
        record = stored.submission(submission.id)
        assert record is not None
        assert record.caller == {"tenant": "acme"}


def _commits(storage: MemoryStorage) -> int:
    """How many commits are stored now."""
    look = storage.snapshot()
    head = look.open(read_only=True)
    look.close()
    return head.commit
