"""The nursery tree: the runs of a task's work stand in its shell, and shells go when they are empty.

What is looked at is Trio's own tree of tasks, in which shells and runs are known by their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, ClassVar

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import (
    Aborted,
    Completed,
    Next,
    Outcome,
    TaskActor,
    Tx,
    WaitFor,
    phase,
)
from pidurable_actors._limits import LIMITS
from pidurable_actors.actors import Engine
from pidurable_actors.records import TaskId
from pidurable_actors.storage.memory import MemoryStorage
from tests._tasks import At, One, Opened, Sleeper, opened, outcome_of

DEEP = 500


class Runs(TaskActor[float, int], kind="test.runs"):
    """Runs for its input in seconds; undoing takes a second."""

    undone: ClassVar[list[tuple[TaskId, frozenset[str]]]] = []

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[int]:
        await self.sleep(self.input)
        return Completed(self.now_ms())

    async def abort(self) -> Outcome:
        await trio.sleep(1)
        self.undone.append((self.task_id, frozenset(nurseries())))
        return Aborted("undone")


class Waits(TaskActor[list[float], int], kind="test.waits-for-runs"):
    """Owns a run for each of its inputs, and waits for the first; then it runs for a minute."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[int]:
        def create(tx: Tx) -> Next[int]:
            made = [tx.create_task(Runs, took_s, owner=self.task_id) for took_s in self.input]
            return WaitFor(made[:1], At())

        return await self.commit(create)

    @phase(At)
    async def at(self, at: At) -> Next[int]:
        await self.sleep(60)
        return Completed(self.now_ms())


class Link(TaskActor[int, int], kind="test.link"):
    """Owns the next link and waits for it; the last one runs."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[int]:
        if not self.input:
            await trio.sleep_forever()

        def create(tx: Tx) -> Next[int]:
            return WaitFor([tx.create_task(Link, self.input - 1, owner=self.task_id)], At())

        return await self.commit(create)

    @phase(At)
    async def at(self, at: At) -> Next[int]:
        return Completed(self.input)


def nurseries() -> dict[str, str]:
    """In which task's nursery each run and each shell stands: ``{"run 4": "shell 3"}``."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found: dict[str, str] = {}
    todo = [root]
    for task in todo:
        below = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        for child in below:
            name = _short(child.name)
            if name:
                found[name] = _short(task.name) or "engine"
        todo.extend(below)
    return found


def _short(name: str) -> str:
    words = name.split()
    if words[0] == "task":
        return f"run {words[1]}"
    return f"shell {words[3]}" if words[:3] == ["shell", "of", "task"] else ""


def depth_of(name: str, tree: dict[str, str]) -> int:
    """How many shells a run or shell stands in, or is."""
    depth = 0
    while name != "engine":
        depth += name.startswith("shell")
        name = tree[name]
    return depth


def engine_of(on: Opened) -> Engine:
    """The engine, to count what must be gone."""
    return on.root._core.engine


async def chain(on: Opened, length: int) -> list[TaskId]:
    """Tasks that all run, each the owner of the next."""

    def create(tx: Tx) -> Iterator[TaskId]:
        owner: TaskId | None = None
        for _ in range(length):
            owner = tx.create_task(Runs, 3_600.0, owner=owner)
            yield owner

    made = await on.root.commit(lambda tx: list(create(tx)))
    await trio.testing.wait_all_tasks_blocked()
    return made


async def test_a_run_stands_in_the_shell_of_the_task_above_it_and_shells_in_one_another() -> None:
    async with opened(MemoryStorage(), Runs) as on:
        on.harness.resume()
        top = await on.start(Runs, 60.0)
        child = await on.start(Runs, 60.0, owner=top)
        mine = await on.harness.commit(lambda tx: tx.create_conversation(owner=child))
        inside = await on.start(Runs, 60.0, conversation_id=mine.id)
        aside = await on.start(Runs, 60.0, conversation_id=mine.id, background=True)
        await trio.testing.wait_all_tasks_blocked()
        assert nurseries() == {
            f"run {top}": "engine",
            f"shell {top}": "engine",
            f"run {child}": f"shell {top}",
            f"shell {child}": f"shell {top}",
            f"run {inside}": f"shell {child}",
            # Nobody's work, so it outlives whatever ends here.
            f"run {aside}": "engine",
        }


async def test_a_task_that_is_woken_while_work_of_it_runs_runs_in_its_own_shell() -> None:
    async with opened(MemoryStorage(), Waits, Runs) as on:
        on.harness.resume()
        task = await on.start(Waits, [1.0, 30.0])
        await trio.testing.wait_all_tasks_blocked()
        first, second = task + 1, task + 2
        shell = f"shell {task}"
        assert nurseries() == {shell: "engine", f"run {first}": shell, f"run {second}": shell}
        await trio.sleep(10)
        assert nurseries() == {shell: "engine", f"run {task}": shell, f"run {second}": shell}
        # The last work below has ended, but the run stands in the shell, which waits for it.
        await trio.sleep(30)
        assert nurseries() == {shell: "engine", f"run {task}": shell}
        await on.harness.wait_for_task(task)
        await trio.testing.wait_all_tasks_blocked()
        assert nurseries() == {}


async def test_shells_go_with_the_last_work_below_and_come_again() -> None:
    async with opened(MemoryStorage(), Runs) as on:
        on.harness.resume()
        top = await on.start(Runs, 60.0)
        for _ in range(2):
            child = await on.start(Runs, 5.0, owner=top)
            below = await on.start(Runs, 2.0, owner=child)
            await trio.testing.wait_all_tasks_blocked()
            assert len(engine_of(on).supervisor._shells) == 2
            await on.harness.wait_for_task(below)
            await trio.testing.wait_all_tasks_blocked()
            assert nurseries() == {
                f"run {top}": "engine",
                f"shell {top}": "engine",
                f"run {child}": f"shell {top}",
            }
            await on.harness.wait_for_task(child)
            await trio.testing.wait_all_tasks_blocked()
            assert nurseries() == {f"run {top}": "engine"}
            assert len(engine_of(on).supervisor._shells) == 0


async def test_a_shell_goes_when_the_last_work_in_it_ends_without_a_run() -> None:
    async with opened(MemoryStorage(), Runs) as on:
        on.harness.resume()
        top = await on.start(Runs, 60.0)
        child = await on.start(Runs, 5.0, owner=top)
        blocked = await on.start(Sleeper, 1.0, owner=top)  # its kind is not installed
        await on.harness.wait_for_task(child)
        await trio.testing.wait_all_tasks_blocked()
        assert nurseries() == {f"run {top}": "engine", f"shell {top}": "engine"}
        await on.harness.abort_task(blocked, orphan=True)
        await trio.testing.wait_all_tasks_blocked()
        assert nurseries() == {f"run {top}": "engine"}
        assert len(engine_of(on).supervisor._shells) == 0


async def test_a_shell_stays_until_the_last_handler_in_it_has_ended() -> None:
    Runs.undone.clear()
    async with opened(MemoryStorage(), Runs) as on:
        on.harness.resume()
        top, middle, leaf = await chain(on, 3)
        await on.harness.abort_task(top)
        await trio.testing.wait_all_tasks_blocked()
        assert nurseries() == {}
    (lowest, then), (middle_one, later), (last, end) = Runs.undone
    assert (lowest, middle_one, last) == (leaf, middle, top)
    assert {f"shell {top}", f"shell {middle}"} <= then
    assert f"shell {top}" in later
    assert f"shell {middle}" not in later
    assert end == {f"run {top}"}


async def test_what_sleeps_or_waits_has_no_trio_task() -> None:
    async with opened(MemoryStorage(), Runs, Waits, Sleeper) as on:
        on.harness.resume()
        for _ in range(20):
            await on.start(Sleeper, 3_600.0)
        waiting = await on.start(Waits, [3_600.0])
        await trio.testing.wait_all_tasks_blocked()
        owner = await on.start(Runs, 5.0)
        await on.start(Sleeper, 3_600.0, owner=owner)
        await trio.sleep(10)
        # A shell stays while work lives below, so that it need not be made for each run.
        assert nurseries() == {
            f"shell {waiting}": "engine",
            f"run {waiting + 1}": f"shell {waiting}",
            f"shell {owner}": "engine",
        }
        assert on.harness.inspect().tasks[0].why == "sleeping"


async def test_shells_are_made_again_after_a_restart_also_of_what_only_waits() -> None:
    storage = MemoryStorage()
    async with opened(storage, Link) as on:
        on.harness.resume()
        task = await on.start(Link, 3)
        await trio.testing.wait_all_tasks_blocked()
        before = nurseries()
    assert f"run {task + 3}" in before
    async with opened(storage, Link) as on:
        assert nurseries() == {}
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert nurseries() == before


async def test_nesting_is_bounded_and_deeper_shells_hang_from_the_engine() -> None:
    async with opened(MemoryStorage(), Runs) as on:
        on.harness.resume()
        made = await chain(on, LIMITS.nesting + 10)
        tree = nurseries()
        depths = [depth_of(f"run {task_id}", tree) for task_id in made]
        assert depths == [*range(LIMITS.nesting + 1), *range(1, 10)]
        assert max(depths) == LIMITS.nesting


@mark.slow
@mark.parametrize("kind", ["running", "waiting"])
async def test_a_deep_chain_opens_and_is_aborted_from_its_end(kind: str) -> None:
    async with opened(MemoryStorage(), Runs, Link) as on:
        on.harness.resume()
        top = await deep(on, kind)
        assert len(engine_of(on).supervisor._shells) >= DEEP - 1
        record = await on.harness.abort_task(top)
        assert outcome_of(record).status == "aborted"
        assert on.harness.inspect().tasks == ()
        await trio.testing.wait_all_tasks_blocked()
        assert nurseries() == {}
        assert len(engine_of(on).supervisor._shells) == 0


@mark.slow
@mark.parametrize("kind", ["running", "waiting"])
@mark.parametrize("ending", ["left", "cancelled", "raised"])
async def test_a_deep_chain_is_closed_in_whatever_way_its_host_ends(kind: str, ending: str) -> None:
    """Each way is followed by an open that finds every task and counts no cut."""
    storage = MemoryStorage()
    raising = raises(LookupError) if ending == "raised" else nullcontext()
    with trio.CancelScope() as scope, raising:
        await host(storage, kind, ending, scope)
    assert scope.cancelled_caught == (ending == "cancelled")
    assert nurseries() == {}
    async with opened(storage, Runs, Link) as on:
        views = on.harness.inspect().tasks
        assert len(views) >= DEEP
        assert {view.restarts for view in views} == {0}
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert len(engine_of(on).supervisor._shells) >= DEEP - 1


async def host(storage: MemoryStorage, kind: str, ending: str, scope: trio.CancelScope) -> None:
    """Open, make a deep chain, and end in some way."""
    async with opened(storage, Runs, Link) as on:
        on.harness.resume()
        await deep(on, kind)
        if ending == "cancelled":
            scope.cancel()
            await trio.sleep_forever()
        if ending == "raised":
            raise LookupError("in the host")


async def deep(on: Opened, kind: str) -> TaskId:
    """A chain whose links all run, or all wait but for the last."""
    if kind == "running":
        return (await chain(on, DEEP))[0]
    top = await on.start(Link, DEEP)
    await trio.testing.wait_all_tasks_blocked()
    return top


class Fails(TaskActor[None, Any], kind="test.fails-below"):
    """Its code fails in a nursery of its own."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[Any]:
        await self.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.child)
            await trio.sleep_forever()
        raise AssertionError

    async def child(self) -> None:
        raise LookupError("below")


async def test_what_a_run_raises_does_not_leave_through_the_shells_above_it() -> None:
    async with opened(MemoryStorage(), Runs, Fails) as on:
        on.harness.resume()
        top = await on.start(Runs, 10.0)
        beside = await on.start(Runs, 5.0, owner=top)
        failing = await on.start(Fails, None, owner=top)
        assert outcome_of(await on.harness.wait_for_task(failing)).status == "faulted"
        assert outcome_of(await on.harness.wait_for_task(beside)).status == "completed"
        assert outcome_of(await on.harness.wait_for_task(top)).status == "completed"
        assert trio.current_time() == 10
