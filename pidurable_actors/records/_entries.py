"""Transcript entries: immutable lines, and edits by which later ones change a model's view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from pidurable_actors._json import JSON
from pidurable_actors.records._ids import ConversationId, EntryId, TaskId
from pidurable_actors.records._messages import Message

__all__ = [
    "ASSISTANT",
    "COMPACTION",
    "RESET",
    "SYSTEM",
    "TOOL_RESULT",
    "USER",
    "ContextEdit",
    "EntryDraft",
    "EntryRecord",
]

USER: Final = "pi.user"
ASSISTANT: Final = "pi.assistant"
TOOL_RESULT: Final = "pi.tool-result"
SYSTEM: Final = "pi.system"
RESET: Final = "pi.reset"
COMPACTION: Final = "pi.compaction"


@attrs.frozen(kw_only=True)
class ContextEdit:
    """Hides (`model` is None) or replaces an earlier entry in what the model sees."""

    entry_id: EntryId
    model: tuple[Message, ...] | None = None


@attrs.frozen(kw_only=True)
class EntryDraft:
    """An entry before it has a place: what `append_entry` and `write` take."""

    kind: str
    model: tuple[Message, ...] | None = None
    data: JSON = None
    head: EntryId | None = None
    edits: tuple[ContextEdit, ...] = ()


@attrs.frozen(kw_only=True)
class EntryRecord:
    """One transcript line.

    `model` is what a model sees of it, None for lines that only people and programs read. `data` is
    the kind's own JSON. `head` is the entry at which the model's view starts from here on. `edits`
    hide or replace earlier entries in that view. `by_task_id` is the task that appended it.
    """

    id: EntryId
    conversation_id: ConversationId
    kind: str
    model: tuple[Message, ...] | None = None
    data: JSON = None
    head: EntryId | None = None
    edits: tuple[ContextEdit, ...] = ()
    by_task_id: TaskId | None = None
    at_ms: int = 0
    extra: Mapping[str, JSON] = attrs.field(factory=dict)
