"""The task record and its states.

Each state is a class of its own with just the fields it has. A live state carries the checkpoint
(an object whose `phase` names the step to enter next); an ended one carries the outcome. A
`faulted` or `failed` outcome keeps checkpoint and memos, so that the task can be tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.records._ids import ConversationId, TaskId

__all__ = [
    "ENDED",
    "NEVER_MS",
    "AbortedOutcome",
    "CompletedOutcome",
    "Completing",
    "EndedState",
    "FailedOutcome",
    "FaultedOutcome",
    "LiveState",
    "OrphanedOutcome",
    "Parked",
    "Pending",
    "Running",
    "Sleeping",
    "StepState",
    "TaskOutcome",
    "TaskRecord",
    "TaskState",
    "TaskStatus",
    "Terminal",
    "WaitPolicy",
    "Waiting",
    "is_live",
]

TaskStatus: TypeAlias = Literal[
    "pending", "running", "waiting", "sleeping", "parked", "completing", "terminal"
]
WaitPolicy: TypeAlias = Literal["all_settled", "fail_fast"]

NEVER_MS: Final = 253_402_300_799_000
"""The end of the year 9999: a task that sleeps until then sleeps until somebody wakes it."""


@attrs.frozen(kw_only=True)
class CompletedOutcome:
    """The task did what it was made for."""

    result: JSON = None
    status: Literal["completed"] = attrs.field(default="completed", init=False)


@attrs.frozen(kw_only=True)
class FailedOutcome:
    """The task decided that it failed; checkpoint and memos are kept for a retry."""

    error: JSON = None
    result: JSON = None
    checkpoint: JsonObject | None = None
    memos: Mapping[str, JSON] = attrs.field(factory=dict)
    status: Literal["failed"] = attrs.field(default="failed", init=False)


@attrs.frozen(kw_only=True)
class AbortedOutcome:
    """The task was stopped by an abort mark."""

    reason: str = ""
    status: Literal["aborted"] = attrs.field(default="aborted", init=False)


@attrs.frozen(kw_only=True)
class FaultedOutcome:
    """The task's code failed: ``error`` is ``{"type", "message", "trace"}`` or a reason."""

    error: JSON = None
    checkpoint: JsonObject | None = None
    memos: Mapping[str, JSON] = attrs.field(factory=dict)
    status: Literal["faulted"] = attrs.field(default="faulted", init=False)

    @property
    def by_restart_limit(self) -> bool:
        """Whether it was cut off too often, rather than failing by itself."""
        return isinstance(self.error, dict) and self.error.get("reason") == "restart_limit"


@attrs.frozen(kw_only=True)
class OrphanedOutcome:
    """The task was ended without its code, which this process does not have."""

    reason: str = ""
    status: Literal["orphaned"] = attrs.field(default="orphaned", init=False)


TaskOutcome: TypeAlias = (
    CompletedOutcome | FailedOutcome | AbortedOutcome | FaultedOutcome | OrphanedOutcome
)


@attrs.frozen(kw_only=True)
class Pending:
    """Waits to be run from its checkpoint."""

    checkpoint: JsonObject
    status: Literal["pending"] = attrs.field(default="pending", init=False)


@attrs.frozen(kw_only=True)
class Running:
    """Reserved: this process runs it, or the one that did was cut off."""

    checkpoint: JsonObject
    status: Literal["running"] = attrs.field(default="running", init=False)


@attrs.frozen(kw_only=True)
class Waiting:
    """Resumes at its checkpoint when the tasks in `on` have ended, as `policy` says."""

    checkpoint: JsonObject
    on: tuple[TaskId, ...] = ()
    policy: WaitPolicy = "all_settled"
    status: Literal["waiting"] = attrs.field(default="waiting", init=False)


@attrs.frozen(kw_only=True)
class Sleeping:
    """Resumes at its checkpoint when the clock reaches `until_ms`."""

    checkpoint: JsonObject
    until_ms: int
    status: Literal["sleeping"] = attrs.field(default="sleeping", init=False)


@attrs.frozen(kw_only=True)
class Parked:
    """Cut off too often; waits for `retry_task` or an abort."""

    checkpoint: JsonObject
    status: Literal["parked"] = attrs.field(default="parked", init=False)


@attrs.frozen(kw_only=True)
class Completing:
    """Ended with a held outcome; becomes terminal when the work it owns has ended."""

    outcome: TaskOutcome
    status: Literal["completing"] = attrs.field(default="completing", init=False)


@attrs.frozen(kw_only=True)
class Terminal:
    """Ended."""

    outcome: TaskOutcome
    status: Literal["terminal"] = attrs.field(default="terminal", init=False)


ENDED: Final = (Completing, Terminal)
"""The states that hold an outcome; a tuple, because ``A | B`` is built anew by every isinstance."""

StepState: TypeAlias = Pending | Running | Waiting | Sleeping | Parked
EndedState: TypeAlias = Completing | Terminal
LiveState: TypeAlias = StepState | Completing
TaskState: TypeAlias = StepState | EndedState


@attrs.frozen(kw_only=True)
class TaskRecord:
    """A durable state machine.

    `owner` is a task of the same conversation, or None when the conversation owns it. `memos` are
    stored as rows of their own; a storage puts them into the record it returns. `restarts` counts
    crashes since the last progress. `retry_of` and `retried_as` link a retried task to its
    successor. `restarts`, `memos` and the retry links are absent from JSON while zero or empty.
    """

    id: TaskId
    conversation_id: ConversationId
    kind: str
    version: int
    input: JSON
    state: TaskState
    owner: TaskId | None = None
    background: bool = False
    abort_requested: bool = False
    abort_reason: str = ""
    restarts: int = 0
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    retry_of: TaskId | None = None
    retried_as: TaskId | None = None
    memos: Mapping[str, JSON] = attrs.field(factory=dict)
    extra: Mapping[str, JSON] = attrs.field(factory=dict)

    @property
    def outcome(self) -> TaskOutcome | None:
        """How the task ended, None while it has not; a held outcome is none yet."""
        return self.state.outcome if isinstance(self.state, Terminal) else None

    def stepped(self, state: TaskState) -> TaskRecord:
        """The record after progress: in `state`, with no restarts counted."""
        # By hand, because attrs.evolve looks at every field and this is made on every step.
        return TaskRecord(
            id=self.id,
            conversation_id=self.conversation_id,
            kind=self.kind,
            version=self.version,
            input=self.input,
            state=state,
            owner=self.owner,
            background=self.background,
            abort_requested=self.abort_requested,
            abort_reason=self.abort_reason,
            started_at_ms=self.started_at_ms,
            ended_at_ms=self.ended_at_ms,
            retry_of=self.retry_of,
            retried_as=self.retried_as,
            memos=self.memos,
            extra=self.extra,
        )


def is_live(record: TaskRecord) -> bool:
    """Whether the task has not reached its end, held outcome or not."""
    return not isinstance(record.state, Terminal)
