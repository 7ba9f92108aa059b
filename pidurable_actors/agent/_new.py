"""Making a conversation: its record, what it runs with, its id at the provider."""

from __future__ import annotations

import attrs

from pidurable_actors.agent._agent import choose
from pidurable_actors.agent._documents import AGENT, PROVIDER
from pidurable_actors.agent._services import AgentServices
from pidurable_actors.errors import MisuseError
from pidurable_actors.records import ConversationId, ConversationRecord, EntryId, TaskId
from pidurable_actors.session import Tx
from pidurable_actors.settings import AgentChoice

__all__ = ["check_agent", "fork_conversation", "new_conversation"]


def check_agent(services: AgentServices, agent: AgentChoice | None) -> None:
    """Refuse an agent that cannot run, before anything is written.

    Raises:
        MisuseError: it is no `AgentChoice`.
        UnknownModel: no installed provider serves its model.
    """
    if agent is None:
        return
    if not isinstance(agent, AgentChoice):
        raise MisuseError(f"agent= takes AgentChoice(model=...), not {agent!r}.")
    if agent.model is not None:
        services.models.resolve(agent.model)


async def new_conversation(
    tx: Tx,
    services: AgentServices,
    *,
    agent: AgentChoice | None,
    record: ConversationRecord | None = None,
    owner: TaskId | None = None,
) -> ConversationRecord:
    """Create a conversation with its first choices.

    Args:
        tx: the commit.
        services: chance, for the session id.
        agent: what it runs with.
        record: the root's record.
        owner: the task that owns it.

    Raises:
        TaskRefused: the owner is missing, ending or abort-marked.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    made = tx.create_conversation(record, owner=owner)
    await _choose(tx, services, made, agent)
    return made


async def fork_conversation(
    tx: Tx,
    services: AgentServices,
    conversation_id: ConversationId,
    *,
    at: EntryId | None,
    agent: AgentChoice | None,
) -> ConversationRecord:
    """Fork a conversation; see `Tx.fork`.

    Args:
        tx: the commit.
        services: chance, for the session id: a fork has one of its own.
        conversation_id: what is forked.
        at: the last entry that the fork sees; None for the newest.
        agent: what it runs with; None for what its parent does.

    Raises:
        StorageRequestError: there is no such entry, or it is not seen.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    made = await tx.fork(conversation_id, at=at)
    await _choose(tx, services, made, agent)
    return made


async def _choose(
    tx: Tx, services: AgentServices, made: ConversationRecord, agent: AgentChoice | None
) -> None:
    if agent is not None:
        choose(
            await tx.doc(AGENT, made.id),
            {field.name: getattr(agent, field.name) for field in attrs.fields(AgentChoice)},
        )
    provider = await tx.doc(PROVIDER, made.id)
    provider.session_id = services.chance.session_id(tx.now_ms)
