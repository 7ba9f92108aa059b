"""What the columns of a row become, for each read statement of the SQLite backend.

Pure functions whose arguments are the columns, in the order of the query.
"""

from __future__ import annotations

from typing import Final, get_args

from pidurable_actors._json import JSON
from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records import ConversationId, StoredDocument, TaskId, TaskStatus
from pidurable_actors.records.codec import decode_document, decode_value
from pidurable_actors.storage._protocol import LiveTask

__all__ = ["decode_memo", "decode_stored_document", "id_and_text", "live_task"]

_STATUSES: Final = frozenset(get_args(TaskStatus))


def id_and_text(task_id: int, text: str) -> tuple[int, str]:
    """A task's text, for which memos are still to be found."""
    return task_id, text


def decode_memo(task_id: int, name: str, text: str) -> tuple[int, str, JSON]:
    """A memo of one of the tasks asked for."""
    return task_id, name, decode_value(text)


def decode_stored_document(text: str, value_text: str, commit: int) -> StoredDocument:
    """A document with its value."""
    return StoredDocument(
        record=decode_document(text), value=decode_value(value_text), commit=commit
    )


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
    )
