"""Entries to model context: pure, and always legal for a strict provider.

From the newest head on, with edits applied: first the newest complete system prompt, then what the
head itself says (a summary, a handoff), then the rest. Every tool result stands directly after its
call, in call order; an error result is made up for a call that has none; failed and aborted answers
are left out, and results without a call with them; what one side says in several entries one after
the other is one message, and what the system tells meanwhile stands before it; empty texts are left
out. It never changes an entry.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import attrs

from pidurable_actors.records._entries import SYSTEM, EntryRecord
from pidurable_actors.records._ids import EntryId
from pidurable_actors.records._messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    UserMessage,
)

__all__ = [
    "LEFT_OUT",
    "context_of",
    "harness_error",
    "is_baseline",
    "model_context",
    "newest_head",
    "paired_results",
    "visible_entries",
]

LEFT_OUT: Final = ("aborted", "error")
"""Stop reasons of answers that a model is not shown again."""

_Paired: TypeAlias = dict[tuple[int, int], int]


def model_context(entries: Sequence[EntryRecord]) -> tuple[Message, ...]:
    """What a model is asked with.

    Args:
        entries: the transcript, oldest first; at least from the newest head on.
    """
    return context_of(visible_entries(entries))


def context_of(visible: Sequence[EntryRecord]) -> tuple[Message, ...]:
    """The messages of what a model sees of entries; see `model_context`.

    Args:
        visible: what `visible_entries` says.
    """
    shown = [_without_nothing(message) for entry in visible for message in entry.model or ()]
    results = paired_results(shown)
    context: list[_Said] = []
    for at, message in enumerate(shown):
        match message:
            case ToolResultMessage():
                continue
            case AssistantMessage():
                if message.stop_reason in LEFT_OUT or not message.content:
                    continue
                _say(context, message)
                for number, call in enumerate(message.tool_calls):
                    result = results.get((at, number))
                    context.append(
                        _Said(_no_result(call.id, call.name) if result is None else shown[result])
                    )
            case _:
                _say(context, message)
    return tuple(said.whole() for said in context)


def visible_entries(entries: Sequence[EntryRecord]) -> list[EntryRecord]:
    """The entries that a model sees something of, in the order in which it sees them.

    Args:
        entries: the transcript, oldest first; at least from the newest head on.

    Returns:
        The newest complete system prompt, the entry that set the newest head, and the entries from
        the head on, without system entries before that prompt, and without changes of a prompt that
        is not seen itself; each with the edits applied.
    """
    cut = newest_head(entries)
    head = 0 if cut is None or cut.head is None else cut.head
    seen = [entry for entry in entries if entry.id >= head and entry is not cut]
    baseline = next((entry for entry in reversed(seen) if is_baseline(entry)), None)
    if baseline is not None:
        seen = [e for e in seen if e.kind != SYSTEM or e.id > baseline.id]
    else:
        # What changed of a prompt that is out of sight says nothing.
        seen = [e for e in seen if not _is_change(e)]
    first = [entry for entry in (baseline, cut) if entry is not None]
    return _edited([*first, *seen], entries)


def newest_head(entries: Iterable[EntryRecord]) -> EntryRecord | None:
    """The newest entry that says where the model's view begins; None when it sees everything."""
    return max(
        (entry for entry in entries if entry.head is not None),
        key=lambda entry: entry.id,
        default=None,
    )


def is_baseline(entry: EntryRecord) -> bool:
    """Whether an entry is a complete system prompt, and not a change of an earlier one."""
    return (
        entry.kind == SYSTEM and isinstance(entry.data, dict) and entry.data.get("complete") is True
    )


def _is_change(entry: EntryRecord) -> bool:
    return (
        entry.kind == SYSTEM
        and isinstance(entry.data, dict)
        and entry.data.get("complete") is False
    )


def harness_error(message: str) -> str:
    """The text by which the harness tells a model of an error."""
    return f"<harness>\n[error] {message}\n</harness>"


def _without_nothing(message: Message) -> Message:
    """A message without its empty texts, which providers refuse."""
    if not any(isinstance(block, TextBlock) and not block.text for block in message.content):
        return message
    said: list[Any] = [it for it in message.content if not isinstance(it, TextBlock) or it.text]
    return attrs.evolve(message, content=tuple(said))


def paired_results(shown: Sequence[Message]) -> _Paired:
    """The place of each call's result, by the place of its answer and that of the call in it.

    Providers use call ids again in later answers: a result belongs to the newest answer before it
    that has a call of that id, and to the first of its calls that has none yet. One that finds no
    such call, because it is orphaned or comes twice, belongs to nothing.
    """
    paired: _Paired = {}
    waiting: dict[str, deque[tuple[int, int]]] = {}
    for at, message in enumerate(shown):
        if isinstance(message, AssistantMessage):
            calls: defaultdict[str, deque[tuple[int, int]]] = defaultdict(deque)
            for number, call in enumerate(message.tool_calls):
                calls[call.id].append((at, number))
            waiting.update(calls)
        elif isinstance(message, ToolResultMessage) and waiting.get(message.call_id):
            paired[waiting[message.call_id].popleft()] = at
    return paired


@attrs.define
class _Said:
    """A message of the context, and the blocks of all that became one with it, if anything did."""

    message: Message
    blocks: list[Any] | None = None

    def add(self, message: Message) -> None:
        """Take what the same side says next; a list, because that may be much."""
        if self.blocks is None:
            self.blocks = list(self.message.content)
        self.blocks.extend(message.content)
        self.message = message

    def whole(self) -> Message:
        """The message."""
        if self.blocks is None:
            return self.message
        return attrs.evolve(self.message, content=tuple(self.blocks))


def _say(context: list[_Said], message: Message) -> None:
    """Add a message; what the same side said just before becomes one with it."""
    if not message.content:
        return
    before = context[-1].message if context else None
    if isinstance(message, SystemMessage) and isinstance(before, UserMessage):
        # What a user adds is then one message with it, and not a second one in a row.
        context.insert(-1, _Said(message))
    elif isinstance(message, UserMessage | AssistantMessage) and type(message) is type(before):
        # Calls of an answer are followed by their results, so that no answer comes right behind.
        context[-1].add(message)
    else:
        context.append(_Said(message))


def _edited(seen: list[EntryRecord], entries: Sequence[EntryRecord]) -> list[EntryRecord]:
    replaced: dict[EntryId, tuple[Message, ...]] = {}
    for entry in entries:
        for edit in entry.edits:
            replaced[edit.entry_id] = edit.model or ()
    if not replaced:
        return seen
    return [
        attrs.evolve(entry, model=replaced[entry.id]) if entry.id in replaced else entry
        for entry in seen
    ]


def _no_result(call_id: str, tool_name: str) -> ToolResultMessage:
    text = harness_error(f"Tool {tool_name} has no result")
    return ToolResultMessage(
        call_id=call_id, tool_name=tool_name, content=(TextBlock(text=text),), is_error=True
    )
