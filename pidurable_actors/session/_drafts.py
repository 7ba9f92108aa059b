"""The drafts of one transaction: documents opened for change, and what became of them.

A draft is opened on the newest admitted value; the transaction has loaded its conversation. Its
journal says what was changed. What is stored of that is the deltas, or the whole value: of a small
document always, of a longer one when its deltas have come to as much as it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar, final

import attrs

from pidurable_actors._frozen import Value
from pidurable_actors._json import check_text, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import InvalidValue, MisuseError
from pidurable_actors.records import (
    Change,
    ChangeDocument,
    ConversationId,
    DocumentRecord,
    Operation,
    PutDocument,
    PutTask,
    ReplaceRoot,
    RetireDocuments,
    TaskId,
    is_live,
)
from pidurable_actors.records.codec import encode_record
from pidurable_actors.session._conversations import CachedDocument, DocKey
from pidurable_actors.session._cursors import Cursor, Journal
from pidurable_actors.session._documents import DocumentDefinition
from pidurable_actors.session._seams import FreshIds, Reader
from pidurable_actors.session._state import SessionState

__all__ = ["Drafts", "retired"]

D = TypeVar("D")

_DELTA_CHARS: Final = 64
"""What a stored delta costs beside its text."""

_LOST_TWICE: Final = 2
"""What a character costs that a delta takes away.

It is read with the base and is not in the value: with this price, what is read is at most twice
the value, also of a document that shrinks.
"""


@attrs.frozen
class _Draft:
    definition: DocumentDefinition[object]
    cached: CachedDocument
    draft: object
    root: Cursor
    journal: Journal
    before: Value
    is_new: bool
    differs: bool  # what was opened is not what is stored: deltas of it would not apply there


@final
class Drafts:
    """What one transaction has opened.

    Args:
        state: what is admitted.
        reader: where cold documents are read.
        now_ms: the time of the commit.
    """

    def __init__(self, state: SessionState, reader: Reader, *, now_ms: int) -> None:
        self._state = state
        self._reader = reader
        self._now_ms = now_ms
        self._opened: dict[DocKey, _Draft] = {}
        self._copied: dict[DocKey, tuple[DocumentRecord, Value]] = {}

    async def open(self, definition: DocumentDefinition[D], scope_id: int, key: str) -> D:
        """The draft of a document; the same one when it was opened before.

        Raises:
            InvalidValue: a key that cannot be stored.
            MisuseError: it is open as another class.

        Durability: stored with the commit, when it has changed.

        Cancellation: the commit rolls back.
        """
        if key:
            check_text(key, f"{definition.name} key")
            if len(key) > LIMITS.name_length:
                raise InvalidValue(f"{definition.name} key", f"longer than {LIMITS.name_length}")
        at = DocKey(definition.kind, definition.scope, scope_id, key)
        opened = self._opened.get(at)
        if opened is None:
            opened = self._opened[at] = await self._load(definition, at)
        if not isinstance(opened.draft, definition.state):
            raise MisuseError(
                f"document {definition.kind!r} is opened as {definition.state.__name__} and as "
                f"{type(opened.draft).__name__} in one commit; define each kind once."
            )
        return opened.draft

    def copy_to(
        self, conversation_id: ConversationId, record: DocumentRecord, value: Value
    ) -> None:
        """Give a new conversation a document with a value that another one has."""
        at = DocKey(record.kind, "conversation", conversation_id, record.key)
        made = attrs.evolve(record, scope_id=conversation_id, created_at_ms=self._now_ms)
        self._copied[at] = (made, value)

    def changed(
        self, conversation_id: ConversationId
    ) -> list[tuple[DocKey, DocumentRecord, Value]]:
        """The documents of a conversation that this transaction made or changed, as they are."""
        made = {
            key: (key, record, value)
            for key, (record, value) in self._copied.items()
            if key.scope_id == conversation_id
        }
        for key, opened in self._opened.items():
            is_written = key in self._copied or bool(opened.journal)
            if key.scope == "conversation" and key.scope_id == conversation_id and is_written:
                record = _evolved(opened.cached.record, opened.definition)
                made[key] = (key, record, opened.root.settled())
        return list(made.values())

    def freeze(self, changes: list[Change], ids: FreshIds) -> Mapping[DocKey, CachedDocument]:
        """Append what changed to `changes`; the new values by key. The drafts are dead then."""
        values: dict[DocKey, CachedDocument] = {}
        for key, (record, value) in self._copied.items():
            if key not in self._opened:
                made = attrs.evolve(record, id=ids.mint())
                values[key] = self._whole(changes, made, value, (ReplaceRoot(value),), None)
        for key, opened in self._opened.items():
            if opened.journal or key in self._copied:
                values[key] = self._freeze(opened, changes, ids)
        self.close()
        return values

    def close(self) -> None:
        """Let every draft refuse to be used."""
        for opened in self._opened.values():
            opened.journal.open = False

    # --- helpers ---

    def _freeze(self, opened: _Draft, changes: list[Change], ids: FreshIds) -> CachedDocument:
        definition, cached, record = opened.definition, opened.cached, opened.cached.record
        value, operations = opened.root.settled(), opened.journal.operations()
        if opened.is_new:
            # One that a fork copied was perhaps migrated when it was opened.
            record = attrs.evolve(_evolved(record, definition), id=ids.mint())
        elif opened.differs or _policies(record) != _policies(definition):
            record = _evolved(record, definition)
        else:
            text = encode_json(operations)
            cost = len(text) + _DELTA_CHARS + _LOST_TWICE * opened.journal.lost
            cached = cached if cached.is_counted else _counted(cached)
            if not _is_due(cached, len(text), cost):
                changes.append(ChangeDocument(record, operations, text))
                return attrs.evolve(
                    cached,
                    value=value,
                    number=self._state.number + 1,
                    tail_chars=cached.tail_chars + cost,
                    loaded_as=definition,
                )
        if opened.is_new or opened.differs:
            # Observers may not know what it began with.
            operations = (ReplaceRoot(opened.before), *operations)
        return self._whole(changes, record, value, operations, definition)

    def _whole(
        self,
        changes: list[Change],
        record: DocumentRecord,
        value: Value,
        operations: tuple[Operation, ...],
        loaded_as: object,
    ) -> CachedDocument:
        text = encode_json(value)
        changes.append(PutDocument(record, encode_record(record), text, operations))
        return CachedDocument(
            record, value, self._state.number + 1, base_chars=len(text), loaded_as=loaded_as
        )

    async def _load(self, definition: DocumentDefinition[D], key: DocKey) -> _Draft:
        if key in self._copied:
            record, value = self._copied[key]
            return _opened(definition, CachedDocument(record, value, 0), is_new=True)
        conversations = self._state.conversations
        cached = conversations.document(key)
        if cached is None and not conversations.knows(key):
            stored = await self._reader.read(
                lambda s: s.document(key.kind, key.scope, key.scope_id, key.key)
            )
            if stored is not None:
                cached = CachedDocument.of(stored)
                conversations.keep_document(key, cached)
        if cached is not None:
            opened = _opened(definition, cached, is_new=False)
            if cached.loaded_as is not definition and not opened.differs:
                conversations.note_loaded(key, cached, definition)
            return opened
        record = DocumentRecord(
            id=0,
            kind=definition.kind,
            scope=definition.scope,
            scope_id=key.scope_id,
            key=key.key,
            version=definition.version,
            history=definition.history,
            fork=definition.fork,
            created_at_ms=self._now_ms,
        )
        initial = CachedDocument(record, definition.initial_value(), 0, loaded_as=definition)
        return _opened(definition, initial, is_new=True)


def retired(
    changes: Sequence[Change],
    documents: Mapping[DocKey, CachedDocument],
    having: AbstractSet[TaskId],
    now_ms: int,
) -> list[RetireDocuments]:
    """What retires the documents of the tasks that end by `changes`.

    Args:
        changes: those of one transaction.
        documents: what it stores of documents.
        having: the tasks that had documents before.
        now_ms: the time of the commit.
    """
    mine = {key.scope_id for key in documents if key.scope == "task"}
    if not having and not mine:
        return []
    ended = [c.record.id for c in changes if isinstance(c, PutTask) and not is_live(c.record)]
    return [RetireDocuments(it, now_ms) for it in ended if it in having or it in mine]


def _opened(definition: DocumentDefinition[D], cached: CachedDocument, *, is_new: bool) -> _Draft:
    value = cached.value
    if cached.loaded_as is not definition:
        value = definition.load(cached.record, value)
    journal = Journal(definition.name)
    draft, root = definition.draft(value, journal)
    differs = value is not cached.value
    return _Draft(_erase(definition), cached, draft, root, journal, value, is_new, differs)


def _is_due(cached: CachedDocument, text_chars: int, cost: int) -> bool:
    """Whether a change is stored as a new base rather than as a delta."""
    if max(cached.base_chars, text_chars) <= LIMITS.whole_document_chars:
        return True
    return cached.tail_chars + cost > max(LIMITS.document_tail_chars, cached.base_chars)


def _counted(cached: CachedDocument) -> CachedDocument:
    """A document that was read with its tail, and what that tail took away.

    It takes the whole value once, as reading it did; or a document that shrank before a restart
    would drag its base along after it.
    """
    replayed = cached.base_chars + cached.tail_chars
    lost = max(0, replayed - len(encode_json(cached.value)))
    cost = cached.tail_chars + _LOST_TWICE * lost
    return attrs.evolve(cached, tail_chars=cost, is_counted=True)


def _policies(it: DocumentRecord | DocumentDefinition[Any]) -> tuple[object, ...]:
    return it.version, it.history, it.fork


def _evolved(record: DocumentRecord, definition: DocumentDefinition[object]) -> DocumentRecord:
    version, history, fork = definition.version, definition.history, definition.fork
    return attrs.evolve(record, version=version, history=history, fork=fork)


def _erase(definition: DocumentDefinition[D]) -> DocumentDefinition[object]:
    # The draft beside it is of this definition's class; `open` checks that before handing it out.
    return definition  # type: ignore[return-value]
