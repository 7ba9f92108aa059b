"""Runs and the inbox: when a submission is placed, when a run starts, how it ends.

Functions of a transaction; each is used inside the one commit that makes its facts true together,
so that a submission is never taken from the inbox without being placed. `pi.live` says whether a
run is going; while it is, inputs wait in `pi.inbox` for a boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from pidurable_actors._json import JSON, JsonObject, fingerprint
from pidurable_actors.agent._documents import (
    INBOX,
    LIVE,
    GenerationState,
    InboxItem,
    InboxState,
    RunFailure,
    RunState,
)
from pidurable_actors.agent._services import AgentServices, GenerationInput
from pidurable_actors.errors import ConversationBusy, RequestConflict, TaskRefused
from pidurable_actors.records import (
    ConversationId,
    EntryDraft,
    EntryId,
    SubmissionId,
    SubmissionRecord,
    SubmissionStatus,
    SubmissionType,
    UnansweredReason,
    WhenBusy,
)
from pidurable_actors.records.codec import draft_to_json
from pidurable_actors.session import Tx

__all__ = [
    "admit_submission",
    "answer_run",
    "fail_run",
    "place_steering",
    "place_writes",
    "withdraw",
    "withdraw_inputs",
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
    if request_id is not None:
        earlier = await tx.submission_by_request(conversation_id, request_id)
        if earlier is not None:
            _check_same(earlier, request_id, kind, when_busy, digest)
            return earlier
    edge = (await tx.conversation(conversation_id)).owner
    if edge is not None and kind == "input" and not await tx.takes_work(conversation_id):
        raise TaskRefused(
            f"task {edge.task_id}, which owns conversation {conversation_id}, is ending or has "
            "ended; nobody would answer.",
            edge.task_id,
        )
    live = await tx.doc(LIVE, conversation_id)
    if live.run is not None and kind == "input" and when_busy == "reject":
        raise ConversationBusy(conversation_id)
    submission = tx.create_submission(
        SubmissionRecord(
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
    )
    inbox = await tx.doc(INBOX, conversation_id)
    _queue(inbox, InboxItem(submission_id=submission.id, type=kind, when_busy=when_busy))
    if live.run is None:
        await place_writes(tx, conversation_id)
        if kind == "input":
            await _start_next(tx, services, conversation_id)
    return await tx.submission(submission.id)


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


async def place_writes(tx: Tx, conversation_id: ConversationId) -> None:
    """Append the queued writes, oldest first.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    inbox = await tx.doc(INBOX, conversation_id)
    for item in _take(inbox, _is_write, limit=inbox.writes):
        placed = await _place(tx, conversation_id, item)
        tx.put_submission(attrs.evolve(placed, status="done"))


async def place_steering(tx: Tx, services: AgentServices, conversation_id: ConversationId) -> None:
    """Let queued steering inputs join the run that goes on, as the steering mode says.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE, conversation_id)
    inbox = await tx.doc(INBOX, conversation_id)
    if live.run is None:
        return
    limit = inbox.steering if services.settings().steering_mode == "all" else min(1, inbox.steering)
    for item in _take(inbox, _is_steering, limit=limit):
        placed = await _place(tx, conversation_id, item)
        live.run.submissions.append(placed.id)


async def withdraw(tx: Tx, submission: SubmissionRecord, reason: UnansweredReason) -> bool:
    """Take a queued submission out of the inbox.

    Returns:
        Whether it was still queued.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    if submission.status != "queued":
        return False
    inbox = await tx.doc(INBOX, submission.conversation_id)
    _take(inbox, lambda item: item.submission_id == submission.id, limit=1)
    tx.put_submission(attrs.evolve(submission, status="unanswered", reason=reason, draft=None))
    return True


async def withdraw_inputs(tx: Tx, conversation_id: ConversationId) -> None:
    """Withdraw every queued input; writes stay.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    inbox = await tx.doc(INBOX, conversation_id)
    for item in _take(inbox, _is_input, limit=len(inbox.items)):
        queued = await tx.submission(SubmissionId(item.submission_id))
        tx.put_submission(attrs.evolve(queued, status="unanswered", reason="withdrawn", draft=None))


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
    for submission_id in live.run.submissions:
        submission = await tx.submission(SubmissionId(submission_id))
        if submission.status not in ("done", "unanswered"):
            status: SubmissionStatus = "done" if reason is None else "unanswered"
            tx.put_submission(
                attrs.evolve(submission, status=status, answer=answer, reason=reason, detail=detail)
            )
    live.run = None
    live.generation = None
    live.tools.clear()
    live.run_failure = None if reason is None else RunFailure(reason=reason, detail=detail)
    return True


async def _start_next(tx: Tx, services: AgentServices, conversation_id: ConversationId) -> None:
    inbox = await tx.doc(INBOX, conversation_id)
    waiting = len(inbox.items) - inbox.writes
    if not waiting:
        return
    if not await tx.takes_work(conversation_id):
        await withdraw_inputs(tx, conversation_id)
        return
    limit = 1 if services.settings().follow_up_mode == "one" else waiting
    inputs = _take(inbox, _is_input, limit=limit)
    placed = [await _place(tx, conversation_id, item) for item in inputs]
    await _start_run(tx, services, conversation_id, placed)


def _queue(inbox: InboxState, item: InboxItem) -> None:
    inbox.items.append(item)
    inbox.writes += _is_write(item)
    inbox.steering += _is_steering(item)


def _take(inbox: InboxState, wanted: Callable[[InboxItem], bool], *, limit: int) -> list[InboxItem]:
    """Take the oldest items of a sort out; it looks no further than it must."""
    found: list[int] = []
    at = 0
    while len(found) < limit and at < len(inbox.items):
        if wanted(inbox.items[at]):
            found.append(at)
        at += 1
    taken = [inbox.items.pop(at) for at in reversed(found)]
    taken.reverse()
    inbox.writes -= sum(map(_is_write, taken))
    inbox.steering -= sum(map(_is_steering, taken))
    return taken


def _is_write(item: InboxItem) -> bool:
    return item.type == "write"


def _is_input(item: InboxItem) -> bool:
    return item.type == "input"


def _is_steering(item: InboxItem) -> bool:
    return item.type == "input" and item.when_busy == "steer"


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


async def _place(tx: Tx, conversation_id: ConversationId, item: InboxItem) -> SubmissionRecord:
    submission = await tx.submission(SubmissionId(item.submission_id))
    assert submission.draft is not None, "a queued submission has its content"
    entry = tx.append_entry(conversation_id, submission.draft)
    placed = attrs.evolve(submission, status="placed", entry=entry.id, draft=None)
    tx.put_submission(placed)
    return placed


def _check_same(
    earlier: SubmissionRecord,
    request_id: str,
    kind: SubmissionType,
    when_busy: WhenBusy,
    digest: str,
) -> None:
    differing = {
        "type": earlier.type != kind,
        "content": earlier.fingerprint != digest,
        "when_busy": earlier.when_busy != when_busy,
    }
    for field, differs in differing.items():
        if differs:
            raise RequestConflict(request_id, field)
