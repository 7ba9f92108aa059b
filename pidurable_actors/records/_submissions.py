"""Submissions: what was handed to a conversation, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.records._entries import EntryDraft
from pidurable_actors.records._ids import ConversationId, EntryId, SubmissionId

__all__ = [
    "SubmissionRecord",
    "SubmissionStatus",
    "SubmissionType",
    "UnansweredReason",
    "WhenBusy",
]

SubmissionType: TypeAlias = Literal["input", "write", "retry"]
SubmissionStatus: TypeAlias = Literal["queued", "placed", "done", "unanswered"]
WhenBusy: TypeAlias = Literal["follow_up", "steer", "reject"]
UnansweredReason: TypeAlias = Literal[
    "interrupted",
    "restart_limit",
    "model_error",
    "no_model",
    "budget",
    "aborted",
    "withdrawn",
    "faulted",
    "orphaned",
    "reset",
    "stale",
]


@attrs.frozen(kw_only=True)
class SubmissionRecord:
    """An input or a write on its way, or the wish to try a failed run again.

    ``queued`` carries its `draft`; ``placed``, ``done`` and ``unanswered`` inputs that reached the
    transcript carry the id of their `entry`. ``done`` carries the `answer`, ``unanswered`` the
    `reason` and a `detail`. `fingerprint` tells two uses of one `request_id` apart without keeping
    the content. `caller` is who asked, so that a run that is resumed still knows for whom it works.
    """

    id: SubmissionId
    conversation_id: ConversationId
    type: SubmissionType
    status: SubmissionStatus
    when_busy: WhenBusy = "follow_up"
    request_id: str | None = None
    fingerprint: str = ""
    draft: EntryDraft | None = None
    entry: EntryId | None = None
    answer: EntryId | None = None
    reason: UnansweredReason | None = None
    detail: JSON = None
    caller: JsonObject | None = None
    extra: Mapping[str, JSON] = attrs.field(factory=dict)
