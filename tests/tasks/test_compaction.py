"""A compaction that is asked for: what it makes of a conversation, and what waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from pidurable_actors import (
    Conversation,
    Models,
    Reply,
    ScriptedModel,
    Settings,
    open_harness,
)
from pidurable_actors.agent import INBOX, LIVE
from pidurable_actors.errors import ConversationBusy, InvalidValue
from pidurable_actors.records import (
    CompletedOutcome,
    ContextEdit,
    EntryDraft,
    FailedOutcome,
    SystemMessage,
    text_of,
)
from pidurable_actors.settings import CompactionSettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import MODEL
from tests.tasks.compacting import SMALL, compacting, echoing

SUMMARY = "summary short"


@asynccontextmanager
async def open_agent_again(
    storage: MemoryStorage, model: ScriptedModel, compaction: CompactionSettings
) -> AsyncIterator[Conversation]:
    """The root conversation in a process that may not have its model."""
    settings = Settings(compaction=compaction)
    async with open_harness(storage, models=Models([model]), settings=settings) as harness:
        yield await harness.root()


async def test_a_summary_stands_for_the_older_part_and_the_newest_turns_stay_word_for_word() -> (
    None
):
    """Goal: one entry, placed at once when idle, that says what it is. Method: four long turns."""
    async with compacting(MemoryStorage(), echoing()) as it:
        await it.grow(4)
        outcome = await it.compacted()
        assert isinstance(outcome, CompletedOutcome)
        (entry,) = await it.summaries()
        result = outcome.result
        assert isinstance(result, dict)
        assert result["entry"] == entry.id
        assert isinstance(entry.data, dict)
        sizes = {name: entry.data[name] for name in ("tokens_before", "tokens_after")}
        assert sizes == {name: result[name] for name in sizes}
        assert (entry.data["reason"], entry.data["model"]) == ("manual", MODEL)
        assert entry.model is not None
        assert text_of(entry.model[0].content).endswith("<summary>\nshort\n</summary>")
        live = await it.agent.live()
        assert (live.compactions, live.compaction_failure, live.held) == ([], None, False)
        await it.agent.ask("next")
        assert it.seen() == [SUMMARY, "user 3", "assistant re: 3", "user next"]
        # The history stays, and what the summary cost is counted.
        assert sum(line.startswith("user") for line in await it.agent.lines()) == 6
        assert (await it.root.usage()).models[MODEL].requests == 6


async def test_the_one_who_summarizes_reads_the_older_part_and_what_it_should_heed() -> None:
    async with compacting(MemoryStorage(), echoing()) as it:
        await it.grow(3)
        await it.compacted("Keep the numbers.")
        (request,) = it.summarized
        assert request.tools == ()
        text = text_of(request.messages[-1].content)
        assert "[user]\n0 xxx" in text
        assert "[assistant]\nre: 1" in text
        assert "2 xxx" not in text
        assert text.endswith("Heed this as well: Keep the numbers.")


async def test_a_later_summary_takes_the_place_of_the_earlier_one() -> None:
    said = iter(["first", "second"])
    async with compacting(MemoryStorage(), echoing(lambda _: Reply(next(said)))) as it:
        await it.grow(3)
        await it.compacted()
        await it.grow(3)
        await it.compacted()
        assert "<summary>\nfirst\n</summary>" in text_of(it.summarized[1].messages[-1].content)
        await it.agent.ask("next")
        assert it.seen() == ["summary second", "user 2", "assistant re: 2", "user next"]


async def test_an_earlier_summary_is_not_seen_among_the_kept_turns() -> None:
    """Goal: no summary in the middle. Method: the second one keeps turns older than the first."""
    kept = [SMALL.keep_recent_tokens * 3]

    def settings() -> Settings:
        return Settings(
            compaction=CompactionSettings(reserve_tokens=200, keep_recent_tokens=kept[0])
        )

    said = iter(["first", "second"])
    script = echoing(lambda _: Reply(next(said)))
    async with compacting(MemoryStorage(), script, settings=settings) as it:
        await it.grow(5)
        await it.compacted()
        await it.agent.ask("more")
        kept[0] = 250
        outcome = await it.compacted()
        assert isinstance(outcome, CompletedOutcome)
        first, second = await it.summaries()
        assert second.head is not None
        assert second.head < first.id
        await it.agent.ask("next")
        assert it.seen()[0] == "summary second"
        assert not any(line.startswith("summary") for line in it.seen()[1:])


@pytest.mark.parametrize("turns", [0, 1])
async def test_what_is_short_anyway_is_not_summarized_and_that_is_no_failure(turns: int) -> None:
    async with compacting(MemoryStorage(), echoing()) as it:
        await it.grow(turns, "")
        outcome = await it.compacted()
        assert isinstance(outcome, FailedOutcome)
        assert outcome.error == {"reason": "nothing", "detail": "there is nothing to summarize"}
        assert it.summarized == []
        assert (await it.agent.live()).compaction_failure is None


async def test_a_summary_alone_is_not_summarized_again() -> None:
    async with compacting(MemoryStorage(), echoing()) as it:
        await it.grow(3)
        await it.compacted()
        outcome = await it.compacted()
        assert isinstance(outcome, FailedOutcome)
        assert len(it.summarized) == 1


async def test_a_second_call_gets_the_compaction_that_is_under_way() -> None:
    async with compacting(MemoryStorage(), echoing(Reply("short", delay_s=5))) as it:
        await it.grow(3)
        first = await it.root.compact(background=True)
        assert (await it.agent.live()).compacting is None
        assert await it.root.compact(background=True) == first
        assert (await it.agent.live()).compacting is None
        # Whoever asks without background has inputs and requests wait for the one under way.
        assert await it.root.compact() == first
        assert (await it.agent.live()).compacting is not None
        await it.outcome(first)
        assert len(await it.summaries()) == 1


async def test_inputs_wait_for_a_compaction_and_start_when_it_is_over() -> None:
    async with compacting(MemoryStorage(), echoing(Reply("short", delay_s=5))) as it:
        await it.grow(3)
        task = await it.root.compact()
        began = trio.current_time()
        with pytest.raises(ConversationBusy):
            await it.root.submit("no", when_busy="reject")
        submissions = [await it.root.submit(text) for text in ("one", "two")]
        assert (await it.agent.live()).held
        assert [await each.answer() for each in submissions] == ["re: one", "re: two"]
        assert trio.current_time() - began >= 5
        assert (await it.outcome(task)).status == "completed"
        assert it.seen(3)[0] == SUMMARY


async def test_nothing_waits_for_a_compaction_in_the_background() -> None:
    async with compacting(MemoryStorage(), echoing(Reply("short", delay_s=5))) as it:
        await it.grow(3)
        task = await it.root.compact(background=True)
        began = trio.current_time()
        assert (await it.agent.ask("one")).status == "done"
        await it.root.abort()
        assert trio.current_time() - began < 1
        assert (await it.outcome(task)).status == "completed"
        assert len(await it.summaries()) == 1
        await it.agent.ask("two")
        # What came after the choice is kept.
        assert it.seen()[:2] == [SUMMARY, "user 2"]
        assert it.seen()[-3:] == ["user one", "assistant re: one", "user two"]


async def test_the_present_request_goes_on_and_the_next_one_waits_for_the_compaction() -> None:
    """Goal: a compaction asked for in a run. Method: the run answers first, an input is queued."""
    script = echoing(Reply("short", delay_s=9), delay_s=1)
    async with compacting(MemoryStorage(), script) as it:
        await it.grow(3)
        running = await it.root.submit("one")
        queued = await it.root.submit("two")
        began = trio.current_time()
        task = await it.root.compact()
        await running.wait()
        assert trio.current_time() - began == pytest.approx(1)
        assert (await it.agent.live()).held
        assert (await it.outcome(task)).status == "completed"
        await queued.wait()
        assert trio.current_time() - began == pytest.approx(10)
        assert it.seen()[-3:] == ["user one", "assistant re: one", "user two"]
        assert it.seen()[0] == SUMMARY


async def test_a_reset_meanwhile_makes_the_summary_stale() -> None:
    async with compacting(MemoryStorage(), echoing(Reply("short", delay_s=5))) as it:
        await it.grow(3)
        task = await it.root.compact()
        await trio.sleep(1)
        await it.root.reset("begin here")
        outcome = await it.outcome(task)
        assert isinstance(outcome, CompletedOutcome)
        assert isinstance(outcome.result, dict)
        assert outcome.result["entry"] is None
        handle = await it.harness.submission(int(str(outcome.result["submission"])))
        assert (await handle.record()).reason == "stale"
        assert await it.summaries() == []
        await it.agent.ask("next")
        assert it.seen() == ["user begin here", "user next"]


async def test_a_reset_before_the_model_is_asked_again_saves_the_request() -> None:
    storage = MemoryStorage()
    async with compacting(storage, echoing(Reply("short", delay_s=5))) as it:
        await it.grow(3)
        task = await it.root.compact()
        await trio.sleep(1)
        await it.root.reset("begin here")
    async with compacting(storage, echoing()) as it:
        outcome = await it.outcome(task)
        assert isinstance(outcome, FailedOutcome)
        assert isinstance(outcome.error, dict)
        assert outcome.error["reason"] == "stale"
        assert it.summarized == []


async def test_what_is_hidden_meanwhile_is_not_read_in_a_summary() -> None:
    """An edit of what a summary stands for puts it out of date, and one of what is kept does not."""
    script = echoing(Reply("short", delay_s=5))
    for hidden, kind, placed in ((0, "pi.user", 0), (-1, "pi.assistant", 1)):
        async with compacting(MemoryStorage(), script) as it:
            await it.grow(3)
            entry = (await it.agent.entries())[hidden]
            assert entry.kind == kind
            task = await it.root.compact()
            await trio.sleep(1)
            edit = ContextEdit(entry_id=entry.id)
            await it.root.write(EntryDraft(kind="app.hides", edits=(edit,)))
            assert (await it.outcome(task)).status == "completed"
            assert len(await it.summaries()) == placed


async def test_a_fork_sees_what_was_seen_as_of_its_entry() -> None:
    async with compacting(MemoryStorage(), echoing()) as it:
        await it.grow(3)
        before = (await it.root.entries(limit=1)).items[0].id
        await it.compacted()
        (summary,) = await it.summaries()
        for at, first in ((before, "user 0"), (summary.id, SUMMARY)):
            fork = await it.root.fork(at=at)
            await (await fork.submit("here")).wait()
            assert it.seen()[0] == first
            assert it.seen()[-1] == "user here"


async def test_the_system_prompt_comes_complete_behind_the_cut() -> None:
    async with compacting(MemoryStorage(), echoing()) as it:
        await it.root.configure(instructions="Be kind.")
        await it.grow(3)
        await it.compacted()
        await it.agent.ask("next")
        (system, *_) = it.asked[-1].messages
        assert isinstance(system, SystemMessage)
        assert text_of(system.content) == "<instructions>\nBe kind.\n</instructions>"
        assert sum(isinstance(m, SystemMessage) for m in it.asked[-1].messages) == 1
        await it.agent.ask("again")
        assert it.asked[-1].messages[0] == system


async def test_another_model_may_write_the_summary() -> None:
    settings = CompactionSettings(keep_recent_tokens=120, model="scripted/small")
    async with compacting(MemoryStorage(), echoing(), compaction=settings) as it:
        await it.grow(3)
        await it.compacted()
        assert it.summarized[0].model_id == "small"
        assert (await it.root.usage()).models["scripted/small"].requests == 1


@pytest.mark.parametrize("whose", ["summary", "conversation"])
async def test_a_model_that_is_not_installed_any_more_fails_it_and_says_so(whose: str) -> None:
    storage = MemoryStorage()
    async with compacting(storage, echoing()) as it:
        await it.grow(3)
    settings = attrs.evolve(SMALL, model="gone/small" if whose == "summary" else None)
    name = "gone" if whose == "conversation" else "scripted"
    model = ScriptedModel(echoing(), name=name)
    async with open_agent_again(storage, model, settings) as root:
        task = await root.compact()
        waiting = await root.submit("next")
        settled = await waiting.wait()
        assert settled.reason == (None if whose == "summary" else "no_model")
        live = await root.snapshot(LIVE)
        assert live.compaction_failure is not None
        assert live.compaction_failure.reason == "no_model"
        assert task > 0


async def test_instructions_are_text_with_something_in_it() -> None:
    async with compacting(MemoryStorage(), echoing()) as it:
        with pytest.raises(InvalidValue):
            await it.root.compact("")


async def test_a_conversation_without_a_model_says_so() -> None:
    async with compacting(MemoryStorage(), echoing()) as it:
        await it.grow(3)
        await it.root.configure(model=None)
        outcome = await it.compacted()
        assert isinstance(outcome, FailedOutcome)
        failure = (await it.agent.live()).compaction_failure
        assert failure is not None
        assert (failure.reason, failure.count) == ("no_model", 1)


async def test_every_input_handed_in_around_a_compaction_settles_once_and_in_order() -> None:
    """C36: nothing is refused for a moment or left in the queue of an idle conversation.

    An input is handed in every millisecond, before, during and after a manual and a background
    compaction; the modes take turns. Each is answered once; follow-ups in the order they came.
    """
    script = echoing(Reply("short", delay_s=0.02), delay_s=0.003)
    async with compacting(MemoryStorage(), script) as it:
        await it.grow(4)
        handed: list[tuple[int, str]] = []
        refused = 0
        modes = ("follow_up", "steer", "reject")
        for at in range(150):
            if at in (10, 80):
                await it.root.compact(background=at == 80)
            mode = modes[at % 3]
            try:
                submission = await it.root.submit(f"n{at}", when_busy=mode)  # type: ignore[arg-type]
                handed.append((submission.id, f"n{at}"))
            except ConversationBusy:
                refused += 1
            await trio.sleep(0.001)
        await it.root.wait_for_idle()
        assert len((await it.root.snapshot(INBOX)).items) == 0
        assert not (await it.agent.live()).held
        for submission_id, _ in handed:
            record = await (await it.harness.submission(submission_id)).record()
            assert record.status == "done"
        users = [line[5:] for line in await it.agent.lines() if line.startswith("user n")]
        assert sorted(users) == sorted(text for _, text in handed)
        follow_ups = [text for text in users if int(text[1:]) % 3 == 0]
        assert follow_ups == sorted(follow_ups, key=lambda text: int(text[1:]))
        assert refused > 0
        assert len(await it.summaries()) == 2
