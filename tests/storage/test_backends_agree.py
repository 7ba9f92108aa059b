"""SQLite answers as the reference does, and a fold of the commits as both, whatever is written."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidurable_actors._frozen import Value, freeze, thaw
from pidurable_actors._json import encode_json
from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records import (
    ROOT_ID,
    Batch,
    Change,
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    DropMemos,
    EntryId,
    EntryRecord,
    Owner,
    RetireDocuments,
    StoredDocument,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    diff,
)
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing._records import Fold, read_records
from pidurable_actors.testing.conformance._scribe import (
    DONE,
    RUNNING,
    Scribe,
    change_document,
    memo,
    put,
    put_document,
)
from tests.records.strategies import values

CONVERSATIONS = tuple(map(ConversationId, (1, 2, 17)))
TASKS = tuple(map(TaskId, (30, 31)))
DOCUMENTS = (
    DocumentRecord(id=40, kind="a", scope="session", scope_id=0),
    DocumentRecord(id=41, kind="a", scope="session", scope_id=0, key="k", history="rewindable"),
    DocumentRecord(id=42, kind="a", scope="conversation", scope_id=17, history="rewindable"),
    DocumentRecord(id=43, kind="b", scope="task", scope_id=30, history="rewindable"),
    DocumentRecord(id=44, kind="c", scope="task", scope_id=30),
)
FIRST_ID = 1_000

OF_DOCUMENTS = ("put", "change", "policy", "version", "retire")
OF_OTHERS = ("memo", "drop", "entry", "task", "submission", "conversation")

# A number that chooses among the records, what is done, and with what value.
steps = st.tuples(st.integers(0, 9), st.sampled_from([*OF_DOCUMENTS, *OF_OTHERS]), values)
commits = st.lists(steps, max_size=5)
groups = st.lists(
    st.tuples(st.lists(commits, min_size=1, max_size=3), st.integers(0, 6), st.booleans()),
    max_size=12,
)


@attrs.define
class Author:
    """Makes batches that follow each other, and keeps what documents come to."""

    scribe: Scribe
    ids: int = FIRST_ID
    records: dict[int, DocumentRecord] = attrs.field(factory=dict)
    values: dict[int, Value] = attrs.field(factory=dict)
    memos: set[tuple[TaskId, str]] = attrs.field(factory=set)

    def change(self, number: int, what: str, value: Any) -> list[Change]:
        """The changes of one step; none when it does not apply."""
        document = DOCUMENTS[number % len(DOCUMENTS)]
        task, conversation = TASKS[number % 2], CONVERSATIONS[number % 3]
        self.ids += 1
        match what:
            case "put" | "policy" | "version" | "change":
                return self._document(self.records.get(document.id, document), what, value)
            case "retire":
                return [RetireDocuments(task, number)]
            case "memo":
                fresh = (task, f"m{number}") not in self.memos
                self.memos.add((task, f"m{number}"))
                return [memo(task, f"m{number}", value)] if fresh else []
            case "drop":
                self.memos = {it for it in self.memos if it[0] != task}
                return [DropMemos(task)]
            case _:
                return [put(_record(self.ids, what, number, conversation, value))]

    def _document(self, record: DocumentRecord, what: str, value: Any) -> list[Change]:
        if record.id not in self.records and what != "put":
            return []
        before, after = self.values.get(record.id), freeze(value)
        if what == "policy":
            kept = record.history == "rewindable"
            record = attrs.evolve(record, history="latest" if kept else "rewindable")
        elif what == "version":
            record = attrs.evolve(record, version=record.version + 1)
        operations = diff(before, after)
        self.values[record.id] = after
        if what == "change":
            return [change_document(record, *operations)]
        self.records[record.id] = record
        return [put_document(record, thaw(after), *operations)]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(groups)
def test_backends_and_a_fold_agree_on_everything_that_can_be_asked(
    written: list[tuple[list[list[tuple[int, str, Any]]], int, bool]],
) -> None:
    """Groups of commits, some with a contradiction, go to both; then both are asked everything."""
    with tempfile.TemporaryDirectory() as directory:
        reference, other = MemoryStorage(), SqliteStorage(Path(directory) / "agent.sqlite")
        with closing(reference), closing(other):
            author = Author(Scribe.open(reference))
            other.open(read_only=False)
            fold = Fold()
            history: list[dict[int, Value]] = [{}]
            for group, forget, logged in written:
                batches = []
                for at, commit in enumerate(group):
                    batches.append(_batch(author, commit, at, forget=forget, logged=logged))
                    history.append(dict(author.values))
                for storage in (reference, other):
                    _refuse(storage, [*batches, _contradiction(author, len(batches))])
                    storage.apply(batches)
                author.scribe.number += len(batches)
                fold.add(batches)

            assert _answers(reference) == _answers(other)
            _check_history(reference, author, history)
        assert read_records(reference) == read_records(other) == _stored_part(fold)


def _record(
    record_id: int, what: str, number: int, conversation: ConversationId, value: Any
) -> EntryRecord | TaskRecord | SubmissionRecord | ConversationRecord:
    task = TASKS[number % 2]
    match what:
        case "entry":
            return EntryRecord(
                id=EntryId(record_id), conversation_id=conversation, kind=f"k{number}", data=value
            )
        case "task":
            return TaskRecord(
                id=task,
                conversation_id=ROOT_ID,
                kind="app.job",
                version=number,
                input=value,
                state=DONE if number % 3 == 0 else RUNNING,
            )
        case "submission":
            return SubmissionRecord(
                id=SubmissionId(50 + number % 3),
                conversation_id=ROOT_ID,
                type="input",
                status="done" if number % 2 else "queued",
                request_id=f"r{number % 3}",
            )
        case _:
            owner = Owner(conversation_id=ROOT_ID, task_id=task) if number % 2 else None
            return ConversationRecord(id=conversation, owner=owner, created_at_ms=number)


def _batch(
    author: Author, steps: list[tuple[int, str, Any]], at: int, *, forget: int, logged: bool
) -> Batch:
    changes = [change for step in steps for change in author.change(*step)]
    author.scribe.next_id = author.ids + 1
    draft = author.scribe.draft(*changes, ahead=at)
    below = max(0, draft.number - forget) if forget else 0
    return attrs.evolve(draft, logged=logged, forget_below=below)


def _contradiction(author: Author, ahead: int) -> Batch:
    stranger = attrs.evolve(DOCUMENTS[0], id=99, kind="stranger")
    return author.scribe.draft(change_document(stranger), ahead=ahead)


def _refuse(storage: Storage, batches: list[Batch]) -> None:
    before = storage.head()
    with pytest.raises(StorageCorrupt) as refused:
        storage.apply(batches)
    assert refused.value.wrote is False
    assert storage.head() == before


def _answers(storage: Storage) -> list[object]:
    """Everything that can be asked, with documents as text, where 1 and 1.0 are different."""
    last = storage.head().commit
    entries = storage.entries(ROOT_ID, before=2**62, limit=99)
    scopes: tuple[tuple[Any, int], ...] = (("session", 0), ("conversation", 17), ("task", 30))
    return [
        storage.head(),
        storage.oldest_commit(),
        storage.conversations(after=0, limit=9),
        storage.tasks(after=0, limit=9),
        storage.live_tasks(after=0, limit=9),
        storage.submissions(after=0, limit=9),
        entries,
        [storage.entry_commit(entry.id) for entry in entries],
        *(_shown(it) for scope in scopes for it in storage.documents(*scope, limit=9)),
        *(_shown(_at(storage, it, at)) for it in DOCUMENTS for at in range(last + 2)),
        storage.commits(after=0, limit=999),
        *(storage.commits(after=2, limit=3, conversation_id=it) for it in CONVERSATIONS),
    ]


def _shown(found: StoredDocument | None) -> object:
    return found and (attrs.evolve(found, value=None), encode_json(found.value))


def _at(storage: Storage, record: DocumentRecord, at_commit: int) -> StoredDocument | None:
    return storage.document(
        record.kind, record.scope, record.scope_id, record.key, at_commit=at_commit
    )


def _check_history(storage: Storage, author: Author, history: list[dict[int, Value]]) -> None:
    """Whatever value is told is the one that it had, and the newest one is always told."""
    for record in author.records.values():
        told = [_at(storage, record, at) for at in range(len(history))]
        for found, expected in zip(told, history, strict=True):
            if found is not None:
                assert encode_json(found.value) == encode_json(expected[record.id])
        assert told[-1] is not None


def _stored_part(fold: Fold) -> object:
    """The picture without what no scan finds: entries of conversations that are not stored."""
    records = fold.records()
    known = records.conversations.keys()
    found = {key: it for key, it in records.entries.items() if it.conversation_id in known}
    documents = {
        key: value
        for key, value in records.documents.items()
        if key[0] == "session"
        or (key[0] == "conversation" and key[1] in known)
        or (key[0] == "task" and key[1] in records.tasks)
    }
    retired = {key: at_ms for key, at_ms in records.retired.items() if key in documents}
    return attrs.evolve(records, entries=found, documents=documents, retired=retired)
