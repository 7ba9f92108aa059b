"""Changes go to the text of a log and come back as observers need them; damage is told."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidurable_actors._frozen import freeze
from pidurable_actors._json import check_json, decode_json, encode_json
from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records import (
    AppendEntry,
    AppendText,
    Change,
    ChangeDocument,
    DocumentRecord,
    DropMemos,
    PutConversation,
    PutDocument,
    PutMemo,
    PutSubmission,
    PutTask,
    ReplaceRoot,
    RetireDocuments,
    TaskId,
    diff,
)
from pidurable_actors.records.codec import encode_record, encode_task
from pidurable_actors.records.log import decode_changes, encode_changes
from tests.records import strategies

DOCUMENT = DocumentRecord(id=7, kind="app.doc", scope="session", scope_id=0)


def _base(record: DocumentRecord, before: Any, after: Any) -> PutDocument:
    operations = tuple(diff(freeze(before), freeze(after)))
    return PutDocument(record, encode_record(record), encode_json(after), operations)


def _delta(record: DocumentRecord, before: Any, after: Any) -> ChangeDocument:
    operations = tuple(diff(freeze(before), freeze(after)))
    return ChangeDocument(record, operations, encode_json(operations))


changes: st.SearchStrategy[Change] = st.one_of(
    strategies.conversations.map(lambda it: PutConversation(it, encode_record(it))),
    strategies.entries.map(lambda it: AppendEntry(it, encode_record(it))),
    strategies.tasks.map(lambda it: PutTask(it, encode_task(it))),
    st.builds(PutMemo, strategies.ids, strategies.texts, strategies.values.map(encode_json)),
    st.builds(DropMemos, strategies.ids),
    strategies.submissions.map(lambda it: PutSubmission(it, encode_record(it))),
    st.builds(_base, strategies.documents, strategies.values, strategies.values),
    st.builds(_delta, strategies.documents, strategies.values, strategies.values),
    st.builds(RetireDocuments, strategies.ids, strategies.times),
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(changes, max_size=4))
def test_changes_come_back_with_the_texts_they_were_stored_with(written: list[Change]) -> None:
    text = encode_changes(written)
    check_json(decode_json(text), "logged")
    assert decode_changes(text) == tuple(map(_told, written))


def test_the_text_says_what_was_done() -> None:
    text = encode_changes(
        [
            PutMemo(TaskId(2), 'a "name"', "[1]"),
            DropMemos(TaskId(2)),
            _base(DOCUMENT, None, {"log": ""}),
            _delta(DOCUMENT, {"log": "a"}, {"log": "ab"}),
            RetireDocuments(TaskId(2), 5),
        ]
    )
    record = json.loads(encode_record(DOCUMENT))
    replace = {"op": "replace", "value": {"log": ""}}
    append = {"op": "append", "path": ["log"], "text": "b"}
    assert json.loads(text) == [
        {"change": "memo", "task_id": 2, "name": 'a "name"', "value": [1]},
        {"change": "drop_memos", "task_id": 2},
        {"change": "document", "record": record, "operations": [replace]},
        {"change": "document", "record": record, "operations": [append]},
        {"change": "retire_documents", "task_id": 2, "at_ms": 5},
    ]


def test_a_base_is_told_by_what_led_to_it_and_not_by_its_value() -> None:
    text = encode_record(DOCUMENT)
    grown = PutDocument(DOCUMENT, text, encode_json("x" * 10_000), (AppendText((), "x"),))
    assert len(encode_changes([grown])) < len(text) + 200
    assert decode_changes(encode_changes([grown])) == (_told(grown),)


def test_nothing_is_a_commit_too() -> None:
    assert decode_changes(encode_changes([])) == ()


@pytest.mark.parametrize(
    "stored",
    [
        None,
        7,
        b"[]",
        "",
        "{}",
        "[",
        "[7]",
        "[{}]",
        '[{"change":7}]',
        '[{"change":"fly"}]',
        '[{"change":"task"}]',
        '[{"change":"task","record":{}}]',
        '[{"change":"memo","task_id":"2","name":"m","value":1}]',
        '[{"change":"memo","task_id":2,"name":null,"value":1}]',
        '[{"change":"drop_memos","task_id":2.5}]',
        '[{"change":"document","record":{},"operations":[]}]',
        encode_changes([_base(DOCUMENT, None, 1)]).replace('"replace"', '"fly"'),
        encode_changes([_base(DOCUMENT, None, 1)])[:-3],
    ],
)
def test_whatever_damage_put_in_place_of_a_log_row_is_corrupt(stored: object) -> None:
    with pytest.raises(StorageCorrupt, match="cannot be read"):
        decode_changes(stored)


def test_a_lone_replacement_of_the_root_takes_the_text_of_the_value() -> None:
    """The text is put together by hand there, and is the one that the encoder would write."""
    value = {"a": [1, -0.0, "\u2028"]}
    change = _base(DOCUMENT, None, value)
    assert change.operations == (ReplaceRoot(freeze(value)),)
    assert f'"operations":{encode_json(change.operations)}' in encode_changes([change])


def _told(change: Change) -> Change:
    match change:
        case PutTask(record, text):
            return PutTask(attrs.evolve(record, memos={}), text)
        case PutDocument(record, _, _, operations):
            return ChangeDocument(record, operations, encode_json(operations))
        case _:
            return change
