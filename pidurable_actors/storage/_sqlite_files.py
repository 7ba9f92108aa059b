"""Opening a SQLite file, as its owner or beside one.

Owns every check of the path and every setting of a connection. It never opens the database file but
through SQLite once it exists (see `_file_lock` for why), and changes nothing in a file before
it is known to be ours.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote

import attrs

from pidurable_actors.errors import StorageCorrupt, StorageUnusable
from pidurable_actors.storage._file_lock import FileLock
from pidurable_actors.storage._protocol import Head
from pidurable_actors.storage._sqlite_errors import driver_errors, translate_open
from pidurable_actors.storage._sqlite_queries import HEAD
from pidurable_actors.storage._sqlite_schema import MIGRATIONS, Migrations, migrate, stored_version

__all__ = ["Durability", "Place", "connect", "open_owner", "open_reader", "read_head", "roll_back"]

Durability: TypeAlias = Literal["process", "power"]


@attrs.frozen(kw_only=True)
class Place:
    """Where a storage is and how to open it.

    Attributes:
        path: absolute, before links are followed.
        name: how messages call it.
        durability: what a commit outlives.
        busy_timeout_s: how long a foreign lock is waited for, in seconds.
        migrations: how older formats become the newest one.
    """

    path: Path
    name: str
    durability: Durability
    busy_timeout_s: float
    migrations: Migrations = MIGRATIONS


def open_owner(place: Place) -> tuple[FileLock, sqlite3.Connection, Head]:
    """Claim the file, create or migrate it, and raise its epoch.

    Raises:
        StorageInUse: another owner has it.
        StorageUnusable: the path cannot hold a storage, or holds something else.
        StorageTooNew: its format is newer than this code.
        StorageCorrupt: it contradicts itself.
        StorageError: the disk failed, or another program held a lock for too long.
    """
    real_path, _ = _locate(place)
    with ExitStack() as undo:
        lock = FileLock.acquire(real_path, storage=place.name)
        undo.callback(lock.release)
        _create(place, real_path)
        try:
            connection = _connect(place, real_path, mode="rw")
            undo.callback(connection.close)
            # Looked at before the first setting that would change another program's file.
            _version(place, connection)
            _check_length(place, connection, real_path)
            _configure(place, connection)
            head = _take_over(place, connection)
        except driver_errors as error:
            raise translate_open(error, place.name) from error
        undo.pop_all()
    return lock, connection, head


def open_reader(place: Place) -> tuple[sqlite3.Connection, Head]:
    """Open the file beside its owner, if it has one, and change nothing.

    Raises:
        StorageUnusable: there is no storage at the path, or its format must be migrated first.
        StorageTooNew: its format is newer than this code.
        StorageCorrupt: it contradicts itself.
        StorageError: the disk failed.
    """
    real_path, exists = _locate(place)
    if not exists:
        raise StorageUnusable(f"{place.name} does not exist; open it as its owner first.")
    with ExitStack() as undo:
        try:
            connection = _connect_reader(place, real_path)
            undo.callback(connection.close)
            version = _version(place, connection)
            if version == 0:
                raise StorageUnusable(
                    f"{place.name} holds no storage yet; open it as its owner first."
                )
            if version < len(place.migrations):
                raise StorageUnusable(
                    f"{place.name} has the older format {version}; open it once as its owner, "
                    "which migrates it."
                )
            _check_length(place, connection, real_path)
            head = read_head(place, connection)
        except driver_errors as error:
            raise translate_open(error, place.name) from error
        undo.pop_all()
    return connection, head


def connect(place: Place) -> sqlite3.Connection:
    """A further connection of the owner, with its durability."""
    connection = _connect(place, Path(os.path.realpath(place.path)), mode="rw")
    _configure(place, connection)
    return connection


def read_head(place: Place, connection: sqlite3.Connection) -> Head:
    """Where the open file stands.

    Raises:
        StorageCorrupt: it does not say so.
        sqlite3.Error: it cannot be read.
    """
    row: tuple[int, int, int] | None = connection.execute(HEAD).fetchone()
    if row is None:
        raise StorageCorrupt(f"{place.name}: the table meta has lost its row.")
    if not all(isinstance(number, int) for number in row):
        raise StorageCorrupt(f"{place.name}: the table meta holds {row!r}, which is no head.")
    return Head(commit=row[0], next_id=row[1], epoch=row[2])


def roll_back(connection: sqlite3.Connection) -> bool:
    """End a failed transaction; whether that is certain."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except driver_errors:
        return False
    return True


def _locate(place: Place) -> tuple[Path, bool]:
    """The path with all links followed, and whether there is a file yet.

    Raises:
        StorageUnusable: it cannot hold a storage.
    """
    try:
        real_path = Path(os.path.realpath(place.path))
        has_parent = real_path.parent.is_dir()
        try:
            status = real_path.stat()
        except FileNotFoundError:
            status = None
    except (OSError, ValueError) as error:
        raise StorageUnusable(f"{place.name} cannot be reached: {error}.") from error
    if not has_parent:
        raise StorageUnusable(
            f"{place.name}: the directory {real_path.parent} does not exist; create it."
        )
    if status is None:
        return real_path, False
    if stat.S_ISDIR(status.st_mode):
        raise StorageUnusable(f"{place.name} is a directory; give the path of a file in it.")
    if status.st_nlink > 1:
        raise StorageUnusable(
            f"{place.name} has {status.st_nlink} hard links, which no lock can guard; remove all "
            "but one."
        )
    return real_path, True


def _check_length(place: Place, connection: sqlite3.Connection, real_path: Path) -> None:
    """Refuse a file that was cut, before it is found out page by page, or never.

    Raises:
        StorageCorrupt: the file is shorter than it says.
    """
    # In this order: an owner may write meanwhile, and what its log holds may go into the file.
    pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
    page_bytes: int = connection.execute("PRAGMA page_size").fetchone()[0]
    log = real_path.with_name(f"{real_path.name}-wal")
    if log.exists() and log.stat().st_size:
        return
    size, wanted = real_path.stat().st_size, pages * page_bytes
    if size < wanted:
        raise StorageCorrupt(f"{place.name}: the file is cut off, {size} of {wanted} bytes.")


def _create(place: Place, real_path: Path) -> None:
    """Make a new file for this user alone; SQLite gives its log files the same mode."""
    try:
        os.close(os.open(real_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StorageUnusable(f"{place.name} cannot be created: {error.strerror}.") from error


def _connect_reader(place: Place, real_path: Path) -> sqlite3.Connection:
    """A connection that reads, also of a closed file in a place that may not be written.

    SQLite reads a log's shared memory through a file beside it. Where none can be made, and no log
    is there, the file is whole and nobody changes it, which SQLite has to be told.
    """
    effective = os.access in os.supports_effective_ids
    writable = os.access(real_path.parent, os.W_OK, effective_ids=effective)
    at_rest = not writable and not real_path.with_name(f"{real_path.name}-wal").exists()
    return _connect(place, real_path, mode="ro&immutable=1" if at_rest else "ro")


def _connect(
    place: Place, real_path: Path, *, mode: Literal["rw", "ro", "ro&immutable=1"]
) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(os.fsencode(real_path))}?mode={mode}",
        uri=True,
        timeout=place.busy_timeout_s,
        isolation_level=None,
        # Calls come in order but not always from the thread that opened it.
        check_same_thread=False,
        cached_statements=64,
    )


def _configure(place: Place, connection: sqlite3.Connection) -> None:
    row: tuple[str] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if row[0] != "wal":
        raise StorageUnusable(
            f"{place.name}: its file system cannot share memory between processes, which the "
            "write-ahead log needs; put it on a local disk."
        )
    # Checkpoints are made by `_sqlite_checkpoint`.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    if place.durability == "power":
        connection.execute("PRAGMA synchronous = FULL")
        # On macOS a plain fsync leaves data in the drive's cache; elsewhere this does nothing.
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
    else:
        connection.execute("PRAGMA synchronous = NORMAL")


def _take_over(place: Place, connection: sqlite3.Connection) -> Head:
    # No rollback here: when this fails the connection is closed, which is one.
    connection.execute("BEGIN IMMEDIATE")
    # Read again: only from here on nobody else can change it.
    version = _version(place, connection)
    migrate(connection, version, place.migrations)
    connection.execute("UPDATE meta SET epoch = epoch + 1")
    head = read_head(place, connection)
    connection.execute("COMMIT")
    return head


def _version(place: Place, connection: sqlite3.Connection) -> int:
    return stored_version(connection, place.name, newest=len(place.migrations))
