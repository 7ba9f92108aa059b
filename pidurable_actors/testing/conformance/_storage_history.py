"""Promises about the past of documents: what a value was after a commit, and of which version."""

from __future__ import annotations

from contextlib import closing

import attrs

from pidurable_actors._frozen import Value, freeze, thaw
from pidurable_actors._json import encode_json
from pidurable_actors.records import (
    AppendText,
    DocumentRecord,
    SetValue,
    apply_operations,
)
from pidurable_actors.storage import Storage
from pidurable_actors.testing.conformance._scribe import (
    EDITS,
    FIRST_VALUE,
    Scribe,
    change_document,
    put_document,
    read_document,
    value_at,
)
from pidurable_actors.testing.conformance._storage_hooks import StorageHooks

__all__ = ["HistoryPromises"]


class HistoryPromises(StorageHooks):
    """Documents that keep their history, that do not, and that change their mind."""

    def test_a_rewindable_document_tells_its_value_after_every_commit(self, scribe: Scribe) -> None:
        """Edits with bases and other commits between them; then every number is asked for."""
        record = scribe.new_document(history="rewindable")
        scribe.entry()
        expected: dict[int, Value] = {}
        value = freeze(FIRST_VALUE)
        scribe.commit(put_document(record, FIRST_VALUE))
        expected[scribe.number] = value
        for at, edit in enumerate(EDITS):
            value = apply_operations(value, edit)
            if at % 3 == 2:
                scribe.commit(put_document(record, thaw(value), *edit))
            else:
                scribe.commit(change_document(record, *edit))
            expected[scribe.number] = value
            if at % 2:
                scribe.entry()

        self._check_history(scribe.storage, record, expected, last=scribe.number)
        scribe.storage.close()
        second = self.reopen(scribe.storage)
        with closing(second):
            second.open(read_only=False)
            self._check_history(second, record, expected, last=scribe.number)

    def test_a_document_that_keeps_no_history_has_its_newest_value_only(
        self, scribe: Scribe
    ) -> None:
        record = scribe.new_document()
        first = scribe.commit(put_document(record, "a"))
        assert value_at(scribe.storage, record, first - 1) is None
        assert value_at(scribe.storage, record, first) == "a"
        second = scribe.commit(change_document(record, AppendText((), "b")))
        assert value_at(scribe.storage, record, first) is None
        assert value_at(scribe.storage, record, second) == "ab"
        third = scribe.commit(put_document(record, "abc", AppendText((), "c")))
        assert value_at(scribe.storage, record, second) is None
        for at in (third, third + 5, 2**63):
            assert value_at(scribe.storage, record, at) == "abc"

    def test_an_earlier_value_has_the_version_that_it_was_stored_with(self, scribe: Scribe) -> None:
        old = scribe.new_document(history="rewindable", version=3)
        first = scribe.commit(put_document(old, {"n": 1}))
        second = scribe.commit(change_document(old, SetValue(("n",), 2)))
        new = attrs.evolve(old, version=4)
        third = scribe.commit(put_document(new, {"count": 2}))
        versions = []
        for at in (first, second, third):
            stored = read_document(scribe.storage, old, at)
            versions.append((stored.record.version, stored.value, stored.commit))
        assert versions == [(3, {"n": 1}, 1), (3, {"n": 2}, 2), (4, {"count": 2}, 3)]
        assert read_document(scribe.storage, old).record == new

    def test_history_begins_and_ends_with_the_policy(self, scribe: Scribe) -> None:
        latest = scribe.new_document()
        kept = attrs.evolve(latest, history="rewindable")
        more = AppendText((), "+")
        scribe.commit(put_document(latest, "a"))
        scribe.commit(put_document(latest, "b"))
        scribe.commit(change_document(latest, more))
        scribe.commit(put_document(kept, "c"))
        scribe.commit(change_document(kept, more))
        values = [value_at(scribe.storage, kept, at) for at in range(6)]
        assert values == [None, None, "b", "b+", "c", "c+"]

        scribe.commit(put_document(latest, "d"))
        scribe.commit(change_document(latest, more))
        scribe.commit(put_document(kept, "e"))
        values = [value_at(scribe.storage, kept, at) for at in range(9)]
        assert values == [None, None, None, None, None, None, "d", "d+", "e"]

    def _check_history(
        self, storage: Storage, record: DocumentRecord, expected: dict[int, Value], *, last: int
    ) -> None:
        value: Value = None
        changed = 0
        for number in range(last + 3):
            if number in expected:
                value, changed = expected[number], number
            found = storage.document(
                record.kind, record.scope, record.scope_id, record.key, at_commit=number
            )
            if not changed:
                assert found is None
                continue
            assert found is not None
            assert encode_json(found.value) == encode_json(value)
            assert (found.record, found.commit) == (record, changed)
