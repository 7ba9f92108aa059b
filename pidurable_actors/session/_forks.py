"""Forks: what a conversation sees of its ancestors, and which documents a new one starts with.

A fork copies no entry: it names its parent and the last entry that it sees there. It copies the
documents whose policy says so, and nothing else, so that it costs the same whatever the length of
the history. Nothing here is written; the transaction does that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import attrs

from pidurable_actors._frozen import Value
from pidurable_actors._limits import LIMITS
from pidurable_actors.records import (
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    EntryRecord,
    ScopeKind,
    StoredDocument,
)
from pidurable_actors.session._conversations import CachedDocument, Conversations, DocKey
from pidurable_actors.session._drafts import Drafts
from pidurable_actors.session._seams import Reader
from pidurable_actors.storage import Storage

__all__ = ["Link", "copied_documents", "lineage", "seen_entries", "sees", "stored_documents"]

GetConversation: TypeAlias = Callable[[ConversationId], Awaitable[ConversationRecord]]


@attrs.frozen
class Link:
    """One conversation of a line of ancestors, of which the entries below `before` are seen."""

    conversation_id: ConversationId
    before: int


async def lineage(
    get: GetConversation, conversation_id: ConversationId, *, before: int
) -> list[Link]:
    """A conversation and its ancestors, and how much of each is seen.

    Durability: stores nothing.

    Cancellation: nothing happened.
    """
    at, bound = conversation_id, before
    found: list[Link] = []
    while True:
        found.append(Link(at, bound))
        parent = (await get(at)).parent
        if parent is None:
            return found
        at, bound = parent.conversation_id, min(bound, parent.entry_id + 1)


async def sees(get: GetConversation, conversation_id: ConversationId, entry: EntryRecord) -> bool:
    """Whether a conversation sees an entry.

    Durability: stores nothing.

    Cancellation: nothing happened.
    """
    return any(
        link.conversation_id == entry.conversation_id and entry.id < link.before
        for link in await lineage(get, conversation_id, before=2**63 - 1)
    )


async def copied_documents(
    state: Conversations,
    reader: Reader,
    drafts: Drafts | None,
    *,
    parent: ConversationId,
    at: EntryRecord,
    is_new: bool,
) -> list[tuple[DocumentRecord, Value]]:
    """The documents that a fork starts with.

    At an entry of this very transaction, ``as_of`` is what the document is when the fork is made:
    what the transaction does to it later is the parent's alone.

    Args:
        state: what is admitted.
        reader: where cold documents are read.
        drafts: what the transaction has opened.
        parent: the conversation that is forked.
        at: the last entry that the fork sees.
        is_new: whether that entry is of this very transaction.

    Durability: stores nothing.

    Cancellation: nothing happened.
    """
    current = await _present(state, reader, drafts, parent)
    found = [(record, value) for record, value in current if record.fork == "current"]
    # What a document was at an entry is known where the entry was appended.
    if is_new:
        there = await _present(state, reader, drafts, at.conversation_id)
        return [*found, *((record, value) for record, value in there if record.fork == "as_of")]
    kept = [it for it, _ in await _present(state, reader, None, at.conversation_id)]
    kept = [record for record in kept if record.fork == "as_of"]
    if not kept:
        return found
    stored_in = await reader.read(lambda s: s.entry_commit(at.id))
    if stored_in is None:
        await reader.catch_up()
        stored_in = await reader.read(lambda s: s.entry_commit(at.id))
    for record in kept:
        then = await reader.read(_as_of(record, stored_in))
        if then is not None:
            found.append((then.record, then.value))
    return found


async def seen_entries(
    get: GetConversation,
    reader: Reader,
    fresh: Callable[[ConversationId], Sequence[EntryRecord]],
    link: Link,
    *,
    limit: int,
    kind: str | None,
) -> list[EntryRecord]:
    """Entries that a conversation sees, newest first, stored or not.

    Args:
        get: the record of a conversation.
        reader: where stored entries are read.
        fresh: the entries that are not stored yet, oldest first, those of others among them.
        link: the conversation, and below which entry.
        limit: at most so many.
        kind: only entries of this kind.

    Durability: stores nothing.

    Cancellation: nothing happened.
    """
    mine: list[EntryRecord] = []
    stored: list[EntryRecord] = []
    for at in await lineage(get, link.conversation_id, before=link.before):
        mine += [
            entry
            for entry in reversed(fresh(at.conversation_id))
            if entry.conversation_id == at.conversation_id
            and entry.id < at.before
            and (kind is None or entry.kind == kind)
        ]
        if len(mine) >= limit:
            return mine[:limit]
        if not stored:
            # The first that storage knows answers for its ancestors as well.
            stored = await reader.read(_entries_of(at, limit, kind))
    # A batch may have become durable since `mine` was made: keep one of each.
    seen = {entry.id for entry in mine}
    both = [*mine, *(entry for entry in stored if entry.id not in seen)]
    return sorted(both, key=lambda entry: -entry.id)[:limit]


def _entries_of(at: Link, limit: int, kind: str | None) -> Callable[[Storage], list[EntryRecord]]:
    return lambda s: s.entries(at.conversation_id, before=at.before, limit=limit, kind=kind)


def stored_documents(storage: Storage, scope: ScopeKind, scope_id: int) -> Iterator[StoredDocument]:
    """All documents of one scope that a storage has."""
    after: tuple[str, str] | None = None
    while True:
        page = storage.documents(scope, scope_id, after=after, limit=LIMITS.page)
        yield from page
        if len(page) < LIMITS.page:
            return
        after = (page[-1].record.kind, page[-1].record.key)


async def _present(
    state: Conversations, reader: Reader, drafts: Drafts | None, conversation_id: ConversationId
) -> list[tuple[DocumentRecord, Value]]:
    """The documents of a loaded conversation as the transaction sees them."""
    memory = state.get(conversation_id)
    known: dict[DocKey, CachedDocument] = {} if memory is None else dict(memory.documents)
    if memory is None or not memory.complete:
        found_in = partial(stored_documents, scope="conversation", scope_id=conversation_id)
        for stored in await reader.read(lambda s: list(found_in(s))):
            record = stored.record
            key = DocKey(record.kind, "conversation", conversation_id, record.key)
            known.setdefault(key, CachedDocument.of(stored))
    found = [(key, cached.record, cached.value) for key, cached in known.items()]
    if drafts is not None:
        mine = {key: (record, value) for key, record, value in drafts.changed(conversation_id)}
        found = [(key, *mine.pop(key, (record, value))) for key, record, value in found]
        found += [(key, record, value) for key, (record, value) in mine.items()]
    return [(record, value) for _, record, value in found if record.retired_at_ms is None]


def _as_of(
    record: DocumentRecord, commit: int | None
) -> Callable[[Storage], StoredDocument | None]:
    return lambda s: s.document(
        record.kind, record.scope, record.scope_id, record.key, at_commit=commit
    )
