"""Whether each submission came to one end, and the conversation still means to bring it there.

Owns the fate of submissions: their records over all commits, and at the end what the built-in
documents `pi.inbox` and `pi.live` say of those that are open. The invariant: it passes exactly when
each went forward only, was settled once, and an open one has something that will settle it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pidurable_actors.agent import INBOX, LIVE
from pidurable_actors.records import (
    ConversationId,
    EntryId,
    PutSubmission,
    SubmissionId,
    SubmissionRecord,
    SubmissionStatus,
    TaskId,
    is_live,
)
from pidurable_actors.testing._records import Records
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["submissions_settled_once"]

_PROMISE: Final = (
    "a submission goes from queued over placed to done or unanswered, is settled once, and an open "
    "one is in the inbox or in a run that a live task answers"
)
_ORDER: Final[Mapping[SubmissionStatus, int]] = {
    "queued": 0,
    "placed": 1,
    "done": 2,
    "unanswered": 2,
}
_SETTLED: Final = 2


def submissions_settled_once(world: World) -> None:
    """Each submission goes forward only and is settled once; an open one will be settled.

    An answer is there exactly when an input is done, a reason exactly when it is unanswered; no two
    submissions have one entry, but for the retries of one. What waits in a conversation without a
    run waits after a failed run, for the next submission; a queued write never does.

    Raises:
        AssertionError: one went back, was settled again, is incomplete, or is forgotten.
    """
    newest: dict[SubmissionId, SubmissionRecord] = {}
    entries: dict[EntryId, SubmissionId] = {}
    for commit, change in world.history.changes(PutSubmission):
        after = change.record
        _check_step(commit, newest.get(after.id), after)
        _check_whole(after)
        newest[after.id] = after
        if after.type == "retry":
            continue  # it stands for the input of a run that failed, and has the entry of that
        if after.entry is not None and entries.setdefault(after.entry, after.id) != after.id:
            raise _broken(after, f"has entry {after.entry}, as {entries[after.entry]} has.")
    for conversation_id in {record.conversation_id for record in newest.values()}:
        _check_open(world.records, conversation_id)


def _check_step(commit: int, before: SubmissionRecord | None, after: SubmissionRecord) -> None:
    if before is None:
        return
    if _ORDER[after.status] < _ORDER[before.status]:
        raise _broken(after, f"went back from {before.status} in commit {commit}.")
    if _ORDER[before.status] == _SETTLED and before != after:
        raise _broken(
            after,
            f"was settled again in commit {commit}.\n  first: {before!r}\n  then:  {after!r}",
        )


def _check_whole(record: SubmissionRecord) -> None:
    answered = record.status == "done" and record.type != "write"
    if (record.answer is not None) != answered:
        raise _broken(record, f"is {record.status} with answer {record.answer}.")
    if (record.reason is not None) != (record.status == "unanswered"):
        raise _broken(record, f"is {record.status} with reason {record.reason}.")
    if (record.draft is not None) != (record.status == "queued"):
        raise _broken(record, f"is {record.status} with draft {record.draft!r}.")
    if record.entry is None and record.status in ("placed", "done"):
        raise _broken(record, f"is {record.status} without an entry.")


def _check_open(records: Records, conversation_id: ConversationId) -> None:
    mine = [r for r in records.submissions.values() if r.conversation_id == conversation_id]
    inbox = _document(records, conversation_id, INBOX.kind)
    live = _document(records, conversation_id, LIVE.kind)
    run = live.get("run")
    answering = set() if run is None else set(run["submissions"])
    waiting = {item["submission_id"] for item in inbox.get("items", ())}
    for record in mine:
        if (record.id in waiting) != (record.status == "queued"):
            raise _broken(record, f"is {record.status}; the inbox has {sorted(waiting)}.")
        if record.status == "placed" and record.id not in answering:
            raise _broken(record, f"is placed; the run answers {sorted(answering)}.")
        if record.status == "queued" and run is None:
            if record.type == "write":
                raise _broken(record, "is a write that waits, and no run is going.")
            if live.get("run_failure") is None:
                raise _broken(record, "waits, no run is going, and the last one did not fail.")
    if run is not None:
        task = records.tasks.get(TaskId((live.get("generation") or {}).get("task_id", 0)))
        if task is None or not is_live(task):
            raise broken(
                "submissions_settled_once",
                _PROMISE,
                f"conversation {conversation_id} has a run of {sorted(answering)} that no live "
                "task answers.",
            )


def _document(records: Records, conversation_id: ConversationId, kind: str) -> Mapping[str, Any]:
    found = records.documents.get(("conversation", conversation_id, kind, ""))
    return found if isinstance(found, dict) else {}


def _broken(record: SubmissionRecord, seen: str) -> AssertionError:
    told = f"submission {record.id} of conversation {record.conversation_id} {seen}"
    return broken("submissions_settled_once", _PROMISE, told)
