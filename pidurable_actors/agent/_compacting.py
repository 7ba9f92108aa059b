"""Compactions in the live document: how one begins, how it ends, and what is held against it.

Functions of a transaction. At most one compaction is under way in a conversation. What failed is
counted under a policy, a digest of the settings and models that a compaction begins with: as long
as that stays the same, it would fail in the same way again.
"""

from __future__ import annotations

from typing import Final

import attrs

from pidurable_actors._json import JSON, fingerprint
from pidurable_actors.agent._documents import (
    AGENT,
    LIVE,
    AgentState,
    CompactionFailure,
    CompactionState,
    LiveState,
)
from pidurable_actors.agent._services import AgentServices, CompactionInput, CompactionReason
from pidurable_actors.errors import UnknownModel
from pidurable_actors.models import ModelInfo
from pidurable_actors.records import ConversationId, TaskId
from pidurable_actors.session import Tx
from pidurable_actors.settings import CompactionSettings

__all__ = [
    "CompactionPlan",
    "compaction_ended",
    "compaction_failed",
    "failures_under",
    "plan_compaction",
    "start_compaction",
]

_NO_FAILURES: Final = ("skipped", "nothing", "stale", "aborted", "budget")
"""Ends without a summary that say nothing about the next attempt."""


@attrs.frozen(kw_only=True)
class CompactionPlan:
    """What a compaction of a conversation goes by now.

    Attributes:
        settings: for the conversation's model.
        model: the conversation's own, ``provider/model_id``; None when it has none.
        info: what its provider says of that.
        window: its context window in tokens; None when nobody knows.
        policy: the digest of all of it.
    """

    settings: CompactionSettings
    model: str | None
    info: ModelInfo
    window: int | None
    policy: str

    @property
    def summary_model(self) -> str | None:
        """Who writes the summary."""
        return self.settings.model or self.model

    @property
    def limit(self) -> int | None:
        """The largest request that is sent without a compaction before it; None for any."""
        if self.window is None:
            return None
        return max(self.window - self.settings.reserve_tokens, self.window // 2)

    @property
    def background_from(self) -> int | None:
        """From which size on a compaction is made beside the run; None for never."""
        limit = self.limit
        return None if limit is None else max(limit - self.settings.background_tokens, limit // 2)

    @property
    def keep_tokens(self) -> int:
        """How much of the newest turns is kept word for word."""
        keep = self.settings.keep_recent_tokens
        return keep if self.limit is None else min(keep, self.limit // 2)


def plan_compaction(services: AgentServices, model: str | None) -> CompactionPlan:
    """What a compaction goes by, given the model that a conversation runs with."""
    settings = services.settings().compaction
    if model is not None:
        settings = settings.of(model)
    info = ModelInfo()
    if model is not None:
        try:
            provider, model_id = services.models.resolve(model)
        except UnknownModel:
            pass
        else:
            info = provider.info(model_id)
    window = settings.context_window or info.context_window
    chosen = attrs.asdict(settings, filter=lambda field, _: field.name != "models")
    return CompactionPlan(
        settings=settings,
        model=model,
        info=info,
        window=window,
        policy=fingerprint([chosen, model, window]),
    )


async def start_compaction(
    tx: Tx,
    services: AgentServices,
    conversation_id: ConversationId,
    *,
    reason: CompactionReason,
    instructions: str | None = None,
    background: bool = False,
    owner: TaskId | None = None,
) -> TaskId:
    """Start a compaction, or find the one under way.

    Args:
        tx: the commit.
        services: of the process.
        conversation_id: what is compacted.
        reason: why.
        instructions: what the summary should heed.
        background: the conversation goes on meanwhile; one under way is waited for otherwise.
        owner: the task that needs it.

    Raises:
        TaskRefused: a task that owns the conversation, or `owner`, is ending.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE, conversation_id)
    for under_way in live.compactions:
        if not background and not under_way.blocking:
            under_way.blocking = True
        return TaskId(under_way.task_id)
    agent = await tx.doc(AGENT, conversation_id)
    task_id = tx.create_task(
        services.compaction,
        CompactionInput(reason=reason, instructions=instructions),
        owner=owner,
        background=background,
        conversation_id=conversation_id,
    )
    plan = plan_compaction(services, _model(services, agent))
    state = CompactionState(
        task_id=task_id, reason=reason, blocking=not background, policy=plan.policy
    )
    live.compactions.append(state)
    return task_id


def compaction_ended(live: LiveState, task_id: TaskId) -> None:
    """Note that a compaction has made its summary."""
    _take(live, task_id)
    live.compaction_failure = None


def compaction_failed(live: LiveState, task_id: TaskId, reason: str, detail: JSON) -> None:
    """Note that a compaction has come to nothing, and count it where that is a failure."""
    state = _take(live, task_id)
    if state is None or reason in _NO_FAILURES:
        return
    count = failures_under(live, state.policy) + 1
    live.compaction_failure = CompactionFailure(
        reason=reason, detail=detail, count=count, policy=state.policy
    )


def failures_under(live: LiveState, policy: str) -> int:
    """How many compactions in a row have failed under a policy."""
    failure = live.compaction_failure
    return failure.count if failure is not None and failure.policy == policy else 0


def _take(live: LiveState, task_id: TaskId) -> CompactionState | None:
    for at, state in enumerate(live.compactions):
        if state.task_id == task_id:
            return live.compactions.pop(at)
    return None


def _model(services: AgentServices, agent: AgentState) -> str | None:
    return agent.model or services.settings().agent.model
