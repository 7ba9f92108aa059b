"""Promises about the log of commits: what was committed is told again, in order, as it was."""

from __future__ import annotations

from contextlib import closing

import attrs
import pytest

from pidurable_actors._frozen import Value
from pidurable_actors._json import JSON, encode_json
from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records import (
    ROOT_ID,
    AppendText,
    Change,
    ChangeDocument,
    ConversationId,
    ConversationRecord,
    DropMemos,
    EntryId,
    EntryRecord,
    LoggedCommit,
    PutDocument,
    ReplaceRoot,
    RetireDocuments,
    SetValue,
    SpliceList,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    apply_operations,
)
from pidurable_actors.records.codec import encode_record
from pidurable_actors.storage import Storage
from pidurable_actors.testing.conformance._scribe import (
    DONE,
    RUNNING,
    Scribe,
    change_document,
    memo,
    put,
    put_document,
)
from pidurable_actors.testing.conformance._storage_hooks import StorageHooks

__all__ = ["LogPromises"]

_OTHER = ConversationId(17)


class LogPromises(StorageHooks):
    """The log, its pages and filters, forgetting, and where a storage stands."""

    def test_every_kind_of_change_comes_back_from_the_log(self, scribe: Scribe) -> None:
        """Twice: from the storage that took it and from the next owner's."""
        task, record = _task(scribe, input={"text": "a\x00b\u2028"}), scribe.new_document()
        grown = (AppendText(("log",), "x"), SetValue(("n",), 1.0))
        first = [
            put(ConversationRecord(id=ROOT_ID, created_at_ms=5, extra={"later": [1]})),
            put(_entry(scribe, data={"deep": [[{"a": None}]]})),
            put(task),
            memo(task.id, 'name "quoted" \u2028\x00', {"b": [1, -0.0, 2**63 - 1], "a": "\x00"}),
            put(_submission(scribe)),
            put_document(record, {"log": ""}),
        ]
        second = [
            put(attrs.evolve(task, state=DONE, restarts=2)),
            DropMemos(task.id),
            change_document(record, *grown),
            put_document(attrs.evolve(record, version=2), {"log": "xx"}, *grown),
            RetireDocuments(task.id, 1_234),
        ]
        drafts = [scribe.draft(*first), scribe.draft(*second, ahead=1)]
        scribe.storage.apply(drafts)
        expected = [
            LoggedCommit(
                number=draft.number, at_ms=draft.at_ms, changes=tuple(map(_logged, draft.changes))
            )
            for draft in drafts
        ]
        assert scribe.storage.commits(after=0, limit=9) == expected
        scribe.storage.close()
        second_owner = self.reopen(scribe.storage)
        with closing(second_owner):
            second_owner.open(read_only=False)
            assert second_owner.commits(after=0, limit=9) == expected

    def test_the_log_is_read_in_pages_and_by_conversation(self, scribe: Scribe) -> None:
        inside = scribe.new_document(scope="conversation", scope_id=_OTHER)
        outside = scribe.new_document(scope="task", scope_id=_OTHER)
        changes: list[tuple[Change, ...]] = [
            (put(_entry(scribe)),),
            (put(ConversationRecord(id=_OTHER)),),
            (put(_entry(scribe)), put(_entry(scribe, conversation_id=_OTHER))),
            (put(_task(scribe, conversation_id=_OTHER)),),
            (put(_task(scribe, conversation_id=ConversationId(1717))),),
            (put(_submission(scribe, conversation_id=_OTHER)),),
            (put_document(inside, 1), put_document(outside, 1)),
            (put_document(outside, 2),),
            (change_document(inside, ReplaceRoot(2)),),
            (memo(TaskId(_OTHER), "m", 1), DropMemos(TaskId(_OTHER))),
            (RetireDocuments(TaskId(_OTHER), 5),),
            (),
        ]
        for written in changes:
            scribe.commit(*written)
        storage = scribe.storage
        assert _numbers(storage) == list(range(1, 13))
        assert [it.number for it in storage.commits(after=4, limit=3)] == [5, 6, 7]
        assert storage.commits(after=12, limit=3) == []
        touching = [2, 3, 4, 6, 7, 9]
        assert _numbers(storage, conversation_id=_OTHER) == touching
        found = storage.commits(after=2, limit=2, conversation_id=_OTHER)
        assert [it.number for it in found] == [3, 4]
        # The whole commit comes, with what it did elsewhere.
        assert len(found[0].changes) == 2
        assert _numbers(storage, conversation_id=ROOT_ID) == [1, 3]
        for stranger in (7, 171, 1, 17_171):
            numbers = _numbers(storage, conversation_id=ConversationId(stranger))
            assert numbers == ([1, 3] if stranger == 1 else [])

    def test_what_was_not_logged_is_left_out_and_counts(self, scribe: Scribe) -> None:
        assert scribe.storage.oldest_commit() is None
        self._apply(scribe, logged=False)
        assert scribe.storage.oldest_commit() is None
        self._apply(scribe)
        self._apply(scribe, logged=False)
        self._apply(scribe)
        assert _numbers(scribe.storage) == [2, 4]
        assert scribe.storage.oldest_commit() == 2
        assert scribe.storage.head().commit == 4

    def test_the_log_forgets_what_it_may(self, scribe: Scribe) -> None:
        for _ in range(5):
            self._apply(scribe)
        self._apply(scribe, forget_below=3)
        assert _numbers(scribe.storage) == [3, 4, 5, 6]
        assert scribe.storage.oldest_commit() == 3
        # Less than before, and nothing, and in the middle of a group.
        self._apply(scribe, forget_below=2)
        self._apply(scribe)
        assert _numbers(scribe.storage) == [3, 4, 5, 6, 7, 8]
        middle = attrs.evolve(scribe.draft(), forget_below=6)
        scribe.storage.apply([middle, scribe.draft(ahead=1)])
        scribe.number += 2
        assert _numbers(scribe.storage) == [6, 7, 8, 9, 10]
        self._apply(scribe, logged=False, forget_below=99)
        assert _numbers(scribe.storage) == []
        assert scribe.storage.oldest_commit() is None
        # What it kept else is untouched, and numbers go on.
        self._apply(scribe)
        assert (_numbers(scribe.storage), scribe.storage.oldest_commit()) == ([12], 12)

    def test_a_batch_that_fails_is_neither_logged_nor_forgets(self, scribe: Scribe) -> None:
        entry = scribe.entry()
        scribe.entry()
        good = attrs.evolve(scribe.draft(put(_entry(scribe))), forget_below=2)
        bad = attrs.evolve(scribe.draft(put(entry), ahead=1), forget_below=3)
        before = scribe.storage.commits(after=0, limit=9)
        with pytest.raises(StorageCorrupt):
            scribe.storage.apply([good, bad])
        assert scribe.storage.commits(after=0, limit=9) == before
        assert scribe.storage.oldest_commit() == 1

    def test_the_logged_operations_add_up_to_the_stored_value(self, scribe: Scribe) -> None:
        """A mirror that sees only the log has what the storage has, whatever bases were written."""
        record = scribe.new_document(history="rewindable")
        value: JSON = {"items": [], "log": ""}
        scribe.commit(put_document(record, value))
        mirror: Value = None
        seen = 0
        for at in range(12):
            operations = (
                SpliceList(("items",), at, 0, (at,)),
                AppendText(("log",), f"{at}\u2028"),
            )
            if at % 4 == 3:
                stored = scribe.storage.document(record.kind, "session", 0)
                assert stored is not None
                grown = apply_operations(stored.value, operations)
                base = PutDocument(record, encode_record(record), encode_json(grown), operations)
                scribe.commit(base)
            else:
                scribe.commit(change_document(record, *operations))
            for logged in scribe.storage.commits(after=seen, limit=2):
                for change in logged.changes:
                    assert isinstance(change, ChangeDocument)
                    mirror = apply_operations(mirror, change.operations)
                seen = logged.number
        stored = scribe.storage.document(record.kind, "session", 0)
        assert stored is not None
        assert encode_json(mirror) == encode_json(stored.value)
        assert seen == stored.commit == scribe.number

    def test_a_reader_follows_the_log_beside_a_live_owner(self, scribe: Scribe) -> None:
        scribe.entry()
        reader = self.reopen(scribe.storage)
        with closing(reader):
            reader.open(read_only=True)
            assert reader.head() == scribe.storage.head()
            scribe.entry()
            assert _numbers(reader) == [1, 2]
            assert reader.head() == scribe.storage.head()
            assert reader.oldest_commit() == 1

    def test_the_head_tells_where_the_storage_stands(self, storage: Storage) -> None:
        opened = storage.open(read_only=False)
        assert storage.head() == opened
        storage.close()
        scribe = Scribe.open(storage)
        scribe.entry()
        head = storage.head()
        assert (head.commit, head.next_id, head.epoch) == (1, scribe.next_id, 2)

    def test_an_entry_tells_the_commit_that_appended_it(self, scribe: Scribe) -> None:
        scribe.task()
        first, second = _entry(scribe), _entry(scribe, conversation_id=_OTHER)
        scribe.commit(put(first))
        number = scribe.commit(put(second), put(_entry(scribe)))
        storage = scribe.storage
        assert storage.entry_commit(first.id) == number - 1
        assert storage.entry_commit(second.id) == number
        assert storage.entry_commit(EntryId(2)) is None
        assert storage.entry_commit(EntryId(99)) is None

    def _apply(self, scribe: Scribe, *, logged: bool = True, forget_below: int = 0) -> None:
        draft = scribe.draft()
        scribe.storage.apply([attrs.evolve(draft, logged=logged, forget_below=forget_below)])
        scribe.number += 1


def _numbers(storage: Storage, *, conversation_id: ConversationId | None = None) -> list[int]:
    """The numbers of all commits in the log."""
    found = storage.commits(after=0, limit=99, conversation_id=conversation_id)
    return [commit.number for commit in found]


def _logged(change: Change) -> Change:
    """How a change is told by the log."""
    if not isinstance(change, PutDocument):
        return change
    return ChangeDocument(change.record, change.operations, encode_json(change.operations))


def _entry(
    scribe: Scribe, *, conversation_id: ConversationId = ROOT_ID, data: JSON = None
) -> EntryRecord:
    return EntryRecord(
        id=EntryId(scribe.new_id()), conversation_id=conversation_id, kind="n", data=data
    )


def _task(
    scribe: Scribe,
    *,
    conversation_id: ConversationId = ROOT_ID,
    input: JSON = None,  # noqa: A002 - the field's name
) -> TaskRecord:
    return TaskRecord(
        id=TaskId(scribe.new_id()),
        conversation_id=conversation_id,
        kind="app.job",
        version=1,
        input=input,
        state=RUNNING,
    )


def _submission(scribe: Scribe, *, conversation_id: ConversationId = ROOT_ID) -> SubmissionRecord:
    return SubmissionRecord(
        id=SubmissionId(scribe.new_id()),
        conversation_id=conversation_id,
        type="input",
        status="queued",
        request_id=None,
    )
