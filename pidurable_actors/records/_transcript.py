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
    results = _paired(shown)
    context: list[Message] = []
    for at, message in enumerate(shown):
        match message:
            case ToolResultMessage():
                continue
            case AssistantMessage():
                if message.stop_reason in _LEFT_OUT or not message.content:
                    continue
                context.append(message)
                for number, call in enumerate(message.tool_calls):
                    context.append(results.get((at, number)) or _no_result(call.id, call.name))
            case _:
                context.append(message)
    return tuple(context)


def _paired(shown: Sequence[Message]) -> dict[tuple[int, int], ToolResultMessage]:
    """The result of each call, by the positions of its answer and of the call in it.

    Providers use call ids again in later answers: a result belongs to the newest answer before it
    that has a call of that id, and to the first of its calls that has none yet. One that finds no
    such call, because it is orphaned or comes twice, belongs to nothing.
    """
    paired: dict[tuple[int, int], ToolResultMessage] = {}
    waiting: dict[str, deque[tuple[int, int]]] = {}
    for at, message in enumerate(shown):
        if isinstance(message, AssistantMessage):
            calls: defaultdict[str, deque[tuple[int, int]]] = defaultdict(deque)
            for number, call in enumerate(message.tool_calls):
                calls[call.id].append((at, number))
            waiting.update(calls)
        elif isinstance(message, ToolResultMessage) and waiting.get(message.call_id):
            paired[waiting[message.call_id].popleft()] = message
    return paired


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
