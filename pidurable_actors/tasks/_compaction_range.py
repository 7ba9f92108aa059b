"""Which part of a transcript a summary stands for. Pure.

The cut falls before what begins a turn, and never between a call and its result: the kept part is
as much of the newest turns as a number of tokens allows, and the newest turn in any case. Calls
that may still be running belong to the newest turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pidurable_actors.models import ModelInfo, message_tokens
from pidurable_actors.records import (
    LEFT_OUT,
    SYSTEM,
    AssistantMessage,
    ConversationId,
    EntryId,
    EntryRecord,
    Message,
    UserMessage,
    newest_head,
    paired_results,
    visible_entries,
)

__all__ = ["CompactionRange", "choose_range", "range_before"]


@attrs.frozen(kw_only=True)
class CompactionRange:
    """What a summary stands for.

    Attributes:
        entries: as the model sees them, oldest first; an earlier summary or handoff is the first.
        first: the first entry that is kept.
        replaced: the earlier summary, where it would be seen among what is kept.
        tokens: what a model reads of the entries, by the estimate.
        new_tokens: the same without the earlier summary.
    """

    entries: tuple[EntryRecord, ...]
    first: EntryId
    replaced: EntryId | None
    tokens: int
    new_tokens: int


def choose_range(
    entries: Sequence[EntryRecord],
    *,
    conversation_id: ConversationId,
    keep_tokens: int,
    info: ModelInfo,
) -> CompactionRange | None:
    """Choose what is summarized.

    Args:
        entries: the transcript, oldest first; at least from the newest head on.
        conversation_id: whose it is; calls in inherited entries do not run here.
        keep_tokens: how much is kept, at most, unless the newest turn is larger.
        info: of the model, for the estimate.

    Returns:
        None when there is nothing to summarize, or nothing but an earlier summary.
    """
    _, body = _seen(entries)
    cuts = _cuts(body, conversation_id)
    if not cuts:
        return None
    kept = 0
    first = cuts[-1]
    at = len(body)
    for cut in reversed(cuts):
        kept += sum(_tokens(entry, info) for entry in body[cut:at])
        at = cut
        if kept > keep_tokens:
            break
        first = cut
    chosen = range_before(entries, body[first].id, info)
    return chosen if chosen.new_tokens else None


def range_before(
    entries: Sequence[EntryRecord], first: EntryId, info: ModelInfo
) -> CompactionRange:
    """The range that ends before an entry.

    Args:
        entries: the transcript, oldest first; at least from the newest head on.
        first: the first entry that is kept.
        info: of the model, for the estimate.
    """
    earlier, body = _seen(entries)
    new = [entry for entry in body if entry.id < first]
    begin = [] if earlier is None else [earlier]
    new_tokens = sum(_tokens(entry, info) for entry in new)
    return CompactionRange(
        entries=(*begin, *new),
        first=first,
        replaced=earlier.id if earlier is not None and earlier.id >= first else None,
        tokens=new_tokens + sum(_tokens(entry, info) for entry in begin),
        new_tokens=new_tokens,
    )


def _seen(entries: Sequence[EntryRecord]) -> tuple[EntryRecord | None, list[EntryRecord]]:
    """What set the head, and what a model sees from there on, without the system prompt."""
    head = newest_head(entries)
    seen = [entry for entry in visible_entries(entries) if entry.kind != SYSTEM]
    if head is None:
        return None, seen
    earlier = next((entry for entry in seen if entry.id == head.id), None)
    return earlier, [entry for entry in seen if entry.id != head.id]


def _cuts(body: Sequence[EntryRecord], conversation_id: ConversationId) -> list[int]:
    """The places before which the transcript may be cut, oldest first."""
    messages: list[Message] = []
    places: list[int] = []
    for at, entry in enumerate(body):
        for message in entry.model or ():
            messages.append(message)
            places.append(at)
    results = paired_results(messages)
    # For each answer, up to where its round goes: no cut may come behind it and before that.
    rounds = [(places[answer], places[result]) for (answer, _), result in results.items()]
    unanswered = _may_run(body, messages, places, results, conversation_id)
    if unanswered is not None:
        rounds.append((unanswered, len(body)))
    forbidden = [False] * (len(body) + 1)
    for begin, end in rounds:
        for at in range(begin + 1, end + 1):
            forbidden[min(at, len(body))] = True
    return [at for at, entry in enumerate(body) if _begins_turn(entry) and not forbidden[at]]


def _may_run(
    body: Sequence[EntryRecord],
    messages: Sequence[Message],
    places: Sequence[int],
    results: dict[tuple[int, int], int],
    conversation_id: ConversationId,
) -> int | None:
    """The newest answer that calls tools, when a call of it has no result yet and may get one."""
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if isinstance(message, AssistantMessage) and message.tool_calls:
            if message.stop_reason in LEFT_OUT:
                continue
            whole = all((at, number) in results for number in range(len(message.tool_calls)))
            own = body[places[at]].conversation_id == conversation_id
            return places[at] if own and not whole else None
    return None


def _begins_turn(entry: EntryRecord) -> bool:
    first = next(iter(entry.model or ()), None)
    return isinstance(first, UserMessage | AssistantMessage)


def _tokens(entry: EntryRecord, info: ModelInfo) -> int:
    return sum(message_tokens(message, info) for message in entry.model or () if _is_shown(message))


def _is_shown(message: Message) -> bool:
    if isinstance(message, AssistantMessage) and message.stop_reason in LEFT_OUT:
        return False
    return bool(message.content)
