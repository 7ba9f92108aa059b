"""Writes that wait for nothing: what is stored promptly, and what is left to the thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pidurable_actors.errors import StorageCorrupt, StorageFenced
from pidurable_actors.records import ConversationId, EntryId, EntryRecord
from pidurable_actors.storage import PromptStorage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.conformance._scribe import Scribe, put


@pytest.fixture
def scribe(tmp_path: Path) -> Iterator[Scribe]:
    storage = SqliteStorage(tmp_path / "agent.sqlite")
    with closing(storage):
        yield Scribe.open(storage)


def fresh(scribe: Scribe) -> EntryRecord:
    """An entry that is not stored yet."""
    return EntryRecord(
        id=EntryId(scribe.new_id()), conversation_id=ConversationId(1), kind="app.note"
    )


def sqlite_of(scribe: Scribe) -> SqliteStorage:
    assert isinstance(scribe.storage, SqliteStorage)
    return scribe.storage


def test_a_prompt_write_is_stored_as_any_other(scribe: Scribe) -> None:
    storage, entry = sqlite_of(scribe), fresh(scribe)
    assert storage.apply_promptly([scribe.draft(put(entry))])
    assert storage.entry(entry.id) == entry
    assert storage.apply_promptly([])


def test_a_lock_of_another_program_leaves_the_write_to_whoever_may_wait(
    scribe: Scribe, tmp_path: Path
) -> None:
    storage, entry = sqlite_of(scribe), fresh(scribe)
    batch = scribe.draft(put(entry))
    with closing(sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not storage.apply_promptly([batch])
        assert storage.entry(entry.id) is None
        other.execute("ROLLBACK")
    storage.apply([batch])
    assert storage.entry(entry.id) == entry


def test_a_write_that_must_reach_the_disk_is_never_prompt(tmp_path: Path) -> None:
    with closing(SqliteStorage(tmp_path / "agent.sqlite", durability="power")) as storage:
        scribe = Scribe.open(storage)
        batch = scribe.draft(put(fresh(scribe)))
        assert not storage.apply_promptly([batch])
        storage.apply([batch])


def test_a_prompt_write_of_an_owner_that_lost_the_file_is_fenced(
    scribe: Scribe, tmp_path: Path
) -> None:
    batch = scribe.draft(put(fresh(scribe)))
    with closing(sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)) as other:
        other.execute("UPDATE meta SET epoch = epoch + 1")
    with pytest.raises(StorageFenced):
        sqlite_of(scribe).apply_promptly([batch])


def test_a_prompt_write_out_of_order_is_refused_with_nothing_written(scribe: Scribe) -> None:
    entry = fresh(scribe)
    with pytest.raises(StorageCorrupt) as refused:
        sqlite_of(scribe).apply_promptly([scribe.draft(put(entry), ahead=1)])
    assert refused.value.wrote is False
    assert scribe.storage.entry(entry.id) is None


def test_a_storage_that_never_waits_needs_no_prompt_writes() -> None:
    assert not isinstance(MemoryStorage(), PromptStorage)
    assert isinstance(SqliteStorage("agent.sqlite"), PromptStorage)
