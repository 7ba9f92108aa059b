"""Random hosts: whatever is handed in, withdrawn, reset, aborted, retried or killed, nothing is lost.

Hypothesis draws what a host does and when. The model refuses what a strict provider would, so a run
that such a request would have ended shows as a bug that it reports.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import pytest
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from pidurable_actors import Extension, Reply, ScriptedModel, Settings, Submission, ToolResult, tool
from pidurable_actors.agent import INBOX, HookApi, Section, hook, section
from pidurable_actors.errors import ConversationBusy, NothingToRetry, ProviderError
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import (
    AssistantMessage,
    EntryDraft,
    TextBlock,
    UserMessage,
    text_of,
)
from pidurable_actors.settings import RetrySettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import Agent, call, calling, open_agent
from tests._strict import strictly
from tests.tasks.hooking import hooking

Deed: TypeAlias = tuple[Any, ...]

TOOLS = ("work", "slow", "hand", "stop", "missing")


@tool(replay="safe")
async def work() -> str:
    """Work."""
    await trio.sleep(0.3)
    return ""


@tool(mode="sequential")
async def slow() -> str:
    """Work, with nobody beside."""
    await trio.sleep(1)
    return "slow"


@tool(replay="safe")
async def hand() -> ToolResult:
    """Begin anew."""
    await trio.sleep(0.1)
    return ToolResult("handed", handoff="anew")


@tool(replay="safe")
async def stop() -> ToolResult:
    """End the run."""
    await trio.lowlevel.checkpoint()
    return ToolResult("stopped", terminate=True)


@strictly
def script(ctx: ScriptedContext) -> Reply | ProviderError:
    """Calls the tools that the input names, once; fails or answers else."""
    words = ctx.user_text.split()[1:]
    if "fail" in words:
        return ProviderError("refused", retryable=False)
    if "flaky" in words:
        return ProviderError("overloaded", retryable=True)
    names = [word for word in words if word in TOOLS]
    if names and ctx.last is not None and ctx.last.role == "user":
        return calling(*(call(name, f"c{at}") for at, name in enumerate(names)))
    return Reply(f"re: {ctx.user_text}", delay_s=0.2, chunk=4, chunk_delay_s=0.05)


async def pressing(message: AssistantMessage, _: HookApi) -> str | None:
    """Goes on once after some answers."""
    await trio.sleep(0.1)
    return "x on" if text_of(message.content).endswith("press") else None


@section("answers")
async def answers(api: HookApi) -> str:
    """What is other in each request."""
    await trio.sleep(0.05)
    return f"It is {api.now_ms() // 1000}."


WORDS = st.lists(st.sampled_from([*TOOLS, "fail", "flaky", "press"]), max_size=3)
SUBMIT = st.tuples(st.just("submit"), WORDS, st.sampled_from(["follow_up", "steer", "reject"]))
DEEDS = st.one_of(
    SUBMIT,
    SUBMIT,
    SUBMIT,
    st.tuples(st.just("sleep"), st.sampled_from([0, 0.06, 0.12, 0.25, 0.31, 1, 3])),
    st.tuples(st.just("write")),
    st.tuples(st.just("reset"), st.sampled_from([None, "so far"])),
    st.tuples(st.just("withdraw"), st.integers(0, 9)),
    st.tuples(st.just("abort")),
    st.tuples(st.just("retry")),
    st.tuples(st.just("idle")),
)
MODES = st.sampled_from(["one", "all"])


class Host:
    """Does deeds, and remembers what it handed in."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.inputs: dict[str, Submission] = {}
        self.others: list[Submission] = []

    async def go_on(self, agent: Agent) -> Host:
        """The same in another process."""
        again = Host(agent)
        for text, submission in self.inputs.items():
            again.inputs[text] = await agent.harness.submission(submission.id)
        again.others = [await agent.harness.submission(it.id) for it in self.others]
        return again

    async def do(self, deed: Deed) -> None:
        """One deed."""
        root = self._agent.root
        match deed:
            case ("submit", words, when_busy):
                text = " ".join([f"n{len(self.inputs)}", *words])
                with suppress(ConversationBusy):
                    self.inputs[text] = await root.submit(text, when_busy=when_busy)
            case ("sleep", seconds):
                await trio.sleep(seconds)
            case ("write",):
                said = UserMessage(content=(TextBlock(text="noted"),))
                self.others.append(await root.write(EntryDraft(kind="app.note", model=(said,))))
            case ("reset", handoff):
                self.others.append(await root.reset(handoff))
            case ("withdraw", at):
                waiting = list(self.inputs.values())
                if at < len(waiting):
                    await waiting[at].abort()
            case ("abort",):
                await root.abort()
            case ("retry",):
                with suppress(ConversationBusy, NothingToRetry):
                    self.others.append(await root.retry())
            case _:
                await root.wait_for_idle()

    async def check_idle(self) -> None:
        """Nothing waits but for the next submission after a failed run; then it goes on too."""
        root = self._agent.root
        await root.wait_for_idle()
        for _ in range(len(self.inputs) + 1):
            if not (await root.snapshot(INBOX)).items:
                break
            assert (await self._agent.live()).run_failure is not None
            text = f"n{len(self.inputs)}"
            self.inputs[text] = await root.submit(text)
            await root.wait_for_idle()

    async def check_ends(self) -> None:
        """Every submission is settled, and its text is placed exactly when it says so."""
        said = [
            text_of(message.content)
            for entry in await self._agent.entries()
            for message in entry.model or ()
            if message.role == "user"
        ]
        for text, submission in self.inputs.items():
            record = await submission.record()
            assert record.status in ("done", "unanswered"), (text, record)
            assert said.count(text) == (record.reason != "withdrawn"), (text, record)
            assert (record.entry is None) == (record.reason == "withdrawn")
        for other in self.others:
            assert (await other.record()).status in ("done", "unanswered")
        placed = [text for text in said if text in self.inputs]
        for kind in ("follow_up", "steer"):
            order = [int(text.split()[0][1:]) for text in placed if await self._is(text, kind)]
            assert order == sorted(order), placed

    async def _is(self, text: str, kind: str) -> bool:
        return (await self.inputs[text].record()).when_busy == kind


@contextlib.asynccontextmanager
async def opened(storage: MemoryStorage, options: Settings) -> AsyncIterator[Agent]:
    """An agent with all of it; at the end nothing was reported that only a bug would report."""
    registry = hooking(hook.on_yield(pressing), tools=[work, slow, hand, stop])
    registry.install(Extension("s", sections=[answers, Section("rules", "Be kind.")]))
    model = ScriptedModel(script)
    async with open_agent(storage, model, registry=registry, settings=options) as agent:
        yield agent
    assert {report.kind for report in agent.reports} <= {"task_interrupted"}, agent.reports


async def story(deeds: list[Deed], options: Settings, *, crashes: bool) -> None:
    """Do the deeds, die or not, let everything end, and look."""
    storage = MemoryStorage()
    async with opened(storage, options) as agent:
        host = Host(agent)
        for deed in deeds:
            await host.do(deed)
        left = storage.snapshot() if crashes else storage
    async with opened(left, options) as agent:
        again = await host.go_on(agent)
        await again.check_idle()
        await again.check_ends()


@pytest.mark.slow
@settings(max_examples=150)
@given(
    deeds=st.lists(DEEDS, min_size=3, max_size=16),
    steering=MODES,
    follow_up=MODES,
    crashes=st.booleans(),
)
def test_whatever_a_host_does_each_input_has_its_place_and_its_end(
    deeds: list[Deed], steering: Any, follow_up: Any, *, crashes: bool
) -> None:
    """Behind the last deed the process is killed or closed; another one lets everything end."""
    options = Settings(
        retry=RetrySettings(max_retries=1, base_s=0.5, jitter=0),
        steering_mode=steering,
        follow_up_mode=follow_up,
    )
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(partial(story, deeds, options, crashes=crashes), clock=clock)
