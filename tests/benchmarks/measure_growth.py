"""Growth: what a commit costs beside little and beside much of everything.

Processor time is compared, because it is what a busy machine disturbs least.
"""

from __future__ import annotations

import gc
import sys
import time
from functools import partial
from typing import Any, Literal, TypeVar

import trio

from pidurable_actors import AgentChoice, Conversation, Harness, TaskActor, Tx
from pidurable_actors.records import ROOT_ID, USER, EntryDraft, TextBlock, UserMessage
from tests.benchmarks.child import vm_kb
from tests.benchmarks.children import Numbers
from tests.benchmarks.programs import (
    Blocked,
    Brief,
    Nothing,
    Sleeper,
    SleeperInput,
    Stepper,
    Work,
    rows_in,
    start,
)

__all__ = ["Many", "beside", "memory_after"]

T = TypeVar("T")
Many = Literal["entries", "live", "sleeping", "ended", "conversations"]

_BATCH = 500
_DRAFT = EntryDraft(kind=USER, model=(UserMessage(content=(TextBlock(text="x" * 200),)),))


def beside(path: str, many: Many, count: int, steps: int) -> Numbers:
    """Commit, with `count` of something in the storage already.

    What commits is a task of the same conversation that steps; beside many entries it is a commit
    that appends one.

    Returns:
        Microseconds of processor time per commit.
    """
    return trio.run(_beside, path, many, count, steps)


async def _beside(path: str, many: Many, count: int, steps: int) -> Numbers:
    async with start(path) as harness:
        root = await harness.root()
        harness.resume()
        await _fill(harness, root, path, many, count)
        commit = _append if many == "entries" else _step
        await commit(harness, root, steps // 10)
        gc.collect()
        cpu_s = time.process_time()
        await commit(harness, root, steps)
        cpu_s = time.process_time() - cpu_s
    return {"cpu_us": cpu_s / steps * 1e6}


async def _append(harness: Harness, root: Conversation, steps: int) -> None:
    for _ in range(steps):
        await root.commit(partial(_append_some, 1))


async def _step(harness: Harness, root: Conversation, steps: int) -> None:
    task_id = await root.commit(lambda tx: tx.create_task(Stepper, Work(steps)))
    await harness.wait_for_task(task_id)


async def _fill(harness: Harness, root: Conversation, path: str, many: Many, count: int) -> None:
    for first in range(0, count, _BATCH):
        size = min(_BATCH, count - first)
        match many:
            case "entries":
                await root.commit(partial(_append_some, size))
            case "live":
                await root.commit(partial(_create_some, size, Blocked, Nothing()))
            case "sleeping":
                until_ms = int((time.time() + 86_400) * 1000)
                await root.commit(partial(_create_some, size, Sleeper, SleeperInput(until_ms)))
            case "ended":
                await root.commit(partial(_create_some, size, Brief, Nothing()))
            case "conversations":
                await _converse(harness, size)
    status: dict[str, str] = {"live": "running", "sleeping": "sleeping", "ended": "terminal"}
    if many in status:
        await _until_rows(path, status[many], count)


async def _until_rows(path: str, status: str, count: int) -> None:
    while rows_in(path, status) < count:
        await trio.sleep(0.02)


async def _converse(harness: Harness, size: int) -> None:
    async def one() -> None:
        conversation = await harness.create_conversation(agent=AgentChoice())
        await conversation.commit(partial(_append_to, conversation))

    async with trio.open_nursery() as nursery:
        for _ in range(size):
            nursery.start_soon(one)


def _append_to(conversation: Conversation, tx: Tx) -> None:
    tx.append_entry(conversation.id, _DRAFT)


def _append_some(count: int, tx: Tx) -> None:
    for _ in range(count):
        tx.append_entry(ROOT_ID, _DRAFT)


def _create_some(count: int, actor: type[TaskActor[T, Any]], value: T, tx: Tx) -> None:
    for _ in range(count):
        tx.create_task(actor, value)


def memory_after(path: str, tasks: int) -> Numbers:
    """Let tasks end, twice as many as are measured, and see what stays in memory.

    The first half warms caches and pools up; what the second half leaves behind would grow for ever.

    Returns:
        Allocated blocks and kilobytes resident that stay, per thousand ended tasks.
    """
    return trio.run(_memory_after, path, tasks)


async def _memory_after(path: str, tasks: int) -> Numbers:
    async with start(path) as harness:
        root = await harness.root()
        harness.resume()
        await _fill(harness, root, path, "ended", tasks)
        blocks, resident_kb = await _at_rest()
        for first in range(0, tasks, _BATCH):
            size = min(_BATCH, tasks - first)
            await root.commit(partial(_create_some, size, Brief, Nothing()))
        await _until_rows(path, "terminal", 2 * tasks)
        blocks_after, resident_after_kb = await _at_rest()
    return {
        "blocks": (blocks_after - blocks) / tasks * 1e3,
        "resident_kb": (resident_after_kb - resident_kb) / tasks * 1e3,
    }


async def _at_rest() -> tuple[int, float]:
    await trio.sleep(0.2)
    gc.collect()
    return sys.getallocatedblocks(), vm_kb("VmRSS")
