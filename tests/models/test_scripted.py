"""The scripted model: a deterministic provider, whole answers and broken ones."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pidurable_actors.errors import DefinitionError, InvalidValue
from pidurable_actors.models import (
    Accumulator,
    Finished,
    Garbage,
    ModelEvent,
    ModelProvider,
    ModelRequest,
    Reply,
    ScriptedContext,
    ScriptedModel,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    UsageReport,
)
from pidurable_actors.models.scripted import REQUESTS_KEPT
from pidurable_actors.records import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)


def user(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),))


def result(name: str, text: str, call_id: str = "c1") -> ToolResultMessage:
    return ToolResultMessage(call_id=call_id, tool_name=name, content=(TextBlock(text=text),))


def request(*messages: Message, model_id: str = "m") -> ModelRequest:
    return ModelRequest(model_id=model_id, messages=messages)


async def events_of(provider: ModelProvider, asked: ModelRequest) -> list[ModelEvent]:
    async with provider.stream(asked) as events:
        return [event async for event in events]


async def answer(provider: ModelProvider, *messages: Message) -> AssistantMessage:
    accumulator = Accumulator()
    for event in await events_of(provider, request(*messages)):
        accumulator.feed(event)
    return accumulator.message()


# ---- whole answers ----


async def test_it_answers_what_the_script_says() -> None:
    model = ScriptedModel(
        lambda ctx: Reply(
            f"You said {ctx.user_text}.",
            thinking="Hm.",
            tool_calls=[ToolCall("search", {"pattern": "x"}, id="c1")],
        )
    )

    assert await answer(model, user("hi")) == AssistantMessage(
        content=(
            ThinkingBlock(text="Hm."),
            TextBlock(text="You said hi."),
            ToolCallBlock(id="c1", name="search", arguments={"pattern": "x"}),
        ),
        stop_reason="tool_use",
        usage=Usage(input_tokens=1, output_tokens=8),
    )


async def test_a_script_decides_from_the_transcript() -> None:
    seen: list[ScriptedContext] = []

    def reply(ctx: ScriptedContext) -> Reply:
        seen.append(ctx)
        return Reply()

    transcript = (
        user("first"),
        AssistantMessage(content=(ToolCallBlock(id="c1", name="a", arguments={}),)),
        result("a", "one", "c1"),
        result("b", "two", "c2"),
        user("second"),
        result("b", "three", "c3"),
    )
    await events_of(ScriptedModel(reply), request(*transcript, model_id="large"))

    (ctx,) = seen
    assert ctx.messages == transcript
    assert ctx.last == transcript[-1]
    assert ctx.model_id == "large"
    assert ctx.user_text == "second"
    assert ctx.answers == 1
    assert ctx.tool_results("a") == transcript[2:3]
    assert [it.call_id for it in ctx.tool_results()] == ["c1", "c2", "c3"]


def test_an_empty_transcript_can_be_read_too() -> None:
    ctx = ScriptedContext(request())

    assert (ctx.last, ctx.user_text, ctx.answers, ctx.tool_results()) == (None, "", 0, ())


@pytest.mark.parametrize(
    ("reply", "stop_reason"),
    [
        (Reply("hi"), "stop"),
        (Reply(tool_calls=[ToolCall("a")]), "tool_use"),
        (Reply("hi", stop_reason="length"), "length"),
    ],
)
async def test_the_stop_reason_follows_from_the_calls_unless_given(
    reply: Reply, stop_reason: str
) -> None:
    assert (await answer(ScriptedModel(lambda _: reply))).stop_reason == stop_reason


async def test_chunks_cut_every_part_and_change_nothing() -> None:
    def reply(chunk: int | None) -> Reply:
        return Reply(
            "abcdef", thinking="xyz", tool_calls=[ToolCall("t", {"n": 12}, id="c")], chunk=chunk
        )

    whole = ScriptedModel(lambda _: reply(None))
    cut = ScriptedModel(lambda _: reply(4))

    events = await events_of(cut, request())
    assert [it for it in events if isinstance(it, TextDelta)] == [
        TextDelta("abcd"),
        TextDelta("ef"),
    ]
    assert [it for it in events if isinstance(it, ThinkingDelta)] == [ThinkingDelta("xyz")]
    assert [it for it in events if isinstance(it, ToolCallDelta)] == [
        ToolCallDelta(0, '{"n"'),
        ToolCallDelta(0, ":12}"),
    ]
    assert await answer(cut) == await answer(whole)


# ---- call ids ----


async def test_generated_call_ids_depend_on_the_request_alone() -> None:
    first, second = (
        ScriptedModel(lambda _: Reply(tool_calls=[ToolCall("a"), ToolCall("b", id="mine")]))
        for _ in range(2)
    )
    here, there = await answer(first, user("hi")), await answer(second, user("hi"))

    assert here == there
    assert here.tool_calls[0].id.startswith("call_1_1_")
    assert here.tool_calls[1].id == "mine"


async def test_generated_call_ids_never_repeat_in_a_conversation() -> None:
    """Three turns, then a compaction that leaves less to count than the first turn saw."""
    model = ScriptedModel(lambda _: Reply(tool_calls=[ToolCall("a"), ToolCall("a")]))
    ids: list[str] = []
    transcript: list[Message] = [user("go")]
    for _ in range(3):
        said = await answer(model, *transcript)
        ids += [call.id for call in said.tool_calls]
        transcript.append(said)
        transcript += [result("a", "same", call.id) for call in said.tool_calls]
    said = await answer(model, user("summary of what was before"), user("go"))
    ids += [call.id for call in said.tool_calls]

    assert len(set(ids)) == len(ids) == 8


# ---- usage ----


async def test_usage_is_given_or_estimated_and_reported_first() -> None:
    given = Usage(input_tokens=7, output_tokens=8, cost=0.5)
    events = await events_of(ScriptedModel(lambda _: Reply("hi", usage=given)), request())
    assert events[0] == UsageReport(given)

    transcript = (
        user("x" * 40),
        UserMessage(content=(ImageBlock(data="", media_type="image/png"),)),
        AssistantMessage(content=(ToolCallBlock(id="c", name="a", arguments={"key": "value"}),)),
    )
    estimated = await answer(ScriptedModel(lambda _: Reply("y" * 9)), *transcript)
    assert estimated.usage == Usage(input_tokens=10 + 1_000 + 4, output_tokens=3)


# ---- time ----


async def test_delays_take_the_time_they_say() -> None:
    model = ScriptedModel(lambda _: Reply("abc", delay_s=5, chunk=1, chunk_delay_s=2))
    started = trio.current_time()
    async with model.stream(request()) as events:
        assert trio.current_time() - started == 5
        async for event in events:
            if isinstance(event, TextDelta) and event.text == "a":
                assert trio.current_time() - started == 7

    assert trio.current_time() - started == 11


async def test_a_cancelled_wait_for_an_event_loses_none() -> None:
    model = ScriptedModel(lambda _: Reply("abc", chunk=1, chunk_delay_s=2))
    got: list[ModelEvent] = []
    cancelled = 0
    async with model.stream(request()) as events:
        while Finished("stop") not in got:
            for patience_s in (1, 3):
                with trio.move_on_after(patience_s):
                    got.append(await anext(events))
                    break
                cancelled += 1

    assert cancelled == 3
    assert got == await events_of(model, request())


async def test_every_step_is_a_checkpoint() -> None:
    model = ScriptedModel(lambda _: Reply("abc", chunk=1))
    with trio.testing.assert_checkpoints():
        stream = model.stream(request())
        events = await stream.__aenter__()
    for _ in range(5):
        with trio.testing.assert_checkpoints():
            await anext(events)
    with trio.testing.assert_checkpoints(), pytest.raises(StopAsyncIteration):
        await anext(events)
    await stream.__aexit__(None, None, None)


# ---- the script and its memory ----


async def test_it_remembers_the_newest_requests() -> None:
    model = ScriptedModel(lambda _: Reply())
    asked = [request(user(str(at))) for at in range(REQUESTS_KEPT + 3)]
    for each in asked:
        await events_of(model, each)

    assert model.requests == tuple(asked[3:])


async def test_many_requests_are_answered_at_once() -> None:
    model = ScriptedModel(lambda ctx: Reply(ctx.user_text, delay_s=1))
    answers: dict[str, AssistantMessage] = {}

    async def ask(text: str) -> None:
        answers[text] = await answer(model, user(text))

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for at in range(100):
            nursery.start_soon(ask, f"question {at}")

    assert trio.current_time() - started == 1
    assert all(it.content == (TextBlock(text=text),) for text, it in answers.items())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"chunk": 0}, "chunk of a Reply is 0"),
        ({"delay_s": -1}, "delay_s of a Reply is -1"),
        ({"chunk_delay_s": float("nan")}, "chunk_delay_s of a Reply is nan"),
        ({"fault": Garbage()}, "needs a tool call"),
    ],
)
def test_a_reply_that_cannot_be_played_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        Reply("hi", **options)  # type: ignore[arg-type]


def test_a_call_with_arguments_that_are_not_json_is_refused() -> None:
    with pytest.raises(InvalidValue, match="'open'"):
        ToolCall("open", {"path": b"/"})  # type: ignore[dict-item]
