"""What changed of a prompt, told to who knows the old one, is the new one: for all prompts."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidurable_actors.agent import ShownPrompt, prompt_change, shown_prompt
from pidurable_actors.models import ToolSpec
from pidurable_actors.records import (
    ROOT_ID,
    SYSTEM,
    USER,
    EntryDraft,
    EntryId,
    EntryRecord,
    TextBlock,
    UserMessage,
    text_of,
    visible_entries,
)
from pidurable_actors.records.codec import decode_entry, encode_record

KEYS = st.sampled_from(["rules", "tone", "plan", "instructions"])
SECTIONS = st.dictionaries(KEYS, st.text(min_size=1, max_size=8), max_size=4)
SPECS = st.builds(
    ToolSpec,
    st.sampled_from(["read", "write", "run"]),
    st.text(max_size=4),
    st.dictionaries(st.sampled_from("ab"), st.integers() | st.lists(st.booleans()), max_size=2),
)
TOOLS = st.lists(SPECS, max_size=3, unique_by=lambda spec: spec.name)


def entry(number: int, draft: EntryDraft) -> EntryRecord:
    """An entry as it is read back from a storage."""
    made = EntryRecord(
        id=EntryId(number),
        conversation_id=ROOT_ID,
        **{field.name: getattr(draft, field.name) for field in attrs.fields(EntryDraft)},
    )
    return decode_entry(encode_record(made))


@given(st.lists(st.tuples(SECTIONS, TOOLS, st.booleans()), max_size=6))
def test_telling_what_changed_leads_to_what_is_wanted(
    wanted: list[tuple[dict[str, str], list[ToolSpec], bool]],
) -> None:
    """After each change the model knows exactly what it should, and is told it once.

    Some steps begin with a cut, of which some keep a part of what was told: a head that points
    before the newest system entries, as that of a compaction may.
    """
    told: list[EntryRecord] = []
    for number, (sections, tools, cuts) in enumerate(wanted, start=1):
        if cuts:
            said = EntryDraft(
                kind="pi.compaction",
                model=(UserMessage(content=(TextBlock(text="summary"),)),),
                head=EntryId(max(1, 10 * number - 15)),
            )
            told.append(entry(10 * number, said))
        change = prompt_change(shown_prompt(visible_entries(told)), sections, tools)
        if change is not None:
            told.append(entry(10 * number + 1, change))
        shown = shown_prompt(visible_entries(told))
        assert shown.sections == sections
        assert {tool.name: tool for tool in shown.tools} == {tool.name: tool for tool in tools}
        assert prompt_change(shown, sections, tools) is None
        seen = "".join(text_of(m.content) for e in visible_entries(told) for m in e.model or ())
        assert all(f"<{key}" in seen and text in seen for key, text in sections.items())


def test_the_order_of_tools_and_sections_is_kept_by_a_storage() -> None:
    tools = [ToolSpec(name, name, {}) for name in ("zoom", "add", "move")]
    change = prompt_change(ShownPrompt(), {"zebra": "z", "ant": "a"}, tools)
    assert change is not None
    shown = shown_prompt([entry(1, change)])
    assert [tool.name for tool in shown.tools] == ["zoom", "add", "move"]
    assert list(shown.sections) == ["zebra", "ant"]


def test_a_change_says_what_is_new_other_and_gone_and_nothing_else() -> None:
    known = {"rules": "Be kind.", "tone": "Dry.", "plan": "None."}
    change = prompt_change(
        ShownPrompt(complete=True, sections=known),
        {"rules": "Be kind.", "tone": "Warm.", "place": "Rome."},
        (),
    )
    assert change is not None
    (message,) = change.model or ()
    assert text_of(message.content) == (
        '<tone status="changed">\nWarm.\n</tone>\n\n<place>\nRome.\n</place>\n\n'
        '<plan status="removed"/>'
    )
    assert change.kind == SYSTEM


def test_nothing_to_say_is_no_entry() -> None:
    assert prompt_change(ShownPrompt(), {}, ()) is None
    assert prompt_change(ShownPrompt(complete=True), {}, ()) is None


def test_a_change_of_tools_alone_says_nothing_in_words() -> None:
    change = prompt_change(ShownPrompt(), {}, [ToolSpec("read", "Read.", {"type": "object"})])
    assert change is not None
    assert change.model is None


@pytest.mark.parametrize(
    "data", [None, 7, {"sections": 3, "tools": []}, {"complete": "yes", "tools": {"x": 1}}]
)
def test_an_entry_that_somebody_else_wrote_is_no_prompt(data: object) -> None:
    odd = EntryDraft(kind=SYSTEM, data=data)  # type: ignore[arg-type]
    assert shown_prompt([entry(1, odd)]) == ShownPrompt()
    said = EntryDraft(kind=USER, model=(UserMessage(content=(TextBlock(text="hi"),)),))
    assert shown_prompt([entry(1, said)]) == ShownPrompt()


def test_who_was_told_nothing_complete_is_told_everything() -> None:
    half = ShownPrompt(sections={"rules": "Be kind."}, tools=(ToolSpec("read", "Read.", {}),))
    change = prompt_change(half, {"rules": "Be kind."}, [ToolSpec("read", "Read.", {})])
    assert change is not None
    shown = shown_prompt([entry(1, change)])
    assert (shown.complete, dict(shown.sections)) == (True, {"rules": "Be kind."})
    assert [tool.name for tool in shown.tools] == ["read"]


def names_of(found: Mapping[str, str]) -> list[str]:
    """The keys, in order."""
    return list(found)


def test_a_complete_prompt_takes_the_place_of_everything_before() -> None:
    first = prompt_change(ShownPrompt(), {"a": "1", "b": "2"}, ())
    second = prompt_change(ShownPrompt(), {"b": "3"}, ())
    assert first is not None
    assert second is not None
    shown = shown_prompt([entry(1, first), entry(2, second)])
    assert names_of(shown.sections) == ["b"]
