"""Budgets: reserved before a request or a call, counted once, never reset by a restart (C59)."""

from __future__ import annotations

import attrs
import pytest
import trio

from pidurable_actors import (
    AgentChoice,
    Answer,
    Ask,
    Budget,
    BudgetSettings,
    CompactionSettings,
    Extension,
    HookApi,
    Registry,
    Reply,
    ScriptedContext,
    ScriptedModel,
    Settings,
    ToolApi,
    ToolResult,
    hook,
    tool,
)
from pidurable_actors.agent import BUDGET, USAGE, Expired
from pidurable_actors.errors import ProviderError, Unanswered
from pidurable_actors.models import Break, ModelInfo
from pidurable_actors.records import (
    AssistantMessage,
    CompletedOutcome,
    FailedOutcome,
    SubmissionRecord,
    Usage,
    text_of,
)
from pidurable_actors.settings import ProgressSettings, RetrySettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    EXACT,
    MODEL,
    Agent,
    call,
    calling,
    codes,
    open_agent,
    turns,
)

NONE = Budget()
SMALL = Usage(input_tokens=40, output_tokens=10)
PRICES = ModelInfo(input_price=1_000_000, output_price=2_000_000)
"""A token asked with costs 1, one answered 2."""


def limited(*, run: Budget = NONE, conversation: Budget = NONE, subtree: Budget = NONE) -> Settings:
    """Settings with budgets, which retry at exact times."""
    budget = BudgetSettings(run=run, conversation=conversation, subtree=subtree)
    return Settings(budget=budget, retry=EXACT)


def refused(record: SubmissionRecord) -> tuple[str, str]:
    """Which limit ended a run."""
    assert record.reason == "budget", record
    assert isinstance(record.detail, dict)
    return str(record.detail["scope"]), str(record.detail["limit"])


def near(agent: Agent) -> list[str]:
    """What the host was told of near limits."""
    return [report.detail for report in agent.reports if report.kind == "budget_near"]


def spends(ctx: ScriptedContext) -> Reply:
    """Every answer uses 50 tokens."""
    return Reply("ok", usage=SMALL)


async def test_a_run_that_cannot_pay_its_question_asks_nothing() -> None:
    model = ScriptedModel(spends)
    async with open_agent(MemoryStorage(), model, settings=limited(run=Budget(tokens=10))) as agent:
        record = await agent.ask("a question that is longer than ten tokens of four bytes each")
        assert refused(record) == ("run", "tokens")
        assert not model.requests
        assert (await agent.root.snapshot(BUDGET)).own.reserved == {}


async def test_an_answer_may_be_no_longer_than_what_is_left() -> None:
    model = ScriptedModel(spends)
    settings = limited(conversation=Budget(tokens=200))
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        await agent.ask("go")
        (request,) = model.requests
        assert request.options.max_output_tokens is not None
        assert 150 < request.options.max_output_tokens < 200
        await agent.ask("go")
        later = model.requests[-1].options.max_output_tokens
        assert later is not None
        assert later < request.options.max_output_tokens - 50


async def test_a_choice_of_the_longest_answer_stays_when_there_is_more_left() -> None:
    model = ScriptedModel(spends)
    settings = limited(run=Budget(tokens=10_000))
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        await agent.root.configure(max_output_tokens=64)
        await agent.ask("go")
        assert model.requests[-1].options.max_output_tokens == 64


async def test_a_conversation_stops_at_its_tokens_and_goes_on_when_they_are_raised() -> None:
    """Runs of 50 tokens against 120; then the limit is raised and the failed run continued."""
    model = ScriptedModel(spends)
    now = [limited(conversation=Budget(tokens=120))]
    async with open_agent(MemoryStorage(), model, settings=lambda: now[0]) as agent:
        assert [(await agent.ask("go")).status for _ in range(2)] == ["done", "done"]
        record = await agent.ask("the third question, long enough to pass what is left of it all")
        assert refused(record) == ("conversation", "tokens")
        now[0] = limited(conversation=Budget(tokens=1_000))
        again = await agent.root.retry()
        assert (await again.wait()).status == "done"
        assert len([line for line in await agent.lines() if line.startswith("user")]) == 3


async def test_money_is_counted_by_the_provider_s_prices() -> None:
    model = ScriptedModel(spends, info=PRICES)
    settings = limited(conversation=Budget(cost=150.0))
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        await agent.ask("go")
        usage = await agent.root.usage()
        assert usage.models[MODEL].cost == pytest.approx(60.0)
        most = model.requests[-1].options.max_output_tokens
        assert most is not None
        assert 60 < most < 75  # at 2 for each, after the price of the question
        await agent.ask("go")
        record = await agent.ask(
            "one more, and that is too much for the rest of the money there is"
        )
        assert refused(record) == ("conversation", "cost")


async def test_turns_are_limited_per_run_and_per_conversation() -> None:
    @tool(replay="safe")
    async def look() -> str:
        """Look."""
        return "nothing"

    model = ScriptedModel(lambda ctx: calling(call("look", f"c{ctx.answers}")))
    settings = limited(run=Budget(turns=3), conversation=Budget(turns=5))
    async with open_agent(MemoryStorage(), model, look, settings=settings) as agent:
        assert refused(await agent.ask("one")) == ("run", "turns")
        asked = len(model.requests)
        assert asked == 3
        assert len(await agent.results()) == 3  # those of the last turn, too
        assert refused(await agent.ask("two")) == ("conversation", "turns")
        assert len(model.requests) - asked == 2
        assert (await agent.root.usage()).turns == 5


async def test_time_that_runs_out_cuts_the_answer_and_keeps_what_came() -> None:
    model = turns(Reply("a b c d e f", chunk=2, chunk_delay_s=1))
    settings = limited(run=Budget(wall_s=3.5))
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        assert refused(await agent.ask("go")) == ("run", "wall_s")
        assert trio.current_time() == pytest.approx(3.5)
        assert (await agent.lines())[1] == "assistant a b c  (aborted)"
        assert (await agent.root.usage()).run_ms == 3_500


async def test_time_that_runs_out_ends_a_call() -> None:
    @tool(replay="safe")
    async def wait() -> str:
        """Wait."""
        await trio.sleep(60)
        return "waited"

    settings = limited(run=Budget(wall_s=5))
    async with open_agent(
        MemoryStorage(), turns(calling(call("wait"))), wait, settings=settings
    ) as agent:
        assert refused(await agent.ask("go")) == ("run", "wall_s")
        assert codes(await agent.result_entry("c1")) == ["timeout"]
        assert trio.current_time() == pytest.approx(5)


async def test_the_time_of_a_conversation_is_that_of_its_runs() -> None:
    settings = limited(conversation=Budget(wall_s=5))
    async with open_agent(
        MemoryStorage(), turns(Reply("ok", delay_s=2)), settings=settings
    ) as agent:
        assert (await agent.ask("one")).status == "done"
        await trio.sleep(3_600)
        assert (await agent.ask("two")).status == "done"
        assert refused(await agent.ask("three")) == ("conversation", "wall_s")
        assert (await agent.root.usage()).run_ms == 5_000


async def test_what_is_used_below_counts_above_and_in_every_subtree() -> None:
    @tool(replay="safe")
    async def delegate(*, api: ToolApi) -> str:
        """Let another conversation work."""
        helper = await api.create_conversation("helper", agent=AgentChoice(model=MODEL))
        return await (await helper.submit("deep")).answer()

    def script(ctx: ScriptedContext) -> Reply:
        deep = ctx.user_text == "deep"
        if deep or ctx.tool_results():
            return Reply("done", usage=SMALL)
        return Reply(tool_calls=[call("delegate")], usage=SMALL)

    async with open_agent(MemoryStorage(), ScriptedModel(script), delegate) as agent:
        await agent.ask("go")
        usage = await agent.root.snapshot(USAGE)
        assert usage.models[MODEL].requests == 2
        assert usage.below.models[MODEL].requests == 1
        assert (usage.turns, usage.below.turns) == (2, 1)
        assert (await agent.harness.usage()).models[MODEL].requests == 3
        assert (await agent.harness.usage()).tools == {"delegate": 1}


async def test_parallel_subagents_stay_within_the_budget_of_their_subtree() -> None:
    """C59: ten at once, of 1,000 tokens; each may answer as long as its part of what is left."""
    used: list[int] = []

    @tool(replay="safe")
    async def delegate(who: str, *, api: ToolApi) -> str:
        """Let another conversation work."""
        helper = await api.create_conversation(
            "helper", agent=AgentChoice(model=MODEL, max_output_tokens=150)
        )
        try:
            return await (await helper.submit(f"deep {who}")).answer()
        except Unanswered as error:
            return error.reason

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.user_text.startswith("deep"):
            most = ctx.request.options.max_output_tokens
            assert most is not None
            usage = Usage(input_tokens=10, output_tokens=most)
            used.append(10 + most)
            return Reply("done", usage=usage, delay_s=1)
        if ctx.tool_results():
            return Reply("all done", usage=Usage())
        calls = [call("delegate", f"c{at}", who=str(at)) for at in range(10)]
        return Reply(tool_calls=calls, usage=Usage())

    settings = limited(subtree=Budget(tokens=1_500))
    async with open_agent(
        MemoryStorage(), ScriptedModel(script), delegate, settings=settings
    ) as agent:
        await agent.root.configure(max_output_tokens=100)
        await agent.ask("go")
        assert 1_000 < sum(used) <= 1_500
        results = [m.content for m in (await agent.results()).values()]
        words = {block.text for content in results for block in content if hasattr(block, "text")}
        assert words == {"done", "budget"}
        state = await agent.root.snapshot(BUDGET)
        assert (state.own.reserved, state.below.reserved) == ({}, {})


async def test_the_host_is_told_once_that_a_limit_is_near_and_again_when_it_was_raised() -> None:
    storage, model = MemoryStorage(), ScriptedModel(spends)
    settings = limited(conversation=Budget(turns=5))
    told: list[str] = []
    for _ in range(4):
        async with open_agent(storage, model, settings=settings) as agent:
            await agent.ask("go")
            told += near(agent)
    assert told == ["conversation turns: 4 of 5"]
    async with open_agent(storage, model, settings=limited(conversation=Budget(turns=6))) as agent:
        await agent.ask("go")
        assert near(agent) == ["conversation turns: 5 of 6"]


async def test_a_limit_that_is_near_is_told_of_once_in_a_run_that_a_hook_continues() -> None:
    @hook.on_yield
    async def more(_: AssistantMessage, __: HookApi) -> str:
        return "go on"

    registry = Registry([Extension("test", hooks=[more])])
    settings = limited(run=Budget(turns=1))
    async with open_agent(
        MemoryStorage(), ScriptedModel(spends), registry=registry, settings=settings
    ) as agent:
        assert refused(await agent.ask("go")) == ("run", "turns")
        assert near(agent) == ["run turns: 1 of 1"]


async def test_a_limit_is_not_near_because_an_answer_may_be_as_long_as_it_likes() -> None:
    model = ScriptedModel(spends)
    settings = limited(conversation=Budget(tokens=1_000))
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        while (await agent.ask("go")).status == "done" and not near(agent):
            pass
        assert len(model.requests) > 10
        (told,) = near(agent)
        assert told.startswith("conversation tokens: 8")


async def test_a_budget_of_a_conversation_takes_the_place_of_that_of_the_settings() -> None:
    settings = limited(conversation=Budget(turns=1))
    async with open_agent(MemoryStorage(), ScriptedModel(spends), settings=settings) as agent:
        own = BudgetSettings(conversation=Budget(turns=2), near=1.0)
        await agent.root.configure(budget=own)
        assert [(await agent.ask("go")).status for _ in range(3)] == ["done", "done", "unanswered"]
        assert not near(agent)[1:]
        await agent.root.configure(budget=None)
        assert refused(await agent.ask("go")) == ("conversation", "turns")
        other = await agent.harness.create_conversation(agent=AgentChoice(model=MODEL, budget=own))
        assert [(await (await other.submit("go")).wait()).status for _ in range(3)] == [
            "done",
            "done",
            "unanswered",
        ]


async def test_a_call_reserves_what_its_tool_says_and_is_not_run_beyond_the_limit() -> None:
    ran: list[str] = []

    @tool(replay="safe", reserve=Usage(cost=6.0))
    async def draw(who: str) -> ToolResult:
        """Draw."""
        ran.append(who)
        await trio.sleep(1)
        return ToolResult("drawn", usage=Usage(cost=2.0))

    model = turns(
        calling(*[call("draw", f"c{who}", who=who) for who in "ab"]),
        calling(call("draw", "cc", who="c")),
        Reply("done"),
    )
    settings = limited(conversation=Budget(cost=10.0))
    async with open_agent(MemoryStorage(), model, draw, settings=settings) as agent:
        assert (await agent.ask("go")).status == "done"
        assert len(ran) == 2  # two at once would have reserved 12
        results = await agent.results()
        assert sorted(result.is_error for result in results.values()) == [False, False, True]
        (blocked,) = [at for at, result in results.items() if result.is_error]
        assert codes(await agent.result_entry(blocked)) == ["blocked"]
        usage = await agent.root.usage()
        assert usage.models["tool/draw"].cost == pytest.approx(4.0)


async def test_without_a_limit_nothing_is_written_for_budgets() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(spends)) as agent:
        await agent.ask("go")
        assert storage.document(BUDGET.kind, "conversation", agent.root.id) is None


async def test_every_attempt_of_a_request_reserves_anew() -> None:
    """C59, provider retries: what broke off in mid-answer counts as what it may have used."""
    lost = ProviderError("lost", retryable=True, kind="network")
    model = ScriptedModel(lambda _: Reply("a long answer", usage=SMALL, fault=Break(3, lost)))
    settings = attrs.evolve(
        limited(run=Budget(tokens=400)), retry=RetrySettings(max_retries=20, jitter=0)
    )
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        await agent.root.configure(max_output_tokens=100)
        assert refused(await agent.ask("go")) == ("run", "tokens")
        # Each took about 100 and its question, of 400.
        assert 3 <= len(model.requests) <= 5
        live = await agent.live()
        assert live.run is None


async def test_a_restart_resets_nothing_and_a_request_that_was_cut_off_counts_in_full() -> None:
    """The harness is closed in mid-request, again and again: each time the request is sent again,
    and each time what it may have used is gone from the budget."""
    storage = MemoryStorage()
    settings = attrs.evolve(
        limited(conversation=Budget(tokens=500)), progress=ProgressSettings(persist_within_ms=0)
    )
    model = turns(Reply("x" * 400, chunk=4, chunk_delay_s=1, usage=Usage()))
    async with open_agent(storage, model, settings=settings) as agent:
        await agent.root.configure(max_output_tokens=100)
        submission = await agent.root.submit("go")
        await trio.sleep(3)
    lost: list[int] = []
    for _ in range(2):
        async with open_agent(storage, model, settings=settings) as agent:
            agent.harness.resume()
            await trio.sleep(3)
            lost.append((await agent.root.snapshot(BUDGET)).own.lost_tokens)
    assert 100 < lost[0] < lost[1]
    async with open_agent(storage, turns(Reply("short", usage=SMALL)), settings=settings) as agent:
        record = await (await agent.harness.submission(submission.id)).wait()
        assert record.status == "done"
        ends = [(await agent.ask("once more")) for _ in range(3)]
        assert [end.status for end in ends[:1]] == ["done"]
        assert refused(ends[-1]) == ("conversation", "tokens")


async def test_a_summary_is_paid_from_the_budget_or_not_made() -> None:
    """The summary of a long conversation is counted; with nothing left for it, nobody is asked."""
    summaries: list[int | None] = []

    def script(ctx: ScriptedContext) -> Reply:
        if any("<conversation>" in text_of(message.content) for message in ctx.messages):
            summaries.append(ctx.request.options.max_output_tokens)
            return Reply("It was long.", usage=SMALL)
        return Reply("word " * 400, usage=SMALL)

    now = [limited(conversation=Budget(tokens=100_000))]
    compaction = CompactionSettings(keep_recent_tokens=10)
    async with open_agent(
        MemoryStorage(),
        ScriptedModel(script),
        settings=lambda: attrs.evolve(now[0], compaction=compaction),
    ) as agent:
        for _ in range(3):
            await agent.ask("go on")
        done = await agent.harness.wait_for_task(await agent.root.compact())
        assert isinstance(done.outcome, CompletedOutcome)
        (most,) = summaries
        assert most is not None
        usage = await agent.root.usage()
        assert (usage.models[MODEL].requests, usage.turns) == (4, 3)
        now[0] = limited(conversation=Budget(tokens=300))
        for _ in range(2):
            await agent.ask("go on")
        refused_task = await agent.harness.wait_for_task(await agent.root.compact())
        assert isinstance(refused_task.outcome, FailedOutcome)
        assert isinstance(refused_task.outcome.error, dict)
        assert refused_task.outcome.error["reason"] == "budget"
        assert len(summaries) == 1
        assert (await agent.root.snapshot(BUDGET)).own.reserved == {}


async def test_days_that_people_take_to_answer_are_not_the_run_s() -> None:
    """Two calls ask; one person answers after an hour, the other after a day."""

    @tool()
    async def move(who: str) -> Ask:
        """Move money."""
        return Ask(f"Move it to {who}?")

    @move.resume
    async def moved(answer: Answer | Expired, *_: object) -> str:
        await trio.sleep(2)
        return "moved" if isinstance(answer, Answer) else "not moved"

    model = turns(calling(call("move", "c1", who="a"), call("move", "c2", who="b")), Reply("ok"))
    settings = limited(run=Budget(wall_s=5), conversation=Budget(wall_s=5))
    async with open_agent(MemoryStorage(), model, move, settings=settings) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(3_600)
        for question in (await agent.harness.questions()).items:
            await agent.harness.answer(question.id, True, by="ann")
            await trio.sleep(86_400)
        assert (await submission.wait()).status == "done"
        # The first to go on did so while the other question was still open.
        assert 2_000 <= (await agent.root.usage()).run_ms < 5_000
