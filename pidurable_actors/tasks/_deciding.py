"""Deciding what is asked next, in the commit that makes it so.

Owns the order of the questions: is there anything to ask, does an answer stand there already, is
there anybody to ask, is there room, does the budget allow it. Whatever ends the run ends it here;
what the task does next is for it to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs

from pidurable_actors._json import JSON
from pidurable_actors.agent import (
    AgentServices,
    Limit,
    Need,
    Refused,
    fail_run,
    reserve,
    reset_run,
)
from pidurable_actors.errors import UnknownModel
from pidurable_actors.models import ModelInfo, ModelOptions
from pidurable_actors.records import EntryId, EntryRecord, UnansweredReason
from pidurable_actors.runtime import Runtime
from pidurable_actors.session import Tx
from pidurable_actors.tasks._composing import Composed, answer_at_hand, arrived
from pidurable_actors.tasks._making_room import Room, TooLarge, Tried, make_room

__all__ = ["Answered", "Ask", "Decided", "Ended", "decide", "nothing_to_ask"]


@attrs.frozen(kw_only=True)
class Ask:
    """The model is asked.

    Attributes:
        model: who.
        entries: what the request is made of, oldest first.
        newest: the id of the last of them.
        options: how to answer; None for the defaults.
        near: the limits that are near, for the host.
        wall: the limit of time that comes first.
    """

    model: str
    entries: Sequence[EntryRecord]
    newest: int
    options: ModelOptions | None
    near: tuple[str, ...]
    wall: Limit | None


@attrs.frozen
class Answered:
    """The answer stands there already; only whether it ends the run is left to ask."""

    entry: EntryId


@attrs.frozen
class Ended:
    """The run has ended; why, for the outcome of the task."""

    error: JSON


Decided: TypeAlias = Ask | Answered | Room | Ended


async def decide(
    tx: Tx, runtime: Runtime, composed: Composed, model: str | None, tried: Tried | None
) -> Decided | None:
    """Decide what becomes of a request that was composed.

    Args:
        tx: the commit.
        runtime: of the task that decides.
        composed: what it would be made of.
        model: who would be asked.
        tried: what was done for its room before; None for nothing.

    Returns:
        None when what came meanwhile changes what a model sees, so that it must be composed anew.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    came = await arrived(tx, runtime, composed.newest)
    if came is None:
        return None
    if not composed.asks:
        return await nothing_to_ask(tx, runtime)
    answer = await answer_at_hand(tx, runtime, composed.entries)
    if answer is not None:
        return Answered(answer)
    if model is None:
        detail = "the conversation has no model; give it one with configure(model=...)"
        return await _end(tx, runtime, "no_model", detail, {"reason": "no_model"})
    room = await make_room(tx, runtime, composed, model, tried)
    if isinstance(room, TooLarge):
        too_large: JSON = {"kind": "overflow", "message": room.message}
        return await _end(tx, runtime, "model_error", too_large, too_large)
    if room is not None:
        return room
    return await _reserved(tx, runtime, composed, model, came)


async def nothing_to_ask(tx: Tx, runtime: Runtime) -> Ended:
    """End the run: what it was to answer is out of the model's sight.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    await reset_run(tx, runtime.service(AgentServices), runtime.conversation_id)
    return Ended({"reason": "reset"})


async def _reserved(
    tx: Tx, runtime: Runtime, composed: Composed, model: str, came: Sequence[EntryRecord]
) -> Ask | Ended:
    """Reserve what the request may come to, and tell the model by the system what is new."""
    services = runtime.service(AgentServices)
    options, info = composed.agent.options, _info(services, model)
    need = Need(
        tokens=composed.tokens(info),
        most=options.max_output_tokens or info.max_output_tokens,
        info=info,
        turns=1,
    )
    granted = await reserve(tx, services, composed.agent, runtime.task_id, need)
    if isinstance(granted, Refused):
        detail = granted.detail
        return await _end(tx, runtime, "budget", detail, {"reason": "budget", "detail": detail})
    if granted.most is not None:
        options = attrs.evolve(options, max_output_tokens=granted.most)
    entries = [*composed.entries, *came]
    if composed.prompt is not None:
        entries.append(tx.append_entry(runtime.conversation_id, composed.prompt))
    return Ask(
        model=model,
        entries=entries,
        newest=entries[-1].id,
        options=None if options == ModelOptions() else options,
        near=granted.near,
        wall=granted.wall,
    )


async def _end(
    tx: Tx, runtime: Runtime, reason: UnansweredReason, detail: JSON, error: JSON
) -> Ended:
    await fail_run(tx, runtime.conversation_id, reason, detail)
    return Ended(error)


def _info(services: AgentServices, model: str) -> ModelInfo:
    try:
        provider, model_id = services.models.resolve(model)
    except UnknownModel:  # The request says so.
        return ModelInfo()
    return provider.info(model_id)
