"""A tool that asks people, a hook that wants their yes, and what both did outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import trio

from pidurable_actors import (
    EXPIRED,
    Answer,
    Approve,
    Ask,
    Expired,
    Extension,
    Harness,
    Question,
    Registry,
    Reply,
    Tool,
    ToolApi,
    WaitForSignal,
    tool,
)
from pidurable_actors._json import JSON
from pidurable_actors.agent import Hook, HookApi, Replay, ToolCallEvent, hook
from tests._agents import call, calling

MODEL = (calling(call("order", item="tea")), Reply("done"))
PAY = (calling(call("pay", amount=7)), Reply("done"))

Asks = Ask | WaitForSignal


@attrs.define
class Desk:
    """What was done outside, in order, and the keys it was done with."""

    log: list[str] = attrs.field(factory=list)
    keys: list[str] = attrs.field(factory=list)
    answers: list[Answer | Expired] = attrs.field(factory=list)

    def order(
        self,
        asks: Asks,
        *more: Asks,
        replay: Replay = "unsafe",
        hangs: bool = False,
        **options: Any,
    ) -> Tool:
        """``order``: asks one thing after the other, each with its place as the state."""
        chain = (asks, *more)

        @tool("order", replay=replay, **options)
        async def order(item: str, *, api: ToolApi) -> Any:
            """Order something, if somebody says how much of it."""
            self.log.append(f"order {item}")
            self.keys.append(api.idempotency_key)
            await api.output("looking\n")
            return attrs.evolve(chain[0], state=0)

        @order.resume
        async def go_on(
            answer: Answer | Expired, state: JSON, arguments: Mapping[str, Any], api: ToolApi
        ) -> Any:
            assert isinstance(state, int)
            self.answers.append(answer)
            self.log.append(f"resume {state} {arguments['item']} {shown(answer)}")
            self.keys.append(api.idempotency_key)
            await api.output(f"told {state}\n")
            if hangs:
                await trio.sleep_forever()
            if state + 1 < len(chain):
                return attrs.evolve(chain[state + 1], state=state + 1)
            return f"ordered {shown(answer)}"

        return order

    def pay(self, *, name: str = "pay", **options: Any) -> Tool:
        """``pay``: pays."""

        @tool(name, **options)
        async def pay(amount: int, note: str = "") -> str:
            """Pay an amount."""
            self.log.append(f"{name} {amount}")
            await trio.lowlevel.checkpoint()
            return f"paid {amount}"

        return pay

    def gate(self, *asks: Approve, only: str = "pay") -> tuple[Hook, ...]:
        """Hooks that want a yes, one for each question."""
        return tuple(self._gate(one, only) for one in asks)

    def _gate(self, asks: Approve, only: str) -> Hook:
        @hook.before_tool
        async def gate(event: ToolCallEvent, api: HookApi) -> Approve | None:
            self.log.append(f"gate {asks.question}")
            await trio.lowlevel.checkpoint()
            return asks if event.tool.name == only else None

        return gate


def shown(answer: Answer | Expired) -> str:
    """An answer in short."""
    return "EXPIRED" if answer is EXPIRED else repr(answer.value)


def with_hooks(*hooks: Hook, tools: tuple[Tool, ...]) -> Registry:
    """A registry with tools, and an extension for each hook, in order."""
    extensions = [Extension(f"gate {at}", hooks=[one]) for at, one in enumerate(hooks)]
    return Registry([Extension("test", tools=tools), *extensions])


async def open_question(harness: Harness) -> Question:
    """The one question that is open, once it is there."""
    for _ in range(1_000):
        found = (await harness.questions()).items
        if found:
            (question,) = found
            return question
        await trio.sleep(0.001)
    raise AssertionError("nobody asked")
