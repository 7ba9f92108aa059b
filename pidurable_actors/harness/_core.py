"""What handles share: the engine and the process's services, behind the checks of every call.

Handles hold a reference to this and an id, nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, overload

import attrs
import trio

from pidurable_actors._json import JSON
from pidurable_actors.actors import Engine
from pidurable_actors.agent import AgentServices
from pidurable_actors.context import Context, current_context, within
from pidurable_actors.errors import (
    MisuseError,
    ReadOnlySession,
    StorageRequestError,
    TaskRefused,
)
from pidurable_actors.harness._pages import (
    Page,
    check_limit,
    read_text_cursor,
    write_cursor,
)
from pidurable_actors.records import (
    ConversationId,
    EntryId,
    EntryRecord,
    StoredDocument,
    TaskId,
)
from pidurable_actors.runtime import TASK, ProgressBoard
from pidurable_actors.session import Binding, DocumentDefinition, Tx
from pidurable_actors.storage import Storage
from pidurable_actors.views import ConversationSubject, Hub

__all__ = ["Core", "revision_of", "seen_entry"]

T = TypeVar("T")
D = TypeVar("D")
F = TypeVar("F")


@attrs.frozen
class Core:
    """The engine of one harness and what its conversations run with."""

    engine: Engine
    services: AgentServices
    hub: Hub
    board: ProgressBoard

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]], binding: Binding) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T], binding: Binding) -> T: ...

    async def commit(self, change: Callable[[Tx], Any], binding: Binding) -> Any:
        """Commit, unless the harness is closing.

        Durability: stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self.engine.storage.refuse_in_callback()
        self.engine.check_open()
        if binding.conversation_id is not None:
            await self.engine.storage.warm(binding.conversation_id)
        return await self.engine.storage.commit(change, binding)

    async def read(self, look: Callable[[Storage], T]) -> T:
        """Read what is durable.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        self.engine.check_open()
        return await self.engine.storage.read(look)

    # --- documents ---

    async def snapshot(self, definition: DocumentDefinition[D], scope_id: int, key: str) -> D:
        """The durable value of a document, immutable; the initial one when there is none.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        stored = await self.read(
            lambda storage: storage.document(definition.kind, definition.scope, scope_id, key)
        )
        return revision_of(definition, stored)

    async def snapshot_as_of(
        self,
        definition: DocumentDefinition[D],
        conversation_id: ConversationId,
        entry_id: EntryId,
        key: str,
        *,
        scope_id: int | None = None,
    ) -> D:
        """What a document was when an entry was stored; see `ConversationReading.snapshot_as_of`.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        if definition.history != "rewindable":
            raise MisuseError(
                f"document {definition.kind!r} keeps no history; define it with "
                'history="rewindable".'
            )

        def look(storage: Storage) -> StoredDocument | None:
            at = seen_entry(storage, conversation_id, entry_id)
            belongs = scope_id
            if belongs is None:
                belongs = at.conversation_id
                if belongs != conversation_id and definition.fork == "initial":
                    return None
            commit = storage.entry_commit(entry_id)
            return storage.document(
                definition.kind, definition.scope, belongs, key, at_commit=commit
            )

        return revision_of(definition, await self.read(look))

    async def document_keys(
        self, definition: DocumentDefinition[D], scope_id: int, *, limit: int, cursor: str | None
    ) -> Page[str]:
        """The keys of the documents of a family, in order.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        check_limit(limit)
        kind, scope = definition.kind, definition.scope
        query: list[JSON] = ["document_keys", kind, scope, scope_id]
        after = read_text_cursor(cursor, query)

        def look(storage: Storage) -> list[str]:
            found: list[str] = []
            if after is None and storage.document(kind, scope, scope_id) is not None:
                found.append("")
            rest = limit - len(found)
            if rest:
                page = storage.documents(scope, scope_id, after=(kind, after or ""), limit=rest)
                found += [stored.record.key for stored in page if stored.record.kind == kind]
            return found

        keys = await self.read(look)
        following = write_cursor(query, keys[-1]) if len(keys) == limit else None
        return Page(tuple(keys), following)

    # --- watching ---

    def conversation_subject(self, conversation_id: ConversationId) -> ConversationSubject:
        """A conversation as something to watch."""
        return ConversationSubject(conversation_id, self.board)

    @asynccontextmanager
    async def watching(
        self, feed: AbstractAsyncContextManager[F], context: Context | None
    ) -> AsyncIterator[F]:
        """A feed, unless nothing could come of it.

        Raises:
            ReadOnlySession: a harness that only looks learns of no commits.

        Durability: stores nothing.

        Cancellation: the feed ends.
        """
        with within(context):
            self.engine.storage.refuse_in_callback()
            self.engine.check_open()
            await trio.lowlevel.checkpoint()
        if self.engine.read_only:
            raise ReadOnlySession(
                "this harness was opened with read_only=True and learns of no commits; read "
                "snapshots and commits(after=), or watch through the owner of the storage."
            )
        async with feed as opened:
            yield opened

    async def refuse_waiting_inside(
        self, *, conversation_id: ConversationId | None = None, task_id: TaskId | None = None
    ) -> None:
        """Refuse a wait, made by the code of a task, for what cannot end before that task.

        That is the task itself, whatever it is the work of, and their conversations, which stay
        busy as long as they run.

        Raises:
            TaskRefused: the wait would never end.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        at = current_context().get(TASK)
        host = self.engine.host
        while at is not None:
            record = await host.get_task(at)
            busy = None if record.background else record.conversation_id
            if at == task_id or (conversation_id is not None and busy == conversation_id):
                what = f"task {at}" if at == task_id else f"conversation {conversation_id}"
                raise TaskRefused(
                    f"the code of a task waits for {what}, which cannot end before it.", at
                )
            at = await host.above(record)

    def need_progress(self) -> None:
        """Start scheduling, for a call that asks for progress.

        Raises:
            ReadOnlySession: the harness only looks.
            CommitReentered: the call is made from inside a commit callback.
            HarnessClosed, SessionFailed: it is too late.
        """
        self.engine.storage.refuse_in_callback()
        self.engine.check_open()
        if self.engine.read_only:
            raise ReadOnlySession(
                "this harness was opened with read_only=True and schedules nothing; "
                "open the storage as owner to make progress."
            )
        self.engine.resume()


def revision_of(definition: DocumentDefinition[D], stored: StoredDocument | None) -> D:
    """A stored document to look at; the initial one when there is none."""
    if stored is None:
        return definition.revision(definition.initial_value())
    return definition.revision(definition.load(stored.record, stored.value))


def seen_entry(storage: Storage, conversation_id: ConversationId, entry_id: EntryId) -> EntryRecord:
    """A stored entry that a conversation sees.

    Raises:
        StorageRequestError: there is no such entry, or the conversation does not see it.
    """
    found = storage.entries(conversation_id, before=entry_id + 1, limit=1)
    if not found or found[0].id != entry_id:
        raise StorageRequestError(f"conversation {conversation_id} sees no entry {entry_id}.")
    return found[0]
