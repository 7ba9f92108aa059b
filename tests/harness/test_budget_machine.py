"""Random conversations under a budget: whatever happens, nothing stays reserved and none is passed.

Calls ask people, reserve money, call each other and let subagents work that ask, too; hosts answer,
abort, reset, retry and compact; processes are closed and killed. What is checked: what the provider
may charge stays within the limit of the subtree; and where nothing goes on any more, no budget
holds a reservation, no question is open, and no time is paused.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import attrs
import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pidurable_actors import (
    AgentChoice,
    Approve,
    Ask,
    Budget,
    BudgetSettings,
    Conversation,
    Extension,
    Harness,
    Models,
    Registry,
    Reply,
    ScriptedContext,
    ScriptedModel,
    Settings,
    ToolApi,
    ToolCall,
    ToolResult,
    open_harness,
    tool,
)
from pidurable_actors._json import JSON
from pidurable_actors.agent import BUDGET, LIVE, HookApi, ToolCallEvent, hook
from pidurable_actors.errors import (
    AlreadyAnswered,
    ConversationBusy,
    NothingToRetry,
    ProviderError,
    Unanswered,
)
from pidurable_actors.models import Break, ModelInfo, request_tokens
from pidurable_actors.records import Usage, UserMessage
from pidurable_actors.settings import RetrySettings
from pidurable_actors.testing import MemoryDisk
from tests._agents import MODEL
from tests.tasks.compacting import SMALL, is_summary

Deed: TypeAlias = tuple[Any, ...]
End: TypeAlias = Literal["rests", "closes", "dies"]

LONG_S: Final = 600
WINDOW: Final = ModelInfo(context_window=1_000, input_price=1_000, output_price=1_000)
LOST: Final = ProviderError("lost", retryable=True, kind="network")


@tool(reserve=Usage(cost=0.5))
async def order(item: str, *, api: ToolApi) -> Ask:
    """Order, if somebody says so."""
    await api.output("looking\n")
    return Ask(f"Order {item}?", deadline_s=30 if item == "soon" else None)


@order.resume
async def ordered(
    answer: object, state: JSON, arguments: Mapping[str, Any], api: ToolApi
) -> ToolResult:
    """Take a while over it."""
    await trio.sleep(0.3)
    return ToolResult("ordered", usage=Usage(cost=0.25))


@tool(replay="safe", reserve=Usage(cost=0.2), callers=("model", "tools"))
async def pay(fails: bool = False) -> ToolResult:
    """Pay, if a hook's question is answered."""
    await trio.sleep(0.3)
    if fails:
        raise ValueError("no")
    return ToolResult("paid", usage=Usage(cost=0.2))


@tool(replay="safe", timeout_s=60)
async def both(*, api: ToolApi) -> str:
    """Pay twice."""
    async with trio.open_nursery() as nursery:
        for key in "ab":
            nursery.start_soon(partial(api.call, "pay", {}, key=key))
    return "both"


@tool(replay="safe")
async def delegate(to: str, *, api: ToolApi) -> str:
    """Let a helper work."""
    helper = await api.create_conversation(to, agent=AgentChoice(model=MODEL, max_output_tokens=40))
    try:
        return await (await helper.submit(f"help {to}", request_id="help")).answer()
    except Unanswered as error:
        return error.reason


@hook.before_tool
async def gate(event: ToolCallEvent, api: HookApi) -> Approve | None:
    """Who pays is asked."""
    await trio.lowlevel.checkpoint()
    return Approve("Pay?", deadline_s=40) if event.tool.name == "pay" else None


def script(ctx: ScriptedContext) -> list[ToolCall]:
    """The calls of an answer, by what was asked last."""
    if not isinstance(ctx.last, UserMessage):
        return []
    match ctx.user_text:
        case "order" | "help order":
            return [ToolCall("order", {"item": "tea"}), ToolCall("order", {"item": "soon"})]
        case "pay":
            return [ToolCall("pay"), ToolCall("pay", {"fails": True}), ToolCall("both")]
        case "delegate":
            return [ToolCall("delegate", {"to": "order"}), ToolCall("delegate", {"to": "talk"})]
    return []


WORDS: Final = ("hello", "order", "pay", "delegate", "breaks", "invalid", "x" * 800)


def deeds() -> st.SearchStrategy[Deed]:
    """One thing that somebody does."""
    submit = st.tuples(
        st.just("submit"), st.sampled_from(WORDS), st.sampled_from(["follow_up", "steer", "reject"])
    )
    sleep = st.tuples(st.just("sleep"), st.sampled_from([0, 0.05, 0.2, 0.5, 3, 50]))
    answer = st.tuples(st.just("answer"), st.integers(0, 3), st.booleans())
    return st.one_of(
        submit,
        submit,
        submit,
        answer,
        answer,
        sleep,
        sleep,
        st.tuples(st.just("reset")),
        st.tuples(st.just("retry")),
        st.tuples(st.just("abort")),
        st.tuples(st.just("compact"), st.booleans()),
    )


@attrs.define
class Machine:
    """Lives of processes on one disk, and what their provider may charge."""

    limit: int
    disk: MemoryDisk = attrs.Factory(MemoryDisk)
    charged: int = 0
    requests: int = 0
    over: bool = False

    def answer(self, ctx: ScriptedContext) -> Reply | ProviderError:
        """Charge a request for all that it may use, and answer it slowly."""
        if ctx.user_text == "invalid" and not is_summary(ctx.request):
            return ProviderError("no", kind="invalid")
        most = ctx.request.options.max_output_tokens
        assert most is not None, "a request under a budget says how long its answer may be"
        asked = request_tokens(ctx.request, WINDOW)
        if not self.over:
            self.charged += asked + most
        self.requests += 1
        usage = Usage(input_tokens=asked, output_tokens=most)
        if is_summary(ctx.request):
            return Reply("short", usage=usage, delay_s=0.2)
        fault = Break(2, LOST) if ctx.user_text == "breaks" and self.requests % 3 else None
        calls = () if fault else script(ctx)
        return Reply(
            "well then", usage=usage, chunk=2, chunk_delay_s=0.1, tool_calls=calls, fault=fault
        )

    async def live(self, deeds: list[Deed], end: End) -> None:
        """Live once; what dies leaves what was on the disk at that instant."""
        image: object = None
        self.over = False
        extension = Extension("all", tools=[order, pay, both, delegate], hooks=[gate])
        budget = BudgetSettings(
            run=Budget(cost=1.2, wall_s=500), subtree=Budget(tokens=self.limit, cost=9.0)
        )
        async with open_harness(
            self.disk.storage(),
            models=Models([ScriptedModel(self.answer, info=WINDOW)]),
            registry=Registry([extension]),
            settings=Settings(
                budget=budget,
                retry=RetrySettings(max_retries=2, base_s=1, jitter=0),
                compaction=attrs.evolve(SMALL, background_tokens=200),
            ),
            inline_storage=True,
        ) as harness:
            root = await harness.root(agent=AgentChoice(model=MODEL, max_output_tokens=60))
            harness.resume()
            for deed in deeds:
                await self.perform(harness, root, deed)
            if end == "rests":
                await self.rest(harness, root)
            if end == "dies":
                image = self.disk.capture()
                self.over = True
        if end == "dies":
            self.disk.restore(image)

    async def perform(self, harness: Harness, root: Conversation, deed: Deed) -> None:
        """Do one thing."""
        match deed:
            case ("submit", text, when_busy):
                with suppress(ConversationBusy):
                    await root.submit(text, when_busy=when_busy)
            case ("answer", at, value):
                for question in (await harness.questions()).items[at : at + 1]:
                    with suppress(AlreadyAnswered):
                        await harness.answer(question.id, value, by="ann")
            case ("reset",):
                await root.reset()
            case ("retry",):
                with suppress(ConversationBusy, NothingToRetry):
                    await root.retry()
            case ("abort",):
                await root.abort()
            case ("compact", background):
                await root.compact(background=background)
            case ("sleep", seconds):
                await trio.sleep(seconds)

    async def rest(self, harness: Harness, root: Conversation) -> None:
        """Answer what is asked until nothing goes on; then nothing may be held any more."""
        for _ in range(40):
            await trio.sleep(LONG_S)
            asked = (await harness.questions()).items
            if not asked:
                break
            for question in asked:
                with suppress(AlreadyAnswered):
                    await harness.answer(question.id, True, by="ann")
        await root.wait_for_idle()
        assert not (await harness.questions()).items
        for at in await conversations(harness):
            budget, live = await at.snapshot(BUDGET), await at.snapshot(LIVE)
            assert (budget.own.reserved, budget.below.reserved) == ({}, {}), at.id
            assert (live.run, live.tools, live.questions, live.compactions) == (None, {}, {}, [])
            assert not live.held
        assert self.charged <= self.limit


async def conversations(harness: Harness) -> list[Conversation]:
    """All of them."""
    return [await harness.conversation(it.id) for it in (await harness.conversations()).items]


@pytest.mark.slow
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(
    lives=st.lists(
        st.tuples(st.lists(deeds(), max_size=12), st.sampled_from(["rests", "closes", "dies"])),
        min_size=1,
        max_size=4,
    ),
    limit=st.sampled_from([400, 1_500, 4_000, 100_000]),
)
def test_whatever_happens_no_budget_is_passed_and_nothing_stays_reserved(
    lives: list[tuple[list[Deed], End]], limit: int
) -> None:
    machine = Machine(limit)

    async def play() -> None:
        for life, end in lives:
            await machine.live(life, end)
        await machine.live([], "rests")

    trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))
