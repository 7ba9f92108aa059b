"""The accumulator, however an answer is cut: the same message, at a cost linear in its text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from pidurable_actors._json import check_json, decode_json, encode_json
from pidurable_actors.models import (
    Accumulator,
    Finished,
    ModelEvent,
    StreamedBlock,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from pidurable_actors.records import ThinkingBlock, ToolCallBlock, text_of


def fed(*events: ModelEvent) -> Accumulator:
    accumulator = Accumulator()
    for event in events:
        accumulator.feed(event)
    return accumulator


def test_the_work_for_a_long_argument_is_linear_in_its_text() -> None:
    """500 KB in pieces of 40 bytes: every character is handed out once, and joined once."""
    text = encode_json({"body": "x" * 500_000})
    accumulator = fed(ToolCallStart(0, "c1", "write"))
    seen = 0
    for chunk in chunked(text, 40):
        accumulator.feed(ToolCallDelta(0, chunk))
        seen += len(accumulator.text_since(0, seen))
    accumulator.feed(ToolCallEnd(0))
    accumulator.feed(Finished("tool_use"))

    assert seen == len(text)
    assert accumulator.message().tool_calls[0].arguments == json.loads(text)


# Characters that deltas may cut or that stores dislike: surrogates whole and alone, NUL, U+2028.
any_text = st.text(
    alphabet=st.one_of(st.characters(), st.sampled_from("\ud83d\ude00\x00\u2028")), max_size=20
)
parts = st.lists(st.tuples(st.sampled_from(["text", "thinking", "call"]), any_text), max_size=8)


@given(parts, st.lists(st.integers(1, 7), min_size=1, max_size=10))
def test_chunking_never_changes_the_message(parts: list[tuple[str, str]], sizes: list[int]) -> None:
    whole, cut = (fed(*streamed(parts, each), Finished("stop")) for each in (None, sizes))

    assert cut.message() == whole.message()
    assert cut.malformed == whole.malformed


@given(parts, st.lists(st.integers(1, 7), min_size=1, max_size=10))
def test_new_text_put_together_is_the_text_of_its_block(
    parts: list[tuple[str, str]], sizes: list[int]
) -> None:
    accumulator = Accumulator()
    shown: list[str] = []
    for event in streamed(parts, sizes):
        accumulator.feed(event)
        for at, block in enumerate(accumulator.blocks):
            if at == len(shown):
                shown.append("")
            shown[at] += accumulator.text_since(at, len(shown[at]))
            assert block.chars == len(shown[at])
    accumulator.feed(Finished("stop"))

    kept = [text for text, block in zip(shown, accumulator.blocks, strict=True) if is_kept(block)]
    for text, made in zip(kept, accumulator.message().content, strict=True):
        if not isinstance(made, ToolCallBlock):
            assert text == made.text


@given(parts)
def test_what_comes_out_is_strict_json(parts: list[tuple[str, str]]) -> None:
    accumulator = fed(*streamed(parts, None), Finished("stop"))

    check_json(decode_json(encode_json(accumulator.message())), "message")


def test_a_character_that_deltas_cut_in_two_is_put_together() -> None:
    accumulator = fed(TextDelta("a\ud83d"), TextDelta("\ude00b\ude00"), Finished("stop"))

    assert text_of(accumulator.message().content) == "a\U0001f600b\ufffd"


def test_half_a_character_at_the_end_of_a_block_is_dropped() -> None:
    accumulator = fed(TextDelta("\ud83d"), ThinkingDelta("t\ud83d"), Finished("stop"))

    assert accumulator.message().content == (ThinkingBlock(text="t"),)


def streamed(parts: list[tuple[str, str]], sizes: Sequence[int] | None) -> Iterable[ModelEvent]:
    for index, (kind, text) in enumerate(parts):
        chunks = chunked(text, *(sizes or [len(text) or 1]))
        if kind == "call":
            yield ToolCallStart(index, f"c{index}", "search")
            yield from (ToolCallDelta(index, chunk) for chunk in chunks)
            yield ToolCallEnd(index)
        else:
            delta = TextDelta if kind == "text" else ThinkingDelta
            yield from (delta(chunk) for chunk in chunks)


def chunked(text: str, *sizes: int) -> Iterable[str]:
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        yield text[at : at + size]
        at, turn = at + size, turn + 1


def is_kept(block: StreamedBlock) -> bool:
    return block.type == "tool_call" or block.chars > 0
