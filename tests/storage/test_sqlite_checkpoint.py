"""The log is copied back while the writer works, is bounded, and nothing is left running."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from pidurable_actors.storage._sqlite_checkpoint import Checkpointer
from pidurable_actors.storage.sqlite import SqliteStorage
from tests.storage.children import Child, check_prefix, steps

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sqlite"


def test_a_storage_that_writes_little_has_no_thread(path: Path) -> None:
    with closing(SqliteStorage(path)) as storage:
        storage.open(read_only=False)
        storage.apply(steps(1, 20))
        assert _threads() == []


@pytest.mark.slow
def test_a_storage_that_writes_much_copies_its_log_meanwhile_and_ends_its_thread(
    path: Path,
) -> None:
    storage = SqliteStorage(path)
    with closing(storage):
        last = storage.open(read_only=False).commit
        # The file of the database grows only by a checkpoint.
        while path.stat().st_size < 1_000_000:
            storage.apply(steps(last + 1, 1, padding=100_000))
            last += 1
        assert len(_threads()) == 1
        check_prefix(storage, last)
    assert _threads() == []
    with closing(SqliteStorage(path)) as reopened:
        assert reopened.open(read_only=False).commit == last
        check_prefix(reopened, last)


def test_past_its_bound_the_writer_empties_the_log_itself(path: Path) -> None:
    with closing(_writer(path)) as connection:
        checkpointer = Checkpointer(_broken, log_bytes=10**9, log_max_bytes=20 * PAGE)
        attempts = _count_checkpoints(connection)
        sizes = []
        for _ in range(40):
            _write(checkpointer, connection)
            sizes.append(_log_size(path))
        checkpointer.close()
    assert max(sizes) < 25 * PAGE
    assert len(attempts) < 5
    assert path.stat().st_size > PAGE


def test_a_reader_that_pins_the_log_costs_few_attempts_and_it_shrinks_when_it_goes(
    path: Path,
) -> None:
    with closing(_writer(path)) as connection, closing(sqlite3.connect(path)) as reader:
        attempts = _count_checkpoints(connection)
        checkpointer = Checkpointer(_broken, log_bytes=10 * PAGE, log_max_bytes=20 * PAGE)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM t").fetchone()
        for _ in range(60):
            _write(checkpointer, connection)
        assert _log_size(path) > 50 * PAGE
        assert len(attempts) < 15
        reader.execute("ROLLBACK")
        for _ in range(15):
            _write(checkpointer, connection)
        grown = _log_size(path)
        for _ in range(60):
            _write(checkpointer, connection)
        checkpointer.close()
        # Written again from its beginning.
        assert _log_size(path) == grown


@pytest.mark.slow
def test_a_checkpoint_beside_another_is_left_to_it(path: Path) -> None:
    with closing(_writer(path)) as connection, Child("checkpoint", path) as child:
        assert child.line() == "locked"
        attempts = _count_checkpoints(connection)
        checkpointer = Checkpointer(_broken, log_bytes=10 * PAGE, log_max_bytes=20 * PAGE)
        for _ in range(35):
            _write(checkpointer, connection)
        assert len(attempts) == 2
        assert _log_size(path) > 35 * PAGE
        child.kill()
        for _ in range(200):
            _write(checkpointer, connection)
        checkpointer.close()
        assert _log_size(path) < 70 * PAGE


@pytest.mark.parametrize("connect_fails", [True, False])
def test_a_thread_that_meets_an_error_leaves_the_log_to_the_writer(
    path: Path, connect_fails: bool
) -> None:
    with closing(_writer(path)) as connection:
        connect = _broken if connect_fails else partial(_not_a_database, path.with_name("diary"))
        checkpointer = Checkpointer(connect, log_bytes=PAGE, log_max_bytes=20 * PAGE)
        for _ in range(60):
            _write(checkpointer, connection)
        checkpointer.close()
        assert _log_size(path) < 50 * PAGE
    assert _threads() == []


def test_closing_again_does_nothing(path: Path) -> None:
    with closing(_writer(path)) as connection:
        checkpointer = Checkpointer(partial(_writer, path), log_bytes=1)
        _write(checkpointer, connection)
        assert len(_threads()) == 1
        checkpointer.close()
        assert _threads() == []
        checkpointer.close()


def _write(checkpointer: Checkpointer, connection: sqlite3.Connection) -> None:
    checkpointer.before_write(connection)
    connection.execute("UPDATE t SET x = x + 1, y = randomblob(3000)")
    checkpointer.after_write(PAGE)


def _writer(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE IF NOT EXISTS t (x, y)")
    connection.execute("INSERT INTO t VALUES (0, 0)")
    return connection


def _broken() -> sqlite3.Connection:
    raise sqlite3.OperationalError("no")


def _not_a_database(path: Path) -> sqlite3.Connection:
    path.write_text("dear diary, " * 1000)
    return sqlite3.connect(path, check_same_thread=False)


def _count_checkpoints(connection: sqlite3.Connection) -> list[str]:
    seen: list[str] = []

    def note(statement: str) -> None:
        if "wal_checkpoint" in statement:
            seen.append(statement)

    connection.set_trace_callback(note)
    return seen


def _log_size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "checkpoint" in thread.name]
