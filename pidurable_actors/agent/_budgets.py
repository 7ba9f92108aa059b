"""Budgets: what may be used is reserved before it is used, and what was used is counted once.

Functions of a transaction. A request or a call that is about to begin reserves what it may come to,
in the commit that makes it begin; the commit that stores what came of it counts that and gives the
reservation back. So a limit is never passed by more than an estimate is wrong, whatever runs beside
or is killed meanwhile; and what a request that was cut off may have used counts as used.

Usage and reservations are kept in the documents of the conversation, and in those of every
conversation above it for what is below: a subtree is checked without being read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from pidurable_actors._json import JsonObject
from pidurable_actors.agent._agent import Agent, budget_of
from pidurable_actors.agent._documents import (
    AGENT,
    BUDGET,
    LIVE,
    USAGE,
    BudgetState,
    Reservation,
    UsageState,
)
from pidurable_actors.agent._services import AgentServices
from pidurable_actors.agent._usage import conversations_above, tokens_of, used_in
from pidurable_actors.models import ModelInfo
from pidurable_actors.records import ConversationId, TaskId, Usage
from pidurable_actors.session import Tx
from pidurable_actors.settings import Budget, BudgetSettings

__all__ = [
    "Granted",
    "Limit",
    "Need",
    "Refused",
    "release",
    "reserve",
    "wall_limit",
]

Measure: TypeAlias = Literal["tokens", "cost", "turns", "wall_s"]


@attrs.frozen(kw_only=True)
class Need:
    """What is about to begin.

    Attributes:
        tokens: what it takes for certain, such as the question of a request.
        most: what it may take besides, such as the longest answer; None for whatever is left.
        info: the prices of both.
        cost: money that it takes besides.
        turns: answers of a model that it comes to.
    """

    tokens: int = 0
    most: int | None = 0
    info: ModelInfo = attrs.field(factory=ModelInfo)
    cost: float = 0.0
    turns: int = 0

    def price(self, most: int) -> float:
        """What it costs when it takes so much besides what is certain."""
        return self.cost + self.info.cost(Usage(input_tokens=self.tokens, output_tokens=most))


@attrs.frozen
class Limit:
    """One limit, how much of it is gone, and what more is needed for certain."""

    scope: str
    measure: Measure
    value: float
    used: float
    needed: float

    @property
    def left(self) -> float:
        """How much of it remains; of a limit of time, seconds."""
        return self.value - self.used - self.needed

    def room(self, need: Need) -> int | None:
        """How many tokens may be taken besides what is certain; None for any number."""
        left = self.left
        if self.measure == "tokens":
            return int(left)
        if self.measure == "cost" and need.info.output_price:
            return int(left * 1_000_000 / need.info.output_price)
        return None


@attrs.frozen(kw_only=True)
class Granted:
    """It may begin.

    Attributes:
        most: how much it may take besides what is certain; None when nothing limits that.
        near: the limits that are near and that the host was not told of, in words.
        wall: the limit of time that comes first; None when there is none.
    """

    most: int | None = None
    near: tuple[str, ...] = ()
    wall: Limit | None = None


@attrs.frozen
class Refused:
    """It may not begin, because of a limit."""

    limit: Limit

    @property
    def detail(self) -> JsonObject:
        """``{"scope", "limit", "value", "used", "needed"}``."""
        at = self.limit
        return {
            "scope": at.scope,
            "limit": at.measure,
            "value": at.value,
            "used": at.used,
            "needed": at.needed,
        }

    @property
    def words(self) -> str:
        """The reason in words."""
        at = self.limit
        return f"the budget of the {at.scope} allows {at.measure} {at.value:g}, used {at.used:g}"


@attrs.frozen(kw_only=True)
class _Scope:
    """One budget and what was used and reserved of it."""

    name: str
    budget: Budget
    near: float
    told: list[str]
    tokens: int
    cost: float
    turns: int
    wall_ms: int

    def limits(self, need: Need) -> Iterator[Limit]:
        """Each limit that there is."""
        budget = self.budget
        found: tuple[tuple[Measure, float | None, float, float], ...] = (
            ("tokens", budget.tokens, self.tokens, need.tokens),
            ("cost", budget.cost, self.cost, need.price(0)),
            ("turns", budget.turns, self.turns, need.turns),
            ("wall_s", budget.wall_s, self.wall_ms / 1000, 0),
        )
        for measure, value, used, needed in found:
            # A call of a tool is no turn, so that those of the last turn may still run.
            if value is not None and (measure != "turns" or need.turns):
                yield Limit(self.name, measure, value, used, needed)


async def reserve(
    tx: Tx, services: AgentServices, agent: Agent, task_id: TaskId, need: Need
) -> Granted | Refused:
    """Reserve what a task is about to use, as far as every budget that it is under allows.

    Without any limit nothing is written.

    Args:
        tx: the commit in which it begins, bound to its conversation.
        services: the settings.
        agent: what the conversation runs with.
        task_id: whose reservation it is; it replaces an earlier one.
        need: what it may come to.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    scopes = await _scopes(tx, services, agent, task_id)
    if not scopes:
        return Granted()
    limits = [limit for scope in scopes for limit in scope.limits(need)]
    most, tightest = need.most, None
    for limit in limits:
        if limit.used >= limit.value or limit.left < 0:
            return Refused(limit)
        left = limit.room(need)
        if left is not None and (most is None or left < most):
            most, tightest = left, limit
    if tightest is not None and most is not None and most < 1:
        return Refused(tightest)
    held = Reservation(
        tokens=need.tokens + (most or 0), cost=need.price(most or 0), turns=need.turns
    )
    await _hold(tx, task_id, held)
    return Granted(most=most, near=tuple(_near(scopes, need)), wall=_wall(limits))


async def release(
    tx: Tx,
    conversation_id: ConversationId,
    task_id: TaskId,
    *,
    reported: Usage | None = None,
) -> bool:
    """Give a reservation back.

    Args:
        tx: the commit that stores what came of it.
        conversation_id: where the task is.
        task_id: whose reservation.
        reported: what is known to have been used, when more may have been: what was reserved beyond
            that counts as used. None when everything that was used is counted.

    Returns:
        Whether there was one.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    budget = await tx.doc(BUDGET, conversation_id)
    held = budget.own.reserved.get(str(task_id))
    if held is None:
        return False
    places = [
        budget.own,
        *[
            (await tx.doc(BUDGET, at)).below
            for at in await conversations_above(tx, conversation_id)
        ],
    ]
    tokens, cost = 0, 0.0
    if reported is not None:
        tokens = max(0, held.tokens - tokens_of(reported))
        cost = max(0.0, held.cost - reported.cost)
        live = await tx.doc(LIVE, conversation_id)
        if live.run is not None:
            live.run.tokens += tokens
            live.run.cost += cost
    for tally in places:
        tally.lost_tokens += tokens
        tally.lost_cost += cost
        tally.reserved.pop(str(task_id), None)
    return True


async def wall_limit(tx: Tx, services: AgentServices, agent: Agent) -> Limit | None:
    """The limit of time that the bound conversation comes to first; None when there is none.

    Durability: stores nothing.

    Cancellation: the commit rolls back.
    """
    scopes = await _scopes(tx, services, agent, None)
    return _wall([limit for scope in scopes for limit in scope.limits(Need())])


def _wall(limits: Sequence[Limit]) -> Limit | None:
    walls = [limit for limit in limits if limit.measure == "wall_s"]
    return min(walls, key=lambda limit: limit.left, default=None)


def _near(scopes: Sequence[_Scope], need: Need) -> Iterator[str]:
    """The limits that are near, and were not told of; they are noted as told.

    What goes for certain counts, and not the longest answer: that may be all there is.
    """
    for scope in scopes:
        for limit in scope.limits(need):
            mark = f"{limit.scope}.{limit.measure}:{limit.value:g}"
            taken = limit.used + limit.needed
            if taken >= scope.near * limit.value and mark not in scope.told:
                scope.told.append(mark)
                yield f"{limit.scope} {limit.measure}: {taken:g} of {limit.value:g}"


async def _scopes(
    tx: Tx, services: AgentServices, agent: Agent, task_id: TaskId | None
) -> list[_Scope]:
    """The budgets that the bound conversation is under, without those that limit nothing."""
    conversation_id = _bound(tx)
    settings = agent.budget
    found: list[_Scope] = []
    if any(it != Budget() for it in (settings.run, settings.conversation, settings.subtree)):
        found += await _own_scopes(tx, settings, conversation_id, task_id)
    for at in await conversations_above(tx, conversation_id):
        theirs = budget_of(await tx.doc(AGENT, at), services.settings())
        if theirs.subtree != Budget():
            state, usage = await tx.doc(BUDGET, at), await tx.doc(USAGE, at)
            found.append(_subtree(theirs, state, usage, task_id))
    return [scope for scope in found if scope.budget != Budget()]


async def _own_scopes(
    tx: Tx, settings: BudgetSettings, conversation_id: ConversationId, task_id: TaskId | None
) -> list[_Scope]:
    state, usage = await tx.doc(BUDGET, conversation_id), await tx.doc(USAGE, conversation_id)
    live = await tx.doc(LIVE, conversation_id)
    held = _reserved(state.own.reserved, task_id)
    run_ms = 0
    found: list[_Scope] = []
    if live.run is not None:
        run_ms = live.run.ran_ms(tx.now_ms)
        found.append(
            _Scope(
                name="run",
                budget=settings.run,
                near=settings.near,
                told=live.run.told,
                tokens=live.run.tokens + held.tokens,
                cost=live.run.cost + held.cost,
                turns=live.run.turns + held.turns,
                wall_ms=run_ms,
            )
        )
    own_tokens, own_cost = used_in(usage)
    found.append(
        _Scope(
            name="conversation",
            budget=settings.conversation,
            near=settings.near,
            told=state.told,
            tokens=own_tokens + state.own.lost_tokens + held.tokens,
            cost=own_cost + state.own.lost_cost + held.cost,
            turns=usage.turns + held.turns,
            wall_ms=usage.run_ms + run_ms,
        )
    )
    found.append(_subtree(settings, state, usage, task_id, run_ms=run_ms))
    return found


def _subtree(
    settings: BudgetSettings,
    state: BudgetState,
    usage: UsageState,
    task_id: TaskId | None,
    *,
    run_ms: int = 0,
) -> _Scope:
    own_tokens, own_cost = used_in(usage)
    below_tokens, below_cost = used_in(usage.below)
    own = _reserved(state.own.reserved, task_id)
    below = _reserved(state.below.reserved, task_id)
    lost = state.own.lost_tokens + state.below.lost_tokens
    return _Scope(
        name="subtree",
        budget=settings.subtree,
        near=settings.near,
        told=state.told,
        tokens=own_tokens + below_tokens + lost + own.tokens + below.tokens,
        cost=own_cost
        + below_cost
        + state.own.lost_cost
        + state.below.lost_cost
        + own.cost
        + below.cost,
        turns=usage.turns + usage.below.turns + own.turns + below.turns,
        wall_ms=usage.run_ms + usage.below.run_ms + run_ms,
    )


def _reserved(held: Mapping[str, Reservation], but: TaskId | None) -> Reservation:
    """The sum of reservations, without that of a task."""
    total = Reservation()
    for task_id, reservation in held.items():
        if task_id != str(but):
            total.tokens += reservation.tokens
            total.cost += reservation.cost
            total.turns += reservation.turns
    return total


async def _hold(tx: Tx, task_id: TaskId, held: Reservation) -> None:
    conversation_id = _bound(tx)
    (await tx.doc(BUDGET, conversation_id)).own.reserved[str(task_id)] = held
    for at in await conversations_above(tx, conversation_id):
        (await tx.doc(BUDGET, at)).below.reserved[str(task_id)] = held


def _bound(tx: Tx) -> ConversationId:
    assert tx.conversation_id is not None, "a request and a call are of a conversation"
    return tx.conversation_id
