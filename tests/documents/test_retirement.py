"""The documents of a task are retired with it, however it ends, and stay readable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import Completed, Failed, Harness, Next, Settings, TaskActor, Tx, phase
from pidurable_actors.errors import StorageError, StorageRequestError, TaskRefused
from pidurable_actors.records import (
    Batch,
    RetireDocuments,
    StoredDocument,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.session import define_doc
from pidurable_actors.storage import Storage
from pidurable_actors.testing._through import ThroughStorage
from tests._tasks import One
from tests.documents.kit import Book, Place, edit, logged, note, opened_at

OWN = define_doc("app.own", Book, scope="task", history="rewindable")
ONCE = Settings(restart_limit=1)


class Worker(TaskActor[str, str], kind="test.worker"):
    """Ends as its input says; a word before the colon says when it made its document."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[str]:
        when, end = self.input.split(":")
        task_id = self.task_id

        async def write(tx: Tx) -> None:
            book = await tx.doc(OWN, task_id)
            book.n += 1
            book.text.append("x" * 2_000)

        async def write_and_end(tx: Tx) -> Next[str]:
            await write(tx)
            return Completed("done") if end == "completed" else Failed("no")

        if when == "before":
            await self.commit(write)
        if end == "raise":
            raise ValueError("no")
        if end == "hang":
            await trio.sleep_forever()
        if when == "with":
            return await self.commit(write_and_end)
        return Completed("done") if end == "completed" else Failed("no")


@mark.parametrize("script", ["before:completed", "with:completed", "before:failed", "with:failed"])
async def test_a_task_that_completes_or_fails_retires_what_it_wrote(
    place: Place, script: str
) -> None:
    async with opened_at(place(), Worker) as (harness, root):
        task = await root.commit(lambda tx: tx.create_task(Worker, script))
        record = await harness.wait_for_task(task)
        await _check_retired(harness, record, script.split(":")[1])
    async with opened_at(place(), Worker) as (harness, _):
        await _check_retired(harness, record, script.split(":")[1])


async def test_a_task_that_raises_retires_what_it_wrote(place: Place) -> None:
    async with opened_at(place(), Worker) as (harness, root):
        task = await root.commit(lambda tx: tx.create_task(Worker, "before:raise"))
        record = await harness.wait_for_task(task)
        await _check_retired(harness, record, "faulted")
        # Tried again, it is another task with documents of its own; the first retired once.
        again = await harness.retry_task(task)
        await harness.wait_for_task(again)
        assert [it.task_id for it in await _retirements(harness)] == [task, again]
        await _check_retired(harness, record, "faulted")


@mark.parametrize("reopened", [False, True], ids=["at once", "after a restart"])
@mark.parametrize("orphan", [False, True], ids=["aborted", "orphaned"])
async def test_a_task_that_is_aborted_or_orphaned_retires_what_it_wrote(
    place: Place, *, orphan: bool, reopened: bool
) -> None:
    async with opened_at(place(), Worker) as (harness, root):
        task = await root.commit(lambda tx: tx.create_task(Worker, "before:hang"))
        harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        if not reopened:
            record = await harness.abort_task(task, orphan=orphan)
            await _check_retired(harness, record, "aborted")
            return
    # Without its code it can only be orphaned; with it, it is aborted.
    async with opened_at(place(), *([] if orphan else [Worker])) as (harness, _):
        record = await harness.abort_task(task, orphan=orphan)
        await _check_retired(harness, record, "orphaned" if orphan else "aborted")


class Dying(ThroughStorage):
    """Fails when told to, as a disk that is gone: what runs is cut off and not given back."""

    dead = False

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner, blocking=False)

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store, while there is a disk."""
        if self.dead:
            raise StorageError("the disk is gone", wrote=False)
        super().apply(batches)


async def test_a_task_that_was_cut_off_too_often_retires_what_it_wrote(place: Place) -> None:
    async with opened_at(place(), Worker) as (_, root):
        task = await root.commit(lambda tx: tx.create_task(Worker, "before:hang"))
    for _ in range(3):
        dying = Dying(place().inner)
        with raises(StorageError, match="the disk is gone"):
            async with opened_at(dying, Worker, settings=ONCE) as (harness, root):
                harness.resume()
                await trio.testing.wait_all_tasks_blocked()
                dying.dead = True
                await root.commit(note())
    async with opened_at(place(), Worker, settings=ONCE) as (harness, _):
        record = await harness.wait_for_task(task)
        await _check_retired(harness, record, "faulted")


async def test_a_task_s_documents_are_retired_by_an_end_that_does_not_touch_them(
    place: Place,
) -> None:
    """Made before a restart by somebody else, in several keys, for one task of two."""
    async with opened_at(place(), Worker) as (harness, root):
        first = await root.commit(lambda tx: tx.create_task(Worker, "never:hang"))
        other = await root.commit(lambda tx: tx.create_task(Worker, "never:hang"))
        for task in (first, other):
            for key in ("a", "b"):
                await root.commit(edit(OWN, lambda it: setattr(it, "n", 1), task, key))
    async with opened_at(place(), Worker) as (harness, root):
        await harness.abort_task(first)
        for key in ("a", "b"):
            assert (await _stored(harness, first, key)).record.retired_at_ms is not None
            assert (await _stored(harness, other, key)).record.retired_at_ms is None
            await root.commit(edit(OWN, lambda it: setattr(it, "n", 2), other, key))
            with raises(TaskRefused, match=f"task {first} has ended"):
                await root.commit(edit(OWN, lambda it: it.n, first, key))
            assert (await harness.snapshot(OWN, first, key=key)).n == 1
            assert (await harness.snapshot(OWN, other, key=key)).n == 2


async def test_a_document_for_a_task_that_is_not_there_is_refused(place: Place) -> None:
    async with opened_at(place(), Worker) as (_, root):
        with raises(StorageRequestError, match="no task 999"):
            await root.commit(edit(OWN, lambda it: it.n, 999))

        async def make_and_fill(tx: Tx) -> TaskId:
            task = tx.create_task(Worker, "never:completed")
            (await tx.doc(OWN, task)).n = 5
            return task

        task = await root.commit(make_and_fill)
    async with opened_at(place(), Worker) as (harness, _):
        record = await harness.wait_for_task(task)
        assert record.state.status == "terminal"
        assert (await harness.snapshot(OWN, task)).n == 5
        assert (await _stored(harness, task)).record.retired_at_ms == record.ended_at_ms


async def _check_retired(harness: Harness, record: TaskRecord, status: str) -> None:
    assert isinstance(record.state, Terminal)
    assert record.state.outcome.status == status
    found = await _stored(harness, record.id)
    assert found.record.retired_at_ms == record.ended_at_ms
    book = await harness.snapshot(OWN, record.id)
    assert len(str(book.text)) == 2_000 * book.n
    assert book.n >= 1
    with raises(TaskRefused, match="and its documents with it"):
        await harness.commit(edit(OWN, lambda it: setattr(it, "n", 9), record.id))
    retired = [it for it in await _retirements(harness) if it.task_id == record.id]
    assert [it.at_ms for it in retired] == [record.ended_at_ms]


async def _retirements(harness: Harness) -> list[RetireDocuments]:
    changes: list[Any] = [change for it in await logged(harness) for change in it.changes]
    return [change for change in changes if isinstance(change, RetireDocuments)]


async def _stored(harness: Harness, task_id: TaskId, key: str = "") -> StoredDocument:
    found = await harness._core.read(lambda s: s.document(OWN.kind, "task", task_id, key))
    assert found is not None
    return found
