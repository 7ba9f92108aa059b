"""Entries to model context: pure, and always legal for a strict provider.

From the newest head on, with edits applied: every tool result directly after its call, in call
order; an error result made up for a call that has none; failed and aborted answers left out, and
results without a call with them. It never changes an entry.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from pidurable_actors.records._entries import EntryRecord
from pidurable_actors.records._ids import EntryId
from pidurable_actors.records._messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ToolResultMessage,
)

__all__ = ["harness_error", "model_context"]

_LEFT_OUT = ("aborted", "error")


def model_context(entries: Sequence[EntryRecord]) -> tuple[Message, ...]:
    """What a model is asked with.

    Args:
        entries: the transcript, oldest first; at least from the newest head on.
    """
    shown = _visible(entries)
    # Providers may use a call id again in a later answer: results pair with calls in order.
    results: dict[str, deque[ToolResultMessage]] = defaultdict(deque)
    for message in shown:
        if isinstance(message, ToolResultMessage):
            results[message.call_id].append(message)
    context: list[Message] = []
    for message in shown:
        if isinstance(message, ToolResultMessage):
            continue
        if isinstance(message, AssistantMessage) and message.stop_reason in _LEFT_OUT:
            continue
        if isinstance(message, AssistantMessage) and not message.content:
            continue
        context.append(message)
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                waiting = results[call.id]
                context.append(waiting.popleft() if waiting else _no_result(call.id, call.name))
    return tuple(context)


def harness_error(message: str) -> str:
    """The text by which the harness tells a model of an error."""
    return f"<harness>\n[error] {message}\n</harness>"


def _visible(entries: Sequence[EntryRecord]) -> list[Message]:
    head: EntryId | None = None
    replaced: dict[EntryId, tuple[Message, ...]] = {}
    for entry in entries:
        if entry.head is not None:
            head = entry.head
        for edit in entry.edits:
            replaced[edit.entry_id] = edit.model or ()
    return [
        message
        for entry in entries
        if head is None or entry.id >= head
        for message in replaced.get(entry.id, entry.model or ())
    ]


def _no_result(call_id: str, tool_name: str) -> ToolResultMessage:
    text = harness_error(f"Tool {tool_name} has no result")
    return ToolResultMessage(
        call_id=call_id, tool_name=tool_name, content=(TextBlock(text=text),), is_error=True
    )
