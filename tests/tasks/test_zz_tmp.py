"""Anything at any time, with compactions of every kind under it: nothing is lost, doubled or stuck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pidurable_actors import Reply, Settings, tool
from pidurable_actors.agent import INBOX
from pidurable_actors.errors import ConversationBusy, NothingToRetry, ProviderError
from pidurable_actors.models import ModelInfo, ScriptedContext
from pidurable_actors.records import ToolResultMessage, UserMessage, text_of
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import EXACT, Answer, all_submissions, call, calling, peek
from tests.tasks.compacting import SMALL, WINDOW, Compacting, compacting, is_summary, overflow
from tests.tasks.test_compaction_range import check_legal

Op = tuple[str, Any]
LIMITED = attrs.evolve(SMALL, background_tokens=200)

OPS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["follow_up", "steer", "reject"])),
    st.tuples(st.just("submit"), st.sampled_from(["follow_up", "steer"])),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("reset"), st.booleans()),
    st.tuples(st.just("abort"), st.booleans()),
    st.tuples(st.just("retry"), st.none()),
    st.tuples(st.just("prompt"), st.integers(0, 2)),
    st.tuples(st.just("sleep"), st.sampled_from([0.01, 0.3, 1.1, 5.0])),
    st.tuples(st.just("process"), st.sampled_from(["crash", "close"])),
)


@tool(replay="safe")
async def read() -> str:
    """Read a page."""
    await trio.sleep(0.2)
    return "a page " * 40


class Model:
    """What answers, and what it was asked: each request is looked at.

    Args:
        strict: refuses what is too long, and nobody knows its window.
        summaries: how summaries come out, in turn.
    """

    def __init__(self, strict: bool, summaries: Sequence[str]) -> None:
        self.strict = strict
        self.summaries = list(summaries)

    def reply(self, ctx: ScriptedContext) -> Answer:
        """Answer, after a look at whether it is legal and has one summary, at the beginning."""
        if is_summary(ctx.request):
            return self._summary()
        check_legal(ctx.messages)
        texts = [
            getattr(block, "text", "")
            for message in ctx.messages
            if isinstance(message, UserMessage)
            for block in message.content
        ]
        summaries = ["<summary>" in text for text in texts]
        assert not any(summaries[1:]), "a summary in the middle"
        if self.strict and sum(map(len, texts)) > 2_400:
            return overflow()
        if "tool" in ctx.user_text and not isinstance(ctx.last, ToolResultMessage):
            return calling(call("read", f"c{ctx.answers % 2}"))
        return Reply(f"re: {ctx.user_text[:6]}", delay_s=0.3)

    def _summary(self) -> Answer:
        kind = self.summaries.pop(0) if self.summaries else "good"
        match kind:
            case "long":
                return Reply("y" * 9_000, delay_s=1)
            case "busy":
                return ProviderError("busy", retryable=True)
            case "broken":
                return ProviderError("no", kind="auth")
        return Reply("short", delay_s=1)


class Life:
    """A conversation through several processes.

    Args:
        model: what answers.
        info: what is known of it.
    """

    def __init__(self, model: Model, info: ModelInfo | None) -> None:
        self.storage = MemoryStorage()
        self.model = model
        self.info = info
        self.asked = 0

    async def run(self, ops: Sequence[Op]) -> None:
        """Do all of it; each "process" ends one process and begins the next."""
        # It begins with enough to summarize.
        rest = [("submit", "follow_up")] * 5 + [("sleep", 5.0), *ops]
        while True:
            chosen = Settings(compaction=LIMITED, retry=EXACT)
            async with compacting(
                self.storage, self.model.reply, read, info=self.info, settings=chosen
            ) as it:
                it.harness.resume()
                how = await self._until_end(it, rest)
                crashed = self.storage.snapshot()
                if how is None:
                    await self._settle(it)
                    return
            if how == "crash":
                self.storage = crashed

    async def _until_end(self, it: Compacting, rest: list[Op]) -> str | None:
        while rest:
            kind, value = rest.pop(0)
            if kind == "process":
                return str(value)
            with trio.move_on_after(200) as limit:
                await self._do(it, kind, value)
            assert not limit.cancelled_caught, kind
        return None

    async def _do(self, it: Compacting, kind: str, value: Any) -> None:
        try:
            match kind:
                case "submit":
                    self.asked += 1
                    what = "tool" if self.asked % 3 == 0 else "text"
                    text = f"{self.asked} {what} {'x' * 300 * (self.asked % 4)}"
                    await it.root.submit(text, when_busy=value)
                case "compact":
                    await it.root.compact(background=value)
                case "reset":
                    await it.root.reset("go on" if value else None)
                case "abort":
                    await it.root.abort(background=value)
                case "retry":
                    await it.root.retry()
                case "prompt":
                    await it.root.configure(instructions="i" * 100 * value or None)
                case _:
                    await trio.sleep(value)
        except (ConversationBusy, NothingToRetry):
            pass

    async def _settle(self, it: Compacting) -> None:
        """All comes to rest by itself, but for a queue that a failed run left."""
        await trio.sleep(600)
        live = await it.agent.live()
        assert (live.run, live.compactions, live.held) == (None, [], False)
        assert live.run_failure is not None or not (await it.root.snapshot(INBOX)).items
        # What is too large for good, as summaries failed, goes on behind a reset.
        await it.root.reset()
        assert (await it.agent.ask("last")).status == "done"
        await it.root.wait_for_idle()
        assert (await it.root.snapshot(INBOX)).items == []
        assert not any(task.kind == "pi.compaction" for task in it.harness.inspect().tasks)
        assert not [r for r in it.agent.reports if r.kind != "task_interrupted"]


def check_settled(storage: MemoryStorage) -> None:
    """Each submission is settled; what was answered is in the transcript once."""
    with peek(storage) as stored:
        submissions = all_submissions(stored)
        entries = stored.entries(1, before=2**63 - 1, limit=1_000)  # type: ignore[arg-type]
    assert all(record.status in ("done", "unanswered") for record in submissions)
    said = [
        text_of(message.content)
        for entry in entries
        if entry.kind == "pi.user"
        for message in entry.model or ()
        if text_of(message.content) != "last"
    ]
    assert len(said) == len(set(said))


@pytest.mark.slow
@settings(max_examples=4000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(OPS, max_size=40),
    st.booleans(),
    st.lists(st.sampled_from(["good", "long", "busy", "broken"]), max_size=6),
)
def test_whatever_happens_each_input_is_settled_and_each_request_is_legal(
    ops: list[Op], strict: bool, summaries: list[str]
) -> None:
    life = Life(Model(strict, summaries), None if strict else WINDOW)
    trio.run(life.run, ops, clock=trio.testing.MockClock(autojump_threshold=0))
    check_settled(life.storage)
