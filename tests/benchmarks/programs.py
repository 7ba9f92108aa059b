"""What the measurements run: task classes, and a harness on a new SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from pidurable_actors import (
    Checkpoint,
    Completed,
    Continue,
    Extension,
    Harness,
    Models,
    Next,
    Registry,
    Report,
    Settings,
    SleepUntil,
    TaskActor,
    open_harness,
    phase,
)
from pidurable_actors.storage.sqlite import Durability, SqliteStorage

__all__ = [
    "PAD",
    "Blocked",
    "Brief",
    "Nap",
    "Napper",
    "Nothing",
    "Sleeper",
    "SleeperInput",
    "Stepper",
    "Work",
    "commits_in",
    "start",
    "until_rows",
]

PAD: Final = "x" * 290
"""Makes a task's record about as long as the row of the raw measurements."""


@attrs.frozen
class Work:
    """How many steps to take."""

    steps: int
    pad: str = PAD


@attrs.frozen
class Step(Checkpoint, phase="step"):
    """Step `n` of the work, the first is 1."""

    n: int


class Stepper(TaskActor[Work, int], kind="bench.stepper"):
    """Steps as fast as they are stored."""

    def start(self) -> Step:
        return Step(1)

    @phase(Step)
    async def step(self, at: Step) -> Next[int]:
        if at.n >= self.input.steps:
            return Completed(at.n)
        return Continue(Step(at.n + 1))


@attrs.frozen
class Nap(Checkpoint, phase="nap"):
    """Step `n` of the work, the first is 1."""

    n: int


class Napper(TaskActor[Work, int], kind="bench.napper"):
    """Sleeps durably after each step, until now."""

    def start(self) -> Nap:
        return Nap(1)

    @phase(Nap)
    async def nap(self, at: Nap) -> Next[int]:
        if at.n >= self.input.steps:
            return Completed(at.n)
        return SleepUntil(self.now_ms(), Nap(at.n + 1))


@attrs.frozen
class SleeperInput:
    """When to wake, epoch milliseconds."""

    until_ms: int
    pad: str = PAD


@attrs.frozen
class Before(Checkpoint, phase="before"):
    """The step before the sleep."""


@attrs.frozen
class After(Checkpoint, phase="after"):
    """The step after the sleep."""


class Sleeper(TaskActor[SleeperInput, int], kind="bench.sleeper"):
    """One step, a durable sleep, one more step."""

    def start(self) -> Before:
        return Before()

    @phase(Before)
    async def before(self, at: Before) -> Next[int]:
        return SleepUntil(self.input.until_ms, After())

    @phase(After)
    async def after(self, at: After) -> Next[int]:
        return Completed(2)


@attrs.frozen
class Nothing:
    """An input without content."""


@attrs.frozen
class Here(Checkpoint, phase="here"):
    """The one step."""


class Blocked(TaskActor[Nothing, None], kind="bench.blocked"):
    """Runs and waits for something that never comes."""

    def start(self) -> Here:
        return Here()

    @phase(Here)
    async def here(self, at: Here) -> Next[None]:
        await trio.sleep_forever()


class Brief(TaskActor[Nothing, None], kind="bench.brief"):
    """Ends at once."""

    def start(self) -> Here:
        return Here()

    @phase(Here)
    async def here(self, at: Here) -> Next[None]:
        return Completed(None)


@asynccontextmanager
async def start(
    path: str,
    *,
    durability: Durability = "process",
    models: Models | None = None,
    settings: Settings | None = None,
    **more: Extension,
) -> AsyncIterator[Harness]:
    """Open a harness on a file, with the task classes of this module installed.

    Args:
        path: the SQLite file.
        durability: of its commits.
        models: the providers.
        settings: of the harness.
        more: further extensions to install.

    Raises:
        AssertionError: something went wrong meanwhile: a number of that would be without meaning.
    """
    reports: list[Report] = []
    registry = Registry(
        [Extension("bench", tasks=[Stepper, Napper, Sleeper, Blocked, Brief]), *more.values()]
    )
    storage = SqliteStorage(path, durability)
    async with open_harness(
        storage,
        registry=registry,
        models=models,
        settings=settings,
        on_report=reports.append,
    ) as harness:
        yield harness
        assert not reports, reports[0]


def commits_in(path: str) -> int:
    """The number of the last commit that a file holds."""
    return _number(path, "SELECT commit_number FROM meta")


def _rows_in(path: str, kind: str, status: str) -> int:
    """How many tasks of a kind and status a file holds."""
    query = "SELECT count(*) FROM tasks WHERE kind = ? AND status = ?"
    return _number(path, query, kind, status)


async def until_rows(path: str, actor: type[TaskActor[Any, Any]], status: str, count: int) -> None:
    """Wait until a file holds so many tasks of a kind and status: what is there is durable."""
    kind = actor.definition.kind
    while _rows_in(path, kind, status) < count:  # noqa: ASYNC110 - a file tells nobody when it changes
        await trio.sleep(0.01)


def _number(path: str, query: str, *parameters: object) -> int:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        row: tuple[int] = connection.execute(query, parameters).fetchone()
    finally:
        connection.close()
    return row[0]
