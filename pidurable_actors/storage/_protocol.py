"""The storage seam: blocking, small, and the same for every backend.

A backend stores batches and answers look-ups and ordered scans. It never schedules, validates
meaning or publishes. Calls come one at a time, in order, from one thread at a time; the runtime
puts a backend that blocks behind a thread of its own.

Invariants a backend keeps: a batch is stored whole or not at all; batches are stored in the order
of their numbers; an owner that lost its claim cannot write; what it returns is fresh or immutable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import attrs

from pidurable_actors.records import (
    Batch,
    ConversationId,
    ConversationRecord,
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

__all__ = ["Head", "LiveTask", "PromptStorage", "Storage"]


@attrs.frozen(kw_only=True)
class Head:
    """Where a storage stands.

    Attributes:
        commit: number of the last stored commit, 0 for a new storage.
        next_id: first free id.
        epoch: raised by each opening owner; 0 for a storage that never had one.
    """

    commit: int
    next_id: int
    epoch: int


@attrs.frozen(kw_only=True)
class LiveTask:
    """What the scheduler keeps of a task that is not terminal, without loading its record.

    `until_ms` is set for a sleeping task; `conversation_owner` is the task that owns the task's
    conversation, if one does; `has_documents` tells whether documents of the task are stored.
    """

    id: TaskId
    conversation_id: ConversationId
    kind: str
    version: int
    status: TaskStatus
    owner: TaskId | None
    background: bool
    abort_requested: bool
    until_ms: int | None
    conversation_owner: TaskId | None = None
    has_documents: bool = False


@runtime_checkable
class PromptStorage(Protocol):
    """A storage that can tell at once whether a write would have to wait.

    A lone commit is then written without a change of thread, which costs several times as much as
    the write itself.
    """

    def apply_promptly(self, batches: Sequence[Batch]) -> bool:
        """Store the batches as `Storage.apply` does, if that waits for nothing and nobody.

        Returns:
            Whether they are stored. False: nothing was written, and `apply` is to be asked.

        Raises:
            StorageError: as `Storage.apply`.
        """
        ...


class Storage(Protocol):
    """A place that keeps batches of changes.

    Every method may block and raises `StorageError` (or a subclass) when the world breaks; look-ups
    return None for an id they do not have. `limit` is at least 1 and at most `LIMITS.page`. A page
    shorter than `limit` is the last.
    """

    @property
    def name(self) -> str:
        """How messages call this storage, such as ``agent.sqlite``."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether calls can block, so that they belong behind a thread."""
        ...

    def open(self, *, read_only: bool) -> Head:
        """Take ownership and make the storage ready, or only look when `read_only`.

        An owner takes the lock, raises the epoch and migrates an older format, all durable before
        it returns. A reader changes nothing.

        Raises:
            StorageInUse: another owner has it; at once.
            StorageUnusable: the place cannot hold a storage, or does not exist when `read_only`.
            StorageTooNew: its format is newer than this code.
            StorageCorrupt: it contradicts itself.
        """
        ...

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store the batches in order, in one transaction, durable on return.

        Raises:
            StorageFenced: the epoch is no longer this owner's; nothing was written.
            StorageError: it failed; ``.wrote`` says whether nothing was written, when known.
        """
        ...

    def close(self) -> None:
        """Give up ownership and release everything. Closing again does nothing."""
        ...

    def conversation(self, conversation_id: ConversationId) -> ConversationRecord | None:
        """One conversation."""
        ...

    def conversations(
        self, *, after: int, limit: int, owner: TaskId | None = None
    ) -> list[ConversationRecord]:
        """Conversations with an id above `after`, ascending; only those of `owner` when given."""
        ...

    def entry(self, entry_id: EntryId) -> EntryRecord | None:
        """One entry."""
        ...

    def entries(
        self,
        conversation_id: ConversationId,
        *,
        before: int,
        limit: int,
        kind: str | None = None,
    ) -> list[EntryRecord]:
        """Entries that the conversation sees with an id below `before`, newest first.

        Those are its own and, through its fork points, its ancestors' up to where it left them.
        """
        ...

    def task(self, task_id: TaskId) -> TaskRecord | None:
        """One task with its memos."""
        ...

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
        """Tasks with an id above `after` that match all that is given, ascending, with memos."""
        ...

    def live_tasks(self, *, after: int, limit: int) -> list[LiveTask]:
        """Index rows of the tasks that are not terminal, with an id above `after`, ascending."""
        ...

    def submission(self, submission_id: SubmissionId) -> SubmissionRecord | None:
        """One submission."""
        ...

    def submission_by_request(
        self, conversation_id: ConversationId, request_id: str
    ) -> SubmissionRecord | None:
        """The submission that used `request_id` in this conversation."""
        ...

    def submissions(
        self,
        *,
        after: int,
        limit: int,
        conversation_id: ConversationId | None = None,
        status: SubmissionStatus | None = None,
    ) -> list[SubmissionRecord]:
        """Submissions with an id above `after` that match all that is given, ascending."""
        ...

    def document(
        self,
        kind: str,
        scope: ScopeKind,
        scope_id: int,
        key: str = "",
        *,
        at_commit: int | None = None,
    ) -> StoredDocument | None:
        """One document, retired or not: its newest value, or what it was after commit `at_commit`.

        Only a ``rewindable`` document has earlier values: asked for one that is not kept, the
        answer is None, as for a document that did not exist then. The record that comes with an
        earlier value is the one of now, but for its version, which is that of the value.

        Raises:
            StorageCorrupt: the stored changes do not add up to a value.
        """
        ...

    def documents(
        self, scope: ScopeKind, scope_id: int, *, after: tuple[str, str] | None = None, limit: int
    ) -> list[StoredDocument]:
        """Documents of one scope behind the (kind, key) `after`, by kind and key."""
        ...

    def head(self) -> Head:
        """Where the storage stands, as far as everything read in the same call goes."""
        ...

    def entry_commit(self, entry_id: EntryId) -> int | None:
        """The number of the commit that appended an entry."""
        ...

    def commits(
        self, *, after: int, limit: int, conversation_id: ConversationId | None = None
    ) -> list[LoggedCommit]:
        """Commits of the log with a number above `after`, ascending.

        Only those that touch `conversation_id` when it is given; see `conversations_of`. Commits
        that are no longer kept, or were not logged, are left out.
        """
        ...

    def oldest_commit(self) -> int | None:
        """The smallest number in the log, None when the log is empty."""
        ...
