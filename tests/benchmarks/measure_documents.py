"""Documents, forks and the log of commits: what a commit costs beside small and large state.

Processor time is compared, the least of some repetitions, because it is what a busy machine
disturbs least. Written bytes are those of the kernel's account of this process.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, TypeAlias

import attrs
import trio

from pidurable_actors import AgentChoice, Conversation, Harness, Settings, Text, Tx, define_doc
from pidurable_actors.records import ROOT_ID, USER, EntryDraft, EntryId, TextBlock, UserMessage
from tests.benchmarks.children import Numbers
from tests.benchmarks.measure_streaming import written
from tests.benchmarks.programs import start

__all__ = ["appends", "cpu_us", "forks", "logged", "watchers"]

Part: TypeAlias = Literal["text", "list"]

_REPEAT = 5
_BATCH = 1_000
_CHECKPOINT_S = 0.5
_HUNDRED = "x" * 100
_DRAFT = EntryDraft(kind=USER, model=(UserMessage(content=(TextBlock(text="x" * 200),)),))


@attrs.define
class Pile:
    """Grows."""

    text: Text = attrs.field(factory=Text)
    items: list[str] = attrs.field(factory=list)


PILE = define_doc("bench.pile", Pile)


def appends(path: str, part: Part, counts: tuple[int, int], steps: int) -> Numbers:
    """Append 100 characters to a document that has few of them, then to one that has many.

    Returns:
        Microseconds of processor time and bytes written per commit, of each.
    """
    return trio.run(_appends, path, part, counts, steps)


async def _appends(path: str, part: Part, counts: tuple[int, int], steps: int) -> Numbers:
    found: dict[str, float] = {}
    async with start(path) as harness:
        root = await harness.root()
        made = 0
        for name, count in zip(("few", "many"), counts, strict=True):
            await root.commit(partial(_put, part, count - made))
            await cpu_us(lambda: root.commit(partial(_put, part, 1)), steps)
            # What was put in is in the log; it reaches the tables behind the commits' back.
            await trio.sleep(_CHECKPOINT_S)
            wrote = written()
            found[f"{name}_us"] = await cpu_us(lambda: root.commit(partial(_put, part, 1)), steps)
            found[f"{name}_bytes"] = (written() - wrote) / steps / _REPEAT
            made = count + 2 * steps * _REPEAT
    return found


async def _put(part: Part, count: int, tx: Tx) -> None:
    pile = await tx.doc(PILE)
    if part == "text":
        pile.text.append(_HUNDRED * count)
    else:
        pile.items.extend([_HUNDRED] * count)


def forks(path: str, counts: tuple[int, int], steps: int) -> Numbers:
    """Fork a conversation of few and of many entries in its middle, and look at the fork.

    Returns:
        Microseconds of processor time per fork, of each.
    """
    return trio.run(_forks, path, counts, steps)


async def _forks(path: str, counts: tuple[int, int], steps: int) -> Numbers:
    async with start(path) as harness:
        root = await harness.root(agent=AgentChoice())
        found: list[float] = []
        made = 0
        for count in counts:
            for first in range(made, count, _BATCH):
                await root.commit(partial(_append, min(_BATCH, count - first)))
            made = count
            (newest,) = (await root.entries(limit=1)).items
            middle = EntryId(newest.id - 4)
            found.append(await cpu_us(lambda at=middle: _fork(root, at), steps))  # type: ignore[misc]
    return dict(zip(("few_us", "many_us"), found, strict=True))


async def _fork(root: Conversation, at: EntryId) -> None:
    fork = await root.fork(at=at)
    await fork.entries(limit=5)
    await fork.commit(lambda tx: tx.append_entry(fork.id, _DRAFT))


def _append(count: int, tx: Tx) -> None:
    for _ in range(count):
        tx.append_entry(ROOT_ID, _DRAFT)


def logged(path: str, steps: int) -> Numbers:
    """Commit an entry, without the log of commits and with it.

    Returns:
        Microseconds of processor time per commit, of each.
    """
    off, on = (trio.run(_logged, f"{path}-{kept}", kept, steps) for kept in (0, 10_000))
    return {"few_us": off, "many_us": on}


async def _logged(path: str, kept: int, steps: int) -> float:
    async with start(path, settings=Settings(commit_log=kept)) as harness:
        root = await harness.root()
        return await cpu_us(lambda: root.commit(partial(_append, 1)), steps)


def watchers(path: str, count: int, steps: int) -> Numbers:
    """Commit to a conversation that nobody watches, then to one that many do.

    Returns:
        Commits a second of each, and the frames that were built for one commit.
    """
    return trio.run(_watchers, path, count, steps)


async def _watchers(path: str, count: int, steps: int) -> Numbers:
    frames: set[int] = set()
    kept: list[object] = []  # so that no identity is used twice
    attached = 0

    async def watch(root: Conversation) -> None:
        nonlocal attached
        async with root.watch() as watch:
            await anext(watch)
            attached += 1
            async for frame in watch:
                if id(frame) not in frames:
                    frames.add(id(frame))
                    kept.append(frame)

    async with start(path) as harness:
        root = await harness.root()
        alone = await _rate(harness, root, steps)
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(watch, root)
            while attached < count:  # noqa: ASYNC110 - it is the set-up, and over in a moment
                await trio.sleep(0.01)
            beside = await _rate(harness, root, steps)
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    return {"alone": alone, "rate": beside, "frames": len(frames) / steps / _REPEAT}


async def _rate(harness: Harness, root: Conversation, steps: int) -> float:
    best = 0.0
    for _ in range(_REPEAT):
        began_s = time.perf_counter()
        for _ in range(steps):
            await root.commit(partial(_append, 1))
        best = max(best, steps / (time.perf_counter() - began_s))
    return best


async def cpu_us(do: Callable[[], Awaitable[object]], steps: int) -> float:
    """The least of some repetitions: what else the machine does only adds."""
    taken_s: list[float] = []
    for _ in range(_REPEAT):
        gc.collect()
        cpu_s = time.process_time()
        for _ in range(steps):
            await do()
        taken_s.append(time.process_time() - cpu_s)
    return min(taken_s) / steps * 1e6
