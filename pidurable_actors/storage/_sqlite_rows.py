"""What the columns of a row become, for each read statement of the SQLite backend.

Pure functions whose arguments are the columns, in the order of the query.
"""

from __future__ import annotations

from typing import Final, get_args

from pidurable_actors._json import JSON
from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records import (
    CommitNumber,
    ConversationId,
    DocumentRecord,
    LoggedCommit,
    TaskId,
    TaskStatus,
)
from pidurable_actors.records.codec import decode_document, decode_value
from pidurable_actors.records.log import decode_changes
from pidurable_actors.storage._protocol import LiveTask
from pidurable_actors.storage._rules import Base, Delta

__all__ = [
    "decode_memo",
    "delta_of",
    "document_base",
    "id_and_text",
    "live_task",
    "logged_commit",
    "number",
]

_STATUSES: Final = frozenset(get_args(TaskStatus))


def id_and_text(task_id: int, text: str) -> tuple[int, str]:
    """A task's text, for which memos are still to be found."""
    return task_id, text


def decode_memo(task_id: int, name: str, text: str) -> tuple[int, str, JSON]:
    """A memo of one of the tasks asked for."""
    return task_id, name, decode_value(text)


def number(value: int | None) -> int | None:
    """A number that is the whole row."""
    return value


def document_base(text: str, commit: int, value: str) -> tuple[DocumentRecord, Base]:
    """A document with its newest base."""
    record = decode_document(text)
    return record, Base(commit, record.version, value)


def delta_of(document_id: int, commit: int, operations: str) -> tuple[int, Delta]:
    """A delta of one of the documents asked for."""
    return document_id, Delta(commit, operations)


def logged_commit(number: CommitNumber, at_ms: int, changes: str) -> LoggedCommit:
    """A commit of the log."""
    return LoggedCommit(number=number, at_ms=at_ms, changes=decode_changes(changes))


def live_task(  # noqa: PLR0917 - the columns of one row, in the order of the query
    task_id: TaskId,
    conversation_id: ConversationId,
    kind: str,
    version: int,
    status: TaskStatus,
    owner: TaskId | None,
    background: int,
    abort_requested: int,
    until_ms: int | None,
    conversation_owner: TaskId | None,
    has_documents: int,
) -> LiveTask:
    """The index columns of a task."""
    if status not in _STATUSES:
        raise StorageCorrupt(f"task {task_id} has the unknown status {status!r}")
    return LiveTask(
        id=task_id,
        conversation_id=conversation_id,
        kind=kind,
        version=version,
        status=status,
        owner=owner,
        background=bool(background),
        abort_requested=bool(abort_requested),
        until_ms=until_ms,
        conversation_owner=conversation_owner,
        has_documents=bool(has_documents),
    )
