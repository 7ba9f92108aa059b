"""Random conversations: whatever is handed in, and wherever the process dies, the rules hold.

Hypothesis draws what hosts do, how summaries come out and where processes end. What is checked: every submission is settled
once; within a mode, what came first is placed first; every request is legal for the strictest
provider; and a conversation that is idle holds nothing back that should run.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, TypeAlias

import attrs
import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pidurable_actors import (
    AgentChoice,
    Conversation,
    Extension,
    Models,
    Registry,
    Reply,
    ScriptedContext,
    ScriptedModel,
    Settings,
    ToolCall,
    ToolResult,
    open_harness,
    tool,
)
from pidurable_actors.agent import INBOX, LIVE, HookApi, section
from pidurable_actors.errors import ConversationBusy, NothingToRetry, ProviderError
from pidurable_actors.records import (
    CommitNumber,
    EntryDraft,
    PutSubmission,
    SubmissionId,
    SubmissionRecord,
    TextBlock,
    UserMessage,
)
from pidurable_actors.session import Publication
from pidurable_actors.settings import RetrySettings
from pidurable_actors.testing import MemoryDisk
from pidurable_actors.testing._disks import Disk, SqliteDisk
from tests._agents import MODEL
from tests._strict import check_strictly
from tests.tasks.compacting import SMALL, WINDOW, is_summary

Deed: TypeAlias = tuple[Any, ...]

LONG_S: Final = 600
"""After so long nothing goes on any more."""

OVERLOADED: Final = ProviderError("overloaded", retryable=True)
INVALID: Final = ProviderError("no", kind="invalid")


@tool(replay="safe")
async def work(n: int) -> str:
    """Take a while."""
    await trio.sleep(n / 10)
    return f"worked {n}"


@tool()
async def once() -> str:
    """Not to be run again."""
    await trio.sleep(0.25)
    return "done once"


@tool(replay="safe")
async def finish() -> ToolResult:
    """End the run."""
    return ToolResult("finished", terminate=True)


@tool(replay="safe")
async def begin_anew() -> ToolResult:
    """Forget everything."""
    return ToolResult("begun", handoff="carry on")


@section("time")
async def minutes(api: HookApi) -> str:
    """What changes by itself, every ten seconds."""
    return f"block {api.now_ms() // 10_000}"


def script(ctx: ScriptedContext) -> Reply | ProviderError:
    """Every kind of answer, by what was asked last."""
    asked = isinstance(ctx.last, UserMessage)
    match ctx.user_text:
        case "tools" if asked:
            calls = [ToolCall("work", {"n": 3}), ToolCall("once"), ToolCall("work", {"n": 1})]
            return Reply("I call.", tool_calls=calls, chunk=2, chunk_delay_s=0.1)
        case "finish" if asked:
            return Reply(tool_calls=[ToolCall("finish")])
        case "anew" if asked:
            return Reply(tool_calls=[ToolCall("begin_anew"), ToolCall("work", {"n": 2})])
        case "overloaded":
            return OVERLOADED
        case "invalid":
            return INVALID
    return Reply(f"re: {ctx.user_text}", chunk=4, chunk_delay_s=0.1)


WORDS: Final = ("hello", "tools", "finish", "anew", "overloaded", "invalid", "long")

SUMMARIES: Final[dict[str, Reply | ProviderError]] = {
    "short": Reply("It was long.", delay_s=0.3),
    "no shorter": Reply("word " * 2_000, delay_s=0.1),
    "too long": ProviderError("too long", kind="overflow"),
    "overloaded": OVERLOADED,
}


def deeds() -> st.SearchStrategy[Deed]:
    """One thing that somebody does."""
    submit = st.tuples(
        st.just("submit"), st.sampled_from(WORDS), st.sampled_from(["follow_up", "steer", "reject"])
    )
    sleep = st.tuples(st.just("sleep"), st.sampled_from([0, 0.05, 0.2, 0.5, 3]))
    return st.one_of(
        submit,
        submit,
        submit,
        st.tuples(st.just("write")),
        st.tuples(st.just("reset"), st.sampled_from([None, "go on with this"])),
        st.tuples(st.just("retry")),
        st.tuples(st.just("withdraw"), st.integers(0, 5)),
        st.tuples(st.just("abort")),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("rest")),
        sleep,
        sleep,
    )


@attrs.define
class Machine:
    """Lives of processes on one disk, and what is known of the submissions."""

    disk: Disk
    follow_up_mode: Any = "one"
    steering_mode: Any = "one"
    summary: str = "short"
    wrong: list[str] = attrs.Factory(list)
    settled: dict[SubmissionId, SubmissionRecord] = attrs.Factory(dict)
    handed_in: list[SubmissionId] = attrs.Factory(list)
    over: bool = False
    harness: Any = None

    # --- what it is told of ---

    def published(self, publication: Publication) -> None:
        """Each submission is settled once."""
        if self.over:
            return
        for change in publication.batch.changes:
            if isinstance(change, PutSubmission):
                record = change.record
                before = self.settled.get(record.id)
                if before is not None and before != record:
                    self.wrong.append(f"{before} became {record}")
                if record.status in ("done", "unanswered"):
                    self.settled[record.id] = record

    def acknowledged(self, number: CommitNumber) -> None:
        """Not of interest."""

    def answer(self, ctx: ScriptedContext) -> Reply | ProviderError:
        """The script, behind the strictest check."""
        try:
            check_strictly(ctx.messages, ctx.request.tools)
        except AssertionError as error:
            self.wrong.append(str(error))
        return SUMMARIES[self.summary] if is_summary(ctx.request) else script(ctx)

    # --- lives ---

    async def live(self, deeds: list[Deed], *, dies: bool) -> None:
        """Live once; what dies leaves what was on the disk at that instant."""
        extension = Extension("all", tools=[work, once, finish, begin_anew], sections=[minutes])
        image: object = None
        self.over = False
        async with open_harness(
            self.disk.storage(),
            models=Models([ScriptedModel(self.answer, info=WINDOW)]),
            registry=Registry([extension]),
            settings=Settings(
                retry=RetrySettings(max_retries=2, base_s=1, jitter=0),
                follow_up_mode=self.follow_up_mode,
                steering_mode=self.steering_mode,
                compaction=attrs.evolve(SMALL, background_tokens=200),
            ),
            witness=self,
            inline_storage=True,
        ) as harness:
            self.harness = harness
            root = await harness.root(agent=AgentChoice(model=MODEL))
            harness.resume()
            for deed in deeds:
                await self.perform(root, deed)
            if dies:
                image = self.disk.capture()
                self.over = True
            else:
                await self.rest(root)
        if dies:
            self.disk.restore(image)

    async def perform(self, root: Conversation, deed: Deed) -> None:
        """Do one thing."""
        match deed:
            case ("submit", text, when_busy):
                with suppress(ConversationBusy):
                    said = "x" * 800 if text == "long" else text
                    made = await root.submit(said, when_busy=when_busy)
                    self.handed_in.append(made.id)
            case ("write",):
                note = UserMessage(content=(TextBlock(text="a note"),))
                made = await root.write(EntryDraft(kind="app.note", model=(note,)))
                self.handed_in.append(made.id)
            case ("reset", handoff):
                self.handed_in.append((await root.reset(handoff)).id)
            case ("retry",):
                with suppress(ConversationBusy, NothingToRetry):
                    self.handed_in.append((await root.retry()).id)
            case ("withdraw", back) if back < len(self.handed_in):
                which = self.handed_in[-1 - back]
                await (await self.harness.submission(which)).abort()
            case ("abort",):
                await root.abort()
            case ("compact", background):
                await root.compact(background=background)
            case ("sleep", seconds):
                await trio.sleep(seconds)
            case ("rest",):
                await self.rest(root)

    async def rest(self, root: Conversation) -> None:
        """Nothing goes on any more, so nothing may be held back that should run."""
        await trio.sleep(LONG_S)
        await root.wait_for_idle()
        live, inbox = await root.snapshot(LIVE), await root.snapshot(INBOX)
        assert live.run is None
        assert not live.tools
        assert not live.held
        assert not live.compactions
        assert inbox.writes == 0
        if live.run_failure is None:
            assert not list(inbox.items), "an idle conversation holds what should run"
        waiting = {item.submission_id for item in inbox.items}
        for submission_id in self.handed_in:
            record = await (await self.harness.submission(submission_id)).record()
            # What was stored and not told of when the process died is known from here on.
            if record.status == "queued":
                assert submission_id in waiting
            else:
                assert record.status in ("done", "unanswered")
                assert self.settled.setdefault(submission_id, record) == record

    def check(self) -> None:
        """What is known at the end."""
        assert not self.wrong, self.wrong[0]
        for mode in ("follow_up", "steer", "reject"):
            placed = [
                record.entry
                for _, record in sorted(self.settled.items())
                if (record.type, record.when_busy) == ("input", mode) and record.entry is not None
            ]
            assert placed == sorted(placed), f"{mode}: not in the order of arrival"
        writes = [r.entry for _, r in sorted(self.settled.items()) if r.type == "write" and r.entry]
        assert writes == sorted(writes)


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.slow
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(
    lives=st.lists(st.lists(deeds(), max_size=14), min_size=1, max_size=3),
    follow_up_mode=st.sampled_from(["one", "all"]),
    steering_mode=st.sampled_from(["one", "all"]),
    summary=st.sampled_from(["short", "short", *SUMMARIES]),
)
def test_whatever_is_handed_in_the_rules_of_the_inbox_hold(
    backend: str, lives: list[list[Deed]], follow_up_mode: str, steering_mode: str, summary: str
) -> None:
    disk: Disk = MemoryDisk() if backend == "memory" else SqliteDisk()
    machine = Machine(disk, follow_up_mode, steering_mode, summary)

    async def play() -> None:
        for at, life in enumerate(lives):
            await machine.live(life, dies=at + 1 < len(lives))

    try:
        trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        disk.close()
    machine.check()
