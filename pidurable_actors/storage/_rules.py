"""Rules that every backend shares, so that none states them twice.

Owns the checks of a call's arguments, the walk through fork ancestry, the index row of a task and
what a base and its tail add up to. Everything here is a plain function of its inputs and touches no
disk. The invariant: backends that use these agree on which batches follow which, on what a
conversation sees, and on the value of a document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from pidurable_actors._frozen import freeze
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import StorageCorrupt, StorageError, StorageRequestError
from pidurable_actors.records import (
    Batch,
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    EntryRecord,
    Sleeping,
    StoredDocument,
    TaskRecord,
    apply_operations,
    operations_from_json,
)
from pidurable_actors.records.codec import decode_value
from pidurable_actors.storage._protocol import LiveTask

__all__ = [
    "Base",
    "Delta",
    "check_limit",
    "check_sequence",
    "contradiction",
    "index_row",
    "not_open",
    "stored_document",
    "visible_entries",
]


def check_limit(limit: int) -> None:
    """Refuse a page size that a storage does not serve.

    Raises:
        StorageRequestError: the limit is below 1 or above `LIMITS.page`.
    """
    if not 1 <= limit <= LIMITS.page:
        raise StorageRequestError(f"limit must be from 1 to {LIMITS.page}, not {limit}")


def check_sequence(storage: str, *, after: int, next_id: int, batches: Sequence[Batch]) -> None:
    """Refuse batches that are not the ones that follow.

    Args:
        storage: how the error names the storage.
        after: the number of the commit before the first batch.
        next_id: the first id that was free before the first batch.
        batches: what is to be stored.

    Raises:
        StorageCorrupt: a number is not the next one, or the first free id goes back; `wrote` is
            False.
    """
    for batch in batches:
        if batch.number != after + 1:
            raise StorageCorrupt(
                f"{storage}: commit {batch.number} does not follow commit {after}", wrote=False
            )
        if batch.next_id < next_id:
            raise StorageCorrupt(
                f"{storage}: commit {batch.number} takes the first free id back from {next_id} "
                f"to {batch.next_id}",
                wrote=False,
            )
        after, next_id = batch.number, batch.next_id


def not_open(storage: str) -> StorageError:
    """The error of a call to a storage that is closed, or a write to one that only reads."""
    return StorageError(f"{storage} is not open for this call; open it first", wrote=False)


def contradiction(what: str) -> StorageCorrupt:
    """The error of a batch that does not fit to what is stored; nothing of it is kept."""
    return StorageCorrupt(f"a batch contradicts what is stored: {what}", wrote=False)


def index_row(record: TaskRecord) -> LiveTask:
    """What a storage keeps beside a task's text."""
    state = record.state
    return LiveTask(
        id=record.id,
        conversation_id=record.conversation_id,
        kind=record.kind,
        version=record.version,
        status=state.status,
        owner=record.owner,
        background=record.background,
        abort_requested=record.abort_requested,
        until_ms=state.until_ms if isinstance(state, Sleeping) else None,
    )


def visible_entries(
    conversation_id: ConversationId,
    *,
    before: int,
    limit: int,
    own: Callable[[ConversationId, int, int], list[EntryRecord]],
    conversation: Callable[[ConversationId], ConversationRecord | None],
) -> list[EntryRecord]:
    """Walk from a conversation through its fork points until the page is full.

    Ids are global and a fork is younger than what it forks at, so all entries of a fork come
    before (newest first) all that it sees of its parent: one conversation is read after the other,
    and a page costs the page however long the history is.

    Args:
        conversation_id: where the walk starts.
        before: only entries with an id below it.
        limit: the most entries to return.
        own: entries of one conversation alone, below an id, newest first, at most so many.
        conversation: the record of a conversation.

    Raises:
        StorageCorrupt: an ancestor is missing, or is not older than its fork.
    """
    found: list[EntryRecord] = []
    at = conversation_id
    while True:
        found += own(at, before, limit - len(found))
        if len(found) >= limit:
            return found
        record = conversation(at)
        if record is None and at != conversation_id:
            raise StorageCorrupt(f"conversation {at} is missing, but another was forked from it")
        if record is None or record.parent is None:
            return found
        if record.parent.conversation_id >= at:
            raise StorageCorrupt(f"conversation {at} is older than the one it was forked from")
        at, before = record.parent.conversation_id, min(before, record.parent.entry_id + 1)


@attrs.frozen
class Base:
    """A whole value of a document: its text, its version, and the commit that made it."""

    commit: int
    version: int
    text: str


@attrs.frozen
class Delta:
    """The text of operations on a document, and the commit that made them."""

    commit: int
    text: str


def stored_document(record: DocumentRecord, base: Base, tail: Iterable[Delta]) -> StoredDocument:
    """What a base and the deltas behind it add up to.

    Args:
        record: the document's record as it is now.
        base: the value to start from.
        tail: the deltas that came after it, in order.

    Raises:
        StorageCorrupt: a text cannot be read, or a delta does not fit the value.
    """
    value, commit, tail_chars = freeze(decode_value(base.text)), base.commit, 0
    for delta in tail:
        try:
            value = apply_operations(value, operations_from_json(decode_value(delta.text)))
        except ValueError as error:
            raise StorageCorrupt(
                f"a change of document {record.id} in commit {delta.commit} does not fit it: "
                f"{delta.text[:200]!r}"
            ) from error
        commit, tail_chars = delta.commit, tail_chars + len(delta.text)
    if record.version != base.version:
        record = attrs.evolve(record, version=base.version)
    return StoredDocument(
        record=record,
        value=value,
        commit=commit,
        base_chars=len(base.text),
        tail_chars=tail_chars,
    )
