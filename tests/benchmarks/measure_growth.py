"""Growth: what a commit costs beside little and beside much of everything.

Processor time is compared, because it is what a busy machine disturbs least.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Awaitable, Callable
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
    start,
    until_rows,
)

__all__ = ["Many", "beside", "memory_after"]

T = TypeVar("T")
Many = Literal["entries", "live", "sleeping", "ended", "conversations"]

_BATCH = 500
_REPEAT = 5
_DRAFT = EntryDraft(kind=USER, model=(UserMessage(content=(TextBlock(text="x" * 200),)),))


def beside(path: str, many: Many, counts: tuple[int, int], steps: int) -> Numbers:
    """Commit beside few of something in the storage, then beside many.

    What commits is a task of the same conversation that steps; beside entries it is a commit that
    appends one.

    Returns:
        Microseconds of processor time per commit, beside few and beside many.
    """
    return trio.run(_beside, path, many, counts, steps)


async def _beside(path: str, many: Many, counts: tuple[int, int], steps: int) -> Numbers:
    few, all_of_them = counts
    async with start(path) as harness:
        root = await harness.root()
        harness.resume()
        commit = _append if many == "entries" else _step
        await commit(harness, root, steps)
        await _fill(harness, root, path, many, few, few)
        few_us = await _cpu_us(commit, harness, root, steps)
        await _fill(harness, root, path, many, all_of_them - few, all_of_them)
        many_us = await _cpu_us(commit, harness, root, steps)
    return {"few_us": few_us, "many_us": many_us}


async def _cpu_us(
    commit: Callable[[Harness, Conversation, int], Awaitable[None]],
    harness: Harness,
    root: Conversation,
    steps: int,
) -> float:
    """The least of some repetitions: what else the machine does only adds."""
    taken_s: list[float] = []
    for _ in range(_REPEAT):
        gc.collect()
        cpu_s = time.process_time()
        await commit(harness, root, steps)
        taken_s.append(time.process_time() - cpu_s)
    return min(taken_s) / steps * 1e6


async def _append(harness: Harness, root: Conversation, steps: int) -> None:
    for _ in range(steps):
        await root.commit(partial(_append_some, 1))


async def _step(harness: Harness, root: Conversation, steps: int) -> None:
    task_id = await root.commit(lambda tx: tx.create_task(Stepper, Work(steps)))
    await harness.wait_for_task(task_id)


async def _fill(
    harness: Harness, root: Conversation, path: str, many: Many, count: int, total: int
) -> None:
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
    match many:
        case "live":
            await until_rows(path, Blocked, "running", total)
        case "sleeping":
            await until_rows(path, Sleeper, "sleeping", total)
        case "ended":
            await until_rows(path, Brief, "terminal", total)
        case _:
            pass


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
        await _fill(harness, root, path, "ended", tasks, tasks)
        blocks, resident_kb = await _at_rest()
        await _fill(harness, root, path, "ended", tasks, 2 * tasks)
        blocks_after, resident_after_kb = await _at_rest()
    return {
        "blocks": (blocks_after - blocks) / tasks * 1e3,
        "resident_kb": (resident_after_kb - resident_kb) / tasks * 1e3,
    }


async def _at_rest() -> tuple[int, float]:
    await trio.sleep(0.2)
    gc.collect()
    return sys.getallocatedblocks(), vm_kb("VmRSS")
