"""Pasts made by hand: histories that the product would never come to, for checks to refuse.

Owns short ways to note what happened in a world that nobody ran. What is stored at its end is the
sum of the commits that were kept, unless a test says otherwise.
"""

from __future__ import annotations

from typing import Any

import attrs

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.agent import INBOX, LIVE
from pidurable_actors.records import (
    ASSISTANT,
    ROOT_ID,
    TOOL_RESULT,
    AssistantMessage,
    Batch,
    Change,
    CommitNumber,
    ConversationId,
    DocumentRecord,
    EntryDraft,
    EntryId,
    EntryRecord,
    Pending,
    PutDocument,
    Running,
    StopReason,
    SubmissionId,
    SubmissionRecord,
    SubmissionStatus,
    TaskId,
    TaskRecord,
    TaskState,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
)
from pidurable_actors.session import Publication
from pidurable_actors.testing import MemoryDisk, World
from pidurable_actors.testing._records import Fold
from pidurable_actors.testing._trace import Began, Crashed, Ended, Event, Opened, Stored
from pidurable_actors.testing.conformance._scribe import put, put_document

__all__ = [
    "GO",
    "PENDING",
    "RUNNING",
    "Past",
    "answer",
    "inbox",
    "live",
    "result",
    "submission",
    "task",
]

GO: JsonObject = {"phase": "go"}
PENDING = Pending(checkpoint=GO)
RUNNING = Running(checkpoint=GO)


class Past:
    """What happened, noted as it comes."""

    def __init__(self) -> None:
        self.world = World(MemoryDisk(), seed=0, origin=None, life=1)
        self.kept: list[Batch] = []
        self.open()

    def note(self, *events: Event) -> None:
        """Note events."""
        for event in events:
            self.world.trace.note(event)

    def open(self) -> None:
        """A process opens the storage and finds what is kept."""
        self.note(Opened(self.world.life, len(self.kept)))

    def batch(self, *changes: Change, next_id: int | None = None, ahead: int = 0) -> Batch:
        """The next commit, or one that comes later; by default every id in it is given."""
        number = CommitNumber(len(self.kept) + 1 + ahead)
        before = self.kept[-1].next_id if self.kept else ROOT_ID + 1
        written = [change.record.id for change in changes if hasattr(change, "record")]
        free = max([before, *(int(given) + 1 for given in written)])
        return Batch(number=number, at_ms=0, next_id=next_id or free, changes=changes)

    def stored(self, *changes: Change, next_id: int | None = None) -> Batch:
        """A commit that is stored, and no more."""
        made = self.batch(*changes, next_id=next_id)
        self.note(Began((made,)), Stored((made,)))
        self.kept.append(made)
        return made

    def commit(self, *changes: Change, next_id: int | None = None) -> Batch:
        """A commit as it should be."""
        made = self.stored(*changes, next_id=next_id)
        self.world.published(Publication(made, {}))
        self.world.acknowledged(made.number)
        return made

    def crash(self, where: str = "somewhere", *, lost: int = 0) -> None:
        """The process dies, some commits with it, and another one opens."""
        del self.kept[len(self.kept) - lost :]
        self.note(Crashed(where))
        self.world.life += 1
        self.open()

    def end(self) -> World:
        """The process ends; the world, with what is kept."""
        self.note(Ended(self.world.life))
        return self.so_far()

    def so_far(self) -> World:
        """The world, with what is kept."""
        fold = Fold()
        fold.add(self.kept)
        self.world.records = fold.records()
        return self.world


def task(
    task_id: int,
    state: TaskState = RUNNING,
    *,
    kind: str = "test.task",
    task_input: JSON = None,
    owner: int | None = None,
    conversation_id: int = ROOT_ID,
    restarts: int = 0,
    memos: JsonObject | None = None,
    background: bool = False,
) -> Change:
    """A task is written."""
    return put(
        TaskRecord(
            id=TaskId(task_id),
            conversation_id=ConversationId(conversation_id),
            kind=kind,
            version=1,
            input=task_input,
            state=state,
            owner=None if owner is None else TaskId(owner),
            restarts=restarts,
            memos=memos or {},
            background=background,
        )
    )


def answer(entry_id: int, *call_ids: str, stop_reason: StopReason = "tool_use") -> Change:
    """An answer with calls is appended."""
    calls = tuple(ToolCallBlock(id=call_id, name="t", arguments={}) for call_id in call_ids)
    message = AssistantMessage(content=calls, stop_reason=stop_reason)
    return put(
        EntryRecord(id=EntryId(entry_id), conversation_id=ROOT_ID, kind=ASSISTANT, model=(message,))
    )


def result(entry_id: int, call_id: str) -> Change:
    """A result is appended."""
    message = ToolResultMessage(call_id=call_id, tool_name="t", content=(TextBlock(text="ok"),))
    return put(
        EntryRecord(
            id=EntryId(entry_id), conversation_id=ROOT_ID, kind=TOOL_RESULT, model=(message,)
        )
    )


QUEUED = SubmissionRecord(
    id=SubmissionId(0),
    conversation_id=ROOT_ID,
    type="input",
    status="queued",
    draft=EntryDraft(kind="test.note"),
)


def submission(submission_id: int, status: SubmissionStatus, **fields: Any) -> Change:
    """A submission is written, whole for its status unless `fields` say otherwise."""
    whole: dict[SubmissionStatus, dict[str, Any]] = {
        "queued": {},
        "placed": {"entry": submission_id + 1, "draft": None},
        "done": {"entry": submission_id + 1, "draft": None, "answer": submission_id + 2},
        "unanswered": {"entry": submission_id + 1, "draft": None, "reason": "aborted"},
    }
    given = {"id": submission_id, "status": status, **whole[status], **fields}
    return put(attrs.evolve(QUEUED, **given))


def inbox(*submission_ids: int) -> PutDocument:
    """The inbox is written."""
    return _document(500, INBOX.kind, {"items": [{"submission_id": it} for it in submission_ids]})


def live(*submission_ids: int, task_id: int = 0, failed: bool = False) -> PutDocument:
    """What goes on is written: a run of submissions, or none."""
    run: JSON = {"submissions": list(submission_ids)} if submission_ids else None
    value: JsonObject = {
        "run": run,
        "generation": {"task_id": task_id} if task_id else None,
        "run_failure": {"reason": "aborted"} if failed else None,
    }
    return _document(501, LIVE.kind, value)


def _document(document_id: int, kind: str, value: JSON) -> PutDocument:
    record = DocumentRecord(id=document_id, kind=kind, scope="conversation", scope_id=ROOT_ID)
    return put_document(record, value)
