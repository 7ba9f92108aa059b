"""Short ways to write batches and to read documents, for the promises of a storage.

Owns the numbering: a scribe knows the next commit number and the next free id, and moves on only
when the storage took the batch.
"""

from __future__ import annotations

from typing import Any

import attrs

from pidurable_actors._frozen import freeze
from pidurable_actors._json import JSON, encode_json
from pidurable_actors.records import (
    ROOT_ID,
    AppendEntry,
    AppendText,
    Batch,
    Change,
    ChangeDocument,
    CommitNumber,
    CompletedOutcome,
    ConversationId,
    ConversationRecord,
    DeleteKey,
    DocumentRecord,
    EntryId,
    EntryRecord,
    Operation,
    PutConversation,
    PutDocument,
    PutMemo,
    PutSubmission,
    PutTask,
    ReplaceRoot,
    Running,
    SetValue,
    SpliceList,
    StoredDocument,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    TaskState,
    Terminal,
    TrimText,
)
from pidurable_actors.records.codec import encode_record, encode_task
from pidurable_actors.storage import Storage

__all__ = [
    "DONE",
    "EDITS",
    "FIRST_VALUE",
    "RUNNING",
    "Scribe",
    "change_document",
    "memo",
    "put",
    "put_document",
    "read_document",
    "value_at",
]

RUNNING = Running(checkpoint={"phase": "work"})
DONE = Terminal(outcome=CompletedOutcome(result={"answer": 42}))
FIRST_VALUE: JSON = {"title": "plan", "log": "", "items": [1, 2, 3], "gone": None}
EDITS: list[tuple[Operation, ...]] = [
    (SetValue(("title",), "plan B"),),
    (DeleteKey(("gone",)), SetValue(("new",), freeze({"a": [True, -0.0]}))),
    (AppendText(("log",), "one two "), AppendText(("log",), "three")),
    (TrimText(("log",), 4),),
    (SpliceList(("items",), 1, 1, (freeze({"n": 2}), "x")),),
    (SetValue(("items", 1, "n"), 2.0), SpliceList(("items",), 0, 1, ())),
    (SetValue(("new", "a", 0), 1),),
    (ReplaceRoot(freeze({"log": "again", "items": []})),),
    (AppendText(("log",), "!"), SpliceList(("items",), 0, 0, (None, 5))),
]
"""Every kind of operation; each applies to what the ones before it made of `FIRST_VALUE`."""


@attrs.define
class Scribe:
    """Writes to one open storage.

    Attributes:
        storage: where to.
        number: the last stored commit.
        next_id: the first free id.
    """

    storage: Storage
    number: int
    next_id: int

    @classmethod
    def open(cls, storage: Storage) -> Scribe:
        """Open a storage as its owner and write where it stands."""
        head = storage.open(read_only=False)
        return cls(storage, head.commit, head.next_id)

    def new_id(self) -> int:
        """An id that no record has."""
        self.next_id += 1
        return self.next_id - 1

    def draft(self, *changes: Change, ahead: int = 0) -> Batch:
        """The batch after the next `ahead` ones, not stored."""
        return Batch(
            number=CommitNumber(self.number + 1 + ahead),
            at_ms=1_700_000_000_000 + self.number,
            next_id=self.next_id,
            changes=changes,
        )

    def commit(self, *changes: Change) -> CommitNumber:
        """Store one batch."""
        batch = self.draft(*changes)
        self.storage.apply([batch])
        self.number = batch.number
        return batch.number

    def new_document(self, kind: str = "app.doc", **fields: Any) -> DocumentRecord:
        """The record of a document that is not stored yet; of the session, unless told else."""
        given = {"scope": "session", "scope_id": 0, **fields}
        return DocumentRecord(id=self.new_id(), kind=kind, **given)

    def entry(
        self,
        *,
        conversation_id: ConversationId = ROOT_ID,
        kind: str = "app.note",
        data: JSON = None,
    ) -> EntryRecord:
        """Store an entry."""
        record = EntryRecord(
            id=EntryId(self.new_id()), conversation_id=conversation_id, kind=kind, data=data
        )
        self.commit(put(record))
        return record

    def task(
        self,
        *,
        conversation_id: ConversationId = ROOT_ID,
        kind: str = "app.job",
        state: TaskState = RUNNING,
        abort_requested: bool = False,
        owner: TaskId | None = None,
        input: JSON = None,  # noqa: A002 - the field's name
    ) -> TaskRecord:
        """Store a task."""
        record = TaskRecord(
            id=TaskId(self.new_id()),
            conversation_id=conversation_id,
            kind=kind,
            version=1,
            input=input,
            state=state,
            owner=owner,
            abort_requested=abort_requested,
        )
        self.commit(put(record))
        return record

    def submission(
        self,
        *,
        conversation_id: ConversationId = ROOT_ID,
        status: str = "queued",
        request_id: str | None = None,
    ) -> SubmissionRecord:
        """Store a submission."""
        record = SubmissionRecord(
            id=SubmissionId(self.new_id()),
            conversation_id=conversation_id,
            type="input",
            status=status,  # type: ignore[arg-type]
            request_id=request_id,
        )
        self.commit(put(record))
        return record


def put(record: ConversationRecord | EntryRecord | TaskRecord | SubmissionRecord) -> Change:
    """The change that stores a record."""
    match record:
        case TaskRecord():
            return PutTask(record, encode_task(record))
        case EntryRecord():
            return AppendEntry(record, encode_record(record))
        case ConversationRecord():
            return PutConversation(record, encode_record(record))
        case SubmissionRecord():
            return PutSubmission(record, encode_record(record))


def put_document(record: DocumentRecord, value: JSON, *operations: Operation) -> PutDocument:
    """The change that stores a document: a new one, or a new base that `operations` lead to."""
    done = operations or (ReplaceRoot(freeze(value)),)
    return PutDocument(record, encode_record(record), encode_json(value), done)


def change_document(record: DocumentRecord, *operations: Operation) -> ChangeDocument:
    """The change that does operations on a document that is stored."""
    return ChangeDocument(record, operations, encode_json(operations))


def memo(task_id: TaskId, name: str, value: JSON) -> PutMemo:
    """The change that records a memo."""
    return PutMemo(task_id, name, encode_json(value))


def read_document(
    storage: Storage, record: DocumentRecord, at_commit: int | None = None
) -> StoredDocument:
    """A document that is there."""
    found = storage.document(
        record.kind, record.scope, record.scope_id, record.key, at_commit=at_commit
    )
    assert found is not None
    return found


def value_at(storage: Storage, record: DocumentRecord, at_commit: int) -> object:
    """The value of a document after a commit, None when there is none."""
    found = storage.document(
        record.kind, record.scope, record.scope_id, record.key, at_commit=at_commit
    )
    return None if found is None else found.value
