"""The accumulator: whatever the deltas, the same message; whatever the model wrote, no exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidurable_actors._json import check_json, decode_json, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import (
    ANSWER_CHARS_MAX,
    Accumulator,
    Finished,
    ModelEvent,
    StreamedBlock,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageReport,
)
from pidurable_actors.records import (
    AssistantMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
    text_of,
)


def fed(*events: ModelEvent) -> Accumulator:
    accumulator = Accumulator()
    for event in events:
        accumulator.feed(event)
    return accumulator


def call(index: int, call_id: str, text: str) -> tuple[ModelEvent, ...]:
    return (ToolCallStart(index, call_id, "search"), ToolCallDelta(index, text), ToolCallEnd(index))


def test_text_thinking_and_calls_stand_in_the_order_in_which_they_came() -> None:
    accumulator = fed(
        ThinkingDelta("let me "),
        ThinkingDelta("see", signature="sig"),
        TextDelta("I "),
        TextDelta("look."),
        *call(0, "c1", '{"pattern": "x"}'),
        TextDelta("Done."),
        UsageReport(Usage(input_tokens=3, output_tokens=4)),
        Finished("tool_use"),
    )

    assert accumulator.message(model="scripted/m") == AssistantMessage(
        content=(
            ThinkingBlock(text="let me see", signature="sig"),
            TextBlock(text="I look."),
            ToolCallBlock(id="c1", name="search", arguments={"pattern": "x"}),
            TextBlock(text="Done."),
        ),
        stop_reason="tool_use",
        model="scripted/m",
        usage=Usage(input_tokens=3, output_tokens=4),
    )
    assert not accumulator.malformed
    assert not accumulator.duplicates


def test_a_signature_closes_its_thinking_and_may_come_without_text() -> None:
    accumulator = fed(
        ThinkingDelta("a"),
        ThinkingDelta("", signature="one"),
        ThinkingDelta("b"),
        ThinkingDelta("", signature="two"),
        ThinkingDelta("", signature="hidden"),
        Finished("stop"),
    )

    assert accumulator.message().content == (
        ThinkingBlock(text="a", signature="one"),
        ThinkingBlock(text="b", signature="two"),
        ThinkingBlock(text="", signature="hidden"),
    )


def test_calls_may_overlap_and_keep_the_order_of_their_starts() -> None:
    accumulator = fed(
        ToolCallStart(0, "a", "one"),
        ToolCallStart(1, "b", "two"),
        ToolCallDelta(1, '{"y":'),
        ToolCallDelta(0, '{"x":1}'),
        ToolCallDelta(1, "2}"),
        ToolCallEnd(1),
        ToolCallEnd(0),
        Finished("tool_use"),
    )

    assert [(it.name, it.arguments) for it in accumulator.message().tool_calls] == [
        ("one", {"x": 1}),
        ("two", {"y": 2}),
    ]


def test_nothing_empty_becomes_a_block() -> None:
    accumulator = fed(TextDelta(""), ThinkingDelta(""), Finished("stop"))

    assert accumulator.message().content == ()
    assert accumulator.blocks == []


# ---- what a model may get wrong ----


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"x": ', "not valid JSON"),
        ("nonsense", "not valid JSON"),
        ('{"x": NaN}', "not valid JSON"),
        ("[1]", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ('{"x": 99999999999999999999}', "cannot be stored: an integer must fit in 64 bits"),
        ('{"x": "\\ud800"}', "not valid JSON"),
        ('{"x":' * 120 + "1" + "}" * 120, "cannot be stored: nested deeper"),
        ('{"x":' * 100_000 + "1" + "}" * 100_000, "not valid JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_malformed_arguments_are_reported_beside_the_call(text: str, reason: str) -> None:
    accumulator = fed(*call(0, "c1", text), *call(1, "c2", "{}"), Finished("tool_use"))

    assert [it.arguments for it in accumulator.message().tool_calls] == [{}, {}]
    assert accumulator.malformed.keys() == {"c1"}
    assert accumulator.malformed["c1"].text == text
    assert reason in accumulator.malformed["c1"].reason


def test_arguments_that_are_accepted_leave_room_for_the_records_around_them() -> None:
    text = '{"x":' * 96 + "1" + "}" * 96
    accumulator = fed(*call(0, "c1", text), Finished("tool_use"))

    assert not accumulator.malformed
    wrapped: object = decode_json(encode_json(accumulator.message()))
    for _ in range(LIMITS.json_depth - 96 - 4):
        wrapped = [wrapped]
    check_json(wrapped, "entry")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_call_without_arguments_has_none(text: str) -> None:
    accumulator = fed(*call(0, "c1", text), Finished("tool_use"))

    assert accumulator.message().tool_calls[0].arguments == {}
    assert not accumulator.malformed


@pytest.mark.parametrize("text", ["", '{"path": "/"}', '{"path": "/'])
def test_a_call_that_never_ended_is_malformed_whatever_its_text(text: str) -> None:
    accumulator = fed(ToolCallStart(0, "c1", "delete"), ToolCallDelta(0, text), Finished("length"))

    assert accumulator.message().tool_calls[0].arguments == {}
    assert accumulator.malformed["c1"].reason == "the arguments were cut off"
    assert accumulator.malformed["c1"].text == text


def test_repeated_and_missing_call_ids_are_made_unique_and_reported() -> None:
    ids = ["x", "x", "x-2", "x", "", ""]
    events = [event for at, it in enumerate(ids) for event in call(at, it, "{}")]
    accumulator = fed(*events, Finished("tool_use"))

    stored = [it.id for it in accumulator.message().tool_calls]
    assert stored == ["x", "x-2", "x-2-2", "x-3", "call-1", "call-2"]
    assert accumulator.duplicates == {
        "x-2": "x",
        "x-2-2": "x-2",
        "x-3": "x",
        "call-1": "",
        "call-2": "",
    }


@given(st.lists(st.sampled_from(["", "x", "x-2", "x-2-2", "call-1"]), max_size=12))
def test_stored_call_ids_are_always_unique(ids: list[str]) -> None:
    events = [event for at, it in enumerate(ids) for event in call(at, it, "{}")]
    accumulator = fed(*events, Finished("tool_use"))

    stored = [it.id for it in accumulator.message().tool_calls]
    assert len(set(stored)) == len(ids)
    restored = [accumulator.duplicates.get(it, it) for it in stored]
    assert restored == ids


# ---- a stream that is no answer ----


def test_a_stream_without_an_end_is_a_retryable_network_error() -> None:
    accumulator = fed(TextDelta("half an ans"))

    with pytest.raises(ProviderError, match="before the answer was whole") as info:
        accumulator.message()

    assert info.value.retryable
    assert info.value.kind == "network"
    assert not accumulator.finished


@pytest.mark.parametrize(
    "events",
    [
        (ToolCallDelta(0, "{}"),),
        (ToolCallEnd(0),),
        (*call(0, "c", "{}"), ToolCallDelta(0, "{}")),
        (Finished("stop"), TextDelta("more")),
        (Finished("stop"), Finished("stop")),
    ],
)
def test_a_stream_out_of_order_is_a_retryable_error(events: tuple[ModelEvent, ...]) -> None:
    with pytest.raises(ProviderError, match="out of order") as info:
        fed(*events)

    assert info.value.retryable


def test_usage_may_follow_the_end_and_the_newest_report_counts() -> None:
    accumulator = fed(
        UsageReport(Usage(input_tokens=9)),
        Finished("stop"),
        UsageReport(Usage(input_tokens=9, output_tokens=1)),
    )

    assert accumulator.usage == Usage(input_tokens=9, output_tokens=1)
    assert accumulator.message().usage == accumulator.usage


def test_usage_of_an_answer_that_broke_off_is_known() -> None:
    accumulator = fed(UsageReport(Usage(input_tokens=9)), TextDelta("ha"))

    assert accumulator.usage == Usage(input_tokens=9)
    assert accumulator.partial().usage == Usage(input_tokens=9)


def test_an_endless_answer_is_broken_off_for_good() -> None:
    accumulator = Accumulator()
    accumulator.feed(TextDelta("x" * (ANSWER_CHARS_MAX - 100)))

    with pytest.raises(ProviderError, match="longer than") as info:
        accumulator.feed(TextDelta("x"))

    assert not info.value.retryable


# ---- while it streams ----


def test_a_partial_answer_is_an_aborted_one_with_what_has_come() -> None:
    accumulator = fed(
        TextDelta("I look"),
        *call(0, "c1", '{"x":1}'),
        ToolCallStart(1, "c2", "search"),
        ToolCallDelta(1, '{"y"'),
    )

    partial = accumulator.partial(model="scripted/m")

    assert partial.stop_reason == "aborted"
    assert partial.model == "scripted/m"
    assert text_of(partial.content) == "I look"
    assert [it.arguments for it in partial.tool_calls] == [{"x": 1}, {}]
    assert not accumulator.malformed


def test_a_partial_answer_does_not_disturb_the_whole_one() -> None:
    accumulator = fed(TextDelta("I "))
    accumulator.partial()
    accumulator.feed(TextDelta("look."))
    accumulator.feed(Finished("stop"))

    assert text_of(accumulator.message().content) == "I look."


def test_blocks_say_what_has_come_and_their_texts_are_read_from_any_place_on() -> None:
    accumulator = fed(TextDelta("a"), TextDelta("bc"), ThinkingDelta("t"))
    before = accumulator.blocks
    accumulator.feed(ThinkingDelta("u"))
    accumulator.feed(ToolCallStart(0, "c1", "search"))
    accumulator.feed(ToolCallDelta(0, "{}"))

    assert before == [
        StreamedBlock(type="text", chars=3),
        StreamedBlock(type="thinking", chars=1),
    ]
    assert accumulator.blocks == [
        StreamedBlock(type="text", chars=3),
        StreamedBlock(type="thinking", chars=2),
        StreamedBlock(type="tool_call", chars=2, id="c1", name="search"),
    ]
    assert [accumulator.text_since(0, at) for at in range(4)] == ["abc", "bc", "c", ""]
    assert accumulator.text_since(1, 1) == "u"
    assert accumulator.text_since(2, 0) == "{}"
