"""Sending: what a decided request goes out with, besides what its checkpoint says.

A task that decided it has all of that at hand; one that was cut off in between reads it again, and
counts what the earlier request may have used.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pidurable_actors.agent import (
    PROVIDER,
    Agent,
    AgentServices,
    Limit,
    shown_prompt,
    wall_limit,
)
from pidurable_actors.models import ModelOptions, ModelProvider, ModelRequest
from pidurable_actors.records import EntryRecord, context_of, visible_entries
from pidurable_actors.runtime import Checkpoint, Continue, Runtime
from pidurable_actors.session import Tx
from pidurable_actors.tasks._attempt import forget_half
from pidurable_actors.tasks._composing import agent_in
from pidurable_actors.tasks._hook_run import before_request

__all__ = ["Sending", "build_request", "sending_again", "session_in"]


@attrs.frozen(kw_only=True)
class Sending:
    """What a request goes out with.

    Attributes:
        agent: what the conversation runs with.
        entries: what the request is made of, oldest first.
        session: the session id.
        wall: the limit of time that comes first.
    """

    agent: Agent
    entries: Sequence[EntryRecord]
    session: str | None
    wall: Limit | None


async def build_request(
    runtime: Runtime, model: str, options: ModelOptions | None, sending: Sending
) -> tuple[ModelProvider, ModelRequest]:
    """The request as it is sent, and to whom.

    Args:
        runtime: of the task that asks.
        model: who is asked.
        options: how to answer; None for the defaults.
        sending: what it goes out with.

    Raises:
        UnknownModel: nobody serves the model.

    Durability: stores nothing; hooks may.

    Cancellation: hooks may run again.
    """
    provider, model_id = runtime.service(AgentServices).models.resolve(model)
    entries = visible_entries(sending.entries)
    request = ModelRequest(
        model_id=model_id,
        messages=context_of(entries),
        tools=shown_prompt(entries).tools,
        options=options or ModelOptions(),
        session_id=sending.session,
    )
    return provider, await before_request(runtime, sending.agent, request)


async def sending_again(
    runtime: Runtime, model: str, newest: int, anew: Checkpoint
) -> Sending | Continue:
    """What a request goes out with that an earlier run of the task decided, or sent.

    Args:
        runtime: of the task that asks.
        model: who is asked.
        newest: the last entry that the request sees.
        anew: where it is decided.

    Returns:
        The step to take instead where budgets hold: what they had left is taken to be used by the
        earlier one, so they must allow it anew.

    Durability: on return what the earlier one used is counted.

    Cancellation: `Cancelled` means that nothing was stored.
    """
    entries = await runtime.transcript(runtime.conversation_id)

    async def look(tx: Tx) -> Sending | Continue:
        services = runtime.service(AgentServices)
        if await forget_half(tx, runtime, model):
            return Continue(anew)
        agent = await agent_in(tx, services)
        return Sending(
            agent=agent,
            entries=[entry for entry in entries if entry.id <= newest],
            session=await session_in(tx),
            wall=await wall_limit(tx, services, agent),
        )

    return await runtime.commit(look)


async def session_in(tx: Tx) -> str | None:
    """The bound conversation's session id at its provider.

    Durability: stores nothing.

    Cancellation: the commit rolls back.
    """
    return (await tx.doc(PROVIDER)).session_id or None
