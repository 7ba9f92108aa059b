"""Rounds of tool calls: which calls of an answer must not run, and which got no task.

Read by the tasks of a generation and of its calls; what happens to a call is in `tool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.agent import LIVE, Agent, ToolSlot
from pidurable_actors.errors import StorageRequestError
from pidurable_actors.models import Accumulator
from pidurable_actors.records import (
    RESET,
    AssistantMessage,
    ConversationId,
    EntryDraft,
    EntryId,
    EntryRecord,
    TaskId,
    TaskRecord,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from pidurable_actors.runtime import checkpoint_in
from pidurable_actors.session import StartableTask, Tx
from pidurable_actors.tasks._tool_results import (
    ResultCode,
    ToolInput,
    append_result,
    error_result,
)

__all__ = [
    "answer_unstarted",
    "begin_round",
    "calls_of",
    "end_round",
    "find_call",
    "is_sequential",
    "results_of",
    "start_calls",
    "unusable_calls",
]


def unusable_calls(answer: Accumulator) -> JSON:
    """What is wrong with calls that must not run: ``{"malformed": ..., "duplicates": ...}``."""
    wrong: dict[str, JSON] = {}
    if answer.malformed:
        wrong["malformed"] = {call: bad.text for call, bad in answer.malformed.items()}
    # A call that came without an id is no repetition.
    repeated: dict[str, JSON] = {call: said for call, said in answer.duplicates.items() if said}
    if repeated:
        wrong["duplicates"] = repeated
    return wrong or None


def find_call(entry: EntryRecord, call_id: str) -> tuple[ToolCallBlock, str]:
    """A call of an answer, and what is wrong with it; empty when it can be run.

    Raises:
        LookupError: the answer has no such call.
    """
    wrong = entry.data if isinstance(entry.data, dict) else {}
    for call in _calls_in(entry):
        if call.id == call_id:
            return call, _what_is_wrong(call, wrong)
    raise LookupError(f"entry {entry.id} has no call {call_id!r}")


async def answer_unstarted(tx: Tx, task: TaskRecord, code: ResultCode, what: str) -> None:
    """Leave a result for the calls of a sequential round that get no task any more.

    Reads with care: it also runs when the task ends because what it would read is damaged.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    checkpoint = checkpoint_in(task) or {}
    entry, started = checkpoint.get("entry"), checkpoint.get("started")
    if not isinstance(entry, int) or not isinstance(started, int):
        return
    found = await tx.entries(task.conversation_id, before=EntryId(entry + 1), limit=1)
    for call in _calls_in(found[0])[started:] if found else ():
        task_input = ToolInput(entry=entry, call_id=call.id, tool_name=call.name)
        await append_result(tx, task_input, task, error_result(f"Tool {call.name} {what}", code))


def calls_of(entry: EntryRecord) -> tuple[ToolCallBlock, ...]:
    """The calls of an answer.

    Raises:
        StorageRequestError: the entry is no answer that calls tools.
    """
    calls = _calls_in(entry)
    if not calls:
        raise StorageRequestError(f"entry {entry.id} is not an answer with tool calls.")
    return calls


def is_sequential(agent: Agent, calls: Sequence[ToolCallBlock]) -> bool:
    """Whether one of the tools that are called makes its round run in order."""
    called = [agent.tool(call.name, "model") for call in calls]
    return any(tool is not None and tool.mode == "sequential" for tool in called)


async def begin_round(tx: Tx, conversation_id: ConversationId) -> None:
    """Forget what the results of an earlier round asked for.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE, conversation_id)
    if live.run is not None:
        live.run.terminating = 0
        live.run.handoff = None


async def start_calls(
    tx: Tx,
    actor: StartableTask[ToolInput],
    owner: TaskId,
    entry: EntryId,
    calls: Sequence[ToolCallBlock],
) -> list[TaskId]:
    """Make the tasks of calls, owned by the task of the run.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE)
    tasks: list[TaskId] = []
    for call in calls:
        task_input = ToolInput(entry=entry, call_id=call.id, tool_name=call.name)
        task = tx.create_task(actor, task_input, owner=owner)
        live.tools[str(task)] = ToolSlot(call_id=call.id, tool_name=call.name)
        tasks.append(task)
    return tasks


async def end_round(
    tx: Tx, conversation_id: ConversationId, calls: int
) -> Literal["terminate", "handoff"] | None:
    """See what the results of a round agreed on; a handoff is made here.

    Args:
        tx: the commit.
        conversation_id: whose run.
        calls: how many calls the round had.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE, conversation_id)
    if live.run is None:
        return None
    text, agreed = live.run.handoff, live.run.terminating == calls
    live.run.handoff, live.run.terminating = None, 0
    if text is not None:
        model = (UserMessage(content=(TextBlock(text=text),)),)
        draft = EntryDraft(kind=RESET, model=model, head=EntryId(tx.next_id), data={"by": "tool"})
        tx.append_entry(conversation_id, draft)
        return "handoff"
    return "terminate" if agreed else None


def results_of(entries: Sequence[EntryRecord], answer: EntryId) -> list[ToolResultMessage]:
    """The results of a round, in call order.

    Args:
        entries: the transcript, oldest first.
        answer: the entry of the answer that made the calls.
    """
    calls = [call.id for entry in entries if entry.id == answer for call in _calls_in(entry)]
    found = {
        message.call_id: message
        for entry in entries
        if entry.id > answer
        for message in entry.model or ()
        if isinstance(message, ToolResultMessage)
    }
    return [found[call] for call in calls if call in found]


def _calls_in(entry: EntryRecord) -> tuple[ToolCallBlock, ...]:
    return tuple(
        call
        for message in entry.model or ()
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    )


def _what_is_wrong(call: ToolCallBlock, wrong: JsonObject) -> str:
    malformed, duplicates = wrong.get("malformed"), wrong.get("duplicates")
    if isinstance(malformed, dict) and call.id in malformed:
        return f"The arguments of {call.name} are not valid JSON"
    if isinstance(duplicates, dict) and call.id in duplicates:
        return f"The call id {duplicates[call.id]} was used twice in one answer; call again"
    return ""
