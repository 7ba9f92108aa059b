"""The tables of the SQLite backend, as data: one list of statements per format version.

Owns what the file looks like, and telling our file from any other. A migration runs in one
transaction with the version that it leads to, so a file is never between two versions. A published
list of statements is never edited: a change is a new list.

The file is public: operators query the view `tasks` and the tables with the `sqlite3` shell. Each
record is one JSON text; the columns beside it exist for scans and are derived from it.

Costs that shaped it: a task is written on every step, so a step must not touch an index. What is
indexed (`live`, `unsettled`) is set when a record ends and at no other write, which needs the two
forms of upsert in `_sqlite_writes`. Texts come last in a row, so that a scan of index columns does
not read their overflow pages.
"""

from __future__ import annotations

import sqlite3
from typing import Final, TypeAlias

from pidurable_actors.errors import StorageCorrupt, StorageTooNew, StorageUnusable

__all__ = ["APPLICATION_ID", "MIGRATIONS", "Migrations", "migrate", "stored_version"]

APPLICATION_ID: Final = 0x70694475
"""Marks a file as ours, in the header field that SQLite keeps for it: ASCII ``piDu``."""

_VERSION_1: Final = (
    # One row: where the storage stands. Every commit checks and advances it in one statement.
    """
    CREATE TABLE meta (
        one           INTEGER PRIMARY KEY CHECK (one = 1),
        epoch         INTEGER NOT NULL,
        commit_number INTEGER NOT NULL,
        commit_at_ms  INTEGER NOT NULL,
        next_id       INTEGER NOT NULL
    )
    """,
    # The first id that is free is 2: the root conversation has 1.
    "INSERT INTO meta VALUES (1, 0, 0, 0, 2)",
    """
    CREATE TABLE conversations (
        id       INTEGER PRIMARY KEY,
        owner    INTEGER,
        record   TEXT NOT NULL
    )
    """,
    "CREATE INDEX conversations_by_owner ON conversations (owner) WHERE owner IS NOT NULL",
    """
    CREATE TABLE entries (
        id              INTEGER PRIMARY KEY,
        conversation_id INTEGER NOT NULL,
        kind            TEXT NOT NULL,
        commit_number   INTEGER NOT NULL,
        record          TEXT NOT NULL
    )
    """,
    # With the kind, a scan for a rare kind stays in the index.
    "CREATE INDEX entries_by_conversation ON entries (conversation_id, id, kind)",
    """
    CREATE TABLE task_records (
        id              INTEGER PRIMARY KEY,
        conversation_id INTEGER NOT NULL,
        kind            TEXT NOT NULL,
        version         INTEGER NOT NULL,
        status          TEXT NOT NULL,
        owner           INTEGER,
        background      INTEGER NOT NULL,
        abort_requested INTEGER NOT NULL,
        until_ms        INTEGER,
        live            INTEGER NOT NULL,
        record          TEXT NOT NULL
    )
    """,
    # An index ends with the row's id, so these are ordered by id as well.
    "CREATE INDEX tasks_by_conversation ON task_records (conversation_id)",
    "CREATE INDEX tasks_live ON task_records (live) WHERE live = 1",
    # One tree per memo, not two: the order of recording is a column, the name is the key.
    """
    CREATE TABLE memos (
        task_id       INTEGER NOT NULL,
        name          TEXT NOT NULL,
        commit_number INTEGER NOT NULL,
        place         INTEGER NOT NULL,
        value         TEXT NOT NULL,
        PRIMARY KEY (task_id, name)
    ) WITHOUT ROWID
    """,
    """
    CREATE VIEW tasks AS
    SELECT
        id, conversation_id, kind, version, status, owner, background, abort_requested, until_ms,
        iif(
            EXISTS (SELECT 1 FROM memos WHERE task_id = task_records.id),
            json_set(record, '$.memos', json((
                SELECT json_group_object(name, json(value))
                FROM (
                    SELECT name, value FROM memos WHERE task_id = task_records.id
                    ORDER BY commit_number, place
                )
            ))),
            record
        ) AS record
    FROM task_records
    """,
    """
    CREATE TABLE submissions (
        id              INTEGER PRIMARY KEY,
        conversation_id INTEGER NOT NULL,
        request_id      TEXT,
        status          TEXT NOT NULL,
        unsettled       INTEGER NOT NULL,
        record          TEXT NOT NULL
    )
    """,
    "CREATE INDEX submissions_by_conversation ON submissions (conversation_id)",
    "CREATE INDEX submissions_unsettled ON submissions (unsettled) WHERE unsettled = 1",
    """
    CREATE UNIQUE INDEX submissions_by_request ON submissions (conversation_id, request_id)
    WHERE request_id IS NOT NULL
    """,
    """
    CREATE TABLE documents (
        id            INTEGER PRIMARY KEY,
        kind          TEXT NOT NULL,
        scope         TEXT NOT NULL,
        scope_id      INTEGER NOT NULL,
        key           TEXT NOT NULL,
        commit_number INTEGER NOT NULL,
        record        TEXT NOT NULL,
        value         TEXT NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX documents_by_name ON documents (scope, scope_id, kind, key)",
)

_VERSION_2: Final = (
    # `documents` holds the newest base of each document, and this what came after it, in order.
    """
    CREATE TABLE document_deltas (
        document_id   INTEGER NOT NULL,
        commit_number INTEGER NOT NULL,
        place         INTEGER NOT NULL,
        operations    TEXT NOT NULL,
        PRIMARY KEY (document_id, commit_number, place)
    ) WITHOUT ROWID
    """,
    # Bases that a newer one replaced, of documents that keep their history.
    """
    CREATE TABLE document_bases (
        document_id   INTEGER NOT NULL,
        commit_number INTEGER NOT NULL,
        version       INTEGER NOT NULL,
        value         TEXT NOT NULL,
        PRIMARY KEY (document_id, commit_number)
    ) WITHOUT ROWID
    """,
    # No index by conversation: it would cost every commit more than it saves a rare scan, which
    # reads `conversations`, such as ",1,17,", and not the texts behind it.
    """
    CREATE TABLE commits (
        number        INTEGER PRIMARY KEY,
        at_ms         INTEGER NOT NULL,
        conversations TEXT NOT NULL,
        changes       TEXT NOT NULL
    )
    """,
)

Migrations: TypeAlias = tuple[tuple[str, ...], ...]

MIGRATIONS: Final[Migrations] = (_VERSION_1, _VERSION_2)
"""Statements that lead from each version to the next; the first list starts from an empty file.

There are as many as `codec.FORMAT_VERSION`, the version of everything stored.
"""


def stored_version(connection: sqlite3.Connection, storage: str, *, newest: int) -> int:
    """The format version of an open file, 0 when nothing was ever stored in it.

    Args:
        connection: to the file.
        storage: how errors name it.
        newest: the newest version that is known.

    Raises:
        StorageUnusable: it is another program's database.
        StorageTooNew: its format is newer than this code.
        StorageCorrupt: it has our mark but no version.
    """
    mark = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    if mark == APPLICATION_ID:
        if version > newest:
            raise StorageTooNew(storage, version, newest)
        if version < 1:
            raise StorageCorrupt(f"{storage}: the file has our mark but no format version.")
        return version
    row: tuple[int] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if mark or version or row[0]:
        raise StorageUnusable(
            f"{storage} is a database of another program; choose another path for the storage."
        )
    return 0


def migrate(connection: sqlite3.Connection, version: int, migrations: Migrations) -> None:
    """Bring the file from `version` to the newest, inside the caller's transaction."""
    if version == len(migrations):
        return
    for statements in migrations[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    row: tuple[int] = connection.execute(f"PRAGMA {name}").fetchone()
    return row[0]
