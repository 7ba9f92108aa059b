"""How a compaction ends otherwise: hooks, failures, cuts and aborts; nothing is held up for ever."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import Reply, Settings
from pidurable_actors.agent import LIVE, CompactionEvent, HookApi, Skip, Summary, hook
from pidurable_actors.errors import ProviderError, TaskRefused
from pidurable_actors.models import Stall, Truncate
from pidurable_actors.records import (
    AbortedOutcome,
    CompletedOutcome,
    FailedOutcome,
    FaultedOutcome,
    Usage,
    text_of,
)
from pidurable_actors.session import Tx
from pidurable_actors.settings import RetrySettings, StreamSettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import EXACT, MODEL, Answer, all_tasks, peek
from tests.tasks.compacting import SMALL, Compacting, Script, compacting, echoing, overflow
from tests.tasks.cutting import Photographed

SETTINGS = Settings(compaction=SMALL, retry=EXACT)


async def failure_of(it: Compacting, outcome: object) -> tuple[str, int]:
    """The reason and the count of a failure, which the task and the live document agree on."""
    assert isinstance(outcome, FailedOutcome)
    assert isinstance(outcome.error, dict)
    live = await it.agent.live()
    assert live.compactions == []
    assert live.compaction_failure is not None
    assert live.compaction_failure.reason == outcome.error["reason"]
    assert live.compaction_failure.detail == outcome.error["detail"]
    return live.compaction_failure.reason, live.compaction_failure.count


# --- hooks ---


async def test_a_hook_that_gives_the_summary_saves_the_request() -> None:
    seen: list[CompactionEvent] = []

    @hook.before_compact
    async def own(event: CompactionEvent, api: HookApi) -> Summary:
        await trio.lowlevel.checkpoint()
        seen.append(event)
        return Summary("by hand")

    async with compacting(MemoryStorage(), echoing(), hooks=(own,)) as it:
        await it.grow(3)
        outcome = await it.compacted("briefly")
        assert isinstance(outcome, CompletedOutcome)
        assert it.summarized == []
        (entry,) = await it.summaries()
        assert isinstance(entry.data, dict)
        assert entry.data["model"] is None
        (event,) = seen
        assert (event.reason, event.instructions) == ("manual", "briefly")
        assert [e.kind for e in event.entries] == ["pi.user", "pi.assistant"] * 2
        await it.agent.ask("next")
        assert it.seen()[0] == "summary by hand"


async def test_a_hook_that_skips_a_compaction_ends_it_and_is_no_failure() -> None:
    @hook.before_compact
    async def not_now(event: CompactionEvent, api: HookApi) -> Skip:
        await trio.lowlevel.checkpoint()
        return Skip("not now")

    async with compacting(MemoryStorage(), echoing(), hooks=(not_now,)) as it:
        await it.grow(3)
        outcome = await it.compacted()
        assert isinstance(outcome, FailedOutcome)
        assert outcome.error == {"reason": "skipped", "detail": "not now"}
        assert (await it.agent.live()).compaction_failure is None
        assert it.summarized == []


async def test_a_hook_that_raises_is_reported_and_the_model_asked() -> None:
    @hook.before_compact
    async def broken(event: CompactionEvent, api: HookApi) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("no")

    async with compacting(MemoryStorage(), echoing(), hooks=(broken,)) as it:
        await it.grow(3)
        assert (await it.compacted()).status == "completed"
        assert [report.kind for report in it.agent.reports] == ["hook_failed"]


@pytest.mark.parametrize("said", [Summary("  "), Summary("\ud800"), Skip("\ud800"), "text"])
async def test_a_hook_that_says_what_cannot_be_used_is_skipped(said: object) -> None:
    @hook.before_compact
    async def wrong(event: CompactionEvent, api: HookApi) -> Any:
        await trio.lowlevel.checkpoint()
        return said

    async with compacting(MemoryStorage(), echoing(), hooks=(wrong,)) as it:
        await it.grow(3)
        assert (await it.compacted()).status == "completed"
        assert [report.kind for report in it.agent.reports] == ["hook_failed"]
        await it.agent.ask("next")
        assert it.seen()[0] == "summary short"


async def test_a_hook_cannot_wait_for_the_compaction_that_asks_it() -> None:
    """The second call finds the compaction itself, which cannot end before its own hook."""
    refused: list[TaskRefused] = []
    opened: list[Compacting] = []

    @hook.before_compact
    async def waits(event: CompactionEvent, api: HookApi) -> None:
        task = await (await api.conversation()).compact()
        assert task == api.task_id
        with pytest.raises(TaskRefused) as caught:
            await opened[0].harness.wait_for_task(task)
        refused.append(caught.value)

    async with compacting(MemoryStorage(), echoing(), hooks=(waits,)) as it:
        opened.append(it)
        await it.grow(3)
        assert (await it.compacted()).status == "completed"
        assert len(refused) == 1


# --- failures ---


FAILURES: dict[str, tuple[Answer, str]] = {
    "not shorter": (Reply("y" * 4_000), "not_shorter"),
    "too long": (overflow(), "overflow"),
    "refused": (ProviderError("no", kind="auth"), "model_error"),
    "empty": (Reply("  "), "model_error"),
    "cut off at its longest": (Reply("sho", stop_reason="length"), "model_error"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_is_noted_and_counted_and_what_waits_goes_on(name: str) -> None:
    answer, reason = FAILURES[name]
    async with compacting(MemoryStorage(), echoing(answer)) as it:
        await it.grow(3)
        for count in (1, 2):
            task = await it.root.compact()
            waiting = await it.root.submit(f"next {count}")
            outcome = await it.outcome(task)
            assert await waiting.answer() == f"re: next {count}"
            assert await failure_of(it, outcome) == (reason, count)
        assert await it.summaries() == []
        assert len(it.summarized) == 2
        assert (await it.root.usage()).models[MODEL].requests == 5 + 2


async def test_a_success_forgets_the_failures() -> None:
    said = iter([Reply("y" * 4_000), Reply("short")])
    async with compacting(MemoryStorage(), echoing(lambda _: next(said))) as it:
        await it.grow(3)
        await it.compacted()
        assert (await it.agent.live()).compaction_failure is not None
        await it.compacted()
        assert (await it.agent.live()).compaction_failure is None


async def test_failed_requests_are_sent_again_as_those_of_a_run_are() -> None:
    """Goal: backoff, retry-after, silence, cut streams; each attempt is counted as used."""
    used = Usage(input_tokens=7)
    said: list[Answer] = [
        ProviderError("busy", retryable=True),
        ProviderError("busy", retryable=True, retry_after_s=30),
        Reply("abcdef", fault=Truncate(3), usage=used),
        Reply("short", usage=used),
    ]
    script = echoing(lambda _: said.pop(0))
    async with compacting(MemoryStorage(), script) as it:
        await it.grow(3)
        before = (await it.root.usage()).models[MODEL]
        began = trio.current_time()
        assert (await it.compacted()).status == "completed"
        assert trio.current_time() - began == pytest.approx(2 + 30 + 8)
        after = (await it.root.usage()).models[MODEL]
        assert after.requests - before.requests == 4
        assert after.input_tokens - before.input_tokens == 14


async def test_a_silent_model_is_given_up_after_the_retries() -> None:
    settings = Settings(
        compaction=SMALL,
        retry=RetrySettings(max_retries=1, jitter=0),
        stream=StreamSettings(idle_timeout_s=10),
    )
    script = echoing(Reply("abc", fault=Stall(1)))
    async with compacting(MemoryStorage(), script, settings=settings) as it:
        await it.grow(3)
        began = trio.current_time()
        assert await failure_of(it, await it.compacted()) == ("model_error", 1)
        assert trio.current_time() - began == pytest.approx(22)


async def test_a_bug_of_a_provider_fails_the_compaction_alone() -> None:
    def broken(ctx: object) -> Answer:
        raise ZeroDivisionError

    async with compacting(MemoryStorage(), echoing(broken)) as it:
        await it.grow(3)
        assert await failure_of(it, await it.compacted()) == ("model_error", 1)
        assert [report.kind for report in it.agent.reports] == ["handler_failed"]
        assert (await it.agent.ask("next")).status == "done"


# --- cuts ---


SLOW = echoing(Reply("short", delay_s=10))


async def cut(storage: MemoryStorage, script: Script = SLOW) -> MemoryStorage:
    """What a crash leaves of a compaction whose request is in flight, with an input held."""
    async with compacting(storage, script, settings=SETTINGS) as it:
        if not await it.agent.entries():
            await it.grow(3)
        await it.root.compact()
        await it.root.submit("held", request_id="held")
        await trio.sleep(9)
        return storage.snapshot()


async def test_a_crash_counts_a_failed_attempt_that_is_made_again_after_its_wait() -> None:
    crashed = await cut(MemoryStorage())
    began = trio.current_time()
    async with compacting(crashed, echoing(), settings=SETTINGS) as it:
        assert (await it.agent.ask("held", request_id="held")).status == "done"
        assert trio.current_time() - began == pytest.approx(2)
        assert len(await it.summaries()) == 1
        assert (await it.root.usage()).models[MODEL].requests == 3 + 2 + 1
        assert it.agent.reports == []


async def test_crash_after_crash_ends_it_as_interrupted_and_the_input_goes_on() -> None:
    storage = MemoryStorage()
    for _ in range(2):
        storage = await cut(storage)
    settings = Settings(compaction=SMALL, retry=RetrySettings(max_retries=1, jitter=0))
    async with compacting(storage, echoing(), settings=settings) as it:
        assert (await it.agent.ask("held", request_id="held")).status == "done"
        failure = (await it.agent.live()).compaction_failure
        assert failure is not None
        assert (failure.reason, failure.detail, failure.count) == (
            "interrupted",
            {"attempts": 2},
            1,
        )
        await wait_all_tasks_blocked()
        (report,) = it.agent.reports
        assert (report.kind, report.reason) == ("task_interrupted", "interrupted")
        assert it.summarized == []


async def test_a_close_in_flight_sends_the_request_again_at_once_and_uncounted() -> None:
    storage = MemoryStorage()
    await cut(storage)
    began = trio.current_time()
    async with compacting(storage, echoing(), settings=SETTINGS) as it:
        assert (await it.agent.ask("held", request_id="held")).status == "done"
        assert trio.current_time() - began < 1
        assert len(await it.summaries()) == 1


async def test_one_that_is_cut_off_too_often_lets_the_conversation_go_on() -> None:
    """Goal: nothing is held for ever by a task that ends without its own code.

    Method: the process dies each time before the cut can be dealt with, until the limit.
    """
    storage = await cut(MemoryStorage())
    settings = Settings(compaction=SMALL, retry=EXACT, restart_limit=3)
    for cuts in (1, 2):
        storage = await _die_when_it_runs_again(storage, settings, cuts)
    async with compacting(storage, echoing(), settings=settings) as it:
        assert (await it.agent.ask("held", request_id="held")).status == "done"
        live = await it.agent.live()
        assert (live.compactions, live.held) == ([], False)
        assert live.compaction_failure is not None
        assert live.compaction_failure.reason == "restart_limit"
        assert it.summarized == []
    with peek(storage) as stored:
        kinds = {task.kind: task for task in all_tasks(stored)}
    outcome = kinds["pi.compaction"].state.outcome  # type: ignore[union-attr]
    assert isinstance(outcome, FaultedOutcome)


async def _die_when_it_runs_again(
    storage: MemoryStorage, settings: Settings, cuts: int
) -> MemoryStorage:
    """What a process leaves that dies when it has reserved the task and stored nothing since."""
    photographed = Photographed(storage)
    async with compacting(photographed, echoing(), settings=settings) as it:
        await it.agent.ask("held", request_id="held")
    for left in photographed.pictures:
        with peek(left) as stored:
            states = [
                (task.state.status, task.restarts)
                for task in all_tasks(stored)
                if task.kind == "pi.compaction"
            ]
        if states == [("running", cuts)]:
            return left
    raise AssertionError("it never ran")


# --- aborts ---


async def test_an_abort_of_the_conversation_stops_it_and_holds_nothing() -> None:
    async with compacting(MemoryStorage(), SLOW) as it:
        await it.grow(3)
        task = await it.root.compact()
        held = await it.root.submit("held")
        await trio.sleep(1)
        await it.root.abort(reason="enough")
        assert isinstance(await it.outcome(task), AbortedOutcome)
        assert (await held.wait()).reason == "withdrawn"
        live = await it.agent.live()
        assert (live.compactions, live.held, live.compaction_failure) == ([], False, None)
        assert (await it.root.usage()).models[MODEL].requests == 3 + 1
        assert (await it.agent.ask("next")).status == "done"


async def test_an_abort_of_the_task_alone_lets_the_input_go_on_that_it_held() -> None:
    async with compacting(MemoryStorage(), SLOW) as it:
        await it.grow(3)
        task = await it.root.compact()
        held = await it.root.submit("held")
        await trio.sleep(1)
        await it.harness.abort_task(task)
        assert await held.answer() == "re: held"
        assert text_of(it.asked[-1].messages[0].content).startswith("0 x")


async def test_a_run_that_begins_is_held_up_by_nothing_any_more() -> None:
    """An input may begin a run before the task comes to its turn that was to let it go on."""

    async def hold(tx: Tx) -> None:
        (await tx.doc(LIVE)).held = True

    async with compacting(MemoryStorage(), echoing()) as it:
        await it.root.commit(hold)
        assert (await it.agent.ask("go")).status == "done"
        assert not (await it.agent.live()).held
