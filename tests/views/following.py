"""What a reader of frames and events may rely on, checked with every item.

A `Replica` is told of each commit before anybody else and applies it, alone, to a storage of its
own. So it knows what a view that is built freshly from storage shows after every single commit,
also where the real storage wrote several at once. Followers compare what they are given with that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from pidurable_actors import AgentChoice, Harness, Models, Registry, Settings, open_harness
from pidurable_actors._frozen import Value
from pidurable_actors._json import encode_json
from pidurable_actors.models import ModelProvider
from pidurable_actors.records import (
    Batch,
    CommitNumber,
    ConversationId,
    apply_operations,
    conversations_of,
)
from pidurable_actors.session import Publication
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.views import (
    ConversationSubject,
    ConversationView,
    Event,
    EventStream,
    Frame,
    GraphSubject,
    GraphView,
    Hub,
    Snapshot,
    Watch,
)
from pidurable_actors.views._channel import Channel
from tests._agents import MODEL

GRAPH = "graph"


class Replica:
    """What is shown after each commit, by a view that is built from storage; a `CommitWitness`."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._shown: dict[ConversationId | str, dict[int, str]] = {}
        self._storage = MemoryStorage()
        self._storage.open(read_only=False)

    def published(self, publication: Publication) -> None:
        batch = publication.batch
        assert batch.number == len(self.batches) + 1, "commits are published in order, once"
        self.batches.append(batch)
        self._storage.apply([batch])
        for conversation_id in conversations_of(batch.changes):
            value = ConversationSubject(conversation_id, None).load(self._storage)
            self._shown.setdefault(conversation_id, {})[batch.number] = encode_json(value)
        value = GraphSubject(lambda _: None).load(self._storage)
        self._shown.setdefault(GRAPH, {})[batch.number] = canonical(value)

    def acknowledged(self, number: CommitNumber) -> None:
        assert number <= len(self.batches), "published before its caller goes on"

    @property
    def number(self) -> int:
        """The newest commit."""
        return len(self.batches)

    def shown(self, what: ConversationId | str, number: int) -> str:
        """What is shown after a commit."""
        found = self._shown[what]
        return found[max(it for it in found if it <= number)]

    def changed(self, what: ConversationId | str, after: int, upto: int) -> list[int]:
        """The commits in between that change what is shown."""
        found = self._shown[what]
        return [
            number
            for number in sorted(found)
            if after < number <= upto and found[number] != self.shown(what, number - 1)
        ]

    def cut(self, number: int) -> Replica:
        """A replica that knows the commits up to a number, as after a crash."""
        made = Replica()
        for batch in self.batches[:number]:
            made.published(Publication(batch, {}))
        return made


def canonical(value: Value) -> str:
    """The graph's tasks and conversations have no order."""
    assert isinstance(value, Mapping)
    parts = {name: dict(sorted(part.items())) for name, part in value.items()}  # type: ignore[union-attr]
    return encode_json(parts)


@attrs.define
class Frames:
    """One reader of a watch; `take` checks each frame."""

    replica: Replica
    what: ConversationId | str
    frames: list[Frame[ConversationView] | Frame[GraphView]] = attrs.Factory(list)
    durable: ConversationView | GraphView | None = None
    shown: Value = None
    wholes: int = 0
    resumed: bool = False

    def take(self, frame: Frame[ConversationView] | Frame[GraphView]) -> None:
        self.frames.append(frame)
        value = frame.view.value
        if frame.operations is None:
            assert isinstance(frame.view, ConversationView | GraphView)
        if frame.provisional:
            if frame.operations is not None:
                assert frame.operations, "something is new"
                assert same(apply_operations(self.shown, frame.operations), value)
            assert self.durable is not None
            assert frame.view.number >= self.durable.number
        else:
            self.take_durable(frame)
        self.shown = value

    def take_durable(self, frame: Frame[ConversationView] | Frame[GraphView]) -> None:
        number, value = frame.number, frame.view.value
        assert number is not None
        assert frame.view.number == number
        before = self.durable
        if frame.operations is None:
            self.wholes += 1
            assert before is None or number >= before.number
        else:
            assert before is not None
            assert number > before.number
            assert same(apply_operations(before.value, frame.operations), value)
            missed = self.replica.changed(self.what, before.number, number - 1)
            assert not missed, f"no frame came for {missed}"
        encoded = canonical(value) if self.what == GRAPH else encode_json(value)
        assert encoded == self.replica.shown(self.what, number)
        self.durable = frame.view

    def check_complete(self, number: int | None = None) -> None:
        """Nothing is missing up to a commit."""
        upto = self.replica.number if number is None else number
        assert self.durable is not None
        missed = self.replica.changed(self.what, self.durable.number, upto)
        assert not missed, f"no frame came for {missed}"

    async def follow(self, watch: Watch[ConversationView] | Watch[GraphView]) -> None:
        """Take all."""
        async for frame in watch:
            self.take(frame)


@attrs.define
class Events:
    """One reader of events, which keeps what is shown by applying them."""

    replica: Replica
    events: list[Event] = attrs.Factory(list)
    shown: Value = None
    number: int = 0
    compared: int = 0

    def take(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Snapshot):
            self.shown = event.view.value
        else:
            self.shown = apply_operations(self.shown, event.operations)
        if event.number is not None:
            assert event.number >= self.number
            self.number = event.number

    async def follow(self, stream: EventStream) -> None:
        """Take all; whenever nothing waits, it shows what is shown."""
        async for event in stream:
            self.take(event)
            channel = stream._channel
            if not stream._waiting and stream._place == channel.place:
                assert same(self.shown, channel.shown)
                self.compared += 1

    def of(self, kind: type[Event]) -> list[Event]:
        """Those of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


def same(one: Value, other: Value) -> bool:
    """Whether two values are stored as the same text."""
    return encode_json(one) == encode_json(other)


def hub_of(harness: Harness) -> Hub:
    """The hub of a harness."""
    return harness._core.hub


def channels_of(harness: Harness) -> dict[object, Channel]:
    """What is watched now."""
    return dict(hub_of(harness)._channels)


@asynccontextmanager
async def replicated(
    storage: Storage,
    replica: Replica,
    *,
    model: ModelProvider | None = None,
    registry: Registry | None = None,
    settings: Settings | Callable[[], Settings] | None = None,
    inline: bool = False,
) -> AsyncIterator[Harness]:
    """Open a harness whose commits a replica is told of; its root runs with `MODEL`."""
    async with open_harness(
        storage,
        models=Models([] if model is None else [model]),
        registry=registry,
        settings=settings,
        witness=replica,
        inline_storage=inline,
    ) as harness:
        await harness.root(agent=None if model is None else AgentChoice(model=MODEL))
        yield harness


@asynccontextmanager
async def followed(
    harness: Harness, replica: Replica, conversation_id: int = 1
) -> AsyncIterator[tuple[Frames, Events]]:
    """Follow a conversation while the block runs; in the end nothing is missing."""
    conversation = await harness.conversation(conversation_id)
    frames, events = Frames(replica, conversation.id), Events(replica)
    async with (
        conversation.watch() as watch,
        conversation.events() as stream,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(frames.follow, watch)
        nursery.start_soon(events.follow, stream)
        yield frames, events
        number = replica.number
        await settled()
        watch.stop()
        stream.stop()
    frames.check_complete(number)
    if frames.frames:
        assert same(events.shown, frames.shown)


async def settled() -> None:
    """Let every task take what is there."""
    for _ in range(20):
        await trio.lowlevel.checkpoint()
