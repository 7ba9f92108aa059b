"""Small stories in which the faults of `mutants` show; each passes every check on the product.

Owns the stories and nothing else. The invariant: none of them says what the checks say anyway.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import attrs
import trio

from pidurable_actors import (
    MISSING,
    AgentChoice,
    Checkpoint,
    Completed,
    Conversation,
    Extension,
    Models,
    Next,
    Registry,
    Reply,
    ScriptedModel,
    SleepUntil,
    TaskActor,
    Tool,
    Tx,
    WaitFor,
    define_doc,
    phase,
    tool,
)
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import TaskId
from pidurable_actors.runtime import define_entry
from pidurable_actors.testing import World
from tests._agents import MODEL, call, calling

__all__ = [
    "HEALTHY",
    "Story",
    "aborting_what_is_done",
    "calling_once",
    "cancelled",
    "charging_without_a_key",
    "counter",
    "family",
    "following_up",
    "note",
    "waiter",
]

Story: TypeAlias = Callable[[World], Awaitable[None]]


@attrs.define
class Begun:
    """Whether the story's work was begun, and what it noted."""

    tasks: list[int] = attrs.field(factory=list)


@attrs.frozen
class Note:
    """An application's entry."""

    text: str


BEGUN: Final = define_doc("test.begun", Begun)
NOTE: Final = define_entry("test.note", Note)


# --- tasks ---


@attrs.frozen
class Nothing:
    """No input."""


@attrs.frozen
class On:
    """What to wait for."""

    task: int


@attrs.frozen
class Go(Checkpoint, phase="go"):
    """The step."""

    n: int = 1


@attrs.frozen
class Rest(Checkpoint, phase="rest"):
    """The step after a wait."""


class Ticker(TaskActor[Nothing, int], kind="test.ticker"):
    """Records a memo, then sleeps; twice."""

    def start(self) -> Go:
        """Begin."""
        return Go()

    @phase(Go)
    async def go(self, at: Go) -> Next[int]:
        """One tick."""
        if await self.memo(f"tick {at.n}") is MISSING:
            await self.set_memo(f"tick {at.n}", value=at.n)
        if at.n == 2:
            return Completed(at.n)
        return SleepUntil(self.now_ms() + 50, Go(at.n + 1))


class Child(TaskActor[Nothing, None], kind="test.child"):
    """Sleeps once."""

    def start(self) -> Go:
        """Begin."""
        return Go()

    @phase(Go)
    async def go(self, at: Go) -> Next[None]:
        """Sleep."""
        return SleepUntil(self.now_ms() + 50, Rest())

    @phase(Rest)
    async def rest(self, at: Rest) -> Next[None]:
        """End."""
        return Completed(None)


class Parent(TaskActor[Nothing, None], kind="test.parent"):
    """Has its outcome while its child lives."""

    def start(self) -> Go:
        """Begin."""
        return Go()

    @phase(Go)
    async def go(self, at: Go) -> Next[None]:
        """Make a child and end."""

        async def change(tx: Tx) -> Next[None]:
            tx.create_task(Child, Nothing(), owner=self.task_id)
            return Completed(None)

        return await self.commit(change)


class Waits(TaskActor[On, None], kind="test.waits"):
    """Waits for a task."""

    def start(self) -> Go:
        """Begin."""
        return Go()

    @phase(Go)
    async def go(self, at: Go) -> Next[None]:
        """Wait."""
        return WaitFor([TaskId(self.input.task)], Rest())

    @phase(Rest)
    async def rest(self, at: Rest) -> Next[None]:
        """End."""
        return Completed(None)


async def _with_tasks(world: World, create: Callable[[Tx], Sequence[TaskId]]) -> None:
    """Create tasks once; wait until nothing but background work is live."""

    async def once(tx: Tx) -> None:
        begun = await tx.doc(BEGUN)
        if not begun.tasks:
            begun.tasks.extend(create(tx))

    registry = Registry([Extension("tasks", tasks=[Ticker, Child, Parent, Waits])])
    async with world.open_harness(registry=registry) as harness:
        root = await harness.root()
        await root.commit(once)
        await root.wait_for_idle()


async def counter(world: World) -> None:
    """A task with memos and a sleep."""
    await _with_tasks(world, lambda tx: [tx.create_task(Ticker, Nothing())])


async def family(world: World) -> None:
    """An owner that has its outcome before its child."""
    await _with_tasks(world, lambda tx: [tx.create_task(Parent, Nothing())])


async def waiter(world: World) -> None:
    """A wait in the background, which the story does not wait for."""

    def create(tx: Tx) -> Sequence[TaskId]:
        child = tx.create_task(Child, Nothing())
        return [child, tx.create_task(Waits, On(child), background=True)]

    await _with_tasks(world, create)


async def note(world: World) -> None:
    """A commit with an entry and a document."""

    async def once(tx: Tx) -> None:
        begun = await tx.doc(BEGUN)
        if not begun.tasks:
            begun.tasks.append(0)
            assert tx.conversation_id is not None
            tx.append_entry(tx.conversation_id, NOTE.new(Note("noted")))

    async with world.open_harness() as harness:
        await (await harness.root()).commit(once)


async def cancelled(world: World) -> None:
    """A commit whose caller is cancelled when the callback has run."""

    async def change(tx: Tx) -> None:
        begun = await tx.doc(BEGUN)
        begun.tasks.append(len(begun.tasks))
        scope.cancel()

    async with world.open_harness() as harness:
        root = await harness.root()
        with trio.CancelScope() as scope:
            await root.commit(change)
        await root.snapshot(BEGUN)


# --- agents ---


async def _with_agent(
    world: World, ask: Callable[[Conversation], Awaitable[object]], *tools: Tool
) -> None:
    def script(ctx: ScriptedContext) -> Reply:
        if tools and not ctx.answers:
            return calling(call(tools[0].name, "c1"))
        return Reply("answer", delay_s=1)

    async with world.open_harness(
        registry=Registry([Extension("tools", tools=tools)]),
        models=Models([ScriptedModel(script)]),
    ) as harness:
        await ask(await harness.root(agent=AgentChoice(model=MODEL)))


async def _ask(root: Conversation) -> None:
    await (await root.submit("go", request_id="r1")).wait()


async def calling_once(world: World) -> None:
    """One call of an unsafe tool."""

    @tool()
    async def ticket() -> str:
        """Open a ticket."""
        await trio.sleep(1)
        return "opened"

    await _with_agent(world, _ask, ticket)


async def charging_without_a_key(world: World) -> None:
    """A tool that says it is safe, and is not."""

    @tool(replay="safe")
    async def charge() -> str:
        """Charge."""
        world.effect("charge")
        await trio.sleep(1)
        return "charged"

    await _with_agent(world, _ask, charge)


async def aborting_what_is_done(world: World) -> None:
    """An input that is withdrawn too late."""

    async def ask(root: Conversation) -> None:
        submission = await root.submit("go", request_id="r1")
        await submission.wait()
        await submission.abort()

    await _with_agent(world, ask)


async def following_up(world: World) -> None:
    """An input that is queued, and not waited for."""

    async def ask(root: Conversation) -> None:
        first = await root.submit("go", request_id="r1")
        await root.submit("more", request_id="r2")
        await first.wait()

    await _with_agent(world, ask)


HEALTHY: Final[Sequence[Story]] = (
    counter,
    family,
    waiter,
    note,
    cancelled,
    calling_once,
    aborting_what_is_done,
    following_up,
)
"""The stories that the product tells without a fault."""
