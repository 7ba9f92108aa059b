"""The model's view of a transcript: legal for a strict provider, whatever the entries hold."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pidurable_actors.records import (
    ROOT_ID,
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


def test_the_view_begins_at_the_newest_head() -> None:
    old, kept, cut = entries(said("old"), said("kept"), said("cut here"))
    cut = EntryRecord(
        id=cut.id, conversation_id=ROOT_ID, kind="pi.reset", model=cut.model, head=kept.id
    )
    assert seen([old, kept, cut]) == ["user kept", "user cut here"]
    last = EntryRecord(
        id=EntryId(20),
        conversation_id=ROOT_ID,
        kind="pi.reset",
        head=EntryId(20),
        model=(said("fresh"),),
    )
    assert seen([old, kept, cut, last]) == ["user fresh"]


def test_a_head_between_a_call_and_its_result_leaves_the_result_out() -> None:
    call, answer, head = entries(answered("", "a"), result("a", "1"), said("from here"))
    head = EntryRecord(
        id=head.id, conversation_id=ROOT_ID, kind="pi.reset", model=head.model, head=answer.id
    )
    assert seen([call, answer, head]) == ["user from here"]


def test_edits_replace_and_hide_and_the_last_one_counts() -> None:
    one, two, three = entries(said("one"), said("two"), said("three"))
    edits = (
        ContextEdit(entry_id=one.id, model=(said("changed"),)),
        ContextEdit(entry_id=two.id, model=None),
    )
    edit = EntryRecord(id=EntryId(20), conversation_id=ROOT_ID, kind="app.edit", edits=edits)
    assert seen([one, two, three, edit]) == ["user changed", "user three"]
    again = EntryRecord(
        id=EntryId(21),
        conversation_id=ROOT_ID,
        kind="app.edit",
        edits=(ContextEdit(entry_id=one.id, model=(said("twice"),)),),
    )
    assert seen([one, two, three, edit, again]) == ["user twice", "user three"]


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
    while context:
        message = context.pop(0)
        assert not isinstance(message, ToolResultMessage), "a result without a call"
        if isinstance(message, AssistantMessage):
            assert message.stop_reason not in ("aborted", "error")
            for call in message.tool_calls:
                answer = context.pop(0)
                assert isinstance(answer, ToolResultMessage)
                assert answer.call_id == call.id
