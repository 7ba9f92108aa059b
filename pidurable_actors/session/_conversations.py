"""What is in memory of conversations: documents, open submissions, and what is not yet durable.

A conversation is loaded in one read: its record and its documents, so that a missing document is
known to be missing; only of one with very many documents are the others read one by one. It stays
while it has live work, and a bounded number of idle ones stay a while longer, the longest idle
going first. Idle conversations beyond that cost nothing, and so it is with the documents of the
session and of tasks.

Invariant: what is here is never older than what storage has.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final, final

import attrs

from pidurable_actors._frozen import Value
from pidurable_actors._limits import LIMITS
from pidurable_actors.records import (
    AppendEntry,
    Batch,
    ChangeDocument,
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    EntryId,
    EntryRecord,
    PutConversation,
    PutDocument,
    PutSubmission,
    ScopeKind,
    StoredDocument,
    SubmissionId,
    SubmissionRecord,
    TaskId,
)

__all__ = ["CachedDocument", "ConversationMemory", "Conversations", "DocKey"]

IDLE_KEPT: Final = 1_000
"""Idle conversations that stay in memory; the longest idle is forgotten first."""


@attrs.frozen
class DocKey:
    """Identity of a document."""

    kind: str
    scope: ScopeKind
    scope_id: int
    key: str


@attrs.frozen
class CachedDocument:
    """The newest value of a document and the commit that made it.

    Attributes:
        base_chars: size of the base that is stored of it.
        tail_chars: what the deltas behind that base cost.
        is_counted: whether that includes what they took away, which a storage does not tell.
        loaded_as: the definition that has checked and completed the value.
    """

    record: DocumentRecord
    value: Value
    number: int
    base_chars: int = 0
    tail_chars: int = 0
    loaded_as: object = None
    is_counted: bool = True

    @classmethod
    def of(cls, stored: StoredDocument) -> CachedDocument:
        """What a storage returned."""
        return cls(
            stored.record,
            stored.value,
            stored.commit,
            stored.base_chars,
            stored.tail_chars,
            is_counted=not stored.tail_chars,
        )


@attrs.define
class ConversationMemory:
    """A loaded conversation.

    Attributes:
        record: its record.
        documents: the documents it has, by key.
        complete: whether these are all.
        submissions: those of its submissions that are open and were touched lately.
        number: the last admitted commit that touched it.
        newest: the last entry that was admitted while it was loaded.
    """

    record: ConversationRecord
    complete: bool = True
    documents: dict[DocKey, CachedDocument] = attrs.field(factory=dict)
    submissions: set[SubmissionId] = attrs.field(factory=set)
    number: int = 0
    newest: int = 0


@final
class Conversations:
    """The loaded conversations, and the documents that belong to none."""

    def __init__(self) -> None:
        self._loaded: dict[ConversationId, ConversationMemory] = {}
        self._idle: OrderedDict[ConversationId, None] = OrderedDict()
        self._submissions: dict[SubmissionId, SubmissionRecord] = {}
        self._entries: dict[ConversationId, deque[EntryRecord]] = {}  # not yet durable
        self._requests: dict[tuple[ConversationId, str], SubmissionId] = {}
        self._elsewhere: OrderedDict[DocKey, CachedDocument] = OrderedDict()
        self._elsewhere_unstored: set[DocKey] = set()
        self.forgotten = 0
        """How many were forgotten so far; a load begun before a change of it may be stale."""

    # --- looking ---

    def get(self, conversation_id: ConversationId) -> ConversationMemory | None:
        """A loaded conversation."""
        return self._loaded.get(conversation_id)

    def owner(self, conversation_id: ConversationId) -> TaskId | None:
        """The task that owns a loaded conversation, None when none does."""
        memory = self._loaded.get(conversation_id)
        owner = None if memory is None else memory.record.owner
        return None if owner is None else owner.task_id

    def document(self, key: DocKey) -> CachedDocument | None:
        """A document in memory."""
        if key.scope == "conversation":
            memory = self._loaded.get(ConversationId(key.scope_id))
            return None if memory is None else memory.documents.get(key)
        return self._elsewhere.get(key)

    def knows(self, key: DocKey) -> bool:
        """Whether a document that is not in memory does not exist."""
        if key.scope != "conversation":
            return False
        memory = self._loaded.get(ConversationId(key.scope_id))
        return memory is not None and memory.complete

    def submission(self, submission_id: SubmissionId) -> SubmissionRecord | None:
        """A submission in memory."""
        return self._submissions.get(submission_id)

    def request(self, conversation_id: ConversationId, request_id: str) -> SubmissionId | None:
        """The submission of a request that is not yet durable."""
        return self._requests.get((conversation_id, request_id))

    def entries(self, conversation_id: ConversationId) -> Sequence[EntryRecord]:
        """Entries that are not yet durable, oldest first."""
        return self._entries.get(conversation_id, ())

    def entry(self, entry_id: EntryId) -> EntryRecord | None:
        """An entry that is not yet durable."""
        waiting = (entry for entries in self._entries.values() for entry in entries)
        return next((entry for entry in waiting if entry.id == entry_id), None)

    # --- changing ---

    def remember(
        self, record: ConversationRecord, documents: Sequence[StoredDocument]
    ) -> ConversationMemory:
        """Take a conversation read whole from storage; one that is loaded stays as it is."""
        known = self._loaded.get(record.id)
        if known is not None:
            return known
        memory = ConversationMemory(record, complete=len(documents) < LIMITS.conversation_documents)
        for stored in documents:
            at = DocKey(stored.record.kind, "conversation", record.id, stored.record.key)
            memory.documents[at] = CachedDocument.of(stored)
        self._loaded[record.id] = memory
        self._idle[record.id] = None
        self._trim()
        return memory

    def admit(self, batch: Batch) -> None:
        """Make the changes of an admitted batch visible to later callbacks."""
        for change in batch.changes:
            match change:
                case AppendEntry():
                    entry = change.record
                    self._touch(entry.conversation_id, batch.number, newest=entry.id)
                    self._entries.setdefault(entry.conversation_id, deque()).append(entry)
                case PutSubmission():
                    self._admit_submission(change.record, batch.number)
                case PutConversation():
                    record = change.record
                    memory = self._loaded.setdefault(record.id, ConversationMemory(record))
                    memory.record = record
                    memory.number = batch.number
                case _:
                    # Tasks have their index; documents come with their values.
                    pass

    def admit_document(self, key: DocKey, document: CachedDocument) -> None:
        """Make a document's new value visible to later callbacks."""
        if key.scope == "conversation":
            conversation_id = ConversationId(key.scope_id)
            self._touch(conversation_id, document.number)
            self._loaded[conversation_id].documents[key] = document
        else:
            self._elsewhere[key] = document
            self._elsewhere_unstored.add(key)

    def forget_of_task(self, task_id: TaskId) -> None:
        """Forget the documents of a task that has ended: nobody opens them again."""
        for key in [k for k in self._elsewhere if k.scope == "task" and k.scope_id == task_id]:
            del self._elsewhere[key]
            self._elsewhere_unstored.discard(key)

    def keep_document(self, key: DocKey, document: CachedDocument) -> None:
        """Keep what was read from storage; what is in memory already is newer."""
        if self.document(key) is not None:
            return
        if key.scope == "conversation":
            memory = self._loaded.get(ConversationId(key.scope_id))
            if memory is not None:
                memory.documents[key] = document
        else:
            self._elsewhere[key] = document
            self._trim_elsewhere()

    def note_loaded(self, key: DocKey, cached: CachedDocument, definition: object) -> None:
        """Note that a definition has checked a value, so that it need not be done again."""
        checked = attrs.evolve(cached, loaded_as=definition)
        if key.scope == "conversation":
            memory = self._loaded.get(ConversationId(key.scope_id))
            if memory is not None and memory.documents.get(key) is cached:
                memory.documents[key] = checked
        elif self._elsewhere.get(key) is cached:
            self._elsewhere[key] = checked

    def settle(self, batch: Batch) -> None:
        """Drop what storage now has and nobody needs in memory."""
        for change in batch.changes:
            match change:
                case AppendEntry():
                    self._settle_entry(change.record)
                case PutSubmission():
                    self._settle_submission(change.record)
                case PutDocument() | ChangeDocument() if change.record.scope != "conversation":
                    record = change.record
                    key = DocKey(record.kind, record.scope, record.scope_id, record.key)
                    cached = self._elsewhere.get(key)
                    if cached is not None and cached.number <= batch.number:
                        self._elsewhere_unstored.discard(key)
                        self._trim_elsewhere()
                case _:
                    pass

    def rest(self, conversation_id: ConversationId, durable_number: int) -> None:
        """Note that a conversation has no live work; it may be forgotten once it is durable."""
        memory = self._loaded.get(conversation_id)
        if memory is not None and memory.number <= durable_number:
            self._idle[conversation_id] = None
            self._idle.move_to_end(conversation_id)
            self._trim()

    def wake(self, conversation_id: ConversationId) -> None:
        """Note that a conversation has live work, or is used by a transaction: it stays."""
        self._idle.pop(conversation_id, None)

    # --- helpers ---

    def _touch(self, conversation_id: ConversationId, number: int, *, newest: int = 0) -> None:
        memory = self._loaded.get(conversation_id)
        if memory is not None:
            memory.number = number
            memory.newest = max(memory.newest, newest)
            self._idle.pop(conversation_id, None)

    def _settle_entry(self, entry: EntryRecord) -> None:
        waiting = self._entries[entry.conversation_id]
        settled = waiting.popleft()
        assert settled.id == entry.id, "entries settle in order"
        if not waiting:
            del self._entries[entry.conversation_id]

    def _admit_submission(self, record: SubmissionRecord, number: int) -> None:
        self._touch(record.conversation_id, number)
        memory = self._loaded.get(record.conversation_id)
        if memory is not None:
            memory.submissions.add(record.id)
        self._submissions[record.id] = record
        if record.request_id is not None:
            self._requests[record.conversation_id, record.request_id] = record.id

    def _settle_submission(self, record: SubmissionRecord) -> None:
        if record.request_id is not None:
            self._requests.pop((record.conversation_id, record.request_id), None)
        memory = self._loaded.get(record.conversation_id)
        # Open ones stay with their conversation, because the end of their run will want them.
        stays = memory is not None and record.status in ("queued", "placed")
        if not stays and self._submissions.get(record.id) is record:
            del self._submissions[record.id]
            if memory is not None:
                memory.submissions.discard(record.id)

    def _trim_elsewhere(self) -> None:
        while len(self._elsewhere) > IDLE_KEPT:
            oldest = next(iter(self._elsewhere))
            if oldest in self._elsewhere_unstored:
                return
            del self._elsewhere[oldest]

    def _trim(self) -> None:
        while len(self._idle) > IDLE_KEPT:
            oldest, _ = self._idle.popitem(last=False)
            memory = self._loaded.pop(oldest)
            for submission_id in memory.submissions:
                self._submissions.pop(submission_id, None)
            self.forgotten += 1
