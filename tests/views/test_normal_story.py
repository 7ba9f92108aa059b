"""Stories told by events: each thing that happens appears, in order, once."""

from __future__ import annotations

from collections.abc import Callable

import trio
from pytest import mark

from pidurable_actors import Harness, Reply, Settings, ToolApi, tool
from pidurable_actors.errors import ProviderError
from pidurable_actors.models.scripted import Break
from pidurable_actors.records import AssistantMessage, text_of
from pidurable_actors.settings import ProgressSettings
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.views import (
    BlockStarted,
    EntryAppended,
    Event,
    MessageCleared,
    MessageEnded,
    MessageUpdated,
    RetryScheduled,
    RunEnded,
    RunStarted,
    Snapshot,
    SubmissionChanged,
    TaskFailed,
    ToolAnswered,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
    TurnStarted,
)
from tests._agents import EXACT, STORE_FIRST, Answer, call, calling, in_order, registry_of, turns
from tests.views.following import Events, Frames, Replica, followed, replicated

LONG = "a rather long text, which is cut into many pieces, " * 8


@tool()
async def shout(text: str, *, api: ToolApi) -> str:
    """Say it loudly."""
    for word in text.split():
        await api.output(word.upper() + " ")
        await trio.sleep(0.03)
    return "done"


@tool()
async def pour(pieces: int, *, api: ToolApi) -> str:
    """Put out more than is kept."""
    for at in range(pieces):
        await api.output(f"{at} " * 4_000)
        await trio.sleep(0.07)
    return "poured"


@tool()
async def stumble(*, api: ToolApi) -> str:
    """Fail."""
    await api.output("on my way")
    await trio.sleep(1)
    raise ValueError("no")


async def told(
    *replies: Answer,
    settings: Settings | None = None,
    during: Callable[[Harness], object] | None = None,
) -> tuple[Frames, Events]:
    """What a run of the root conversation tells."""
    replica = Replica()
    tools = registry_of(shout, pour, stumble)
    async with (
        replicated(
            MemoryStorage(), replica, model=in_order(*replies), registry=tools, settings=settings
        ) as harness,
        followed(harness, replica) as (frames, events),
    ):
        root = await harness.root()
        await (await root.submit("go")).wait()
    assert events.compared > 2, "it was compared with what is shown, often"
    return frames, events


def names(events: list[Event], *, but: tuple[str, ...] = ()) -> list[str]:
    """The kinds of events, repeated ones once."""
    found: list[str] = []
    for event in events:
        name = type(event).__name__
        if name not in (*but, *found[-1:]):
            found.append(name)
    return found


UNIMPORTANT = ("ConversationChanged", "RunChanged", "UsageChanged", "InboxChanged")


def messages(events: list[Event]) -> list[list[str]]:
    """The blocks of each message, put together from what was told before it ended."""
    found: list[list[str]] = []
    blocks: list[str] = []
    for event in events:
        match event:
            case BlockStarted():
                assert event.at == len(blocks)
                blocks.append(event.text)
            case MessageUpdated():
                blocks[event.at] += event.text
            case MessageCleared():
                if blocks:
                    found.append(blocks)
                blocks = []
            case _:
                pass
    assert not blocks, "nothing is left open"
    return found


def stored(events: list[Event]) -> list[AssistantMessage]:
    """The messages that were stored."""
    found = [it.entry.model for it in events if isinstance(it, MessageEnded)]
    return [it[0] for it in found if it and isinstance(it[0], AssistantMessage)]


async def test_a_run_with_a_tool_tells_each_thing_in_order() -> None:
    _, events = await told(
        Reply("Let me see.", tool_calls=[call("shout", text="a b c")], chunk=3, chunk_delay_s=0.1),
        Reply("All done now.", chunk=4, chunk_delay_s=0.1),
    )
    assert names(events.events, but=UNIMPORTANT) == [
        "Snapshot",
        "SubmissionChanged",
        "EntryAppended",
        "RunStarted",
        "EntryAppended",
        "TurnStarted",
        "BlockStarted",
        "MessageUpdated",
        "BlockStarted",
        "MessageUpdated",
        "MessageEnded",
        "MessageCleared",
        "ToolStarted",
        "ToolUpdated",
        "ToolAnswered",
        "ToolEnded",
        "TurnStarted",
        "BlockStarted",
        "MessageUpdated",
        "SubmissionChanged",
        "MessageEnded",
        "MessageCleared",
        "RunEnded",
    ]
    (started,) = [it for it in events.events if isinstance(it, ToolStarted)]
    assert (started.call_id, started.name) == ("c1", "shout")
    assert [it.turn for it in events.events if isinstance(it, TurnStarted)] == [1, 2]
    (run,) = [it for it in events.events if isinstance(it, RunStarted)]
    first, last = [it.submission for it in events.events if isinstance(it, SubmissionChanged)]
    assert run.submissions == (first.id,)
    assert (first.status, last.status) == ("placed", "done")
    (ended,) = [it for it in events.events if isinstance(it, RunEnded)]
    assert ended.reason is None


@mark.slow
async def test_the_pieces_put_together_are_the_message_that_is_stored() -> None:
    """Stream thinking, text and calls with long arguments, shown and stored at odd moments."""
    for within_ms, interval_ms in ((1_000, 50), (130, 50), (60, 50), (1_000, 0), (0, 50)):
        _, events = await told(
            Reply(
                LONG,
                thinking=LONG + "hm",
                tool_calls=[call("shout", "c1", text=LONG[:90]), call("shout", "c2", text="b")],
                chunk=3,
                chunk_delay_s=0.007,
            ),
            Reply("The end." * 9, chunk=5, chunk_delay_s=0.3),
            settings=Settings(
                progress=ProgressSettings(persist_within_ms=within_ms, interval_ms=interval_ms)
            ),
        )
        one, two = messages(events.events)
        first, second = stored(events.events)
        assert one[:2] == [LONG + "hm", LONG]
        assert [text_of(first.content), text_of(second.content)] == [LONG, "The end." * 9]
        assert LONG[:90] in one[2]
        assert two == ["The end." * 9]
        started = [it for it in events.events if isinstance(it, BlockStarted)]
        assert [it.type for it in started[:4]] == ["thinking", "text", "tool_call", "tool_call"]
        assert [it.name for it in started[2:4]] == ["shout", "shout"]


@mark.slow
async def test_nothing_that_was_shown_is_taken_back_by_another_commit() -> None:
    """Commit something else all the time while a message streams; no message is ever cleared."""
    replica = Replica()
    model = turns(Reply(LONG, thinking=LONG, chunk=5, chunk_delay_s=0.011))
    async with replicated(MemoryStorage(), replica, model=model) as harness:
        root = await harness.root()
        async with followed(harness, replica) as (_, events), trio.open_nursery() as nursery:

            async def disturb() -> None:
                while True:
                    await root.configure(thinking_level="low")
                    await root.configure(thinking_level="high")
                    await trio.sleep(0.013)

            nursery.start_soon(disturb)
            await (await root.submit("go")).wait()
            nursery.cancel_scope.cancel()
    assert messages(events.events) == [[LONG, LONG]]


async def test_output_of_tools_is_told_as_it_grows_and_is_cut() -> None:
    """Put out many times what is kept; what is added is told as text, never the whole again."""
    frames, events = await told(calling(call("pour", pieces=40)), Reply("ok"))
    updates = [it for it in events.events if isinstance(it, ToolUpdated)]
    added = "".join(it.text for it in updates)
    assert added == "".join(f"{at} " * 4_000 for at in range(40))[: len(added)]
    assert sum(len(str(it.operations)) for it in updates) < 2 * len(added)
    assert max(len(str(it.operations)) for it in updates) < 200_000
    assert frames.wholes == 1


async def test_a_tool_that_fails_is_told_as_answered_and_as_a_task_that_failed() -> None:
    _, events = await told(calling(call("stumble")), Reply("ok"))
    (answered,) = [it for it in events.events if isinstance(it, ToolAnswered)]
    (failed,) = [it for it in events.events if isinstance(it, TaskFailed)]
    assert answered.is_error
    assert (failed.kind, failed.status, failed.number) == ("pi.tool", "failed", answered.number)
    assert len([it for it in events.events if isinstance(it, ToolEnded)]) == 1


async def test_a_request_that_fails_is_told_as_a_retry_and_its_half_answer_as_a_message() -> None:
    error = ProviderError("overloaded", retryable=True)
    _, events = await told(
        Reply("It breaks off", chunk=2, chunk_delay_s=0.1, fault=Break(6, error)),
        Reply("Better."),
        settings=Settings(retry=EXACT),
    )
    changed: dict[str, object] = {}
    history = []
    for event in events.events:
        if isinstance(event, RetryScheduled):
            changed |= event.changed
            history.append(dict(changed))
    assert {"retry_at_ms", "error"} <= history[1].keys()
    assert history[1]["error"] == "overloaded"
    assert history[-1] == {"attempt": 2, "retry_at_ms": None, "error": None}
    assert messages(events.events) == [["It bre"], ["Better."]]
    assert [text_of(it.content) for it in stored(events.events)] == ["It bre", "Better."]


async def test_a_run_that_fails_says_why_it_ended() -> None:
    _, events = await told(
        ProviderError("no such key", retryable=False, kind="auth"), settings=Settings(retry=EXACT)
    )
    (ended,) = [it for it in events.events if isinstance(it, RunEnded)]
    assert ended.reason == "model_error"
    assert isinstance(ended.detail, dict)
    assert ended.detail["message"] == "no such key"
    (failed,) = [it for it in events.events if isinstance(it, TaskFailed)]
    assert failed.kind == "pi.generation"
    last = [it.submission for it in events.events if isinstance(it, SubmissionChanged)][-1]
    assert (last.status, last.reason) == ("unanswered", "model_error")


async def test_within_a_commit_submissions_come_first_then_entries_then_documents() -> None:
    _, events = await told(Reply("Hello."), settings=Settings(progress=STORE_FIRST))
    newest = max(it.number or 0 for it in events.events)
    last = names([it for it in events.events if it.number == newest])
    assert last[:2] == ["SubmissionChanged", "MessageEnded"]
    order = [type(it) for it in events.events if not isinstance(it, Snapshot)]
    assert order.index(EntryAppended) < order.index(RunStarted)
