"""What can be seen of a conversation: entries, documents, its view, its events."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import attrs

from pidurable_actors._json import JSON
from pidurable_actors.agent import AGENT, LIVE, USAGE, AgentState, UsageState
from pidurable_actors.context import Context, within
from pidurable_actors.harness._core import Core
from pidurable_actors.harness._pages import Page, check_limit, read_cursor, write_cursor
from pidurable_actors.records import ConversationId, ConversationRecord, EntryId, EntryRecord
from pidurable_actors.session import DocumentDefinition
from pidurable_actors.views import (
    ConversationSubject,
    ConversationView,
    EventStream,
    Watch,
    open_events,
    open_watch,
)

__all__ = ["ConversationReading"]

D = TypeVar("D")


@attrs.frozen
class ConversationReading:
    """The part of a conversation's handle that changes nothing.

    Attributes:
        id: the conversation's id; 1 for the root.
    """

    id: ConversationId
    _core: Core = attrs.field(eq=False, repr=False)

    # --- watching ---

    def watch(
        self, *, since: ConversationView | None = None, context: Context | None = None
    ) -> AbstractAsyncContextManager[Watch[ConversationView]]:
        """Watch it while the block of an ``async with`` runs.

        The first frame is the view; then exactly one comes for each commit that touches it, with
        the operations that made the new view, and between them provisional ones, with what is
        streaming and not stored yet. With `since`, the first are the frames that lead from that
        view to now, when the log of commits still has them, also after a restart; else it begins
        anew.

        Args:
            since: a view of this conversation, however old; `ConversationView.from_json` brings
                one back that was kept elsewhere.
            context: ends the watch when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: there is no such conversation, or `since` is not a view of it.
            ReadOnlySession: a harness that only looks learns of no commits.
            CommitReentered: called from inside a commit callback.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out before the watch began.

        Durability: what a frame with a number shows is stored.

        Cancellation: the watch ends, and nothing else does.
        """
        subject = self._core.conversation_subject(self.id)
        core = self._core
        return core.watching(
            open_watch(core.hub, subject, core.read, since=since, context=context), context
        )

    def events(
        self, *, after: int | None = None, context: Context | None = None
    ) -> AbstractAsyncContextManager[EventStream]:
        """Hear what happens in it while the block of an ``async with`` runs.

        The first event is a `Snapshot`; everything after it applies on top. With `after`, the first
        are the events behind that commit, when the log of commits still has them, also after a
        restart; else it begins with a snapshot. What was shown and not stored is not told again
        piece by piece: a `LiveReplaced` then says what is shown now.

        Args:
            after: the number of the last commit that is known, such as that of an earlier event.
            context: ends the stream when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: there is no such conversation, or no such commit yet.
            ReadOnlySession, CommitReentered, HarnessClosed, SessionFailed: as for `watch`.
            ContextCancelled: `context` was cancelled or ran out before the stream began.

        Durability: what an event with a number tells is stored.

        Cancellation: the stream ends, and nothing else does.
        """
        subject: ConversationSubject = self._core.conversation_subject(self.id)
        core = self._core
        return core.watching(
            open_events(core.hub, subject, self.id, core.read, after=after, context=context),
            context,
        )

    # --- reading ---

    async def record(self, *, context: Context | None = None) -> ConversationRecord | None:
        """What is stored of it.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        with within(context):
            return await self._core.read(lambda storage: storage.conversation(self.id))

    async def entries(
        self,
        kind: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        context: Context | None = None,
    ) -> Page[EntryRecord]:
        """Durable entries, newest first, through fork ancestry.

        Args:
            kind: only entries of this kind.
            limit: entries in the page.
            cursor: from the previous page.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: the cursor is malformed or of another query, or the limit is out of
                range.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        check_limit(limit)
        query: list[JSON] = ["entries", self.id, kind]
        before = read_cursor(cursor, query, 2**63 - 1)
        with within(context):
            items = await self._core.read(
                lambda storage: storage.entries(self.id, before=before, limit=limit, kind=kind)
            )
        following = write_cursor(query, items[-1].id) if len(items) == limit else None
        return Page(tuple(items), following)

    async def snapshot(
        self, definition: DocumentDefinition[D], *, key: str = "", context: Context | None = None
    ) -> D:
        """The durable value of one of its documents, the initial value when there is none.

        Args:
            definition: which kind of document.
            key: which of that kind.
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            What stands for an instance of the definition's class, with the stored value behind it;
            immutable, so that nothing is copied.

        Raises:
            StorageTooNew, StorageCorrupt, DefinitionError: the stored value and the definition do
                not go together.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        with within(context):
            return await self._core.snapshot(definition, self.id, key)

    async def snapshot_as_of(
        self,
        definition: DocumentDefinition[D],
        entry_id: int,
        *,
        key: str = "",
        context: Context | None = None,
    ) -> D:
        """What one of its documents was when an entry was stored; the initial value before it was.

        At an entry that it sees of a conversation that it was forked from, that is what the
        document of that conversation was, unless its policy is to start a fork afresh.

        Args:
            definition: which kind of document, with ``history="rewindable"``.
            entry_id: an entry that this conversation sees.
            key: which of that kind.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            MisuseError: the definition keeps no history.
            StorageRequestError: there is no such entry, or this conversation does not see it.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        with within(context):
            return await self._core.snapshot_as_of(definition, self.id, EntryId(entry_id), key)

    async def document_keys(
        self,
        definition: DocumentDefinition[D],
        *,
        limit: int = 50,
        cursor: str | None = None,
        context: Context | None = None,
    ) -> Page[str]:
        """The keys of its documents of one kind, in order; a document without a key has ``""``.

        Args:
            definition: which kind of document.
            limit: keys in the page.
            cursor: from the previous page.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: a bad limit or cursor.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        with within(context):
            return await self._core.document_keys(definition, self.id, limit=limit, cursor=cursor)

    async def agent(self, *, context: Context | None = None) -> AgentState:
        """What it runs with.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        return await self.snapshot(AGENT, context=context)

    async def usage(self, *, context: Context | None = None) -> UsageState:
        """What it has used, per model and per tool.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        return await self.snapshot(USAGE, context=context)

    async def busy(self, *, context: Context | None = None) -> bool:
        """Whether a run is going.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        return (await self.snapshot(LIVE, context=context)).run is not None
