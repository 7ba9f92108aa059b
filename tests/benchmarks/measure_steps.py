"""Durable steps: some tasks that step as fast as they are stored."""

from __future__ import annotations

import statistics
import time
from typing import Literal

import trio

from pidurable_actors import Conversation, Harness
from tests.benchmarks.children import Numbers
from tests.benchmarks.programs import Napper, Stepper, Work, commits_in, start

__all__ = ["run"]


def run(
    path: str,
    tasks: int,
    steps: int,
    durability: Literal["process", "power"],
    variant: Literal["continue", "sleep"],
    repeat: int,
) -> Numbers:
    """Start the tasks, each in a commit of its own, and wait for all results.

    Returns:
        Steps a second (the median of the repetitions), processor time and commits per step.
    """
    return trio.run(_run, path, tasks, steps, durability, variant, repeat)


async def _run(
    path: str,
    tasks: int,
    steps: int,
    durability: Literal["process", "power"],
    variant: Literal["continue", "sleep"],
    repeat: int,
) -> Numbers:
    actor = Stepper if variant == "continue" else Napper
    rates: list[float] = []
    async with start(path, durability=durability) as harness:
        root = await harness.root()
        await _all(harness, root, actor, 1, 3)
        before, cpu_s = commits_in(path), time.process_time()
        for _ in range(repeat):
            began_s = time.perf_counter()
            await _all(harness, root, actor, tasks, steps)
            rates.append(tasks * steps / (time.perf_counter() - began_s))
        cpu_s = time.process_time() - cpu_s
        commits = commits_in(path) - before
    done = repeat * tasks * steps
    return {
        "rate": statistics.median(rates),
        "cpu_us": cpu_s / done * 1e6,
        "commits": commits / done,
    }


async def _all(
    harness: Harness,
    root: Conversation,
    actor: type[Stepper | Napper],
    tasks: int,
    steps: int,
) -> None:
    async def one() -> None:
        task_id = await root.commit(lambda tx: tx.create_task(actor, Work(steps)))
        await harness.wait_for_task(task_id)

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(one)
