"""A budget through every crash: what providers charge never passes the limit (C59).

The provider is an object that survives: it charges a request when it comes in, for all that it may
use. In the one story a conversation is limited; in the other two subagents work beside each other
below the root, whose subtree is limited. Requests break off and are tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from pidurable_actors import (
    AgentChoice,
    Budget,
    BudgetSettings,
    Reply,
    ScriptedContext,
    Settings,
    ToolApi,
    tool,
)
from pidurable_actors.errors import ProviderError, Unanswered
from pidurable_actors.models import Break, ModelInfo, request_tokens
from pidurable_actors.records import Usage
from pidurable_actors.testing import World
from tests._agents import MODEL, STORE_FIRST, call
from tests.crash.stories import PATIENT, Told, conversation, statuses_of

LIMIT: Final = 420
LITTLE: Final = 110
LOST: Final = ProviderError("lost", retryable=True, kind="network")
SETTINGS: Final = Settings(
    progress=STORE_FIRST,
    retry=PATIENT,
    budget=BudgetSettings(subtree=Budget(tokens=LIMIT)),
)


@attrs.define
class Account:
    """What the provider has charged."""

    tokens: int = 0
    requests: int = 0

    def charge(self, ctx: ScriptedContext) -> Usage:
        """Charge a request for all that it may use."""
        most = ctx.request.options.max_output_tokens
        assert most is not None, "a request under a budget says how long its answer may be"
        asked = request_tokens(ctx.request, ModelInfo())
        self.tokens += asked + most
        self.requests += 1
        return Usage(input_tokens=asked, output_tokens=most)


async def spending(world: World) -> None:
    """Ask twice; each time two subagents answer, until there is nothing left."""
    account = world.external("account", Account())

    @tool(replay="safe")
    async def delegate(to: str, *, api: ToolApi) -> str:
        """Let a helper work."""
        agent = AgentChoice(model=MODEL, max_output_tokens=40)
        helper = await api.create_conversation(to, agent=agent)
        try:
            return await (await helper.submit(f"help {to}", request_id="help")).answer()
        except Unanswered as error:
            return error.reason

    def script(ctx: ScriptedContext) -> Reply:
        used = account.charge(ctx)
        if ctx.user_text == "help b" and account.requests % 3:
            return Reply("It breaks", usage=used, fault=Break(4, LOST))
        if ctx.user_text.startswith("help") or len(ctx.tool_results()) == 2:
            return Reply("helped", usage=used)
        calls = [call("delegate", f"c{to}", to=to) for to in "ab"]
        return Reply(tool_calls=calls, usage=used)

    async with conversation(world, script, delegate, settings=SETTINGS) as root:
        await root.configure(max_output_tokens=60)
        for number in range(3):
            submission = await root.submit("go", request_id=f"go-{number}")
            await submission.wait()


def check_spending(world: World) -> None:
    """Nobody was charged for more than the limit, and it was used up; nothing is held any more."""
    account = world.external("account", Account())
    assert account.tokens <= LIMIT, account
    assert statuses_of(world)[-1] == "unanswered"
    for key, value in world.records.documents.items():
        if "pi.budget" in key:
            assert not value["own"]["reserved"], value  # type: ignore[index, call-overload]
            assert not value["below"]["reserved"], value  # type: ignore[index, call-overload]


async def saving(world: World) -> None:
    """Ask until there is nothing left; the first request breaks off, and is tried again."""
    account = world.external("account", Account())

    def script(ctx: ScriptedContext) -> Reply:
        used = account.charge(ctx)
        if account.requests == 1:
            return Reply("It breaks", usage=used, fault=Break(4, LOST))
        return Reply("ok", usage=used)

    settings = attrs.evolve(
        SETTINGS, budget=BudgetSettings(conversation=Budget(tokens=LITTLE), near=1.0)
    )
    async with conversation(world, script, settings=settings) as root:
        await root.configure(max_output_tokens=30)
        for number in range(3):
            submission = await root.submit("go", request_id=f"go-{number}")
            await submission.wait()


def check_saving(world: World) -> None:
    """Nobody was charged for more than the limit, and the last input says so."""
    assert world.external("account", Account()).tokens <= LITTLE
    assert statuses_of(world)[-1] == "unanswered"


BUDGETS: Final[Mapping[str, Told]] = {
    "a budget": Told(saving, check_saving),
    "a budget of a subtree": Told(spending, check_spending),
}
