"""Reservations: what a request or a call reserved is given back at every end, and lost is lost."""

from __future__ import annotations

import attrs
import pytest
import trio

from pidurable_actors import (
    Answer,
    Ask,
    Budget,
    Reply,
    ToolResult,
    tool,
)
from pidurable_actors.agent import BUDGET, BudgetState, Expired
from pidurable_actors.records import FailedOutcome, TaskId, Usage
from pidurable_actors.settings import RetrySettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import Agent, call, calling, codes, open_agent, turns
from tests.tasks.compacting import SMALL, compacting, echoing
from tests.tasks.test_budgets import limited

SLOW = Reply("x" * 40, delay_s=1_000)
SETTINGS = attrs.evolve(limited(conversation=Budget(tokens=10_000)), compaction=SMALL)


async def budget_of(agent: Agent) -> BudgetState:
    """What is reserved and lost in the root conversation."""
    return await agent.root.snapshot(BUDGET)


async def closed_in_flight(storage: MemoryStorage) -> None:
    """Close while a request is under way that has said nothing yet."""
    async with open_agent(storage, turns(SLOW), settings=SETTINGS) as agent:
        await agent.root.submit("go")
        await trio.sleep(3)
        assert (await budget_of(agent)).own.reserved


async def test_an_abort_right_after_a_close_gives_back_what_the_request_reserved() -> None:
    storage = MemoryStorage()
    await closed_in_flight(storage)
    async with open_agent(storage, turns(SLOW), settings=SETTINGS) as agent:
        await agent.root.abort()
        budget = await budget_of(agent)
        assert budget.own.reserved == {}
        assert budget.own.lost_tokens > 1_000


async def closed_in_compaction(storage: MemoryStorage) -> TaskId:
    """Close while the request for a summary is under way."""
    async with compacting(storage, echoing(SLOW), settings=SETTINGS) as it:
        await it.grow(3)
        task = await it.root.compact()
        await trio.sleep(3)
        assert (await budget_of(it.agent)).own.reserved
    return task


@pytest.mark.parametrize("how", ["aborted", "stale"])
async def test_however_a_summary_ends_after_a_close_nothing_stays_reserved(how: str) -> None:
    storage = MemoryStorage()
    task = await closed_in_compaction(storage)
    async with compacting(storage, echoing(SLOW), settings=SETTINGS) as it:
        if how == "aborted":
            await it.root.abort()
        else:
            await it.root.reset()
        it.harness.resume()
        await it.harness.wait_for_task(task)
        budget = await budget_of(it.agent)
        assert budget.own.reserved == {}
        assert budget.own.lost_tokens > 0


async def test_an_abort_before_the_request_is_sent_takes_nothing_from_the_budget() -> None:
    model = turns(SLOW)
    async with open_agent(MemoryStorage(), model, settings=SETTINGS) as agent:
        for _ in range(3):
            await agent.root.submit("go")
            await agent.root.abort()
            assert (await budget_of(agent)).own.reserved == {}
        assert not model.requests
        assert (await budget_of(agent)).own.lost_tokens == 0


async def test_an_abort_of_a_request_that_said_nothing_yet_counts_what_it_may_have_used() -> None:
    async with open_agent(MemoryStorage(), turns(SLOW), settings=SETTINGS) as agent:
        await agent.root.configure(max_output_tokens=100)
        await agent.root.submit("go")
        await trio.sleep(3)
        await agent.root.abort()
        budget = await budget_of(agent)
        assert budget.own.reserved == {}
        assert 100 < budget.own.lost_tokens < 200


async def test_a_model_that_fell_silent_is_paid_for() -> None:
    settings = attrs.evolve(SETTINGS, retry=RetrySettings(enabled=False))
    async with open_agent(MemoryStorage(), turns(SLOW), settings=settings) as agent:
        await agent.root.configure(max_output_tokens=100)
        assert (await agent.ask("go")).reason == "model_error"
        assert 100 < (await budget_of(agent)).own.lost_tokens < 200


async def test_a_summary_that_is_no_shorter_costs_what_it_used_and_no_more() -> None:
    used = Usage(input_tokens=40, output_tokens=10)
    no_shorter = echoing(Reply("word " * 400, usage=used))
    async with compacting(MemoryStorage(), no_shorter, settings=SETTINGS) as it:
        await it.grow(3)
        assert isinstance(await it.compacted(), FailedOutcome)
        budget = await budget_of(it.agent)
        assert (budget.own.reserved, budget.own.lost_tokens) == ({}, 0)


async def test_a_request_is_sent_again_after_a_close_only_as_far_as_the_budget_allows() -> None:
    """Each request may have used its question and its longest answer, in all no more than 500."""
    storage = MemoryStorage()
    settings = limited(conversation=Budget(tokens=500))
    model = turns(SLOW)
    async with open_agent(storage, model, settings=settings) as agent:
        await agent.root.configure(max_output_tokens=100)
        submission = await agent.root.submit("go")
        await trio.sleep(3)
    for _ in range(8):
        async with open_agent(storage, model, settings=settings) as agent:
            agent.harness.resume()
            await trio.sleep(3)
    async with open_agent(storage, model, settings=settings) as agent:
        again = await agent.harness.submission(submission.id)
        assert (await again.wait()).reason == "budget"
    longest = [request.options.max_output_tokens or 0 for request in model.requests]
    assert longest[:4] == [100] * 4
    assert sum(longest) <= 500
    assert len(longest) <= 5


async def test_a_summary_is_not_asked_for_again_beyond_the_limit() -> None:
    storage = MemoryStorage()
    task = await closed_in_compaction(storage)
    async with compacting(storage, echoing(SLOW), settings=SETTINGS) as it:
        outcome = await it.outcome(task)
        assert isinstance(outcome, FailedOutcome)
        assert isinstance(outcome.error, dict)
        assert outcome.error["reason"] == "budget"
        assert it.summarized == []
        assert (await budget_of(it.agent)).own.lost_tokens <= 10_000


async def test_the_time_of_a_budget_bounds_what_goes_on_after_a_question() -> None:
    @tool()
    async def move() -> Ask:
        """Move."""
        return Ask("Move it?")

    @move.resume
    async def moved(answer: Answer | Expired, *_: object) -> str:
        await trio.sleep(100)
        return "moved"

    model = turns(calling(call("move")), Reply("ok"))
    settings = limited(run=Budget(wall_s=5))
    async with open_agent(MemoryStorage(), model, move, settings=settings) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(3_600)
        (question,) = (await agent.harness.questions()).items
        await agent.harness.answer(question.id, True, by="ann")
        await submission.wait()
        assert codes(await agent.result_entry("c1")) == ["timeout"]


async def test_a_call_that_was_cut_off_counts_as_what_it_may_have_used() -> None:
    storage = MemoryStorage()

    @tool(reserve=Usage(cost=4.0))
    async def draw() -> ToolResult:
        """Draw."""
        await trio.sleep(100)
        return ToolResult("drawn", usage=Usage(cost=2.0))

    model = turns(calling(call("draw")), Reply("done"))
    settings = limited(conversation=Budget(cost=10.0))
    async with open_agent(storage, model, draw, settings=settings) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(3)
    async with open_agent(storage, model, draw, settings=settings) as agent:
        await (await agent.harness.submission(submission.id)).wait()
        budget = await budget_of(agent)
        assert budget.own.reserved == {}
        assert budget.own.lost_cost == 4.0
