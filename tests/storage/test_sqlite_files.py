"""Which paths and files a SQLite storage takes, what it makes of them, and what it leaves alone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from pidurable_actors.errors import (
    StorageCorrupt,
    StorageError,
    StorageTooNew,
    StorageUnusable,
)
from pidurable_actors.records.codec import FORMAT_VERSION
from pidurable_actors.storage import _sqlite_files
from pidurable_actors.storage._sqlite_schema import APPLICATION_ID, MIGRATIONS
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.conformance._scribe import Scribe
from tests.storage.children import Child, check_prefix, steps


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sqlite"


@pytest.fixture
def stored(path: Path) -> Path:
    """A file with three commits."""
    with closing(SqliteStorage(path)) as storage:
        storage.open(read_only=False)
        storage.apply(steps(1, 3))
    return path


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_every_file_is_for_its_owner_alone_from_the_start(tmp_path: Path, path: Path) -> None:
    with closing(SqliteStorage(path)) as storage:
        storage.open(read_only=False)
        storage.apply(steps(1, 1))
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {
        "agent.sqlite": 0o600,
        "agent.sqlite-wal": 0o600,
        "agent.sqlite-shm": 0o600,
        "agent.sqlite.lock": 0o600,
    }


def test_a_clean_close_leaves_one_file_and_the_lock_file(tmp_path: Path, stored: Path) -> None:
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        stored.name,
        f"{stored.name}.lock",
    ]


def test_a_directory_is_refused(tmp_path: Path) -> None:
    _refused(tmp_path, StorageUnusable, "is a directory")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    _refused(tmp_path / "missing" / "agent.sqlite", StorageUnusable, "does not exist")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file/agent.sqlite", "loop", "x" * 300, "nul\x00"])
def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    _refused(tmp_path / name, StorageUnusable, "cannot be|does not exist")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "loop"]


def test_a_link_in_the_place_of_the_lock_file_is_not_followed(tmp_path: Path, path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    Path(f"{path}.lock").symlink_to(victim)
    with pytest.raises(StorageUnusable, match="lock file"):
        SqliteStorage(path).open(read_only=False)
    assert victim.read_text() == "precious"
    assert not path.exists()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_lock_file_that_cannot_be_locked_is_refused(
    path: Path, make: Callable[[Path], None]
) -> None:
    make(Path(f"{path}.lock"))
    with pytest.raises(StorageUnusable, match="lock file"):
        SqliteStorage(path).open(read_only=False)
    assert not path.exists()


def test_a_file_that_cannot_be_made_is_refused(path: Path) -> None:
    with pytest.raises(StorageUnusable, match="cannot be created"):
        _sqlite_files._create(SqliteStorage(path)._place, path / "below a file that is not there")


def test_a_file_system_without_shared_memory_is_refused(path: Path) -> None:
    # SQLite keeps a database in memory without a log, as it does on such a file system.
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(StorageUnusable, match="local disk"),
    ):
        _sqlite_files._configure(SqliteStorage(path)._place, connection)


@pytest.mark.slow
def test_what_another_user_owns_is_refused(tmp_path: Path, stored: Path) -> None:
    before = stored.read_bytes()
    tmp_path.chmod(0o500)
    stored.chmod(0o400)
    if os.geteuid() != 0:
        stored.chmod(0)
    with Child("as-nobody", stored) as child:
        lines = child.rest()
    tmp_path.chmod(0o700)
    stored.chmod(0o600)
    assert [line.split()[0] for line in lines] == ["StorageUnusable", "StorageUnusable"]
    assert stored.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("dear diary, " * 100)
    _refused(path, StorageUnusable, "not a SQLite database")
    assert path.read_text() == "dear diary, " * 100


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE meta (x)",
        "PRAGMA application_id = 42",
        "PRAGMA user_version = 1",
    ],
)
def test_another_programs_database_is_refused_and_left_as_it_was(
    path: Path, statement: str
) -> None:
    _run(path, statement)
    before = path.read_bytes()
    _refused(path, StorageUnusable, "another program")
    assert path.read_bytes() == before
    assert not Path(f"{path}-wal").exists()


def test_an_empty_file_is_a_new_storage(path: Path) -> None:
    path.touch(mode=0o644)
    with pytest.raises(StorageUnusable, match="no storage yet"):
        SqliteStorage(path).open(read_only=True)
    with closing(SqliteStorage(path)) as storage:
        assert storage.open(read_only=False).epoch == 1


@pytest.mark.parametrize("name", ["a?b#c%20&mode=memory.sqlite", "ünï 漢字 '\".sqlite", ":memory:"])
def test_a_name_means_itself(tmp_path: Path, name: str) -> None:
    with closing(SqliteStorage(tmp_path / name)) as storage:
        storage.open(read_only=False)
        storage.apply(steps(1, 1))
    assert (tmp_path / name).stat().st_size > 0
    with closing(SqliteStorage(str(tmp_path / name))) as storage:
        assert storage.open(read_only=True).commit == 1


def test_a_newer_format_is_refused_and_left_as_it_was(stored: Path) -> None:
    _run(stored, f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    before = stored.read_bytes()
    error = _refused(stored, StorageTooNew, "newer version")
    assert isinstance(error, StorageTooNew)
    assert (error.stored, error.known) == (FORMAT_VERSION + 1, FORMAT_VERSION)
    assert stored.read_bytes() == before


def test_our_mark_without_a_version_is_corrupt(stored: Path) -> None:
    _run(stored, "PRAGMA user_version = 0")
    _refused(stored, StorageCorrupt, "no format version")


def test_there_is_a_migration_to_every_version_of_the_format() -> None:
    assert len(MIGRATIONS) == FORMAT_VERSION


def test_an_older_format_is_migrated_by_an_owner_and_explained_to_a_reader(stored: Path) -> None:
    newer = _with_migration(stored, "ALTER TABLE entries ADD COLUMN colour TEXT")
    with pytest.raises(StorageUnusable, match="open it once as its owner"):
        newer.open(read_only=True)
    with closing(newer):
        assert newer.open(read_only=False).commit == 3
        check_prefix(newer, 3)
    assert _run(stored, "SELECT colour FROM entries LIMIT 1") == [(None,)]
    with pytest.raises(StorageTooNew):
        SqliteStorage(stored).open(read_only=False)


def test_a_migration_that_fails_leaves_the_older_format(stored: Path) -> None:
    newer = _with_migration(
        stored, "ALTER TABLE entries ADD COLUMN colour TEXT", "UPDATE nowhere SET x = 1"
    )
    with pytest.raises(StorageError):
        newer.open(read_only=False)
    with closing(SqliteStorage(stored)) as storage:
        assert storage.open(read_only=False).epoch == 2
        check_prefix(storage, 3)
    assert "colour" not in str(_run(stored, "SELECT sql FROM sqlite_schema"))


def test_reading_changes_nothing_stored(stored: Path) -> None:
    before, changed = stored.read_bytes(), stored.stat().st_mtime_ns
    lock = Path(f"{stored}.lock")
    lock.unlink()
    with closing(SqliteStorage(stored)) as reader:
        assert reader.open(read_only=True).epoch == 1
        check_prefix(reader, 3)
    assert (stored.read_bytes(), stored.stat().st_mtime_ns) == (before, changed)
    assert not lock.exists()


def test_a_damaged_page_is_corrupt_when_it_is_read(stored: Path) -> None:
    """Every page but the first in turn: an open or a read says so, and none returns nonsense."""
    whole = stored.read_bytes()
    verdicts = set()
    for start in range(4096, len(whole), 4096):
        stored.write_bytes(whole[:start] + b"\xa5" * 4096 + whole[start + 4096 :])
        storage = SqliteStorage(stored)
        try:
            storage.open(read_only=False)
            check_prefix(storage, 3)
            storage.conversations(after=0, limit=9)
            storage.submissions(after=0, limit=9)
            storage.documents("session", 0, limit=9)
            verdicts.add("unread")
        except StorageCorrupt as error:
            assert str(stored) in str(error)
            verdicts.add("corrupt")
        finally:
            storage.close()
    assert verdicts == {"unread", "corrupt"}


def test_a_file_cut_short_is_corrupt(stored: Path) -> None:
    os.truncate(stored, 4096 * 3)
    storage = SqliteStorage(stored)
    with closing(storage), pytest.raises(StorageCorrupt):
        storage.open(read_only=False)
        check_prefix(storage, 3)


@pytest.mark.parametrize(
    ("damage", "read"),
    [
        ("UPDATE entries SET record = '{\"id\": '", lambda s: s.entry(11)),
        ("UPDATE entries SET record = '[]'", lambda s: s.entries(1, before=99, limit=9)),
        ("UPDATE entries SET record = CAST(x'ff' AS TEXT)", lambda s: s.entry(11)),
        ("UPDATE memos SET value = 'no'", lambda s: s.task(2)),
        ("UPDATE task_records SET record = '{}'", lambda s: s.tasks(after=0, limit=9)),
    ],
)
def test_a_text_that_cannot_be_read_is_corrupt(
    stored: Path, damage: str, read: Callable[[SqliteStorage], object]
) -> None:
    _run(stored, damage)
    with closing(SqliteStorage(stored)) as storage:
        storage.open(read_only=False)
        with pytest.raises(StorageCorrupt, match=stored.name):
            read(storage)


def test_a_storage_that_lost_its_standing_is_corrupt(stored: Path) -> None:
    storage = SqliteStorage(stored)
    with closing(storage):
        storage.open(read_only=False)
        _run(stored, "DELETE FROM meta")
        with pytest.raises(StorageCorrupt, match="meta"):
            storage.apply(steps(4, 1))
    _refused(stored, StorageCorrupt, "meta")


def test_a_commit_taken_back_from_outside_is_noticed(stored: Path) -> None:
    with closing(SqliteStorage(stored)) as storage:
        storage.open(read_only=False)
        _run(stored, "UPDATE meta SET commit_number = 2")
        with pytest.raises(StorageCorrupt, match="does not follow") as refused:
            storage.apply(steps(4, 1))
        assert refused.value.wrote is False


def test_the_file_says_what_it_is(stored: Path) -> None:
    assert _run(stored, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert _run(stored, "PRAGMA user_version") == [(FORMAT_VERSION,)]


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("power", 2)])
def test_the_promised_durability_is_the_level_that_is_set(
    path: Path, durability: str, level: int
) -> None:
    with closing(SqliteStorage(path, durability)) as storage:  # type: ignore[arg-type]
        Scribe.open(storage)
        assert storage._connection is not None
        assert storage._connection.execute("PRAGMA synchronous").fetchone() == (level,)
        assert storage._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def _refused(path: Path, kind: type[StorageError], words: str) -> StorageError:
    """Both an owner and a reader are refused, and what they took is free again."""
    for read_only in (False, True, False):
        storage = SqliteStorage(path)
        with pytest.raises(kind, match=words):
            storage.open(read_only=read_only)
        storage.close()
    with pytest.raises(kind) as refused:
        SqliteStorage(path).open(read_only=True)
    return refused.value


def _with_migration(path: Path, *statements: str) -> SqliteStorage:
    """The storage of a later version of this code."""
    storage = SqliteStorage(path)
    place = attrs.evolve(storage._place, migrations=(*MIGRATIONS, statements))
    storage._place = place  # type: ignore[misc]
    return storage


def _run(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()
