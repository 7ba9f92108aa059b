"""The read statements of the SQLite backend, as data.

Owns their text. Each is constant, so that SQLite prepares it once, and each runs along an index or
the table's own order, so that a page costs the page. `:kind IS NULL OR kind = :kind` is a filter
that may be absent; a filter that an index serves has a statement of its own.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "COMMITS",
    "COMMITS_OF_CONVERSATION",
    "CONVERSATION",
    "CONVERSATIONS",
    "CONVERSATIONS_OF_OWNER",
    "DOCUMENT",
    "DOCUMENTS",
    "DOCUMENTS_BEHIND",
    "DOCUMENTS_DELTAS",
    "DOCUMENT_BASE_UNTIL",
    "DOCUMENT_DELTAS",
    "ENTRIES",
    "ENTRIES_OF_KIND",
    "ENTRY",
    "ENTRY_COMMIT",
    "HEAD",
    "LIVE_TASKS",
    "MEMOS",
    "OLDEST_COMMIT",
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
ENTRY_COMMIT: Final = "SELECT commit_number FROM entries WHERE id = ?"
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
        (SELECT owner FROM conversations WHERE id = task_records.conversation_id),
        EXISTS (SELECT 1 FROM documents WHERE scope = 'task' AND scope_id = task_records.id)
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
    SELECT record, commit_number, value FROM documents
    WHERE scope = ? AND scope_id = ? AND kind = ? AND key = ?
"""
_SELECT_DOCUMENTS: Final = """
    SELECT record, commit_number, value FROM documents WHERE scope = ? AND scope_id = ?
"""
DOCUMENTS: Final = f"{_SELECT_DOCUMENTS} ORDER BY kind, key LIMIT ?"
DOCUMENTS_BEHIND: Final = f"{_SELECT_DOCUMENTS} AND (kind, key) > (?, ?) ORDER BY kind, key LIMIT ?"
# A delta of the base's own commit came after it.
DOCUMENT_DELTAS: Final = """
    SELECT commit_number, operations FROM document_deltas
    WHERE document_id = ? AND commit_number BETWEEN ? AND ? ORDER BY commit_number, place
"""
# The tails of several documents in one look: one look for each would cost more than the rest.
DOCUMENTS_DELTAS: Final = """
    SELECT document_deltas.document_id, document_deltas.commit_number, operations
    FROM json_each(?) AS wanted
    CROSS JOIN documents ON documents.id = wanted.value
    CROSS JOIN document_deltas ON document_deltas.document_id = documents.id
        AND document_deltas.commit_number >= documents.commit_number
    ORDER BY document_deltas.document_id, document_deltas.commit_number, place
"""
DOCUMENT_BASE_UNTIL: Final = """
    SELECT commit_number, version, value FROM document_bases
    WHERE document_id = ? AND commit_number <= ? ORDER BY commit_number DESC LIMIT 1
"""

COMMITS: Final = (
    "SELECT number, at_ms, changes FROM commits WHERE number > ? ORDER BY number LIMIT ?"
)
COMMITS_OF_CONVERSATION: Final = """
    SELECT number, at_ms, changes FROM commits
    WHERE number > ? AND instr(conversations, ',' || ? || ',') ORDER BY number LIMIT ?
"""
OLDEST_COMMIT: Final = "SELECT min(number) FROM commits"
