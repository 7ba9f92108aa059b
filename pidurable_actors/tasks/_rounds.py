"""Rounds of tool calls: which calls of an answer must not run, and which got no task.

Read by the generation task; the code of the calls themselves is in `tool`.
"""

from __future__ import annotations

from pidurable_actors._json import JSON
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
from pidurable_actors.tasks._tool_results import ResultCode, ToolInput, append_error

__all__ = ["answer_unstarted", "calls_of", "unusable_calls"]


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
        await append_error(tx, task_input, task, f"Tool {call.name} {what}", code)


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
