"""A SQLite storage after `kill -9`, a torn log or a full disk: a prefix of the commits, all of it."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from pidurable_actors.errors import StorageError
from pidurable_actors.storage.sqlite import SqliteStorage
from tests.storage.children import Child, check_prefix, steps


@pytest.mark.slow
@pytest.mark.parametrize(("acknowledged", "padding"), [(1, 0), (60, 0), (150, 40_000)])
def test_killed_in_a_stream_of_writes_what_was_acknowledged_is_there_and_whole(
    tmp_path: Path, acknowledged: int, padding: int
) -> None:
    path = tmp_path / "agent.sqlite"
    last_told = 0
    # Twice: the second process goes on from what the first left.
    for _ in range(2):
        with Child("stream", path, padding) as child:
            for _ in range(acknowledged):
                last_told = int(child.line())
            last_told = max([last_told, *map(int, child.kill())])
        with closing(SqliteStorage(path)) as storage:
            head = storage.open(read_only=False)
            assert head.commit >= last_told
            check_prefix(storage, head.commit)


@pytest.mark.slow
def test_killed_before_any_statement_of_a_write_all_or_nothing_is_stored(tmp_path: Path) -> None:
    with Child("crash-points", tmp_path / "agent.sqlite") as child:
        found = [json.loads(line) for line in child.rest()]
    states = {
        tuple(value for name, value in facts.items() if name not in ("statement", "returned"))
        for facts in found
    }
    old = (
        *(5, 20, "running", 1, 0, 0, 1, False, 1),
        *("old+ old+", "old old+ old+ old+ old+", "old None", "1 2 3 4 5", 0),
    )
    new = (
        *(7, 20, "terminal", 0, 1, 1, 1, True, 0),
        *("1 new new", "old old+ old++ new new", "old+ 1234", "3 4 5 6 7", 13),
    )
    assert states == {old, new}
    # BEGIN, the move of the row in meta, one for each change, two more for what ends and for each
    # base, one for the log of each commit, the forgetting and COMMIT.
    assert len(found) > 22
    assert [facts["commit"] for facts in found] == [5] * (len(found) - 2) + [7, 7]


@pytest.mark.slow
def test_a_log_cut_anywhere_leaves_a_prefix(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    writer = SqliteStorage(path)
    writer.open(read_only=False)
    for number in range(1, 9):
        writer.apply(steps(number, 1))
    log = Path(f"{path}-wal").read_bytes()
    database = path.read_bytes()
    writer.close()

    found = []
    for cut in range(0, len(log), 1_021):
        place = tmp_path / "copy" / "agent.sqlite"
        place.parent.mkdir()
        place.write_bytes(database)
        Path(f"{place}-wal").write_bytes(log[:cut])
        with closing(SqliteStorage(place)) as storage:
            head = storage.open(read_only=False)
            # Cut before the tables were made, it is a new storage.
            check_prefix(storage, head.commit)
        found.append(head.commit)
        shutil.rmtree(place.parent)
    assert found == sorted(found)
    assert set(found) == set(range(8))


@pytest.mark.slow
@pytest.mark.parametrize("size", [70_000, 200_000, 1_000_003])
def test_a_disk_that_fills_ends_the_write_and_loses_nothing(tmp_path: Path, size: int) -> None:
    """Limit the size of files in a child, so that writes fail in the commit, where they are made."""
    path = tmp_path / "agent.sqlite"
    with Child("starve", path, size) as child:
        facts = json.loads(child.rest()[0])
    assert facts["kind"] == "StorageError"
    assert facts["wrote"] is None
    with closing(SqliteStorage(path)) as storage:
        head = storage.open(read_only=False)
        # Unknown means unknown: the failed one may be there.
        assert facts["last"] <= head.commit <= facts["last"] + 1
        check_prefix(storage, head.commit)
        storage.apply(steps(head.commit + 1, 3))
        check_prefix(storage, head.commit + 3)
        assert _integrity(storage) == "ok"


def test_a_database_at_its_limit_refuses_before_the_commit_and_goes_on_when_freed(
    tmp_path: Path,
) -> None:
    with closing(SqliteStorage(tmp_path / "agent.sqlite")) as storage:
        storage.open(read_only=False)
        storage.apply(steps(1, 2))
        assert storage._connection is not None
        (pages,) = storage._connection.execute("PRAGMA page_count").fetchone()
        storage._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(StorageError, match="full") as refused:
            storage.apply(steps(3, 2, padding=50_000))
        assert refused.value.wrote is False
        check_prefix(storage, 2)

        storage._connection.execute("PRAGMA max_page_count = 1000000")
        storage.apply(steps(3, 2, padding=50_000))
        check_prefix(storage, 4)


@pytest.mark.slow
def test_killed_while_its_tables_are_made_a_file_is_still_new(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    with Child("half-migrate", path) as child:
        assert child.process.wait() == -9
    with closing(SqliteStorage(path)) as storage:
        assert storage.open(read_only=False).epoch == 1
        storage.apply(steps(1, 1))
        check_prefix(storage, 1)


def _integrity(storage: SqliteStorage) -> str:
    assert storage._connection is not None
    (verdict,) = storage._connection.execute("PRAGMA integrity_check").fetchone()
    return str(verdict)
