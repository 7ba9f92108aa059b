"""Lateness of the event loop: a ticker of 1 ms beside ten thousand that commit all the time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Literal

import trio

from pidurable_actors import Conversation, Harness, Tx
from pidurable_actors.records import USER, EntryDraft, TextBlock, UserMessage
from tests.benchmarks.children import Numbers
from tests.benchmarks.programs import Stepper, Work, commits_in, start

__all__ = ["alone", "run"]

_TICK_S = 0.001
_WARM_UP_S = 1.0
_DRAFT = EntryDraft(kind=USER, model=(UserMessage(content=(TextBlock(text="x" * 200),)),))


def run(path: str, count: int, who: Literal["conversations", "tasks"], seconds: float) -> Numbers:
    """Measure how late a ticker is while everybody commits.

    Returns:
        Lateness at p50, p99 and at most, in milliseconds, and commits a second.
    """
    return trio.run(_run, path, count, who, seconds)


async def _run(
    path: str, count: int, who: Literal["conversations", "tasks"], seconds: float
) -> Numbers:
    late_s: list[float] = []
    async with start(path) as harness:
        busy = _conversations if who == "conversations" else _tasks
        async with trio.open_nursery() as nursery:
            await busy(harness, count, nursery)
            await trio.sleep(min(_WARM_UP_S, seconds))
            before, began_s = commits_in(path), time.perf_counter()
            with trio.move_on_after(seconds):
                await _tick(late_s)
            took_s = time.perf_counter() - began_s
            commits = commits_in(path) - before
            nursery.cancel_scope.cancel()
    return {**_lateness(late_s), "rate": commits / took_s}


def alone(seconds: float) -> Numbers:
    """The same ticker beside one task that only keeps the loop busy: what the machine does to it."""
    return trio.run(_alone, seconds)


async def _alone(seconds: float) -> Numbers:
    late_s: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_spin)
        with trio.move_on_after(seconds):
            await _tick(late_s)
        nursery.cancel_scope.cancel()
    return _lateness(late_s)


async def _spin() -> None:
    while True:
        await trio.lowlevel.checkpoint()


async def _tick(late_s: list[float]) -> None:
    while True:
        began_s = time.perf_counter()
        await trio.sleep(_TICK_S)
        late_s.append(time.perf_counter() - began_s - _TICK_S)


async def _conversations(harness: Harness, count: int, nursery: trio.Nursery) -> None:
    made: list[Conversation] = []

    async def make() -> None:
        made.append(await harness.create_conversation())

    async with trio.open_nursery() as makers:
        for _ in range(count):
            makers.start_soon(make)
    for conversation in made:
        nursery.start_soon(_append, conversation)


async def _append(conversation: Conversation) -> None:
    def append(tx: Tx) -> None:
        tx.append_entry(conversation.id, _DRAFT)

    while True:
        await conversation.commit(append)


async def _tasks(harness: Harness, count: int, nursery: trio.Nursery) -> None:
    root = await harness.root()
    harness.resume()
    create = partial(_create, Work(steps=10**9))
    async with trio.open_nursery() as makers:
        for _ in range(count):
            makers.start_soon(root.commit, create)


def _create(work: Work, tx: Tx) -> None:
    tx.create_task(Stepper, work)


def _lateness(late_s: Sequence[float]) -> Numbers:
    ordered = sorted(late_s)
    p50_s, p99_s = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    return {"p50_ms": p50_s * 1e3, "p99_ms": p99_s * 1e3, "max_ms": ordered[-1] * 1e3}
