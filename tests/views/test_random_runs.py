"""Random conversations: whatever happens, the view is the one that is stored, and nothing is lost.

Hypothesis draws what a host does, when readers come and go, and where the process dies. A `Replica`
knows what is stored after every commit; every reader is checked against it with every item.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import attrs
import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pidurable_actors import (
    Ask,
    Conversation,
    Harness,
    Reply,
    Settings,
    ToolApi,
    ToolCall,
    Tx,
    tool,
)
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import (
    AlreadyAnswered,
    ConversationBusy,
    NothingToRetry,
    ProviderError,
    StorageRequestError,
)
from pidurable_actors.models.scripted import Break, ScriptedContext, ScriptedModel
from pidurable_actors.records import EntryDraft, EntryId, TextBlock, UserMessage
from pidurable_actors.settings import ProgressSettings, RetrySettings
from pidurable_actors.testing import MemoryDisk
from pidurable_actors.testing._disks import Disk, SqliteDisk
from tests._agents import registry_of
from tests.views.following import Events, Frames, Replica, replicated, settled

Deed: TypeAlias = tuple[Any, ...]

FAILURE = ProviderError("overloaded", retryable=True)


@tool()
async def shout(n: int, *, api: ToolApi) -> str:
    """Put out much, in pieces."""
    for at in range(n):
        await api.output(f"{at} " * 5_000 + "\n")
        await trio.sleep(0.07)
    return "shouted"


@tool()
async def stumble(*, api: ToolApi) -> str:
    """Say something and fail."""
    await api.output("on my way")
    await trio.sleep(0.2)
    raise ValueError("no")


@tool()
async def wonder() -> Ask:
    """Ask somebody, who may answer."""
    await trio.lowlevel.checkpoint()
    return Ask("Well?", deadline_s=2)


@wonder.resume
async def decide(*_: object) -> str:
    """Take what came."""
    await trio.lowlevel.checkpoint()
    return "decided"


def script(ctx: ScriptedContext) -> Reply:
    """Every kind of answer, by what was asked; the first asking of some fails."""
    words = ctx.user_text.split()
    word = words[0] if words else ""
    match word:
        case "tools" if isinstance(ctx.last, UserMessage):
            calls = [ToolCall("shout", {"n": 4}), ToolCall("stumble"), ToolCall("shout", {"n": 9})]
            return Reply("I call.", thinking="hm", tool_calls=calls, chunk=2, chunk_delay_s=0.03)
        case "ask" if isinstance(ctx.last, UserMessage):
            return Reply("I ask.", tool_calls=[ToolCall("wonder"), ToolCall("wonder")])
        case "fail":
            return Reply("It breaks", chunk=2, chunk_delay_s=0.1, fault=Break(6, FAILURE))
        case "think":
            return Reply("So it is.", thinking="I think of it.", chunk=3, chunk_delay_s=0.017)
    return Reply(f"re: {ctx.user_text} " * 5, chunk=7, chunk_delay_s=0.3)


def deeds() -> st.SearchStrategy[Deed]:
    """One thing that somebody does."""
    return st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(["tools", "fail", "think", "ask", "hello"])),
        st.tuples(st.just("answer")),
        st.tuples(st.just("steer"), st.sampled_from(["hello", "tools"])),
        st.tuples(st.just("write")),
        st.tuples(st.just("withdraw")),
        st.tuples(st.just("abort")),
        st.tuples(st.just("reset"), st.sampled_from([None, "So far."])),
        st.tuples(st.just("retry")),
        st.tuples(st.just("entries"), st.sampled_from([1, 3, 400])),
        st.tuples(st.just("head"), st.integers(0, 40)),
        st.tuples(st.just("configure"), st.sampled_from(["low", "high", None])),
        st.tuples(st.just("fork")),
        st.tuples(st.just("sleep"), st.sampled_from([0, 0.01, 0.06, 0.4, 1.1, 5])),
        st.tuples(st.just("sleep"), st.sampled_from([0.01, 0.06, 0.4, 1.1])),
        st.tuples(st.just("join")),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("again"), st.integers(0, 5)),
    )


@attrs.define
class Reader:
    """One who watches and hears a conversation."""

    conversation: Conversation
    frames: Frames
    events: Events
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)

    async def read(self) -> None:
        since, after = self.frames.durable, None
        if since is not None:
            # A copy elsewhere falls back to what is stored.
            assert since.number is not None
            self.frames.shown = self.events.shown = since.value
            after = self.events.number = since.number
        with self.scope:
            async with (
                self.conversation.watch(since=since) as watch,  # type: ignore[arg-type]
                self.conversation.events(after=after) as stream,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self.frames.follow, watch)
                nursery.start_soon(self.events.follow, stream)

    def again(self, conversation: Conversation, replica: Replica) -> Reader:
        """The same, going on from what it has."""
        frames = Frames(replica, conversation.id, durable=self.frames.durable)
        return Reader(conversation, frames, Events(replica))


@attrs.define
class Life:
    """One process."""

    harness: Harness
    replica: Replica
    nursery: trio.Nursery
    readers: list[Reader]
    places: list[Conversation]

    def join(self, reader: Reader) -> None:
        self.readers.append(reader)
        self.nursery.start_soon(reader.read)

    def fresh(self, place: Conversation) -> Reader:
        return Reader(place, Frames(self.replica, place.id), Events(self.replica))

    async def perform(self, deed: Deed) -> None:
        place = self.places[-1]
        match deed:
            case ("submit", text):
                await place.submit(text)
            case ("steer", text):
                await place.submit(text, when_busy="steer")
            case ("write",):
                await place.write(EntryDraft(kind="app.line", data={"x": "y" * 30}))
            case ("withdraw",):
                queued = await place.submit("hello")
                await queued.abort()
            case ("answer",):
                for question in (await self.harness.questions(limit=1)).items:
                    with suppress(AlreadyAnswered):
                        await self.harness.answer(question.id, None, by="somebody")
            case ("abort",):
                await place.abort()
            case ("reset", handoff):
                await place.reset(handoff)
            case ("retry",):
                with suppress(ConversationBusy, NothingToRetry):
                    await place.retry()
            case ("entries", count):
                await place.commit(partial(append, place=place, count=count))
            case ("head", back):
                await place.commit(lambda tx: set_head(tx, place, back))
            case ("configure", level):
                await place.configure(thinking_level=level)
            case ("fork",):
                with suppress(StorageRequestError):  # it has no entry yet
                    self.places.append(await place.fork())
                    self.join(self.fresh(self.places[-1]))
            case ("sleep", seconds):
                await trio.sleep(seconds)
            case ("join",):
                self.join(self.fresh(place))
            case ("leave", which) if self.readers:
                self.readers.pop(which % len(self.readers)).scope.cancel()
            case ("again", which) if self.readers:
                reader = self.readers.pop(which % len(self.readers))
                reader.scope.cancel()
                await trio.sleep(0.2)
                self.join(reader.again(reader.conversation, self.replica))


def append(tx: Tx, *, place: Conversation, count: int) -> None:
    for at in range(count):
        message = UserMessage(content=(TextBlock(text=f"line {at}"),))
        draft = EntryDraft(kind="app.bulk", model=(message,), data={"at": at})
        tx.append_entry(place.id, draft)


async def set_head(tx: Tx, place: Conversation, back: int) -> None:
    """A head as a compaction or a reset sets one, or one that goes back behind those."""
    newest = await tx.entries(place.id)
    ids = [entry.id for entry in newest]
    head = ids[min(back, len(ids) - 1)] if ids else None
    tx.append_entry(place.id, EntryDraft(kind="app.head", head=EntryId(head) if head else None))


@attrs.define
class Story:
    """Lives of processes on one disk."""

    disk: Disk
    settings: Settings
    replica: Replica = attrs.Factory(Replica)
    kept: list[Reader] = attrs.Factory(list)

    async def live(self, deeds: list[Deed], *, dies: bool) -> None:
        """Live once; with `dies`, what is on the disk afterwards is what was there at the end."""
        image: object = None
        async with replicated(
            self.disk.storage(),
            self.replica,
            model=ScriptedModel(script),
            registry=registry_of(shout, stumble, wonder),
            settings=self.settings,
            inline=True,
        ) as harness:
            harness.resume()
            root = await harness.root()
            async with trio.open_nursery() as nursery:
                life = Life(harness, self.replica, nursery, [], [root])
                for reader in self.kept:
                    place = await harness.conversation(reader.conversation.id)
                    life.join(reader.again(place, self.replica))
                life.join(life.fresh(root))
                for deed in deeds:
                    await life.perform(deed)
                if dies:
                    # Until what is stored is published too: the replica learns of no more.
                    await settled()
                    while harness._core.engine.line.state.number != self.replica.number:
                        await trio.lowlevel.checkpoint()
                    image = self.disk.capture()
                    number = self.replica.number
                    self.kept = [
                        Reader(
                            it.conversation,
                            Frames(self.replica, it.frames.what, durable=it.frames.durable),
                            Events(self.replica),
                        )
                        for it in life.readers
                    ]
                else:
                    await trio.sleep(300)
                    number = self.replica.number
                await settled()
                for reader in life.readers:
                    if reader.frames.durable is not None:
                        reader.frames.check_complete(number)
                nursery.cancel_scope.cancel()
        if dies:
            self.disk.restore(image)
            self.replica = self.replica.cut(number)


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.slow
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(
    lives=st.lists(st.lists(deeds(), max_size=14), min_size=1, max_size=3),
    persist_within_ms=st.sampled_from([1_000, 1_000, 0, 90]),
    log=st.sampled_from([10_000, 10_000, 5, 0]),
)
def test_readers_see_what_is_stored(
    backend: str, lives: list[list[Deed]], persist_within_ms: int, log: int
) -> None:
    """Play random lives; every reader checks every item, and that nothing is missing."""
    disk: Disk = MemoryDisk() if backend == "memory" else SqliteDisk()
    story = Story(
        disk,
        Settings(
            commit_log=log,
            progress=ProgressSettings(persist_within_ms=persist_within_ms),
            retry=RetrySettings(max_retries=2, base_s=1),
        ),
    )

    async def play() -> None:
        for at, deeds in enumerate(lives):
            await story.live(deeds, dies=at + 1 < len(lives))

    try:
        trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        disk.close()


def test_the_window_of_a_view_is_drawn_beyond_its_bound() -> None:
    """So that what is drawn above can leave it."""
    assert LIMITS.view_entries < 400 * 3
