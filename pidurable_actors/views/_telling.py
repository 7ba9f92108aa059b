"""Telling: which events one step of a conversation's view is. Pure.

Owns the way from delta operations, and from what a commit wrote beside the view, to events. It
never looks at the view itself. Invariant: each operation is in exactly one event, in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Literal, cast

import attrs

from pidurable_actors._frozen import FrozenDict, FrozenList, thaw
from pidurable_actors._json import JSON, encode_json
from pidurable_actors.agent import AGENT, INBOX, PROVIDER, USAGE
from pidurable_actors.records import (
    ASSISTANT,
    TOOL_RESULT,
    AppendText,
    Change,
    ConversationId,
    DeleteKey,
    FailedOutcome,
    FaultedOutcome,
    Operation,
    OrphanedOutcome,
    Path,
    PutSubmission,
    PutTask,
    SetValue,
    SpliceList,
    TaskId,
    Terminal,
    ToolResultMessage,
)
from pidurable_actors.records.codec import decode_entry
from pidurable_actors.views._events import (
    AgentChanged,
    BlockStarted,
    CompactionChanged,
    ConversationChanged,
    EntriesDropped,
    EntryAppended,
    Event,
    InboxChanged,
    MessageCleared,
    MessageEnded,
    MessageUpdated,
    QuestionAsked,
    QuestionEnded,
    RetryScheduled,
    RunChanged,
    RunEnded,
    RunStarted,
    SubmissionChanged,
    TaskFailed,
    ToolAnswered,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
    TurnStarted,
    UsageChanged,
)
from pidurable_actors.views._view import LIVE_PATH

__all__ = ["events_of"]


def events_of(
    conversation_id: ConversationId,
    number: int | None,
    operations: Sequence[Operation],
    changes: Sequence[Change] = (),
) -> list[Event]:
    """What a step of a conversation's view tells.

    Args:
        conversation_id: whose.
        number: the commit; None for progress.
        operations: from what was shown before to what is shown after.
        changes: what the commit wrote.
    """
    found: list[Event] = [
        SubmissionChanged(number=number, submission=change.record)
        for change in changes
        if isinstance(change, PutSubmission) and change.record.conversation_id == conversation_id
    ]
    for operation in chain.from_iterable(map(_split, operations)):
        for event in _told(number, operation, operations):
            before = found[-1] if found else None
            if isinstance(event, _GATHERED) and type(before) is type(event):
                found[-1] = attrs.evolve(
                    event, operations=(*cast("Event", before).operations, *event.operations)
                )
            else:
                found.append(event)
    for change in changes:
        if isinstance(change, PutTask) and change.record.conversation_id == conversation_id:
            found.extend(_failed(number, change))
    return found


# Events of one kind that say nothing but that something changed, one after the other, are one.
_GATHERED: Final = (
    RunChanged,
    InboxChanged,
    UsageChanged,
    CompactionChanged,
    AgentChanged,
    ConversationChanged,
)


def _failed(number: int | None, change: PutTask) -> Iterator[TaskFailed]:
    record, state = change.record, change.record.state
    if not isinstance(state, Terminal):
        return
    outcome = state.outcome
    if isinstance(outcome, FailedOutcome | FaultedOutcome | OrphanedOutcome):
        error: JSON = outcome.reason if isinstance(outcome, OrphanedOutcome) else outcome.error
        yield TaskFailed(
            number=number,
            task_id=record.id,
            kind=record.kind,
            status=outcome.status,
            error=error,
        )


def _told(number: int | None, operation: Operation, all_: Sequence[Operation]) -> Iterator[Event]:
    """The events of one operation, which it is shared out among."""
    path = operation.path
    if path[:1] == ("entries",) and isinstance(operation, SpliceList):
        yield from _entries(number, operation)
        return
    if path[:2] != LIVE_PATH or len(path) < 3:
        yield _BY_DOCUMENT.get(path[:2], ConversationChanged)(
            number=number, operations=(operation,)
        )
        return
    part, rest = path[2], path[3:]
    one = (operation,)
    match part:
        case "run":
            yield _run(number, operation, rest, all_)
        case "generation":
            yield _generation(number, operation, rest)
        case "tools":
            yield _tool(number, operation, rest)
        case "questions":
            yield _question(number, operation, rest)
        case "compactions" | "compaction_failure":
            yield CompactionChanged(number=number, operations=one)
        case _:
            yield ConversationChanged(number=number, operations=one)


_BY_DOCUMENT: Final[Mapping[Path, Callable[..., Event]]] = {
    ("documents", INBOX.kind): InboxChanged,
    ("documents", USAGE.kind): UsageChanged,
    ("documents", AGENT.kind): AgentChanged,
    ("documents", PROVIDER.kind): AgentChanged,
}


def _entries(number: int | None, operation: SpliceList) -> Iterator[Event]:
    if operation.delete:
        yield EntriesDropped(number=number, operations=(operation,), count=operation.delete)
        return
    for at, item in enumerate(operation.items):
        one = (SpliceList(operation.path, operation.start + at, 0, (item,)),)
        entry = decode_entry(encode_json(item))
        if entry.kind == ASSISTANT:
            yield MessageEnded(number=number, operations=one, entry=entry)
            continue
        result = entry.model[0] if entry.kind == TOOL_RESULT and entry.model else None
        if isinstance(result, ToolResultMessage):
            yield ToolAnswered(
                number=number,
                operations=one,
                call_id=result.call_id,
                is_error=result.is_error,
                entry=entry,
            )
        else:
            yield EntryAppended(number=number, operations=one, entry=entry)


def _run(number: int | None, operation: Operation, rest: Path, all_: Sequence[Operation]) -> Event:
    one = (operation,)
    if rest or not isinstance(operation, SetValue):
        return RunChanged(number=number, operations=one)
    if isinstance(operation.value, FrozenDict):
        submissions = cast("FrozenList", operation.value["submissions"])
        ids = tuple(cast("int", it) for it in submissions)
        return RunStarted(number=number, operations=one, submissions=ids)
    failure = next(
        (
            it.value
            for it in all_
            if isinstance(it, SetValue) and it.path == (*LIVE_PATH, "run_failure")
        ),
        None,
    )
    if not isinstance(failure, FrozenDict):
        return RunEnded(number=number, operations=one)
    reason, detail = str(failure["reason"]), thaw(failure["detail"])
    return RunEnded(number=number, operations=one, reason=reason, detail=detail)


def _generation(number: int | None, operation: Operation, rest: Path) -> Event:
    one = (operation,)
    if rest == ("turn",) and isinstance(operation, SetValue):
        return TurnStarted(number=number, operations=one, turn=cast("int", operation.value))
    if rest in {("attempt",), ("retry_at_ms",), ("error",)} and isinstance(operation, SetValue):
        changed = {str(rest[0]): thaw(operation.value)}
        return RetryScheduled(number=number, operations=one, changed=changed)
    if rest[:1] == ("partial",):
        return _partial(number, operation, rest[1:])
    value = operation.value if isinstance(operation, SetValue) and not rest else None
    if isinstance(value, FrozenDict) and value["turn"]:
        return TurnStarted(number=number, operations=one, turn=cast("int", value["turn"]))
    return ConversationChanged(number=number, operations=one)


def _partial(number: int | None, operation: Operation, rest: Path) -> Event:
    one = (operation,)
    match operation:
        case SpliceList() if not rest and not operation.delete and len(operation.items) == 1:
            block = cast("FrozenDict", operation.items[0])
            return BlockStarted(
                number=number,
                operations=one,
                at=operation.start,
                type=cast("Literal['text']", block["type"]),
                text=str(block["text"]),
                id=str(block["id"]),
                name=str(block["name"]),
            )
        case AppendText() if len(rest) == 2 and rest[1] == "text":
            at = cast("int", rest[0])
            return MessageUpdated(number=number, operations=one, at=at, text=operation.text)
        case SpliceList() | SetValue() if not rest:
            return MessageCleared(number=number, operations=one)
    return ConversationChanged(number=number, operations=one)


def _tool(number: int | None, operation: Operation, rest: Path) -> Event:
    one = (operation,)
    task_id = TaskId(int(rest[0])) if rest else TaskId(0)
    match operation:
        case SetValue() if len(rest) == 1 and isinstance(operation.value, FrozenDict):
            slot = operation.value
            return ToolStarted(
                number=number,
                operations=one,
                task_id=task_id,
                call_id=str(slot["call_id"]),
                name=str(slot["tool_name"]),
            )
        case DeleteKey() if len(rest) == 1:
            return ToolEnded(number=number, operations=one, task_id=task_id)
        case AppendText() if rest[1:] == ("output",):
            return ToolUpdated(number=number, operations=one, task_id=task_id, text=operation.text)
    if len(rest) > 1 and rest[1] != "asked":
        return ToolUpdated(number=number, operations=one, task_id=task_id, text="")
    return ConversationChanged(number=number, operations=one)


def _question(number: int | None, operation: Operation, rest: Path) -> Event:
    one = (operation,)
    match operation:
        case SetValue() if len(rest) == 1 and isinstance(operation.value, FrozenDict):
            slot = operation.value
            return QuestionAsked(
                number=number,
                operations=one,
                question_id=str(rest[0]),
                kind=cast("Literal['ask']", slot["kind"]),
                tool_name=str(slot["tool_name"]),
                text=str(slot["text"]),
                deadline_ms=cast("int | None", slot["deadline_ms"]),
            )
        case DeleteKey() if len(rest) == 1:
            return QuestionEnded(number=number, operations=one, question_id=str(rest[0]))
    return ConversationChanged(number=number, operations=one)


def _split(operation: Operation) -> Sequence[Operation]:
    """Blocks that began together, each as an operation of its own."""
    if not isinstance(operation, SpliceList) or operation.path[-1:] != ("partial",):
        return (operation,)
    if operation.delete or len(operation.items) < 2:
        return (operation,)
    return [
        SpliceList(operation.path, operation.start + at, 0, (item,))
        for at, item in enumerate(operation.items)
    ]
