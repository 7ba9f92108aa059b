"""Documents and the log of commits in a SQLite file that is damaged, or read beside its owner."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import attrs
import pytest

from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records import AppendText, DropMemos, StoredDocument
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.conformance._scribe import (
    DONE,
    Scribe,
    change_document,
    memo,
    put,
    put_document,
)

MORE = AppendText((), "+")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sqlite"


@pytest.fixture
def scribe(path: Path) -> Iterator[Scribe]:
    storage = SqliteStorage(path)
    with closing(storage):
        yield Scribe.open(storage)


def _documents(storage: SqliteStorage) -> list[StoredDocument]:
    return storage.documents("session", 0, limit=9)


@pytest.mark.parametrize(
    ("damage", "read"),
    [
        ("UPDATE documents SET value = 'no'", _documents),
        ("UPDATE documents SET value = 5", _documents),
        ("UPDATE documents SET value = '5'", _documents),
        ("UPDATE documents SET record = '{}'", _documents),
        ("UPDATE document_deltas SET operations = '{\"op\":'", _documents),
        ("UPDATE document_deltas SET operations = '{}'", _documents),
        ("UPDATE document_deltas SET operations = '[5]'", _documents),
        ('UPDATE document_deltas SET operations = \'[{"op":"fly"}]\'', _documents),
        ("UPDATE document_deltas SET operations = CAST(x'ff' AS TEXT)", _documents),
        ("UPDATE document_deltas SET operations = x'5b5d'", _documents),
        ("UPDATE meta SET commit_number = 'some'", lambda s: s.head()),
        ("DROP TABLE meta", lambda s: s.head()),
        ("DROP TABLE commits", lambda s: s.oldest_commit()),
        (
            "UPDATE document_bases SET value = '[1'",
            lambda s: s.document("app.doc", "session", 0, at_commit=1),
        ),
        ("UPDATE commits SET changes = 'no'", lambda s: s.commits(after=0, limit=9)),
        ("UPDATE commits SET changes = 7", lambda s: s.commits(after=0, limit=9)),
        ("UPDATE commits SET changes = x'5b5d'", lambda s: s.commits(after=0, limit=9)),
        ("UPDATE commits SET changes = '[7]'", lambda s: s.commits(after=0, limit=9)),
        ("UPDATE commits SET changes = '[{}]'", lambda s: s.commits(after=0, limit=9)),
        (
            'UPDATE commits SET changes = \'[{"change":"fly"}]\'',
            lambda s: s.commits(after=0, limit=9),
        ),
        (
            "UPDATE commits SET changes = replace(changes, '\"kind\"', '\"kinds\"')",
            lambda s: s.commits(after=0, limit=9),
        ),
    ],
)
def test_a_text_that_cannot_be_read_is_corrupt(
    path: Path, scribe: Scribe, damage: str, read: Callable[[SqliteStorage], object]
) -> None:
    record = scribe.new_document(history="rewindable")
    scribe.commit(put_document(record, ""))
    scribe.commit(put_document(record, "", MORE))
    scribe.commit(change_document(record, MORE))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(damage)
    storage = scribe.storage
    assert isinstance(storage, SqliteStorage)
    with pytest.raises(StorageCorrupt, match=path.name):
        read(storage)


def test_a_reader_sees_a_document_as_it_was_at_one_moment(path: Path, scribe: Scribe) -> None:
    """The owner writes a new base, which drops the tail, between the reader's two statements."""
    record = scribe.new_document()
    scribe.commit(put_document(record, "a"))
    scribe.commit(change_document(record, MORE))
    before = scribe.storage.documents("session", 0, limit=9)
    with closing(SqliteStorage(path)) as reader:
        reader.open(read_only=True)
        with _meanwhile(
            reader,
            "document_deltas",
            lambda: scribe.commit(put_document(record, "b"), change_document(record, MORE)),
        ):
            assert _documents(reader) == before
        assert [str(it.value) for it in _documents(reader)] == ["b+"]
        found = reader.document(record.kind, "session", 0)
        assert found is not None
        assert found.value == "b+"


def test_a_reader_sees_a_task_as_it_was_at_one_moment(path: Path, scribe: Scribe) -> None:
    task = scribe.task()
    scribe.commit(memo(task.id, "m", 1))
    before = scribe.storage.task(task.id)
    with closing(SqliteStorage(path)) as reader:
        reader.open(read_only=True)
        done = attrs.evolve(task, state=DONE)
        with _meanwhile(reader, "FROM memos", lambda: scribe.commit(put(done), DropMemos(task.id))):
            assert reader.task(task.id) == before
        assert reader.task(task.id) == done


@contextmanager
def _meanwhile(reader: SqliteStorage, statement: str, work: Callable[[], object]) -> Iterator[None]:
    """Do something once, just before a reader runs a statement."""
    assert reader._connection is not None
    done: list[str] = []

    def before(text: str) -> None:
        if statement in text and not done:
            done.append(text)
            work()

    reader._connection.set_trace_callback(before)
    yield
    reader._connection.set_trace_callback(None)
    assert done
