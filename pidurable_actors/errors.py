"""Every error that this package raises, in one tree that answers "whose fault was it?".

    PiDurableError
    ├── MisuseError                 the caller's code is wrong
    │   ├── DefinitionError         a task, tool, entry, document or extension is declared wrongly
    │   ├── InvalidValue            a value that means nothing or cannot be stored
    │   ├── CommitReentered         a commit, submit or wait from inside a commit callback
    │   ├── TransactionClosed       a transaction or draft used after its callback returned
    │   └── InvocationEnded         a task or tool used its runtime after its run was over
    ├── RefusedError                the call was right, the state said no; nothing was written
    │   ├── StorageInUse            another owner has the storage
    │   ├── RequestConflict         a request_id was used before with something else
    │   ├── ConversationBusy        when_busy="reject" met a running conversation
    │   ├── NothingToRetry          the last run of a conversation did not fail
    │   ├── AlreadyAnswered         a question has its end, or a signal was sent before
    │   ├── ReadOnlySession         a write or a schedule through a read-only harness
    │   ├── TaskRefused             a task may not be created, retried or waited for like that
    │   ├── UnknownModel            a model reference that no provider serves
    │   ├── Unanswered              a submission ended without an answer
    │   └── CallbackTooSlow         a commit callback held the line too long and was cancelled
    ├── StorageRequestError         a bad read: unknown id, malformed or foreign cursor
    │   └── CursorTooOld            what the cursor points at is no longer kept
    ├── ClosedError                 the harness is no longer there
    │   ├── HarnessClosed           it was closed by its host
    │   └── SessionFailed           its storage failed; the cause is chained
    ├── StorageError                the world broke: disk, database, lock
    │   ├── StorageUnusable         the path is wrong, not a database, or another program's file
    │   ├── StorageTooNew           the stored format is newer than this code
    │   ├── StorageCorrupt          stored bytes contradict themselves
    │   ├── StorageFenced           another owner took the storage over; this one may not write
    │   └── StorageHung             a storage call did not answer in time
    ├── ProviderError               a model provider failed
    ├── ContextCancelled            the context handed to a call was cancelled or ran out
    └── HarnessBug                  this package contradicts itself; please report it

Fields carry the facts that a program needs; the text is for people. `Cancelled` is Trio's own and
is never wrapped. This module raises nothing.

Size: one tree, to be read as one; each class says what happened and what to do.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AlreadyAnswered",
    "CallbackTooSlow",
    "ClosedError",
    "CommitReentered",
    "ContextCancelled",
    "ConversationBusy",
    "CursorTooOld",
    "DefinitionError",
    "HarnessBug",
    "HarnessClosed",
    "InvalidValue",
    "InvocationEnded",
    "MisuseError",
    "NothingToRetry",
    "PiDurableError",
    "ProviderError",
    "ReadOnlySession",
    "RefusedError",
    "RequestConflict",
    "SessionFailed",
    "StorageCorrupt",
    "StorageError",
    "StorageFenced",
    "StorageHung",
    "StorageInUse",
    "StorageRequestError",
    "StorageTooNew",
    "StorageUnusable",
    "TaskRefused",
    "TransactionClosed",
    "Unanswered",
    "UnknownModel",
]


class PiDurableError(Exception):
    """Root of every error of this package; never raised itself."""


class MisuseError(PiDurableError):
    """The calling code is wrong; the same call will fail again."""


class DefinitionError(MisuseError):
    """A task, tool, entry kind, document or extension is declared wrongly."""


class InvalidValue(MisuseError):
    """A value means nothing here, or cannot be stored. Nothing was written.

    Attributes:
        path: where the value sits, such as ``memo["plan"].steps[3]``.
        reason: what is wrong with it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class CommitReentered(MisuseError):
    """A commit, submit or wait was called from inside a commit callback of the same harness.

    It would wait for the very callback that makes it. Do it before or after the commit, or use the
    callback's own ``tx``.
    """


class TransactionClosed(MisuseError):
    """A transaction was used after its callback returned. Keep what it returned instead."""


class InvocationEnded(MisuseError):
    """A task or tool used its runtime after its run was over, for example from a stray child task.

    Attributes:
        task_id: the task whose run is over.
    """

    def __init__(self, task_id: int) -> None:
        super().__init__(
            f"the run of task {task_id} is over; its runtime can no longer be used. "
            "Await child tasks before the phase returns."
        )
        self.task_id = task_id


class RefusedError(PiDurableError):
    """The call was understood and refused because of the present state. Nothing was written."""


class StorageInUse(RefusedError):
    """Another owner has the storage. Raised at once, never after a wait.

    Attributes:
        owner: what is known about the owner (``pid 4711 on host``), for people.
    """

    def __init__(self, storage: str, owner: str) -> None:
        super().__init__(
            f"{storage} is in use by {owner}. Close that owner first, or open it with "
            "read_only=True."
        )
        self.storage = storage
        self.owner = owner


class RequestConflict(RefusedError):
    """A ``request_id`` was used before, in the same conversation, with something else.

    Attributes:
        field: what differs: ``type``, ``content`` or ``when_busy``. The old value is not echoed.
    """

    def __init__(self, request_id: str, field: str) -> None:
        super().__init__(
            f"request_id {request_id!r} was used before with a different {field}; "
            "use a new request_id for a new request."
        )
        self.request_id = request_id
        self.field = field


class ConversationBusy(RefusedError):
    """``when_busy="reject"`` met a conversation that is working.

    Attributes:
        conversation_id: the conversation that is busy.
    """

    def __init__(self, conversation_id: int) -> None:
        super().__init__(
            f"conversation {conversation_id} is busy; wait for it, or submit with "
            'when_busy="follow_up".'
        )
        self.conversation_id = conversation_id


class NothingToRetry(RefusedError):
    """The last run of a conversation was answered or reset, or there was none.

    Attributes:
        conversation_id: the conversation.
    """

    def __init__(self, conversation_id: int) -> None:
        super().__init__(
            f"conversation {conversation_id} has no failed run to go on with; submit an input."
        )
        self.conversation_id = conversation_id


class AlreadyAnswered(RefusedError):
    """A question has its end already, or a signal was sent before. The first one stands.

    Attributes:
        question_id: the question; of a signal, its name.
        outcome: ``answered``, ``expired`` (nobody answered in time) or ``withdrawn`` (the call that
            asked ended first).
        value: the answer that stands, as JSON; None unless it was answered.
        by: who answered; None unless it was answered.
        at_ms: when it ended, epoch milliseconds.
    """

    def __init__(
        self,
        question_id: str,
        outcome: Literal["answered", "expired", "withdrawn"],
        *,
        value: object = None,
        by: str | None = None,
        at_ms: int | None = None,
    ) -> None:
        told = {
            "answered": f"was answered by {by!r}; that stands",
            "expired": "has expired: nobody answered in time",
            "withdrawn": "was withdrawn: the call that asked has ended",
        }
        super().__init__(f"{question_id!r} {told[outcome]}.")
        self.question_id = question_id
        self.outcome: Literal["answered", "expired", "withdrawn"] = outcome
        self.value = value
        self.by = by
        self.at_ms = at_ms


class ReadOnlySession(RefusedError):
    """A write or a wait for progress through a harness opened with ``read_only=True``."""


class TaskRefused(RefusedError):
    """A task may not be created, retried, aborted or waited for in this way.

    Attributes:
        task_id: the task that the refusal is about, when there is one.
    """

    def __init__(self, message: str, task_id: int | None = None) -> None:
        super().__init__(message)
        self.task_id = task_id


class UnknownModel(RefusedError):
    """A model reference that no installed provider serves.

    Attributes:
        reference: the reference, ``provider/model_id``.
    """

    def __init__(self, reference: str, reason: str) -> None:
        super().__init__(f"model {reference!r}: {reason}")
        self.reference = reference


class Unanswered(RefusedError):
    """A submission ended without an answer.

    Attributes:
        submission_id: the submission.
        reason: why, such as ``model_error``, ``interrupted`` or ``aborted``.
        detail: what more is known, as JSON.
    """

    def __init__(self, submission_id: int, reason: str, detail: object) -> None:
        more = "" if detail is None else f" ({detail})"
        super().__init__(f"submission {submission_id} ended without an answer: {reason}{more}")
        self.submission_id = submission_id
        self.reason = reason
        self.detail = detail


class CallbackTooSlow(RefusedError):
    """A commit callback held the line longer than allowed; it was cancelled and rolled back.

    Attributes:
        held_s: how long it held the line, in seconds.
    """

    def __init__(self, held_s: float) -> None:
        super().__init__(
            f"a commit callback held the line for {held_s:.1f} s and was rolled back; "
            "do slow work before the commit and keep the callback short."
        )
        self.held_s = held_s


class StorageRequestError(PiDurableError):
    """A read that cannot be answered: an unknown id, or a malformed or foreign cursor."""


class CursorTooOld(StorageRequestError):
    """What the cursor points at is no longer kept. Start again from a snapshot."""


class ClosedError(PiDurableError):
    """The harness is no longer there."""


class HarnessClosed(ClosedError):
    """The harness was closed by its host. Open the storage again to go on."""

    def __init__(self) -> None:
        super().__init__("the harness is closed; open the storage again to go on.")


class SessionFailed(ClosedError):
    """The storage failed and the harness ended; ``__cause__`` is the storage's error.

    Commits are atomic, so the storage is consistent: open it again to go on. The same
    ``request_id`` finds what had been accepted.
    """

    def __init__(self) -> None:
        super().__init__(
            "the storage failed and the harness has ended; open the storage again to go on."
        )


class StorageError(PiDurableError):
    """A storage could not do what it was asked to.

    Attributes:
        wrote: ``False`` when it is known that nothing was written, ``None`` when it is unknown.
    """

    def __init__(self, message: str, *, wrote: Literal[False] | None = None) -> None:
        super().__init__(message)
        self.wrote: Literal[False] | None = wrote


class StorageUnusable(StorageError):
    """The path cannot hold a storage: a directory, not a database, another program's file."""

    def __init__(self, message: str) -> None:
        super().__init__(message, wrote=False)


class StorageTooNew(StorageError):
    """The stored format is newer than this code; nothing was changed.

    Attributes:
        stored: the stored format version.
        known: the newest version that this code knows.
    """

    def __init__(self, what: str, stored: int, known: int) -> None:
        super().__init__(
            f"{what} has format {stored}, this version of pidurable_actors knows up to {known}; "
            "install a newer version to open it.",
            wrote=False,
        )
        self.stored = stored
        self.known = known


class StorageCorrupt(StorageError):
    """Stored bytes contradict themselves. Never repaired silently."""


class StorageFenced(StorageError):
    """Another owner took the storage over; nothing was written."""

    def __init__(self, storage: str) -> None:
        super().__init__(
            f"{storage} was taken over by another owner; this one may no longer write.", wrote=False
        )


class StorageHung(StorageError):
    """A storage call did not answer within ``settings.commit_timeout_s``."""


class ProviderError(PiDurableError):
    """A model provider failed.

    Attributes:
        retryable: whether the same request may succeed later.
        kind: ``overloaded``, ``rate_limit``, ``network``, ``timeout``, ``overflow``, ``invalid``,
            ``auth`` or ``other``.
        retry_after_s: how long the provider asked to wait, in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        kind: str = "other",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.kind = kind
        self.retry_after_s = retry_after_s


class ContextCancelled(PiDurableError):
    """The context handed to a call was cancelled or ran out of time; the caller lives on.

    Attributes:
        reason: why, as given to ``cancel``; ``"deadline"`` when it ran out.
        deadline: the context's deadline on the Trio clock, ``math.inf`` when it has none.
    """

    def __init__(self, reason: str, deadline: float) -> None:
        super().__init__(f"the context of the call was cancelled: {reason}")
        self.reason = reason
        self.deadline = deadline


class HarnessBug(PiDurableError):
    """The runtime contradicts itself. Please report it with its cause.

    Attributes:
        body_error: what the body of ``open_harness`` raised meanwhile, if anything.
    """

    def __init__(
        self, message: str = "the runtime failed; this is a bug of pidurable_actors"
    ) -> None:
        super().__init__(message)
        self.body_error: BaseException | None = None
