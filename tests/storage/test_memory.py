"""The memory storage keeps every promise, and can be copied and abandoned as a crash would."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from pidurable_actors._json import encode_json
from pidurable_actors.errors import StorageCorrupt, StorageFenced, StorageInUse
from pidurable_actors.records import ROOT_ID, AppendText, ChangeDocument, ReplaceRoot
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.conformance import StorageConformance
from pidurable_actors.testing.conformance._scribe import (
    Scribe,
    change_document,
    memo,
    put_document,
)


class TestMemoryStorage(StorageConformance):
    def make_storage(self, tmp_path: Path) -> MemoryStorage:
        return MemoryStorage()

    def reopen(self, storage: Storage) -> MemoryStorage:
        assert isinstance(storage, MemoryStorage)
        return storage.peer()

    def break_claim(self, storage: Storage) -> None:
        assert isinstance(storage, MemoryStorage)
        storage.release()


def test_a_snapshot_is_what_a_crash_would_leave() -> None:
    storage = MemoryStorage("live")
    scribe = Scribe.open(storage)
    before = scribe.entry(data="before")
    task = scribe.task()
    scribe.commit(memo(task.id, "before", 1))
    snapshot = storage.snapshot()
    scribe.commit(memo(task.id, "after", 2))
    scribe.entry(data="after")

    copy = Scribe.open(snapshot)
    assert (copy.number, copy.next_id) == (3, before.id + 2)
    assert snapshot.entries(ROOT_ID, before=99, limit=9) == [before]
    copy.entry(data="other future")
    assert snapshot.task(task.id) == attrs.evolve(task, memos={"before": 1})
    assert storage.task(task.id) == attrs.evolve(task, memos={"before": 1, "after": 2})
    assert [entry.data for entry in storage.entries(ROOT_ID, before=99, limit=9)] == [
        "after",
        "before",
    ]


def test_a_snapshot_has_documents_and_log_of_its_own() -> None:
    storage = MemoryStorage("live")
    scribe = Scribe.open(storage)
    record = scribe.new_document(history="rewindable")
    more = AppendText((), "+")
    for _ in range(2):
        scribe.commit(put_document(record, "a"), change_document(record, more))
    copy = Scribe.open(storage.snapshot())
    for base, writer in (("live", scribe), ("copy", copy)):
        writer.commit(change_document(record, more))
        writer.commit(put_document(record, base))
        writer.commit(change_document(record, more))
    for base, writer in (("live", scribe), ("copy", copy)):
        found = [
            writer.storage.document(record.kind, "session", 0, at_commit=at) for at in range(1, 6)
        ]
        values = [None if it is None else str(it.value) for it in found]
        assert values == ["a+", "a+", "a++", base, f"{base}+"]
        logged = writer.storage.commits(after=0, limit=9)
        assert [commit.number for commit in logged] == [1, 2, 3, 4, 5]
        assert logged[3].changes == (
            ChangeDocument(record, (ReplaceRoot(base),), encode_json([ReplaceRoot(base)])),
        )
    # Another name for the same id is refused by what the copy knows itself.
    with pytest.raises(StorageCorrupt):
        copy.commit(put_document(attrs.evolve(record, key="other"), 1))
    scribe.commit(put_document(scribe.new_document(key="new"), 1))
    assert copy.storage.document(record.kind, "session", 0, "new") is None


def test_a_released_storage_is_fenced_by_its_next_owner_only() -> None:
    storage = MemoryStorage()
    scribe = Scribe.open(storage)
    storage.release()
    scribe.entry()
    with pytest.raises(StorageInUse):
        storage.open(read_only=False)
    Scribe.open(storage.peer()).entry()
    with pytest.raises(StorageFenced):
        scribe.entry()


def test_it_does_not_block() -> None:
    assert MemoryStorage().blocking is False
