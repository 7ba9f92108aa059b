"""Going on from a cursor: after a pause, after a restart, and when the log no longer reaches back."""

from __future__ import annotations

import trio
from pytest import mark, raises

from pidurable_actors import (
    Conversation,
    ProgressSettings,
    Reply,
    ScriptedModel,
    Settings,
    text_of,
)
from pidurable_actors.errors import CursorTooOld, StorageRequestError
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing import MemoryDisk
from pidurable_actors.testing._disks import Disk, SqliteDisk
from pidurable_actors.views import (
    BlockStarted,
    ConversationView,
    Event,
    Frame,
    LiveReplaced,
    MessageEnded,
    MessageUpdated,
    Snapshot,
)
from tests._agents import open_agent
from tests.views.following import Events, Frames, Replica, replicated, settled
from tests.views.test_watches import commit_lines, first_view


async def frames_of(
    root: Conversation, since: ConversationView, count: int
) -> list[Frame[ConversationView]]:
    async with root.watch(since=since) as watch:
        return [await anext(watch) for _ in range(count)]


async def events_of(root: Conversation, after: int, count: int) -> list[Event]:
    async with root.events(after=after) as stream:
        return [await anext(stream) for _ in range(count + 1)]


@mark.parametrize("backend", ["memory", "sqlite"])
async def test_a_reader_goes_on_after_a_restart_without_a_gap_or_a_repeat(backend: str) -> None:
    """Keep a view and a cursor; commit, restart, commit; go on from both, twice."""
    disk: Disk = MemoryDisk() if backend == "memory" else SqliteDisk()
    replica = Replica()
    async with replicated(disk.storage(), replica) as harness:
        root = await harness.root()
        await commit_lines(root, 2)
        kept = await first_view(root)
        await commit_lines(root, 3)
        other = await harness.create_conversation()
        await commit_lines(other, 4)
    async with replicated(disk.storage(), replica) as harness:
        root = await harness.root()
        await commit_lines(root, 2)
        for _ in range(2):
            frames, events = Frames(replica, root.id, durable=kept), Events(replica)
            for frame in await frames_of(root, ConversationView.from_json(kept.to_json()), 5):
                frames.take(frame)
            frames.check_complete()
            assert frames.wholes == 0
            events.shown, events.number = kept.value, kept.number
            for event in await events_of(root, kept.number, 5):
                events.take(event)
            assert not [it for it in events.events if isinstance(it, Snapshot)]
            assert frames.durable == ConversationView(events.shown, 0)
        # A cursor that another conversation's commits have moved on is as good.
        assert not isinstance((await events_of(root, 6, 1))[0], Snapshot)
    disk.close()


@mark.parametrize("log", [0, 3])
@mark.slow
async def test_a_cursor_older_than_the_log_begins_anew(log: int) -> None:
    replica = Replica()
    storage: Storage = MemoryDisk().storage()
    async with replicated(storage, replica, settings=Settings(commit_log=log)) as harness:
        root = await harness.root()
        old = await first_view(root)
        for _ in range(40):
            await commit_lines(root, 10)
            try:
                await harness.commits(after=old.number)
            except CursorTooOld:
                break
        async with root.watch(since=old) as watch, root.events(after=old.number) as stream:
            first = await anext(watch)
            assert (first.operations, first.number) == (None, replica.number)
            assert isinstance(await anext(stream), Snapshot)
            await commit_lines(root, 2)
            numbers = [(await anext(watch)).number for _ in range(2)]
            assert numbers == [replica.number - 1, replica.number]
            told = [(await anext(stream)).number for _ in range(2)]
            assert told == numbers
        newest = await first_view(root)
        async with root.watch(since=newest) as watch:
            await commit_lines(root, 1)
            assert (await anext(watch)).operations is not None


async def test_a_cursor_that_other_conversations_moved_on_is_no_mistake() -> None:
    """While somebody watches, commit elsewhere, and begin at the newest commit of all."""
    replica = Replica()
    async with replicated(MemoryDisk().storage(), replica) as harness:
        root = await harness.root()
        other = await harness.create_conversation()
        async with root.watch():
            await commit_lines(other, 5)
            async with root.events(after=replica.number) as stream:
                assert isinstance(await anext(stream), LiveReplaced)
                await commit_lines(root, 1)
                assert (await anext(stream)).number == replica.number
            view = await first_view(root)
            assert view.number == replica.number
            with raises(StorageRequestError):
                async with root.events(after=replica.number + 1):
                    raise AssertionError
            with raises(StorageRequestError):
                async with other.watch(since=view):
                    raise AssertionError
        await settled()


async def test_text_is_told_once_to_a_client_that_comes_back_in_the_middle_of_an_answer() -> None:
    """Hear half of an answer, partly stored; go; come back with the number of the last commit."""
    settings = Settings(progress=ProgressSettings(interval_ms=10, persist_within_ms=100))
    slow = Reply("".join(f"<{at}>" for at in range(200)), chunk=4, chunk_delay_s=0.005)
    model = ScriptedModel(lambda _: slow)
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        root = agent.root
        shown, cursor, answer = "", 0, ""
        async with root.events() as stream:
            submission = await root.submit("tell me")
            async for event in stream:
                cursor = event.number or cursor
                shown += event.text if isinstance(event, BlockStarted | MessageUpdated) else ""
                if len(shown) > 150:
                    break
        await trio.sleep(0.1)
        async with root.events(after=cursor) as stream:
            async for event in stream:
                if isinstance(event, LiveReplaced):
                    assert event.live.generation is not None
                    (block,) = event.live.generation.partial
                    assert str(block.text).startswith(shown)
                    shown = str(block.text)
                elif isinstance(event, BlockStarted | MessageUpdated):
                    shown += event.text
                elif isinstance(event, MessageEnded):
                    assert event.entry.model is not None
                    answer = text_of(event.entry.model[0].content)
                    break
        assert await submission.answer() == answer == shown
