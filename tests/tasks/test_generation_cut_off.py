"""A request in flight when the process ends: a crash counts an attempt, a close does not."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import Reply, Settings
from pidurable_actors.errors import ProviderError
from pidurable_actors.records import FailedOutcome, FaultedOutcome, Usage
from pidurable_actors.settings import RetrySettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    EXACT,
    MODEL,
    STORE_FIRST,
    all_tasks,
    ended,
    in_order,
    open_agent,
    peek,
    turns,
)
from tests.tasks.cutting import Photographed

USED = Usage(input_tokens=10, output_tokens=1, cost=0.5)
SLOW = Reply("half whole", chunk=5, chunk_delay_s=10, usage=USED)
WHOLE = Reply("half whole", usage=USED)
SETTINGS = Settings(retry=EXACT, progress=STORE_FIRST)


async def crash_during_a_request(storage: MemoryStorage, *, after_s: float) -> MemoryStorage:
    """What is left when the process dies so long after the (next) request was sent."""
    async with open_agent(storage, turns(SLOW), settings=SETTINGS) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(after_s)
        return storage.snapshot()


async def test_a_crash_counts_an_attempt_and_keeps_the_half_answer() -> None:
    crashed = await crash_during_a_request(MemoryStorage(), after_s=15)
    began = trio.current_time()
    model = turns(WHOLE)
    async with open_agent(crashed, model, settings=SETTINGS) as agent:
        submission = await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        assert await agent.lines() == ["user go", "assistant half  (aborted)"]
        assert model.requests == ()
        generation = (await agent.live()).generation
        assert generation is not None
        assert (generation.attempt, generation.partial) == (1, [])
        assert (await submission.wait()).status == "done"
        # The first backoff, from the record of the crash on.
        assert trio.current_time() - began == pytest.approx(2)
        assert (await agent.lines())[2:] == ["assistant half whole"]
        totals = (await agent.root.usage()).models[MODEL]
        assert (totals.requests, totals.input_tokens, totals.cost) == (2, 20, 1.0)
        assert agent.reports == []


async def test_a_crash_before_anything_was_stored_leaves_no_entry() -> None:
    crashed = await crash_during_a_request(MemoryStorage(), after_s=5)
    async with open_agent(crashed, turns(WHOLE), settings=SETTINGS) as agent:
        await agent.ask("go", request_id="r1")
        assert await agent.lines() == ["user go", "assistant half whole"]
        assert (await agent.root.usage()).models[MODEL].requests == 2


async def test_crash_after_crash_uses_the_retries_up_and_the_input_is_interrupted() -> None:
    storage = MemoryStorage()
    for attempt in range(1, 5):
        async with open_agent(storage, turns(SLOW), settings=SETTINGS) as agent:
            await agent.root.submit("go", request_id="r1")
            await trio.sleep(2.0 ** (attempt - 1) + 15 if attempt > 1 else 15)
            assert await agent.attempt() == attempt
            storage = storage.snapshot()
    async with open_agent(storage, turns(WHOLE), settings=SETTINGS) as agent:
        submission = await agent.root.submit("go", request_id="r1")
        settled = await submission.wait()
        assert (settled.status, settled.reason) == ("unanswered", "interrupted")
        assert settled.detail == {"attempts": 4}
        failure = (await agent.live()).run_failure
        assert failure is not None
        assert (failure.reason, failure.detail) == ("interrupted", {"attempts": 4})
        await wait_all_tasks_blocked()
        (report,) = agent.reports
        assert (report.kind, report.reason) == ("task_interrupted", "interrupted")
        assert await agent.lines() == ["user go"] + ["assistant half  (aborted)"] * 4
        assert (await agent.ask("again")).status == "done"


async def test_without_retries_one_crash_interrupts_the_run() -> None:
    crashed = await crash_during_a_request(MemoryStorage(), after_s=15)
    settings = Settings(retry=RetrySettings(enabled=False))
    model = turns(WHOLE)
    async with open_agent(crashed, model, settings=settings) as agent:
        settled = await agent.ask("go", request_id="r1")
        assert settled.reason == "interrupted"
        assert model.requests == ()
    with peek(crashed) as stored:
        (task,) = all_tasks(stored)
    outcome = ended(task).outcome
    assert isinstance(outcome, FailedOutcome)
    assert outcome.error == {"reason": "interrupted", "attempts": 1}


async def test_a_close_in_flight_sends_the_request_again_at_once_and_uncounted() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, turns(SLOW), settings=SETTINGS) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(15)
    model = turns(Reply("half whole", delay_s=1, usage=USED))
    began = trio.current_time()
    async with open_agent(storage, model, settings=SETTINGS) as agent:
        submission = await agent.root.submit("go", request_id="r1")
        await trio.sleep(0.5)
        generation = (await agent.live()).generation
        assert generation is not None
        # What the closed request had said is not shown beside the new one.
        assert (generation.attempt, generation.partial) == (1, [])
        assert (await submission.wait()).status == "done"
        assert trio.current_time() - began == pytest.approx(1)
        assert await agent.lines() == ["user go", "assistant half whole"]
        assert len(model.requests) == 1
        # Both requests were charged by the provider.
        assert (await agent.root.usage()).models[MODEL].cost == 1.0


async def test_a_crash_after_a_close_does_not_keep_what_the_closed_request_said() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, turns(SLOW), settings=SETTINGS) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(15)
    crashed = await crash_during_a_request(storage, after_s=5)
    async with open_agent(crashed, turns(WHOLE), settings=SETTINGS) as agent:
        await agent.ask("go", request_id="r1")
        assert await agent.lines() == ["user go", "assistant half whole"]


async def test_a_crash_while_it_waits_to_retry_counts_nothing() -> None:
    storage = MemoryStorage()
    slow = ProviderError("later", retryable=True, retry_after_s=60)
    async with open_agent(storage, in_order(slow), settings=SETTINGS) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(30)
        crashed = storage.snapshot()
    async with open_agent(crashed, turns(Reply("ok", delay_s=5)), settings=SETTINGS) as agent:
        submission = await agent.root.submit("go", request_id="r1")
        await trio.sleep(32)
        assert await agent.attempt() == 2
        assert (await submission.wait()).status == "done"
        assert trio.current_time() == pytest.approx(65)


async def test_a_generation_cut_off_too_often_ends_its_run_visibly() -> None:
    """The process dies each time before the cut can be dealt with: only the count goes on."""
    storage = await crash_during_a_request(MemoryStorage(), after_s=15)
    settings = Settings(retry=EXACT, restart_limit=3)
    for cuts in (1, 2):
        storage = await _die_when_it_runs_again(storage, settings, cuts)
    async with open_agent(storage, turns(WHOLE), settings=settings) as agent:
        settled = await agent.ask("go", request_id="r1")
        assert settled.reason == "restart_limit"
        failure = (await agent.live()).run_failure
        assert failure is not None
        assert failure.reason == "restart_limit"
        (report,) = agent.reports
        assert (report.kind, report.reason) == ("task_interrupted", "restart_limit")
        assert (await agent.ask("again")).status == "done"
    with peek(storage) as stored:
        outcome = ended(all_tasks(stored)[0]).outcome
    assert isinstance(outcome, FaultedOutcome)


async def _die_when_it_runs_again(
    storage: MemoryStorage, settings: Settings, cuts: int
) -> MemoryStorage:
    """What a process leaves that dies when it has reserved the task and stored nothing since."""
    photographed = Photographed(storage)
    async with open_agent(photographed, turns(WHOLE), settings=settings) as agent:
        await agent.ask("go", request_id="r1")
    for left in photographed.pictures:
        with peek(left) as stored:
            states = [(task.state.status, task.restarts) for task in all_tasks(stored)]
        if states == [("running", cuts)]:
            return left
    raise AssertionError("it never ran")
