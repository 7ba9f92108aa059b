"""The drafts of one transaction: documents opened for change, and what became of them.

A draft is built from the newest admitted value; the transaction has loaded its conversation. What
it holds when the callback returns is compared with what it began with; equal is not written.
"""

from __future__ import annotations

from typing import TypeVar, final

import attrs

from pidurable_actors._json import JSON, check_text, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import InvalidValue, MisuseError
from pidurable_actors.records import Change, DocumentRecord, PutDocument
from pidurable_actors.records.codec import encode_record
from pidurable_actors.session._conversations import CachedDocument, DocKey
from pidurable_actors.session._documents import DocumentDefinition
from pidurable_actors.session._seams import FreshIds, Reader
from pidurable_actors.session._state import SessionState

__all__ = ["Drafts"]

D = TypeVar("D")


@attrs.frozen
class _Draft:
    definition: DocumentDefinition[object]
    record: DocumentRecord
    draft: object
    before: JSON
    is_new: bool


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

    async def open(self, definition: DocumentDefinition[D], scope_id: int, key: str) -> D:
        """The draft of a document; the same one when it was opened before.

        Raises:
            InvalidValue: a key that cannot be stored.
            MisuseError: it is open as another class.

        Durability: stored with the commit, when it has changed.

        Cancellation: the commit rolls back.
        """
        check_text(key, f'docs["{definition.kind}"] key')
        if len(key) > LIMITS.name_length:
            raise InvalidValue(
                f'docs["{definition.kind}"] key', f"longer than {LIMITS.name_length}"
            )
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

    def freeze(self, changes: list[Change], ids: FreshIds) -> dict[DocKey, CachedDocument]:
        """Append what changed to `changes`; the new values by key.

        Raises:
            InvalidValue: a draft holds something that is not strict JSON.
        """
        values: dict[DocKey, CachedDocument] = {}
        for key, opened in self._opened.items():
            value = opened.definition.unstructure(opened.draft)
            if not opened.is_new and _same(value, opened.before):
                continue
            opened.definition.check(value)
            record = opened.record
            if opened.is_new:
                record = attrs.evolve(record, id=ids.mint())
            elif record.version != opened.definition.version:
                record = attrs.evolve(record, version=opened.definition.version)
            changes.append(PutDocument(record, encode_record(record), encode_json(value)))
            values[key] = CachedDocument(record, value, self._state.number + 1)
        return values

    async def _load(self, definition: DocumentDefinition[D], key: DocKey) -> _Draft:
        cached = self._state.conversations.document(key)
        if cached is not None:
            return _existing(definition, cached.record, cached.value)
        # A loaded conversation has all its documents in memory: what is not there does not exist.
        if key.scope != "conversation":
            stored = await self._reader.read(
                lambda s: s.document(key.kind, key.scope, key.scope_id, key.key)
            )
            if stored is not None:
                return _existing(definition, stored.record, stored.value)
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
        initial = definition.initial()
        value = definition.unstructure(initial)
        return _Draft(_erase(definition), record, initial, value, is_new=True)


def _same(value: JSON, before: JSON) -> bool:
    # Python calls 1, 1.0 and True equal; what is stored of them is not.
    return value == before and encode_json(value) == encode_json(before)


def _existing(definition: DocumentDefinition[D], record: DocumentRecord, value: JSON) -> _Draft:
    draft = definition.load(record, value)
    return _Draft(_erase(definition), record, draft, value, is_new=False)


def _erase(definition: DocumentDefinition[D]) -> DocumentDefinition[object]:
    # The draft beside it is of this definition's class; `open` checks that before handing it out.
    return definition  # type: ignore[return-value]
