"""Streaming: what a token costs, when a watcher sees it, and what of it is written.

The model is a provider of this module that notes when it gave each token, so that a watcher can say
how late it saw one. It gives them by a timetable: when the event loop is late, it catches up.
Written bytes are those of the kernel's account of this process: log, tables and checkpoints.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import trio
import trio.testing

from pidurable_actors import AgentChoice, Conversation, Extension, Models, tool
from pidurable_actors.models import (
    Finished,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from pidurable_actors.records import ToolResultMessage
from tests.benchmarks.children import Numbers
from tests.benchmarks.programs import commits_in, start

__all__ = ["live", "long", "stored"]

Shape: TypeAlias = Literal["text", "argument"]

TOKEN = "word"
PIECE = "forty characters, as a provider sends it"


class Tokens:
    """A provider that gives so many tokens, each at its time, and notes when it did."""

    name = "tokens"

    def __init__(self, count: int, per_s: float) -> None:
        self._count = count
        self._per_s = per_s
        self.given_s: dict[str, list[float]] = {}

    def models(self) -> None:
        return None

    def info(self, model_id: str) -> ModelInfo:
        return ModelInfo()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        yield self._events(self.given_s.setdefault(request.model_id, []))

    async def _events(self, given_s: list[float]) -> AsyncIterator[ModelEvent]:
        began_s = trio.current_time()
        for at in range(self._count):
            await trio.sleep_until(began_s + at / self._per_s)
            given_s.append(time.perf_counter())
            yield TextDelta(TOKEN)
        yield Finished("stop")


class Pieces:
    """A provider that gives one long text, or one long argument, as fast as it is taken."""

    name = "pieces"

    def __init__(self, shape: Shape, pieces: int) -> None:
        self._shape = shape
        self._pieces = pieces

    def models(self) -> None:
        return None

    def info(self, model_id: str) -> ModelInfo:
        return ModelInfo()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        done = isinstance(request.messages[-1], ToolResultMessage)
        yield self._short() if done else self._long()

    async def _short(self) -> AsyncIterator[ModelEvent]:
        await trio.lowlevel.checkpoint()
        yield TextDelta("done")
        yield Finished("stop")

    async def _long(self) -> AsyncIterator[ModelEvent]:
        argument = self._shape == "argument"
        if argument:
            yield ToolCallStart(0, "call", "swallow")
            yield ToolCallDelta(0, json.dumps({"text": ""})[:-2])
        for _ in range(self._pieces):
            await trio.lowlevel.checkpoint()
            yield ToolCallDelta(0, PIECE) if argument else TextDelta(PIECE)
        if argument:
            yield ToolCallDelta(0, '"}')
            yield ToolCallEnd(0)
        yield Finished("tool_use" if argument else "stop")


@tool(replay="safe")
async def swallow(text: str) -> str:
    """Take a text."""
    return f"{len(text)} characters"


def live(path: str, conversations: int, tokens: int, per_s: float) -> Numbers:
    """Stream to many conversations at once, each with a watcher, in real time.

    Returns:
        Processor time per token, and that of the provider alone; how late a watcher sees the oldest
        token of a frame at p50, p99 and at most; and the tokens a second of all streams together.
    """
    return {
        "alone_us": trio.run(_alone, conversations, tokens, per_s),
        **trio.run(_live, path, conversations, tokens, per_s),
    }


async def _alone(conversations: int, tokens: int, per_s: float) -> float:
    provider = Tokens(tokens, per_s)

    async def take(name: str) -> None:
        request = ModelRequest(model_id=name, messages=())
        async with provider.stream(request) as events:
            async for _ in events:
                pass

    cpu_s = time.process_time()
    async with trio.open_nursery() as nursery:
        for at in range(conversations):
            nursery.start_soon(take, str(at))
    return (time.process_time() - cpu_s) / conversations / tokens * 1e6


async def _live(path: str, conversations: int, tokens: int, per_s: float) -> Numbers:
    provider, late_s = Tokens(tokens, per_s), list[float]()

    def seen(name: str, before: int) -> None:
        late_s.append(time.perf_counter() - provider.given_s[name][before])

    async with start(path, models=Models([provider])) as harness:
        made = [
            await harness.create_conversation(agent=AgentChoice(model=f"tokens/{at}"))
            for at in range(conversations)
        ]
        gc.collect()
        cpu_s, began_s = time.process_time(), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for at, conversation in enumerate(made):
                nursery.start_soon(_watched, conversation, str(at), seen)
        cpu_s, took_s = time.process_time() - cpu_s, time.perf_counter() - began_s
    late_s.sort()
    p50_s, p99_s = (late_s[int(len(late_s) * share)] for share in (0.5, 0.99))
    return {
        "cpu_us": cpu_s / conversations / tokens * 1e6,
        "p50_ms": p50_s * 1e3,
        "p99_ms": p99_s * 1e3,
        "max_ms": late_s[-1] * 1e3,
        "rate": conversations * tokens / took_s,
    }


async def _watched(conversation: Conversation, name: str, seen: Callable[[str, int], None]) -> None:
    await conversation.submit("Go on.")
    tokens = 0
    async with conversation.watch() as watch:
        async for frame in watch:
            now = frame.view.live
            if now.run is None:
                return
            if now.generation is not None and now.generation.partial:
                shown = len(now.generation.partial[0].text) // len(TOKEN)
                if shown > tokens:
                    seen(name, tokens)
                tokens = shown


def stored(path: str, conversations: int, seconds: tuple[int, int], per_s: float) -> Numbers:
    """Stream a short and a long text to some conversations, watched, in virtual time.

    Returns:
        Commits per conversation and second of the long one, and bytes written per character.
    """
    few, many = (
        trio.run(
            _stored,
            f"{path}-{length}",
            conversations,
            length,
            per_s,
            clock=trio.testing.MockClock(autojump_threshold=0),
        )
        for length in seconds
    )
    return {"writes": many[0], "few_bytes": few[1], "many_bytes": many[1]}


async def _stored(path: str, conversations: int, length: int, per_s: float) -> tuple[float, float]:
    provider = Tokens(int(length * per_s), per_s)
    async with start(path, models=Models([provider])) as harness:
        made = [
            await harness.create_conversation(agent=AgentChoice(model=f"tokens/{at}"))
            for at in range(conversations)
        ]
        commits, wrote = commits_in(path), written()
        async with trio.open_nursery() as nursery:
            for at, conversation in enumerate(made):
                nursery.start_soon(_watched, conversation, str(at), lambda *_: None)
        commits, wrote = commits_in(path) - commits, written() - wrote
    characters = conversations * length * per_s * len(TOKEN)
    return commits / conversations / length, wrote / characters


def long(path: str, shape: Shape, sizes_kb: tuple[int, int]) -> Numbers:
    """Stream one text or argument in pieces of 40 characters, watched, as fast as it goes.

    Returns:
        Processor time per KB, and bytes written per character, of the short and the long one.
    """
    found: dict[str, float] = {}
    for name, size_kb in zip(("few", "many"), sizes_kb, strict=True):
        cpu_us, per_character = trio.run(_long, f"{path}-{name}", shape, size_kb)
        found |= {f"{name}_us": cpu_us, f"{name}_bytes": per_character}
    return found


async def _long(path: str, shape: Shape, size_kb: int) -> tuple[float, float]:
    pieces = size_kb * 1_000 // len(PIECE)
    swallowing = Extension("swallowing", tools=[swallow])
    async with start(path, models=Models([Pieces(shape, pieces)]), more=swallowing) as harness:
        root = await harness.root(agent=AgentChoice(model="pieces/one"))
        gc.collect()
        cpu_s, wrote = time.process_time(), written()
        await _watched(root, "", lambda *_: None)
        cpu_s, wrote = time.process_time() - cpu_s, written() - wrote
    return cpu_s / size_kb * 1e6, wrote / size_kb / 1e3


def written() -> int:
    """Bytes that this process has handed to the kernel so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))
