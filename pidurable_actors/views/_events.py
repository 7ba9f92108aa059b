"""Events: what happens in a conversation, as a chat interface wants to hear it.

The vocabulary alone, all of it immutable; `_telling` makes events of commits and of progress.

Every event carries the delta operations that it stands for, each operation of a commit in exactly
one event: applying them to the snapshot, in order, always gives what is shown. So an interface may
look at the names alone, at the operations alone, or at both.

The order within one commit: first what became of submissions, then the changes of the view in the
order in which the commit made them (entries before documents), then tasks that failed. Text is
never told twice: what was shown as progress is not told again when it is stored. While there is
progress, what changes of the work under way comes last of the changes of the view, because it is
worked out from what was shown.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from pidurable_actors._json import JSON
from pidurable_actors.agent import LiveState
from pidurable_actors.records import (
    EntryRecord,
    Operation,
    SubmissionRecord,
    TaskId,
)
from pidurable_actors.views._view import ConversationView

__all__ = [
    "AgentChanged",
    "BlockStarted",
    "CompactionChanged",
    "ConversationChanged",
    "EntriesDropped",
    "EntryAppended",
    "Event",
    "InboxChanged",
    "LiveReplaced",
    "MessageCleared",
    "MessageEnded",
    "MessageUpdated",
    "QuestionAsked",
    "QuestionEnded",
    "RetryScheduled",
    "RunChanged",
    "RunEnded",
    "RunStarted",
    "Snapshot",
    "SubmissionChanged",
    "TaskFailed",
    "ToolAnswered",
    "ToolEnded",
    "ToolStarted",
    "ToolUpdated",
    "TurnStarted",
    "UsageChanged",
]


@attrs.frozen(kw_only=True)
class _Event:
    """What all events have.

    Attributes:
        number: the commit, a cursor; None for progress that is not stored yet.
        operations: what it does to the view.
    """

    number: int | None
    operations: tuple[Operation, ...] = ()


@attrs.frozen(kw_only=True)
class Snapshot(_Event):
    """Everything as it is shown now; what follows applies on top.

    It comes first, and again after more was missed than is kept.
    """

    view: ConversationView


@attrs.frozen(kw_only=True)
class LiveReplaced(_Event):
    """What goes on, as it is shown now, in place of everything that was shown of it.

    It ends what is told to a stream that came back with ``after=``: before it left it may have been
    shown text that was not stored yet, so half answers and output are shown anew.
    """

    live: LiveState


@attrs.frozen(kw_only=True)
class SubmissionChanged(_Event):
    """A submission was queued, placed, answered or given up."""

    submission: SubmissionRecord


@attrs.frozen(kw_only=True)
class RunStarted(_Event):
    """A run begins; `submissions` are the ids that it answers."""

    submissions: tuple[int, ...]


@attrs.frozen(kw_only=True)
class RunChanged(_Event):
    """Something about the run changed: a submission joined it, or a turn was counted."""


@attrs.frozen(kw_only=True)
class RunEnded(_Event):
    """The run is over. `reason` is set when it ended without an answer, with `detail`."""

    reason: str | None = None
    detail: JSON = None


@attrs.frozen(kw_only=True)
class TurnStarted(_Event):
    """The model is asked; `turn` counts from 1 in each run. The turn before is over then."""

    turn: int


@attrs.frozen(kw_only=True)
class RetryScheduled(_Event):
    """The request failed, or is tried again: what changed of `attempt`, `retry_at_ms`, `error`."""

    changed: dict[str, JSON]


@attrs.frozen(kw_only=True)
class BlockStarted(_Event):
    """The answer under way has a new block, perhaps with its first text.

    The first one, `at` 0, is the start of the message. `id` and `name` are those of a tool call.
    """

    at: int
    type: Literal["text", "thinking", "tool_call"]
    text: str
    id: str
    name: str


@attrs.frozen(kw_only=True)
class MessageUpdated(_Event):
    """The answer under way has more text in the block `at`: of a tool call, more arguments."""

    at: int
    text: str


@attrs.frozen(kw_only=True)
class MessageCleared(_Event):
    """The half answer is gone: it was stored as an entry, or its request failed."""


@attrs.frozen(kw_only=True)
class MessageEnded(_Event):
    """The model's message is stored. It comes also for one of which no block was ever shown."""

    entry: EntryRecord


@attrs.frozen(kw_only=True)
class EntryAppended(_Event):
    """Another entry was stored: an input, a write, a prompt section, a reset."""

    entry: EntryRecord


@attrs.frozen(kw_only=True)
class EntriesDropped(_Event):
    """The oldest `count` entries are no longer part of the view; they stay in the transcript."""

    count: int


@attrs.frozen(kw_only=True)
class ToolStarted(_Event):
    """A tool call has its task. `call_id` is empty for one that a tool made."""

    task_id: TaskId
    call_id: str
    name: str


@attrs.frozen(kw_only=True)
class ToolUpdated(_Event):
    """A tool put out more text, or what came first was dropped."""

    task_id: TaskId
    text: str


@attrs.frozen(kw_only=True)
class ToolAnswered(_Event):
    """The result of a model's tool call is stored."""

    call_id: str
    is_error: bool
    entry: EntryRecord


@attrs.frozen(kw_only=True)
class ToolEnded(_Event):
    """A tool call is over, and its output no longer shown."""

    task_id: TaskId


@attrs.frozen(kw_only=True)
class QuestionAsked(_Event):
    """A call waits for an answer, or for a signal; `text` is then its name."""

    question_id: str
    kind: Literal["ask", "approve", "signal"]
    tool_name: str
    text: str
    deadline_ms: int | None


@attrs.frozen(kw_only=True)
class QuestionEnded(_Event):
    """A question is open no more: it was answered, has expired, or was withdrawn."""

    question_id: str


@attrs.frozen(kw_only=True)
class InboxChanged(_Event):
    """What waits has changed."""


@attrs.frozen(kw_only=True)
class UsageChanged(_Event):
    """What the conversation has used has changed."""


@attrs.frozen(kw_only=True)
class CompactionChanged(_Event):
    """A compaction began, ended or failed."""


@attrs.frozen(kw_only=True)
class AgentChanged(_Event):
    """What the conversation runs with has changed, or its session at the provider."""


@attrs.frozen(kw_only=True)
class ConversationChanged(_Event):
    """Something else of the view has changed."""


@attrs.frozen(kw_only=True)
class TaskFailed(_Event):
    """A task of the conversation ended without completing."""

    task_id: TaskId
    kind: str
    status: Literal["failed", "faulted", "orphaned"]
    error: JSON


Event: TypeAlias = (
    Snapshot
    | LiveReplaced
    | SubmissionChanged
    | RunStarted
    | RunChanged
    | RunEnded
    | TurnStarted
    | RetryScheduled
    | BlockStarted
    | MessageUpdated
    | MessageCleared
    | MessageEnded
    | EntryAppended
    | EntriesDropped
    | ToolStarted
    | ToolUpdated
    | ToolAnswered
    | ToolEnded
    | QuestionAsked
    | QuestionEnded
    | InboxChanged
    | UsageChanged
    | CompactionChanged
    | AgentChanged
    | ConversationChanged
    | TaskFailed
)
