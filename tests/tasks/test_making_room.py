"""Room for the next request: thresholds, refused requests, and that no paid loop comes of it."""

from __future__ import annotations

import attrs
import pytest
import trio

from pidurable_actors import Reply, Settings, tool
from pidurable_actors.agent import INBOX, LIVE, CompactionEvent, HookApi, Skip, hook
from pidurable_actors.errors import ConversationBusy, ProviderError
from pidurable_actors.models import ModelInfo, ScriptedContext, estimate_tokens
from pidurable_actors.records import SubmissionRecord, ToolResultMessage
from pidurable_actors.settings import CompactionSettings, RetrySettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import Answer, call, calling
from tests.tasks.compacting import (
    LONG,
    SMALL,
    WINDOW,
    Compacting,
    Script,
    compacting,
    echoing,
    is_summary,
    overflow,
)

EARLY = attrs.evolve(SMALL, background_tokens=300)
"""From 500 tokens on, a compaction is made beside the run."""


def sizes(it: Compacting) -> list[int]:
    """The tokens of the requests that ask for no summary."""
    return [estimate_tokens(request.messages, request.tools) for request in it.asked]


async def test_a_request_past_the_threshold_waits_for_a_compaction() -> None:
    """Goal: no request past the limit. Method: grow well past it, one run after the other."""
    async with compacting(MemoryStorage(), echoing(), info=WINDOW) as it:
        await it.grow(20)
        assert max(sizes(it)) <= 800
        summaries = await it.summaries()
        assert len(summaries) == len(it.summarized) > 1
        for entry in summaries:
            assert isinstance(entry.data, dict)
            assert entry.data["reason"] == "threshold"
        assert it.seen()[0] == "summary short"
        assert (await it.agent.live()).compactions == []


async def test_below_the_threshold_nothing_is_compacted() -> None:
    async with compacting(MemoryStorage(), echoing(), info=WINDOW) as it:
        await it.grow(6)
        assert 600 < sizes(it)[-1] <= 800
        assert it.summarized == []


async def test_with_no_known_window_nothing_is_compacted_before_a_refusal() -> None:
    async with compacting(MemoryStorage(), echoing()) as it:
        await it.grow(20)
        assert it.summarized == []


async def test_a_window_in_the_settings_stands_in_for_one_that_nobody_knows() -> None:
    settings = attrs.evolve(SMALL, context_window=1_000)
    async with compacting(MemoryStorage(), echoing(), compaction=settings) as it:
        await it.grow(10)
        assert max(sizes(it)) <= 800


async def test_models_may_have_settings_of_their_own() -> None:
    settings = attrs.evolve(SMALL, models={"scripted/demo": CompactionSettings(enabled=False)})
    async with compacting(MemoryStorage(), echoing(), info=WINDOW, compaction=settings) as it:
        await it.grow(12)
        assert it.summarized == []
        assert max(sizes(it)) > 1_000


async def test_the_size_of_tools_and_prompt_counts() -> None:
    settings = attrs.evolve(SMALL, keep_recent_tokens=60)
    async with compacting(MemoryStorage(), echoing(), info=WINDOW, compaction=settings) as it:
        await it.grow(4)
        assert it.summarized == []
        await it.root.configure(instructions="i" * 2_000)
        await it.agent.ask("next")
        assert len(it.summarized) == 1


async def test_in_good_time_a_compaction_is_made_beside_the_run_and_placed_at_a_boundary() -> None:
    """Goal: nobody waits. Method: the summary takes long, and turns go on meanwhile."""
    script = echoing(Reply("short", delay_s=5))
    async with compacting(MemoryStorage(), script, info=WINDOW, compaction=EARLY) as it:
        began = trio.current_time()
        await it.grow(6)
        assert trio.current_time() - began < 1
        (under_way,) = (await it.agent.live()).compactions
        assert (under_way.reason, under_way.blocking) == ("background", False)
        record = await it.harness.get_task(under_way.task_id)
        assert (record.background, record.owner) == (True, None)
        await it.outcome(record.id)
        (entry,) = await it.summaries()
        assert isinstance(entry.data, dict)
        assert entry.data["reason"] == "background"
        await it.agent.ask("next")
        assert it.seen()[0] == "summary short"
        # What came after the choice is still there, word for word.
        assert [line[:6] for line in it.seen() if line.startswith("user")][-2:] == [
            "user 5",
            "user n",
        ]
        assert len(it.summarized) == 1


async def test_a_request_that_outgrows_the_limit_waits_for_the_one_in_the_background() -> None:
    script = echoing(Reply("short", delay_s=5))
    async with compacting(MemoryStorage(), script, info=WINDOW, compaction=EARLY) as it:
        began = trio.current_time()
        await it.grow(8)
        assert trio.current_time() - began == pytest.approx(5, abs=0.5)
        assert len(it.summarized) == 1
        assert max(sizes(it)) <= 800


async def test_when_the_one_in_the_background_fails_the_request_has_one_of_its_own() -> None:
    said: list[Answer] = [Reply("y" * 9_000, delay_s=5), Reply("short")]
    script = echoing(lambda _: said.pop(0))
    async with compacting(MemoryStorage(), script, info=WINDOW, compaction=EARLY) as it:
        await it.grow(8)
        assert len(it.summarized) == 2
        assert max(sizes(it)) <= 800


async def test_after_a_failure_in_the_background_only_the_threshold_tries_again() -> None:
    said: list[Answer] = [ProviderError("no", kind="auth"), Reply("short")]
    script = echoing(lambda _: said.pop(0))
    async with compacting(MemoryStorage(), script, info=WINDOW, compaction=EARLY) as it:
        await it.grow(6)
        assert len(it.summarized) == 1
        await it.grow(3)
        assert len(it.summarized) == 2
        (entry,) = await it.summaries()
        assert isinstance(entry.data, dict)
        assert entry.data["reason"] == "threshold"


async def test_what_is_kept_anyway_is_not_summarized_again_with_every_turn() -> None:
    """Goal: no paid loop where the rest is large. Method: the prompt alone fills the band."""
    async with compacting(MemoryStorage(), echoing(), info=WINDOW, compaction=EARLY) as it:
        await it.root.configure(instructions="i" * 1_800)
        for at in range(40):
            await it.agent.ask(f"{at}")
        assert max(sizes(it)) <= 800
        assert len(it.summarized) <= 4


@pytest.mark.parametrize("how", ["not shorter", "overflow"])
async def test_failures_in_a_row_end_the_attempts_across_inputs_and_restarts(how: str) -> None:
    """C39: the configured tries, counted durably, then a clear end; other settings go on.

    Each process asks two questions; the summaries fail. While a request fits the window it is sent
    all the same; then its run ends, and says what to do.
    """
    bad = Reply("y" * 8_000) if how == "not shorter" else overflow()
    storage = MemoryStorage()
    asked = 0
    settled: list[SubmissionRecord] = []
    for life in range(8):
        async with compacting(storage, echoing(bad), info=WINDOW) as it:
            settled += [await it.agent.ask(f"{life}{at} {LONG}") for at in range(2)]
            asked += len(it.summarized)
    assert asked == 3
    assert settled[0].status == "done"
    assert settled[-1].reason == "model_error"
    detail = settled[-1].detail
    assert isinstance(detail, dict)
    assert detail["kind"] == "overflow"
    assert "3 compaction(s) in a row failed" in str(detail["message"])
    larger = attrs.evolve(SMALL, max_tries=4, keep_recent_tokens=100)
    async with compacting(storage, echoing(), info=WINDOW, compaction=larger) as it:
        retried = await it.root.retry()
        assert (await retried.wait()).status == "done"
        assert len(it.summarized) == 1
        assert max(sizes(it)) <= 800
        assert (await it.agent.live()).compaction_failure is None


async def test_a_question_that_is_too_large_by_itself_ends_its_run_without_a_request() -> None:
    async with compacting(MemoryStorage(), echoing(), info=WINDOW) as it:
        settled = await it.agent.ask("x" * 5_000)
        assert settled.reason == "model_error"
        assert isinstance(settled.detail, dict)
        assert "what is left cannot be summarized further" in str(settled.detail["message"])
        assert it.model.requests == ()
        await it.root.reset()
        assert (await it.agent.ask("short")).status == "done"


async def test_a_compaction_that_leaves_too_much_is_not_repeated_for_the_same_request() -> None:
    """One attempt for a request; what fits the window is sent, for the threshold is below it."""
    async with compacting(MemoryStorage(), echoing(), info=WINDOW) as it:
        await it.grow(3)
        settled = await it.agent.ask("y" * 3_400)
        assert settled.status == "done"
        assert len(it.summarized) == 1
        assert 800 < sizes(it)[-1] <= 1_000


async def test_a_hook_that_skips_is_asked_once_for_a_request() -> None:
    asked: list[str] = []

    @hook.before_compact
    async def never(event: CompactionEvent, api: HookApi) -> Skip:
        await trio.lowlevel.checkpoint()
        asked.append(event.reason)
        return Skip()

    async with compacting(MemoryStorage(), echoing(), info=WINDOW, hooks=(never,)) as it:
        await it.grow(8)
        assert asked == ["threshold"]
        assert 800 < sizes(it)[-1] <= 1_000
        assert (await it.agent.ask(LONG)).reason == "model_error"
        assert asked == ["threshold"] * 2


def reading(ctx: ScriptedContext) -> Answer:
    """Reads a book and is refused with what it read; ``last`` is answered."""
    if is_summary(ctx.request):
        return Reply("short")
    if ctx.user_text == "last":
        return Reply("fine")
    if isinstance(ctx.last, ToolResultMessage):
        return ProviderError("broken", kind="invalid")
    return calling(call("read"))


@tool()
async def read() -> str:
    """Read a book."""
    await trio.lowlevel.checkpoint()
    return "a page " * 120


@pytest.mark.parametrize("compacts", [True, False])
async def test_the_size_is_that_of_what_is_stored_also_after_failed_runs(compacts: bool) -> None:
    """C40: thirty runs end in errors after large tool results; then comes one question.

    Where compactions are made meanwhile, none of the requests is too large. Where they were off,
    the conversation is many windows long by then, and one compaction makes it fit all the same.
    """
    storage = MemoryStorage()
    settings = attrs.evolve(SMALL, enabled=compacts)
    async with compacting(storage, reading, read, info=WINDOW, compaction=settings) as it:
        for at in range(30):
            assert (await it.agent.ask(f"{at}")).reason == "model_error"
        assert (len(it.summarized) > 5) == compacts
        assert (max(sizes(it)) <= 800) == compacts
    async with compacting(storage, reading, read, info=WINDOW) as it:
        assert (await it.agent.ask("last")).status == "done"
        assert max(sizes(it)) <= 800
        assert len(it.summarized) == 1 - compacts
        for request in it.summarized:
            assert estimate_tokens(request.messages) <= 1_000


# --- refused requests ---


def strict(limit: int, summary: str = "short") -> Script:
    """A provider that refuses what has more tokens than it says it takes."""

    def script(ctx: ScriptedContext) -> Answer:
        if is_summary(ctx.request):
            return Reply(summary)
        if estimate_tokens(ctx.messages, ctx.request.tools) > limit:
            return overflow()
        return Reply(f"re: {ctx.user_text[:20]}")

    return script


async def test_a_refused_request_is_compacted_and_sent_once_more() -> None:
    async with compacting(MemoryStorage(), strict(500)) as it:
        await it.grow(8)
        summaries = await it.summaries()
        assert summaries
        assert all(isinstance(e.data, dict) and e.data["reason"] == "overflow" for e in summaries)
        refused = [size for size in sizes(it) if size > 500]
        assert len(refused) == len(it.summarized)


async def test_a_refused_request_counts_while_it_waits_to_be_sent_again() -> None:
    def slow(ctx: ScriptedContext) -> Answer:
        return Reply("short", delay_s=5) if is_summary(ctx.request) else script(ctx)

    script = strict(500)
    async with compacting(MemoryStorage(), slow) as it:
        await it.grow(4)
        submission = await it.root.submit(LONG)
        await trio.sleep(1)
        assert [state.reason for state in (await it.agent.live()).compactions] == ["overflow"]
        assert await it.agent.attempt() == 2
        assert (await submission.wait()).status == "done"


async def test_a_refused_request_waits_for_a_compaction_that_somebody_asked_for() -> None:
    """Also after the last try: what is under way was not begun by the request."""
    said: list[Answer] = [Reply("y" * 9_000), Reply("short", delay_s=5)]
    only = attrs.evolve(SMALL, max_tries=1)

    def script(ctx: ScriptedContext) -> Answer:
        return said.pop(0) if is_summary(ctx.request) else strict(500)(ctx)

    async with compacting(MemoryStorage(), script, compaction=only) as it:
        await it.grow(4)
        assert (await it.compacted()).status == "failed"
        await it.root.compact(background=True)
        assert (await it.agent.ask(LONG)).status == "done"
        assert len(it.summarized) == 2


async def test_where_the_estimate_is_far_off_half_of_it_is_summarized() -> None:
    """All of it would be kept by the settings; the provider counts otherwise."""
    settings = CompactionSettings(keep_recent_tokens=20_000)
    async with compacting(MemoryStorage(), strict(500), compaction=settings) as it:
        await it.grow(8)
        assert len(it.summarized) >= 1


async def test_a_second_refusal_ends_the_run_with_what_the_provider_said() -> None:
    script = echoing()
    refuse = [False]

    def asked(ctx: ScriptedContext) -> Answer:
        if refuse[0] and not is_summary(ctx.request):
            return overflow("context length exceeded")
        return script(ctx)

    async with compacting(MemoryStorage(), asked) as it:
        await it.grow(4)
        refuse[0] = True
        settled = await it.agent.ask("next")
        assert (settled.status, settled.reason) == ("unanswered", "model_error")
        assert settled.detail == {
            "kind": "overflow",
            "message": "context length exceeded",
            "attempts": 2,
        }
        assert (len(it.asked), len(it.summarized)) == (4 + 2, 1)


async def test_a_compaction_that_fails_after_a_refusal_ends_the_run_likewise() -> None:
    async with compacting(MemoryStorage(), strict(500, "y" * 9_000)) as it:
        await it.grow(4)
        for count in (1, 2, 3, 3, 3):
            settled = await it.agent.ask(LONG)
            assert settled.reason == "model_error"
            assert isinstance(settled.detail, dict)
            assert settled.detail["message"] == "prompt is too long"
            assert len(it.summarized) == count


async def test_nothing_is_compacted_by_itself_where_that_is_turned_off() -> None:
    settings = attrs.evolve(SMALL, enabled=False)
    async with compacting(
        MemoryStorage(),
        strict(500),
        info=WINDOW,
        compaction=settings,
    ) as it:
        await it.grow(4)
        assert (await it.agent.ask(LONG)).reason == "model_error"
        assert it.summarized == []
        assert (await it.compacted()).status == "completed"
        retried = await it.root.retry()
        assert (await retried.wait()).status == "done"


async def test_a_refused_request_does_not_use_up_retries_that_there_are_not() -> None:
    settings = Settings(compaction=SMALL, retry=RetrySettings(enabled=False))
    async with compacting(MemoryStorage(), strict(500), settings=settings) as it:
        await it.grow(8)


async def test_a_turn_that_is_tried_again_keeps_its_count_while_it_waits_for_a_compaction() -> None:
    """Goal: waiting for a manual compaction is no way around the limit of retries."""
    busy = [False]
    script = echoing(Reply("short", delay_s=3))

    def asked(ctx: ScriptedContext) -> Answer:
        if busy[0] and not is_summary(ctx.request):
            return ProviderError("busy", retryable=True)
        return script(ctx)

    async with compacting(MemoryStorage(), asked) as it:
        await it.grow(3)
        busy[0] = True
        submission = await it.root.submit("next")
        await trio.sleep(1)
        await it.root.compact()
        settled = await submission.wait()
        assert isinstance(settled.detail, dict)
        assert settled.detail["attempts"] == 4
        assert len(it.asked) == 3 + 4


async def test_a_steer_does_not_stop_a_compaction_and_is_placed_after_it() -> None:
    """C38: typing while it compacts. The run goes on with the compacted context and the steers."""

    def script(ctx: ScriptedContext) -> Answer:
        if is_summary(ctx.request):
            return Reply("short", delay_s=5)
        if ctx.user_text == "tool" and not isinstance(ctx.last, ToolResultMessage):
            return calling(call("read"))
        return Reply(f"re: {ctx.user_text[:20]}")

    async with compacting(MemoryStorage(), script, read, info=WINDOW) as it:
        await it.grow(5)
        running = await it.root.submit("tool")
        await trio.sleep(1)
        (state,) = (await it.agent.live()).compactions
        assert (state.reason, state.blocking) == ("threshold", True)
        steers = [await it.root.submit(f"left {at}", when_busy="steer") for at in (1, 2)]
        began = trio.current_time()
        assert (await running.wait()).status == "done"
        assert trio.current_time() - began == pytest.approx(4)
        for steer in steers:
            assert (await steer.wait()).status == "done"
        kinds = [entry.kind for entry in await it.agent.entries()]
        assert kinds.index("pi.compaction") < len(kinds) - 3
        users = [line for line in await it.agent.lines() if line.startswith("user left")]
        assert users == ["user left 1", "user left 2"]
        assert it.seen()[0] == "summary short"


async def test_an_abort_while_a_request_waits_for_a_compaction_ends_both() -> None:
    script = echoing(Reply("short", delay_s=50))
    async with compacting(MemoryStorage(), script, info=WINDOW) as it:
        submission = None
        for at in range(8):
            submission = await it.root.submit(f"{at} {LONG}")
        assert submission is not None
        await trio.sleep(5)
        (state,) = (await it.agent.live()).compactions
        await it.root.abort()
        live = await it.agent.live()
        assert (live.run, live.compactions, live.held) == (None, [], False)
        record = await it.harness.get_task(state.task_id)
        assert record.owner is not None
        assert live.run_failure is not None
        assert live.run_failure.reason == "aborted"


@pytest.mark.parametrize("background", [0, 300])
async def test_inputs_handed_in_around_compactions_of_a_run_settle_once(background: int) -> None:
    """C36, for compactions that come by themselves, at the threshold and in the background."""
    settings = attrs.evolve(SMALL, background_tokens=background)
    script = echoing(Reply("short", delay_s=0.02), delay_s=0.003)
    async with compacting(MemoryStorage(), script, info=WINDOW, compaction=settings) as it:
        handed: dict[int, str] = {}
        for at in range(120):
            mode = ("follow_up", "steer", "reject")[at % 3]
            text = f"n{at} {'x' * 100}"
            try:
                submission = await it.root.submit(text, when_busy=mode)  # type: ignore[arg-type]
                handed[submission.id] = text
            except ConversationBusy:
                pass
            await trio.sleep(0.001)
        await it.root.wait_for_idle()
        assert not (await it.root.snapshot(INBOX)).items
        assert not (await it.root.snapshot(LIVE)).held
        for submission_id in handed:
            record = await (await it.harness.submission(submission_id)).record()
            assert record.status == "done"
        users = [line[5:] for line in await it.agent.lines() if line.startswith("user n")]
        assert sorted(users) == sorted(handed.values())
        assert len(it.summarized) > 2
        assert max(sizes(it)) <= 800


async def test_a_window_smaller_than_the_reserve_still_leaves_half_of_it() -> None:
    """The defaults are for large windows; a small one must not make every request too large."""
    info = ModelInfo(context_window=2_000)
    async with compacting(
        MemoryStorage(), echoing(), info=info, compaction=CompactionSettings()
    ) as it:
        await it.grow(4)
        assert it.summarized == []
        await it.grow(16)
        assert max(sizes(it)) <= 1_000
        # At least every second turn costs nothing.
        assert 1 <= len(it.summarized) <= 10
