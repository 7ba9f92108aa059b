"""Submissions that are refused: conflicts, bad values, too late, read-only. Nothing is written."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import Reply, ScriptedModel, Submission
from pidurable_actors.errors import (
    HarnessClosed,
    InvalidValue,
    ReadOnlySession,
    RequestConflict,
    StorageRequestError,
)
from pidurable_actors.records import (
    EntryDraft,
    SubmissionId,
    TextBlock,
    WhenBusy,
)
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import all_submissions, echo, open_agent, peek, turns

SLOW = Reply("at last", delay_s=60)


@pytest.mark.parametrize(
    ("field", "content", "when_busy"),
    [("content", "secret two", "follow_up"), ("when_busy", "secret one", "steer")],
)
async def test_a_request_id_used_for_something_else_is_a_conflict_that_names_the_field(
    field: str, content: str, when_busy: WhenBusy
) -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        await agent.root.submit("secret one", request_id="r1")
        with pytest.raises(RequestConflict) as caught:
            await agent.root.submit(content, request_id="r1", when_busy=when_busy)
    assert caught.value.field == field
    assert field in str(caught.value)
    assert "secret" not in str(caught.value)
    with peek(storage) as stored:
        assert len(all_submissions(stored)) == 1


async def test_a_write_with_the_request_id_of_an_input_is_a_conflict_of_type() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        await agent.root.submit("secret", request_id="r1")
        with pytest.raises(RequestConflict) as caught:
            await agent.root.write(EntryDraft(kind="app.note", data="secret"), request_id="r1")
    assert caught.value.field == "type"
    assert "secret" not in str(caught.value)


async def test_a_request_that_conflicts_after_a_restart_is_refused_as_well() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        await agent.ask("one", request_id="r1")
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        with pytest.raises(RequestConflict) as caught:
            await agent.root.submit("two", request_id="r1")
    assert caught.value.field == "content"


async def test_a_handle_of_a_submission_that_is_not_there_says_so() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        submission = await agent.root.submit("hello")
        handle = attrs.evolve(submission, id=SubmissionId(999))
        with pytest.raises(StorageRequestError, match="999"):
            await handle.record()
        with pytest.raises(StorageRequestError, match="999"):
            await handle.abort()


async def test_submitting_after_the_close_is_refused() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        submission = await agent.root.submit("hello")
    with pytest.raises(HarnessClosed):
        await agent.root.submit("again")
    with pytest.raises(HarnessClosed):
        await agent.root.write(EntryDraft(kind="app.note"))
    with pytest.raises(HarnessClosed):
        await submission.abort()
    with pytest.raises(HarnessClosed):
        await submission.wait()


async def test_a_wait_that_is_open_at_the_close_ends_with_harness_closed() -> None:
    ends: list[BaseException] = []

    async def wait(submission: Submission) -> None:
        with pytest.raises(HarnessClosed) as caught:
            await submission.wait()
        ends.append(caught.value)

    async with trio.open_nursery() as nursery, open_agent(MemoryStorage(), turns(SLOW)) as agent:
        nursery.start_soon(wait, await agent.root.submit("hello"))
        await wait_all_tasks_blocked()
    assert len(ends) == 1


async def test_a_read_only_harness_takes_no_submission_but_reads_them() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        done = await agent.ask("hello")
        waiting = await agent.root.submit("more")
    async with open_agent(storage, ScriptedModel(echo), read_only=True) as agent:
        with pytest.raises(ReadOnlySession):
            await agent.root.submit("again")
        with pytest.raises(ReadOnlySession):
            await agent.root.write(EntryDraft(kind="app.note"))
        assert await (await agent.harness.submission(done.id)).wait() == done
        open_one = await agent.harness.submission(waiting.id)
        with pytest.raises(ReadOnlySession):
            await open_one.wait()
        with pytest.raises(ReadOnlySession):
            await (await agent.root.submit("never")).abort()


@pytest.mark.parametrize(
    "content", ["", (), (TextBlock(text=""),), (TextBlock(text=""), TextBlock(text=""))]
)
async def test_an_input_without_content_is_refused(content: str | tuple[TextBlock, ...]) -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        with pytest.raises(InvalidValue, match="content"):
            await agent.root.submit(content)
    with peek(storage) as stored:
        assert all_submissions(stored) == []


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("content", {"content": "lone \ud800 surrogate"}),
        ("content", {"content": 7}),
        ("content", {"content": ("not a block",)}),
        ("request_id", {"request_id": ""}),
        ("request_id", {"request_id": "x" * 201}),
        ("request_id", {"request_id": "\ud800"}),
        ("caller", {"caller": {"a": {1, 2}}}),
        ("when_busy", {"when_busy": "later"}),
    ],
)
async def test_what_cannot_be_stored_is_refused_and_the_harness_lives_on(
    path: str, values: dict[str, object]
) -> None:
    storage = MemoryStorage()
    given: dict[str, object] = {"content": "hello", **values}
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        with pytest.raises(InvalidValue) as caught:
            await agent.root.submit(**given)  # type: ignore[arg-type]
        assert path in caught.value.path
        assert (await agent.ask("hello")).status == "done"
    with peek(storage) as stored:
        assert len(all_submissions(stored)) == 1
