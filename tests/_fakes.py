"""Storages and clocks that misbehave on request; each is one fault, wrapped around the real thing.

They are plain classes, not mocks: a wrapped storage stores what the real one stores, and only its
one fault is made up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from pidurable_actors.errors import StorageError
from pidurable_actors.records import (
    Batch,
    ConversationId,
    ConversationRecord,
    EntryId,
    EntryRecord,
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


class ThroughStorage:
    """Hands every call through; the base of the faults below.

    Attributes:
        inner: the real storage.
        groups: how many batches each call of `apply` brought.
    """

    def __init__(self, inner: Storage, *, blocking: bool | None = None) -> None:
        self.inner = inner
        self.groups: list[int] = []
        self._blocking = inner.blocking if blocking is None else blocking

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def blocking(self) -> bool:
        return self._blocking

    def before_read(self) -> None:
        """Called before every look-up and scan."""

    def open(self, *, read_only: bool) -> Head:
        return self.inner.open(read_only=read_only)

    def apply(self, batches: Sequence[Batch]) -> None:
        self.groups.append(len(batches))
        self.inner.apply(batches)

    def close(self) -> None:
        self.inner.close()

    def conversation(self, conversation_id: ConversationId) -> ConversationRecord | None:
        self.before_read()
        return self.inner.conversation(conversation_id)

    def conversations(
        self, *, after: int, limit: int, owner: TaskId | None = None
    ) -> list[ConversationRecord]:
        self.before_read()
        return self.inner.conversations(after=after, limit=limit, owner=owner)

    def entry(self, entry_id: EntryId) -> EntryRecord | None:
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
        self.before_read()
        return self.inner.entries(conversation_id, before=before, limit=limit, kind=kind)

    def task(self, task_id: TaskId) -> TaskRecord | None:
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
        self.before_read()
        return self.inner.live_tasks(after=after, limit=limit)

    def submission(self, submission_id: SubmissionId) -> SubmissionRecord | None:
        self.before_read()
        return self.inner.submission(submission_id)

    def submission_by_request(
        self, conversation_id: ConversationId, request_id: str
    ) -> SubmissionRecord | None:
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
        self.before_read()
        return self.inner.submissions(
            after=after, limit=limit, conversation_id=conversation_id, status=status
        )

    def document(
        self, kind: str, scope: ScopeKind, scope_id: int, key: str = ""
    ) -> StoredDocument | None:
        self.before_read()
        return self.inner.document(kind, scope, scope_id, key)

    def documents(self, scope: ScopeKind, scope_id: int) -> list[StoredDocument]:
        self.before_read()
        return self.inner.documents(scope, scope_id)


class DiskError(StorageError):
    """What the fakes raise."""

    def __init__(self) -> None:
        super().__init__("the disk is gone")


class FailingStorage(ThroughStorage):
    """Fails a call of `apply`, with or without having written.

    Attributes:
        armed: how many more calls succeed; None for all.
        wrote: whether the failing call stores its batches before it raises.
        error: what it raises.
    """

    def __init__(
        self,
        inner: Storage,
        *,
        after: int | None = None,
        wrote: bool = False,
        error: Callable[[], Exception] = DiskError,
    ) -> None:
        super().__init__(inner)
        self.armed = after
        self.wrote = wrote
        self.error = error

    def apply(self, batches: Sequence[Batch]) -> None:
        if self.armed == 0:
            if self.wrote:
                super().apply(batches)
            raise self.error()
        if self.armed is not None:
            self.armed -= 1
        super().apply(batches)


class FailingReads(ThroughStorage):
    """Fails every look-up after the first few.

    Attributes:
        armed: how many more look-ups succeed; None for all.
        reads: how many there were.
    """

    def __init__(self, inner: Storage, *, after: int | None = None) -> None:
        super().__init__(inner)
        self.armed = after
        self.reads = 0

    def before_read(self) -> None:
        self.reads += 1
        if self.armed is not None:
            if self.armed == 0:
                raise DiskError
            self.armed -= 1


class GatedStorage(ThroughStorage):
    """Holds every write in its thread, for ever or until the gate is opened.

    Start with the gate open; `shut` it to hold the next write.
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner, blocking=True)
        self._gate = threading.Event()
        self._gate.set()
        self.held = threading.Event()

    def shut(self) -> None:
        """Hold the next write."""
        self._gate.clear()
        self.held.clear()

    def open_gate(self) -> None:
        """Let it go on."""
        self._gate.set()

    def apply(self, batches: Sequence[Batch]) -> None:
        if not self._gate.is_set():
            self.held.set()
            self._gate.wait()
        super().apply(batches)


class HasTime(Protocol):
    """A source of time."""

    def now_ms(self) -> int: ...


class SteppedClock:
    """Another clock's time plus a step, as a wall clock that somebody sets.

    Attributes:
        step_ms: what is added.
    """

    def __init__(self, inner: HasTime) -> None:
        self._inner = inner
        self.step_ms = 0

    def now_ms(self) -> int:
        return self._inner.now_ms() + self.step_ms


class BrokenClock:
    """Another clock's time until it is broken; then it raises.

    Attributes:
        broken: whether it raises.
    """

    def __init__(self, inner: HasTime) -> None:
        self._inner = inner
        self.broken = False

    def now_ms(self) -> int:
        if self.broken:
            raise ZeroDivisionError("the clock is broken")
        return self._inner.now_ms()
