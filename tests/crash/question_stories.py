"""Stories of people who are asked: a question is asked once, answered once, and has one end.

Somebody stands beside each story, looks every second for what is open, and answers it; who answers
again after a crash is told of the first answer. The checks look at the stored questions, and at
what was done outside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import trio
from pytest import raises

from pidurable_actors import (
    EXPIRED,
    AgentChoice,
    Answer,
    Approve,
    Ask,
    Conversation,
    Expired,
    Extension,
    Harness,
    Models,
    Question,
    Registry,
    Reply,
    ScriptedModel,
    Tool,
    ToolApi,
    WaitForSignal,
    tool,
)
from pidurable_actors._frozen import FrozenDict
from pidurable_actors._json import JSON
from pidurable_actors.agent import (
    OPEN_QUESTIONS,
    QUESTION,
    Hook,
    HookApi,
    Replay,
    ToolCallEvent,
    hook,
)
from pidurable_actors.errors import AlreadyAnswered, ClosedError
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import text_of
from pidurable_actors.testing import World
from tests._agents import MODEL, call, calling, error_text, interrupted
from tests.crash.stories import SETTINGS, Story, Told, lines_of, results_of, statuses_of

__all__ = ["QUESTIONS"]

Says = Callable[[Question], JSON]
Others = Callable[[Harness], Awaitable[None]]
DENIED: Final = error_text("Tool pay was blocked: it was not approved")
LIMIT_S: Final = 5.0


@asynccontextmanager
async def asking(
    world: World,
    calls: int,
    name: str,
    *tools: Tool,
    hooks: Sequence[Hook] = (),
    others: Others | None = None,
) -> AsyncIterator[tuple[Harness, Conversation]]:
    """A harness whose model makes some calls of one tool in one turn, and who else is at hand.

    The others stand outside the block of the harness, so that they stay when it is cancelled.
    """

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.answers:
            return Reply("done")
        return calling(*(call(name, f"c{at}", amount=at) for at in range(calls)))

    async def come(harness: Harness) -> None:
        if others is not None:
            with suppress(ClosedError):
                await others(harness)

    async with trio.open_nursery() as nursery:
        async with world.open_harness(
            registry=Registry([Extension("story", tools=tools, hooks=hooks)]),
            models=Models([ScriptedModel(script)]),
            settings=SETTINGS,
        ) as harness:
            nursery.start_soon(come, harness)
            yield harness, await harness.root(agent=AgentChoice(model=MODEL))
        nursery.cancel_scope.cancel()


def person(says: Says, *, after_s: float = 0) -> Others:
    """Somebody who comes, answers again what has its end, and then what is open, every second."""

    async def at_hand(harness: Harness) -> None:
        await trio.sleep(after_s)
        await answer_again(harness)
        while True:
            for question in (await harness.questions()).items:
                with suppress(AlreadyAnswered):
                    await harness.answer(question.id, says(question), by="ann")
            await trio.sleep(1)

    return at_hand


async def answer_again(harness: Harness) -> None:
    """C54: nobody takes a second answer, wherever the call was cut after the first."""
    for question_id in (await harness.document_keys(QUESTION)).items:
        before = await harness.question(question_id)
        if before.status != "open":
            with raises(AlreadyAnswered) as refused:
                await harness.answer(question_id, False, by="bob")
            assert (refused.value.outcome, refused.value.by) == (before.status, before.by)
            assert await harness.question(question_id) == before


def questions_of(world: World) -> list[FrozenDict]:
    """The stored questions, in the order in which each call asked them."""
    found = {
        key: cast("FrozenDict", value)
        for (_, _, kind, key), value in world.records.documents.items()
        if kind == QUESTION.kind
    }
    return [found[key] for key in sorted(found, key=lambda it: [int(n) for n in it.split(".")])]


def check_ends(world: World) -> None:
    """Every question has its end, and none is listed as open or shown."""
    assert all(question["status"] != "open" for question in questions_of(world))
    for (_, _, kind, _), value in world.records.documents.items():
        if kind == OPEN_QUESTIONS.kind:
            assert cast("FrozenDict", value)["open"] == []
        if kind == "pi.live":
            assert cast("FrozenDict", value)["questions"] == {}


# --- a tool that asks ---


def asker(world: World, replay: Replay, *asks: Ask | WaitForSignal) -> Tool:
    """``order``: asks one thing after the other; each step is seen from outside."""

    @tool("order", replay=replay)
    async def order(amount: int, *, api: ToolApi) -> Any:
        """Order something."""
        world.effect("order", key=api.idempotency_key, repeatable=replay == "safe")
        await api.output("looking\n")
        return asks[0]

    @order.resume
    async def go_on(
        answer: Answer | Expired, state: JSON, arguments: Mapping[str, Any], api: ToolApi
    ) -> Any:
        at = cast("int", state or 0)
        told = "EXPIRED" if answer is EXPIRED else str(answer.value)
        world.effect(f"told {at} {told}", repeatable=replay == "safe")
        await trio.sleep(1)
        if at + 1 < len(asks):
            follows = asks[at + 1]
            kind, text = type(follows), getattr(follows, "question", "paid")
            return kind(text, state=at + 1, deadline_s=follows.deadline_s)
        return f"ordered {told}"

    return order


def asks(replay: Replay) -> Story:
    """A call that asks how many; the answer is None, which is one."""

    async def story(world: World) -> None:
        made = asker(world, replay, Ask("How many?"))
        ann = person(lambda _: None)
        async with asking(world, 1, "order", made, others=ann) as (_, root):
            await (await root.submit("go", request_id="r1")).wait()

    return story


def check_asks(world: World) -> None:
    """Asked once; after the question nothing before it is run again."""
    check_ends(world)
    assert statuses_of(world) == ["done"]
    result = results_of(world)["order"]
    asked = questions_of(world)
    if result.is_error:
        assert world.crashes, "only a crash makes a result unknown"
        assert text_of(result.content) in (
            interrupted("order"),
            "looking\n" + interrupted("order"),
        )
        assert len(asked) <= 1
    else:
        assert text_of(result.content) == "ordered None"
        assert world.count("order") == 1
        (question,) = asked
        assert (question["status"], question["value"], question["by"]) == ("answered", None, "ann")


def check_asks_safely(world: World) -> None:
    """A safe call has its result, whatever was cut."""
    check_asks(world)
    assert not results_of(world)["order"].is_error


async def expiries(world: World) -> None:
    """C51: three waits in a row, to which nobody answers."""
    wait = Ask("Anybody?", deadline_s=LIMIT_S)
    made = asker(world, "safe", wait, wait, wait)
    async with asking(world, 1, "order", made) as (_, root):
        await (await root.submit("go", request_id="r1")).wait()


def check_expiries(world: World) -> None:
    """Each expiry is there once, before the next wait begins; each wait is as long as its limit."""
    check_ends(world)
    assert statuses_of(world) == ["done"]
    assert text_of(results_of(world)["order"].content) == "ordered EXPIRED"
    asked = cast("list[dict[str, int]]", questions_of(world))
    assert len(asked) == 3
    for before, question in zip([None, *asked], asked, strict=False):
        assert cast("str", question["status"]) == "expired"
        assert question["deadline_ms"] - question["asked_at_ms"] == LIMIT_S * 1000
        assert question["answered_at_ms"] >= question["deadline_ms"]
        assert before is None or question["asked_at_ms"] >= before["answered_at_ms"]


async def signals(world: World) -> None:
    """A signal that comes while one waits for it, and is there already when the next does."""
    made = asker(world, "safe", WaitForSignal("paid"), WaitForSignal("paid"))

    async def bank(harness: Harness) -> None:
        await trio.sleep(1)
        with suppress(AlreadyAnswered):
            await (await harness.root()).signal("paid", len(world.crashes), by="bank")

    async with asking(world, 1, "order", made, others=bank) as (_, root):
        await (await root.submit("go", request_id="r1")).wait()


def check_signals(world: World) -> None:
    """The first signal stands: both waits have its value."""
    check_ends(world)
    first, second = questions_of(world)
    assert first["status"] == second["status"] == "answered"
    assert first["value"] == second["value"]
    result = results_of(world)["order"]
    assert text_of(result.content) == f"ordered {first['value']}"


async def aborted_asker(world: World) -> None:
    """An abort while a call waits, and an answer that races it."""
    made, late = asker(world, "safe", Ask("How many?")), person(lambda _: 2, after_s=60)
    async with asking(world, 1, "order", made, others=late) as (harness, root):
        submission = await root.submit("go", request_id="r1")
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(root.abort)
            for question in (await harness.questions()).items:
                with suppress(AlreadyAnswered):
                    await harness.answer(question.id, 1, by="ann")
        await submission.wait()


def check_aborted_asker(world: World) -> None:
    """The question has one end, and the call one result."""
    check_ends(world)
    (submission,) = world.records.submissions.values()
    assert submission.reason in (None, "aborted")
    assert sum(" c0 " in line for line in lines_of(world)) <= 1


# --- calls that need a yes ---


def payer(world: World) -> Tool:
    """``pay``: pays, once."""

    @tool("pay")
    async def pay(amount: int) -> str:
        """Pay an amount."""
        world.effect(f"pay {amount}")
        await trio.sleep(1)
        return f"paid {amount}"

    return pay


@hook.before_tool
async def gate(event: ToolCallEvent, api: HookApi) -> Approve:
    """Every call needs a yes."""
    await trio.lowlevel.checkpoint()
    return Approve("Sure?")


def approvals(calls: int) -> Story:
    """Some payments in one turn, each behind a yes; the last but one is denied, if there is one."""

    async def story(world: World) -> None:
        ann = person(lambda question: _amount(question) != calls - 2)
        tools, hooks = payer(world), [gate]
        async with asking(world, calls, "pay", tools, hooks=hooks, others=ann) as (_, root):
            await (await root.submit("go", request_id="r1")).wait()

    return story


def check_approvals(world: World) -> None:
    """C55: each is asked about once, what was denied never runs, and the rest at most once."""
    check_ends(world)
    assert statuses_of(world) == ["done"]
    asked = questions_of(world)
    lines = [line for line in lines_of(world) if line.startswith(("result", "error"))]
    assert len(asked) == len(lines)
    for at, question in enumerate(asked):
        amount = cast("FrozenDict", question["arguments"])["amount"]
        (line,) = (it for it in lines if it.split()[1] == f"c{amount}")
        if question["value"] is False:
            assert line == f"error c{amount} {DENIED}"
            assert world.count(f"pay {amount}") == 0
        elif line.startswith("error"):
            assert world.crashes, f"only a crash makes the result of call {at} unknown"
            assert line == f"error c{amount} {interrupted('pay')}"
        else:
            assert line == f"result c{amount} paid {amount}"
            assert world.count(f"pay {amount}") == 1


def _amount(question: Question) -> int:
    return cast("int", question.arguments["amount"])


QUESTIONS: Final[Mapping[str, Told]] = {
    "ask, default": Told(asks("unsafe"), check_asks),
    "ask, safe": Told(asks("safe"), check_asks_safely),
    "three expiries": Told(expiries, check_expiries),
    "signal": Told(signals, check_signals),
    "abort of a question": Told(aborted_asker, check_aborted_asker),
    "approval": Told(approvals(1), check_approvals),
    "three approvals": Told(approvals(3), check_approvals),
}
"""Every story of questions."""
