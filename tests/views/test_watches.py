"""Watches: how they begin, end, fall behind and go on, and whom they never harm."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import Context, Conversation, Tx, open_harness
from pidurable_actors.errors import (
    CommitReentered,
    ContextCancelled,
    HarnessBug,
    HarnessClosed,
    ReadOnlySession,
    SessionFailed,
    StorageRequestError,
)
from pidurable_actors.records import ConversationId, EntryDraft, EntryId
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import FaultyStorage, HangingStorage
from pidurable_actors.views import ConversationView, Snapshot
from tests._tasks import COUNT, opened, until
from tests.views.following import (
    Frames,
    Replica,
    channels_of,
    followed,
    hub_of,
    replicated,
    settled,
)


class Odd(BaseException):
    """Nothing that anybody expects."""


def texts(view: ConversationView) -> list[object]:
    """The data of the entries of a view."""
    return [entry.data for entry in view.entries]


async def commit_lines(root: Conversation, count: int) -> None:
    for at in range(count):
        await root.commit(partial(line, data=at))


def line(tx: Tx, *, data: int) -> None:
    assert tx.conversation_id is not None
    tx.append_entry(tx.conversation_id, EntryDraft(kind="app.line", data=data))


# --- frames ---


async def test_the_first_frame_is_the_view_and_each_commit_that_touches_it_makes_one() -> None:
    replica = Replica()
    async with replicated(MemoryStorage(), replica) as harness:
        root, other = await harness.root(), await harness.create_conversation()
        await commit_lines(root, 2)
        async with root.watch() as watch:
            await commit_lines(root, 2)
            await commit_lines(other, 3)
            await harness.create_conversation()
            await root.commit(lambda tx: tx.doc(COUNT))  # nothing is written
            await commit_lines(root, 1)
            watch.stop()
            got = [frame async for frame in watch]
        assert not got
        async with root.watch() as watch:
            newest = replica.number
            await commit_lines(other, 2)
            await commit_lines(root, 2)
            first, second, third = [await anext(watch) for _ in range(3)]
    assert first.operations is None
    assert texts(first.view) == [0, 1, 0, 1, 0]
    assert first.number == newest
    assert [second.number, third.number] == [newest + 3, newest + 4]
    assert texts(third.view) == [0, 1, 0, 1, 0, 0, 1]
    assert third.operations is not None
    assert third.view == second.view.apply(third.operations, third.number)


async def test_a_view_goes_elsewhere_as_json_and_is_kept_up_to_date_there() -> None:
    replica = Replica()
    async with replicated(MemoryStorage(), replica) as harness:
        root = await harness.root()
        async with root.watch() as watch:
            copy = ConversationView.from_json((await anext(watch)).view.to_json())
            await commit_lines(root, 3)
            for _ in range(3):
                frame = await anext(watch)
                assert frame.operations is not None
                copy = copy.apply(frame.operations, frame.number)
                assert copy == frame.view
                assert copy.number == frame.number
        async with root.watch(since=copy) as watch:
            await commit_lines(root, 1)
            assert (await anext(watch)).number == replica.number


@mark.slow
async def test_a_frame_is_made_once_for_a_thousand_watchers_and_forgotten_with_them() -> None:
    async with opened(MemoryStorage()) as on:
        seen: list[set[int]] = [set(), set()]
        kept: list[weakref.ref[Any]] = []
        ready = 0

        async def look() -> None:
            nonlocal ready
            async with on.root.watch() as watch:
                await anext(watch)
                ready += 1
                for at in range(2):
                    frame = await anext(watch)
                    seen[at].add(id(frame))
                    if not seen[at] - {id(frame)}:
                        kept.append(weakref.ref(frame))

        async with trio.open_nursery() as nursery:
            for _ in range(1_000):
                nursery.start_soon(look)
            await until(lambda: ready == 1_000)
            assert len(channels_of(on.harness)) == 1
            await commit_lines(on.root, 2)
        assert [len(it) for it in seen] == [1, 1]
        assert not channels_of(on.harness)
        assert not hub_of(on.harness)._documents
        gc.collect()
        assert [it() for it in kept] == [None] * len(kept)


@mark.slow
async def test_a_slow_watcher_gets_the_whole_newest_view_and_no_other_is_affected() -> None:
    replica = Replica()
    async with replicated(MemoryStorage(), replica) as harness:
        root = await harness.root()
        async with (
            root.watch() as just,
            root.watch() as late,
            followed(harness, replica) as (
                frames,
                events,
            ),
        ):
            first = await anext(just), await anext(late)
            assert first[0].number == first[1].number
            await commit_lines(root, 100)
            just_got = [await anext(just) for _ in range(100)]
            assert [it.operations is None for it in just_got] == [False] * 100
            await commit_lines(root, 1)
            whole = await anext(late)
            assert whole.operations is None
            assert whole.number == replica.number
            assert len(whole.view.entries) == 101
            await commit_lines(root, 1)
            assert (await anext(late)).operations is not None
        assert frames.wholes == 1
        assert len(frames.frames) == 103
        assert len([it for it in events.events if isinstance(it, Snapshot)]) == 1


async def test_events_that_were_missed_come_as_a_snapshot() -> None:
    async with opened(MemoryStorage()) as on, on.root.events() as stream:
        await anext(stream)
        await commit_lines(on.root, 101)
        snapshot = await anext(stream)
        assert isinstance(snapshot, Snapshot)
        assert len(snapshot.view.entries) == 101
        await commit_lines(on.root, 1)
        assert type(await anext(stream)).__name__ == "EntryAppended"


async def test_a_head_that_goes_back_shows_again_what_the_one_before_took_away() -> None:
    replica = Replica()
    async with replicated(MemoryStorage(), replica) as harness:
        root = await harness.root()
        async with followed(harness, replica) as (frames, _):
            await commit_lines(root, 6)
            ids = [entry.id for entry in reversed((await root.entries()).items)]
            for at in (5, 3, 1, 4):
                await root.commit(partial(head, entry_id=ids[at]))
                await settled()
                await commit_lines(root, 1)
                await settled()
        assert frames.wholes == 3
        assert frames.durable is not None


def head(tx: Tx, *, entry_id: EntryId) -> None:
    assert tx.conversation_id is not None
    tx.append_entry(tx.conversation_id, EntryDraft(kind="app.head", head=entry_id))


# --- ends ---


async def test_a_watch_ends_as_stopped_by_itself_by_another_task_and_with_its_block() -> None:
    async with opened(MemoryStorage()) as on:
        async with on.root.watch() as watch:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(drain, watch)
                await trio.testing.wait_all_tasks_blocked()
                watch.stop()
                watch.stop()
            assert watch.end == "stopped"
            with raises(StopAsyncIteration):
                await anext(watch)
        async with on.root.watch() as watch:
            await anext(watch)
        assert watch.end == "stopped"
        with raises(StopAsyncIteration):
            await anext(watch)


async def drain(watch: Any) -> list[Any]:
    return [item async for item in watch]


async def test_a_watch_ends_as_cancelled_with_its_context() -> None:
    async with opened(MemoryStorage()) as on:
        for way in ("cancel", "deadline"):
            context = Context(deadline=trio.current_time() + 5)
            async with on.root.watch(context=context) as watch, trio.open_nursery() as nursery:
                nursery.start_soon(drain, watch)
                await trio.testing.wait_all_tasks_blocked()
                if way == "cancel":
                    context.cancel("enough")
            assert watch.end == "cancelled"
            with raises(ContextCancelled):
                async with on.root.watch(context=context):
                    raise AssertionError


async def test_a_watch_ends_with_the_harness_after_the_frame_of_the_last_commit() -> None:
    replica = Replica()
    frames = Frames(replica, ConversationId(1))
    ends: list[object] = []
    async with trio.open_nursery() as nursery, replicated(MemoryStorage(), replica) as harness:
        root = await harness.root()

        async def look() -> None:
            async with root.watch() as watch, root.events() as stream:
                async for frame in watch:
                    frames.take(frame)
                await drain(stream)
                ends.extend((watch.end, stream.end))

        nursery.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        await commit_lines(root, 5)
    assert ends == ["session_closed", "session_closed"]
    assert frames.durable is not None
    frames.check_complete()
    with raises(HarnessClosed):
        async with root.watch():
            raise AssertionError


async def test_a_watch_ends_as_failed_when_the_storage_does() -> None:
    ends: list[object] = []
    storage = FaultyStorage(MemoryStorage())
    async with trio.open_nursery() as nursery:
        with raises(SessionFailed):
            async with opened(storage) as on:

                async def look() -> None:
                    async with on.root.watch() as watch:
                        ends.append([frame.number async for frame in watch])
                        ends.append(watch.end)

                nursery.start_soon(look)
                await trio.testing.wait_all_tasks_blocked()
                await commit_lines(on.root, 2)
                storage.arm(at_write=1)
                with raises(BaseException):  # noqa: B017 - which one is the business of others
                    await commit_lines(on.root, 1)
    assert ends[1] == "session_failed"
    assert ends[0] == [1, 2, 3]


async def test_watching_is_refused_inside_a_callback_and_on_a_harness_that_only_looks() -> None:
    storage = MemoryStorage()
    async with opened(storage) as on:

        async def change(tx: Tx) -> None:
            async with on.root.watch():
                raise AssertionError

        with raises(CommitReentered):
            await on.root.commit(change)
        with raises(StorageRequestError):
            async with on.root.watch(since=view_of(on.root, await first_view(on.root), 99)):
                raise AssertionError
        with raises(StorageRequestError):
            async with on.root.events(after=99):
                raise AssertionError
    async with open_harness(storage, read_only=True) as harness:
        root = await harness.root()
        for feed in (root.watch(), root.events(), harness.watch_task_graph()):
            with raises(ReadOnlySession):
                async with feed:
                    raise AssertionError


async def first_view(root: Conversation) -> ConversationView:
    async with root.watch() as watch:
        return (await anext(watch)).view


def view_of(root: Conversation, view: ConversationView, number: int) -> ConversationView:
    return ConversationView(view.value, number)


# --- whom a watcher harms ---


@mark.parametrize(
    "error", [ValueError("x"), Odd("x"), ExceptionGroup("x", [ValueError("y")])], ids=repr
)
async def test_a_watcher_that_raises_harms_nobody(error: BaseException) -> None:
    replica = Replica()
    async with replicated(MemoryStorage(), replica) as harness:
        root = await harness.root()
        async with followed(harness, replica) as (frames, _):
            for _ in range(3):
                with raises(type(error)):
                    async with root.watch() as watch:
                        async for _frame in watch:
                            raise error
                await commit_lines(root, 1)
        assert len(frames.frames) == 4


@mark.slow
async def test_a_watcher_cancelled_at_any_await_harms_nobody_and_loses_nothing_for_others() -> None:
    """Cancel a reader at its first, second, ... checkpoint, until it gets to its end."""
    replica = Replica()
    async with replicated(MemoryStorage(), replica) as harness:
        root = await harness.root()
        async with followed(harness, replica) as (frames, _), trio.open_nursery() as nursery:

            async def disturb() -> None:
                while True:
                    await commit_lines(root, 1)
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(disturb)
            since = await first_view(root)
            for at in range(10_000):
                if await cancelled_at(at, lambda: read_some(root, since)):
                    break
            else:
                raise AssertionError("it never came to its end")
            nursery.cancel_scope.cancel()
        assert at > 8
        assert not channels_of(harness)
        assert frames.durable is not None


async def read_some(root: Conversation, since: ConversationView) -> None:
    async with root.watch() as watch, root.watch(since=since), root.events(after=1) as stream:
        for _ in range(4):
            await anext(watch)
            await anext(stream)


async def cancelled_at(at: int, work: Callable[[], Awaitable[None]]) -> bool:
    """Whether work was done before another task had run `at` times, and cancelled it."""
    done = False

    async def run() -> None:
        nonlocal done
        await work()
        done = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        for _ in range(at):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return done


async def test_a_watcher_that_never_looks_holds_up_nothing() -> None:
    async with opened(MemoryStorage()) as on, on.root.watch(), on.root.events():
        await commit_lines(on.root, 300)
        (channel,) = channels_of(on.harness).values()
        assert len(channel._steps) == 100


async def test_a_bug_of_a_view_is_seen_by_its_watchers_and_does_not_stop_commits() -> None:
    async with opened(MemoryStorage()) as on:
        async with on.root.watch() as watch, on.harness.watch_task_graph() as graph:
            await anext(watch)
            await anext(graph)
            (channel, _) = channels_of(on.harness).values()
            channel.durable = None  # no view at all
            await commit_lines(on.root, 2)
            with raises(HarnessBug) as caught:
                await anext(watch)
            assert caught.value.__cause__ is not None
            with raises(StopAsyncIteration):
                await anext(watch)
            async with on.root.watch() as again:
                assert len((await anext(again)).view.entries) == 2
        assert graph.end == "stopped"


# --- attaching is atomic ---


async def test_who_attaches_while_a_commit_is_written_misses_nothing() -> None:
    """Hold a write; attach, watch it go on, and hold the read of the attachment, in turn."""
    with HangingStorage(MemoryStorage()) as storage:
        replica = Replica()
        async with replicated(storage, replica) as harness:
            root = await harness.root()
            async with trio.open_nursery() as nursery:
                readers: list[Frames] = []

                async def read(since: ConversationView | None) -> None:
                    frames = Frames(replica, root.id)
                    frames.durable = since
                    readers.append(frames)
                    async with root.watch(since=since) as watch:
                        await frames.follow(watch)

                since = await first_view(root)
                for _ in range(4):
                    storage.hang("write")
                    for _ in range(3):
                        nursery.start_soon(commit_lines, root, 2)
                    await until(lambda: storage.held)
                    nursery.start_soon(read, None)
                    nursery.start_soon(read, since)
                    await settled()
                    storage.release()
                    await settled()
                    nursery.start_soon(read, None)
                    storage.hang("read")
                    nursery.start_soon(read, since)
                    await settled()
                    storage.release()
                await until(lambda: replica.number == 25)
                await until(lambda: all(it.durable is not None for it in readers))
                await settled()
                await until(lambda: all(number_of(it) == 25 for it in readers))
                for frames in readers:
                    frames.check_complete()
                nursery.cancel_scope.cancel()


def number_of(frames: Frames) -> int:
    assert frames.durable is not None
    return frames.durable.number


@mark.parametrize("seed", range(5))
@mark.slow
async def test_many_attach_and_detach_while_many_commit(seed: int) -> None:
    replica = Replica()
    async with replicated(MemoryStorage(), replica) as harness:
        root = await harness.root()

        async def come_and_go(at: int) -> None:
            kept: ConversationView | None = None
            for turn in range(6):
                frames = Frames(replica, root.id)
                frames.durable = kept if (turn + at) % 2 else None
                if frames.durable is not None:
                    frames.shown = frames.durable.value
                async with root.watch(since=frames.durable) as watch:
                    for _ in range((turn * 7 + at * 5 + seed) % 4 + 1):
                        frames.take(await anext(watch))
                    assert isinstance(frames.durable, ConversationView)
                    kept = frames.durable
                for _ in range((at * 3 + turn * seed) % 5):
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as outer:
            outer.start_soon(commit_on, root)
            outer.start_soon(commit_on, root)
            async with trio.open_nursery() as nursery:
                for at in range(12):
                    nursery.start_soon(come_and_go, at)
            outer.cancel_scope.cancel()
        assert not channels_of(harness)


async def commit_on(root: Conversation) -> None:
    while True:
        await commit_lines(root, 1)
