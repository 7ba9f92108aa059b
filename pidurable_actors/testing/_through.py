"""The base of storages that misbehave or watch: every call goes through to a real storage.

Owns the wrapping and nothing else: it makes up no answer, keeps no record and hides no error. The
invariant: whatever is not overridden behaves as the wrapped storage does.

It is deliberately no `PromptStorage`, whatever it wraps: every write then passes `apply`, so that a
fault put there misses none. Each method is written out, because a method that the protocol gains
and this class lacks is then an error of the type checker and not a call that went round the fault.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from pidurable_actors.storage import Head, LiveTask, Storage

__all__ = ["ThroughStorage"]


class ThroughStorage:
    """Hands every call through to the storage that it wraps; a subclass adds its one difference.

    Args:
        inner: the real storage.
        blocking: whether calls belong behind a thread; None for what `inner` says.

    Attributes:
        inner: the real storage.
        groups: how many batches each call of `apply` brought, in order.
    """

    def __init__(self, inner: Storage, *, blocking: bool | None = None) -> None:
        self.inner = inner
        self.groups: list[int] = []
        self._blocking = inner.blocking if blocking is None else blocking

    @property
    def name(self) -> str:
        """The name of the real storage."""
        return self.inner.name

    @property
    def blocking(self) -> bool:
        """What the constructor was told, else what the real storage says."""
        return self._blocking

    def before_read(self) -> None:
        """Called before every look-up and scan; what it raises is the answer."""

    def open(self, *, read_only: bool) -> Head:
        """Open the real storage; see `Storage.open`."""
        return self.inner.open(read_only=read_only)

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store the batches in the real storage; see `Storage.apply`."""
        self.groups.append(len(batches))
        self.inner.apply(batches)

    def close(self) -> None:
        """Close the real storage."""
        self.inner.close()

    def conversation(self, conversation_id: ConversationId) -> ConversationRecord | None:
        """See `Storage.conversation`."""
        self.before_read()
        return self.inner.conversation(conversation_id)

    def conversations(
        self, *, after: int, limit: int, owner: TaskId | None = None
    ) -> list[ConversationRecord]:
        """See `Storage.conversations`."""
        self.before_read()
        return self.inner.conversations(after=after, limit=limit, owner=owner)

    def entry(self, entry_id: EntryId) -> EntryRecord | None:
        """See `Storage.entry`."""
        self.before_read()
        return self.inner.entry(entry_id)

    def entries(
        self,
        conversation_id: ConversationId,
        *,
        before: int,
        limit: int,
        kind: str | None = None,
    ) -> list[EntryRecord]:
        """See `Storage.entries`."""
        self.before_read()
        return self.inner.entries(conversation_id, before=before, limit=limit, kind=kind)

    def task(self, task_id: TaskId) -> TaskRecord | None:
        """See `Storage.task`."""
        self.before_read()
        return self.inner.task(task_id)

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
        """See `Storage.tasks`."""
        self.before_read()
        return self.inner.tasks(
            after=after,
            limit=limit,
            conversation_id=conversation_id,
            kind=kind,
            status=status,
            abort_requested=abort_requested,
        )

    def live_tasks(self, *, after: int, limit: int) -> list[LiveTask]:
        """See `Storage.live_tasks`."""
        self.before_read()
        return self.inner.live_tasks(after=after, limit=limit)

    def submission(self, submission_id: SubmissionId) -> SubmissionRecord | None:
        """See `Storage.submission`."""
        self.before_read()
        return self.inner.submission(submission_id)

    def submission_by_request(
        self, conversation_id: ConversationId, request_id: str
    ) -> SubmissionRecord | None:
        """See `Storage.submission_by_request`."""
        self.before_read()
        return self.inner.submission_by_request(conversation_id, request_id)

    def submissions(
        self,
        *,
        after: int,
        limit: int,
        conversation_id: ConversationId | None = None,
        status: SubmissionStatus | None = None,
    ) -> list[SubmissionRecord]:
        """See `Storage.submissions`."""
        self.before_read()
        return self.inner.submissions(
            after=after, limit=limit, conversation_id=conversation_id, status=status
        )

    def document(
        self,
        kind: str,
        scope: ScopeKind,
        scope_id: int,
        key: str = "",
        *,
        at_commit: int | None = None,
    ) -> StoredDocument | None:
        """See `Storage.document`."""
        self.before_read()
        return self.inner.document(kind, scope, scope_id, key, at_commit=at_commit)

    def documents(
        self, scope: ScopeKind, scope_id: int, *, after: tuple[str, str] | None = None, limit: int
    ) -> list[StoredDocument]:
        """See `Storage.documents`."""
        self.before_read()
        return self.inner.documents(scope, scope_id, after=after, limit=limit)

    def head(self) -> Head:
        """See `Storage.head`."""
        self.before_read()
        return self.inner.head()

    def entry_commit(self, entry_id: EntryId) -> int | None:
        """See `Storage.entry_commit`."""
        self.before_read()
        return self.inner.entry_commit(entry_id)

    def commits(
        self, *, after: int, limit: int, conversation_id: ConversationId | None = None
    ) -> list[LoggedCommit]:
        """See `Storage.commits`."""
        self.before_read()
        return self.inner.commits(after=after, limit=limit, conversation_id=conversation_id)

    def oldest_commit(self) -> int | None:
        """See `Storage.oldest_commit`."""
        self.before_read()
        return self.inner.oldest_commit()
