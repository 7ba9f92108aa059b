"""The scripted model going wrong as real providers do: refusing, cutting, stalling, garbling."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from pidurable_actors.errors import ProviderError
from pidurable_actors.models import (
    Accumulator,
    Break,
    Fault,
    Finished,
    Garbage,
    ModelEvent,
    ModelRequest,
    Reply,
    ScriptedContext,
    ScriptedModel,
    Stall,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    Truncate,
)

REQUEST = ModelRequest(model_id="m", messages=())


async def events_of(model: ScriptedModel) -> list[ModelEvent]:
    async with model.stream(REQUEST) as events:
        return [event async for event in events]


@pytest.mark.parametrize("raised", [False, True])
async def test_a_script_refuses_a_request_with_a_provider_error(raised: bool) -> None:
    error = ProviderError("slow down", retryable=True, kind="rate_limit", retry_after_s=2.5)

    def reply(_: ScriptedContext) -> Reply | ProviderError:
        if raised:
            raise error
        return error

    model = ScriptedModel(reply)
    for _ in range(2):
        with pytest.raises(ProviderError, match="slow down") as info:
            await events_of(model)
        assert (info.value.retryable, info.value.kind) == (True, "rate_limit")
        assert info.value.retry_after_s == 2.5


async def test_a_bug_in_the_script_is_not_taken_for_a_provider_error() -> None:
    def reply(ctx: ScriptedContext) -> Reply:
        return Reply(str(ctx.messages[3]))

    with pytest.raises(IndexError):
        await events_of(ScriptedModel(reply))


def spoiled(fault: Fault) -> ScriptedModel:
    calls = [ToolCall("t", {"n": 1}, id="c")]
    return ScriptedModel(
        lambda _: Reply("abcd", thinking="xy", tool_calls=calls, chunk=3, fault=fault)
    )


@pytest.mark.parametrize(
    ("after", "came"),
    [
        (0, []),
        (1, ["x"]),
        (2, ["xy"]),
        (4, ["xy", "ab"]),
        (5, ["xy", "abc"]),
        (8, ["xy", "abc", "d", '{"']),
        (9, ["xy", "abc", "d", '{"n']),
        (13, ["xy", "abc", "d", '{"n', '":1', "}"]),
        (99, ["xy", "abc", "d", '{"n', '":1', "}"]),
    ],
)
async def test_a_truncated_stream_ends_after_so_many_characters(
    after: int, came: list[str]
) -> None:
    events = await events_of(spoiled(Truncate(after)))

    assert outputs(events) == came
    assert Finished("tool_use") not in events


async def test_a_stalled_stream_is_silent_for_ever() -> None:
    got: list[ModelEvent] = []
    with trio.move_on_after(1e9) as scope:
        async with spoiled(Stall(after=4)).stream(REQUEST) as events:
            await collect(events, got)

    assert scope.cancelled_caught
    assert outputs(got) == ["xy", "ab"]


async def test_a_stream_that_breaks_raises_between_events() -> None:
    error = ProviderError("overloaded", retryable=True, kind="overloaded")
    got: list[ModelEvent] = []
    with pytest.raises(ProviderError, match="overloaded") as info:
        async with spoiled(Break(4, error)).stream(REQUEST) as events:
            await collect(events, got)

    assert info.value.kind == "overloaded"
    assert outputs(got) == ["xy", "ab"]


async def test_garbage_spoils_the_arguments_and_nothing_else() -> None:
    accumulator = Accumulator()
    for event in await events_of(spoiled(Garbage())):
        accumulator.feed(event)

    assert accumulator.message().tool_calls[0].arguments == {}
    assert accumulator.malformed["c"].text == '{"'


async def collect(events: AsyncIterator[ModelEvent], into: list[ModelEvent]) -> None:
    async for event in events:
        into.append(event)  # noqa: PERF401 - what came before a failure is kept


def outputs(events: list[ModelEvent]) -> list[str]:
    texts: list[str] = []
    for event in events:
        if isinstance(event, TextDelta | ThinkingDelta):
            texts.append(event.text)
        elif isinstance(event, ToolCallDelta):
            texts.append(event.arguments_text)
    return texts
