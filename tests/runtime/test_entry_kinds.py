"""Entry kinds: typed tokens that make drafts and recognise entries."""

from __future__ import annotations

from typing import Any

import attrs
from pytest import mark, raises

from pidurable_actors.errors import DefinitionError, InvalidValue
from pidurable_actors.records import (
    ConversationId,
    EntryDraft,
    EntryId,
    EntryRecord,
    TextBlock,
    UserMessage,
)
from pidurable_actors.runtime import AssistantEntry, UserEntry, define_entry
from tests._tasks import NOTE, Note


@attrs.frozen
class Renamed:
    title: str


class Plain:
    pass


def stored(draft: EntryDraft) -> EntryRecord:
    return EntryRecord(
        id=EntryId(7),
        conversation_id=ConversationId(1),
        kind=draft.kind,
        model=draft.model,
        data=draft.data,
    )


def test_an_entry_is_known_by_its_kind_and_gives_its_data_back() -> None:
    entry = stored(NOTE.new(Note("hello")))
    assert entry.model is None
    assert NOTE.match(entry) == Note("hello")
    assert define_entry("app.other", Note).match(entry) is None
    with raises(InvalidValue, match=r"entry\[app.note\] 7"):
        define_entry("app.note", Renamed).match(entry)


def test_an_entry_may_show_the_model_a_text() -> None:
    draft = NOTE.new(Note("hello"), text="a note came in")
    assert draft.model == (UserMessage(content=(TextBlock(text="a note came in"),)),)


def test_a_built_in_kind_carries_one_message() -> None:
    message = UserMessage(content=(TextBlock(text="hi"),))
    entry = stored(UserEntry.new(message))
    assert UserEntry.match(entry) == message
    assert AssistantEntry.match(entry) is None
    assert UserEntry.match(stored(EntryDraft(kind="pi.user"))) is None


@mark.parametrize(
    ("kind", "data", "text"),
    [
        ("", Note, "prefix of your own"),
        ("k" * 201, Note, "prefix of your own"),
        ("pi.note", Note, "belongs to the package"),
        ("app.note", Plain, "must be an attrs class"),
    ],
)
def test_what_cannot_be_a_kind_is_refused_when_it_is_defined(
    kind: str, data: Any, text: str
) -> None:
    with raises(DefinitionError, match=text):
        define_entry(kind, data)
