"""Providers that fail: backoff, silence, broken streams, bugs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from pidurable_actors import Reply, ScriptedModel, Settings
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import (
    Break,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    ScriptedContext,
    Stall,
    TextDelta,
    Truncate,
    UsageReport,
)
from pidurable_actors.records import (
    ROOT_ID,
    EntryDraft,
    FailedOutcome,
    TextBlock,
    Usage,
    UserMessage,
)
from pidurable_actors.settings import RetrySettings, StreamSettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    EXACT,
    MODEL,
    all_tasks,
    ended,
    in_order,
    open_agent,
    peek,
    short,
    turns,
)

OVERLOADED = ProviderError("overloaded", retryable=True, kind="overloaded")


USED = Usage(input_tokens=10, output_tokens=1, cost=0.5)


async def test_a_retryable_error_backs_off_and_then_the_answer_comes() -> None:
    model = in_order(OVERLOADED, OVERLOADED, Reply("at last"))
    async with open_agent(MemoryStorage(), model, settings=Settings(retry=EXACT)) as agent:
        assert (await agent.ask()).status == "done"
        assert trio.current_time() == pytest.approx(2 + 4)
        # Nothing of the user's is lost or repeated, and entries of earlier tries stay (C21).
        assert await agent.lines() == ["user go", "assistant at last"]


async def test_the_wait_is_never_shorter_than_the_provider_asks_for() -> None:
    patient = ProviderError("slow down", retryable=True, retry_after_s=90)
    async with open_agent(
        MemoryStorage(), in_order(patient, Reply("ok")), settings=Settings(retry=EXACT)
    ) as agent:
        await agent.ask()
        assert trio.current_time() == pytest.approx(90)


async def test_retries_that_are_used_up_end_the_run_with_the_providers_words() -> None:
    storage = MemoryStorage()
    model = in_order(OVERLOADED)
    async with open_agent(storage, model, settings=Settings(retry=EXACT)) as agent:
        settled = await agent.ask()
        assert (settled.status, settled.reason) == ("unanswered", "model_error")
        assert settled.detail == {"kind": "overloaded", "message": "overloaded", "attempts": 4}
        assert trio.current_time() == pytest.approx(2 + 4 + 8)
        assert len(model.requests) == 4
        failure = (await agent.live()).run_failure
        assert failure is not None
        assert (failure.reason, failure.detail) == ("model_error", settled.detail)
        assert agent.reports == []
    with peek(storage) as stored:
        (task,) = all_tasks(stored)
    outcome = ended(task).outcome
    assert isinstance(outcome, FailedOutcome)
    assert outcome.error == settled.detail


async def test_an_error_that_no_retry_cures_ends_the_run_at_once() -> None:
    refusal = ProviderError("bad request", kind="invalid")
    async with open_agent(MemoryStorage(), in_order(refusal, Reply("never"))) as agent:
        settled = await agent.ask()
        assert settled.reason == "model_error"
        assert settled.detail == {"kind": "invalid", "message": "bad request", "attempts": 1}
        assert trio.current_time() == 0


async def test_without_retries_the_first_error_ends_the_run() -> None:
    settings = Settings(retry=RetrySettings(enabled=False))
    async with open_agent(MemoryStorage(), in_order(OVERLOADED), settings=settings) as agent:
        settled = await agent.ask()
        assert settled.reason == "model_error"
        assert trio.current_time() == 0


async def test_a_backoff_survives_a_reopen() -> None:
    """The wait is a time in the record: the second process does not begin it again."""
    storage = MemoryStorage()
    slow = ProviderError("later", retryable=True, retry_after_s=3_600)
    async with open_agent(storage, in_order(slow), settings=Settings(retry=EXACT)) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(600)
    async with open_agent(storage, turns(Reply("ok")), settings=Settings(retry=EXACT)) as agent:
        again = await agent.harness.submission(submission.id)
        assert (await again.wait()).status == "done"
        assert trio.current_time() == pytest.approx(3_600)


async def test_a_request_that_is_sent_again_asks_the_same_as_before() -> None:
    """What was appended since belongs to the next request."""
    storage = MemoryStorage()
    async with open_agent(storage, turns(Reply("late", delay_s=10))) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
    model = turns(Reply("answer"))
    async with open_agent(storage, model) as agent:
        later = EntryDraft(
            kind="app.note", model=(UserMessage(content=(TextBlock(text="later"),)),)
        )
        await agent.root.commit(lambda tx: tx.append_entry(ROOT_ID, later))
        await agent.ask("go", request_id="r1")
        await agent.ask("more")
    first, second = [[short(m) for m in request.messages] for request in model.requests]
    assert first == ["user go"]
    assert second == ["user golater", "assistant answer", "user more"]


async def test_a_silent_stream_is_cut_and_tried_again_and_what_came_is_kept() -> None:
    """C17: the watchdog's cut settles like any failure."""
    settings = Settings(retry=EXACT, stream=StreamSettings(idle_timeout_s=0.3))
    model = in_order(Reply("abcdef", chunk=1, fault=Stall(3)), Reply("whole"))
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        assert (await agent.ask()).status == "done"
        assert trio.current_time() == pytest.approx(0.3 + 2)
        assert await agent.lines() == ["user go", "assistant abc (aborted)", "assistant whole"]


async def test_a_model_that_is_silent_for_ever_ends_the_run() -> None:
    settings = Settings(retry=EXACT, stream=StreamSettings(idle_timeout_s=0.3))
    async with open_agent(
        MemoryStorage(), in_order(Reply("a", fault=Stall(0))), settings=settings
    ) as agent:
        settled = await agent.ask()
        assert settled.reason == "model_error"
        assert isinstance(settled.detail, dict)
        assert settled.detail["kind"] == "timeout"
        assert await agent.lines() == ["user go"]


@pytest.mark.parametrize("fault", [Truncate(3), Break(3, OVERLOADED)])
async def test_a_broken_stream_keeps_what_came_and_is_tried_again(fault: Truncate | Break) -> None:
    model = in_order(Reply("abcdef", chunk=1, fault=fault, usage=USED), Reply("whole", usage=USED))
    async with open_agent(MemoryStorage(), model, settings=Settings(retry=EXACT)) as agent:
        assert (await agent.ask()).status == "done"
        assert await agent.lines() == ["user go", "assistant abc (aborted)", "assistant whole"]
        half = (await agent.entries())[1].model
        assert half is not None
        assert half[0].role == "assistant"
        assert (half[0].model, half[0].usage) == (MODEL, USED)
        # The half answer is not shown to the model.
        assert [message.role for message in model.requests[1].messages] == ["user"]
        totals = (await agent.root.usage()).models[MODEL]
        assert (totals.requests, totals.input_tokens, totals.cost) == (2, 20, 1.0)


async def test_a_bug_of_a_provider_ends_its_run_and_nothing_else() -> None:
    def script(ctx: ScriptedContext) -> Reply:
        if ctx.user_text == "bad":
            raise ZeroDivisionError("a bug")
        return Reply("fine")

    async with open_agent(MemoryStorage(), ScriptedModel(script)) as agent:
        settled = await agent.ask("bad")
        assert settled.reason == "model_error"
        assert isinstance(settled.detail, dict)
        assert settled.detail["message"] == "ZeroDivisionError: a bug"
        # With the exception itself, whose traceback says where the bug is.
        (told,) = agent.reports
        assert (told.kind, type(told.error)) == ("handler_failed", ZeroDivisionError)
        assert (await agent.ask("good")).status == "done"


class Groups:
    """A provider that fails in its own nursery, once it has said something."""

    name = "scripted"

    def models(self) -> None:
        """Any."""

    def info(self, model_id: str) -> ModelInfo:
        """Nothing."""
        return ModelInfo()

    @asynccontextmanager
    async def stream(self, _: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Fail after one event."""

        async def events() -> AsyncIterator[ModelEvent]:
            await trio.lowlevel.checkpoint()
            yield UsageReport(USED)
            yield TextDelta("half")
            raise ExceptionGroup("two", [OSError("one"), OSError("two")])

        yield events()


async def test_a_provider_that_raises_a_group_ends_its_run() -> None:
    async with open_agent(MemoryStorage(), Groups()) as agent:
        settled = await agent.ask()
        assert settled.reason == "model_error"
        assert await agent.lines() == ["user go", "assistant half (aborted)"]
