"""Every error of the driver becomes one of ours, at the seam, with the driver's as its cause."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pidurable_actors.errors import StorageCorrupt, StorageError, StorageUnusable
from pidurable_actors.records import ROOT_ID, EntryId, EntryRecord
from pidurable_actors.storage._sqlite_errors import driver_errors, translate, translate_open
from pidurable_actors.storage._sqlite_files import roll_back
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.conformance._scribe import Scribe, put
from tests.storage.children import steps

KINDS: dict[type[Exception], type[StorageError]] = {
    sqlite3.Warning: StorageError,
    sqlite3.Error: StorageError,
    sqlite3.InterfaceError: StorageError,
    sqlite3.DatabaseError: StorageError,
    sqlite3.DataError: StorageError,
    sqlite3.OperationalError: StorageCorrupt,
    sqlite3.IntegrityError: StorageError,
    sqlite3.InternalError: StorageError,
    sqlite3.ProgrammingError: StorageError,
    sqlite3.NotSupportedError: StorageError,
}
CODES: dict[str, type[StorageError]] = {
    "SQLITE_CORRUPT": StorageCorrupt,
    "SQLITE_NOTADB": StorageCorrupt,
    "SQLITE_CONSTRAINT": StorageCorrupt,
    "SQLITE_ERROR": StorageCorrupt,
    "SQLITE_MISMATCH": StorageCorrupt,
    "SQLITE_BUSY": StorageError,
    "SQLITE_LOCKED": StorageError,
    "SQLITE_FULL": StorageError,
    "SQLITE_READONLY": StorageError,
    "SQLITE_PERM": StorageError,
    "SQLITE_CANTOPEN": StorageError,
    "SQLITE_IOERR": StorageError,
    "SQLITE_NOMEM": StorageError,
    "SQLITE_TOOBIG": StorageError,
    "SQLITE_INTERRUPT": StorageError,
    "SQLITE_PROTOCOL": StorageError,
}
USELESS_PATHS = {"SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_READONLY"}


def test_no_exception_of_the_driver_is_unknown() -> None:
    classes = {
        value
        for value in vars(sqlite3).values()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert classes == set(KINDS)
    assert all(issubclass(kind, driver_errors) for kind in classes)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_without_a_code_is_mapped_by_its_class(kind: type[Exception]) -> None:
    mapped = translate(kind("why"), "agent.sqlite")  # type: ignore[arg-type]
    assert type(mapped) is KINDS[kind]
    assert str(mapped).startswith("agent.sqlite: ")
    assert "why" in str(mapped)
    assert mapped.wrote is False


@pytest.mark.parametrize("name", CODES)
def test_an_error_with_a_code_is_mapped_by_it(name: str) -> None:
    # Extended codes keep the primary one in their low byte.
    for code in (getattr(sqlite3, name), getattr(sqlite3, name) | 5 << 8):
        error = sqlite3.OperationalError("why")
        error.sqlite_errorcode = code
        mapped = translate(error, "agent.sqlite", wrote=None)
        assert type(mapped) is CODES[name]
        assert mapped.wrote is None
        opened = translate_open(error, "agent.sqlite")
        assert type(opened) is (StorageUnusable if name in USELESS_PATHS else CODES[name])
        assert opened.wrote is False


def test_every_code_of_sqlite_is_mapped() -> None:
    codes = {
        value
        for name, value in vars(sqlite3).items()
        if name.startswith("SQLITE_") and isinstance(value, int)
    }
    for code in codes:
        error = sqlite3.DatabaseError("why")
        error.sqlite_errorcode = code
        assert isinstance(translate(error, "agent.sqlite"), StorageError)


def test_a_failed_write_has_the_drivers_error_as_its_cause_and_leaves_the_storage_usable(
    tmp_path: Path,
) -> None:
    with closing(SqliteStorage(tmp_path / "agent.sqlite")) as storage:
        scribe = Scribe.open(storage)
        scribe.commit(*steps(1, 1)[0].changes)
        with pytest.raises(StorageCorrupt) as refused:
            scribe.commit(*steps(1, 1)[0].changes)
        assert isinstance(refused.value.__cause__, sqlite3.IntegrityError)
        assert refused.value.wrote is False
        scribe.next_id = 1000
        scribe.commit(*steps(2, 1)[0].changes)


def test_a_failed_read_has_the_drivers_error_as_its_cause(tmp_path: Path) -> None:
    with closing(SqliteStorage(tmp_path / "agent.sqlite")) as storage:
        storage.open(read_only=False)
        assert storage._connection is not None
        storage._connection.execute("DROP TABLE conversations")
        with pytest.raises(StorageCorrupt, match="no such table") as refused:
            storage.conversation(ROOT_ID)
        assert isinstance(refused.value.__cause__, sqlite3.OperationalError)


@pytest.mark.parametrize("bad", [EntryId(2**63), "\ud800"])
def test_what_no_database_holds_is_refused_and_rolled_back(
    tmp_path: Path, bad: EntryId | str
) -> None:
    """The session checks values before; this is the last line behind it."""
    good = EntryRecord(id=EntryId(50), conversation_id=ROOT_ID, kind="n")
    worse = (
        EntryRecord(id=EntryId(51), conversation_id=ROOT_ID, kind=bad)
        if isinstance(bad, str)
        else EntryRecord(id=bad, conversation_id=ROOT_ID, kind="n")
    )
    with closing(SqliteStorage(tmp_path / "agent.sqlite")) as storage:
        scribe = Scribe.open(storage)
        change = put(good)
        with pytest.raises(StorageError) as refused:
            scribe.commit(change, type(change)(worse, "{}"))  # type: ignore[arg-type, call-arg]
        assert refused.value.wrote is False
        assert storage.entry(good.id) is None
        scribe.commit(change)


def test_an_error_of_another_kind_rolls_back_too(tmp_path: Path) -> None:
    with closing(SqliteStorage(tmp_path / "agent.sqlite")) as storage:
        scribe = Scribe.open(storage)
        entry = EntryRecord(id=EntryId(50), conversation_id=ROOT_ID, kind="n")
        with pytest.raises(KeyError):
            scribe.commit(put(entry), object())  # type: ignore[arg-type]
        assert storage.entry(entry.id) is None
        scribe.commit(put(entry))


def test_a_rollback_that_fails_is_not_certain() -> None:
    connection = sqlite3.connect(":memory:")
    assert roll_back(connection) is True
    connection.close()
    assert roll_back(connection) is False


@pytest.mark.slow
def test_importing_the_room_imports_no_driver() -> None:
    program = (
        "import sys, pidurable_actors.storage, pidurable_actors.storage.memory;"
        "sys.exit('sqlite3' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
