"""Power cuts: the watch sees what SQLite does, and a storage keeps its word at every moment.

A cut is tried at every event inside SQLite (a write, a sync, a new or deleted file) and after every
acknowledgement, with every image that the fault model allows, as far as a limit goes.
"""

from __future__ import annotations

import _json
import _sqlite3
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidurable_actors.errors import MisuseError, StorageError
from pidurable_actors.storage._sqlite_checkpoint import Checkpointer
from pidurable_actors.storage._sqlite_files import Durability, connect
from pidurable_actors.storage._sqlite_schema import MIGRATIONS, Migrations
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing import _sqlite_tap
from pidurable_actors.testing._synced_files import SyncedFiles
from pidurable_actors.testing._unsynced import Ledger, images
from tests.storage.children import check_prefix, steps

FILE: Final = "agent.sqlite"
PAGE: Final = 4096
FRAME: Final = PAGE + 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "watched"
    found.mkdir()
    return found


# --- The watch sees what SQLite does -------------------------------------------------------------

writer = st.integers(0, 1)
moves = st.one_of(
    st.tuples(st.just("write"), writer, st.integers(1, 12), st.integers(0, 9_000)),
    st.tuples(st.just("delete"), writer, st.integers(1, 12)),
    st.tuples(st.just("end"), writer, st.sampled_from(["COMMIT", "ROLLBACK"])),
    st.tuples(st.just("idle"), writer, st.sampled_from(["PRAGMA wal_checkpoint", "VACUUM"])),
    st.tuples(st.just("idle"), writer, st.just("PRAGMA wal_checkpoint(TRUNCATE)")),
    st.tuples(st.just("reopen"), writer),
    st.tuples(st.just("look")),
)


@settings(max_examples=60, deadline=None)
@given(
    journal=st.sampled_from(["wal", "wal", "delete", "truncate", "persist", "memory"]),
    synchronous=st.sampled_from(["OFF", "NORMAL", "FULL", "EXTRA"]),
    path=st.lists(moves, max_size=30),
)
def test_what_was_noted_is_what_the_files_hold(
    journal: str, synchronous: str, path: list[tuple[object, ...]]
) -> None:
    """Do anything with two connections; compare the files at any time, with or without syncs."""

    # So small a cache that a transaction writes before it commits.
    pragmas = (f"journal_mode = {journal}", f"synchronous = {synchronous}", "cache_size = 4")

    def opened() -> sqlite3.Connection:
        connection = sqlite3.connect(place / "a.db", isolation_level=None, timeout=0)
        for pragma in pragmas:
            # Busy: it works without.
            with suppress(sqlite3.OperationalError):
                connection.execute(f"PRAGMA {pragma}")
        return connection

    with TemporaryDirectory() as name, ExitStack() as held:
        place = Path(name)
        watch = held.enter_context(SyncedFiles(place))
        connections = [opened(), opened()]
        connections[0].execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v)")
        for move in path:
            match move:
                case ("look",):
                    assert watch.written() == _real(place, held)
                case ("reopen", int(at)):
                    connections[at].close()
                    connections[at] = opened()
                case (str(), int(at), *rest):
                    # Busy, or no transaction to end: nothing happens.
                    with suppress(sqlite3.OperationalError):
                        _move(connections[at], move[0], *rest)
        for connection in connections:
            connection.close()
        assert watch.written() == _real(place, held)
        # Without a journal's file nothing ever syncs the directory.
        if synchronous != "OFF" and journal != "memory":
            assert watch.kept()["a.db"] == watch.written()["a.db"]


@pytest.mark.parametrize(("synchronous", "syncs"), [("FULL", 1), ("NORMAL", 0), ("OFF", 0)])
def test_the_log_is_synced_at_each_commit_or_at_none(
    folder: Path, synchronous: str, syncs: int
) -> None:
    with SyncedFiles(folder) as watch, closing(_database(folder / "a.db", synchronous)) as database:
        # The first writes and syncs the head of the log as well.
        database.execute("INSERT INTO t VALUES (0)")
        for number in range(5):
            before = watch.syncs
            database.execute("INSERT INTO t VALUES (?)", (number,))
            assert watch.syncs - before == syncs
            assert (watch.kept() == watch.written()) == (syncs == 1)


def test_a_checkpoint_syncs_the_log_before_it_writes_the_database(folder: Path) -> None:
    with SyncedFiles(folder) as watch, closing(_database(folder / "a.db", "NORMAL")) as database:
        old = watch.kept()["a.db"]
        database.execute("INSERT INTO t VALUES (zeroblob(9000))")
        events = _events(watch)
        database.execute("PRAGMA wal_checkpoint")
        assert events[:2] == [("sync", "a.db-wal"), ("write", "a.db")]
        assert events[-1] == ("sync", "a.db")
        assert watch.kept() == watch.written()
        assert watch.kept()["a.db"] != old


def test_each_file_below_the_directory_is_watched_and_no_other(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "below").mkdir()
    (folder / "notes.txt").write_text("not SQLite's")
    with SyncedFiles(folder) as watch, closing(_database(tmp_path / "other.db", "FULL")):
        assert watch.written() == {"notes.txt": b"not SQLite's"}
        with closing(_database(folder / "a.db", "FULL")) as database:
            database.execute("ATTACH ? AS b", (str(folder / "below" / "b.db"),))
            database.execute("CREATE TABLE b.t (x)")
            assert {"a.db", "a.db-wal", "below/b.db", "notes.txt"} <= set(watch.written())
        assert watch.kept()["below/b.db"] == (folder / "below" / "b.db").read_bytes()


def test_a_file_that_was_there_counts_as_synced(folder: Path) -> None:
    with closing(_database(folder / "a.db", "OFF")) as database:
        database.execute("INSERT INTO t VALUES (1)")
    found = (folder / "a.db").read_bytes()
    with SyncedFiles(folder) as watch:
        assert watch.kept() == watch.written() == {"a.db": found}
        with closing(sqlite3.connect(folder / "a.db", isolation_level=None)) as database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute("INSERT INTO t VALUES (2)")
        assert watch.kept()["a.db"] == found != watch.written()["a.db"]


def test_a_new_file_has_a_name_only_when_its_directory_is_synced(folder: Path) -> None:
    with SyncedFiles(folder) as watch:
        kept = []
        watch.on_event = lambda event, name: kept.append((event, name, set(watch.kept())))
        with closing(sqlite3.connect(folder / "a.db", isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("CREATE TABLE t (x)")
            assert kept[-1] == ("sync", "a.db", set())
            # A journal is made and synced with its directory, which holds the other name as well.
            database.execute("PRAGMA journal_mode = DELETE")
            database.execute("INSERT INTO t VALUES (1)")
    both = {"a.db", "a.db-journal"}
    journal = [(event, names) for event, name, names in kept if name == "a.db-journal"]
    synced = [event for event, _ in journal].index("sync")
    assert [names for _, names in journal] == [set()] * synced + [both] * (len(journal) - synced)
    assert journal[-1] == ("delete", both)


@pytest.mark.parametrize(("synchronous", "returns"), [("FULL", True), ("EXTRA", False)])
def test_a_deleted_name_returns_unless_its_directory_is_synced(
    folder: Path, synchronous: str, returns: bool
) -> None:
    with SyncedFiles(folder) as watch:
        with closing(sqlite3.connect(folder / "a.db", isolation_level=None)) as database:
            database.execute(f"PRAGMA synchronous = {synchronous}")
            database.execute("CREATE TABLE t (x)")
        assert "a.db-journal" not in watch.written()
        assert ("a.db-journal" in watch.kept()) == returns


@pytest.fixture
def _threads_take_turns_quickly() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_threads_take_turns_quickly")
def test_threads_with_connections_of_their_own_are_all_seen(folder: Path) -> None:
    def work(name: str) -> None:
        with closing(sqlite3.connect(folder / name, isolation_level=None, timeout=60)) as database:
            for number in range(40):
                database.execute("INSERT INTO t VALUES (?, zeroblob(3000))", (number,))

    for name in ("a.db", "b.db"):
        with closing(_database(folder / name, "FULL", columns="x, y")):
            pass
    with SyncedFiles(folder) as watch:
        events = _events(watch)
        threads = [threading.Thread(target=work, args=(name,)) for name in ("a.db", "b.db", "a.db")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert watch.syncs == sum(event == "sync" for event, _ in events) >= 120
    assert watch.written() == _real(folder)


# --- What a cut may leave ------------------------------------------------------------------------


def test_what_a_cut_may_leave_begins_with_the_worst_and_comes_once() -> None:
    ledger = Ledger()
    a, b = ledger.found("a", b""), ledger.found("b", b"")
    ledger.write(a, 0, b"1" * 300)
    ledger.write(b, 0, b"2" * 200)
    ledger.write(a, 300, b"3" * 700)
    found = dict(images(*ledger.snapshot()))
    nothing, everything = {"a": b"", "b": b""}, {"a": b"1" * 300 + b"3" * 700, "b": b"2" * 200}
    assert list(found.items())[:2] == [
        ("nothing unsynced", nothing),
        ("all that was written", everything),
    ]
    for image in (
        {"a": everything["a"], "b": b""},  # one file's alone
        {"a": b"", "b": everything["b"]},
        {"a": b"1" * 300, "b": b""},  # a prefix
        {"a": b"1" * 300, "b": b"2" * 200},
        {"a": b"1" * 300 + b"3" * 212, "b": b"2" * 200},  # torn at a sector
        {"a": b"1" * 300 + bytes(212) + b"3" * 488, "b": b"2" * 200},
        {"a": bytes(300) + b"3" * 700, "b": b"2" * 200},  # a later one without an earlier one
        {"a": bytes(300) + b"3" * 700, "b": b""},
    ):
        assert image in found.values()
    different = [
        image for at, image in enumerate(found.values()) if image in [*found.values()][:at]
    ]
    assert different == []
    # In the same order each time, and no more than asked for.
    assert [*images(*ledger.snapshot())] == [*found.items()]


def test_a_sync_covers_what_was_noted_before_it_began() -> None:
    ledger = Ledger()
    file, other = ledger.found("a", b""), ledger.found("b", b"")
    ledger.write(file, 0, b"1")
    ledger.write(other, 0, b"3")
    began = ledger.mark()
    ledger.write(file, 1, b"2")
    ledger.sync(file, through=began, folder=None)
    disk, changes = ledger.snapshot()
    assert disk.image() == {"a": b"1", "b": b""}
    assert disk.after(changes).image() == {"a": b"12", "b": b"3"}


def test_a_sync_of_a_directory_covers_the_names_in_it_and_no_other() -> None:
    ledger = Ledger()
    below = ledger.open("below/a", read=bytes)
    beside = ledger.open("a", read=bytes)
    began = ledger.mark()
    late = ledger.open("b", read=bytes)
    ledger.sync(late, through=ledger.mark(), folder=began)
    assert _kept(ledger) == {"a"}
    ledger.sync(below, through=ledger.mark(), folder=ledger.mark())
    assert _kept(ledger) == {"a", "below/a"}
    # A delete that syncs the directory covers itself, though it came after the mark.
    ledger.delete(beside.name, folder=began)
    assert _kept(ledger) == {"below/a"}


def test_a_name_that_is_made_again_is_another_file() -> None:
    ledger = Ledger()
    ledger.found("log", b"old")
    ledger.delete("log", folder=None)
    file = ledger.open("log", read=bytes)
    ledger.write(file, 0, b"new")
    ledger.sync(file, through=ledger.mark(), folder=None)
    left = [image for _, image in images(*ledger.snapshot())]
    assert left == [{"log": b"old"}, {"log": b"new"}, {}]


def test_a_low_limit_takes_some_of_all(folder: Path) -> None:
    with SyncedFiles(folder) as watch, closing(_database(folder / "a.db", "NORMAL")) as database:
        for number in range(50):
            database.execute("INSERT INTO t VALUES (?)", (number,))
        labels = [label for label, _ in watch.outcomes(limit=24)]
    assert len(labels) == 24
    # Prefixes that end in each quarter of the changes.
    prefixes = [label.split() for label in labels if label.startswith("the first")]
    assert {int(first) * 4 // int(total) for _, _, first, _, total, _ in prefixes} == {0, 1, 2, 3}


# --- The watch as a tool -------------------------------------------------------------------------


def test_what_a_listener_raises_is_raised_by_the_watch_and_not_in_sqlite(folder: Path) -> None:
    def complain(event: str, name: str) -> None:
        raise LookupError(event)

    watch = SyncedFiles(folder)
    with pytest.raises(LookupError, match="open"), watch:
        watch.on_event = complain
        with closing(_database(folder / "a.db", "FULL")) as database:
            assert database.execute("SELECT count(*) FROM t").fetchone() == (0,)
    for ask in (watch.kept, watch.written, partial(watch.outcomes, limit=1), lambda: watch.syncs):
        with pytest.raises(LookupError):
            ask()


def test_a_file_that_others_change_meanwhile_is_refused(folder: Path) -> None:
    (folder / "a.db").touch()
    with pytest.raises(MisuseError, match=r"a\.db was changed"), SyncedFiles(folder):
        (folder / "a.db").write_text("something")
        with closing(sqlite3.connect(folder / "a.db")) as database, suppress(sqlite3.DatabaseError):
            database.execute("SELECT count(*) FROM sqlite_schema")


def test_a_watch_is_entered_once(folder: Path) -> None:
    with SyncedFiles(folder) as watch, pytest.raises(MisuseError, match="once"):
        watch.__enter__()


def test_a_library_without_its_symbols_is_refused() -> None:
    with pytest.raises(MisuseError, match="hides its symbols"):
        _sqlite_tap.library(_json.__file__)


def test_after_its_end_a_watch_notes_nothing_and_disturbs_nobody(folder: Path) -> None:
    before = _defaults()
    with SyncedFiles(folder) as watch:
        inner = SyncedFiles(folder)
        with inner:
            database = _database(folder / "a.db", "FULL")
        assert inner.written() == watch.written() == watch.kept()
        database.execute("INSERT INTO t VALUES (1)")
        assert inner.written() != watch.written()
        assert _defaults() != before
    assert _defaults() == before
    events, last = _events(watch), watch.written()
    with closing(database):
        database.execute("INSERT INTO t VALUES (2)")
        with closing(sqlite3.connect(folder / "a.db")) as other:
            assert other.execute("SELECT x FROM t").fetchall() == [(1,), (2,)]
    assert events == []
    assert watch.written() == last


# --- A storage keeps its word --------------------------------------------------------------------


@attrs.frozen(order=True)
class Word:
    """What was acknowledged, or what was found: the last commit, and the epoch."""

    commit: int = 0
    epoch: int = 0


class Cuts:
    """Cuts the power at every event of a watched program; each different image is opened once.

    Args:
        watch: of the directory in which the program has its storage, `FILE`.
        aside: a directory for one image after the other.
        durability: `power`: every image must hold what was acknowledged. Otherwise only the image
            that a killed process leaves must.
        limit: how many images at each moment.
        migrations: of the code that opens an image.

    Attributes:
        unopened: the images that are new since the last check.
        found: what each image held, or what is wrong with it.
        tables: the names of all tables that an image was seen with.
    """

    def __init__(
        self,
        watch: SyncedFiles,
        aside: Path,
        durability: Durability,
        *,
        limit: int,
        migrations: Migrations = MIGRATIONS,
    ) -> None:
        self.word = Word()
        self.found: dict[int, Word | str] = {}
        self.tables: set[tuple[str, ...]] = set()
        self._migrations = migrations
        self._watch = watch
        self._aside = aside
        self._limit = limit
        self._durability = durability
        self.unopened: dict[int, dict[str, bytes]] = {}
        self._promises: dict[tuple[int, str], Word] = {}
        watch.on_event = self.look

    def look(self, *_: str) -> None:
        """Keep what may be left now; may be called by any thread."""
        # Before the images: what is acknowledged meanwhile may be missing in them.
        word, none = self.word, Word()
        self._keep("the process dies", self._watch.written(), word)
        for label, image in self._watch.outcomes(limit=self._limit):
            self._keep(label, image, word if self._durability == "power" else none)

    def acknowledged(self, commit: int, epoch: int) -> None:
        """From now on this must be there."""
        self.word = Word(commit, epoch)
        self.look()

    def broken(self) -> list[str]:
        """Open all images, and tell of those that break the word."""
        unopened, self.unopened = self.unopened, {}
        for key, image in unopened.items():
            self.found[key] = self._reopened(image)
        promises, self._promises = self._promises, {}
        return [
            f"{label}: {found} instead of {word}"
            for (key, label), word in promises.items()
            if not isinstance(found := self.found[key], Word)
            or found.commit < word.commit
            or found.epoch < word.epoch
        ]

    def _keep(self, label: str, image: dict[str, bytes], word: Word) -> None:
        key = hash(tuple(image.items()))
        if key not in self.found:
            self.unopened[key] = image
        self._promises[key, label] = max(word, self._promises.get((key, label), word))

    def _reopened(self, image: dict[str, bytes]) -> Word | str:
        place = self._aside
        place.mkdir(exist_ok=True)
        for name, content in image.items():
            (place / name).write_bytes(content)
        try:
            with closing(_storage(place / FILE, "process", self._migrations)) as storage:
                head = storage.open(read_only=False)
                check_prefix(storage, head.commit)
                assert storage._connection is not None
                (verdict,) = storage._connection.execute("PRAGMA integrity_check").fetchone()
                self.tables.add(_tables(storage._connection))
                return Word(head.commit, head.epoch - 1) if verdict == "ok" else str(verdict)
        except (StorageError, sqlite3.Error, AssertionError) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            for path in place.iterdir():
                path.unlink()


@pytest.fixture(params=["power", "process"])
def durability(request: pytest.FixtureRequest) -> Durability:
    found: Durability = request.param
    return found


@pytest.mark.slow
def test_from_its_creation_to_its_close_and_again_a_storage_keeps_its_word(
    folder: Path, tmp_path: Path, durability: Durability
) -> None:
    with SyncedFiles(folder) as watch:
        cuts = Cuts(watch, tmp_path / "aside", durability, limit=3)
        for _ in range(2):
            _stream(SqliteStorage(folder / FILE, durability), cuts, commits=4)
            assert cuts.broken() == []
    assert len(cuts.found) > 100
    # Before anything is stored, after all of it, and all between.
    assert {found.commit for found in _words(cuts)} == {0, 1, 3, 6, 7, 8, 10, 13, 14}


@pytest.mark.slow
@pytest.mark.real_time
@pytest.mark.parametrize("by", ["writer", "turns", "thread"])
def test_while_the_log_is_copied_a_storage_keeps_its_word(
    folder: Path, tmp_path: Path, durability: Durability, by: str
) -> None:
    """Copy a short log again and again: so that it begins anew each time, or beside the writer."""

    def between(storage: SqliteStorage) -> None:
        if by == "turns":
            with closing(connect(storage._place)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    bounds = {"writer": (1000, 12), "turns": (1000, 1000), "thread": (1, 1000)}[by]
    with SyncedFiles(folder) as watch:
        cuts = Cuts(watch, tmp_path / "aside", durability, limit=2)
        threads, copied = set(), 0

        def note(event: str, name: str) -> None:
            nonlocal copied
            threads.add(threading.get_ident())
            copied += (event, name) == ("sync", FILE)
            cuts.look()

        watch.on_event = note
        storage = SqliteStorage(folder / FILE, durability)
        _stream(storage, cuts, commits=8, padding=3 * PAGE, bounds=bounds, between=between)
        assert cuts.broken() == []
    # The thread may be late, and then copy only once.
    assert copied > 3 or by == "thread"
    assert len(threads) == (2 if by == "thread" else 1)


@pytest.mark.slow
def test_what_an_owner_finds_after_a_kill_it_has_made_durable_when_it_is_open(
    folder: Path, tmp_path: Path
) -> None:
    """The log of a killed owner may hold commits that no sync covered, and the next one shows."""
    with SyncedFiles(folder) as watch:
        killed = SqliteStorage(folder / FILE, "process")
        killed.open(read_only=False)
        killed.apply(steps(1, 4))
        cuts = Cuts(watch, tmp_path / "aside", "power", limit=10)
        assert killed._lock is not None
        killed._lock.release()
        storage = SqliteStorage(folder / FILE, "power")
        head = storage.open(read_only=False)
        assert head.commit == 4
        cuts.acknowledged(head.commit, head.epoch)
        storage.apply(steps(5, 1))
        cuts.acknowledged(5, head.epoch)
        assert cuts.broken() == []
        # Not before: what nobody has shown may be lost.
        assert {found.commit for found in _words(cuts)} == {0, 4, 5}
        storage.close()
        killed.close()


@pytest.mark.slow
def test_a_migration_is_there_whole_or_not_at_all(
    folder: Path, tmp_path: Path, durability: Durability
) -> None:
    later = (*MIGRATIONS, ("CREATE TABLE a AS SELECT * FROM entries", "CREATE TABLE b (x)"))
    with closing(SqliteStorage(folder / FILE)) as storage:
        storage.open(read_only=False)
        storage.apply(steps(1, 3))
    with SyncedFiles(folder) as watch:
        cuts = Cuts(watch, tmp_path / "aside", durability, limit=10, migrations=later)
        _stream(_storage(folder / FILE, durability, later), cuts, commits=1)
        assert cuts.broken() == []
    # The epoch is raised in the same transaction, and opening an image migrates the old ones.
    assert {found.epoch for found in _words(cuts)} == {1, 2}
    assert {tables[:3] for tables in cuts.tables} == {("a", "b", "commits")}


@pytest.mark.slow
def test_the_check_sees_a_commit_that_is_lost(folder: Path, tmp_path: Path) -> None:
    with SyncedFiles(folder) as watch:
        cuts = Cuts(watch, tmp_path / "aside", "power", limit=3)
        _stream(SqliteStorage(folder / FILE, "process"), cuts, commits=3)
        lost = cuts.broken()
    assert any("nothing unsynced: Word(commit=0" in line for line in lost), lost
    # Lost, not torn: that much holds without a sync.
    assert len(_words(cuts)) == len(cuts.found)


@pytest.mark.slow
def test_the_check_sees_a_file_that_is_spoilt(folder: Path, tmp_path: Path) -> None:
    def unsafe(storage: SqliteStorage) -> None:
        assert storage._connection is not None
        storage._connection.execute("PRAGMA synchronous = OFF")

    with SyncedFiles(folder) as watch:
        cuts = Cuts(watch, tmp_path / "aside", "process", limit=3)
        storage = SqliteStorage(folder / FILE)
        _stream(storage, cuts, commits=4, padding=2 * PAGE, bounds=(1000, 6), between=unsafe)
        assert cuts.broken() != []
    assert len(_words(cuts)) < len(cuts.found)


@pytest.mark.soak
def test_every_image_of_every_moment_keeps_the_word(
    folder: Path, tmp_path: Path, durability: Durability
) -> None:
    with SyncedFiles(folder) as watch:
        cuts = Cuts(watch, tmp_path / "aside", durability, limit=200)
        for padding in (0, 5 * PAGE):
            storage = SqliteStorage(folder / FILE, durability)
            _stream(storage, cuts, commits=9, padding=padding, bounds=(1000, 30))
            assert cuts.broken() == []


@pytest.mark.soak
def test_a_second_cut_while_the_first_is_recovered_from_changes_nothing(
    folder: Path, tmp_path: Path, durability: Durability
) -> None:
    with SyncedFiles(folder) as watch:
        cuts = Cuts(watch, tmp_path / "aside", durability, limit=3)
        _stream(SqliteStorage(folder / FILE, durability), cuts, commits=3, bounds=(1000, 8))
        images = list(cuts.unopened.values())
        assert cuts.broken() == []
    for number, image in enumerate(images[::5]):
        place = tmp_path / str(number)
        place.mkdir()
        for name, content in image.items():
            (place / name).write_bytes(content)
        with SyncedFiles(place) as watch:
            cuts = Cuts(watch, tmp_path / "aside", "power", limit=3)
            # What it finds when it opens is promised as well.
            _stream(SqliteStorage(place / FILE, "power"), cuts, commits=2)
            assert cuts.broken() == []


def _stream(
    storage: SqliteStorage,
    cuts: Cuts,
    *,
    commits: int,
    padding: int = 0,
    bounds: tuple[int, int] = (1000, 1000),
    between: Callable[[SqliteStorage], None] = lambda _: None,
) -> None:
    """Open, commit in batches of one to three, close; cut at every moment.

    Args:
        storage: where to.
        cuts: told of each acknowledgement.
        commits: how many batches.
        padding: bytes in each commit.
        bounds: of the log, in pages: what wakes the thread that copies it, and the writer itself.
        between: called before each batch.
    """
    head = storage.open(read_only=False)
    cuts.acknowledged(head.commit, head.epoch)
    storage._checkpointer = Checkpointer(
        partial(connect, storage._place),
        log_bytes=bounds[0] * FRAME,
        log_max_bytes=bounds[1] * FRAME,
    )
    last = head.commit
    for round_number in range(commits):
        between(storage)
        size = 1 + round_number % 3
        storage.apply(steps(last + 1, size, padding=padding))
        last += size
        cuts.acknowledged(last, head.epoch)
    storage.close()
    cuts.look()


def _storage(path: Path, durability: Durability, migrations: Migrations) -> SqliteStorage:
    storage = SqliteStorage(path, durability)
    storage._place = attrs.evolve(storage._place, migrations=migrations)  # type: ignore[misc]
    return storage


def _tables(connection: sqlite3.Connection) -> tuple[str, ...]:
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
    return tuple(name for (name,) in connection.execute(query))


def _words(cuts: Cuts) -> list[Word]:
    return [found for found in cuts.found.values() if isinstance(found, Word)]


def _defaults() -> tuple[int, int]:
    """Where SQLite's default file layer is, and the function that opens directories for it."""
    default: int = _sqlite_tap.library(_sqlite3.__file__).sqlite3_vfs_find(None)
    opens = _sqlite_tap._Vfs.from_address(default).xGetSystemCall(default, b"openDirectory")
    return default, opens


def _kept(ledger: Ledger) -> set[str]:
    disk, _ = ledger.snapshot()
    return set(disk.image())


def _database(path: Path, synchronous: str, *, columns: str = "x") -> sqlite3.Connection:
    """An open database in WAL mode with a table, all of it synced."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"CREATE TABLE t ({columns})")
    connection.execute("PRAGMA wal_checkpoint")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


def _events(watch: SyncedFiles) -> list[tuple[str, str]]:
    """What the watch tells from now on."""
    events: list[tuple[str, str]] = []
    watch.on_event = lambda event, name: events.append((event, name))
    return events


def _move(connection: sqlite3.Connection, kind: object, *details: object) -> None:
    if kind in ("write", "delete") and not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    match kind, *details:
        case "write", key, int(size):
            connection.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (key, b"." * size))
        case "delete", key:
            connection.execute("DELETE FROM t WHERE k = ?", (key,))
        case _, str(statement):
            connection.execute(statement)


def _real(folder: Path, held: ExitStack | None = None) -> dict[str, bytes]:
    """The files as they are.

    Args:
        folder: where.
        held: keeps the descriptors open; closing one would drop the locks that SQLite has.
    """
    with ExitStack() as now:
        found = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith("-shm"):
                descriptor = os.open(path, os.O_RDONLY)
                (held or now).callback(os.close, descriptor)
                found[path.relative_to(folder).as_posix()] = os.pread(descriptor, 1 << 30, 0)
        return found
