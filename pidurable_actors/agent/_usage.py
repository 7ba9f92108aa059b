"""Usage: what was used is counted once, where it was used and in everything above.

Functions of a transaction. `pi.usage` of a conversation has its own sums, and those of all that is
below it; so what a subtree has used is known without reading it.
"""

from __future__ import annotations

import attrs

from pidurable_actors.agent._documents import LIVE, USAGE, UsageSums
from pidurable_actors.agent._services import AgentServices
from pidurable_actors.errors import UnknownModel
from pidurable_actors.records import ConversationId, Usage
from pidurable_actors.session import Tx

__all__ = [
    "conversations_above",
    "count_call",
    "count_request",
    "count_run",
    "priced",
    "tokens_of",
    "used_in",
]


async def count_request(
    tx: Tx, conversation_id: ConversationId, reference: str, used: Usage, *, turns: int = 0
) -> None:
    """Count one request to a model.

    Args:
        tx: the commit.
        conversation_id: whose.
        reference: ``provider/model_id``.
        used: what it used, priced.
        turns: 1 for one that was answered.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    for sums in await _sums(tx, conversation_id):
        sums.add(reference, used)
        if turns:
            sums.turns += turns
    await _count_in_run(tx, conversation_id, used)


async def count_call(
    tx: Tx, conversation_id: ConversationId, tool_name: str, used: Usage | None
) -> None:
    """Count one call of a tool, and what it used of models.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    for sums in await _sums(tx, conversation_id):
        sums.tools[tool_name] = sums.tools.get(tool_name, 0) + 1
        if used is not None:
            sums.add(f"tool/{tool_name}", used)
    if used is not None:
        await _count_in_run(tx, conversation_id, used)


async def count_run(tx: Tx, conversation_id: ConversationId, run_ms: int) -> None:
    """Count the time of a run that has ended.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    if run_ms > 0:
        for sums in await _sums(tx, conversation_id):
            sums.run_ms += run_ms


def priced(services: AgentServices, reference: str, used: Usage) -> Usage:
    """Usage with its cost, by the provider's prices where it did not say itself."""
    if used.cost:
        return used
    try:
        provider, model_id = services.models.resolve(reference)
    except UnknownModel:
        return used
    cost = provider.info(model_id).cost(used)
    return attrs.evolve(used, cost=cost) if cost else used


def tokens_of(used: Usage) -> int:
    """Tokens of every kind."""
    return used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens


def used_in(sums: UsageSums) -> tuple[int, float]:
    """Tokens of every kind, and money."""
    tokens, cost = 0, 0.0
    for totals in sums.models.values():
        tokens += (
            totals.input_tokens
            + totals.output_tokens
            + totals.cache_read_tokens
            + totals.cache_write_tokens
        )
        cost += totals.cost
    return tokens, cost


async def conversations_above(tx: Tx, conversation_id: ConversationId) -> list[ConversationId]:
    """The conversations above one, the nearest first: that of the task that owns it, and so on."""
    found: list[ConversationId] = []
    edge = (await tx.conversation(conversation_id)).owner
    while edge is not None:
        found.append(edge.conversation_id)
        edge = (await tx.conversation(edge.conversation_id)).owner
    return found


async def _sums(tx: Tx, conversation_id: ConversationId) -> list[UsageSums]:
    """The sums that something used in a conversation is a part of."""
    own = await tx.doc(USAGE, conversation_id)
    found: list[UsageSums] = [own]
    for at in await conversations_above(tx, conversation_id):
        found.append((await tx.doc(USAGE, at)).below)  # noqa: PERF401 - it awaits
    return found


async def _count_in_run(tx: Tx, conversation_id: ConversationId, used: Usage) -> None:
    live = await tx.doc(LIVE, conversation_id)
    if live.run is not None:
        live.run.tokens += tokens_of(used)
        live.run.cost += used.cost
