"""The one place where SQLite's errors become ours.

Owns the translation, by SQLite's own result codes; message texts are never matched. Nothing of
`sqlite3` leaves the backend but as a `__cause__`.
"""

from __future__ import annotations

import sqlite3
from typing import Final, Literal, TypeAlias

from pidurable_actors.errors import StorageCorrupt, StorageError, StorageUnusable

__all__ = ["DriverError", "driver_errors", "translate", "translate_open"]

DriverError: TypeAlias = sqlite3.Error | sqlite3.Warning | UnicodeError | OverflowError
"""What a statement can raise. The last two come from binding a value that no database holds."""

driver_errors: Final = (sqlite3.Error, sqlite3.Warning, UnicodeError, OverflowError)

_CORRUPT: Final = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        # A row that must be new is there, or a table that must be there is not.
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_MISMATCH,
    }
)
_REASONS: Final = {
    sqlite3.SQLITE_BUSY: "another program holds its lock for too long",
    sqlite3.SQLITE_LOCKED: "another program holds its lock for too long",
    sqlite3.SQLITE_FULL: "the disk or the database is full",
    sqlite3.SQLITE_READONLY: "it may not be written",
    sqlite3.SQLITE_PERM: "access is not permitted",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_NOMEM: "memory ran out",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite holds",
}


def translate_open(error: DriverError, storage: str) -> StorageError:
    """The same for an error while opening, where most mean that the path is no use."""
    match _primary_code(error):
        case sqlite3.SQLITE_NOTADB:
            return StorageUnusable(f"{storage} is not a SQLite database, or its head is destroyed.")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_READONLY:
            return StorageUnusable(f"{storage} cannot be opened: {error}.")
        case _:
            return translate(error, storage)


def translate(
    error: DriverError, storage: str, *, wrote: Literal[False] | None = False
) -> StorageError:
    """The storage error that a driver error stands for; raise it `from` the driver's.

    Args:
        error: what the driver raised.
        storage: how the message names the storage.
        wrote: what is known about the write, False for a read.
    """
    code = _primary_code(error)
    if code in _CORRUPT:
        return StorageCorrupt(f"{storage}: the database contradicts itself: {error}.", wrote=wrote)
    if code is not None:
        reason = _REASONS.get(code, "SQLite failed")
        return StorageError(f"{storage}: {reason} ({error}).", wrote=wrote)
    if isinstance(error, sqlite3.OperationalError):
        # The one that the driver raises without a code: stored text is not UTF-8.
        return StorageCorrupt(f"{storage}: stored text cannot be read: {error}.", wrote=wrote)
    return StorageError(f"{storage}: the database refused the call: {error}.", wrote=wrote)


def _primary_code(error: DriverError) -> int | None:
    # Binding errors and the driver's own complaints carry no code.
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
