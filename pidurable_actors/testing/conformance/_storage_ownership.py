"""Promises about owners: one at a time, fenced when replaced, and readers that change nothing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pidurable_actors.errors import (
    StorageError,
    StorageFenced,
    StorageInUse,
    StorageUnusable,
)
from pidurable_actors.records import ROOT_ID, TaskId
from pidurable_actors.storage import Head, Storage
from pidurable_actors.testing.conformance._scribe import Scribe
from pidurable_actors.testing.conformance._storage_hooks import StorageHooks

__all__ = ["OwnershipPromises"]


class OwnershipPromises(StorageHooks):
    """Open, close, epochs, fencing, read-only."""

    def test_a_new_storage_stands_at_the_beginning(self, storage: Storage) -> None:
        assert storage.open(read_only=False) == Head(commit=0, next_id=ROOT_ID + 1, epoch=1)

    def test_a_storage_has_a_name_and_says_whether_it_blocks(self, storage: Storage) -> None:
        assert storage.name
        assert storage.blocking in (True, False)

    def test_each_owner_raises_the_epoch_and_finds_what_was_stored(self, storage: Storage) -> None:
        scribe = Scribe.open(storage)
        task = scribe.task(input={"n": 1})
        storage.close()

        second = self.reopen(storage)
        with closing(second):
            head = second.open(read_only=False)
            assert head == Head(commit=1, next_id=scribe.next_id, epoch=2)
            assert second.task(task.id) == task

    def test_the_same_object_can_be_opened_again(self, scribe: Scribe) -> None:
        entry = scribe.entry(data="kept")
        scribe.storage.close()
        head = scribe.storage.open(read_only=False)
        assert (head.commit, head.epoch) == (1, 2)
        assert scribe.storage.entry(entry.id) == entry

    def test_a_second_owner_is_refused_at_once_and_the_first_works_on(self, scribe: Scribe) -> None:
        second = self.reopen(scribe.storage)
        with pytest.raises(StorageInUse) as refused:
            second.open(read_only=False)
        assert refused.value.owner
        second.close()
        scribe.entry()
        with pytest.raises(StorageInUse):
            self.reopen(scribe.storage).open(read_only=False)

    def test_an_open_object_is_not_opened_again(self, scribe: Scribe) -> None:
        with pytest.raises(StorageInUse):
            scribe.storage.open(read_only=False)
        with pytest.raises(StorageInUse):
            scribe.storage.open(read_only=True)
        scribe.entry()

    def test_a_closed_storage_is_free_for_the_next_owner(self, scribe: Scribe) -> None:
        scribe.storage.close()
        second = self.reopen(scribe.storage)
        with closing(second):
            assert second.open(read_only=False).epoch == 2

    def test_closing_again_does_nothing(self, scribe: Scribe) -> None:
        scribe.storage.close()
        scribe.storage.close()

    def test_closing_what_was_never_opened_does_nothing(self, storage: Storage) -> None:
        storage.close()

    def test_closing_again_leaves_the_next_owner_alone(self, scribe: Scribe) -> None:
        scribe.storage.close()
        second = self.reopen(scribe.storage)
        with closing(second):
            owner = Scribe.open(second)
            scribe.storage.close()
            owner.entry()

    def test_calls_to_a_closed_storage_are_refused(self, scribe: Scribe) -> None:
        scribe.storage.close()
        with pytest.raises(StorageError):
            scribe.storage.task(TaskId(2))
        with pytest.raises(StorageError):
            scribe.storage.entries(ROOT_ID, before=9, limit=1)
        with pytest.raises(StorageError) as refused:
            scribe.storage.apply([scribe.draft()])
        assert refused.value.wrote is False

    def test_an_owner_that_lost_its_claim_cannot_write(self, scribe: Scribe) -> None:
        scribe.entry(data="before")
        self.break_claim(scribe.storage)
        second = self.reopen(scribe.storage)
        with closing(second):
            owner = Scribe.open(second)
            assert owner.number == 1
            with pytest.raises(StorageFenced) as fenced:
                scribe.entry(data="too late")
            assert fenced.value.wrote is False
            owner.entry(data="after")
            with pytest.raises(StorageFenced):
                scribe.entry(data="still too late")
            seen = second.entries(ROOT_ID, before=scribe.next_id + 100, limit=10)
            assert [entry.data for entry in seen] == ["after", "before"]

    def test_a_fenced_owner_closes_without_freeing_the_new_one(self, scribe: Scribe) -> None:
        self.break_claim(scribe.storage)
        second = self.reopen(scribe.storage)
        with closing(second):
            owner = Scribe.open(second)
            scribe.storage.close()
            with pytest.raises(StorageInUse):
                self.reopen(second).open(read_only=False)
            owner.entry()

    def test_a_reader_sees_what_is_stored_beside_a_live_owner(self, scribe: Scribe) -> None:
        first = scribe.entry(data="first")
        reader = self.reopen(scribe.storage)
        with closing(reader):
            head = reader.open(read_only=True)
            assert head == Head(commit=1, next_id=scribe.next_id, epoch=1)
            assert reader.entry(first.id) == first
            later = scribe.entry(data="later")
            assert reader.entry(later.id) == later

    def test_a_reader_cannot_write(self, scribe: Scribe) -> None:
        scribe.entry()
        reader = self.reopen(scribe.storage)
        with closing(reader):
            reader.open(read_only=True)
            with pytest.raises(StorageError) as refused:
                reader.apply([scribe.draft()])
            assert refused.value.wrote is False

    def test_a_reader_neither_keeps_an_owner_out_nor_raises_the_epoch(self, scribe: Scribe) -> None:
        scribe.entry()
        scribe.storage.close()
        reader, owner = self.reopen(scribe.storage), self.reopen(scribe.storage)
        with closing(reader), closing(owner):
            assert reader.open(read_only=True).epoch == 1
            assert owner.open(read_only=False).epoch == 2
            with pytest.raises(StorageInUse):
                reader.open(read_only=False)

    def test_a_reader_that_closes_leaves_the_owner_alone(self, scribe: Scribe) -> None:
        reader = self.reopen(scribe.storage)
        reader.open(read_only=True)
        reader.close()
        scribe.entry()
        with pytest.raises(StorageInUse):
            reader.open(read_only=False)

    def test_there_is_nothing_to_read_where_no_owner_was(
        self, storage: Storage, tmp_path: Path
    ) -> None:
        before = sorted(tmp_path.iterdir())
        with pytest.raises(StorageUnusable):
            storage.open(read_only=True)
        assert sorted(tmp_path.iterdir()) == before
