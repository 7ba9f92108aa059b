"""The read statements of the SQLite backend, as data.

Owns their text. Each is constant, so that SQLite prepares it once, and each runs along an index or
the table's own order, so that a page costs the page. `:kind IS NULL OR kind = :kind` is a filter
that may be absent; a filter that an index serves has a statement of its own.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CONVERSATION",
    "CONVERSATIONS",
    "CONVERSATIONS_OF_OWNER",
    "DOCUMENT",
    "DOCUMENTS",
    "ENTRIES",
    "ENTRIES_OF_KIND",
    "ENTRY",
    "HEAD",
    "LIVE_TASKS",
    "MEMOS",
    "SUBMISSION",
    "SUBMISSIONS",
    "SUBMISSIONS_IN_CONVERSATION",
    "SUBMISSIONS_UNSETTLED",
    "SUBMISSION_BY_REQUEST",
    "TASK",
    "TASKS",
    "TASKS_IN_CONVERSATION",
    "TASKS_LIVE",
]

HEAD: Final = "SELECT commit_number, next_id, epoch FROM meta"

CONVERSATION: Final = "SELECT record FROM conversations WHERE id = ?"
CONVERSATIONS: Final = "SELECT record FROM conversations WHERE id > ? ORDER BY id LIMIT ?"
CONVERSATIONS_OF_OWNER: Final = """
    SELECT record FROM conversations WHERE owner = ? AND id > ? ORDER BY id LIMIT ?
"""

ENTRY: Final = "SELECT record FROM entries WHERE id = ?"
ENTRIES: Final = """
    SELECT record FROM entries WHERE conversation_id = ? AND id < ? ORDER BY id DESC LIMIT ?
"""
ENTRIES_OF_KIND: Final = """
    SELECT record FROM entries WHERE conversation_id = ? AND id < ? AND kind = ?
    ORDER BY id DESC LIMIT ?
"""

TASK: Final = "SELECT id, record FROM task_records WHERE id = :id"
_SELECT_TASKS: Final = "SELECT id, record FROM task_records"
_TASK_FILTERS: Final = """
    id > :after
    AND (:kind IS NULL OR kind = :kind)
    AND (:status IS NULL OR status = :status)
    AND (:abort_requested IS NULL OR abort_requested = :abort_requested)
    ORDER BY id LIMIT :limit
"""
TASKS: Final = f"{_SELECT_TASKS} WHERE {_TASK_FILTERS}"
TASKS_LIVE: Final = f"{_SELECT_TASKS} WHERE live = 1 AND {_TASK_FILTERS}"
TASKS_IN_CONVERSATION: Final = (
    f"{_SELECT_TASKS} WHERE conversation_id = :conversation_id AND {_TASK_FILTERS}"
)
LIVE_TASKS: Final = """
    SELECT
        id, conversation_id, kind, version, status, owner, background, abort_requested, until_ms,
        (SELECT owner FROM conversations WHERE id = task_records.conversation_id)
    FROM task_records WHERE live = 1 AND id > ? ORDER BY id LIMIT ?
"""
MEMOS: Final = """
    SELECT task_id, name, value FROM memos
    WHERE task_id IN (SELECT value FROM json_each(?)) ORDER BY commit_number, place
"""

SUBMISSION: Final = "SELECT record FROM submissions WHERE id = ?"
SUBMISSION_BY_REQUEST: Final = """
    SELECT record FROM submissions WHERE conversation_id = ? AND request_id = ?
"""
_SELECT_SUBMISSIONS: Final = "SELECT record FROM submissions"
_SUBMISSION_FILTERS: Final = """
    id > :after AND (:status IS NULL OR status = :status) ORDER BY id LIMIT :limit
"""
SUBMISSIONS: Final = f"{_SELECT_SUBMISSIONS} WHERE {_SUBMISSION_FILTERS}"
SUBMISSIONS_UNSETTLED: Final = (
    f"{_SELECT_SUBMISSIONS} WHERE unsettled = 1 AND {_SUBMISSION_FILTERS}"
)
SUBMISSIONS_IN_CONVERSATION: Final = (
    f"{_SELECT_SUBMISSIONS} WHERE conversation_id = :conversation_id AND {_SUBMISSION_FILTERS}"
)

DOCUMENT: Final = """
    SELECT record, value, commit_number FROM documents
    WHERE scope = ? AND scope_id = ? AND kind = ? AND key = ?
"""
DOCUMENTS: Final = """
    SELECT record, value, commit_number FROM documents WHERE scope = ? AND scope_id = ?
    ORDER BY kind, key
"""
