"""The stories of the product, as the crash kit runs them, each with what it promises besides.

A story is an async function of a world that starts or continues; the same code runs after every
crash. The catalogue at the end is what the tests explore and what ``python -m tests.crash`` prints
figures for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal, TypeAlias

import attrs
import trio

from pidurable_actors import (
    MISSING,
    NOT_DONE,
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
    Settings,
    SleepUntil,
    TaskActor,
    Tool,
    ToolApi,
    Tx,
    define_doc,
    phase,
    tool,
)
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import (
    CompletedOutcome,
    TaskId,
    Terminal,
    ToolResultMessage,
    text_of,
)
from pidurable_actors.settings import RetrySettings
from pidurable_actors.testing import World
from tests._agents import MODEL, STORE_FIRST, call, calling, interrupted, short

Story: TypeAlias = Callable[[World], Awaitable[None]]
Script: TypeAlias = Callable[[ScriptedContext], Reply | ProviderError]

PATIENT: Final = RetrySettings(max_retries=8, base_s=2, cap_s=8)
SETTINGS: Final = Settings(progress=STORE_FIRST, retry=PATIENT)


@attrs.frozen
class Told:
    """A story and what its world promises at the end, besides the invariants."""

    story: Story
    check: Callable[[World], None]


@asynccontextmanager
async def conversation(
    world: World, script: Script, *tools: Tool, settings: Settings = SETTINGS
) -> AsyncIterator[Conversation]:
    """The root conversation of the world's harness, with one scripted model and some tools."""
    async with world.open_harness(
        registry=Registry([Extension("story", tools=tools)]),
        models=Models([ScriptedModel(script)]),
        settings=settings,
    ) as harness:
        yield await harness.root(agent=AgentChoice(model=MODEL))


def lines_of(world: World) -> list[str]:
    """The root transcript in short, oldest first."""
    return [short(m) for entry in world.records.transcript() for m in entry.model or ()]


def results_of(world: World) -> dict[str, ToolResultMessage]:
    """The stored results by tool name; of several of one tool, the last."""
    return {
        message.tool_name: message
        for entry in world.records.transcript()
        for message in entry.model or ()
        if isinstance(message, ToolResultMessage)
    }


def statuses_of(world: World) -> list[str]:
    """How the submissions ended, in the order they came."""
    return [record.status for record in world.records.submissions.values()]


# --- the counter that is closed or killed ---


@attrs.frozen
class CountTo:
    """How far."""

    to: int


@attrs.frozen
class Tick(Checkpoint, phase="tick"):
    """The number to print next."""

    n: int = 1


@attrs.define
class Started:
    """The one counter of the conversation."""

    task_id: int = 0


STARTED: Final = define_doc("app.started", Started)


async def counter(world: World) -> None:
    """Count to five; a memo before each effect makes it at most once."""

    class Ticker(TaskActor[CountTo, str], kind="example.ticker"):
        def start(self) -> Tick:
            return Tick()

        @phase(Tick)
        async def tick(self, at: Tick) -> Next[str]:
            if await self.memo(f"printed-{at.n}") is MISSING:
                await self.set_memo(f"printed-{at.n}", value=True)
                world.effect(f"tick {at.n}")
            if at.n == self.input.to:
                return Completed(f"counted to {at.n}")
            return SleepUntil(self.now_ms() + 50, Tick(at.n + 1))

    async def start_once(tx: Tx) -> TaskId:
        started = await tx.doc(STARTED)
        if not started.task_id:
            started.task_id = tx.create_task(Ticker, CountTo(5))
        return TaskId(started.task_id)

    registry = Registry([Extension("counter", tasks=[Ticker])])
    async with world.open_harness(registry=registry) as harness:
        root = await harness.root()
        await harness.wait_for_task(await root.commit(start_once))


def check_counter(world: World) -> None:
    """The count is whole; one crash loses at most one tick."""
    (task,) = world.records.tasks.values()
    assert isinstance(task.state, Terminal)
    assert task.state.outcome == CompletedOutcome(result="counted to 5")
    ticks = [effect.name for effect in world.effects]
    assert ticks == sorted(ticks)
    assert len(ticks) >= 5 - len(world.crashes)


# --- tools with every replay policy ---


def tools_of(world: World) -> dict[str, Tool]:
    """Tools whose effects are seen from outside."""

    @tool(replay="safe")
    async def search(*, api: ToolApi) -> str:
        """Search; running it again does no harm."""
        world.effect("search", repeatable=True)
        await api.output("searching\n")
        await trio.sleep(1)
        return "3 matches"

    @tool()
    async def ticket(*, api: ToolApi) -> str:
        """Open a ticket."""
        world.effect("ticket")
        await api.output("working\n")
        await trio.sleep(2)
        return "opened"

    @tool(replay="safe")
    async def keyed(*, api: ToolApi) -> str:
        """Open a ticket in a service that knows keys."""
        world.effect("keyed", key=api.idempotency_key)
        await trio.sleep(1)
        return "opened"

    @tool(replay="reconcile")
    async def looked_up() -> str:
        """Open a ticket that can be looked up."""
        await trio.sleep(1)
        world.effect("looked_up")
        return "opened"

    @looked_up.reconcile
    async def find(_: object, __: ToolApi) -> object:
        await trio.lowlevel.checkpoint()
        return "opened" if world.count("looked_up") else NOT_DONE

    @tool(mode="sequential")
    async def first() -> str:
        """Go first."""
        world.effect("first")
        await trio.sleep(1)
        return "first"

    return {made.name: made for made in (search, ticket, keyed, looked_up, first)}


def round_of(*names: str) -> Story:
    """A run with one round of calls, then a streamed answer."""

    def script(ctx: ScriptedContext) -> Reply:
        if not ctx.answers:
            return calling(*(call(name, f"c{at}") for at, name in enumerate(names)))
        return Reply("answer", chunk=3, chunk_delay_s=1)

    async def story(world: World) -> None:
        async with conversation(world, script, *tools_of(world).values()) as root:
            await (await root.submit("go", request_id="r1")).wait()

    return story


async def kill9(world: World) -> None:
    """Search the logs, then open a ticket: two rounds."""

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.tool_results("ticket"):
            return Reply("done")
        return calling(call("ticket", "c1") if ctx.tool_results("search") else call("search", "c0"))

    async with conversation(world, script, *tools_of(world).values()) as root:
        await (await root.submit("Investigate", request_id="i1")).wait()


def check_tools(world: World) -> None:
    """Each policy keeps its promise."""
    results = results_of(world)
    for name in ("search", "keyed", "looked_up"):
        if name in results:
            assert not results[name].is_error
            assert world.count(name) >= 1
    for name in ("ticket", "first"):
        if name in results:
            _check_unsafe(world, name, results[name])
    if "keyed" in results:
        assert world.count("keyed") == 1
    assert statuses_of(world) == ["done"]


def _check_unsafe(world: World, name: str, result: ToolResultMessage) -> None:
    if result.is_error:
        assert world.crashes, "only a crash makes a result unknown"
        assert text_of(result.content) in (interrupted(name), "working\n" + interrupted(name))
    else:
        assert world.count(name) == 1


def check_sequence(world: World) -> None:
    """Each call starts after the one before has its result."""
    check_tools(world)
    told = [line.split()[1] for line in lines_of(world) if line.startswith(("result", "error"))]
    assert told == ["c0", "c1", "c2"]


# --- what clients and providers do ---


async def retrying_client(world: World) -> None:
    """Three clients send the same request at once, and each sends it again after a while."""
    answers: list[str] = []

    async def client(root: Conversation) -> None:
        for _ in range(2):
            answers.append(await (await root.submit("pay", request_id="pay-1")).answer())
            await trio.sleep(1)

    async with (
        conversation(world, lambda ctx: Reply(f"re: {ctx.user_text}", delay_s=1)) as root,
        trio.open_nursery() as clients,
    ):
        for _ in range(3):
            clients.start_soon(client, root)
    assert answers == ["re: pay"] * 6


def check_one_answer(world: World) -> None:
    """One submission, one run, one answer; a cut answer stays, marked as such."""
    assert statuses_of(world) == ["done"]
    whole = [line for line in lines_of(world) if not line.endswith("(aborted)")]
    assert whole == ["user pay", "assistant re: pay"]


async def failing_requests(world: World) -> None:
    """The first two requests of the world fail; their count is outside the storage."""

    def script(_: ScriptedContext) -> Reply | ProviderError:
        world.effect("asked", repeatable=True)
        if world.count("asked") <= 2:
            return ProviderError("overloaded", retryable=True)
        return Reply("answer")

    async with conversation(world, script) as root:
        await (await root.submit("go", request_id="r1")).wait()


def check_failing_requests(world: World) -> None:
    """Two failures, an answer, and one more request for each crash at most."""
    assert statuses_of(world) == ["done"]
    assert 3 <= world.count("asked") <= 3 + len(world.crashes)
    assert sum(line.startswith("user") for line in lines_of(world)) == 1


NAMES: Final = ("one", "two", "three")


async def follow_ups(world: World) -> None:
    """Three inputs, two of which are queued while the first is answered."""
    async with conversation(world, lambda ctx: Reply(f"re: {ctx.user_text}", delay_s=1)) as root:
        handles = [await root.submit(name, request_id=name) for name in NAMES]
        for handle in handles:
            await handle.wait()


def check_follow_ups(world: World) -> None:
    """Each is answered once, in the order they came."""
    assert statuses_of(world) == ["done"] * 3
    whole = [line for line in lines_of(world) if not line.endswith("(aborted)")]
    assert whole == [line for name in NAMES for line in (f"user {name}", f"assistant re: {name}")]


async def steer(world: World) -> None:
    """A steer joins a run between its tool round and its answer."""

    def script(ctx: ScriptedContext) -> Reply:
        if not ctx.answers:
            return calling(call("search", "c0"))
        return Reply(f"re: {ctx.user_text}")

    async with conversation(world, script, *tools_of(world).values()) as root:
        first = await root.submit("go", request_id="r1")
        left = await root.submit("left", request_id="r2", when_busy="steer")
        for handle in (first, left):
            await handle.wait()


def check_steer(world: World) -> None:
    """C37: taken from the inbox and placed in the transcript is one commit."""
    lines = lines_of(world)
    assert [line for line in lines if line.startswith("user")] == ["user go", "user left"]
    assert lines[-1] == "assistant re: left"
    assert statuses_of(world) == ["done", "done"]


def abort_of(*names: str) -> Story:
    """A run that is aborted in its tool round while another input is queued."""

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.answers:
            return Reply("answer")
        return calling(*(call(name, f"c{at}") for at, name in enumerate(names)))

    async def story(world: World) -> None:
        async with conversation(world, script, *tools_of(world).values()) as root:
            running = await root.submit("go", request_id="r1")
            queued = await root.submit("more", request_id="r2")
            await trio.sleep(0.5)
            await root.abort()
            for handle in (running, queued):
                await handle.wait()

    return story


def check_abort(world: World) -> None:
    """C28: whatever was cut, each call has one result and each input its reason."""
    running, queued = world.records.submissions.values()
    assert running.reason in (None, "aborted")
    assert queued.reason in (None, "aborted", "withdrawn")


# --- restart limits ---


def cut_off(policy: Literal["end", "park"]) -> Story:
    """A safe call under a restart limit of two; a parked call is tried again by its operator."""

    def script(ctx: ScriptedContext) -> Reply:
        return Reply("answer") if ctx.answers else calling(call("search", "c0"))

    settings = attrs.evolve(SETTINGS, restart_limit=2, on_restart_limit=policy)

    async def story(world: World) -> None:
        tools = tools_of(world).values()
        async with world.open_harness(
            registry=Registry([Extension("story", tools=tools)]),
            models=Models([ScriptedModel(script)]),
            settings=settings,
        ) as harness:
            root = await harness.root(agent=AgentChoice(model=MODEL))
            submission = await root.submit("go", request_id="r1")
            with trio.move_on_after(60):
                await submission.wait()
                return
            for task in harness.inspect().tasks:
                if task.why == "parked":
                    await harness.retry_task(task.id)
            await submission.wait()

    return story


def check_cut_off(world: World) -> None:
    """Nothing runs more often than the limit lets it, and the input is settled all the same."""
    (submission,) = world.records.submissions.values()
    assert submission.status in ("done", "unanswered")
    runs = Counter(report.reason for report in world.reports if report.kind == "task_interrupted")
    assert runs["restart_limit"] <= 1
    if "search" in (results := results_of(world)) and results["search"].is_error:
        assert len(world.crashes) >= 2
        assert "cut off too often" in text_of(results["search"].content)


STORIES: Final[Mapping[str, Told]] = {
    "counter": Told(counter, check_counter),
    "kill -9": Told(kill9, check_tools),
    "tracker, default": Told(round_of("ticket"), check_tools),
    "tracker, safe": Told(round_of("search"), check_tools),
    "tracker, safe with a key": Told(round_of("keyed"), check_tools),
    "tracker, reconcile": Told(round_of("looked_up"), check_tools),
    "parallel round": Told(round_of("search", "ticket", "keyed", "looked_up"), check_tools),
    "sequential round": Told(round_of("search", "first", "ticket"), check_sequence),
    "retrying clients": Told(retrying_client, check_one_answer),
    "retries with backoff": Told(failing_requests, check_failing_requests),
    "queued follow-ups": Told(follow_ups, check_follow_ups),
    "steer": Told(steer, check_steer),
    "abort, parallel": Told(abort_of("ticket", "search"), check_abort),
    "abort, sequential": Told(abort_of("first", "ticket", "search"), check_abort),
    "restart limit, end": Told(cut_off("end"), check_cut_off),
    "restart limit, park": Told(cut_off("park"), check_cut_off),
}
