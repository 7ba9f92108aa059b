"""Every crash point of a story, in one process and in virtual time.

A crash point is a snapshot of what survives, the stored contents and the effects outside them, taken
before and after each durable write and around each effect of a story that is not disturbed. The
story is then started again on each snapshot and must finish. Nothing is unwound, so nothing can
write after death.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import attrs

from pidurable_actors import Report
from pidurable_actors.records import (
    ROOT_ID,
    AssistantMessage,
    Batch,
    EntryRecord,
    SubmissionRecord,
    TaskRecord,
    Terminal,
    ToolResultMessage,
)
from pidurable_actors.records.codec import encode_record
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import all_entries, all_submissions, all_tasks, peek


@attrs.frozen
class Point:
    """What a crash at one place leaves: `acknowledged` is the last commit whose caller was told."""

    where: str
    storage: MemoryStorage
    effects: tuple[str, ...]
    acknowledged: int


@attrs.define
class World:
    """One life of the outside world: its storage, its effects, and the crash points so far."""

    storage: MemoryStorage
    effects: list[str] = attrs.field(factory=list)
    points: list[Point] = attrs.field(factory=list)
    reports: list[Report] = attrs.field(factory=list)
    acknowledged: int = 0

    def effect(self, name: str) -> None:
        """Do something that a crash does not undo."""
        self.mark(f"before effect {name}")
        self.effects.append(name)
        self.mark(f"after effect {name}")

    def mark(self, where: str) -> None:
        """A crash could come here."""
        self.points.append(
            Point(where, self.storage.snapshot(), tuple(self.effects), self.acknowledged)
        )

    def watched(self) -> Storage:
        """The storage, with a crash point before and after each durable write."""
        return cast("Storage", _Watched(self))


Story = Callable[[World], Awaitable[None]]
Check = Callable[[World], None]


async def explore(story: Story, check: Check, *, depth: int = 1) -> int:
    """Run a story, then run it again on every crash point, and of every such run if `depth` is 2.

    Returns:
        How many crash points were tried.
    """
    world = World(MemoryStorage())
    await story(world)
    check_ended(world)
    check(world)
    return await _explore(story, check, world, depth)


async def _explore(story: Story, check: Check, before: World, depth: int) -> int:
    tried = 0
    for point in before.points:
        world = World(point.storage, list(point.effects))
        known = _entries(point.storage)
        with _named(point):
            await story(world)
            check_ended(world)
            check(world)
            check_prefix(known, _entries(world.storage))
        tried += 1
        if depth > 1:
            tried += await _explore(story, check, world, depth - 1)
    return tried


class _named:
    """Names the crash point in whatever goes wrong after it."""

    def __init__(self, point: Point) -> None:
        self._point = point

    def __enter__(self) -> None:
        assert _commit(self._point.storage) >= self._point.acknowledged, "an acknowledged loss"

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(f"after a crash {self._point.where}, effects {self._point.effects}")


def check_ended(world: World) -> None:
    """What holds for every story that has ended, wherever it was cut."""
    with peek(world.storage) as stored:
        check_whole(all_entries(stored), all_tasks(stored), all_submissions(stored))


def check_whole(
    entries: Sequence[EntryRecord],
    tasks: Sequence[TaskRecord],
    submissions: Sequence[SubmissionRecord],
) -> None:
    """Nothing is live, ids are unique, each submission is settled, each call has one result."""
    ids: list[int] = [entry.id for entry in entries]
    ids += [task.id for task in tasks]
    ids += [submission.id for submission in submissions]
    assert len(ids) == len(set(ids)), "an id came twice"
    live = [task for task in tasks if not isinstance(task.state, Terminal)]
    assert not live, f"still live: {live}"
    for submission in submissions:
        assert submission.status in ("done", "unanswered"), submission
        assert (submission.answer is None) == (
            submission.status == "unanswered" or submission.type == "write"
        )
    messages = [message for entry in entries for message in entry.model or ()]
    calls = [
        call.id
        for message in messages
        if isinstance(message, AssistantMessage) and message.stop_reason != "aborted"
        for call in message.tool_calls
    ]
    results = [message.call_id for message in messages if isinstance(message, ToolResultMessage)]
    assert Counter(calls) == Counter(results), f"calls {calls}, results {results}"
    placed = [submission.entry for submission in submissions if submission.entry is not None]
    assert len(placed) == len(set(placed)), "two submissions share an entry"


def check_prefix(before: Sequence[str], after: Sequence[str]) -> None:
    """What was stored at the crash is still there, unchanged and in its place."""
    assert list(after[: len(before)]) == list(before), "a stored entry changed or is gone"


def results_of(world: World) -> dict[str, ToolResultMessage]:
    """The stored results by tool name; of several of one tool, the last."""
    with peek(world.storage) as stored:
        return {
            message.tool_name: message
            for entry in all_entries(stored)
            for message in entry.model or ()
            if isinstance(message, ToolResultMessage)
        }


def submissions_of(world: World) -> list[SubmissionRecord]:
    """The stored submissions."""
    with peek(world.storage) as stored:
        return all_submissions(stored)


def _entries(storage: MemoryStorage) -> list[str]:
    with peek(storage.snapshot()) as stored:
        if stored.conversation(ROOT_ID) is None:
            return []
        return [encode_record(entry) for entry in all_entries(stored)]


def _commit(storage: MemoryStorage) -> int:
    look = storage.snapshot()
    head = look.open(read_only=True)
    look.close()
    return head.commit


class _Watched:
    """A storage that marks crash points around each write and hands the rest on."""

    def __init__(self, world: World) -> None:
        self._world = world

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store, with a crash point before and one between the write and its acknowledgement."""
        world = self._world
        commits = f"commits {batches[0].number} to {batches[-1].number}"
        world.mark(f"before {commits}")
        world.storage.apply(batches)
        world.mark(f"after {commits}, before they were acknowledged")
        world.acknowledged = batches[-1].number

    def __getattr__(self, name: str) -> object:
        return getattr(self._world.storage, name)
