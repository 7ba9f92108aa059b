"""Transactions: reads that find what is admitted, and refusals of writes that make no sense."""

from __future__ import annotations

from typing import Any

import attrs
import trio.testing
from pytest import mark, raises

from pidurable_actors import Tx
from pidurable_actors.errors import TaskRefused
from pidurable_actors.harness._retry import retry_task
from pidurable_actors.records import (
    CompletedOutcome,
    Completing,
    ConversationId,
    EntryId,
    FaultedOutcome,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import HangingStorage
from tests._tasks import NOTE, CountTo, Note, Sleeper, Ticker, append, opened, outcome_of


async def test_entries_are_found_whether_stored_admitted_or_of_this_commit() -> None:
    storage = HangingStorage(MemoryStorage())
    async with opened(storage) as on, trio.open_nursery() as nursery:
        stored = await on.root.commit(append("stored"))
        other = await on.harness.create_conversation()
        storage.hang()
        nursery.start_soon(on.root.commit, append("admitted"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(other.commit, append("elsewhere"))
        await trio.testing.wait_all_tasks_blocked()
        found: dict[str, list[str]] = {}

        async def look(tx: Tx) -> None:
            tx.append_entry(on.root.id, NOTE.new(Note("mine")))

            async def texts(**options: Any) -> list[str]:
                entries = await tx.entries(on.root.id, **options)
                return [entry.data["text"] for entry in entries]  # type: ignore[index,call-overload,misc]

            found["all"] = await texts()
            found["two"] = await texts(limit=2)
            found["one"] = await texts(limit=1)
            found["kind"] = await texts(kind="app.note")
            found["none"] = await texts(kind="app.other")
            found["before"] = await texts(before=EntryId(stored + 1))

        nursery.start_soon(on.root.commit, look)
        await trio.testing.wait_all_tasks_blocked()
        storage.release()
    assert found == {
        "all": ["mine", "admitted", "stored"],
        "two": ["mine", "admitted"],
        "one": ["mine"],
        "kind": ["mine", "admitted", "stored"],
        "none": [],
        "before": ["stored"],
    }


async def test_submissions_are_found_by_id_and_by_request_at_every_stage() -> None:
    storage = HangingStorage(MemoryStorage())
    draft = SubmissionRecord(
        id=SubmissionId(0),
        conversation_id=ConversationId(1),
        type="write",
        status="done",
        request_id="r",
    )
    async with opened(storage) as on, trio.open_nursery() as nursery:
        seen: list[bool] = []

        async def find(tx: Tx, request_id: str, *, there: bool) -> None:
            found = await tx.submission_by_request(on.root.id, request_id)
            seen.append((found is not None) == there)
            if found is not None:
                seen.append(await tx.submission(found.id) == found)

        async def create(tx: Tx) -> None:
            tx.create_submission(draft)
            await find(tx, "r", there=True)
            await find(tx, "other", there=False)

        storage.hang()
        nursery.start_soon(on.root.commit, create)
        await trio.testing.wait_all_tasks_blocked()
        await on.root.commit(lambda tx: find(tx, "r", there=True))
        storage.release()
        await on.root.commit(append("behind it"))
        await on.root.commit(lambda tx: find(tx, "r", there=True))
        await on.root.commit(lambda tx: find(tx, "other", there=False))
        assert all(seen)
        assert len(seen) == 8


async def test_work_is_refused_under_an_owner_that_is_missing_ending_aborted_or_elsewhere() -> None:
    async with opened(MemoryStorage(), Sleeper, Ticker) as on:
        other = await on.harness.create_conversation()
        elsewhere = await other.commit(lambda tx: tx.create_task(Sleeper, 60.0))
        ended = await on.start(Ticker, CountTo(1))
        await on.harness.wait_for_task(ended)
        owner = await on.start(Sleeper, 60.0)
        for wrong, text in (
            (TaskId(999), "ending or missing"),
            (ended, "ending or missing"),
            (elsewhere, "another conversation"),
        ):
            with raises(TaskRefused, match=text) as told:
                await on.start(Ticker, CountTo(1), owner=wrong)
            assert told.value.task_id == wrong
        with raises(TaskRefused, match="background work is owned by its conversation"):
            await on.start(Ticker, CountTo(1), owner=owner, background=True)

        def mark_and_create(tx: Tx) -> None:
            record = tx.tasks.find(owner)
            assert record is not None
            tx.tasks.put(attrs.evolve(record, abort_requested=True))
            tx.create_task(Ticker, CountTo(1), owner=owner)

        with raises(TaskRefused, match="being aborted"):
            await on.root.commit(mark_and_create)


async def test_an_owner_that_sleeps_long_may_be_given_work() -> None:
    async with opened(MemoryStorage(), Sleeper, Ticker) as on:
        owner = await on.start(Sleeper, 3_600.0)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        child = await on.start(Ticker, CountTo(2), owner=owner)
        assert outcome_of(await on.harness.wait_for_task(child)).status == "completed"


async def test_an_outcome_is_settled_once() -> None:
    async with opened(MemoryStorage(), Sleeper) as on:
        task = await on.start(Sleeper, 60.0)

        def twice(tx: Tx) -> None:
            record = tx.tasks.find(task)
            assert record is not None
            tx.tasks.put(attrs.evolve(record, state=Terminal(outcome=CompletedOutcome(result=1))))
            tx.tasks.put(attrs.evolve(record, state=Terminal(outcome=CompletedOutcome(result=2))))

        with raises(TaskRefused, match="has ended"):
            await on.root.commit(twice)

        def memo_after(tx: Tx) -> None:
            record = tx.tasks.find(task)
            assert record is not None
            tx.tasks.put(attrs.evolve(record, state=Completing(outcome=CompletedOutcome())))
            tx.set_memo(task, "late", 1)

        with raises(TaskRefused, match="records no more memos"):
            await on.root.commit(memo_after)
        with raises(TaskRefused, match="records no more memos"):
            await on.root.commit(lambda tx: tx.set_memo(TaskId(999), "m", 1))


async def test_an_ended_task_without_a_checkpoint_cannot_be_tried_again() -> None:
    record = TaskRecord(
        id=TaskId(7),
        conversation_id=ConversationId(1),
        kind="test",
        version=1,
        input=None,
        state=Terminal(outcome=FaultedOutcome(error={"reason": "of another writer"})),
    )
    async with opened(MemoryStorage()) as on:
        with raises(TaskRefused, match="without a checkpoint"):
            await on.root.commit(lambda tx: retry_task(tx, record))


@mark.parametrize("background", [False, True])
async def test_background_work_does_not_keep_a_conversation_busy(background: bool) -> None:
    async with opened(MemoryStorage(), Sleeper) as on:
        on.harness.resume()
        task = await on.start(Sleeper, 60.0, background=background)
        await on.root.wait_for_idle()
        assert trio.current_time() == (0 if background else 60)
        await on.root.abort()
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"
