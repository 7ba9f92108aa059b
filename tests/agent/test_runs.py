"""Runs and the inbox at their edges: aborted before they begin, or changed under their feet."""

from __future__ import annotations

import attrs
import trio

from pidurable_actors import Reply, ScriptedModel, ToolApi, Tx, tool
from pidurable_actors.agent import INBOX, LIVE, UsageState, UsageTotals
from pidurable_actors.records import Usage
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import all_tasks, call, calling, echo, ended, open_agent, peek, turns

SLOW = turns(Reply("answer", delay_s=10))


async def test_a_run_that_is_aborted_before_its_request_is_sent_uses_nothing() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, SLOW) as agent:
        submission = await agent.root.submit("go")
    async with open_agent(storage, SLOW) as agent:
        await agent.root.abort()
        record = await (await agent.harness.submission(submission.id)).record()
        assert record.reason == "aborted"
        assert await agent.lines() == ["user go"]


async def test_a_closed_request_that_is_aborted_keeps_the_half_that_was_stored() -> None:
    storage = MemoryStorage()
    model = turns(Reply("half whole", chunk=5, chunk_delay_s=10))
    async with open_agent(storage, model) as agent:
        await agent.root.submit("go")
        await trio.sleep(15)
    async with open_agent(storage, model) as agent:
        await agent.root.abort()
        assert await agent.lines() == ["user go", "assistant half  (aborted)"]


async def test_an_abort_is_finished_by_the_next_process() -> None:
    """The mark is stored, and the process ends before the tool has let go."""

    @tool()
    async def stubborn() -> str:
        """Hold on for a while."""
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return "did it"

    storage = MemoryStorage()
    model = turns(calling(call("stubborn")), Reply("never"))
    async with open_agent(storage, model, stubborn) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        with trio.move_on_after(1):
            await agent.root.abort()
        crashed = storage.snapshot()
    async with open_agent(crashed, model, stubborn) as agent:
        settled = await (await agent.harness.submission(submission.id)).wait()
        assert settled.reason == "aborted"
        assert [line.split()[0] for line in await agent.lines()] == ["user", "calls", "error"]


async def test_a_run_whose_document_was_cleared_still_ends() -> None:
    """Built-in documents are public: an application that clears one harms its run alone."""
    storage = MemoryStorage()

    async def clear(tx: Tx) -> None:
        live = await tx.doc(LIVE)
        live.run, live.generation = None, None
        live.tools.clear()

    @tool()
    async def say(*, api: ToolApi) -> str:
        """Say something after a while."""
        await trio.sleep(5)
        await api.output("said")
        await trio.sleep(5)
        return "done"

    model = turns(calling(call("say")), Reply("answer"))
    async with open_agent(storage, model, say) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.commit(clear)
        await agent.root.wait_for_idle()
        assert (await agent.lines())[-1] == "assistant answer"
        assert (await agent.ask("more")).status == "done"
    with peek(storage) as stored:
        assert {ended(task).outcome.status for task in all_tasks(stored)} == {"completed"}


async def test_a_run_whose_document_was_cleared_can_still_be_aborted() -> None:
    async def clear(tx: Tx) -> None:
        (await tx.doc(LIVE)).run = None

    async with open_agent(MemoryStorage(), SLOW) as agent:
        await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.commit(clear)
        await agent.root.abort()
        assert not await agent.root.busy()


async def test_a_submission_is_settled_once() -> None:
    """One that is settled already keeps its end when its run ends later."""

    async with open_agent(MemoryStorage(), SLOW) as agent:
        submission = await agent.root.submit("go")

        async def settle(tx: Tx) -> None:
            record = await tx.submission(submission.id)
            tx.put_submission(attrs.evolve(record, status="unanswered", reason="stale"))

        await agent.root.commit(settle)
        await agent.root.wait_for_idle()
        assert (await submission.record()).reason == "stale"


async def test_an_inbox_item_is_never_taken_without_being_placed() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        for number in range(3):
            await agent.root.submit(str(number))
        await agent.root.wait_for_idle()
        assert (await agent.root.snapshot(INBOX)).items == []
        assert len(await agent.lines()) == 6


def test_usage_adds_up_per_model_and_per_tool() -> None:
    one, two = UsageState(), UsageState()
    one.add("a/b", Usage(input_tokens=1, output_tokens=2, cost=0.5))
    two.add("a/b", Usage(cache_read_tokens=3, cache_write_tokens=4))
    two.add("c/d", Usage())
    one.tools["t"], two.tools["t"], two.tools["u"] = 1, 2, 3
    one.merge(two)
    assert one.models["a/b"] == UsageTotals(
        requests=2,
        input_tokens=1,
        output_tokens=2,
        cache_read_tokens=3,
        cache_write_tokens=4,
        cost=0.5,
    )
    assert one.models["c/d"].requests == 1
    assert one.tools == {"t": 3, "u": 3}
