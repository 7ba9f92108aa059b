"""The inbox: what waits in a conversation, and how it gets its place in the transcript.

Functions of a transaction. Taking an item out and appending its entry are one commit, so that a
submission is never taken without being placed. `pi.inbox` has what waits, oldest first; the content
is in the submission.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pidurable_actors._limits import LIMITS
from pidurable_actors.agent._documents import INBOX, LIVE, InboxItem, InboxState
from pidurable_actors.agent._services import AgentServices
from pidurable_actors.records import (
    COMPACTION,
    RESET,
    ConversationId,
    EntryDraft,
    EntryId,
    EntryRecord,
    SubmissionId,
    SubmissionRecord,
    UnansweredReason,
)
from pidurable_actors.session import Tx

__all__ = [
    "outdates",
    "place_inputs",
    "place_steering",
    "place_writes",
    "queue",
    "summary_waits",
    "withdraw",
    "withdraw_inputs",
]


async def queue(tx: Tx, submission: SubmissionRecord) -> None:
    """Let a submission wait.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    inbox = await tx.doc(INBOX, submission.conversation_id)
    item = InboxItem(
        submission_id=submission.id, type=submission.type, when_busy=submission.when_busy
    )
    inbox.items.append(item)
    inbox.writes += _is_write(item)
    inbox.steering += _is_steering(item)


async def place_writes(tx: Tx, conversation_id: ConversationId) -> bool:
    """Append the queued writes, oldest first.

    A summary that is out of date is not placed; it is ``unanswered`` with reason ``stale``: the
    model's view begins later than it would let it begin, or what it stands for was edited since.

    Returns:
        Whether the last of them took the question of a run under way out of the model's sight.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    inbox = await tx.doc(INBOX, conversation_id)
    cut = False
    for item in _take(inbox, _is_write, limit=inbox.writes):
        submission = await tx.submission(SubmissionId(item.submission_id))
        draft = _draft_of(submission)
        if draft.kind == COMPACTION and await _is_stale(tx, conversation_id, draft):
            tx.put_submission(_given_up(submission, "stale"))
            continue
        placed = _place(tx, submission, draft)
        tx.put_submission(attrs.evolve(placed, status="done"))
        if draft.kind == RESET:
            cut = not draft.model
    live = await tx.doc(LIVE, conversation_id)
    if cut and live.run_failure is not None:
        # The question that a retry would go on with is out of sight.
        live.run_failure.submissions = []
    return cut


def outdates(entry: EntryRecord, first: EntryId) -> bool:
    """Whether an entry puts a summary out of date that was begun before it.

    Args:
        entry: it came after the summary was begun.
        first: the first entry that the summary does not stand for.
    """
    cut = entry.head is not None and entry.head > first
    # What an edit hides, or says otherwise, must not be read in a summary.
    return cut or any(edit.entry_id < first for edit in entry.edits)


async def summary_waits(tx: Tx, conversation_id: ConversationId) -> bool:
    """Whether the summary of a compaction waits for its place among the queued writes.

    Durability: stores nothing.

    Cancellation: the commit rolls back.
    """
    inbox = await tx.doc(INBOX, conversation_id)
    if inbox.writes:
        for item in inbox.items:
            if _is_write(item):
                submission = await tx.submission(SubmissionId(item.submission_id))
                if _draft_of(submission).kind == COMPACTION:
                    return True
    return False


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
    for placed in await _place_taken(tx, _take(inbox, _is_steering, limit=limit)):
        live.run.submissions.append(placed.id)


async def place_inputs(
    tx: Tx, services: AgentServices, conversation_id: ConversationId
) -> list[SubmissionRecord]:
    """Append the inputs that the next run answers, oldest first; none when none wait.

    Where no more work may be created, because the task that owns the conversation ends, nobody
    could ever answer them: then all are withdrawn.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    inbox = await tx.doc(INBOX, conversation_id)
    waiting = len(inbox.items) - inbox.writes
    if not waiting:
        return []
    if not await tx.takes_work(conversation_id):
        await withdraw_inputs(tx, conversation_id)
        return []
    limit = 1 if services.settings().follow_up_mode == "one" else waiting
    return await _place_taken(tx, _take(inbox, _is_input, limit=limit))


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
    tx.put_submission(_given_up(submission, reason))
    return True


async def withdraw_inputs(tx: Tx, conversation_id: ConversationId) -> None:
    """Withdraw every queued input; writes stay.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    inbox = await tx.doc(INBOX, conversation_id)
    for item in _take(inbox, _is_input, limit=len(inbox.items)):
        queued = await tx.submission(SubmissionId(item.submission_id))
        tx.put_submission(_given_up(queued, "withdrawn"))


async def _is_stale(tx: Tx, conversation_id: ConversationId, draft: EntryDraft) -> bool:
    """Whether something came after a summary was begun that puts it out of date."""
    data = draft.data if isinstance(draft.data, dict) else {}
    seen, first = data.get("seen"), draft.head or EntryId(0)
    if not isinstance(seen, int):
        return False
    before: EntryId | None = None
    while page := await tx.entries(conversation_id, before=before, limit=LIMITS.page):
        for entry in page:
            if entry.id <= seen:
                return False
            if outdates(entry, first):
                return True
        before = page[-1].id
    return False


async def _place_taken(tx: Tx, items: list[InboxItem]) -> list[SubmissionRecord]:
    placed: list[SubmissionRecord] = []
    for item in items:
        submission = await tx.submission(SubmissionId(item.submission_id))
        made = _place(tx, submission, _draft_of(submission))
        tx.put_submission(made)
        placed.append(made)
    return placed


def _place(tx: Tx, submission: SubmissionRecord, draft: EntryDraft) -> SubmissionRecord:
    if draft.kind == RESET:
        # What comes before itself is out of sight; it has its id when it is appended.
        draft = attrs.evolve(draft, head=EntryId(tx.next_id))
    entry = tx.append_entry(submission.conversation_id, draft)
    return attrs.evolve(submission, status="placed", entry=entry.id, draft=None)


def _draft_of(submission: SubmissionRecord) -> EntryDraft:
    assert submission.draft is not None, "a queued submission has its content"
    return submission.draft


def _given_up(submission: SubmissionRecord, reason: UnansweredReason) -> SubmissionRecord:
    return attrs.evolve(submission, status="unanswered", reason=reason, draft=None)


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
