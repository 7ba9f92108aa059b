"""Loading the index of live work when a storage is opened: pages of rows, then what may move.

Also which submissions are unsettled, of which only the ids are kept.

Owns the order of those reads. It changes nothing in storage; what a crash left running is given
back by the engine's repair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pidurable_actors._limits import LIMITS
from pidurable_actors.actors._storage_actor import StorageActor
from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records import SubmissionRecord, SubmissionStatus, TaskId, Waiting
from pidurable_actors.session import UNSETTLED, SessionState
from pidurable_actors.storage import LiveTask, Storage

__all__ = ["load_live"]


async def load_live(storage: StorageActor, state: SessionState) -> None:
    """Take every live task into the index, and the records of those that may move soon.

    Raises:
        StorageCorrupt: a task is listed as live and cannot be read.
        StorageError: the storage failed.

    Durability: stores nothing.

    Cancellation: the index is half loaded, and of no use.
    """
    after = 0
    while True:
        page = await storage.read(_live_page(after))
        state.load(page)
        if len(page) < LIMITS.page:
            break
        after = page[-1].id
    # All rows first, because a wait looks for what it waits for among them. A sleeper costs its
    # row until it is due; whatever moves sooner is loaded now.
    moving = [slot.id for slot in state.tasks.values() if slot.status != "sleeping"]
    for at in range(0, len(moving), LIMITS.page):
        await _load_records(storage, state, moving[at : at + LIMITS.page])
    waited = {
        awaited
        for slot in state.tasks.values()
        if slot.head is not None and isinstance(slot.head.state, Waiting)
        for awaited in slot.head.state.on
        if (target := state.live(awaited)) is not None and target.head is None
    }
    await _load_records(storage, state, sorted(waited))
    for status in UNSETTLED:
        await _load_unsettled(storage, state, status)


async def _load_unsettled(
    storage: StorageActor, state: SessionState, status: SubmissionStatus
) -> None:
    after = 0
    while True:
        page = await storage.read(_submission_page(status, after))
        for record in page:
            state.note_submission(record)
        if len(page) < LIMITS.page:
            return
        after = page[-1].id


async def _load_records(storage: StorageActor, state: SessionState, ids: Sequence[TaskId]) -> None:
    if ids:
        records = await storage.read(lambda s: [s.task(task_id) for task_id in ids])
        for task_id, record in zip(ids, records, strict=True):
            if record is None:
                raise StorageCorrupt(f"task {task_id} is listed as live and cannot be read")
            state.load_record(record)


def _submission_page(
    status: SubmissionStatus, after: int
) -> Callable[[Storage], list[SubmissionRecord]]:
    return lambda storage: storage.submissions(status=status, after=after, limit=LIMITS.page)


def _live_page(after: int) -> Callable[[Storage], list[LiveTask]]:
    return lambda storage: storage.live_tasks(after=after, limit=LIMITS.page)
