"""The model's view of a transcript: legal for a strict provider, whatever the entries hold."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import given
from hypothesis import strategies as st

from pidurable_actors.records import (
    ROOT_ID,
    SYSTEM,
    AssistantMessage,
    ContextEdit,
    EntryId,
    EntryRecord,
    Message,
    StopReason,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    harness_error,
    model_context,
)
from tests._agents import short


def said(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),))


def answered(text: str, *calls: str, stop: StopReason = "stop") -> AssistantMessage:
    made = tuple(ToolCallBlock(id=name, name="tool", arguments={}) for name in calls)
    content = (*((TextBlock(text=text),) if text else ()), *made)
    return AssistantMessage(content=content, stop_reason=stop)


def result(call_id: str, text: str) -> ToolResultMessage:
    return ToolResultMessage(call_id=call_id, tool_name="tool", content=(TextBlock(text=text),))


def entries(*messages: Message) -> list[EntryRecord]:
    return [
        EntryRecord(id=EntryId(at), conversation_id=ROOT_ID, kind="test", model=(message,))
        for at, message in enumerate(messages, 10)
    ]


def seen(found: Sequence[EntryRecord]) -> list[str]:
    return [short(message) for message in model_context(found)]


MISSING_A = "error a " + harness_error("Tool tool has no result")


def test_an_ordinary_transcript_is_seen_as_it_is() -> None:
    messages = (
        SystemMessage(content=(TextBlock(text="be kind"),)),
        said("hi"),
        answered("", "a"),
        result("a", "1"),
        answered("bye"),
    )
    assert model_context(entries(*messages)) == messages
    assert model_context([]) == ()


def test_results_follow_their_calls_in_call_order() -> None:
    found = entries(
        answered("", "a", "b", "c"),
        result("c", "3"),
        said("steer"),
        result("a", "1"),
        result("b", "2"),
    )
    assert seen(found) == [
        "calls tool(a) tool(b) tool(c)",
        "result a 1",
        "result b 2",
        "result c 3",
        "user steer",
    ]


def test_a_call_without_a_result_gets_an_error_made_up_for_it() -> None:
    assert seen(entries(answered("", "a"), said("next"))) == [
        "calls tool(a)",
        MISSING_A,
        "user next",
    ]


def test_a_result_without_a_call_is_left_out() -> None:
    assert seen(entries(said("hi"), result("a", "1"), answered("x"))) == ["user hi", "assistant x"]


def test_of_two_results_of_one_call_the_first_counts() -> None:
    found = entries(answered("", "a"), result("a", "1"), result("a", "2"))
    assert seen(found) == ["calls tool(a)", "result a 1"]


def test_a_second_result_does_not_slip_into_a_later_call_of_the_same_id() -> None:
    found = entries(
        answered("", "a"),
        result("a", "1"),
        result("a", "1 again"),
        answered("", "a"),
        result("a", "2"),
    )
    assert seen(found) == ["calls tool(a)", "result a 1", "calls tool(a)", "result a 2"]


def test_an_orphaned_call_does_not_take_the_result_of_a_later_call_of_the_same_id() -> None:
    found = entries(answered("", "a"), said("next"), answered("", "a"), result("a", "2"))
    assert seen(found) == ["calls tool(a)", MISSING_A, "user next", "calls tool(a)", "result a 2"]


def test_an_orphaned_result_does_not_answer_a_later_call() -> None:
    found = entries(result("a", "old"), answered("", "a"))
    assert seen(found) == ["calls tool(a)", MISSING_A]


def test_one_id_twice_in_one_answer_is_answered_in_order() -> None:
    found = entries(answered("", "a", "a"), result("a", "1"), result("a", "2"))
    assert seen(found) == ["calls tool(a) tool(a)", "result a 1", "result a 2"]


def test_failed_and_aborted_answers_are_left_out_with_their_results() -> None:
    found = entries(
        said("hi"),
        answered("half", "a", stop="aborted"),
        result("a", "of the half"),
        answered("broken", stop="error"),
        answered("", stop="stop"),
        answered("whole"),
    )
    assert seen(found) == ["user hi", "assistant whole"]


def test_a_result_of_an_aborted_answer_does_not_answer_an_earlier_call() -> None:
    found = entries(answered("", "a"), answered("", "a", stop="aborted"), result("a", "2"))
    assert seen(found) == ["calls tool(a)", MISSING_A]


def headed(at: int, head: int, *messages: Message, kind: str = "pi.reset") -> EntryRecord:
    return EntryRecord(
        id=EntryId(at), conversation_id=ROOT_ID, kind=kind, head=EntryId(head), model=messages
    )


def test_the_view_begins_with_what_the_newest_head_says_and_goes_on_from_there() -> None:
    old, kept, then = entries(said("old"), answered("kept"), said("then"))
    cut = headed(20, kept.id, said("a summary"), kind="pi.compaction")
    after = headed(30, 30, said("fresh"))
    assert seen([old, kept, then, cut]) == ["user a summary", "assistant kept", "user then"]
    assert seen([old, kept, then, cut, after]) == ["user fresh"]
    assert seen([old, kept, headed(20, 20)]) == []


def test_what_one_side_says_in_several_entries_is_one_message() -> None:
    found = entries(said("a"), said("b"), answered("c"), answered("d"), said("e"))
    asked, answer, more = model_context(found)
    assert asked.content == (TextBlock(text="a"), TextBlock(text="b"))
    assert answer.content == (TextBlock(text="c"), TextBlock(text="d"))
    assert more == said("e")


def prompt(at: int, text: str, *, complete: bool) -> EntryRecord:
    return EntryRecord(
        id=EntryId(at),
        conversation_id=ROOT_ID,
        kind=SYSTEM,
        model=(SystemMessage(content=(TextBlock(text=text),)),),
        data={"complete": complete},
    )


def test_the_newest_complete_prompt_comes_first_and_takes_the_place_of_all_before_it() -> None:
    one, two = prompt(1, "one", complete=True), prompt(2, "two", complete=False)
    hello, bye = (
        attrs.evolve(entry, id=EntryId(at))
        for at, entry in zip((3, 5), entries(said("hi"), answered("x")), strict=True)
    )
    assert seen([one, two, hello]) == ["system one", "system two", "user hi"]
    three, four = prompt(4, "three", complete=True), prompt(6, "four", complete=False)
    assert seen([one, two, hello, three, bye, four]) == [
        "system three",
        "user hi",
        "assistant x",
        "system four",
    ]
    cut = headed(7, 5, said("a summary"))
    # What changed of a prompt that is out of sight says nothing; the next one is complete.
    assert seen([one, two, hello, three, bye, four, cut]) == ["user a summary", "assistant x"]


def test_what_the_system_tells_between_two_words_of_a_user_stands_before_them() -> None:
    hello = entries(said("hello"))[0]
    told, change = prompt(1, "told", complete=True), prompt(11, "changed", complete=False)
    again = attrs.evolve(hello, id=EntryId(12))
    assert seen([told, hello, change]) == ["system told", "system changed", "user hello"]
    assert seen([told, hello, change, again])[1:] == ["system changed", "user hellohello"]


def test_a_head_between_a_call_and_its_result_leaves_the_result_out() -> None:
    call, answer, head = entries(answered("", "a"), result("a", "1"), said("from here"))
    head = headed(head.id, answer.id, *(head.model or ()))
    assert seen([call, answer, head]) == ["user from here"]


def test_edits_replace_and_hide_and_the_last_one_counts() -> None:
    one, two, three = entries(said("one"), said("two"), said("three"))
    edits = (
        ContextEdit(entry_id=one.id, model=(said("changed"),)),
        ContextEdit(entry_id=two.id, model=None),
    )
    edit = EntryRecord(id=EntryId(20), conversation_id=ROOT_ID, kind="app.edit", edits=edits)
    assert seen([one, two, three, edit]) == ["user changedthree"]
    again = EntryRecord(
        id=EntryId(21),
        conversation_id=ROOT_ID,
        kind="app.edit",
        edits=(ContextEdit(entry_id=one.id, model=(said("twice"),)),),
    )
    assert seen([one, two, three, edit, again]) == ["user twicethree"]


def test_the_error_text_is_exact() -> None:
    assert harness_error("no") == "<harness>\n[error] no\n</harness>"


_IDS = st.sampled_from("abc")
_MESSAGES = st.one_of(
    st.just(said("hi")),
    st.builds(result, _IDS, st.text("xy", max_size=2)),
    st.builds(
        lambda calls, stop: answered("t", *calls, stop=stop),
        st.lists(_IDS, max_size=3, unique=True),
        st.sampled_from(("stop", "tool_use", "aborted", "error")),
    ),
)


@given(st.lists(_MESSAGES, max_size=12))
def test_whatever_is_stored_the_view_is_legal(messages: list[Message]) -> None:
    """Every call is followed by exactly its result, in call order, and by nothing before that."""
    context = list(model_context(entries(*messages)))
    side = ""
    while context:
        message = context.pop(0)
        assert message.role != side, "two messages of one side"
        side = message.role
        assert not isinstance(message, ToolResultMessage), "a result without a call"
        if isinstance(message, AssistantMessage):
            assert message.stop_reason not in ("aborted", "error")
            for call in message.tool_calls:
                answer = context.pop(0)
                assert isinstance(answer, ToolResultMessage)
                assert answer.call_id == call.id
                side = "tool_result"
