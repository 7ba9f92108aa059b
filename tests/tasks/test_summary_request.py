"""What the one who summarizes is asked with: as much as has room, and never more."""

from __future__ import annotations

import attrs
import pytest

from pidurable_actors.agent import CompactionPlan
from pidurable_actors.models import ModelInfo, request_tokens
from pidurable_actors.records import (
    AssistantMessage,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from pidurable_actors.settings import CompactionSettings
from pidurable_actors.tasks._summary_request import summary_request
from tests.tasks.test_compaction_range import answer, result, transcript, user

INFO = ModelInfo()


def asked(*said: tuple[str, object], room: int | None = None) -> str:
    """The text in which a conversation is handed in, and that it has room."""
    entries = transcript(*said)  # type: ignore[arg-type]
    request = summary_request(entries, None, model_id="m", info=INFO, room=room)
    assert room is None or request_tokens(request, INFO) <= room
    text = text_of(request.messages[-1].content)
    return text.partition("<conversation>\n")[2].partition("\n</conversation>")[0]


def test_who_said_what_is_written_out() -> None:
    kind, message = answer("x", text="I look.")
    assert isinstance(message, AssistantMessage)
    thinking = attrs.evolve(message, content=(ThinkingBlock(text="hidden"), *message.content))
    assert asked(user("Look."), (kind, thinking), result("x", "3 hits"), answer(text="3.")) == (
        "[user]\nLook.\n\n"
        "[assistant]\nI look.\ncalls t {}\n\n"
        "[result of t]\n3 hits\n\n"
        "[assistant]\n3."
    )


def test_errors_images_and_half_answers_are_told_apart() -> None:
    failed = ToolResultMessage(
        call_id="x", tool_name="t", content=(TextBlock(text="no"),), is_error=True
    )
    image = UserMessage(content=(ImageBlock(data="", media_type="image/png"),))
    half = answer(text="half", stop="aborted")
    assert asked(("pi.user", image), half, ("pi.tool-result", failed)) == (
        "[user]\n(an image)\n\n[error of t]\nno"
    )


def test_a_long_result_is_clipped_in_its_middle_and_says_so() -> None:
    text = asked(result("x", "a" * 5_000 + "b" * 5_000))
    assert text.startswith("[result of t]\n" + "a" * 2_000)
    assert "(... 6000 characters ...)" in text
    assert text.endswith("b" * 2_000)
    assert "a" * 5_000 in asked(user("a" * 5_000))


@pytest.mark.parametrize("room", [500, 1_000, 4_000, 16_000])
def test_a_conversation_of_many_windows_is_clipped_until_it_has_room(room: int) -> None:
    long = [user("u" * 2_000), answer("x", text="t" * 500), result("x", "r" * 20_000)] * 40
    text = asked(*long, room=room)
    assert text.startswith("[user]\nu")
    assert "characters ...)" in text


def test_arguments_of_calls_are_clipped_too() -> None:
    call = ToolCallBlock(id="x", name="t", arguments={"text": "a" * 50_000})
    text = asked(("pi.assistant", AssistantMessage(content=(call,))))
    assert len(text) < 17_000


@pytest.mark.parametrize(
    ("window", "limit", "background", "keep"),
    [
        (200_000, 183_616, 150_848, 20_000),
        (32_768, 16_384, 8_192, 8_192),
        (8_000, 4_000, 2_000, 2_000),
        (None, None, None, 20_000),
    ],
)
def test_small_windows_take_half_of_what_the_settings_leave_nothing_of(
    window: int | None, limit: int | None, background: int | None, keep: int
) -> None:
    plan = CompactionPlan(
        settings=CompactionSettings(), model=None, info=INFO, window=window, policy=""
    )
    assert (plan.limit, plan.background_from, plan.keep_tokens) == (limit, background, keep)
