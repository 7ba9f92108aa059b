"""One owner of a SQLite file, whoever asks and by whatever name; and locks of other programs."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from pidurable_actors.errors import StorageError, StorageFenced, StorageInUse, StorageUnusable
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.conformance._scribe import Scribe
from tests.storage.children import Child, check_prefix, steps


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sqlite"


@pytest.mark.slow
def test_an_owner_in_another_process_is_named_and_its_death_frees_the_file(path: Path) -> None:
    storage = SqliteStorage(path)
    with Child("hold", path) as child:
        assert child.line() == "open"
        with pytest.raises(StorageInUse) as refused:
            storage.open(read_only=False)
        assert f"pid {child.process.pid} on " in refused.value.owner
        # A paused owner is an owner, however long it is paused.
        child.process.send_signal(signal.SIGSTOP)
        with pytest.raises(StorageInUse):
            storage.open(read_only=False)
        child.process.send_signal(signal.SIGCONT)
        child.say()
        assert child.line() == "committed 1"
        child.kill()
        with closing(storage):
            head = storage.open(read_only=False)
            assert (head.commit, head.epoch) == (1, 2)

    with Child("hold", path) as child:
        assert child.line() == "open"
        child.say()
        assert child.line() == "committed 2"


@pytest.mark.slow
def test_this_process_is_named_to_another(path: Path) -> None:
    with closing(SqliteStorage(path)) as storage:
        storage.open(read_only=False)
        with Child("hold", path) as child:
            assert child.line().startswith(f"in use by pid {os.getpid()} on ")


@pytest.mark.slow
def test_a_paused_owner_that_was_replaced_cannot_write_when_it_wakes(path: Path) -> None:
    with Child("hold", path) as child:
        assert child.line() == "open"
        child.process.send_signal(signal.SIGSTOP)
        # Someone deletes the lock file to force the matter.
        Path(f"{path}.lock").unlink()
        with closing(SqliteStorage(path)) as storage:
            scribe = Scribe.open(storage)
            scribe.entry(data="of the new owner")
            child.process.send_signal(signal.SIGCONT)
            child.say()
            assert child.line() == "fenced, wrote False"
            scribe.entry(data="goes on")
            assert scribe.number == 2


def test_an_epoch_raised_from_outside_fences(path: Path) -> None:
    with closing(SqliteStorage(path)) as storage, closing(_shell(path)) as shell:
        scribe = Scribe.open(storage)
        scribe.entry()
        shell.execute("UPDATE meta SET epoch = epoch + 1")
        with pytest.raises(StorageFenced):
            scribe.entry()
        assert shell.execute("SELECT count(*) FROM entries").fetchone() == (1,)


def test_every_way_to_the_file_meets_the_same_lock(path: Path, tmp_path: Path) -> None:
    linked, linked_directory = tmp_path / "other.sqlite", tmp_path / "directory"
    linked.symlink_to(path)
    linked_directory.symlink_to(tmp_path)
    with closing(SqliteStorage(linked)) as storage:
        # The link leads nowhere yet; the file is made where it leads.
        storage.open(read_only=False)
        assert path.exists()
        with contextlib.chdir(tmp_path):
            relative = SqliteStorage("./agent.sqlite")
            with pytest.raises(StorageInUse):
                relative.open(read_only=False)
        # A relative path means what it meant when it was given.
        with pytest.raises(StorageInUse):
            relative.open(read_only=False)
        for other in (path, linked, linked_directory / "agent.sqlite", f"{tmp_path}/./x/../{path}"):
            with pytest.raises((StorageInUse, StorageUnusable)):
                SqliteStorage(other).open(read_only=False)
        storage.apply(steps(1, 1))
        check_prefix(storage, 1)


def test_a_file_with_two_names_is_refused(path: Path, tmp_path: Path) -> None:
    with closing(SqliteStorage(path)) as storage:
        storage.open(read_only=False)
    other = tmp_path / "other.sqlite"
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(StorageUnusable, match="hard links"):
            SqliteStorage(name).open(read_only=False)
    other.unlink()
    with closing(SqliteStorage(path)) as storage:
        storage.open(read_only=False)


def test_refused_opens_do_not_weaken_the_owners_own_locks(path: Path) -> None:
    """Closing a second descriptor of a SQLite file would drop the locks of the first: none is made."""
    with closing(SqliteStorage(path)) as storage:
        storage.open(read_only=False)
        assert storage._connection is not None
        storage._connection.execute("BEGIN IMMEDIATE")
        for _ in range(3):
            with pytest.raises(StorageInUse):
                SqliteStorage(path).open(read_only=False)
            with closing(SqliteStorage(path)) as reader:
                reader.open(read_only=True)
        locks = Path("/proc/locks")
        if locks.exists():
            inode = f":{Path(f'{path}-shm').stat().st_ino} "
            held = [line for line in locks.read_text().splitlines() if inode in line]
            assert any("WRITE" in line for line in held)
        storage._connection.execute("ROLLBACK")


def test_a_foreign_lock_is_waited_for_a_moment(path: Path) -> None:
    with closing(SqliteStorage(path)) as storage, closing(_shell(path)) as shell:
        storage.open(read_only=False)
        shell.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.05, shell.execute, ["ROLLBACK"])
        release.start()
        storage.apply(steps(1, 1))
        release.join()
        check_prefix(storage, 1)


def test_a_foreign_lock_that_stays_is_an_error_and_nothing_is_written(path: Path) -> None:
    with (
        closing(SqliteStorage(path, busy_timeout_s=0.02)) as storage,
        closing(_shell(path)) as shell,
    ):
        storage.open(read_only=False)
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="lock") as refused:
            storage.apply(steps(1, 1))
        assert refused.value.wrote is False
        shell.execute("ROLLBACK")
        storage.apply(steps(1, 1))
        check_prefix(storage, 1)


def test_a_foreign_lock_that_stays_keeps_an_owner_out_but_not_a_reader(path: Path) -> None:
    with closing(SqliteStorage(path)) as storage:
        storage.open(read_only=False)
    with closing(_shell(path)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="lock"):
            SqliteStorage(path, busy_timeout_s=0.02).open(read_only=False)
        with closing(SqliteStorage(path)) as reader:
            assert reader.open(read_only=True).epoch == 1
        shell.execute("ROLLBACK")
    # The refused owner let go of the lock.
    with closing(SqliteStorage(path)) as storage:
        assert storage.open(read_only=False).epoch == 2


def test_a_shell_that_reads_does_not_stop_writes(path: Path) -> None:
    with closing(SqliteStorage(path)) as storage, closing(_shell(path)) as shell:
        storage.open(read_only=False)
        storage.apply(steps(1, 1))
        shell.execute("BEGIN")
        assert shell.execute("SELECT count(*) FROM entries").fetchone() == (1,)
        storage.apply(steps(2, 1))
        assert shell.execute("SELECT count(*) FROM entries").fetchone() == (1,)
        check_prefix(storage, 2)


def _shell(path: Path) -> sqlite3.Connection:
    """Another program that has the file open."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)
