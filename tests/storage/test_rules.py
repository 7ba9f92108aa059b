"""The rules that backends share, where a conforming storage gives no chance to see them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pidurable_actors.errors import StorageCorrupt, StorageInUse
from pidurable_actors.records import ROOT_ID, ConversationId, ConversationRecord, EntryId, ForkPoint
from pidurable_actors.storage._file_lock import FileLock
from pidurable_actors.storage._rules import visible_entries


def test_a_fork_whose_parent_is_missing_is_corrupt() -> None:
    fork = ConversationRecord(
        id=ConversationId(9), parent=ForkPoint(conversation_id=ROOT_ID, entry_id=EntryId(5))
    )
    with pytest.raises(StorageCorrupt, match="conversation 1 is missing"):
        _see(fork)


@pytest.mark.parametrize("parent", [9, 10])
def test_a_fork_of_itself_or_of_a_younger_one_is_corrupt_and_not_a_loop(parent: int) -> None:
    fork = ConversationRecord(
        id=ConversationId(9),
        parent=ForkPoint(conversation_id=ConversationId(parent), entry_id=EntryId(5)),
    )
    with pytest.raises(StorageCorrupt, match="older than"):
        _see(fork)


def test_a_lock_is_held_until_its_release_and_says_by_whom(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (tmp_path / "file.lock").write_text("pid 4711 on a host with a very long name\n" * 9)
    lock = FileLock.acquire(path, storage="file")
    assert (tmp_path / "file.lock").read_text().startswith(f"pid {os.getpid()} on ")
    assert len((tmp_path / "file.lock").read_text().splitlines()) == 1
    with pytest.raises(StorageInUse, match="pid"):
        FileLock.acquire(path, storage="file")
    lock.release()
    lock.release()
    FileLock.acquire(path, storage="file").release()
    assert not path.exists()


def test_an_owner_that_did_not_write_its_name_yet_is_still_an_owner(tmp_path: Path) -> None:
    lock = FileLock.acquire(tmp_path / "file", storage="file")
    (tmp_path / "file.lock").write_text("")
    with pytest.raises(StorageInUse, match="another process"):
        FileLock.acquire(tmp_path / "file", storage="file")
    lock.release()


def _see(fork: ConversationRecord) -> None:
    visible_entries(
        fork.id,
        before=99,
        limit=9,
        own=lambda *_: [],
        conversation={fork.id: fork}.get,
    )
