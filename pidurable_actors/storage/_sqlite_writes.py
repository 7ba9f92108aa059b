"""How each change becomes a statement.

Owns the write statements and nothing else: transactions, ownership and errors are the caller's. One
statement per change, more only when a record ends or a document gets a new base. What never changes
about a record (its conversation, a task's kind, a document's name) is not written again, so that no
index is touched. A change of a document costs the change: its base is neither read nor written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from pidurable_actors.records import (
    AppendEntry,
    Batch,
    Change,
    ChangeDocument,
    DocumentRecord,
    DropMemos,
    PutConversation,
    PutDocument,
    PutMemo,
    PutSubmission,
    PutTask,
    RetireDocuments,
    Sleeping,
    Terminal,
    conversations_of,
)
from pidurable_actors.records.log import encode_changes
from pidurable_actors.storage._rules import contradiction

__all__ = ["PAGE_BYTES", "log_batches", "write_batch"]

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
# The condition refuses an id that has another name; a name that has another id breaks an index.
_DOCUMENT: Final = """
    INSERT INTO documents (id, kind, scope, scope_id, key, commit_number, record, value)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        commit_number = excluded.commit_number, record = excluded.record, value = excluded.value
    WHERE kind = excluded.kind AND scope = excluded.scope AND scope_id = excluded.scope_id
        AND key = excluded.key
"""
_SET_BASE_ASIDE: Final = """
    INSERT INTO document_bases (document_id, commit_number, version, value)
    SELECT id, commit_number, record ->> '$.version', value FROM documents
    WHERE id = ? AND commit_number < ?
"""
_DROP_BASES: Final = "DELETE FROM document_bases WHERE document_id = ?"
_DROP_DELTAS: Final = "DELETE FROM document_deltas WHERE document_id = ? AND commit_number >= ?"
_DELTA: Final = """
    INSERT INTO document_deltas (document_id, commit_number, place, operations)
    SELECT id, ?, ?, ? FROM documents
    WHERE id = ? AND kind = ? AND scope = ? AND scope_id = ? AND key = ?
"""
_RETIRE_DOCUMENTS: Final = """
    UPDATE documents SET record = json_set(record, '$.retired_at_ms', ?)
    WHERE scope = 'task' AND scope_id = ?
"""
_LOG: Final = "INSERT INTO commits (number, at_ms, conversations, changes) VALUES (?, ?, ?, ?)"
_FORGET: Final = "DELETE FROM commits WHERE number < ?"


def write_batch(connection: sqlite3.Connection, batch: Batch) -> int:
    """Write the changes of one batch, in order, inside the caller's transaction.

    Returns:
        About how many bytes that adds to the write-ahead log: a page of the table and one of an
        index for each change, and the texts, which may be longer than a page.

    Raises:
        StorageCorrupt: a change contradicts what is stored; the transaction is to be rolled back.
        sqlite3.Error: a statement failed; `IntegrityError` when what must be new is there.
    """
    execute, number, changes = connection.execute, batch.number, batch.changes
    size = 2 * PAGE_BYTES * len(changes)
    for place, change in enumerate(changes):
        size += _WRITERS[type(change)](execute, change, number, place)
    return size


def log_batches(connection: sqlite3.Connection, batches: Sequence[Batch]) -> int:
    """Add batches to the log of commits and take from it what they say, all in one go.

    Returns:
        The same as `write_batch`: the texts fill page after page, at least one.

    Raises:
        sqlite3.Error: a statement failed.
    """
    rows: list[tuple[int, int, str, str]] = []
    size = forget_below = 0
    for batch in batches:
        if batch.logged:
            text = encode_changes(batch.changes)
            rows.append((batch.number, batch.at_ms, _touched(batch.changes), text))
            size += len(text)
        forget_below = max(forget_below, batch.forget_below)
    if rows:
        connection.executemany(_LOG, rows)
        size += PAGE_BYTES
    if forget_below:
        size += PAGE_BYTES * connection.execute(_FORGET, (forget_below,)).rowcount
    return size


def _touched(changes: Sequence[Change]) -> str:
    touched = conversations_of(changes)
    if len(touched) == 1:
        # Nearly always, and in half the time.
        return f",{touched.pop()},"
    return f",{','.join(map(str, touched))}," if touched else ""


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
    record, size = change.record, len(change.value_text)
    if record.history == "latest":
        execute(_DROP_BASES, (record.id,))
        execute(_DROP_DELTAS, (record.id, 0))
    else:
        # The base that is set aside is taken to be as long as the one that follows it.
        size += size * execute(_SET_BASE_ASIDE, (record.id, commit)).rowcount
        # What this very commit did before is in the new base.
        execute(_DROP_DELTAS, (record.id, commit))
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
    if not execute(_DOCUMENT, row).rowcount:
        raise contradiction(f"document {record.id} has another name than {_name(record)}")
    return len(change.text) + size


def _change_document(execute: _Execute, change: ChangeDocument, commit: int, place: int) -> int:
    record, text = change.record, change.text
    row = (
        commit,
        place,
        text,
        record.id,
        record.kind,
        record.scope,
        record.scope_id,
        record.key,
    )
    if not execute(_DELTA, row).rowcount:
        raise contradiction(f"there is no document {record.id} with the name {_name(record)}")
    return len(text)


def _retire_documents(execute: _Execute, change: RetireDocuments, _: int, __: int) -> int:
    return PAGE_BYTES * execute(_RETIRE_DOCUMENTS, (change.at_ms, change.task_id)).rowcount


def _name(record: DocumentRecord) -> tuple[str, int, str, str]:
    return record.scope, record.scope_id, record.kind, record.key


_WRITERS: Final[Mapping[type[Change], Callable[..., int]]] = {
    PutConversation: _put_conversation,
    AppendEntry: _append_entry,
    PutTask: _put_task,
    PutMemo: _put_memo,
    DropMemos: _drop_memos,
    PutSubmission: _put_submission,
    PutDocument: _put_document,
    ChangeDocument: _change_document,
    RetireDocuments: _retire_documents,
}
