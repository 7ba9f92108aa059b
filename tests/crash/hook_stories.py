"""Stories of hooks: one that decides by a coin, one that continues a run, and one that undoes.

What a hook does may happen again after a crash; what it decided must not change once it has noted
it, and what follows from it is in the transcript once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import trio

from pidurable_actors import (
    AgentChoice,
    Conversation,
    Extension,
    Models,
    Registry,
    Reply,
    ScriptedModel,
    ToolResult,
    tool,
)
from pidurable_actors.agent import Block, Hook, HookApi, Rewrite, Section, ToolCallEvent, hook
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import AssistantMessage, text_of
from pidurable_actors.testing import World
from tests._agents import MODEL, call, calling
from tests._strict import Script, strictly
from tests.crash.stories import SETTINGS, Told, lines_of, results_of, statuses_of

__all__ = ["HOOKS"]


@asynccontextmanager
async def hooked(world: World, script: Script, *hooks: Hook) -> AsyncIterator[Conversation]:
    """The root conversation of a harness with ``add`` and ``act`` and an extension of hooks."""

    @tool(replay="safe")
    async def add(a: int, b: int = 1) -> str:
        """Add two numbers."""
        world.effect(f"add {a}", repeatable=True)
        await trio.sleep(1)
        return str(a + b)

    @tool()
    async def act() -> str:
        """Act on the world."""
        world.effect("act")
        await trio.sleep(2)
        return "acted"

    registry = Registry(
        [
            Extension("tools", tools=[add, act]),
            Extension("hooks", hooks=hooks, sections=[Section("rules", "Be kind.")]),
        ]
    )
    models = Models([ScriptedModel(strictly(script))])
    async with world.open_harness(registry=registry, models=models, settings=SETTINGS) as harness:
        yield await harness.root(agent=AgentChoice(model=MODEL))


def adding(ctx: ScriptedContext) -> Reply:
    """Calls ``add`` twice, and is done."""
    if ctx.answers:
        return Reply("done")
    return calling(call("add", "c1", a=1), call("add", "c2", a=2))


# --- a coin ---


async def coin(world: World) -> None:
    """A hook throws a coin for each call and notes how it fell; each life has coins of its own."""

    async def decide(event: ToolCallEvent, api: HookApi) -> Block | Rewrite:
        thrown = (world.life + int(event.call_id[1])) % 2
        fell = await api.set_memo(f"coin {event.call_id}", thrown)
        world.effect(f"{event.call_id} fell {fell}", repeatable=True)
        await trio.sleep(1)
        return Block("tails") if fell else Rewrite({**event.arguments, "b": 100})

    async with hooked(world, adding, hook.before_tool(decide)) as root:
        await (await root.submit("go", request_id="r1")).wait()


def check_coin(world: World) -> None:
    """A coin that fell falls no other way, whoever asks, and the result is what it said."""
    assert statuses_of(world) == ["done"]
    lines = lines_of(world)
    for call_id in ("c1", "c2"):
        heads, tails = (world.count(f"{call_id} fell {side}") for side in (0, 1))
        assert bool(heads) != bool(tails), f"{call_id} fell both ways"
        (line,) = [line for line in lines if line.split()[1] == call_id]
        number = 100 + int(call_id[1])
        expected = f"result {call_id} {number}" if heads else f"error {call_id} "
        assert line.startswith(expected), line
        assert ("was blocked: tails" in line) == bool(tails)


# --- every point of a run ---


async def every_point(world: World) -> None:
    """Results are replaced, answers are rewritten, and the first end of the run is none."""

    async def rewritten(message: AssistantMessage, _: HookApi) -> None:
        await trio.sleep(0.5)

    async def replaced(_: ToolCallEvent, result: ToolResult, __: HookApi) -> ToolResult:
        world.effect("replaced", repeatable=True)
        await trio.sleep(0.5)
        return ToolResult(f"[{text_of(result.content)}]")

    async def told(results: object, api: HookApi) -> None:
        await api.set_memo("rounds", 1)
        world.effect("round", repeatable=True)

    async def more(message: AssistantMessage, api: HookApi) -> str | None:
        asked = await api.set_memo(f"asked {text_of(message.content)}", "go on")
        await trio.sleep(0.5)
        return str(asked) if text_of(message.content) == "first" else None

    def script(ctx: ScriptedContext) -> Reply:
        if not ctx.answers:
            return calling(call("add", "c1", a=1), call("act", "c2"))
        return Reply("last" if ctx.user_text == "go on" else "first")

    hooks = (
        hook.after_response(rewritten),
        hook.after_tool(replaced),
        hook.after_tools(told),
        hook.on_yield(more),
    )
    async with hooked(world, script, *hooks) as root:
        await (await root.submit("go", request_id="r1")).wait()


def check_every_point(world: World) -> None:
    """The run went on once, and what is stored of a call is what the hook made of it."""
    assert statuses_of(world) == ["done"]
    whole = [
        line
        for line in lines_of(world)
        if not line.endswith("(aborted)") and not line.startswith("system")
    ]
    assert whole[4:] == ["assistant first", "user go on", "assistant last"]
    results = results_of(world)
    assert text_of(results["add"].content) == "[2]"
    if results["act"].is_error:
        assert world.crashes, "only a crash makes a result unknown"
    else:
        assert text_of(results["act"].content) == "[acted]"
    assert world.count("round") >= 1


# --- an abort ---


async def undone(world: World) -> None:
    """An abort in the middle of a call, which a hook is told of."""

    async def undo(event: ToolCallEvent, api: HookApi) -> None:
        key = await api.set_memo("undo", f"undo-{event.call_id}")
        world.effect("undo", key=str(key))
        await trio.sleep(1)

    def script(ctx: ScriptedContext) -> Reply:
        return Reply("done") if ctx.answers else calling(call("act", "c1"))

    async with hooked(world, script, hook.on_abort(undo)) as root:
        submission = await root.submit("go", request_id="r1")
        await trio.sleep(1)
        await root.abort(reason="enough")
        await submission.wait()


def check_undone(world: World) -> None:
    """A call that was aborted was undone, once by its key; one that was not was not."""
    (submission,) = world.records.submissions.values()
    assert submission.reason in (None, "aborted")
    result = results_of(world).get("act")
    if result is not None and "was aborted" in text_of(result.content):
        assert world.count("undo") == 1
    if result is not None and not result.is_error:
        assert not world.count("undo")


HOOKS: Final[Mapping[str, Told]] = {
    "hooks, a coin": Told(coin, check_coin),
    "hooks, every point": Told(every_point, check_every_point),
    "hooks, an abort": Told(undone, check_undone),
}
