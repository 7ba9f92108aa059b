"""How each change becomes a statement.

Owns the write statements and nothing else: transactions, ownership and errors are the caller's. One
statement per change, two only when a record ends. What never changes about a record (its
conversation, a task's kind, a document's name) is not written again, so that no index is touched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from pidurable_actors.records import (
    AppendEntry,
    Batch,
    Change,
    DropMemos,
    PutConversation,
    PutDocument,
    PutMemo,
    PutSubmission,
    PutTask,
    Sleeping,
    Terminal,
)

__all__ = ["PAGE_BYTES", "write_batch"]

_Execute: TypeAlias = Callable[[str, tuple[object, ...]], sqlite3.Cursor]

PAGE_BYTES: Final = 4096

_CONVERSATION: Final = """
    INSERT INTO conversations (id, owner, record) VALUES (?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, record = excluded.record
"""
_ENTRY: Final = """
    INSERT INTO entries (id, conversation_id, kind, commit_number, record) VALUES (?, ?, ?, ?, ?)
"""
_TASK: Final = """
    INSERT INTO task_records (
        id, conversation_id, kind, version, status, owner, background, abort_requested, until_ms,
        live, record
    )
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        version = excluded.version, status = excluded.status, owner = excluded.owner,
        background = excluded.background, abort_requested = excluded.abort_requested,
        until_ms = excluded.until_ms, record = excluded.record
"""
# SQLite decides by the columns that a statement names, not by their values, whether an index must
# be rewritten: `live` is named only where it may change.
_STEP_OF_LIVE_TASK: Final = f"{_TASK} WHERE live = 1"
_TASK_AND_LIVE: Final = f"{_TASK}, live = excluded.live"
_MEMO: Final = """
    INSERT INTO memos (task_id, name, commit_number, place, value) VALUES (?, ?, ?, ?, ?)
"""
_DROP_MEMOS: Final = "DELETE FROM memos WHERE task_id = ?"
_SUBMISSION: Final = """
    INSERT INTO submissions (id, conversation_id, request_id, status, unsettled, record)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET status = excluded.status, record = excluded.record
"""
_STEP_OF_UNSETTLED: Final = f"{_SUBMISSION} WHERE unsettled = 1"
_SUBMISSION_AND_UNSETTLED: Final = f"{_SUBMISSION}, unsettled = excluded.unsettled"
_DOCUMENT: Final = """
    INSERT INTO documents (id, kind, scope, scope_id, key, commit_number, record, value)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        commit_number = excluded.commit_number, record = excluded.record, value = excluded.value
"""


def write_batch(connection: sqlite3.Connection, batch: Batch) -> int:
    """Write the changes of one batch, in order, inside the caller's transaction.

    Returns:
        About how many bytes that adds to the log: a page of the table and one of an index for each
        change, and the texts, which may be longer than a page.

    Raises:
        sqlite3.Error: a statement failed; `IntegrityError` when what must be new is there.
    """
    execute, number = connection.execute, batch.number
    size = 2 * PAGE_BYTES * len(batch.changes)
    for place, change in enumerate(batch.changes):
        size += _WRITERS[type(change)](execute, change, number, place)
    return size


def _put_conversation(execute: _Execute, change: PutConversation, _: int, __: int) -> int:
    record = change.record
    owner = None if record.owner is None else record.owner.task_id
    execute(_CONVERSATION, (record.id, owner, change.text))
    return len(change.text)


def _append_entry(execute: _Execute, change: AppendEntry, commit: int, _: int) -> int:
    record = change.record
    execute(_ENTRY, (record.id, record.conversation_id, record.kind, commit, change.text))
    return len(change.text)


def _put_task(execute: _Execute, change: PutTask, _: int, __: int) -> int:
    record, state = change.record, change.record.state
    live = type(state) is not Terminal
    row = (
        record.id,
        record.conversation_id,
        record.kind,
        record.version,
        state.status,
        record.owner,
        record.background,
        record.abort_requested,
        state.until_ms if type(state) is Sleeping else None,
        live,
        change.text,
    )
    if not live or not execute(_STEP_OF_LIVE_TASK, row).rowcount:
        execute(_TASK_AND_LIVE, row)
    return len(change.text)


def _put_memo(execute: _Execute, change: PutMemo, commit: int, place: int) -> int:
    execute(_MEMO, (change.task_id, change.name, commit, place, change.text))
    return len(change.text)


def _drop_memos(execute: _Execute, change: DropMemos, _: int, __: int) -> int:
    execute(_DROP_MEMOS, (change.task_id,))
    return 0


def _put_submission(execute: _Execute, change: PutSubmission, _: int, __: int) -> int:
    record = change.record
    unsettled = record.status in ("queued", "placed")
    row = (
        record.id,
        record.conversation_id,
        record.request_id,
        record.status,
        unsettled,
        change.text,
    )
    if not unsettled or not execute(_STEP_OF_UNSETTLED, row).rowcount:
        execute(_SUBMISSION_AND_UNSETTLED, row)
    return len(change.text)


def _put_document(execute: _Execute, change: PutDocument, commit: int, _: int) -> int:
    record = change.record
    row = (
        record.id,
        record.kind,
        record.scope,
        record.scope_id,
        record.key,
        commit,
        change.text,
        change.value_text,
    )
    execute(_DOCUMENT, row)
    return len(change.text) + len(change.value_text)


_WRITERS: Final[Mapping[type[Change], Callable[..., int]]] = {
    PutConversation: _put_conversation,
    AppendEntry: _append_entry,
    PutTask: _put_task,
    PutMemo: _put_memo,
    DropMemos: _drop_memos,
    PutSubmission: _put_submission,
    PutDocument: _put_document,
}
