"""Old stored tasks meet new classes: migrated when they are reserved, or blocked as they are.

`Old` stands where its input says; `New` is its second version, whose stored form differs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import attrs
import trio
import trio.testing
from pytest import mark

from pidurable_actors import (
    Aborted,
    Checkpoint,
    Completed,
    Continue,
    Extension,
    Next,
    Outcome,
    Registry,
    Settings,
    SleepUntil,
    TaskActor,
    Tx,
    WaitFor,
    phase,
)
from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.records import (
    AbortedOutcome,
    CompletedOutcome,
    OrphanedOutcome,
    PutTask,
    TaskId,
    TaskOutcome,
)
from pidurable_actors.session import Publication
from pidurable_actors.storage.memory import MemoryStorage
from tests._tasks import Opened, Sleeper, opened, outcome_of, registry_of, until

PARK = Settings(restart_limit=1, on_restart_limit="park")


@attrs.frozen
class OldStep(Checkpoint, phase="old"):
    """A step of the first version."""

    n: int = 1
    trail: tuple[int, ...] = (7,)


class Old(TaskActor[str, str], kind="test.moves"):
    """Stands in its first step as its input says, then ends."""

    go_on: ClassVar[trio.Event]

    def start(self) -> OldStep:
        return OldStep()

    @phase(OldStep)
    async def old(self, at: OldStep) -> Next[str]:
        if at.n > 1:
            return Completed(f"old {at.n}")
        match self.input:
            case "sleeping":
                return SleepUntil(self.now_ms() + 30_000, OldStep(2))
            case "waiting":

                def wait(tx: Tx) -> Next[str]:
                    return WaitFor([tx.create_task(Sleeper, 30.0, owner=self.task_id)], OldStep(2))

                return await self.commit(wait)
            case _:
                await self.set_memo("began", "old")
                await type(self).go_on.wait()
                return Continue(OldStep(2))


@attrs.frozen
class Order:
    """The input of the second version."""

    how: str


@attrs.frozen
class NewStep(Checkpoint, phase="new"):
    """A step of the second version."""

    count: int = 1


class New(TaskActor[Order, str], kind="test.moves", version=2):
    """Ends at once, and says what it was given."""

    migrations: ClassVar[list[tuple[int, JSON, JsonObject]]] = []
    gate: ClassVar[trio.Event | None] = None

    def start(self) -> NewStep:
        return NewStep()

    @classmethod
    def migrate(
        cls, version: int, task_input: JSON, checkpoint: JsonObject
    ) -> tuple[JSON, JsonObject]:
        cls.migrations.append((version, task_input, checkpoint))
        return {"how": task_input}, {"phase": "new", "count": checkpoint["n"]}

    @phase(NewStep)
    async def new(self, at: NewStep) -> Next[str]:
        gate = type(self).gate
        if gate is not None:
            await gate.wait()
        return Completed(f"new {self.input.how} {at.count}")

    async def abort(self) -> Outcome:
        return Aborted(f"new {self.input.how} undone")


def migrating(
    migrate: Callable[[int, JSON, JsonObject], Any], kind: str = "test.moves"
) -> type[TaskActor[Order, str]]:
    """A second version that migrates in its own way."""

    class Other(New, kind=kind, version=2):
        @classmethod
        def migrate(
            cls, version: int, task_input: JSON, checkpoint: JsonObject
        ) -> tuple[JSON, JsonObject]:
            made: tuple[JSON, JsonObject] = migrate(version, task_input, checkpoint)
            return made

    return Other


async def left(status: str) -> tuple[MemoryStorage, TaskId]:
    """A storage with a task of the first version that stands in some status."""
    New.migrations.clear()
    New.gate = None
    Old.go_on = trio.Event()
    storage = MemoryStorage()
    async with opened(storage, Old, Sleeper) as on:
        task = await on.start(Old, status)
        if status != "pending":
            on.harness.resume()
            await trio.testing.wait_all_tasks_blocked()
        crashed = storage.snapshot()
    if status != "parked":
        return storage, task
    async with opened(crashed, Old, settings=PARK) as on:
        on.harness.resume()
        await until(lambda: on.harness.inspect().tasks[0].why == "parked")
    return crashed, task


@asynccontextmanager
async def newer(
    storage: MemoryStorage, *kinds: type[TaskActor[Any, Any]]
) -> AsyncIterator[tuple[Opened, Registry]]:
    """The storage under the second version, or under what is given."""
    registry = registry_of(*(kinds or (New,)), Sleeper)
    async with opened(storage, registry=registry) as on:
        on.harness.resume()
        yield on, registry


async def end(on: Opened, task: TaskId) -> TaskOutcome:
    """How a task ends."""
    return outcome_of(await on.harness.wait_for_task(task))


# --- in every state ---


@mark.parametrize("status", ["pending", "running", "sleeping", "waiting", "parked"])
async def test_an_old_task_is_migrated_when_it_is_reserved_wherever_it_stood(status: str) -> None:
    storage, task = await left(status)
    count = 2 if status in ("sleeping", "waiting") else 1
    async with newer(storage) as (on, _):
        if status in ("sleeping", "waiting", "parked"):
            await trio.testing.wait_all_tasks_blocked()
            assert New.migrations == []
            assert (await on.harness.get_task(task)).version == 1
        if status == "parked":
            assert await on.harness.retry_task(task) == task
        assert await end(on, task) == CompletedOutcome(result=f"new {status} {count}")
        assert on.reports == []
    assert New.migrations == [(1, status, {"phase": "old", "n": count, "trail": [7]})]


@mark.parametrize("status", ["pending", "running", "sleeping", "waiting", "parked"])
async def test_the_abort_handler_of_an_old_task_is_the_new_classs_wherever_it_stood(
    status: str,
) -> None:
    storage, task = await left(status)
    async with newer(storage) as (on, _):
        New.gate = trio.Event()
        record = await on.harness.abort_task(task)
        assert outcome_of(record) == AbortedOutcome(reason=f"new {status} undone")
        assert record.version == 2


async def test_a_migration_is_stored_in_the_commit_that_reserves_the_task() -> None:
    storage, task = await left("pending")
    New.gate = trio.Event()
    seen: list[tuple[int, str, JSON]] = []

    def see(publication: Publication) -> None:
        for change in publication.batch.changes:
            if isinstance(change, PutTask):
                record = change.record
                seen.append((record.version, record.state.status, record.input))

    async with opened(storage, New) as on:
        on.root._core.engine.publisher.listen(see)
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [(2, "running", {"how": "pending"})]
        crashed = storage.snapshot()
    # What was migrated is migrated; the process that comes after a crash finds it so.
    New.gate = None
    async with newer(crashed) as (on, _):
        assert (await end(on, task)).status == "completed"
    assert len(New.migrations) == 1


async def test_memos_and_the_count_of_restarts_outlive_a_migration() -> None:
    storage, task = await left("running")
    storage = await cut(storage)
    New.gate = trio.Event()
    async with newer(storage) as (on, _):
        await trio.testing.wait_all_tasks_blocked()
        record = await on.harness.get_task(task)
        assert (record.version, record.restarts, record.memos) == (2, 1, {"began": "old"})


async def cut(storage: MemoryStorage) -> MemoryStorage:
    """Run it once more under the first version, and take what a crash leaves."""
    async with opened(storage, Old) as on:
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        return storage.snapshot()


# --- blocked ---


async def test_a_task_of_a_newer_version_is_blocked_as_it_is() -> None:
    New.gate = trio.Event()
    storage = MemoryStorage()
    async with opened(storage, New) as on:
        task = await on.start(New, Order("x"))
    async with newer(storage, Old) as (on, registry):
        await trio.testing.wait_all_tasks_blocked()
        (view,) = on.harness.inspect().tasks
        assert view.why == "blocked"
        assert view.detail == "stored version 2 of 'test.moves' is newer than the installed 1"
        New.gate.set()
        registry.install(Extension("tests", tasks=[New]))
        assert await end(on, task) == CompletedOutcome(result="new x 1")


def refuse(version: int, task_input: JSON, checkpoint: JsonObject) -> tuple[JSON, JsonObject]:
    raise LookupError("what was it again")


BAD_RESULTS: dict[str, tuple[Callable[[int, JSON, JsonObject], object], str]] = {
    "raises": (refuse, "LookupError: what was it again"),
    "no pair": (lambda v, i, c: None, "it returned None, not (input, checkpoint)"),
    "no object": (lambda v, i, c: (i, "new"), "not (input, checkpoint)"),
    "no json": (lambda v, i, c: ({"how": {1, 2}}, {"phase": "new"}), "input"),
    "no input of the class": (lambda v, i, c: ({"why": 1}, {"phase": "new"}), "test.moves"),
    "no phase of the class": (lambda v, i, c: ({"how": "x"}, {"phase": "old"}), "no phase 'old'"),
    "no checkpoint of the class": (
        lambda v, i, c: ({"how": "x"}, {"phase": "new", "count": "many"}),
        "checkpoint",
    ),
}


@mark.parametrize("name", BAD_RESULTS)
async def test_a_migration_that_fails_blocks_the_task_and_is_told_once(name: str) -> None:
    storage, task = await left("pending")
    migrate, told = BAD_RESULTS[name]
    async with newer(storage, migrating(migrate)) as (on, registry):
        await trio.testing.wait_all_tasks_blocked()
        (view,) = on.harness.inspect().tasks
        assert (view.why, view.status) == ("blocked", "pending")
        assert view.detail.startswith("migrating it failed: ")
        assert told in view.detail
        registry.install(Extension("something else"))
        await trio.testing.wait_all_tasks_blocked()
        (report,) = on.reports
        assert (report.kind, report.task_id, report.detail) == ("task_blocked", task, view.detail)
        assert report.error is not None

        registry.install(Extension("tests", tasks=[New]))
        assert await end(on, task) == CompletedOutcome(result="new pending 1")
        assert len(on.reports) == 1
    assert New.migrations == [(1, "pending", {"phase": "old", "n": 1, "trail": [7]})]


async def test_a_migration_cannot_spoil_what_is_stored() -> None:
    def spoil(version: int, task_input: JSON, checkpoint: JsonObject) -> tuple[JSON, JsonObject]:
        trail = checkpoint["trail"]
        assert isinstance(trail, list)
        trail.clear()
        checkpoint.clear()
        raise LookupError("after that")

    storage, task = await left("pending")
    async with newer(storage, migrating(spoil)) as (on, registry):
        await trio.testing.wait_all_tasks_blocked()
        registry.install(Extension("tests", tasks=[New]))
        assert await end(on, task) == CompletedOutcome(result="new pending 1")
    assert New.migrations == [(1, "pending", {"phase": "old", "n": 1, "trail": [7]})]


async def test_an_abort_of_a_task_that_cannot_be_migrated_waits_unless_it_is_orphaned() -> None:
    storage, task = await left("sleeping")
    async with newer(storage, migrating(refuse)) as (on, _):
        with trio.move_on_after(5):
            await on.harness.abort_task(task, reason="stop")
        (view,) = on.harness.inspect().tasks
        assert (view.why, view.abort_requested) == ("blocked", True)
        record = await on.harness.abort_task(task, reason="give up", orphan=True)
        assert outcome_of(record) == OrphanedOutcome(
            reason="give up: migrating it failed: LookupError: what was it again"
        )
        assert on.kinds() == ["task_blocked"]


async def test_an_older_class_without_migrate_blocks_the_task() -> None:
    class Two(TaskActor[str, str], kind="test.moves", version=2):
        def start(self) -> NewStep:
            return NewStep()

        @phase(NewStep)
        async def new(self, at: NewStep) -> Next[str]:
            return Completed("two")

    storage, _ = await left("pending")
    async with newer(storage, Two) as (on, _):
        await trio.testing.wait_all_tasks_blocked()
        (view,) = on.harness.inspect().tasks
        assert view.detail.endswith("is older than the installed 2, which has no migrate()")


# --- while it runs ---


class Same(Old, kind="test.moves"):
    """The first version, written anew."""

    @phase(OldStep)
    async def old(self, at: OldStep) -> Next[str]:
        return Completed(f"same {at.n} {await self.memo('began')}")


@mark.parametrize(
    ("replacement", "result"), [(Same, "same 2 old"), (New, "new running 2")], ids=["same", "new"]
)
async def test_a_class_that_is_replaced_while_it_runs_takes_over_at_the_next_phase(
    replacement: type[TaskActor[Any, Any]], result: str
) -> None:
    New.migrations.clear()
    New.gate = None
    Old.go_on = trio.Event()
    async with newer(MemoryStorage(), Old) as (on, registry):
        task = await on.start(Old, "running")
        await trio.testing.wait_all_tasks_blocked()
        registry.install(Extension("tests", tasks=[replacement]))
        await trio.testing.wait_all_tasks_blocked()
        assert on.harness.inspect().tasks[0].why == "running"
        Old.go_on.set()
        assert await end(on, task) == CompletedOutcome(result=result)
        assert (await on.harness.get_task(task)).restarts == 0
        assert on.reports == []


async def test_a_class_that_is_replaced_by_an_older_one_leaves_its_task_blocked() -> None:
    Old.go_on = trio.Event()

    class Three(Old, kind="test.moves", version=3):
        """A newer one, which is taken back."""

    async with newer(MemoryStorage(), Three) as (on, registry):
        task = await on.start(Three, "running")
        await trio.testing.wait_all_tasks_blocked()
        registry.install(Extension("tests", tasks=[New]))
        Old.go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        (view,) = on.harness.inspect().tasks
        assert (view.why, view.status) == ("blocked", "pending")
        assert on.kinds() == ["task_blocked"]
        registry.install(Extension("tests", tasks=[Three]))
        assert await end(on, task) == CompletedOutcome(result="old 2")


async def test_a_class_that_is_gone_goes_on_to_the_end_of_its_run() -> None:
    Old.go_on = trio.Event()
    async with newer(MemoryStorage(), Old) as (on, registry):
        task = await on.start(Old, "running")
        await trio.testing.wait_all_tasks_blocked()
        registry.uninstall("tests")
        Old.go_on.set()
        assert await end(on, task) == CompletedOutcome(result="old 2")
        assert on.reports == []
