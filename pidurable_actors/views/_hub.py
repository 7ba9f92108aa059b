"""The hub: hands each durable commit to the channels that it concerns.

Owns the channels, one for each thing that somebody watches; what nobody watches costs a look into
an empty dictionary. Attaching is atomic with the commits: a channel notes what comes while its
value is read, and knows from the number of the last stored commit what the value includes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import final

from pidurable_actors.context import Context, within
from pidurable_actors.records import (
    Change,
    ChangeDocument,
    ConversationId,
    PutConversation,
    PutDocument,
    PutTask,
    TaskId,
    conversations_of,
    is_live,
)
from pidurable_actors.session import DocKey, Publication
from pidurable_actors.views._channel import Channel, EndReason, Read, Subject
from pidurable_actors.views._turns import Turns

__all__ = ["Hub"]


@final
class Hub:
    """The channels of one harness."""

    def __init__(self) -> None:
        self._channels: dict[Hashable, Channel] = {}
        # The documents that are watched: by (kind, scope, scope id, key), under any definition.
        self._documents: dict[DocKey, dict[Hashable, Channel]] = {}
        self._turns = Turns()
        self._number = 0
        self._end: EndReason | None = None

    def published(self, publication: Publication) -> None:
        """Take a commit that storage has; never raises."""
        batch = publication.batch
        self._number = batch.number
        if not self._channels:
            return
        for key in self._touched(batch.changes):
            channel = self._channels.get(key)
            if channel is not None:
                channel.commit(batch)
                if channel.end is not None:
                    self._forget(channel)

    def progressed(self, conversation_id: ConversationId) -> None:
        """Show what a running task of a conversation shows; never raises."""
        channel = self._channels.get(("conversation", conversation_id))
        if channel is not None:
            channel.progress()
            if channel.end is not None:
                self._forget(channel)

    def finish(self, reason: EndReason) -> None:
        """End all watches; nothing will be published any more."""
        self._end = reason
        for channel in tuple(self._channels.values()):
            channel.finish(reason)

    @asynccontextmanager
    async def attached(
        self,
        subject: Subject,
        read: Read,
        *,
        document: DocKey | None = None,
        context: Context | None = None,
    ) -> AsyncIterator[Channel]:
        """The channel of a subject, ready, as long as the block runs.

        Args:
            subject: what to watch.
            read: reads what is durable.
            document: which document it is, if it is one.
            context: ends the reading when it is cancelled.

        Raises:
            StorageError: it cannot be read.
            PiDurableError: what is stored does not fit the definition.
            ContextCancelled: `context` was cancelled before the channel was ready.

        Durability: stores nothing.

        Cancellation: nothing stays.
        """
        channel = self._channels.get(subject.key)
        if channel is None:
            channel = self._channels[subject.key] = Channel(subject, read, self._turns)
            if document is not None:
                self._documents.setdefault(document, {})[subject.key] = channel
        channel.watchers += 1
        try:
            with within(context):
                await channel.read()
            # The commits that did not touch it are in its value too.
            channel.number = max(channel.number, self._number)
            if self._end is not None:
                channel.finish(self._end)
            if channel.error is not None:
                raise channel.error
            if channel.end is not None:
                self._forget(channel)
            yield channel
        finally:
            channel.watchers -= 1
            if not channel.watchers:
                self._forget(channel)

    def _touched(self, changes: Sequence[Change]) -> dict[Hashable, None]:
        """The keys of the channels that changes may concern, each once."""
        touched: dict[Hashable, None] = {}
        for conversation_id in conversations_of(changes):
            touched["conversation", conversation_id] = None
        for change in changes:
            match change:
                case PutDocument() | ChangeDocument():
                    record = change.record
                    at = DocKey(record.kind, record.scope, record.scope_id, record.key)
                    touched.update(dict.fromkeys(self._documents.get(at, ())))
                case PutTask():
                    touched["graph",] = None
                    if self._documents and not is_live(change.record):
                        touched.update(dict.fromkeys(self._documents_of_task(change.record.id)))
                case PutConversation():
                    touched["graph",] = None
                case _:
                    pass
        return touched

    def _forget(self, channel: Channel) -> None:
        """Let who comes from now on have a channel of their own."""
        key = channel.subject.key
        if self._channels.get(key) is not channel:
            return
        del self._channels[key]
        for at, watched in tuple(self._documents.items()):
            if watched.get(key) is channel:
                del watched[key]
                if not watched:
                    del self._documents[at]

    def _documents_of_task(self, task_id: TaskId) -> list[Hashable]:
        return [
            key
            for at, watched in self._documents.items()
            if at.scope == "task" and at.scope_id == task_id
            for key in watched
        ]
