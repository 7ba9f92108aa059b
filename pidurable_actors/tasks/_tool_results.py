"""The one result that every tool call gets: what a tool returned, or why there is nothing of it.

Functions of a transaction, used in the commit in which the call's task ends.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from pidurable_actors._json import JSON, JsonObject, check_json
from pidurable_actors.agent import LIVE, USAGE, ToolResult
from pidurable_actors.records import (
    TOOL_RESULT,
    EntryDraft,
    ImageBlock,
    TaskRecord,
    TextBlock,
    ToolResultMessage,
    harness_error,
)
from pidurable_actors.session import Tx
from pidurable_actors.tasks._tool_run import ToolRun

__all__ = ["ResultCode", "ToolInput", "append_error", "append_result", "as_result"]

ResultCode: TypeAlias = Literal[
    "tool_unavailable",
    "invalid_arguments",
    "interrupted",
    "aborted",
    "tool_error",
    "timeout",
    "restart_limit",
]


@attrs.frozen
class ToolInput:
    """Which call of which answer."""

    entry: int
    call_id: str
    tool_name: str


def as_result(name: str, value: object) -> ToolResult:
    """What a tool returned, as a result that can be stored.

    Raises:
        TypeError: it is no result.
        InvalidValue: a part of it is not strict JSON.
    """
    result = ToolResult(value) if isinstance(value, str) else value
    if not isinstance(result, ToolResult):
        raise TypeError(f"tool {name} returned {type(value).__name__}; return text or a ToolResult")
    for block in result.content:
        if not isinstance(block, TextBlock | ImageBlock):
            raise TypeError(f"tool {name} returned {type(block).__name__} as content")
        check_json(attrs.asdict(block), "content")
    check_json(result.details, "details")
    return result


def _error_content(shown: str, message: str) -> tuple[TextBlock | ImageBlock, ...]:
    gap = "" if not shown or shown.endswith("\n") else "\n"
    return (TextBlock(text=f"{shown}{gap}{harness_error(message)}"),)


async def append_error(
    tx: Tx,
    task_input: ToolInput,
    task: TaskRecord,
    message: str,
    code: ResultCode,
    *,
    shown: str = "",
    run: ToolRun | None = None,
) -> None:
    """Append the result by which the harness says why a call has none of its own.

    Args:
        tx: the commit.
        task_input: which call.
        task: the task of the call, or the one that would have started it.
        message: for the model.
        code: for programs.
        shown: output to keep before the message.
        run: whose details and diagnostics are kept.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    data: JsonObject = {"diagnostics": [{"code": code}, *(run.diagnostics if run else ())]}
    if run is not None and run.detail is not None:
        data["details"] = run.detail
    content = _error_content(shown, message)
    await append_result(tx, task_input, task, content, data, is_error=True)


async def append_result(
    tx: Tx,
    task_input: ToolInput,
    task: TaskRecord,
    content: tuple[TextBlock | ImageBlock, ...],
    data: JSON,
    *,
    is_error: bool,
) -> None:
    """Append the one result of a call, and clear its slot.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    message = ToolResultMessage(
        call_id=task_input.call_id,
        tool_name=task_input.tool_name,
        content=content,
        is_error=is_error,
    )
    draft = EntryDraft(kind=TOOL_RESULT, model=(message,), data=data)
    tx.append_entry(task.conversation_id, draft)
    live = await tx.doc(LIVE, task.conversation_id)
    live.tools.pop(str(task.id), None)
    usage = await tx.doc(USAGE, task.conversation_id)
    usage.tools[task_input.tool_name] = usage.tools.get(task_input.tool_name, 0) + 1
