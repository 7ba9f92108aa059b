"""Nested calls: how a tool's call of a tool is made, found again, and read.

Owns the input of ``pi.call``, the memo by which its caller finds it, and the form in which its
result is kept as the outcome of its task. What happens to the call is in `tool`.

Invariant: among the nested calls of one call a key names at most one task, made in the very commit
that notes it; so a caller that is run again finds what it made, or made nothing.
"""

from __future__ import annotations

from typing import Final, cast

import attrs

from pidurable_actors._json import JSON, JsonObject, check_json, check_text, copy_json, fingerprint
from pidurable_actors._limits import LIMITS
from pidurable_actors.agent import LIVE, ToolResult, ToolSlot
from pidurable_actors.errors import InvalidValue, MisuseError
from pidurable_actors.records import (
    AbortedOutcome,
    CompletedOutcome,
    FailedOutcome,
    ImageBlock,
    TaskId,
    TaskOutcome,
    TextBlock,
    ToolResultMessage,
)
from pidurable_actors.records.codec import message_to_json, messages_from_json
from pidurable_actors.runtime import Runtime, from_json, to_json
from pidurable_actors.session import StartableTask, Tx
from pidurable_actors.tasks._tool_results import ToolInput, error_result

__all__ = ["NestedInput", "call_tool", "result_to_json"]

_MEMO: Final = "pi.call/"
"""Before the key, in the name of the caller's memo; its value is the id of the task."""


@attrs.frozen
class NestedInput(ToolInput):
    """A call that a tool makes, and the model's call that it is a part of."""

    arguments: JsonObject


async def call_tool(
    runtime: Runtime,
    actor: StartableTask[NestedInput],
    tool_name: str,
    arguments: JsonObject,
    *,
    key: str,
) -> ToolResult:
    """Make a nested call or find it, and wait for what it comes to; see `ToolApi.call`.

    Args:
        runtime: of the calling call's task.
        actor: the task class of nested calls.
        tool_name: what is called.
        arguments: with what.
        key: its identity among the nested calls of the caller.

    Durability: on return the result is stored.

    Cancellation: only the wait ends; what was stored goes on.
    """
    _check(tool_name, arguments, key)
    caller = from_json(runtime.record.input, ToolInput, "input")
    wanted = NestedInput(
        entry=caller.entry,
        call_id=caller.call_id,
        tool_name=tool_name,
        arguments=cast(JsonObject, copy_json(arguments)),
    )

    async def once(tx: Tx) -> TaskId:
        known = (await tx.task(runtime.task_id)).memos.get(_MEMO + key)
        if known is not None:
            return await _same(tx, known, wanted, key)
        made = tx.create_task(actor, wanted, owner=runtime.task_id)
        tx.set_memo(runtime.task_id, _MEMO + key, made)
        live = await tx.doc(LIVE)
        # Without an id: the output is no part of what the model's call has shown.
        live.tools[str(made)] = ToolSlot(tool_name=tool_name)
        return made

    ended = await runtime.wait_for_task(await runtime.commit(once))
    assert ended.outcome is not None, "what was waited for has ended"
    return _result_of(tool_name, ended.outcome)


def result_to_json(result: ToolResult) -> JsonObject:
    """The stored form of a result: content, details, is_error and diagnostics."""
    message = ToolResultMessage(call_id="", tool_name="", content=result.content)
    (stored,) = message_to_json(message)
    return {
        "content": cast(JsonObject, stored)["content"],
        "details": copy_json(result.details),
        "is_error": result.is_error,
        "diagnostics": [copy_json(diagnostic) for diagnostic in result.diagnostics],
    }


def _check(tool_name: object, arguments: object, key: object) -> None:
    check_text(tool_name, "tool_name")
    check_text(key, "key")
    longest = LIMITS.name_length - len(_MEMO)
    if not 0 < len(cast(str, key)) <= longest:
        raise InvalidValue("key", f"a key has 1 to {longest} characters")
    if not isinstance(arguments, dict):
        raise InvalidValue("arguments", f"must be an object, not {arguments!r}")
    check_json(arguments, "arguments")


async def _same(tx: Tx, known: JSON, wanted: NestedInput, key: str) -> TaskId:
    """The task that `key` stands for, which must be of the very call that is wanted."""
    if isinstance(known, int):
        made = await tx.task(TaskId(known))
        # As text, because 1, 1.0 and True are equal and yet not the same argument.
        if fingerprint(made.input) == fingerprint(to_json(wanted, "input")):
            return made.id
    raise MisuseError(
        f"api.call: key {key!r} stands for another tool or for other arguments; a key names one "
        f"call, so give this call of {wanted.tool_name!r} its own."
    )


def _result_of(tool_name: str, outcome: TaskOutcome) -> ToolResult:
    if isinstance(outcome, CompletedOutcome | FailedOutcome) and isinstance(outcome.result, dict):
        return _result_from_json(outcome.result)
    if isinstance(outcome, AbortedOutcome):
        return error_result(outcome.reason, "aborted")
    # It was ended without its code, which alone could have told more.
    return error_result(f"Tool {tool_name} failed and may have partially run", "tool_error")


def _result_from_json(stored: JsonObject) -> ToolResult:
    (message,) = messages_from_json(
        [{"role": "tool_result", "call_id": "", "tool_name": "", "content": stored["content"]}]
    )
    return ToolResult(
        cast("tuple[TextBlock | ImageBlock, ...]", message.content),
        details=copy_json(stored["details"]),
        is_error=stored["is_error"] is True,
        diagnostics=cast("list[JsonObject]", copy_json(stored["diagnostics"])),
    )
