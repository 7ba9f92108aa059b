"""Work that owns work: what a child, a link of a chain and a subagent cost among few and among many.

Processor time is compared, because it is what a busy machine disturbs least, with the garbage
collector tuned as the README says: Python's own thresholds make full collections whose cost grows
with everything that lives. Half as much is done first, so that caches and pools are warm.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import attrs
import trio

from pidurable_actors import (
    Checkpoint,
    Completed,
    Extension,
    Harness,
    Next,
    Registry,
    TaskActor,
    Tx,
    WaitFor,
    open_harness,
    phase,
)
from pidurable_actors.records import TaskId
from pidurable_actors.storage.sqlite import SqliteStorage
from tests.benchmarks.children import Numbers
from tests.benchmarks.programs import until_rows

__all__ = ["Shape", "memory_after_subagents", "owning"]

Shape: TypeAlias = Literal["children", "chain", "subagents"]


@attrs.frozen
class Begin(Checkpoint, phase="begin"):
    """Create what is owned."""


@attrs.frozen
class End(Checkpoint, phase="end"):
    """All of it has ended."""


class Leaf(TaskActor[None, None], kind="bench.leaf"):
    """Runs until it is aborted."""

    def start(self) -> Begin:
        return Begin()

    @phase(Begin)
    async def begin(self, at: Begin) -> Next[None]:
        await trio.sleep_forever()


class Owner(TaskActor[int, None], kind="bench.owner"):
    """Owns as many leaves as its input, and waits for them."""

    def start(self) -> Begin:
        return Begin()

    @phase(Begin)
    async def begin(self, at: Begin) -> Next[None]:
        def create(tx: Tx) -> Next[None]:
            made = [tx.create_task(Leaf, None, owner=self.task_id) for _ in range(self.input)]
            return WaitFor(made, End())

        return await self.commit(create)

    @phase(End)
    async def end(self, at: End) -> Next[None]:
        await trio.lowlevel.checkpoint()
        return Completed(None)


class Link(TaskActor[int, None], kind="bench.link"):
    """Owns the next link, down to one that runs until it is aborted."""

    def start(self) -> Begin:
        return Begin()

    @phase(Begin)
    async def begin(self, at: Begin) -> Next[None]:
        if self.input == 0:
            await trio.sleep_forever()

        def create(tx: Tx) -> Next[None]:
            return WaitFor([tx.create_task(Link, self.input - 1, owner=self.task_id)], End())

        return await self.commit(create)

    @phase(End)
    async def end(self, at: End) -> Next[None]:
        await trio.lowlevel.checkpoint()
        return Completed(None)


class Brief(TaskActor[None, None], kind="bench.subagent"):
    """Ends at once."""

    def start(self) -> Begin:
        return Begin()

    @phase(Begin)
    async def begin(self, at: Begin) -> Next[None]:
        await trio.lowlevel.checkpoint()
        return Completed(None)


class Parent(TaskActor[int, None], kind="bench.parent"):
    """Makes conversations of its own, one after another, and runs something in each."""

    def start(self) -> Begin:
        return Begin()

    @phase(Begin)
    async def begin(self, at: Begin) -> Next[None]:
        def create(tx: Tx) -> TaskId:
            mine = tx.create_conversation(owner=self.task_id)
            return tx.create_task(Brief, None, conversation_id=mine.id)

        for _ in range(self.input):
            await self.wait_for_task(await self.commit(create))
        return Completed(None)


def owning(path: str, shape: Shape, counts: tuple[int, int]) -> Numbers:
    """Build, abort and close, with few and with many.

    Returns:
        Microseconds of processor time for each child, link or subagent, of few and of many.
    """
    few, many = counts
    gc.set_threshold(50_000, 20, 100)
    return {
        "few_us": trio.run(_measured, f"{path}-few", shape, few),
        "many_us": trio.run(_measured, f"{path}-many", shape, many),
    }


def memory_after_subagents(path: str, count: int) -> Numbers:
    """Let subagents end, twice as many as are measured, and see what stays in memory.

    Returns:
        Allocated blocks that stay, per thousand ended subagents.
    """
    return trio.run(_memory, path, count)


def _open(path: str) -> Any:
    kinds: list[type[TaskActor[Any, Any]]] = [Leaf, Owner, Link, Brief, Parent]
    return open_harness(SqliteStorage(path), registry=Registry([Extension("bench", tasks=kinds)]))


async def _measured(path: str, shape: Shape, count: int) -> float:
    run = _SHAPES[shape]
    async with _open(path) as harness:
        await run(harness, path, max(1, count // 2))
    gc.collect()
    cpu_s = time.process_time()
    async with _open(path) as harness:
        await run(harness, path, count)
    return (time.process_time() - cpu_s) / count * 1e6


async def _children(harness: Harness, path: str, count: int) -> None:
    root = await harness.root()
    task_id = await root.commit(lambda tx: tx.create_task(Owner, count))
    harness.resume()
    await until_rows(path, Leaf, "running", count)
    await harness.abort_task(task_id)


async def _chain(harness: Harness, path: str, count: int) -> None:
    root = await harness.root()
    task_id = await root.commit(lambda tx: tx.create_task(Link, count))
    harness.resume()
    await until_rows(path, Link, "waiting", count)
    await harness.abort_task(task_id)


async def _subagents(harness: Harness, path: str, count: int) -> None:
    root = await harness.root()
    task_id = await root.commit(lambda tx: tx.create_task(Parent, count))
    await harness.wait_for_task(task_id)


async def _memory(path: str, count: int) -> Numbers:
    async with _open(path) as harness:
        await _subagents(harness, path, count)
        before = await _at_rest()
        await _subagents(harness, path, count)
        after = await _at_rest()
    return {"blocks": (after - before) / count * 1e3}


async def _at_rest() -> int:
    await trio.sleep(0.2)
    gc.collect()
    return sys.getallocatedblocks()


_SHAPES: dict[Shape, Callable[[Harness, str, int], Awaitable[None]]] = {
    "children": _children,
    "chain": _chain,
    "subagents": _subagents,
}
