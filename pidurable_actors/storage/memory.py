"""The reference backend: a storage that lives in this process and survives nothing else.

Written for reading: when backends disagree, this one is right. It keeps the encoded texts and
decodes them on every read, so values are copied on the way in and out. It never hands out or keeps
a value that a caller can change.

The contents outlive `close()`: the same object can be opened again, and `peer()` makes another
object for the same contents, as a second process would have. The invariant: one owner at a time,
known by the epoch that it was given at its open; a batch of any other epoch is refused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, final

import attrs

from pidurable_actors._json import JSON, decode_json
from pidurable_actors.errors import StorageFenced, StorageInUse, StorageUnusable
from pidurable_actors.records import (
    Batch,
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    EntryId,
    EntryRecord,
    LoggedCommit,
    ScopeKind,
    StoredDocument,
    SubmissionId,
    SubmissionRecord,
    SubmissionStatus,
    TaskId,
    TaskRecord,
    TaskStatus,
)
from pidurable_actors.records.codec import (
    decode_conversation,
    decode_document,
    decode_entry,
    decode_submission,
    decode_task,
)
from pidurable_actors.records.log import decode_changes
from pidurable_actors.storage._memory_tables import Contents, DocumentRow, TaskRow, Undo
from pidurable_actors.storage._protocol import Head, LiveTask
from pidurable_actors.storage._rules import (
    Base,
    check_limit,
    check_sequence,
    not_open,
    stored_document,
    visible_entries,
)

__all__ = ["MemoryStorage"]


@final
class MemoryStorage:
    """A storage without a disk, for tests and for work that may be forgotten.

    Args:
        name: how messages call it.
    """

    def __init__(self, name: str = "memory") -> None:
        self._name: Final = name
        self._contents = Contents()
        self._epoch: int | None = None
        self._reading = False

    def peer(self) -> MemoryStorage:
        """Another object for the same contents, as another process would have."""
        peer = MemoryStorage(self._name)
        peer._contents = self._contents
        return peer

    def snapshot(self) -> MemoryStorage:
        """A closed storage with a copy of what is stored now: what a crash would leave."""
        copy = MemoryStorage(self._name)
        copy._contents = self._contents.copy()
        return copy

    def release(self) -> None:
        """Drop the claim without closing, as an expired lease would; the next owner fences it."""
        self._contents.owned = False

    @property
    def name(self) -> str:
        """How messages call this storage."""
        return self._name

    @property
    def blocking(self) -> bool:
        """False: no call waits for anything."""
        return False

    def open(self, *, read_only: bool) -> Head:
        """Take the contents, or look at them; see `Storage.open`.

        Raises:
            StorageInUse: this object is open, or another one owns the contents.
            StorageUnusable: `read_only`, and no owner ever opened the contents.
        """
        contents = self._contents
        if self._reading or (contents.owned and not read_only):
            raise StorageInUse(self._name, "another harness of this process")
        if read_only and contents.epoch == 0:
            raise StorageUnusable(f"{self._name} holds no storage yet; open it as its owner first.")

        if not read_only:
            contents.epoch += 1
            contents.owned = True
            self._epoch = contents.epoch
        self._reading = True
        return Head(commit=contents.commit, next_id=contents.next_id, epoch=contents.epoch)

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store all batches or none; see `Storage.apply`.

        Raises:
            StorageFenced: another owner opened the contents since.
            StorageCorrupt: the batches do not follow or contradict what is stored; none is kept.
            StorageError: it is not open, or read-only.
        """
        contents = self._contents
        if self._epoch is None:
            raise not_open(self._name)
        if self._epoch != contents.epoch:
            raise StorageFenced(self._name)
        check_sequence(self._name, after=contents.commit, next_id=contents.next_id, batches=batches)

        undo: Undo = []
        try:
            for batch in batches:
                contents.write(batch, undo)
        except BaseException:  # all or nothing, whatever interrupted it
            for step in reversed(undo):
                step()
            raise
        if batches:
            contents.commit, contents.next_id = batches[-1].number, batches[-1].next_id
            contents.log.drop_below(max(batch.forget_below for batch in batches))

    def close(self) -> None:
        """Give the contents up; they stay, for the next open. Closing again does nothing."""
        if self._epoch == self._contents.epoch:
            self._contents.owned = False
        self._epoch = None
        self._reading = False

    def conversation(self, conversation_id: ConversationId) -> ConversationRecord | None:
        """One conversation."""
        row = self._read().conversations.get(conversation_id)
        return None if row is None else decode_conversation(row.text)

    def conversations(
        self, *, after: int, limit: int, owner: TaskId | None = None
    ) -> list[ConversationRecord]:
        """Conversations above an id, ascending; see `Storage.conversations`."""
        check_limit(limit)
        rows = (
            decode_conversation(row.text)
            for row in self._read().conversations.above(after)
            if owner in (None, row.owner)
        )
        return list(islice(rows, limit))

    def entry(self, entry_id: EntryId) -> EntryRecord | None:
        """One entry."""
        contents = self._read()
        home = contents.entry_homes.get(entry_id)
        row = None if home is None else contents.transcript(home).get(entry_id)
        return None if row is None else decode_entry(row.text)

    def entries(
        self,
        conversation_id: ConversationId,
        *,
        before: int,
        limit: int,
        kind: str | None = None,
    ) -> list[EntryRecord]:
        """What the conversation sees below an id, newest first; see `Storage.entries`."""
        check_limit(limit)
        contents = self._read()

        def own(at: ConversationId, below: int, count: int) -> list[EntryRecord]:
            rows = (
                decode_entry(row.text)
                for row in contents.transcript(at).below(below)
                if kind in (None, row.kind)
            )
            return list(islice(rows, count))

        return visible_entries(
            conversation_id, before=before, limit=limit, own=own, conversation=self.conversation
        )

    def task(self, task_id: TaskId) -> TaskRecord | None:
        """One task with its memos."""
        row = self._read().tasks.get(task_id)
        return None if row is None else self._decode_task(row)

    def tasks(
        self,
        *,
        after: int,
        limit: int,
        conversation_id: ConversationId | None = None,
        kind: str | None = None,
        status: TaskStatus | None = None,
        abort_requested: bool | None = None,
    ) -> list[TaskRecord]:
        """Tasks above an id that match all that is given, ascending; see `Storage.tasks`."""
        check_limit(limit)
        rows = (
            self._decode_task(row)
            for row in self._read().tasks.above(after)
            if conversation_id in (None, row.index.conversation_id)
            and kind in (None, row.index.kind)
            and status in (None, row.index.status)
            and abort_requested in (None, row.index.abort_requested)
        )
        return list(islice(rows, limit))

    def live_tasks(self, *, after: int, limit: int) -> list[LiveTask]:
        """Index rows of tasks that are not terminal; see `Storage.live_tasks`."""
        check_limit(limit)
        contents = self._read()
        rows = (row.index for row in contents.tasks.above(after) if row.index.status != "terminal")
        return [_live_task(contents, row) for row in islice(rows, limit)]

    def submission(self, submission_id: SubmissionId) -> SubmissionRecord | None:
        """One submission."""
        row = self._read().submissions.get(submission_id)
        return None if row is None else decode_submission(row.text)

    def submission_by_request(
        self, conversation_id: ConversationId, request_id: str
    ) -> SubmissionRecord | None:
        """The submission that used `request_id` in this conversation."""
        found = self._read().requests.get((conversation_id, request_id))
        return None if found is None else self.submission(found)

    def submissions(
        self,
        *,
        after: int,
        limit: int,
        conversation_id: ConversationId | None = None,
        status: SubmissionStatus | None = None,
    ) -> list[SubmissionRecord]:
        """Submissions above an id that match all that is given; see `Storage.submissions`."""
        check_limit(limit)
        rows = (
            decode_submission(row.text)
            for row in self._read().submissions.above(after)
            if conversation_id in (None, row.conversation_id) and status in (None, row.status)
        )
        return list(islice(rows, limit))

    def document(
        self,
        kind: str,
        scope: ScopeKind,
        scope_id: int,
        key: str = "",
        *,
        at_commit: int | None = None,
    ) -> StoredDocument | None:
        """One document, retired or not, now or after a commit; see `Storage.document`."""
        contents = self._read()
        row = contents.scope(scope, scope_id).get((kind, key))
        if row is None:
            return None
        record = decode_document(row.text)
        if at_commit is None:
            return _decode_document(contents, row, record, row.base)
        if record.history == "latest":
            found = _decode_document(contents, row, record, row.base)
            return found if found.commit <= at_commit else None
        bases = [*contents.old_bases.get(row.id, ()), row.base]
        earlier = [base for base in bases if base.commit <= at_commit]
        if not earlier:
            return None
        return _decode_document(contents, row, record, earlier[-1], until=at_commit)

    def documents(
        self, scope: ScopeKind, scope_id: int, *, after: tuple[str, str] | None = None, limit: int
    ) -> list[StoredDocument]:
        """Documents of one scope behind a name; see `Storage.documents`."""
        check_limit(limit)
        contents = self._read()
        table = contents.scope(scope, scope_id)
        rows = table.all() if after is None else table.above(after)
        return [
            _decode_document(contents, row, decode_document(row.text), row.base)
            for row in islice(rows, limit)
        ]

    def head(self) -> Head:
        """Where the storage stands."""
        contents = self._read()
        return Head(commit=contents.commit, next_id=contents.next_id, epoch=contents.epoch)

    def entry_commit(self, entry_id: EntryId) -> int | None:
        """The number of the commit that appended an entry."""
        contents = self._read()
        home = contents.entry_homes.get(entry_id)
        row = None if home is None else contents.transcript(home).get(entry_id)
        return None if row is None else row.commit

    def commits(
        self, *, after: int, limit: int, conversation_id: ConversationId | None = None
    ) -> list[LoggedCommit]:
        """Logged commits above a number, ascending; see `Storage.commits`."""
        check_limit(limit)
        rows = (
            LoggedCommit(number=row.number, at_ms=row.at_ms, changes=decode_changes(row.text))
            for row in self._read().log.above(after)
            if conversation_id is None or conversation_id in row.conversations
        )
        return list(islice(rows, limit))

    def oldest_commit(self) -> int | None:
        """The smallest number in the log, None when the log is empty."""
        oldest = next(self._read().log.all(), None)
        return None if oldest is None else oldest.number

    def _read(self) -> Contents:
        if not self._reading:
            raise not_open(self._name)
        return self._contents

    def _decode_task(self, row: TaskRow) -> TaskRecord:
        texts = self._contents.memos.get(row.index.id, {})
        memos: dict[str, JSON] = {name: decode_json(text) for name, text in texts.items()}
        return decode_task(row.text, memos)


def _live_task(contents: Contents, row: LiveTask) -> LiveTask:
    conversation = contents.conversations.get(row.conversation_id)
    owner = None if conversation is None else conversation.owner
    has_documents = any(contents.scope("task", row.id).all())
    if owner is None and not has_documents:
        return row
    return attrs.evolve(row, conversation_owner=owner, has_documents=has_documents)


def _decode_document(
    contents: Contents,
    row: DocumentRow,
    record: DocumentRecord,
    base: Base,
    *,
    until: int | None = None,
) -> StoredDocument:
    # Deltas of the base's own commit came after it.
    deltas = contents.deltas.get(row.id, [])
    start = bisect_left(deltas, base.commit, key=attrgetter("commit"))
    end = None if until is None else bisect_right(deltas, until, key=attrgetter("commit"))
    return stored_document(record, base, deltas[start:end])
