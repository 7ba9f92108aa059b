"""Whether each tool call in a transcript has its one result.

Owns transcripts at the end of a life: what each conversation appended itself, in order. It looks at
no task but to see whether a call is still being answered. The invariant: it passes exactly when
calls of answers that were not cut off, and results, pair up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from pidurable_actors.records import (
    ASSISTANT,
    TOOL_RESULT,
    AssistantMessage,
    ConversationId,
    EntryId,
    EntryRecord,
    TaskRecord,
    ToolResultMessage,
    is_live,
)
from pidurable_actors.runtime import checkpoint_in
from pidurable_actors.tasks.generation import Generation, Tools
from pidurable_actors.tasks.tool import ToolTask
from pidurable_actors.testing._records import Records
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["calls_have_one_result"]

Call: TypeAlias = tuple[EntryId, str]
"""The entry of an answer, and the model's id of a call in it."""

_PROMISE: Final = "each call of an answer that was not cut off has exactly one result, in its order"


def calls_have_one_result(world: World) -> None:
    """In each conversation, calls and results pair up.

    A call may lack its result at the end only while a live task is there to give it. Calls of an
    aborted answer were never made, and have none.

    Raises:
        AssertionError: a call has no result or two, or a result belongs to no call.
    """
    unanswered: dict[Call, ConversationId] = {}
    open_calls: dict[tuple[ConversationId, str], EntryId] = {}
    for entry in world.records.entries.values():
        for call_id in _calls(entry):
            open_calls[entry.conversation_id, call_id] = entry.id
            unanswered[entry.id, call_id] = entry.conversation_id
        for call_id in _results(entry):
            answer = open_calls.get((entry.conversation_id, call_id))
            if answer is None:
                raise _broken(entry, f"is a result of call {call_id!r}, which nobody made.")
            if unanswered.pop((answer, call_id), None) is None:
                raise _broken(entry, f"is a second result of call {call_id!r} of entry {answer}.")
    if unanswered:
        _check_answering(world.records, unanswered)


def _check_answering(records: Records, unanswered: Mapping[Call, ConversationId]) -> None:
    under_way = {
        call
        for task in records.tasks.values()
        if is_live(task)
        for call in _answering(task, records.entries)
    }
    for (entry_id, call_id), conversation_id in unanswered.items():
        if (entry_id, call_id) not in under_way:
            raise broken(
                "calls_have_one_result",
                _PROMISE,
                f"call {call_id!r} of entry {entry_id} in conversation {conversation_id} has no "
                "result, and no live task is there to give it.",
            )


def _answering(task: TaskRecord, entries: Mapping[EntryId, EntryRecord]) -> Iterator[Call]:
    """The calls that a live task will see to."""
    if task.kind == ToolTask.definition.kind and isinstance(task.input, dict):
        entry_id, call_id = task.input.get("entry"), task.input.get("call_id")
        if isinstance(entry_id, int) and isinstance(call_id, str):
            yield EntryId(entry_id), call_id
    at = checkpoint_in(task)
    if task.kind == Generation.definition.kind and at and at["phase"] == Tools.phase_name:
        answer, started = at.get("entry"), at.get("started")
        entry = entries.get(EntryId(answer)) if isinstance(answer, int) else None
        if entry is not None and isinstance(started, int):
            for call_id in list(_calls(entry))[started:]:
                yield entry.id, call_id


def _calls(entry: EntryRecord) -> Iterator[str]:
    if entry.kind == ASSISTANT:
        for message in entry.model or ():
            if isinstance(message, AssistantMessage) and message.stop_reason != "aborted":
                yield from (call.id for call in message.tool_calls)


def _results(entry: EntryRecord) -> Iterator[str]:
    if entry.kind == TOOL_RESULT:
        for message in entry.model or ():
            if isinstance(message, ToolResultMessage):
                yield message.call_id


def _broken(entry: EntryRecord, seen: str) -> AssertionError:
    told = f"entry {entry.id} of conversation {entry.conversation_id} {seen}"
    return broken("calls_have_one_result", _PROMISE, told)
