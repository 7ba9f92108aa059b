"""Inboxes that fill up: in which order what waits is placed, whatever ends the run before."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pidurable_actors import Reply, ScriptedModel, Settings, tool
from pidurable_actors.agent import INBOX, LIVE
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import ScriptedContext
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import Agent, call, calling, open_agent
from tests._strict import strictly


@tool(replay="safe")
async def work() -> str:
    """Work for ten seconds."""
    await trio.sleep(10)
    return "worked"


def working(ctx: ScriptedContext) -> Reply | ProviderError:
    """Works for "go", refuses "bad", and echoes what else it is asked."""
    if ctx.user_text == "go":
        return calling(call("work"))
    if ctx.user_text == "bad":
        return ProviderError("refused", retryable=False)
    return Reply(f"re: {ctx.user_text}", delay_s=1)


def model() -> ScriptedModel:
    """A strict model."""
    return ScriptedModel(strictly(working))


async def fill(agent: Agent) -> list[Any]:
    """A run under way, and behind it a follow-up, a steer, another follow-up, another steer."""
    first = await agent.root.submit("go")
    await trio.sleep(1)
    kinds = [("f1", "follow_up"), ("s1", "steer"), ("f2", "follow_up"), ("s2", "steer")]
    return [first] + [await agent.root.submit(name, when_busy=kind) for name, kind in kinds]  # type: ignore[arg-type]


async def users(agent: Agent) -> list[str]:
    """What the user said, in the order in which it was placed."""
    return [line[5:] for line in await agent.lines() if line.startswith("user ")]


ORDERS = [
    ("one", "one", ["go", "s1", "f1", "f2", "s2"]),
    ("all", "one", ["go", "s1", "s2", "f1", "f2"]),
    ("one", "all", ["go", "s1", "f1", "f2", "s2"]),
    ("all", "all", ["go", "s1", "s2", "f1", "f2"]),
]


@pytest.mark.parametrize(("steering", "follow_up", "order"), ORDERS)
async def test_steers_join_the_run_and_the_rest_follows_the_oldest_first(
    steering: Any, follow_up: Any, order: list[str]
) -> None:
    settings = Settings(steering_mode=steering, follow_up_mode=follow_up)
    asked = model()
    async with open_agent(MemoryStorage(), asked, work, settings=settings) as agent:
        submissions = await fill(agent)
        assert {(await it.wait()).status for it in submissions} == {"done"}
        assert await users(agent) == order
        answers = [(await it.record()).answer for it in submissions]
        runs = 1 + (1 if follow_up == "all" else {"one": 3, "all": 2}[steering])
        assert len(set(answers)) == runs
        inbox = await agent.root.snapshot(INBOX)
        assert (list(inbox.items), inbox.writes, inbox.steering) == ([], 0, 0)


async def test_after_a_failure_the_next_submission_lets_the_oldest_go_first() -> None:
    async with open_agent(MemoryStorage(), model()) as agent:
        first, second = [await agent.root.submit(it) for it in ("bad", "two")]
        assert (await first.wait()).reason == "model_error"
        await agent.root.wait_for_idle()
        assert (await second.record()).status == "queued"
        third = await agent.root.submit("three")
        assert [(await it.wait()).status for it in (second, third)] == ["done", "done"]
        assert await users(agent) == ["bad", "two", "three"]


async def test_a_write_after_a_failure_is_placed_at_once_and_starts_nothing() -> None:
    async with open_agent(MemoryStorage(), model()) as agent:
        await agent.root.submit("bad")
        second = await agent.root.submit("two")
        await agent.root.wait_for_idle()
        await agent.root.reset()
        assert not await agent.root.busy()
        assert (await second.record()).status == "queued"
        await agent.ask("three")
        assert (await second.record()).status == "done"


@pytest.mark.parametrize("which", range(1, 5))
async def test_what_is_withdrawn_leaves_the_order_of_the_others(which: int) -> None:
    async with open_agent(MemoryStorage(), model(), work) as agent:
        submissions = await fill(agent)
        await submissions[which].abort()
        inbox = await agent.root.snapshot(INBOX)
        assert (len(inbox.items), inbox.steering) == (3, 1 if which in (2, 4) else 2)
        records = [await it.wait() for it in submissions]
        assert [it.reason for it in records] == [
            "withdrawn" if at == which else None for at in range(5)
        ]
        order = ["f1", "s1", "f2", "s2"]
        gone = order.pop(which - 1)
        first = next(it for it in order if it.startswith("s"))
        order.remove(first)
        assert await users(agent) == ["go", first, *order]
        assert gone not in await users(agent)


async def test_a_follow_up_that_failed_leaves_those_behind_it_where_they_are() -> None:
    async with open_agent(MemoryStorage(), model()) as agent:
        names = ("one", "bad", "two", "three")
        submissions = [await agent.root.submit(name) for name in names]
        assert (await submissions[1].wait()).reason == "model_error"
        await agent.root.wait_for_idle()
        assert [(await it.record()).status for it in submissions] == [
            "done",
            "unanswered",
            "queued",
            "queued",
        ]
        assert (await agent.ask("four")).status == "done"
        assert await users(agent) == [*names, "four"]


@pytest.mark.parametrize("when", ["taken", "queued"])
async def test_a_steer_is_placed_or_withdrawn_by_an_abort_and_never_lost(when: str) -> None:
    """C37: aborted while it waits, and in the request that it joined."""
    async with open_agent(MemoryStorage(), model(), work) as agent:
        first = await agent.root.submit("go")
        await trio.sleep(1)
        steer = await agent.root.submit("left", when_busy="steer")
        await trio.sleep(9.5 if when == "taken" else 1)
        await agent.root.abort()
        records = [await it.wait() for it in (first, steer)]
        placed = when == "taken"
        assert [it.reason for it in records] == ["aborted", "aborted" if placed else "withdrawn"]
        assert (await users(agent)) == (["go", "left"] if placed else ["go"])
        assert (await agent.root.snapshot(INBOX)).items == []


@pytest.mark.parametrize("at_s", [0.5, 5, 10.5])
async def test_what_waits_is_there_and_in_order_after_a_crash(at_s: float) -> None:
    storage = MemoryStorage()
    async with open_agent(storage, model(), work) as agent:
        await fill(agent)
        await trio.sleep(at_s)
        crashed = storage.snapshot()
    async with open_agent(crashed, model(), work) as agent:
        await agent.root.submit("last")
        await agent.root.wait_for_idle()
        assert await users(agent) == ["go", "s1", "f1", "f2", "s2", "last"]
        live = await agent.root.snapshot(LIVE)
        assert live.run is None
        assert (await agent.root.snapshot(INBOX)).items == []
