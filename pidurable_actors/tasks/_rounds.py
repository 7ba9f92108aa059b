"""Rounds of tool calls: which calls of an answer must not run, and which got no task.

Read by the tasks of a generation and of its calls; what happens to a call is in `tool`.
"""

from __future__ import annotations

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.errors import StorageRequestError
from pidurable_actors.models import Accumulator
from pidurable_actors.records import (
    AssistantMessage,
    EntryId,
    EntryRecord,
    TaskRecord,
    ToolCallBlock,
)
from pidurable_actors.runtime import checkpoint_in
from pidurable_actors.session import Tx
from pidurable_actors.tasks._tool_results import (
    ResultCode,
    ToolInput,
    append_result,
    error_result,
)

__all__ = ["answer_unstarted", "calls_of", "find_call", "unusable_calls"]


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
