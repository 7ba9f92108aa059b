"""Opening watches and event streams, from now on or from a cursor.

Owns the way from a cursor to now: what was missed is read from the log of commits and told as if it
came, and then the steps of the channel follow, without a gap and without one twice. Where the log
no longer reaches back, everything is told anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any, TypeVar

from pidurable_actors._frozen import FrozenDict, Value
from pidurable_actors._limits import LIMITS
from pidurable_actors.context import Context, within
from pidurable_actors.errors import StorageRequestError
from pidurable_actors.records import (
    AppendEntry,
    ConversationId,
    LoggedCommit,
    Operation,
    SetValue,
    apply_operations,
    diff,
)
from pidurable_actors.session import DocKey
from pidurable_actors.storage import Head, Storage
from pidurable_actors.views._channel import Channel, Frame, Read, StaleValue, Step, Subject
from pidurable_actors.views._conversation import ConversationSubject, window_before
from pidurable_actors.views._events import Event, LiveReplaced, Snapshot
from pidurable_actors.views._hub import Hub
from pidurable_actors.views._telling import events_of
from pidurable_actors.views._view import LIVE_PATH, ConversationView, live_of
from pidurable_actors.views._watch import EventStream, Feed, Watch

__all__ = ["open_events", "open_watch"]

V = TypeVar("V")

_COMMITS_AT_ONCE = 256
"""Commits read from the log in one look, which holds up the storage meanwhile."""


@asynccontextmanager
async def open_watch(
    hub: Hub,
    subject: Subject,
    read: Read,
    *,
    since: ConversationView | None = None,
    document: DocKey | None = None,
    context: Context | None = None,
) -> AsyncIterator[Watch[Any]]:
    """Watch a subject while the block runs.

    Args:
        hub: where its channel is.
        subject: what to watch.
        read: reads what is durable.
        since: the view of the same conversation from which to go on.
        document: which document it is, if it is one.
        context: ends the watch when it is cancelled.

    Raises:
        StorageRequestError: there is no such thing, or `since` is of another one.

    Durability: stores nothing.

    Cancellation: the watch ends.
    """
    async with hub.attached(subject, read, document=document, context=context) as channel:
        place, first = channel.place, None
        if since is not None:
            with within(context):
                first = await _frames_since(channel, subject, read, since)
        feed = Feed(
            channel, whole=Channel.whole, items=_frames, first=first, place=place, context=context
        )
        with closing(feed):
            yield feed


@asynccontextmanager
async def open_events(
    hub: Hub,
    subject: ConversationSubject,
    conversation_id: ConversationId,
    read: Read,
    *,
    after: int | None = None,
    context: Context | None = None,
) -> AsyncIterator[EventStream]:
    """Hear the events of a conversation while the block runs.

    Args:
        hub: where its channel is.
        subject: the conversation.
        conversation_id: its id.
        read: reads what is durable.
        after: the number of the last commit that is known; None begins with a snapshot.
        context: ends the stream when it is cancelled.

    Raises:
        StorageRequestError: there is no such conversation or commit.

    Durability: stores nothing.

    Cancellation: the stream ends.
    """

    def items(step: Step) -> Iterable[Event]:
        if not step.told and (step.shown or step.number is not None):
            step.told.extend(
                events_of(conversation_id, step.number, step.shown or (), step.changes)
            )
        return step.told

    async with hub.attached(subject, read, context=context) as channel:
        place, first = channel.place, None
        if after is not None:
            with within(context):
                first = await _events_since(channel, subject, conversation_id, read, after)
        feed = Feed(
            channel, whole=_snapshot, items=items, first=first, place=place, context=context
        )
        with closing(feed):
            yield feed


def _frames(step: Step) -> Iterator[Frame[Any]]:
    if step.frame is not None:
        yield step.frame


def _snapshot(channel: Channel) -> Iterator[Event]:
    view = channel.subject.show(channel.shown, channel.number)
    yield Snapshot(number=channel.number, view=view)


async def _frames_since(
    channel: Channel, subject: Subject, read: Read, since: ConversationView
) -> list[Frame[Any]] | None:
    """The frames that lead from a view to the channel's; None when they are not known."""
    conversation_id = since.conversation.id
    if subject.key != ("conversation", conversation_id):
        raise StorageRequestError(
            f"since= is a view of conversation {conversation_id}; give one of this conversation."
        )
    number, shown = channel.number, channel.shown
    durable = channel.durable
    missed = await _missed(read, conversation_id, since.number, number)
    if missed is None:
        return None
    frames: list[Frame[Any]] = []
    value: Value = since.value
    try:
        for commit in missed:
            value, operations = subject.after(value, commit.changes)
            if operations:
                view = subject.show(value, commit.number)
                frames.append(Frame(number=commit.number, view=view, operations=operations))
    except StaleValue:
        return None
    if shown is not durable:
        operations = tuple(diff(durable, shown))
        frames.append(Frame(number=None, view=subject.show(shown, number), operations=operations))
    return frames


async def _events_since(
    channel: Channel,
    subject: ConversationSubject,
    conversation_id: ConversationId,
    read: Read,
    after: int,
) -> list[Event] | None:
    """The events after a commit; None when they are not known."""
    number, shown = channel.number, channel.shown
    missed = await _missed(read, conversation_id, after, number)
    if missed is None:
        return None
    new = [c.record.id for commit in missed for c in commit.changes if isinstance(c, AppendEntry)]
    before = min(new, default=2**63 - 1)
    entries, earlier = await read(lambda s: window_before(s, conversation_id, before))
    # Of the view at the cursor only the entries are known, and only they are needed.
    value: Value = FrozenDict(entries=entries, earlier=earlier)
    events: list[Event] = []
    try:
        for commit in missed:
            operations = subject.operations(value, commit.changes)
            value = apply_operations(value, filter(_is_of_entries, operations))
            told = [it for it in operations if not _is_progress(it)]
            events += events_of(conversation_id, commit.number, told, commit.changes)
    except StaleValue:
        return None
    # Who comes back may have been shown more than was stored, and nobody knows how much: so what
    # streams is not told piece by piece, but as it is now.
    view = subject.show(shown, number)
    replace = SetValue(LIVE_PATH, live_of(shown))
    events.append(LiveReplaced(number=number, operations=(replace,), live=view.live))
    return events


def _is_of_entries(operation: Operation) -> bool:
    return operation.path[:1] in {("entries",), ("earlier",)}


def _is_progress(operation: Operation) -> bool:
    """Whether it is about text that is shown before it is stored."""
    path = operation.path
    return path[:4] == (*LIVE_PATH, "generation", "partial") or (
        path[:3] == (*LIVE_PATH, "tools") and path[4:5] in {("output",), ("dropped",)}
    )


async def _missed(
    read: Read, conversation_id: ConversationId, after: int, number: int
) -> list[LoggedCommit] | None:
    """The commits of a conversation from behind one up to another; None when they are not known.

    Raises:
        StorageRequestError: there is no such commit yet.
    """
    if after > number or after < 0:
        newest = (await read(_head)).commit
        if not 0 <= after <= newest:
            raise StorageRequestError(f"there is no commit {after}; the newest is {newest}.")
        return None  # it is stored, and about to be published
    if after == number:
        return []
    if not await read(_reaches_back(after)):
        return None
    found: list[LoggedCommit] = []
    at = after
    while True:
        page = await read(_page(at, conversation_id))
        found += (commit for commit in page if commit.number <= number)
        if len(page) < _COMMITS_AT_ONCE or page[-1].number >= number:
            # Some may have been forgotten while they were read.
            return found if await read(_reaches_back(after)) else None
        at = page[-1].number


def _head(storage: Storage) -> Head:
    return storage.head()


def _reaches_back(after: int) -> Callable[[Storage], bool]:
    def look(storage: Storage) -> bool:
        oldest = storage.oldest_commit()
        return oldest is not None and oldest <= after + 1

    return look


def _page(after: int, conversation_id: ConversationId) -> Callable[[Storage], list[LoggedCommit]]:
    limit = min(_COMMITS_AT_ONCE, LIMITS.page)
    return lambda s: s.commits(after=after, limit=limit, conversation_id=conversation_id)
