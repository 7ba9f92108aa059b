"""Ownership: who may own what, what waits for whom, and in which order things end.

The tasks here are `Node`s, which do what their `Plan` says; the tree is made from outside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar, Literal

import attrs
import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import (
    Aborted,
    Completed,
    Conversation,
    Failed,
    Next,
    Outcome,
    SleepUntil,
    TaskActor,
    Tx,
    WaitFor,
    phase,
)
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import TaskRefused
from pidurable_actors.records import (
    AbortedOutcome,
    ConversationId,
    FaultedOutcome,
    OrphanedOutcome,
    PutTask,
    TaskId,
    TaskOutcome,
    Waiting,
)
from pidurable_actors.session import Publication
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import HangingStorage
from tests._tasks import At, One, Opened, Sleeper, opened, outcome_of, registry_of, until

HOUR_S = 3_600.0


@attrs.frozen
class Plan:
    """What a node does: after a while it ends in some way, or else it runs until it is aborted."""

    name: str = "node"
    ends: Literal["never", "completed", "failed", "faulted"] = "never"
    after_s: float = 0
    undo_s: float = 0


class Node(TaskActor[Plan, str], kind="test.node"):
    """Does as planned; notes when its abort handler begins and ends."""

    log: ClassVar[list[str]] = []

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[str]:
        await self.sleep(self.input.after_s)
        match self.input.ends:
            case "completed":
                return Completed(self.input.name)
            case "failed":
                return Failed(self.input.name)
            case "faulted":
                raise LookupError(self.input.name)
            case _:
                await trio.sleep_forever()
                raise AssertionError

    async def abort(self) -> Outcome:
        self.log.append(f"{self.input.name} begins")
        await trio.sleep(self.input.undo_s)
        self.log.append(f"{self.input.name} ends")
        return Aborted(self.input.name)


class Guest(Node, kind="test.guest"):
    """A node whose class is installed only when a test says so."""


@attrs.frozen
class Tree:
    """An open harness in which nodes are made."""

    on: Opened

    async def node(self, plan: Plan | None = None, **where: Any) -> TaskId:
        """Start a node in the root conversation, or where it is told."""
        return await self.on.root.commit(lambda tx: tx.create_task(Node, plan or Plan(), **where))

    async def owned(self, owner: TaskId) -> Conversation:
        """A conversation that a task owns."""
        made = await self.on.harness.commit(lambda tx: tx.create_conversation(owner=owner))
        return await self.on.harness.conversation(made.id)

    async def inside(self, conversation: Conversation, plan: Plan | None = None) -> TaskId:
        """Start a node at the top of a conversation."""
        return await self.node(plan, conversation_id=conversation.id)

    async def end(self, task_id: TaskId) -> TaskOutcome:
        """Wait for the end of a task."""
        return outcome_of(await self.on.harness.wait_for_task(task_id))

    async def status(self, task_id: TaskId) -> str:
        """The stored status."""
        return (await self.on.harness.get_task(task_id)).state.status

    async def ended_ms(self, task_id: TaskId) -> int:
        """When it ended."""
        ended_ms = (await self.on.harness.get_task(task_id)).ended_at_ms
        assert ended_ms is not None
        return ended_ms

    def why(self) -> dict[int, str]:
        """Why each live task runs or does not."""
        return {view.id: view.why for view in self.on.harness.inspect().tasks}


@asynccontextmanager
async def tree(*more: type[TaskActor[Any, Any]]) -> AsyncIterator[Tree]:
    """A harness that schedules nodes, for a day: what never ends fails its test."""
    Node.log.clear()
    with trio.fail_after(24 * HOUR_S):
        async with opened(MemoryStorage(), Node, Sleeper, *more) as on:
            on.harness.resume()
            yield Tree(on)


# --- edges that are refused ---


async def test_an_owner_that_is_missing_or_has_ended_is_refused() -> None:
    async with tree() as at:
        ended = await at.node(Plan(ends="completed"))
        await at.end(ended)
        for owner in (TaskId(999), ended):
            with raises(TaskRefused, match=f"task {owner} is ending or missing") as refused:
                await at.node(owner=owner)
            assert refused.value.task_id == owner
            with raises(TaskRefused, match=f"task {owner} is ending or missing"):
                await at.owned(owner)


async def test_an_owner_that_completes_is_refused_also_by_way_of_its_conversation() -> None:
    async with tree() as at:
        owner = await at.node(Plan(ends="completed", after_s=1))
        mine = await at.owned(owner)
        await at.node(Plan(ends="completed", after_s=5), owner=owner)
        await trio.sleep(2)
        assert await at.status(owner) == "completing"
        with raises(TaskRefused, match="ending or missing"):
            await at.node(owner=owner)
        with raises(TaskRefused, match="ending or missing"):
            await at.owned(owner)
        with raises(TaskRefused, match="ending or missing"):
            await at.inside(mine)


async def test_an_owner_with_an_abort_mark_is_refused_also_by_way_of_its_conversation() -> None:
    async with tree() as at, trio.open_nursery() as nursery:
        owner = await at.node(Plan(undo_s=60))
        mine = await at.owned(owner)
        nursery.start_soon(at.on.harness.abort_task, owner)
        await trio.sleep(1)
        with raises(TaskRefused, match="being aborted"):
            await at.node(owner=owner)
        with raises(TaskRefused, match="being aborted"):
            await at.owned(owner)
        with raises(TaskRefused, match="being aborted"):
            await at.inside(mine)


async def test_an_owner_in_another_conversation_is_refused() -> None:
    async with tree() as at:
        owner = await at.node()
        mine = await at.owned(owner)
        with raises(TaskRefused, match="belongs to another conversation"):
            await at.node(owner=owner, conversation_id=mine.id)


async def test_background_work_below_a_task_is_refused_and_refusals_store_nothing() -> None:
    async with tree() as at:
        owner = await at.node()

        def change(tx: Tx) -> None:
            tx.create_task(Node, Plan(), owner=owner)
            tx.create_task(Node, Plan(), owner=owner, background=True)

        with raises(TaskRefused, match="owned by its conversation"):
            await at.on.root.commit(change)
        assert list(at.why()) == [owner]


async def test_work_made_in_the_commit_that_ends_its_owner_is_refused() -> None:
    async with tree() as at:
        owner = await at.node()
        mine = await at.owned(owner)

        async def change(tx: Tx, where: ConversationId | None) -> None:
            record = await tx.task(owner)
            tx.tasks.put(attrs.evolve(record, abort_requested=True))
            tx.create_task(
                Node, Plan(), owner=None if where else owner, conversation_id=where or None
            )

        for where in (None, mine.id):
            with raises(TaskRefused, match="being aborted"):
                await at.on.root.commit(partial(change, where=where))
        assert at.why() == {owner: "running"}


async def test_background_work_may_begin_where_the_owner_has_ended() -> None:
    async with tree() as at:
        owner = await at.node(Plan(ends="completed", after_s=1))
        mine = await at.owned(owner)
        await at.end(owner)
        stays = await at.node(conversation_id=mine.id, background=True)
        await trio.sleep(1)
        assert at.why() == {stays: "running"}


# --- waits that are refused ---


class Waits(TaskActor[str, Any], kind="test.waits"):
    """Waits for what it may not wait for: in storage, or in its run."""

    target: ClassVar[TaskId] = TaskId(0)

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[Any]:
        target = self.task_id if type(self).target == 0 else type(self).target
        if self.input == "run":
            await self.wait_for_task(target)
        return WaitFor([target], At())

    @phase(At)
    async def at(self, at: At) -> Next[Any]:
        return Completed(None)


@mark.parametrize("how", ["stored", "run"])
@mark.parametrize("target", ["itself", "its owner", "above its conversation", "a missing task"])
async def test_waiting_for_what_cannot_end_before_is_a_fault(how: str, target: str) -> None:
    async with tree(Waits) as at:
        top = await at.node()
        middle = await at.node(owner=top)
        mine = await at.owned(middle)
        if target == "above its conversation":
            where: dict[str, Any] = {"conversation_id": mine.id}
        else:
            where = {"owner": middle}
        targets = {"itself": 0, "its owner": middle, "above its conversation": top}
        Waits.target = TaskId(targets.get(target, 999))
        waiter = await at.on.root.commit(lambda tx: tx.create_task(Waits, how, **where))
        outcome = await at.end(waiter)
        assert isinstance(outcome, FaultedOutcome)
        missing = target == "a missing task"
        assert ("no task 999" if missing else "cannot end before it") in str(outcome.error)


async def test_waiting_for_what_another_branch_owns_is_no_fault() -> None:
    async with tree(Waits) as at:
        first, second = await at.node(), await at.node()
        Waits.target = await at.node(Plan(ends="completed", after_s=5), owner=first)
        waiter = await at.on.root.commit(lambda tx: tx.create_task(Waits, "stored", owner=second))
        assert (await at.end(waiter)).status == "completed"
        assert trio.current_time() == 5


# --- abort flows down, and ends go up ---


async def deep(at: Tree) -> dict[str, TaskId]:
    """Four levels, two of them by way of a conversation; each takes a while to undo its work."""
    top = await at.node(Plan("top", undo_s=1))
    left = await at.node(Plan("left", undo_s=2), owner=top)
    right = await at.node(Plan("right", undo_s=3), owner=top)
    theirs = await at.owned(left)
    worker = await at.inside(theirs, Plan("worker", undo_s=4))
    leaf = await at.node(Plan("leaf", undo_s=5), owner=worker, conversation_id=theirs.id)
    return {"top": top, "left": left, "right": right, "worker": worker, "leaf": leaf}


async def test_handlers_run_lowest_first_across_conversations_and_branches_at_once() -> None:
    async with tree() as at:
        made = await deep(at)
        await trio.sleep(1)
        outcome = await at.on.harness.abort_task(made["top"], reason="all of it")
        assert outcome_of(outcome) == AbortedOutcome(reason="top")
        assert trio.current_time() == 1 + 5 + 4 + 2 + 1
        order = [line.split()[0] for line in Node.log if line.endswith("ends")]
        assert order == ["right", "leaf", "worker", "left", "top"]
        for above, below in (("top", "left"), ("left", "worker"), ("worker", "leaf")):
            assert Node.log.index(f"{below} ends") < Node.log.index(f"{above} begins")
        for task_id in made.values():
            assert (await at.on.harness.get_task(task_id)).abort_reason == "all of it"
        assert at.why() == {}


async def test_an_abort_in_the_middle_reaches_down_and_never_up_or_across() -> None:
    async with tree() as at:
        made = await deep(at)
        await trio.sleep(1)
        await at.on.harness.abort_task(made["left"])
        assert at.why() == {made["top"]: "running", made["right"]: "running"}


async def test_what_waits_for_its_work_to_end_says_so() -> None:
    async with tree() as at, trio.open_nursery() as nursery:
        made = await deep(at)
        await trio.sleep(1)
        nursery.start_soon(at.on.harness.abort_task, made["top"])
        await trio.sleep(4)
        views = {view.id: view for view in at.on.harness.inspect().tasks}
        assert {name: views[i].why for name, i in made.items() if i in views} == {
            "top": "aborting",
            "left": "aborting",
            "worker": "aborting",
            "leaf": "running",
        }
        assert views[made["top"]].detail == "1 live below"


@mark.slow
async def test_the_aborts_of_many_children_are_stored_in_bounded_commits() -> None:
    """A commit with ten thousand marks would hold the event loop and the line."""
    sizes: list[int] = []

    class Witness:
        def published(self, publication: Publication) -> None:
            sizes.append(sum(isinstance(c, PutTask) for c in publication.batch.changes))

    async with tree() as at:
        owner = await at.node()

        def many(tx: Tx) -> None:
            for _ in range(3 * LIMITS.wake_at_once):
                tx.create_task(Sleeper, HOUR_S, owner=owner)

        await at.on.root.commit(many)
        await trio.sleep(1)
        at.on.root._core.engine.publisher.listen(Witness().published)
        await at.on.harness.abort_task(owner)
        assert sum(sizes) >= 6 * LIMITS.wake_at_once
        assert max(sizes) <= 2 * LIMITS.wake_at_once


# --- finishing waits ---


async def test_an_outcome_is_held_while_work_in_an_owned_conversation_lives() -> None:
    async with tree() as at:
        owner = await at.node(Plan("owner", ends="completed", after_s=1))
        mine = await at.owned(owner)
        worker = await at.inside(mine, Plan(ends="completed", after_s=2))
        leaf = await at.node(
            Plan(ends="completed", after_s=7), owner=worker, conversation_id=mine.id
        )
        await trio.sleep(3)
        assert [await at.status(i) for i in (owner, worker)] == ["completing", "completing"]
        assert (await at.end(owner)).status == "completed"
        assert trio.current_time() == 7
        assert await at.ended_ms(owner) == await at.ended_ms(worker) == await at.ended_ms(leaf)


@mark.parametrize("ends", ["failed", "faulted"])
async def test_a_held_outcome_that_is_no_success_aborts_what_is_below_and_stands(
    ends: Literal["failed", "faulted"],
) -> None:
    async with tree() as at:
        owner = await at.node(Plan("owner", ends=ends, after_s=1))
        mine = await at.owned(owner)
        worker = await at.inside(mine, Plan("worker", undo_s=3))
        assert (await at.end(owner)).status == ends
        assert trio.current_time() == 4
        record = await at.on.harness.get_task(worker)
        assert record.abort_reason == f"task {owner} did not complete"
        assert outcome_of(record) == AbortedOutcome(reason="worker")


async def test_an_abort_of_what_completes_reaches_below_and_its_outcome_stands() -> None:
    async with tree() as at:
        owner = await at.node(Plan("owner", ends="completed", after_s=1))
        worker = await at.inside(await at.owned(owner), Plan("worker"))
        await trio.sleep(2)
        outcome = outcome_of(await at.on.harness.abort_task(owner, reason="enough"))
        assert outcome.status == "completed"
        assert outcome_of(await at.on.harness.get_task(worker)).status == "aborted"
        # A task that has its outcome runs no handler.
        assert Node.log == ["worker begins", "worker ends"]


async def test_a_child_that_fails_by_itself_is_its_owners_to_judge() -> None:
    async with tree() as at:
        owner = await at.node(Plan(ends="completed", after_s=5))
        child = await at.node(Plan(ends="failed", after_s=1), owner=owner)
        assert (await at.end(child)).status == "failed"
        assert (await at.end(owner)).status == "completed"
        assert trio.current_time() == 5


async def test_a_sleeper_that_goes_cold_while_its_owner_begins_to_wait_is_still_stopped() -> None:
    """Let the sleep of a child be stored in the middle of the commit in which its owner waits.

    What is stored leaves memory; but the rule that stops the others at the first failure runs in a
    commit and cannot read, so what is waited for must stay.
    """
    gate = trio.Event()

    class Late(TaskActor[None, None], kind="test.late"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            await gate.wait()
            return SleepUntil(self.now_ms() + 3_600_000, At())

        @phase(At)
        async def at(self, at: At) -> Next[None]:
            return Completed(None)

    looked, stored = trio.Event(), trio.Event()

    async def wait(tx: Tx) -> None:
        record, awaited = await tx.task(owner), (await tx.task(late)).id
        looked.set()
        await stored.wait()
        state = Waiting(checkpoint={"phase": "one"}, on=(awaited, failing), policy="fail_fast")
        tx.tasks.put(attrs.evolve(record, state=state))

    with HangingStorage(MemoryStorage()) as storage:
        async with opened(storage, Node, Late) as on, trio.open_nursery() as nursery:
            at = Tree(on)
            on.harness.resume()
            owner = await at.node()
            late = await on.start(Late, None, owner=owner)
            failing = await at.node(Plan(ends="failed", after_s=30), owner=owner)
            await trio.testing.wait_all_tasks_blocked()
            storage.hang()
            gate.set()
            await until(lambda: storage.held)
            nursery.start_soon(on.root.commit, wait)
            await looked.wait()
            storage.release()
            await until(lambda: at.why()[late] == "sleeping")
            stored.set()
            assert (await at.end(late)).status == "aborted"
            assert trio.current_time() < HOUR_S
            nursery.cancel_scope.cancel()


# --- background ---


async def test_background_work_survives_the_ordinary_abort_and_is_reached_when_asked() -> None:
    async with tree() as at:
        stays = await at.node(Plan("stays", undo_s=2), background=True)
        child = await at.node(Plan("child", undo_s=1), owner=stays)
        ordinary = await at.node(Plan("ordinary"))
        await trio.sleep(1)
        await at.on.root.abort(reason="stop")
        assert at.why() == {stays: "running", child: "running"}
        assert await at.end(ordinary) == AbortedOutcome(reason="ordinary")
        assert trio.current_time() == 1
        await at.on.root.abort(reason="all", background=True)
        assert at.why() == {}
        assert Node.log[-4:] == ["child begins", "child ends", "stays begins", "stays ends"]
        assert trio.current_time() == 4


async def test_an_abort_of_background_work_waits_for_one_that_began_before() -> None:
    async with tree() as at:
        stays = await at.node(Plan("stays", undo_s=9), background=True)
        with trio.move_on_after(1):
            await at.on.harness.abort_task(stays)
        await at.on.root.abort(background=True)
        assert trio.current_time() == 9
        assert at.why() == {}


async def test_background_work_of_an_owned_conversation_is_not_its_owners_work() -> None:
    async with tree() as at:
        owner = await at.node(Plan(ends="completed", after_s=1))
        mine = await at.owned(owner)
        stays = await at.node(conversation_id=mine.id, background=True)
        assert (await at.end(owner)).status == "completed"
        assert trio.current_time() == 1
        await mine.abort()
        assert at.why() == {stays: "running"}
        await mine.abort(background=True)
        assert at.why() == {}


async def test_neither_background_work_nor_what_it_owns_keeps_anything_busy() -> None:
    async with tree() as at:
        stays = await at.node(background=True)
        await at.node(owner=stays)
        await at.inside(await at.owned(stays))
        await at.on.root.wait_for_idle()
        await at.on.harness.wait_for_idle()
        await at.on.root.abort()
        assert trio.current_time() == 0
        assert len(at.why()) == 3


# --- idle ---


async def test_a_conversation_is_idle_when_its_ordinary_work_has_ended() -> None:
    async with tree() as at:
        owner = await at.node(Plan(ends="completed", after_s=4))
        mine = await at.owned(owner)
        await at.inside(mine, Plan(ends="completed", after_s=2))
        other = await at.on.harness.create_conversation()
        await at.inside(other, Plan(ends="completed", after_s=9))
        await mine.wait_for_idle()
        assert trio.current_time() == 2
        await at.on.root.wait_for_idle()
        assert trio.current_time() == 4
        await at.on.harness.wait_for_idle()
        assert trio.current_time() == 9


async def test_a_conversation_is_busy_while_what_it_owns_works_elsewhere() -> None:
    async with tree() as at:
        owner = await at.node(Plan(ends="completed", after_s=1))
        await at.inside(await at.owned(owner), Plan(ends="completed", after_s=6))
        await at.on.root.wait_for_idle()
        assert trio.current_time() == 6


async def test_idle_is_known_again_after_a_restart() -> None:
    storage = MemoryStorage()
    async with opened(storage, Node) as on:
        at = Tree(on)
        owner = await at.node(Plan(ends="completed", after_s=2))
        mine = await at.owned(owner)
        await at.inside(mine, Plan(ends="completed", after_s=3))
        await at.node(background=True)
    async with opened(storage, Node) as on:
        await (await on.harness.conversation(mine.id)).wait_for_idle()
        assert trio.current_time() == 3
        await on.harness.wait_for_idle()
        assert trio.current_time() == 3
        assert [view.background for view in on.harness.inspect().tasks] == [True]


# --- what is blocked ---


async def left_below(storage: MemoryStorage) -> tuple[TaskId, TaskId]:
    """A node that owns a guest in a conversation of its own; nothing has run."""
    async with opened(storage, Node, Guest) as on:
        at = Tree(on)
        owner = await at.node(Plan("owner"))
        mine = await at.owned(owner)
        guest = await mine.commit(lambda tx: tx.create_task(Guest, Plan("guest")))
    Node.log.clear()
    return owner, guest


async def test_a_task_that_is_blocked_below_holds_the_abort_until_its_kind_is_there() -> None:
    storage = MemoryStorage()
    owner, guest = await left_below(storage)
    registry = registry_of(Node)
    async with opened(storage, registry=registry) as on, trio.open_nursery() as nursery:
        at = Tree(on)
        nursery.start_soon(on.harness.abort_task, owner)
        await trio.sleep(60)
        assert at.why() == {owner: "aborting", guest: "blocked"}
        registry.install(next(iter(registry_of(Node, Guest).extensions)))
        await at.end(owner)
    assert Node.log == ["guest begins", "guest ends", "owner begins", "owner ends"]


async def test_orphaning_ends_what_is_blocked_below_and_lets_the_rest_undo_its_work() -> None:
    storage = MemoryStorage()
    owner, guest = await left_below(storage)
    async with opened(storage, Node) as on:
        at = Tree(on)
        record = await on.harness.abort_task(owner, reason="lost", orphan=True)
        assert outcome_of(record) == AbortedOutcome(reason="owner")
        orphaned = await at.end(guest)
        assert orphaned == OrphanedOutcome(reason="lost: task kind 'test.guest' is not installed")
    assert Node.log == ["owner begins", "owner ends"]


async def test_orphaning_an_owner_waits_for_what_can_still_run_below_it() -> None:
    storage = MemoryStorage()
    async with opened(storage, Node, Guest) as on:
        top = await on.start(Guest, Plan("top"))
        await on.start(Node, Plan("child", undo_s=3), owner=top)
    Node.log.clear()
    began = trio.current_time()
    async with opened(storage, Node) as on:
        record = await on.harness.abort_task(top, orphan=True)
        assert outcome_of(record).status == "orphaned"
    assert trio.current_time() == began + 3
    assert Node.log == ["child begins", "child ends"]


async def test_what_still_runs_is_not_orphaned_though_its_kind_has_gone() -> None:
    registry = registry_of(Guest)
    Node.log.clear()
    async with opened(MemoryStorage(), registry=registry) as on:
        on.harness.resume()
        task = await on.start(Guest, Plan("guest"))
        await trio.sleep(1)
        registry.uninstall("tests")
        record = await on.harness.abort_task(task, orphan=True)
        assert outcome_of(record) == AbortedOutcome(reason="guest")
        await trio.testing.wait_all_tasks_blocked()
        assert not on.root._core.engine.supervisor.running
    assert Node.log == ["guest begins", "guest ends"]
