"""Small tasks and short ways to run them, for tests of the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from pidurable_actors import (
    Checkpoint,
    Completed,
    Continue,
    Conversation,
    Extension,
    Harness,
    Next,
    Registry,
    Report,
    Settings,
    SleepUntil,
    TaskActor,
    Tx,
    open_harness,
    phase,
)
from pidurable_actors._clock import Clock
from pidurable_actors.records import TaskId, TaskOutcome, TaskRecord, Terminal
from pidurable_actors.runtime import define_entry
from pidurable_actors.session import define_doc
from pidurable_actors.storage import Storage

__all__ = [
    "COUNT",
    "NOTE",
    "At",
    "Count",
    "CountTo",
    "Note",
    "One",
    "Opened",
    "Sleeper",
    "Ticker",
    "append",
    "notes",
    "opened",
    "outcome_of",
    "registry_of",
    "until",
]


@attrs.frozen
class Note:
    """An application's entry."""

    text: str


NOTE = define_entry("app.note", Note)


@attrs.define
class Count:
    """An application's document."""

    n: int = 0
    items: list[Any] = attrs.Factory(list)


COUNT = define_doc("app.count", Count)


@attrs.frozen
class CountTo:
    """The input of a ticker."""

    to: int


@attrs.frozen
class At(Checkpoint, phase="at"):
    """A step with a number."""

    n: int = 1


@attrs.frozen
class One(Checkpoint, phase="one"):
    """A step without anything."""


class Ticker(TaskActor[CountTo, str], kind="test.ticker"):
    """Counts, one checkpoint a number."""

    def start(self) -> At:
        return At()

    @phase(At)
    async def at(self, at: At) -> Next[str]:
        if at.n == self.input.to:
            return Completed(f"counted to {at.n}")
        return Continue(At(at.n + 1))


class Sleeper(TaskActor[float, int], kind="test.sleeper"):
    """Sleeps, durably, for its input in seconds; the result is when it woke."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[int]:
        return SleepUntil(self.now_ms() + round(self.input * 1000), At())

    @phase(At)
    async def at(self, at: At) -> Next[int]:
        return Completed(self.now_ms())


@attrs.frozen
class Opened:
    """An open harness, its root conversation and what it reported."""

    harness: Harness
    root: Conversation
    reports: list[Report]

    async def start(
        self, actor: type[TaskActor[Any, Any]], task_input: Any = None, **options: Any
    ) -> TaskId:
        """Create a task in the root conversation."""
        return await self.root.commit(lambda tx: tx.create_task(actor, task_input, **options))

    async def run(self, actor: type[TaskActor[Any, Any]], task_input: Any = None) -> TaskOutcome:
        """Create a task and wait for its outcome."""
        return outcome_of(await self.harness.wait_for_task(await self.start(actor, task_input)))

    def kinds(self) -> list[str]:
        """The kinds of what was reported."""
        return [report.kind for report in self.reports]


def registry_of(*tasks: type[TaskActor[Any, Any]]) -> Registry:
    """A registry with these tasks."""
    return Registry([Extension("tests", tasks=tasks)])


@asynccontextmanager
async def opened(
    storage: Storage,
    *tasks: type[TaskActor[Any, Any]],
    settings: Settings | Callable[[], Settings] | None = None,
    clock: Clock | None = None,
    registry: Registry | None = None,
    on_report: Callable[[Report], object] | None = None,
) -> AsyncIterator[Opened]:
    """Open a harness with these tasks installed."""
    reports: list[Report] = []

    def report(told: Report) -> None:
        reports.append(told)
        if on_report is not None:
            on_report(told)

    async with open_harness(
        storage,
        registry=registry or registry_of(*tasks),
        settings=settings,
        clock=clock,
        on_report=report,
    ) as harness:
        yield Opened(harness, await harness.root(), reports)


def outcome_of(record: TaskRecord) -> TaskOutcome:
    """The outcome of a task that has ended."""
    assert isinstance(record.state, Terminal), record.state
    return record.state.outcome


async def until(condition: Callable[[], bool]) -> None:
    """Let others run, threads too, until something is so; virtual time stands still meanwhile."""
    for _ in range(1_000_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    raise AssertionError("it never came to that")


def append(text: str) -> Callable[[Tx], int]:
    """A callback that appends a note to the bound conversation; returns its id."""

    def change(tx: Tx) -> int:
        assert tx.conversation_id is not None
        return tx.append_entry(tx.conversation_id, NOTE.new(Note(text))).id

    return change


async def notes(conversation: Conversation) -> list[str]:
    """The texts of a conversation's durable notes, oldest first."""
    page = await conversation.entries("app.note", limit=1000)
    return [NOTE.match(entry).text for entry in reversed(page.items)]  # type: ignore[union-attr]
