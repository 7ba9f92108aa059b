"""Small stories, cut at every durable write and around every effect, and finished afterwards."""

from __future__ import annotations

import pytest
import trio

from pidurable_actors import NOT_DONE, Reply, ScriptedModel, Settings, Tool, ToolApi, tool
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import text_of
from pidurable_actors.settings import RetrySettings
from tests._agents import (
    STORE_FIRST,
    all_entries,
    call,
    calling,
    interrupted,
    open_agent,
    peek,
    short,
)
from tests.crash.sweep import Story, World, explore, results_of, submissions_of

ROUNDS = Settings(progress=STORE_FIRST)
PATIENT = RetrySettings(max_retries=8, base_s=2, cap_s=8)


def tools_of(world: World) -> list[Tool]:
    """Tools whose effects are seen from outside, with every replay policy."""

    @tool(replay="safe")
    async def search(*, api: ToolApi) -> str:
        """Search; running it again does no harm."""
        world.effect("search")
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
        world.effect(f"keyed {api.idempotency_key}")
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
        return "opened" if "looked_up" in world.effects else NOT_DONE

    @tool(mode="sequential")
    async def first() -> str:
        """Go first."""
        world.effect("first")
        await trio.sleep(1)
        return "first"

    return [search, ticket, keyed, looked_up, first]


def round_of(*names: str) -> Story:
    """A run with one round of calls, then an answer."""

    def script(ctx: ScriptedContext) -> Reply:
        if not ctx.answers:
            return calling(*(call(name, f"c{at}") for at, name in enumerate(names)))
        return Reply("answer", chunk=3, chunk_delay_s=1)

    async def story(world: World) -> None:
        async with open_agent(
            world.watched(),
            ScriptedModel(script),
            *tools_of(world),
            settings=Settings(progress=STORE_FIRST, retry=PATIENT),
        ) as agent:
            submission = await agent.root.submit("go", request_id="r1")
            await submission.wait()

    return story


def check_tools(world: World) -> None:
    """Each policy keeps its promise."""
    results = results_of(world)
    if "search" in results:
        assert not results["search"].is_error
        assert "search" in world.effects
    for name in ("ticket", "first"):
        if name in results:
            _check_unsafe(world, name)
    if "looked_up" in results:
        assert not results["looked_up"].is_error
        assert world.effects.count("looked_up") == 1
    if "keyed" in results:
        assert not results["keyed"].is_error
        assert len({name for name in world.effects if name.startswith("keyed")}) == 1
    (submission,) = submissions_of(world)
    assert submission.status == "done"


def _check_unsafe(world: World, name: str) -> None:
    result = results_of(world)[name]
    done = world.effects.count(name)
    assert done <= 1, f"{name} ran {done} times"
    if result.is_error:
        assert text_of(result.content) in (interrupted(name), "working\n" + interrupted(name))
    else:
        assert done == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["search", "ticket", "keyed", "looked_up"])
async def test_one_tool_call_keeps_its_promise_at_every_crash_point(name: str) -> None:
    assert await explore(round_of(name), check_tools) > 15


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "ticket",
        "looked_up",
        pytest.param("search", marks=pytest.mark.soak),
        pytest.param("keyed", marks=pytest.mark.soak),
    ],
)
async def test_one_tool_call_keeps_its_promise_when_the_recovery_is_cut_too(name: str) -> None:
    assert await explore(round_of(name), check_tools, depth=2) > 200


@pytest.mark.slow
async def test_a_parallel_round_keeps_every_promise_at_every_crash_point() -> None:
    tried = await explore(round_of("search", "ticket", "keyed", "looked_up"), check_tools)
    assert tried > 30


@pytest.mark.slow
async def test_a_sequential_round_starts_each_call_after_the_one_before() -> None:
    def check(world: World) -> None:
        check_tools(world)
        with peek(world.storage) as stored:
            lines = [short(m) for entry in all_entries(stored) for m in entry.model or ()]
        results = [line.split()[1] for line in lines if line.startswith(("result", "error"))]
        assert results == ["c0", "c1", "c2"]

    assert await explore(round_of("search", "first", "ticket"), check) > 30


async def test_failing_requests_are_retried_wherever_the_wait_is_cut() -> None:
    """The first two requests of the world fail; the count of them is outside the storage."""

    async def story(world: World) -> None:
        def script(_: ScriptedContext) -> Reply | ProviderError:
            world.effect("asked")
            if world.effects.count("asked") <= 2:
                return ProviderError("overloaded", retryable=True)
            return Reply("answer")

        async with open_agent(
            world.watched(), ScriptedModel(script), settings=Settings(retry=PATIENT)
        ) as agent:
            await (await agent.root.submit("go", request_id="r1")).wait()

    def check(world: World) -> None:
        (submission,) = submissions_of(world)
        assert submission.status == "done"
        assert 3 <= world.effects.count("asked") <= 4
        with peek(world.storage) as stored:
            assert len([e for e in all_entries(stored) if e.kind == "pi.user"]) == 1

    assert await explore(story, check) > 15


async def test_queued_follow_ups_are_answered_once_each_and_in_order() -> None:
    names = ["one", "two", "three"]

    def script(ctx: ScriptedContext) -> Reply:
        return Reply(f"re: {ctx.user_text}", delay_s=1)

    async def story(world: World) -> None:
        async with open_agent(
            world.watched(), ScriptedModel(script), settings=Settings(retry=PATIENT)
        ) as agent:
            handles = [await agent.root.submit(name, request_id=name) for name in names]
            for handle in handles:
                await handle.wait()

    def check(world: World) -> None:
        with peek(world.storage) as stored:
            entries = all_entries(stored)
        assert [short(m) for entry in entries for m in entry.model or ()] == [
            line for name in names for line in (f"user {name}", f"assistant re: {name}")
        ]
        assert [record.status for record in submissions_of(world)] == ["done"] * 3

    assert await explore(story, check) > 15


async def test_a_steer_is_placed_and_answered_once_wherever_it_is_cut() -> None:
    """C37: taken from the inbox and placed in the transcript is one commit."""

    def script(ctx: ScriptedContext) -> Reply:
        if not ctx.answers:
            return calling(call("search", "c0"))
        return Reply(f"re: {ctx.user_text}")

    async def story(world: World) -> None:
        async with open_agent(
            world.watched(),
            ScriptedModel(script),
            *tools_of(world),
            settings=Settings(progress=STORE_FIRST, retry=PATIENT),
        ) as agent:
            first = await agent.root.submit("go", request_id="r1")
            steer = await agent.root.submit("left", request_id="r2", when_busy="steer")
            for handle in (first, steer):
                await handle.wait()

    def check(world: World) -> None:
        with peek(world.storage) as stored:
            lines = [short(m) for entry in all_entries(stored) for m in entry.model or ()]
        assert [line for line in lines if line.startswith("user")] == ["user go", "user left"]
        assert lines[-1] == "assistant re: left"
        assert [record.status for record in submissions_of(world)] == ["done", "done"]

    assert await explore(story, check) > 15


@pytest.mark.parametrize("sequential", [False, True])
async def test_an_abort_leaves_a_legal_transcript_at_every_crash_point(*, sequential: bool) -> None:
    names = ("first", "ticket", "search") if sequential else ("ticket", "search")

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.answers:
            return Reply("answer")
        return calling(*(call(name, f"c{at}") for at, name in enumerate(names)))

    async def story(world: World) -> None:
        async with open_agent(
            world.watched(), ScriptedModel(script), *tools_of(world), settings=ROUNDS
        ) as agent:
            running = await agent.root.submit("go", request_id="r1")
            queued = await agent.root.submit("more", request_id="r2")
            await trio.sleep(0.5)
            await agent.root.abort()
            for handle in (running, queued):
                await handle.wait()

    def check(world: World) -> None:
        running, queued = submissions_of(world)
        assert running.reason in (None, "aborted")
        assert queued.reason in (None, "aborted", "withdrawn")
        assert world.effects.count("ticket") <= 1

    assert await explore(story, check) > 15
