"""Runs: when a submission is placed, when a run starts, how it ends.

Functions of a transaction; each is used inside the one commit that makes its facts true together.
`pi.live` says whether a run is going; while it is, or while a compaction holds it up, inputs wait
in `pi.inbox` for a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pidurable_actors._json import JSON, JsonObject, fingerprint
from pidurable_actors.agent._documents import LIVE, GenerationState, RunFailure, RunState
from pidurable_actors.agent._inbox import place_inputs, place_writes, queue, withdraw_inputs
from pidurable_actors.agent._services import AgentServices, GenerationInput
from pidurable_actors.agent._usage import count_run
from pidurable_actors.errors import (
    ConversationBusy,
    NothingToRetry,
    RequestConflict,
    TaskRefused,
)
from pidurable_actors.records import (
    ConversationId,
    EntryDraft,
    EntryId,
    FaultedOutcome,
    SubmissionId,
    SubmissionRecord,
    SubmissionStatus,
    SubmissionType,
    TaskOutcome,
    UnansweredReason,
    WhenBusy,
)
from pidurable_actors.records.codec import draft_to_json
from pidurable_actors.session import Tx

__all__ = [
    "admit_submission",
    "answer_run",
    "ended_because",
    "fail_run",
    "go_on",
    "reset_run",
    "retry_run",
]

_UNSET = SubmissionId(0)


async def admit_submission(
    tx: Tx,
    services: AgentServices,
    conversation_id: ConversationId,
    draft: EntryDraft,
    *,
    kind: SubmissionType,
    when_busy: WhenBusy = "follow_up",
    request_id: str | None = None,
    caller: JsonObject | None = None,
) -> SubmissionRecord:
    """Take a submission: place it when nothing goes on, else queue it.

    Returns:
        The submission; the earlier one when `request_id` was used before with the same request.

    Raises:
        RequestConflict: `request_id` was used before with another request.
        ConversationBusy: a run is going and `when_busy` is ``"reject"``.
        StorageRequestError: there is no such conversation.
        TaskRefused: an input, where the task that owns the conversation is ending or has ended.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    # Digests of the parts, so that a conflict can name the one that differs.
    digest = fingerprint(draft_to_json(draft))
    wanted = SubmissionRecord(
        id=_UNSET,
        conversation_id=conversation_id,
        type=kind,
        status="queued",
        when_busy=when_busy,
        request_id=request_id,
        fingerprint=digest,
        draft=draft,
        caller=caller,
    )
    earlier = await _earlier(tx, wanted)
    if earlier is not None:
        return earlier
    if kind == "input":
        await _refuse_unanswerable(tx, conversation_id)
    live = await tx.doc(LIVE, conversation_id)
    busy = live.run is not None or live.compacting is not None
    if busy and kind == "input" and when_busy == "reject":
        raise ConversationBusy(conversation_id)
    submission = tx.create_submission(wanted)
    await queue(tx, submission)
    if live.run is None:
        await place_writes(tx, conversation_id)
        if kind == "input":
            await _start_next(tx, services, conversation_id)
    return await tx.submission(submission.id)


async def retry_run(
    tx: Tx, services: AgentServices, conversation_id: ConversationId, request_id: str | None
) -> SubmissionRecord:
    """Start a run that goes on where the last one ended without an answer.

    Returns:
        A submission of type ``retry`` that stands for the input of the failed run, whose own
        submission is settled; the earlier one when `request_id` was used before for a retry.

    Raises:
        RequestConflict: `request_id` was used before for something else.
        ConversationBusy: a run is going, or a compaction holds one up.
        NothingToRetry: the last run was answered, was reset, or there was none.
        TaskRefused: the task that owns the conversation is ending or has ended.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    wanted = SubmissionRecord(
        id=_UNSET,
        conversation_id=conversation_id,
        type="retry",
        status="placed",
        request_id=request_id,
    )
    earlier = await _earlier(tx, wanted)
    if earlier is not None:
        return earlier
    live = await tx.doc(LIVE, conversation_id)
    if live.run is not None or live.compacting is not None:
        raise ConversationBusy(conversation_id)
    failed = [] if live.run_failure is None else list(live.run_failure.submissions)
    if not failed:
        raise NothingToRetry(conversation_id)
    await _refuse_unanswerable(tx, conversation_id)
    first, last = [await tx.submission(SubmissionId(at)) for at in (failed[0], failed[-1])]
    made = tx.create_submission(attrs.evolve(wanted, entry=last.entry, caller=first.caller))
    await place_writes(tx, conversation_id)
    await _start_run(tx, services, conversation_id, [made])
    return made


async def answer_run(
    tx: Tx, services: AgentServices, conversation_id: ConversationId, answer: EntryId
) -> None:
    """End the run with its answer; the next queued input starts its run in the same commit.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    if await _settle_run(tx, conversation_id, answer=answer):
        await place_writes(tx, conversation_id)
        await _start_next(tx, services, conversation_id)


async def fail_run(
    tx: Tx, conversation_id: ConversationId, reason: UnansweredReason, detail: JSON
) -> None:
    """End the run without an answer; what else waits is left for the next submission.

    Where no more work may be created, because the task that owns the conversation ends, nobody
    could ever answer it: then it is withdrawn.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    if await _settle_run(tx, conversation_id, reason=reason, detail=detail):
        await place_writes(tx, conversation_id)
        if not await tx.takes_work(conversation_id):
            await withdraw_inputs(tx, conversation_id)


async def reset_run(tx: Tx, services: AgentServices, conversation_id: ConversationId) -> None:
    """End the run whose question a reset took out of sight; what else waits goes on.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    if await _settle_run(tx, conversation_id, reason="reset"):
        await _start_next(tx, services, conversation_id)


async def go_on(tx: Tx, services: AgentServices, conversation_id: ConversationId) -> None:
    """Do what a compaction held up: place writes, and start the run that waited for its end.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE, conversation_id)
    if live.run is not None:
        return
    await place_writes(tx, conversation_id)
    if live.held and live.compacting is None:
        live.held = False
        await _start_next(tx, services, conversation_id)


def ended_because(outcome: TaskOutcome) -> tuple[UnansweredReason, JSON]:
    """Reason and detail of what a built-in task leaves that ended without its own code."""
    if not isinstance(outcome, FaultedOutcome):
        return "orphaned", None
    return "restart_limit" if outcome.by_restart_limit else "faulted", outcome.error


async def _settle_run(
    tx: Tx,
    conversation_id: ConversationId,
    *,
    answer: EntryId | None = None,
    reason: UnansweredReason | None = None,
    detail: JSON = None,
) -> bool:
    live = await tx.doc(LIVE, conversation_id)
    if live.run is None:
        return False
    ids = list(live.run.submissions)
    await count_run(tx, conversation_id, live.run.ran_ms(tx.now_ms))
    for submission_id in ids:
        submission = await tx.submission(SubmissionId(submission_id))
        if submission.status not in ("done", "unanswered"):
            status: SubmissionStatus = "done" if reason is None else "unanswered"
            tx.put_submission(
                attrs.evolve(submission, status=status, answer=answer, reason=reason, detail=detail)
            )
    live.run = None
    live.generation = None
    live.tools.clear()
    live.run_failure = None
    if reason is not None:
        # Nothing is left to answer of a run that was reset.
        again = [] if reason == "reset" else ids
        live.run_failure = RunFailure(reason=reason, detail=detail, submissions=again)
    return True


async def _start_next(tx: Tx, services: AgentServices, conversation_id: ConversationId) -> None:
    live = await tx.doc(LIVE, conversation_id)
    if live.compacting is not None:
        live.held = True
        return
    placed = await place_inputs(tx, services, conversation_id)
    if placed:
        await _start_run(tx, services, conversation_id, placed)


async def _start_run(
    tx: Tx,
    services: AgentServices,
    conversation_id: ConversationId,
    submissions: Sequence[SubmissionRecord],
) -> None:
    task_id = tx.create_task(
        services.generation, GenerationInput(), conversation_id=conversation_id
    )
    live = await tx.doc(LIVE, conversation_id)
    live.run = RunState(submissions=[s.id for s in submissions], started_at_ms=tx.now_ms)
    live.generation = GenerationState(task_id=task_id)
    live.run_failure = None
    live.held = False


async def _refuse_unanswerable(tx: Tx, conversation_id: ConversationId) -> None:
    edge = (await tx.conversation(conversation_id)).owner
    if edge is not None and not await tx.takes_work(conversation_id):
        raise TaskRefused(
            f"task {edge.task_id}, which owns conversation {conversation_id}, is ending or has "
            "ended; nobody would answer.",
            edge.task_id,
        )


async def _earlier(tx: Tx, wanted: SubmissionRecord) -> SubmissionRecord | None:
    """The submission that used the request id before, which must be the same request."""
    if wanted.request_id is None:
        return None
    earlier = await tx.submission_by_request(wanted.conversation_id, wanted.request_id)
    if earlier is None:
        return None
    differing = {
        "type": earlier.type != wanted.type,
        "content": earlier.fingerprint != wanted.fingerprint,
        "when_busy": earlier.when_busy != wanted.when_busy,
    }
    for field, differs in differing.items():
        if differs:
            raise RequestConflict(wanted.request_id, field)
    return earlier
