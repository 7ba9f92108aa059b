"""Promises about text and numbers: every strict JSON value comes back as it went in."""

from __future__ import annotations

import math

import pytest

from pidurable_actors._frozen import freeze
from pidurable_actors._json import JSON, check_json, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.records import (
    ROOT_ID,
    AppendText,
    ConversationId,
    DocumentRecord,
    EntryId,
    SetValue,
    SpliceList,
    TaskId,
    TrimText,
)
from pidurable_actors.testing.conformance._scribe import (
    Scribe,
    change_document,
    memo,
    put_document,
)
from pidurable_actors.testing.conformance._storage_hooks import StorageHooks

__all__ = ["TextPromises"]

_TEXTS = {
    "nul": "a\x00b",
    "only nul": "\x00",
    "separators": "line\u2028paragraph\u2029next\x85end",
    "byte order mark": "\ufeffstart",
    "controls": "\x01\x1f\x7f\r\n\t\b\f",
    "quotes": "\"double\" 'single' \\ back / slash ` $.a[0]",
    "emoji": "👩‍👩‍👧‍👦🇺🇳",
    "beyond the basic plane": "𝄞𐀀\U0010ffff",
    "noncharacters": "\ufffe\uffff",
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd\u202c",
    "escape look-alike": "\\u0000 \\ud800 %00",
    "empty": "",
    "blanks": "  leading and trailing  ",
}
_NUMBERS: dict[str, JSON] = {
    "greatest": 2**63 - 1,
    "least": -(2**63),
    "past the exact floats": 2**53 + 1,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "tenth": 0.1,
    "whole float": 1.0,
}


class TextPromises(StorageHooks):
    """The same value back, from each place that keeps one."""

    @pytest.mark.parametrize("text", _TEXTS.values(), ids=_TEXTS.keys())
    def test_text_comes_back_from_every_place(self, scribe: Scribe, text: str) -> None:
        value: JSON = {"text": text, text: [text]}
        entry = scribe.entry(kind=f"k{text}", data=value)
        task = scribe.task(input=value)
        request = scribe.submission(request_id=f"r{text}")
        document = DocumentRecord(
            id=scribe.new_id(), kind=f"d{text}", scope="session", scope_id=0, key=text
        )
        scribe.commit(memo(task.id, f"m{text}", value), put_document(document, value))
        storage = scribe.storage
        assert storage.entry(entry.id) == entry
        assert storage.entries(ROOT_ID, before=entry.id + 1, limit=1, kind=f"k{text}") == [entry]
        found = storage.task(task.id)
        assert found is not None
        assert (found.input, found.memos) == (value, {f"m{text}": value})
        assert storage.submission_by_request(ROOT_ID, f"r{text}") == request
        stored = storage.document(f"d{text}", "session", 0, text)
        assert stored is not None
        assert stored.value == value
        assert storage.documents("session", 0, after=(f"d{text}", ""), limit=9) == (
            [stored] if text else []
        )

    @pytest.mark.parametrize("text", _TEXTS.values(), ids=_TEXTS.keys())
    def test_text_comes_back_from_changes_of_documents(self, scribe: Scribe, text: str) -> None:
        """In operations, in their paths, counted in characters, and from the log of commits."""
        record = scribe.new_document(history="rewindable")
        first = put_document(record, {text: ""})
        changes = [
            change_document(record, AppendText((text,), f"{text}|{text}")),
            change_document(record, TrimText((text,), len(text) + 1)),
            change_document(record, SetValue(("copy",), freeze([text]))),
            change_document(record, SpliceList(("copy",), 0, 0, (text, text))),
        ]
        scribe.commit(first)
        for change in changes:
            scribe.commit(change)
        storage = scribe.storage
        stored = storage.document(record.kind, "session", 0)
        assert stored is not None
        assert stored.value == {text: text, "copy": [text, text, text]}
        earlier = storage.document(record.kind, "session", 0, at_commit=2)
        assert earlier is not None
        assert earlier.value == {text: f"{text}|{text}"}
        logged = storage.commits(after=1, limit=9)
        assert [commit.changes for commit in logged] == [(change,) for change in changes]

    @pytest.mark.parametrize("number", _NUMBERS.values(), ids=_NUMBERS.keys())
    def test_numbers_keep_value_and_type(self, scribe: Scribe, number: JSON) -> None:
        entry = scribe.entry(data=[number])
        found = scribe.storage.entry(entry.id)
        assert found is not None
        assert isinstance(found.data, list)
        assert found.data == [number]
        assert type(found.data[0]) is type(number)

    def test_negative_zero_keeps_its_sign(self, scribe: Scribe) -> None:
        entry = scribe.entry(data=-0.0)
        found = scribe.storage.entry(entry.id)
        assert found is not None
        assert isinstance(found.data, float)
        assert math.copysign(1, found.data) == -1

    def test_values_may_be_nested_to_the_limit(self, scribe: Scribe) -> None:
        value: JSON = "deep"
        for level in range(LIMITS.json_depth):
            value = [value] if level % 2 else {"down": value}
        check_json(value, "value")
        task = scribe.task(input=value)
        scribe.commit(memo(task.id, "m", value))
        document = DocumentRecord(id=scribe.new_id(), kind="d", scope="session", scope_id=0)
        scribe.commit(put_document(document, value))
        found, stored = scribe.storage.task(task.id), scribe.storage.document("d", "session", 0)
        assert found is not None
        assert stored is not None
        assert found.input == found.memos["m"] == stored.value == value

        path = tuple(0 if level % 2 else "down" for level in reversed(range(LIMITS.json_depth)))
        change = change_document(document, SetValue(path, "deeper"), AppendText(path, " still"))
        scribe.commit(change)
        stored = scribe.storage.document("d", "session", 0)
        assert stored is not None
        assert encode_json(stored.value) == encode_json(value).replace("deep", "deeper still")
        assert scribe.storage.commits(after=scribe.number - 1, limit=1)[0].changes == (change,)

    @pytest.mark.slow
    def test_a_long_text_comes_back(self, scribe: Scribe) -> None:
        text = "0123456789 äöü 漢字\n" * 250_000
        assert len(text.encode()) > 5_000_000
        entry = scribe.entry(data=text)
        found = scribe.storage.entry(entry.id)
        assert found is not None
        assert found.data == text

    def test_keys_that_look_alike_are_different(self, scribe: Scribe) -> None:
        keys = ["a", "A", "a ", " a", "\u00e4", "a\u0308", "", "a\x00", "\uff41"]
        for key in keys:
            record = DocumentRecord(
                id=scribe.new_id(), kind="d", scope="session", scope_id=0, key=key
            )
            scribe.commit(put_document(record, key))
        for key in keys:
            stored = scribe.storage.document("d", "session", 0, key)
            assert stored is not None
            assert stored.value == key
            scribe.submission(request_id=f"r{key}")
        found = [stored.record.key for stored in scribe.storage.documents("session", 0, limit=99)]
        assert found == sorted(keys)

    def test_what_cannot_be_stored_is_not_there(self, scribe: Scribe) -> None:
        """A look-up by a lone surrogate or an id past 64 bits finds nothing and breaks nothing."""
        scribe.entry()
        storage, beyond = scribe.storage, 2**63
        assert storage.submission_by_request(ROOT_ID, "\ud800") is None
        assert storage.document("\ud800", "session", 0) is None
        assert storage.entry(EntryId(beyond)) is None
        assert storage.task(TaskId(beyond)) is None
        assert storage.conversation(ConversationId(beyond)) is None
        assert storage.entry_commit(EntryId(beyond)) is None
        assert storage.commits(after=beyond, limit=1) == []
        assert storage.commits(after=0, limit=1, conversation_id=ConversationId(beyond)) == []
        assert storage.documents("session", beyond, limit=1) == []
        assert storage.documents("session", 0, after=("\ud800", ""), limit=1) == []
        assert storage.tasks(after=beyond, limit=1) == []
        assert len(storage.entries(ROOT_ID, before=beyond, limit=1)) == 1
        scribe.entry()
