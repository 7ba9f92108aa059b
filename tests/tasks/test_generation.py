"""Generation: its phases in the record, streaming partials, usage, faults."""

from __future__ import annotations

from typing import cast

import attrs
import pytest
import trio

from pidurable_actors import Conversation, Reply, Settings, Tx, tool
from pidurable_actors._json import JsonObject
from pidurable_actors.errors import ProviderError
from pidurable_actors.records import (
    OrphanedOutcome,
    Running,
    Sleeping,
    Usage,
    Waiting,
)
from pidurable_actors.settings import StreamSettings
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.tasks.generation import Generation
from tests._agents import (
    EXACT,
    MODEL,
    STORE_FIRST,
    Agent,
    call,
    calling,
    in_order,
    open_agent,
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
        assert checkpoint == {
            "phase": "request",
            "model": MODEL,
            "attempt": 1,
            "options": None,
            "tried": None,
        }
        await trio.sleep(10)
        state = (await agent.generation()).state
        assert isinstance(state, Waiting)
        assert state.checkpoint["phase"] == "tools"
        assert list(state.on) == agent.tool_tasks()
        await trio.sleep(6)
        state = (await agent.generation()).state
        assert isinstance(state, Sleeping)
        assert state.checkpoint == {"phase": "retry", "model": MODEL, "attempt": 2, "tried": None}
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
            assert (await agent.harness.usage()).models == usage.models


async def test_the_usage_of_a_harness_is_that_of_all_its_conversations() -> None:
    async with open_agent(MemoryStorage(), turns(Reply("ok", usage=USED))) as agent:
        other = await _second(agent)
        await agent.ask()
        await (await other.submit("go")).wait()
        total = await agent.harness.usage()
        assert total.models[MODEL].requests == 2
        assert (await other.usage()).models[MODEL].requests == 1


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
            tx.tasks.put(attrs.evolve(await tx.task(task.id), state=broken))

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
    return (await agent.live()).half_text


def _commit(storage: MemoryStorage) -> int:
    look = storage.snapshot()
    head = look.open(read_only=True)
    look.close()
    return head.commit
