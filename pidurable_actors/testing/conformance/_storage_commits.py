"""Promises about writing: whole or not at all, in order, and values that nobody shares."""

from __future__ import annotations

from contextlib import closing, suppress

import attrs
import pytest

from pidurable_actors._json import JSON
from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records import (
    ROOT_ID,
    Batch,
    CommitNumber,
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    DropMemos,
    EntryId,
    EntryRecord,
    Parked,
    SubmissionId,
    SubmissionRecord,
)
from pidurable_actors.storage import Storage
from pidurable_actors.testing.conformance._scribe import (
    DONE,
    Scribe,
    memo,
    put,
    put_document,
)
from pidurable_actors.testing.conformance._storage_hooks import StorageHooks

__all__ = ["CommitPromises"]


class CommitPromises(StorageHooks):
    """Batches, replacing, memos, documents, fresh values."""

    def test_several_batches_land_together_in_order(self, scribe: Scribe) -> None:
        entries = [
            EntryRecord(id=EntryId(scribe.new_id()), conversation_id=ROOT_ID, kind="n", data=at)
            for at in range(3)
        ]
        scribe.storage.apply([scribe.draft(put(e), ahead=at) for at, e in enumerate(entries)])
        assert self._stored(scribe.storage) == (3, [2, 1, 0])

    def test_storing_nothing_changes_nothing(self, scribe: Scribe) -> None:
        scribe.storage.apply([])
        assert self._stored(scribe.storage) == (0, [])

    def test_an_empty_batch_is_a_commit(self, scribe: Scribe) -> None:
        scribe.commit()
        assert self._stored(scribe.storage) == (1, [])

    @pytest.mark.parametrize("number", [0, 1, 3, 7])
    def test_only_the_next_number_is_taken(self, scribe: Scribe, number: int) -> None:
        scribe.entry(data="first")
        batch = attrs.evolve(self._note(scribe, "wrong"), number=CommitNumber(number))
        with pytest.raises(StorageCorrupt) as refused:
            scribe.storage.apply([batch])
        assert refused.value.wrote is False
        scribe.entry(data="second")
        assert self._stored(scribe.storage) == (2, ["second", "first"])

    def test_a_gap_between_batches_stores_none_of_them(self, scribe: Scribe) -> None:
        first, third = self._note(scribe, "first"), self._note(scribe, "third", ahead=2)
        with pytest.raises(StorageCorrupt):
            scribe.storage.apply([first, third])
        assert self._stored(scribe.storage) == (0, [])

    def test_the_first_free_id_never_goes_back(self, scribe: Scribe) -> None:
        scribe.entry(data="first")
        batch = attrs.evolve(self._note(scribe, "wrong"), next_id=2)
        with pytest.raises(StorageCorrupt):
            scribe.storage.apply([batch])
        assert self._stored(scribe.storage) == (1, ["first"])

    def test_a_batch_that_fails_leaves_nothing_of_itself_or_its_neighbours(
        self, scribe: Scribe
    ) -> None:
        """Every kind of change, then one that cannot be: a second entry with the same id."""
        old, bare = scribe.task(input="old"), scribe.task()
        kept = scribe.entry(data="kept")
        scribe.commit(memo(old.id, "kept", 1))
        document = DocumentRecord(id=scribe.new_id(), kind="doc", scope="session", scope_id=0)
        new = ConversationRecord(id=ConversationId(scribe.new_id()))
        request = SubmissionRecord(
            id=SubmissionId(scribe.new_id()),
            conversation_id=ROOT_ID,
            type="input",
            status="queued",
            request_id="r",
        )
        entry = EntryRecord(id=EntryId(scribe.new_id()), conversation_id=ROOT_ID, kind="n")
        good = scribe.draft(
            put(new),
            put(attrs.evolve(old, input="newer")),
            put(attrs.evolve(old, input="newest", state=DONE)),
            DropMemos(old.id),
            memo(old.id, "kept", 2),
            memo(old.id, "other", 3),
            memo(bare.id, "first", 4),
            put(entry),
            put(request),
            put_document(document, [1]),
        )
        bad = scribe.draft(put(attrs.evolve(kept, data="twice")), ahead=1)

        with pytest.raises(StorageCorrupt) as refused:
            scribe.storage.apply([good, bad])
        assert refused.value.wrote is False
        storage = scribe.storage
        assert storage.task(old.id) == attrs.evolve(old, memos={"kept": 1})
        assert storage.task(bare.id) == bare
        assert [live.id for live in storage.live_tasks(after=0, limit=9)] == [old.id, bare.id]
        assert storage.entries(ROOT_ID, before=entry.id + 1, limit=9) == [kept]
        assert storage.entry(entry.id) is None
        assert storage.conversation(new.id) is None
        assert storage.submission(request.id) is None
        assert storage.submission_by_request(ROOT_ID, "r") is None
        assert storage.documents("session", 0, limit=9) == []
        # What failed as a pair is fine alone, and the names that it took are free for others.
        other = attrs.evolve(request, id=SubmissionId(scribe.new_id()))
        named = put_document(attrs.evolve(document, id=scribe.new_id()), 2)
        rest = [change for change in good.changes if change not in (put(request), good.changes[-1])]
        scribe.commit(*rest, put(other), named)
        assert storage.task(old.id) == attrs.evolve(
            old, input="newest", state=DONE, memos={"kept": 2, "other": 3}
        )
        assert storage.submission_by_request(ROOT_ID, "r") == other

    def test_a_memo_is_recorded_once(self, scribe: Scribe) -> None:
        task = scribe.task()
        scribe.commit(memo(task.id, "plan", "first"))
        with pytest.raises(StorageCorrupt):
            scribe.commit(memo(task.id, "plan", "second"))
        found = scribe.storage.task(task.id)
        assert found is not None
        assert found.memos == {"plan": "first"}

    def test_memos_come_in_the_order_they_were_recorded(self, scribe: Scribe) -> None:
        task = scribe.task()
        other = scribe.task()
        scribe.commit(memo(task.id, "zeta", 1), memo(task.id, "alpha", {"b": 1, "a": 2}))
        scribe.commit(memo(other.id, "mine", None))
        scribe.commit(memo(task.id, "mid", [1.5, False]))
        found = scribe.storage.task(task.id)
        assert found is not None
        assert list(found.memos.items()) == [
            ("zeta", 1),
            ("alpha", {"b": 1, "a": 2}),
            ("mid", [1.5, False]),
        ]

    def test_putting_a_task_keeps_its_memos_and_dropping_forgets_them(self, scribe: Scribe) -> None:
        task = scribe.task()
        other = scribe.task()
        scribe.commit(memo(task.id, "a", 1), memo(other.id, "b", 2))
        parked = attrs.evolve(task, state=Parked(checkpoint={"phase": "work"}), restarts=3)
        scribe.commit(put(parked))
        assert scribe.storage.task(task.id) == attrs.evolve(parked, memos={"a": 1})
        done = attrs.evolve(task, state=DONE)
        scribe.commit(put(done), DropMemos(task.id))
        assert scribe.storage.task(task.id) == done
        assert scribe.storage.task(other.id) == attrs.evolve(other, memos={"b": 2})

    def test_dropping_memos_that_are_not_there_does_nothing(self, scribe: Scribe) -> None:
        task = scribe.task()
        scribe.commit(DropMemos(task.id))
        assert scribe.storage.task(task.id) == task

    def test_a_later_record_replaces_an_earlier_one(self, scribe: Scribe) -> None:
        submission = scribe.submission(request_id="r")
        placed = attrs.evolve(submission, status="placed", entry=EntryId(99))
        scribe.commit(put(placed), put(attrs.evolve(placed, status="done", answer=EntryId(100))))
        assert scribe.storage.submission(submission.id) == attrs.evolve(
            placed, status="done", answer=EntryId(100)
        )
        conversation = ConversationRecord(id=ROOT_ID, created_at_ms=1)
        scribe.commit(put(conversation), put(attrs.evolve(conversation, created_at_ms=2)))
        found = scribe.storage.conversation(ROOT_ID)
        assert found is not None
        assert found.created_at_ms == 2

    def test_a_request_id_belongs_to_one_submission_of_a_conversation(self, scribe: Scribe) -> None:
        first = scribe.submission(request_id="r")
        elsewhere = scribe.submission(request_id="r", conversation_id=ConversationId(77))
        scribe.submission(request_id=None)
        scribe.submission(request_id=None)
        with pytest.raises(StorageCorrupt):
            scribe.submission(request_id="r")
        storage = scribe.storage
        assert storage.submission_by_request(ROOT_ID, "r") == first
        assert storage.submission_by_request(ConversationId(77), "r") == elsewhere
        assert storage.submission_by_request(ROOT_ID, "other") is None

    def test_a_document_carries_the_commit_that_wrote_it(self, scribe: Scribe) -> None:
        record = DocumentRecord(id=scribe.new_id(), kind="todos", scope="session", scope_id=0)
        first = scribe.commit(put_document(record, {"items": []}))
        scribe.entry()
        stored = scribe.storage.document("todos", "session", 0)
        assert stored is not None
        assert (stored.record, stored.commit) == (record, first)
        assert stored.value == {"items": []}

        newer = attrs.evolve(record, version=2, retired_at_ms=5)
        second = scribe.commit(put_document(newer, {"items": ["milk"]}))
        stored = scribe.storage.document("todos", "session", 0)
        assert stored is not None
        assert stored.record == newer
        assert stored.value == {"items": ["milk"]}
        assert stored.commit == second > first

    def test_a_documents_name_is_taken_once(self, scribe: Scribe) -> None:
        record = DocumentRecord(id=scribe.new_id(), kind="todos", scope="session", scope_id=0)
        scribe.commit(put_document(record, 1))
        with pytest.raises(StorageCorrupt):
            scribe.commit(put_document(attrs.evolve(record, id=scribe.new_id()), 2))

    def test_what_is_returned_is_nobody_elses(self, scribe: Scribe) -> None:
        value: JSON = {"list": [1], "dict": {"a": 1}}
        entry = scribe.entry(data=value)
        task = scribe.task(input=value)
        document = DocumentRecord(id=scribe.new_id(), kind="d", scope="session", scope_id=0)
        scribe.commit(memo(task.id, "m", value), put_document(document, value))

        def read() -> list[object]:
            found_entry, found_task = scribe.storage.entry(entry.id), scribe.storage.task(task.id)
            stored = scribe.storage.document("d", "session", 0)
            assert found_entry is not None
            assert found_task is not None
            assert stored is not None
            return [found_entry.data, found_task.input, found_task.memos["m"], stored.value]

        for found in (*read(), value):
            assert isinstance(found, dict)
            # What is immutable need not be a copy.
            with suppress(TypeError):
                found["list"] = "changed"
        for found in read():
            assert found == {"list": [1], "dict": {"a": 1}}

    def _note(self, scribe: Scribe, data: JSON, *, ahead: int = 0) -> Batch:
        record = EntryRecord(
            id=EntryId(scribe.new_id()), conversation_id=ROOT_ID, kind="n", data=data
        )
        return scribe.draft(put(record), ahead=ahead)

    def _stored(self, storage: Storage) -> tuple[int, list[JSON]]:
        """The last commit and the notes, newest first, as the next owner finds them."""
        storage.close()
        second = self.reopen(storage)
        with closing(second):
            head = second.open(read_only=False)
            notes = second.entries(ROOT_ID, before=10_000, limit=100)
        storage.open(read_only=False)
        return head.commit, [note.data for note in notes]
