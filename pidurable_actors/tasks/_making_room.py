"""Making room for the next request: its size, and whether a compaction must or may come first.

The size is that of the request as it would be composed now from what is stored, by the estimate, so
failed runs count like good ones. What was tried for a turn is in its checkpoint, and how often
compactions failed in a row in the live document: neither a restart nor another input begins a
paid loop anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from pidurable_actors.agent import (
    LIVE,
    AgentServices,
    CompactionPlan,
    LiveState,
    failures_under,
    plan_compaction,
    start_compaction,
    summary_waits,
)
from pidurable_actors.records import EntryRecord, TaskId, newest_head
from pidurable_actors.runtime import Checkpoint, Continue, Next, Runtime, WaitFor
from pidurable_actors.session import Tx
from pidurable_actors.tasks._compaction_range import CompactionRange, choose_range
from pidurable_actors.tasks._composing import Composed

__all__ = ["Room", "TooLarge", "Tried", "make_room", "room_after_refusal"]


@attrs.frozen
class Tried:
    """What was done for the room of one turn's request; part of the checkpoints of a turn.

    Attributes:
        head: what set the head of the model's view when a compaction was begun; 0 for nothing.
        refused: what the provider said when it found the request too long.
    """

    head: int
    refused: str | None = None


@attrs.frozen
class Room:
    """A compaction to wait for, and what is then tried.

    Attributes:
        task_id: None when it is over, and its summary only waits for its place.
        tried: for the checkpoints of the turn.
    """

    task_id: TaskId | None
    tried: Tried | None

    def before(self, then: Checkpoint) -> Next[Any]:
        """The step that waits for it."""
        return Continue(then) if self.task_id is None else WaitFor([self.task_id], then)


@attrs.frozen
class TooLarge:
    """The request cannot be sent; why, and what helps."""

    message: str


@attrs.frozen
class _Needs:
    """A request that is to be decided, and what a compaction would go by."""

    composed: Composed
    plan: CompactionPlan
    tokens: int
    limit: int
    window: int


async def make_room(
    tx: Tx, runtime: Runtime, composed: Composed, model: str, tried: Tried | None
) -> Room | TooLarge | None:
    """See whether a request has room.

    Args:
        tx: the commit in which it is decided.
        runtime: of the task that decides.
        composed: what it would be made of.
        model: who would be asked.
        tried: what was done for it already; None for nothing.

    Returns:
        A compaction to wait for; or why nothing can be sent; None when it can be sent. A compaction
        beside the run may have been started.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    head = _head_of(composed.entries)
    if tried is not None and tried.refused is not None and tried.head == head:
        # It was refused, and the compaction that was to help did not.
        return TooLarge(tried.refused)
    plan = plan_compaction(runtime.service(AgentServices), model)
    if plan.limit is None or plan.window is None or not plan.settings.enabled:
        return None
    tokens = composed.tokens(plan.info)
    if tokens <= (plan.background_from or 0):
        return None
    needs = _Needs(composed, plan, tokens, plan.limit, plan.window)
    if await summary_waits(tx, runtime.conversation_id):
        return Room(None, tried)
    live = await tx.doc(LIVE, runtime.conversation_id)
    if tokens <= plan.limit:
        await _begin_in_good_time(tx, runtime, needs, live)
        return None
    for under_way in live.compactions:
        return Room(TaskId(under_way.task_id), tried)
    if tried is None:
        task_id = await _compacted_first(tx, runtime, needs, live)
        if task_id is not None:
            return Room(task_id, Tried(head))
    return None if tokens <= plan.window else TooLarge(_too_large(needs, live))


async def room_after_refusal(
    tx: Tx,
    runtime: Runtime,
    entries: Sequence[EntryRecord],
    model: str,
    *,
    tried: Tried | None,
    refused: str,
) -> Room | None:
    """A compaction to wait for, after the provider found a request too long; None when none helps.

    Args:
        tx: the commit.
        runtime: of the task that asked.
        entries: what the request was made from.
        model: who was asked.
        tried: what was done for it before; None for nothing.
        refused: what the provider said.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    head = _head_of(entries)
    if tried is not None and (tried.refused is not None or tried.head == head):
        return None
    services = runtime.service(AgentServices)
    plan = plan_compaction(services, model)
    if not plan.settings.enabled:
        return None
    then = Tried(head, refused)
    if await summary_waits(tx, runtime.conversation_id):
        return Room(None, then)
    live = await tx.doc(LIVE, runtime.conversation_id)
    for under_way in live.compactions:
        return Room(TaskId(under_way.task_id), then)
    if failures_under(live, plan.policy) >= plan.settings.max_tries:
        return None
    task_id = await start_compaction(
        tx, services, runtime.conversation_id, reason="overflow", owner=runtime.task_id
    )
    return Room(task_id, then)


def _head_of(entries: Sequence[EntryRecord]) -> int:
    """The entry that says where the model's view begins; 0 when it sees everything."""
    head = newest_head(entries)
    return 0 if head is None else head.id


async def _begin_in_good_time(tx: Tx, runtime: Runtime, needs: _Needs, live: LiveState) -> None:
    """Start a compaction beside the run, unless it is under way, just failed, or not worth it."""
    plan = needs.plan
    if live.compactions or failures_under(live, plan.policy):
        return
    about = _range(runtime, needs)
    # What was summarized a short while ago need not be summarized again with every turn.
    worth = (needs.limit - (plan.background_from or 0)) // 2
    if about is not None and about.new_tokens >= worth:
        await start_compaction(
            tx,
            runtime.service(AgentServices),
            runtime.conversation_id,
            reason="background",
            background=True,
        )


async def _compacted_first(
    tx: Tx, runtime: Runtime, needs: _Needs, live: LiveState
) -> TaskId | None:
    """A compaction that the request must wait for; None when none would help."""
    if failures_under(live, needs.plan.policy) >= needs.plan.settings.max_tries:
        return None
    if _range(runtime, needs) is None:
        return None
    return await start_compaction(
        tx,
        runtime.service(AgentServices),
        runtime.conversation_id,
        reason="threshold",
        owner=runtime.task_id,
    )


def _range(runtime: Runtime, needs: _Needs) -> CompactionRange | None:
    return choose_range(
        needs.composed.entries,
        conversation_id=runtime.conversation_id,
        keep_tokens=needs.plan.keep_tokens,
        info=needs.plan.info,
    )


def _too_large(needs: _Needs, live: LiveState) -> str:
    failure = live.compaction_failure
    tries = failures_under(live, needs.plan.policy)
    why = "what is left cannot be summarized further"
    if failure is not None and tries:
        why = f"{tries} compaction(s) in a row failed, the last with reason {failure.reason!r}"
    return (
        f"the request has about {needs.tokens:,} tokens and {needs.plan.model} takes "
        f"{needs.window:,}; {why}. Reset the conversation, fork it at an earlier entry, give it a "
        "model with a larger window, or change the compaction settings; then retry."
    )
