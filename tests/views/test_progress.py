"""Progress: shown at once and provisionally, stored in time, and never in the wrong place."""

from __future__ import annotations

from itertools import pairwise

import trio
from pytest import mark

from pidurable_actors import AgentChoice, Harness, Reply, Settings, ToolApi, tool
from pidurable_actors.records import ConversationId
from pidurable_actors.runtime import ProgressBoard
from pidurable_actors.settings import ProgressSettings
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.views import ConversationSubject, ConversationView
from tests._agents import MODEL, STORE_FIRST, call, calling, registry_of, turns
from tests.views.following import Replica, channels_of, followed, replicated

SLOW = Reply("x" * 400, chunk=1, chunk_delay_s=0.01)


def partial_text(view: ConversationView) -> str:
    """The half answer of a view."""
    generation = view.live.generation
    return "" if generation is None else "".join(str(it.text) for it in generation.partial)


@tool()
async def tick(word: str, *, api: ToolApi) -> str:
    """Say a word ten times a second."""
    for _ in range(30):
        await api.output(word)
        await trio.sleep(0.1)
    return "ticked"


async def test_progress_is_shown_once_in_an_interval_and_stored_in_time() -> None:
    """Watch a stream of a hundred pieces a second, with the virtual clock; note when frames come."""
    replica = Replica()
    shown_at: list[float] = []
    stored_at: list[tuple[float, int]] = []
    async with replicated(MemoryStorage(), replica, model=turns(SLOW)) as harness:
        root = await harness.root()
        async with root.watch() as watch, trio.open_nursery() as nursery:

            async def look() -> None:
                async for frame in watch:
                    text = partial_text(frame.view)
                    if not text:
                        continue
                    if frame.provisional:
                        shown_at.append(trio.current_time())
                        assert frame.view.number == replica.number
                    else:
                        stored_at.append((trio.current_time(), len(text)))

            nursery.start_soon(look)
            began = trio.current_time()
            await (await root.submit("go")).wait()
            took = trio.current_time() - began
            nursery.cancel_scope.cancel()
    gaps = [b - a for a, b in pairwise(shown_at)]
    # Only the last piece, at the end of the stream, need not wait for its turn.
    assert min(gaps[:-1]) >= 0.05 - 1e-9
    seen_at = sorted([*shown_at, *(at for at, _ in stored_at)])
    assert max(b - a for a, b in pairwise(seen_at)) <= 0.07
    assert len(shown_at) >= took / 0.07
    times = [began, *(at for at, _ in stored_at)]
    assert max(b - a for a, b in pairwise(times)) <= 1.02
    for at, length in stored_at:
        assert length >= (at - began) * 100 - 5


async def test_with_zero_nothing_is_shown_before_it_is_stored() -> None:
    """Stream text and output; with each frame, compare it with a copy of what is stored then."""
    storage, replica = MemoryStorage(), Replica()
    async with replicated(
        storage,
        replica,
        model=turns(
            Reply("abcdef", tool_calls=[call("tick", word="o")], chunk=1, chunk_delay_s=0.1),
            Reply("end"),
        ),
        registry=registry_of(tick),
        settings=Settings(progress=STORE_FIRST),
    ) as harness:
        root = await harness.root()
        seen: set[str] = set()
        async with root.watch() as watch, trio.open_nursery() as nursery:

            async def look() -> None:
                async for frame in watch:
                    assert not frame.provisional
                    stored = stored_view(storage)
                    assert len(partial_text(stored)) >= len(partial_text(frame.view))
                    seen.update((partial_text(frame.view), output(frame.view)))
                    assert len(output(stored)) >= len(output(frame.view))

            nursery.start_soon(look)
            await (await root.submit("go")).wait()
            nursery.cancel_scope.cancel()
    assert {"abcdef"[:n] for n in range(7)} <= seen
    assert {"o" * n for n in range(31)} <= seen


def output(view: ConversationView) -> str:
    """The output of the one tool of a view."""
    return "".join(str(slot.output) for slot in view.live.tools.values())


async def test_output_of_parallel_tools_and_a_stream_elsewhere_do_not_mix() -> None:
    replica = Replica()
    words = "abc"
    calls = [call("tick", f"c{at}", word=word) for at, word in enumerate(words)]
    model = turns(calling(*calls), Reply("end"))
    async with replicated(
        MemoryStorage(), replica, model=model, registry=registry_of(tick)
    ) as harness:
        root = await harness.root()
        seen: dict[str, set[str]] = {}
        async with followed(harness, replica) as (frames, _):
            await (await root.submit("go")).wait()
        for frame in frames.frames:
            assert isinstance(frame.view, ConversationView)
            for slot in frame.view.live.tools.values():
                seen.setdefault(slot.call_id, set()).update(str(slot.output))
        assert seen == {f"c{at}": {word} for at, word in enumerate(words)}


async def test_a_stream_is_shown_in_its_own_conversation_alone() -> None:
    replica = Replica()
    async with replicated(MemoryStorage(), replica, model=turns(SLOW)) as harness:
        root = await harness.root()
        other = await harness.create_conversation(agent=AgentChoice(model=MODEL))
        async with followed(harness, replica, other.id) as (frames, events):
            await (await root.submit("go")).wait()
        assert len(frames.frames) == 1
        assert len(events.events) == 1


async def test_progress_that_nobody_watches_costs_nothing() -> None:
    """Count the calls of what writes progress: none is made for what only others watch."""
    board = ProgressBoard()
    written: list[object] = []
    told: list[ConversationId] = []
    board.listen(told.append)
    with board.showing(ConversationId(7), written.append) as show:
        show()
    assert told == [7]
    assert not written
    assert not board.sources(ConversationId(7))

    replica = Replica()
    async with replicated(MemoryStorage(), replica, model=turns(SLOW)) as harness:
        root = await harness.root()
        other = await harness.create_conversation()
        drafts = count_writes(harness)
        async with other.watch(), harness.watch_task_graph():
            drafts.clear()
            await (await root.submit("go")).wait()
            assert drafts == []
        async with root.watch():
            await (await root.submit("go")).wait()
            assert drafts
        assert not channels_of(harness)


def count_writes(harness: Harness) -> list[None]:
    """Notes each time that somebody asks the board for what is shown."""
    board: ProgressBoard = harness._core.board
    asked: list[None] = []

    class Sources(dict):  # type: ignore[type-arg]
        def get(self, key: object, default: object = None) -> object:
            asked.append(None)
            return super().get(key, default)

    board._sources = Sources()
    return asked


@mark.parametrize("persist_within_ms", [1_000, 200])
async def test_a_crash_loses_only_what_came_within_the_window(persist_within_ms: int) -> None:
    """Copy the storage at many moments of a stream; compare what it has with what was shown."""
    replica = Replica()
    storage = MemoryStorage()
    async with replicated(
        storage,
        replica,
        model=turns(SLOW),
        settings=Settings(progress=ProgressSettings(persist_within_ms=persist_within_ms)),
    ) as harness:
        root = await harness.root()
        history: list[tuple[float, int]] = []
        async with followed(harness, replica) as (frames, _):
            submission = await root.submit("go")
            for _ in range(38):
                await trio.sleep(0.1)
                shown = frames.frames[-1].view
                assert isinstance(shown, ConversationView)
                history.append((trio.current_time(), len(partial_text(shown))))
                stored = len(partial_text(stored_view(storage)))
                limit = trio.current_time() - persist_within_ms / 1000 - 0.07
                must = max([length for at, length in history if at <= limit], default=0)
                assert stored >= must
            await submission.wait()


def stored_view(storage: MemoryStorage) -> ConversationView:
    """What a process would see that opens a copy."""
    copy = storage.snapshot()
    copy.open(read_only=True)
    subject = ConversationSubject(ConversationId(1), None)
    view = subject.show(subject.load(copy), 0)
    copy.close()
    return view


async def test_the_next_durable_frame_confirms_what_was_shown() -> None:
    """Of a stream, each durable frame that stores more begins with all that was shown before."""
    replica = Replica()
    async with replicated(MemoryStorage(), replica, model=turns(SLOW)) as harness:
        root = await harness.root()
        async with followed(harness, replica) as (frames, _):
            await (await root.submit("go")).wait()
    longest = 0
    for frame in frames.frames[:-1]:
        assert isinstance(frame.view, ConversationView)
        length = len(partial_text(frame.view))
        assert length >= longest
        longest = length
    assert longest == 400
