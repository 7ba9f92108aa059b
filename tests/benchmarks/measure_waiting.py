"""Waiting tasks: what they weigh, how fast a storage full of them opens, how fast all go on."""

from __future__ import annotations

import time
from typing import NoReturn

import trio

from pidurable_actors.records import (
    ROOT_ID,
    Batch,
    CommitNumber,
    ConversationId,
    ConversationRecord,
    PutConversation,
    PutTask,
    Sleeping,
    TaskId,
    TaskRecord,
)
from pidurable_actors.records.codec import encode_record, encode_task
from pidurable_actors.storage.sqlite import SqliteStorage
from tests.benchmarks.child import emit, vm_kb
from tests.benchmarks.children import Numbers
from tests.benchmarks.programs import PAD, Sleeper, SleeperInput, start, until_rows

__all__ = ["build", "open_sleepers", "park", "recover"]

_PER_CONVERSATION = 10


def park(path: str, tasks: int, due_in_s: float) -> NoReturn:
    """Let tasks take a step and sleep, then report ``parked`` and wait to be killed."""
    trio.run(_park, path, tasks, due_in_s)
    raise AssertionError("it is killed")


async def _park(path: str, tasks: int, due_in_s: float) -> None:
    until_ms = int((time.time() + due_in_s) * 1000)
    async with start(path) as harness:
        root = await harness.root()
        harness.resume()
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(
                    root.commit, lambda tx: tx.create_task(Sleeper, SleeperInput(until_ms))
                )
        # Asked of the file, because only what is there outlives the kill.
        await until_rows(path, Sleeper, "sleeping", tasks)
        emit("parked", {"hwm_mb": vm_kb("VmHWM") / 1024, "due_s": until_ms / 1000})
        await trio.sleep_forever()


def recover(path: str, tasks: int) -> Numbers:
    """Open what was parked and killed, and wait until all tasks are done."""
    return trio.run(_recover, path, tasks)


async def _recover(path: str, tasks: int) -> Numbers:
    began_s = time.perf_counter()
    async with start(path) as harness:
        ids = [task.id for task in harness.inspect().tasks]
        assert len(ids) == tasks
        open_s = time.perf_counter() - began_s
        harness.resume()
        async with trio.open_nursery() as nursery:
            for task_id in ids:
                nursery.start_soon(harness.wait_for_task, task_id)
        emit("recovered", {"open_s": open_s, "hwm_mb": vm_kb("VmHWM") / 1024})
    return {}


def build(path: str, tasks: int) -> Numbers:
    """Write a file with many sleeping tasks, ten in each conversation, through the storage alone."""
    storage = SqliteStorage(path)
    head = storage.open(read_only=False)
    root = ConversationRecord(id=ROOT_ID, created_at_ms=0)
    changes: list[PutConversation | PutTask] = [PutConversation(root, encode_record(root))]
    next_id, number, conversation_id = head.next_id, head.commit, ROOT_ID
    until_ms = int((time.time() + 86_400) * 1000)
    batches: list[Batch] = []
    for at in range(tasks):
        if at % _PER_CONVERSATION == 0:
            conversation_id = ConversationId(next_id)
            next_id += 1
            conversation = ConversationRecord(id=conversation_id, created_at_ms=0)
            changes.append(PutConversation(conversation, encode_record(conversation)))
        record = TaskRecord(
            id=TaskId(next_id),
            conversation_id=conversation_id,
            kind=Sleeper.definition.kind,
            version=1,
            input={"until_ms": until_ms, "pad": PAD},
            state=Sleeping(checkpoint={"phase": "after"}, until_ms=until_ms),
            started_at_ms=1,
        )
        next_id += 1
        changes.append(PutTask(record, encode_task(record)))
        if len(changes) >= 1_000 or at == tasks - 1:
            number = CommitNumber(number + 1)
            batches.append(Batch(number=number, at_ms=1, next_id=next_id, changes=tuple(changes)))
            changes.clear()
    storage.apply(batches)
    storage.close()
    return {}


def open_sleepers(path: str, tasks: int) -> Numbers:
    """Open such a file and start scheduling."""
    return trio.run(_open_sleepers, path, tasks)


async def _open_sleepers(path: str, tasks: int) -> Numbers:
    before_mb = vm_kb("VmHWM") / 1024
    began_s = time.perf_counter()
    async with start(path) as harness:
        harness.resume()
        await harness.root()
        open_s = time.perf_counter() - began_s
        assert harness.next_wake_ms() is not None
        hwm_mb = vm_kb("VmHWM") / 1024
        assert len(harness.inspect().tasks) == tasks
    return {"open_s": open_s, "hwm_mb": hwm_mb, "added_mb": hwm_mb - before_mb}
