"""Files of older formats: what they hold is kept, and a migration is done as a whole or not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from pidurable_actors._json import encode_json, fingerprint
from pidurable_actors.errors import StorageUnusable
from pidurable_actors.records import (
    ROOT_ID,
    AppendText,
    ConversationRecord,
    DocumentRecord,
    SubmissionId,
    SubmissionRecord,
)
from pidurable_actors.records.codec import FORMAT_VERSION, encode_record
from pidurable_actors.storage._sqlite_schema import MIGRATIONS
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.conformance._scribe import (
    Scribe,
    change_document,
    put,
    put_document,
)
from tests.storage.children import TASK, Child, check_prefix, steps

LATEST = DocumentRecord(id=31, kind="latest", scope="session", scope_id=0, version=3)
KEPT = DocumentRecord(id=32, kind="kept", scope="session", scope_id=0, history="rewindable")
MINE = DocumentRecord(id=33, kind="mine", scope="task", scope_id=TASK)
CONVERSATION = ConversationRecord(id=ROOT_ID, created_at_ms=5)
SUBMISSION = SubmissionRecord(
    id=SubmissionId(34), conversation_id=ROOT_ID, type="input", status="queued", request_id="r"
)


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """A file as the first format had it: five commits, with documents in the last two."""
    path = tmp_path / "agent.sqlite"
    storage = SqliteStorage(path)
    place = attrs.evolve(storage._place, migrations=MIGRATIONS[:1])
    storage._place = place  # type: ignore[misc]
    with closing(storage):
        storage.open(read_only=False)
        rest = attrs.evolve(steps(5, 1)[0], next_id=40)
        changes = (*rest.changes, put(CONVERSATION), put(SUBMISSION))
        batches = [*steps(1, 4), attrs.evolve(rest, changes=changes)]
        # There was no log.
        storage.apply([attrs.evolve(batch, logged=False) for batch in batches])
    with closing(sqlite3.connect(path)) as connection, connection:
        for record, value, commit in ((LATEST, [1], 4), (KEPT, "old", 4), (MINE, {"a": 1}, 5)):
            name = (record.id, record.kind, record.scope, record.scope_id, record.key)
            connection.execute(
                "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*name, commit, encode_record(record), encode_json(value)),
            )
    return path


def test_a_file_of_the_first_format_is_migrated_with_all_that_it_holds(version_1: Path) -> None:
    with closing(SqliteStorage(version_1)) as storage:
        head = storage.open(read_only=False)
        assert (head.commit, head.next_id, head.epoch) == (5, 40, 2)
        _check(storage)
        # There is no log of what was committed before there was one.
        assert storage.commits(after=0, limit=9) == []
        assert storage.oldest_commit() is None
    assert _pragma(version_1, "user_version") == FORMAT_VERSION


def test_a_migrated_file_goes_on_as_a_new_one(version_1: Path) -> None:
    with closing(SqliteStorage(version_1)) as storage:
        scribe = Scribe.open(storage)
        more = AppendText((), "+")
        scribe.commit(change_document(KEPT, more))
        scribe.commit(put_document(KEPT, "new"), put_document(LATEST, [2]))
        history = [storage.document("kept", "session", 0, at_commit=at) for at in range(3, 8)]
        values = [None if found is None else str(found.value) for found in history]
        assert values == [None, "old", "old", "old+", "new"]
        assert [commit.number for commit in storage.commits(after=0, limit=9)] == [6, 7]
        found = storage.document("latest", "session", 0)
        assert found is not None
        assert found.value == [2]


def test_a_migrated_file_has_the_tables_of_a_new_one(version_1: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.sqlite"
    for path in (version_1, new):
        with closing(SqliteStorage(path)) as storage:
            storage.open(read_only=False)
    assert _schema(version_1) == _schema(new)


def test_a_reader_leaves_the_migration_to_an_owner(version_1: Path) -> None:
    before = version_1.read_bytes()
    with pytest.raises(StorageUnusable, match="older format 1"):
        SqliteStorage(version_1).open(read_only=True)
    assert version_1.read_bytes() == before


@pytest.mark.slow
def test_killed_before_any_statement_of_a_migration_a_file_is_of_either_format_and_whole(
    version_1: Path,
) -> None:
    with Child("migration-points", version_1) as child:
        found = [json.loads(line) for line in child.rest()]
    versions = [facts["version"] for facts in found]
    # The kill after the last statement, and no kill.
    assert versions == [1] * (len(found) - 2) + [FORMAT_VERSION] * 2
    assert len(found) > len(MIGRATIONS[1]) + 5
    for facts in found:
        path = version_1.with_name(f"{facts['statement']}.sqlite")
        with closing(SqliteStorage(path)) as storage:
            head = storage.open(read_only=False)
            assert head.epoch == (2 if facts["version"] == 1 else 3)
            _check(storage)


def test_the_statements_of_a_published_format_are_never_edited() -> None:
    assert fingerprint(list(MIGRATIONS[0])) == (
        "2a218b558f6c0baec18e35e19d4bd13e66e103593e51d208f9d05a05cc0e9e32"
    )


def _check(storage: SqliteStorage) -> None:
    check_prefix(storage, 5)
    assert storage.conversation(ROOT_ID) == CONVERSATION
    assert storage.submission_by_request(ROOT_ID, "r") == SUBMISSION
    found = [*storage.documents("session", 0, limit=9), *storage.documents("task", TASK, limit=9)]
    assert [(it.record, it.value, it.commit) for it in found] == [
        (KEPT, "old", 4),
        (LATEST, [1], 4),
        (MINE, {"a": 1}, 5),
    ]
    assert [live.has_documents for live in storage.live_tasks(after=0, limit=9)] == [True]
    # Entries have always told their commit.
    entry = storage.entries(ROOT_ID, before=99, limit=1)[0]
    assert storage.entry_commit(entry.id) == 5


def _pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value


def _schema(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name")
        return rows.fetchall()
