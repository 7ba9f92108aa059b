"""Generation: its phases in the record, streaming partials, provider errors, usage, faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import attrs
import pytest
import trio

from pidurable_actors import Conversation, Reply, ScriptedModel, Settings, Tx, tool
from pidurable_actors._json import JsonObject
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import (
    Break,
    ModelEvent,
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
    OrphanedOutcome,
    Running,
    Sleeping,
    TextBlock,
    Usage,
    UserMessage,
    Waiting,
)
from pidurable_actors.settings import RetrySettings, StreamSettings
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.tasks.generation import Generation
from tests._agents import (
    EXACT,
    MODEL,
    STORE_FIRST,
    Agent,
    all_tasks,
    call,
    calling,
    ended,
    in_order,
    open_agent,
    peek,
    short,
    turns,
)

OVERLOADED = ProviderError("overloaded", retryable=True, kind="overloaded")
USED = Usage(input_tokens=10, output_tokens=1, cost=0.5)


@tool()
async def work() -> str:
    """Work for ten seconds."""
    await trio.sleep(10)
    return "worked"


async def test_the_phase_of_a_run_is_in_its_record() -> None:
    model = in_order(
        Reply(tool_calls=[call("work")], delay_s=10), OVERLOADED, Reply("done", delay_s=10)
    )
    async with open_agent(MemoryStorage(), model, work, settings=Settings(retry=EXACT)) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(5)
        record = await agent.generation()
        assert isinstance(record.state, Running)
        checkpoint = dict(record.state.checkpoint)
        (newest,) = [entry.id for entry in await agent.entries()]
        assert cast("int", checkpoint.pop("newest")) >= newest
        assert checkpoint == {"phase": "request", "model": MODEL, "attempt": 1}
        await trio.sleep(10)
        state = (await agent.generation()).state
        assert isinstance(state, Waiting)
        assert state.checkpoint["phase"] == "tools"
        assert list(state.on) == agent.tool_tasks()
        await trio.sleep(6)
        state = (await agent.generation()).state
        assert isinstance(state, Sleeping)
        assert state.checkpoint == {"phase": "retry", "model": MODEL, "attempt": 2}
        assert (await submission.wait()).status == "done"


async def test_the_live_document_shows_run_tools_and_retry() -> None:
    model = in_order(calling(call("work")), OVERLOADED, Reply("done"))
    async with open_agent(MemoryStorage(), model, work, settings=Settings(retry=EXACT)) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(5)
        live = await agent.live()
        assert live.run is not None
        assert live.run.submissions == [submission.id]
        assert live.run.turns == 1
        (slot,) = live.tools.values()
        assert (slot.call_id, slot.tool_name) == ("c1", "work")
        await trio.sleep(6)
        generation = (await agent.live()).generation
        assert generation is not None
        assert generation.error == "overloaded"
        assert generation.retry_at_ms is not None
        await submission.wait()
        live = await agent.live()
        assert (live.run, live.generation, live.tools, live.run_failure) == (None, None, {}, None)


# --- partials ---


async def test_a_streaming_answer_is_stored_within_the_time_of_the_settings() -> None:
    """One character each 100 ms: after any second, no more than the last second is missing."""
    model = turns(Reply("x" * 100, chunk=1, chunk_delay_s=0.1))
    storage = MemoryStorage()
    async with open_agent(storage, model) as agent:
        await agent.root.submit("go")
        before = _commit(storage)
        for second in range(1, 10):
            await trio.sleep_until(second + 0.05)
            shown = second * 10
            assert shown - 11 <= len(await _partial(agent)) <= shown
        assert _commit(storage) - before <= 18
        await agent.root.wait_for_idle()


async def test_with_zero_every_piece_is_stored_before_the_next_comes() -> None:
    model = turns(Reply("abcdef", chunk=1, chunk_delay_s=1))
    async with open_agent(MemoryStorage(), model, settings=Settings(progress=STORE_FIRST)) as agent:
        await agent.root.submit("go")
        for second in range(1, 6):
            await trio.sleep_until(second + 0.5)
            assert await _partial(agent) == "abcdef"[:second]
        await agent.root.wait_for_idle()
        assert (await agent.lines())[-1] == "assistant abcdef"


async def test_storing_slowly_is_not_the_silence_of_the_model() -> None:
    """A commit callback holds the line for longer than the model may be silent."""
    model = turns(Reply("abcd", chunk=1, chunk_delay_s=0.2))
    settings = Settings(progress=STORE_FIRST, stream=StreamSettings(idle_timeout_s=1))
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        submission = await agent.root.submit("go")

        async def hold(_: Tx) -> None:
            await trio.sleep(3)

        await trio.sleep(0.3)
        await agent.root.commit(hold)
        assert (await submission.wait()).status == "done"
        assert (await agent.root.usage()).models[MODEL].requests == 1


# --- provider errors ---


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
    assert second == ["user go", "user later", "assistant answer", "user more"]


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
        assert (await agent.ask("good")).status == "done"


class Groups:
    """A provider that fails in its own nursery, once it has said something."""

    name = "scripted"

    def models(self) -> None:
        """Any."""

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


# --- usage ---


async def test_usage_adds_up_over_turns_runs_and_restarts() -> None:
    storage = MemoryStorage()
    model = turns(Reply(tool_calls=[call("work")], usage=USED), Reply("done", usage=USED))
    for runs in (1, 2):
        async with open_agent(storage, model, work) as agent:
            await agent.ask(str(runs))
            usage = await agent.root.usage()
            assert usage.models[MODEL].requests == runs + 1
            assert usage.models[MODEL].input_tokens == 10 * (runs + 1)
            assert usage.tools == {"work": 1}
            assert await agent.harness.usage() == usage


async def test_the_usage_of_a_harness_is_that_of_all_its_conversations() -> None:
    async with open_agent(MemoryStorage(), turns(Reply("ok", usage=USED))) as agent:
        other = await _second(agent)
        await agent.ask()
        await (await other.submit("go")).wait()
        total = await agent.harness.usage()
        assert total.models[MODEL].requests == 2
        assert (await other.usage()).models[MODEL].requests == 1


# --- what only goes wrong ---


@pytest.mark.parametrize(
    "damaged", [{"entry": 5, "started": 1}, {"entry": 99, "started": 1}, {"entry": "x"}]
)
async def test_a_run_whose_record_is_damaged_faults_and_the_conversation_goes_on(
    damaged: JsonObject,
) -> None:
    """The task's own code cannot go on: the run ends visibly, and nothing else ends."""
    model = turns(calling(call("work")), Reply("x"))
    async with open_agent(MemoryStorage(), model, work) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        task = await agent.generation()
        assert isinstance(task.state, Waiting)
        broken = Waiting(checkpoint={"phase": "tools", **damaged}, on=task.state.on)

        async def breaks(tx: Tx) -> None:
            tx.put_task(attrs.evolve(await tx.task(task.id), state=broken))

        await agent.root.commit(breaks)
        settled = await submission.wait()
        assert settled.reason == "faulted"
        assert isinstance(settled.detail, dict)
        assert [report.kind for report in agent.reports] == ["task_faulted"]
        assert (await agent.ask()).status == "done"


async def test_a_run_whose_task_is_orphaned_ends_as_orphaned() -> None:
    model = turns(Reply("late", delay_s=10))
    async with open_agent(MemoryStorage(), model) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        task = await agent.generation()
        outcome = OrphanedOutcome(reason="gone")
        await agent.root.commit(lambda tx: Generation.ended_by_runtime(tx, task, outcome))
        assert (await submission.wait()).reason == "orphaned"


async def _second(agent: Agent) -> Conversation:
    other = await agent.harness.create_conversation()
    await other.configure(model=MODEL)
    return other


async def _partial(agent: Agent) -> str:
    generation = (await agent.live()).generation
    assert generation is not None
    return "".join(
        str(block["text"])
        for message in generation.partial
        if isinstance(message, dict) and isinstance(message["content"], list)
        for block in message["content"]
        if isinstance(block, dict)
    )


def _commit(storage: MemoryStorage) -> int:
    look = storage.snapshot()
    head = look.open(read_only=True)
    look.close()
    return head.commit
