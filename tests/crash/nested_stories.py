"""Stories of tools that call tools, for what one call alone does not show.

A chain of calls under every replay policy, a caller that must not run again, and an abort from
above. The checks look at the records and at the trace, and at no text that a model would not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import trio

from pidurable_actors import NOT_DONE, Reply, Tool, ToolApi, tool
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import CompletedOutcome, PutTask, TaskRecord, Terminal, text_of
from pidurable_actors.testing import World
from pidurable_actors.testing._trace import Stored, ToolEntered
from tests._agents import call, calling, interrupted
from tests.crash.stories import SETTINGS, Story, Told, conversation, results_of, statuses_of

__all__ = ["NESTED", "check_nested_call", "nested_call"]

# A caller makes no progress of its own while it calls, so each crash would count toward its limit.
PATIENT: Final = attrs.evolve(SETTINGS, restart_limit=math.inf)


def calls_once(name: str) -> Callable[[ScriptedContext], Reply]:
    """A model that calls one tool and is done."""
    return lambda ctx: Reply("done") if ctx.answers else calling(call(name, "c0"))


def check_ended_calls(world: World) -> None:
    """A call has one task for its key, which its caller owns, and never runs after its end."""
    ended: set[int] = set()
    for event in world.history.events:
        if isinstance(event, Stored):
            for batch in event.batches:
                ended |= {
                    change.record.id
                    for change in batch.changes
                    if isinstance(change, PutTask) and isinstance(change.record.state, Terminal)
                }
        elif isinstance(event, ToolEntered):
            assert event.task_id not in ended, f"{event.name} ran after its call had ended"
    made = [(task.owner, tool_of(task)) for task in nested_of(world)]
    assert len(set(made)) == len(made)
    assert all(isinstance(task.state, Terminal) for task in nested_of(world))


def nested_of(world: World) -> list[TaskRecord]:
    """The nested calls."""
    return [task for task in world.records.tasks.values() if task.kind == "pi.call"]


def tool_of(task: TaskRecord) -> str:
    """Which tool a nested call is of."""
    assert isinstance(task.input, dict)
    return str(task.input["tool_name"])


# --- a chain under every policy ---


def shop_of(world: World) -> list[Tool]:
    """Tools for tools, whose effects are seen from outside."""

    @tool(replay="safe", callers=["tools"])
    async def stock() -> str:
        """Look whether it is there."""
        world.effect("stock", repeatable=True)
        await trio.sleep(1)
        return "yes"

    @tool(replay="safe", callers=["tools"])
    async def reserve(*, api: ToolApi) -> str:
        """Reserve one with a service that knows keys."""
        world.effect("reserve", key=api.idempotency_key)
        await trio.sleep(1)
        return "reserved"

    @tool(callers=["tools"])
    async def pay(*, api: ToolApi) -> str:
        """Pay."""
        await api.output("paying\n")
        world.effect("pay")
        await trio.sleep(1)
        return "paid"

    @tool(replay="reconcile", callers=["tools"])
    async def label() -> str:
        """Print a label, which can be looked up."""
        world.effect("label")
        await trio.sleep(1)
        return "printed"

    @label.reconcile
    async def printed(_: Mapping[str, Any], __: ToolApi) -> object:
        await trio.lowlevel.checkpoint()
        return "printed" if world.count("label") else NOT_DONE

    @tool(replay="safe", callers=["tools"])
    async def ship(*, api: ToolApi) -> str:
        """Ship it, with a label."""
        return f"shipped, {text_of((await api.call('label', {}, key='label')).content)}"

    return [stock, reserve, pay, label, ship]


CHAIN: Final = ("stock", "reserve", "pay", "ship")


async def nested_call(world: World) -> None:
    """A safe tool makes four calls, the last of which makes one in turn."""

    @tool(replay="safe")
    async def order(*, api: ToolApi) -> str:
        """Order one."""
        texts = [text_of((await api.call(name, {}, key=name)).content) for name in CHAIN]
        return "|".join(texts)

    tools = (*shop_of(world), order)
    async with conversation(world, calls_once("order"), *tools, settings=PATIENT) as root:
        await (await root.submit("go", request_id="r1")).wait()


def check_nested_call(world: World) -> None:
    """Each call keeps the promise of its own tool, however often its caller is run."""
    check_ended_calls(world)
    assert statuses_of(world) == ["done"]
    assert sorted(map(tool_of, nested_of(world))) == sorted([*CHAIN, "label"])
    assert [world.count(name) for name in ("reserve", "label")] == [1, 1]
    result = results_of(world)["order"]
    assert not result.is_error
    first, second, paid, last = text_of(result.content).split("|")
    assert (first, second, last) == ("yes", "reserved", "shipped, printed")
    if paid == "paid":
        assert world.count("pay") == 1
    else:
        assert world.crashes, "only a crash makes a result unknown"
        assert paid in (interrupted("pay"), "paying\n" + interrupted("pay"))


# --- a caller that must not run again ---


async def unsafe_caller(world: World) -> None:
    """An unsafe tool calls a safe one, which takes a while."""

    @tool(replay="safe", callers=["tools"])
    async def inner() -> str:
        """Take a while."""
        world.effect("inner", repeatable=True)
        await trio.sleep(2)
        return "did it"

    @tool()
    async def outer(*, api: ToolApi) -> str:
        """Call it."""
        world.effect("outer")
        return text_of((await api.call("inner", {}, key="one")).content)

    async with conversation(world, calls_once("outer"), inner, outer) as root:
        await (await root.submit("go", request_id="r1")).wait()


def check_unsafe_caller(world: World) -> None:
    """A cut caller is interrupted, and what it called ends before it, done or not."""
    check_ended_calls(world)
    assert statuses_of(world) == ["done"]
    result = results_of(world)["outer"]
    (made,) = nested_of(world) or (None,)
    if result.is_error:
        assert world.crashes
        assert text_of(result.content) == interrupted("outer")
    else:
        assert text_of(result.content) == "did it"
        assert made is not None
        assert isinstance(made.state, Terminal)
        assert isinstance(made.state.outcome, CompletedOutcome)


# --- an abort from above ---


def aborted(replay: Any) -> Story:
    """A run that is aborted while its tool waits for the tool that it called."""

    async def story(world: World) -> None:
        @tool(replay=replay, callers=["tools"])
        async def inner(*, api: ToolApi) -> str:
            """Take a while."""
            world.effect("inner", repeatable=replay == "safe")
            await api.output("working\n")
            await trio.sleep(2)
            return "did it"

        @tool(replay="safe")
        async def outer(*, api: ToolApi) -> str:
            """Call it."""
            return text_of((await api.call("inner", {}, key="one")).content)

        async with conversation(world, calls_once("outer"), inner, outer) as root:
            submission = await root.submit("go", request_id="r1")
            await trio.sleep(1)
            await root.abort(reason="enough")
            await submission.wait()

    return story


def check_aborted(world: World) -> None:
    """Whatever was cut, the call ends first, and both ends are told."""
    check_ended_calls(world)
    (submission,) = world.records.submissions.values()
    assert submission.reason in (None, "aborted")
    for task in world.records.tasks.values():
        assert isinstance(task.state, Terminal)
        if task.kind == "pi.tool" and task.state.outcome.status == "aborted":
            assert "was aborted" in text_of(results_of(world)["outer"].content)


NESTED: Final[Mapping[str, Told]] = {
    "nested calls, every policy": Told(nested_call, check_nested_call),
    "nested call, unsafe caller": Told(unsafe_caller, check_unsafe_caller),
    "nested call, aborted": Told(aborted("unsafe"), check_aborted),
    "nested safe call, aborted": Told(aborted("safe"), check_aborted),
}
