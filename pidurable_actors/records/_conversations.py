"""The conversation record: where a transcript comes from and who owns it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from pidurable_actors._json import JSON
from pidurable_actors.records._ids import ConversationId, EntryId, TaskId

__all__ = ["ConversationRecord", "ForkPoint", "Owner"]


@attrs.frozen(kw_only=True)
class ForkPoint:
    """Where a fork leaves its parent: it sees the parent's entries up to and with `entry_id`."""

    conversation_id: ConversationId
    entry_id: EntryId


@attrs.frozen(kw_only=True)
class Owner:
    """The task that owns a conversation, and the conversation that task belongs to."""

    conversation_id: ConversationId
    task_id: TaskId


@attrs.frozen(kw_only=True)
class ConversationRecord:
    """A transcript: ``{"id", "parent": {...} | null, "owner": {...} | null, "created_at_ms"}``.

    `extra` keeps fields of a newer writer when the record is passed through.
    """

    id: ConversationId
    parent: ForkPoint | None = None
    owner: Owner | None = None
    created_at_ms: int = 0
    extra: Mapping[str, JSON] = attrs.field(factory=dict)
