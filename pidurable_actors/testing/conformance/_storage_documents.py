"""Promises about documents: a base and its tail, names, retirement, pages."""

from __future__ import annotations

import attrs
import pytest

from pidurable_actors._frozen import freeze
from pidurable_actors._json import encode_json
from pidurable_actors.errors import StorageCorrupt, StorageError
from pidurable_actors.records import (
    AppendText,
    Change,
    DeleteKey,
    DocumentRecord,
    HistoryPolicy,
    PutDocument,
    ReplaceRoot,
    RetireDocuments,
    SetValue,
    SpliceList,
    StoredDocument,
    TaskId,
    apply_operations,
)
from pidurable_actors.storage import Storage
from pidurable_actors.testing.conformance._scribe import (
    DONE,
    EDITS,
    FIRST_VALUE,
    Scribe,
    change_document,
    put,
    put_document,
    read_document,
    value_at,
)
from pidurable_actors.testing.conformance._storage_hooks import StorageHooks

__all__ = ["DocumentPromises"]


class DocumentPromises(StorageHooks):
    """What is put, changed and retired."""

    def test_a_document_is_its_base_and_what_was_done_since(self, scribe: Scribe) -> None:
        record = scribe.new_document()
        base = put_document(record, FIRST_VALUE)
        scribe.commit(base)
        value, tail_chars = freeze(FIRST_VALUE), 0
        for edit in EDITS:
            change = change_document(record, *edit)
            number = scribe.commit(change)
            value, tail_chars = apply_operations(value, edit), tail_chars + len(change.text)
            stored = read_document(scribe.storage, record)
            assert encode_json(stored.value) == encode_json(value)
            assert (stored.record, stored.commit) == (record, number)
            assert (stored.base_chars, stored.tail_chars) == (len(base.value_text), tail_chars)
            assert scribe.storage.documents("session", 0, limit=1) == [stored]
        scribe.entry()
        assert read_document(scribe.storage, record).commit == scribe.number - 1

    @pytest.mark.parametrize("history", ["latest", "rewindable"])
    def test_a_new_base_takes_the_place_of_the_tail(
        self, scribe: Scribe, history: HistoryPolicy
    ) -> None:
        record = scribe.new_document(history=history)
        append = AppendText(("log",), "more")
        scribe.commit(put_document(record, {"log": ""}))
        scribe.commit(change_document(record, append))
        base = put_document(record, {"log": "moremore"}, append)
        number = scribe.commit(base)
        stored = read_document(scribe.storage, record)
        assert (stored.value, stored.commit) == ({"log": "moremore"}, number)
        assert (stored.base_chars, stored.tail_chars) == (len(base.value_text), 0)
        scribe.commit(change_document(record, append))
        assert read_document(scribe.storage, record).value == {"log": "moremoremore"}

    @pytest.mark.parametrize("history", ["latest", "rewindable"])
    def test_all_changes_of_a_document_in_one_commit_are_kept(
        self, scribe: Scribe, history: HistoryPolicy
    ) -> None:
        record = scribe.new_document(history=history)
        more = [change_document(record, AppendText((), text)) for text in "abcdef"]
        # Behind a base of the same commit, on each other, and before a base of the same commit.
        first = scribe.commit(put_document(record, "-"), more[0], more[1])
        assert read_document(scribe.storage, record).value == "-ab"
        second = scribe.commit(more[2], more[3])
        assert read_document(scribe.storage, record).value == "-abcd"
        base = put_document(record, "-abcde", AppendText((), "e"))
        third = scribe.commit(more[4], base, put_document(record, "-abcde"), more[5])
        stored = read_document(scribe.storage, record)
        assert (stored.value, stored.commit) == ("-abcdef", third)
        if history == "rewindable":
            # Of several bases of a commit the last one is the past of the next commit's.
            scribe.commit(put_document(record, "new"))
            earlier = [value_at(scribe.storage, record, at) for at in (first, second, third)]
            assert earlier == ["-ab", "-abcd", "-abcdef"]

    @pytest.mark.parametrize("history", ["latest", "rewindable"])
    def test_a_change_that_does_not_fit_is_corrupt_when_it_isread_document(
        self, scribe: Scribe, history: HistoryPolicy
    ) -> None:
        record, other = scribe.new_document(history=history), scribe.new_document("app.other")
        first = scribe.commit(put_document(record, {"n": 1}), put_document(other, 5))
        scribe.commit(change_document(record, DeleteKey(("absent",))))
        storage = scribe.storage
        with pytest.raises(StorageCorrupt):
            storage.document(record.kind, "session", 0)
        with pytest.raises(StorageCorrupt):
            storage.documents("session", 0, limit=9)
        assert read_document(storage, other).value == 5
        if history == "rewindable":
            assert value_at(storage, record, first) == {"n": 1}
        scribe.commit(put_document(record, {"n": 2}))
        assert read_document(storage, record).value == {"n": 2}

    def test_a_change_of_a_document_that_is_not_there_is_refused(self, scribe: Scribe) -> None:
        record = scribe.new_document()
        scribe.commit(put_document(record, 1))
        strangers = [
            attrs.evolve(record, id=scribe.new_id()),
            attrs.evolve(record, kind="app.other"),
            attrs.evolve(record, key="other"),
            attrs.evolve(record, scope="conversation"),
            attrs.evolve(record, scope_id=1),
        ]
        for stranger in strangers:
            self._refused(scribe, change_document(stranger, ReplaceRoot(2)))
        assert read_document(scribe.storage, record).value == 1

    def test_a_document_keeps_its_name(self, scribe: Scribe) -> None:
        record = scribe.new_document()
        scribe.commit(put_document(record, 1))
        for stranger in (
            attrs.evolve(record, id=scribe.new_id()),
            attrs.evolve(record, kind="app.other"),
            attrs.evolve(record, key="other"),
            attrs.evolve(record, scope="conversation"),
            attrs.evolve(record, scope_id=1),
        ):
            self._refused(scribe, put_document(stranger, 2))
        assert scribe.storage.document("app.other", "session", 0) is None
        assert read_document(scribe.storage, record).value == 1

    def test_a_name_that_is_no_text_is_refused(self, scribe: Scribe) -> None:
        record = scribe.new_document()
        good = put_document(record, 1)
        half = "half \ud83d"
        for bad in (attrs.evolve(record, kind=half), attrs.evolve(record, key=half)):
            with pytest.raises(StorageError) as refused:
                scribe.commit(PutDocument(bad, good.text, good.value_text, good.operations))
            assert refused.value.wrote is False
        assert scribe.storage.documents("session", 0, limit=9) == []
        assert scribe.storage.commits(after=0, limit=9) == []
        scribe.commit(good)

    def test_a_batch_that_fails_leaves_documents_and_log_as_they_were(self, scribe: Scribe) -> None:
        """Every kind of change on documents with a past, and then one that cannot be."""
        latest, kept = (
            scribe.new_document("app.a"),
            scribe.new_document("app.b", history="rewindable"),
        )
        mine = scribe.new_document("app.c", scope="task", scope_id=7)
        more = AppendText((), "+")
        for _ in range(2):
            scribe.commit(*(put_document(it, "base") for it in (latest, kept, mine)))
            scribe.commit(*(change_document(it, more) for it in (latest, kept, mine)))
        before = _everything(scribe.storage, latest, kept, mine)

        new = scribe.new_document("app.d")
        lost = put_document(new, "lost")
        good = scribe.draft(
            *(change_document(it, more) for it in (latest, kept, mine)),
            put_document(latest, "lost"),
            put_document(kept, "lost"),
            *(change_document(it, more) for it in (latest, kept, mine)),
            put_document(attrs.evolve(latest, history="rewindable"), "lost"),
            put_document(attrs.evolve(kept, history="latest"), "lost"),
            lost,
            RetireDocuments(TaskId(7), 5),
        )
        bad = scribe.draft(change_document(attrs.evolve(new, key="x"), more), ahead=1)
        bad = attrs.evolve(bad, forget_below=4)
        with pytest.raises(StorageCorrupt) as refused:
            scribe.storage.apply([attrs.evolve(good, forget_below=3), bad])
        assert refused.value.wrote is False
        assert _everything(scribe.storage, latest, kept, mine) == before
        assert scribe.storage.document("app.d", "session", 0) is None
        # What failed as a pair is fine alone, and the id and the name that it took are free.
        taken = good.changes.index(lost)
        scribe.commit(*good.changes[:taken], *good.changes[taken + 1 :])
        assert [read_document(scribe.storage, it).value for it in (latest, kept)] == [
            "lost",
            "lost",
        ]
        renamed = attrs.evolve(new, kind="app.e")
        scribe.commit(put_document(renamed, 1), put_document(scribe.new_document("app.d"), 2))
        assert read_document(scribe.storage, renamed).value == 1

    def test_documents_retire_with_their_task_and_keep_their_values(self, scribe: Scribe) -> None:
        tasks = [scribe.task(), scribe.task()]
        mine = [
            scribe.new_document(
                f"app.{at}", scope="task", scope_id=tasks[0].id, extra={"later": [at]}
            )
            for at in range(3)
        ]
        others = [
            scribe.new_document(scope="task", scope_id=tasks[1].id),
            scribe.new_document(scope="conversation", scope_id=tasks[0].id),
            scribe.new_document(),
        ]
        number = scribe.commit(*(put_document(it, {"n": 1}) for it in (*mine, *others)))
        changed = scribe.commit(change_document(mine[0], SetValue(("n",), 2)))
        scribe.commit(put(attrs.evolve(tasks[0], state=DONE)), RetireDocuments(tasks[0].id, 1_234))
        storage = scribe.storage
        assert [stored.record for stored in storage.documents("task", tasks[0].id, limit=9)] == [
            attrs.evolve(it, retired_at_ms=1_234) for it in mine
        ]
        found = [read_document(storage, it) for it in mine]
        assert [(it.value, it.commit) for it in found] == [
            ({"n": 2}, changed),
            ({"n": 1}, number),
            ({"n": 1}, number),
        ]
        assert [read_document(storage, it).record for it in others] == others
        scribe.commit(RetireDocuments(TaskId(scribe.new_id()), 5))

    def test_live_tasks_tell_whether_they_have_documents(self, scribe: Scribe) -> None:
        tasks = [scribe.task() for _ in range(3)]
        record = scribe.new_document(scope="task", scope_id=tasks[1].id)
        elsewhere = scribe.new_document(scope="conversation", scope_id=tasks[2].id)
        scribe.commit(put_document(record, 1), put_document(elsewhere, 1))
        live = scribe.storage.live_tasks(after=0, limit=9)
        assert [row.has_documents for row in live] == [False, True, False]

    def test_documents_come_in_pages_by_kind_and_key(self, scribe: Scribe) -> None:
        names = [(f"k{kind}", f"{key}") for kind in range(3) for key in ("", "a", "b")]
        made = {
            name: scribe.new_document(name[0], key=name[1], history=history)
            for name, history in zip(reversed(names), ["latest", "rewindable"] * 5, strict=False)
        }
        scribe.commit(*(put_document(record, "") for record in made.values()))
        for text in "xyz":
            scribe.commit(*(change_document(it, AppendText((), text)) for it in made.values()))
        storage = scribe.storage
        found: list[StoredDocument] = []
        after = None
        while True:
            page = storage.documents("session", 0, after=after, limit=4)
            found += page
            if len(page) < 4:
                break
            after = (page[-1].record.kind, page[-1].record.key)
        assert [stored.record for stored in found] == [made[name] for name in names]
        assert {str(stored.value) for stored in found} == {"xyz"}
        assert storage.documents("session", 0, after=("k1", "zz"), limit=1) == [found[6]]
        assert storage.documents("session", 0, after=("k9", ""), limit=1) == []
        assert storage.documents("session", 1, limit=1) == []

    def test_a_value_that_was_read_stays_as_it_was(self, scribe: Scribe) -> None:
        record = scribe.new_document()
        scribe.commit(put_document(record, {"items": [1], "log": "a"}))
        edit = (SpliceList(("items",), 1, 0, (2,)), AppendText(("log",), "b"))
        scribe.commit(change_document(record, *edit))
        first = read_document(scribe.storage, record)
        apply_operations(first.value, edit)
        scribe.commit(change_document(record, *edit))
        assert read_document(scribe.storage, record).value == {"items": [1, 2, 2], "log": "abb"}
        assert first.value == {"items": [1, 2], "log": "ab"}
        with pytest.raises(TypeError):
            first.value["log"] = "changed"  # type: ignore[index]
        assert read_document(scribe.storage, record).value == {"items": [1, 2, 2], "log": "abb"}

    def test_a_long_tail_is_read_in_order(self, scribe: Scribe) -> None:
        record = scribe.new_document(history="rewindable")
        scribe.commit(put_document(record, []))
        for at in range(130):
            scribe.commit(change_document(record, SpliceList((), at, 0, (at,))))
        stored = read_document(scribe.storage, record)
        assert stored.value == list(range(130))
        assert value_at(scribe.storage, record, 101) == list(range(100))

    def _refused(self, scribe: Scribe, change: Change) -> None:
        before = scribe.storage.commits(after=0, limit=9)
        with pytest.raises(StorageCorrupt) as refused:
            scribe.commit(change)
        assert refused.value.wrote is False
        assert scribe.storage.commits(after=0, limit=9) == before


def _everything(storage: Storage, *records: DocumentRecord) -> list[object]:
    """All that can be read of documents, at every commit, and the log."""
    commit = storage.head().commit
    earlier = [value_at(storage, record, at) for record in records for at in range(commit + 3)]
    now = [read_document(storage, record) for record in records]
    return [*earlier, *now, *storage.commits(after=0, limit=99), storage.head()]
