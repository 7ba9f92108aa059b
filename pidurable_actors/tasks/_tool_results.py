"""The one result that every tool call gets: what a tool returned, or why there is nothing of it.

What is written here is written in the commit in which the call's task ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import attrs

from pidurable_actors._json import JSON, JsonObject, check_json, check_text
from pidurable_actors.agent import AGENT, LIVE, Approve, ToolResult, count_call, release
from pidurable_actors.records import (
    TOOL_RESULT,
    EntryDraft,
    ImageBlock,
    TaskRecord,
    TextBlock,
    ToolResultMessage,
    Usage,
    harness_error,
)
from pidurable_actors.session import Tx

__all__ = [
    "ResultCode",
    "ToolInput",
    "append_result",
    "as_result",
    "error_result",
    "settle_call",
]

ResultCode: TypeAlias = Literal[
    "tool_unavailable",
    "invalid_arguments",
    "blocked",
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
        raise TypeError(
            f"tool {name} returned {type(value).__name__}; return text or a ToolResult"
            + ("; to ask a person, return Ask" if isinstance(value, Approve) else "")
        )
    for block in result.content:
        if not isinstance(block, TextBlock | ImageBlock):
            raise TypeError(f"tool {name} returned {type(block).__name__} as content")
        check_json(attrs.asdict(block), "content")
    check_json(result.details, "details")
    handoff: object = result.handoff
    if handoff is not None and not (isinstance(handoff, str) and handoff):
        raise TypeError(f"tool {name} returned {handoff!r} as a handoff, which is a text")
    if not all(isinstance(added, str) for added in result.add_tools):
        raise TypeError(f"tool {name} returned names of tools that are no texts")
    check_json([handoff, *result.add_tools], "handoff and add_tools")
    for diagnostic in result.diagnostics:
        if not isinstance(diagnostic, dict):
            raise TypeError(f"tool {name} returned {type(diagnostic).__name__} as a diagnostic")
        check_json(diagnostic, "diagnostics")
        check_text(diagnostic.get("code"), "diagnostics.code")
    return result


def error_result(
    message: str,
    code: ResultCode,
    *,
    shown: str = "",
    details: JSON = None,
    diagnostics: Iterable[JsonObject] = (),
) -> ToolResult:
    """The result by which the harness says why a call has none of its own.

    Args:
        message: for the model.
        code: for programs.
        shown: output to keep before the message.
        details: what the tool gave as such before it ended.
        diagnostics: what it added before it ended.
    """
    gap = "" if not shown or shown.endswith("\n") else "\n"
    return ToolResult(
        f"{shown}{gap}{harness_error(message)}",
        details=details,
        is_error=True,
        diagnostics=({"code": code}, *diagnostics),
    )


async def append_result(
    tx: Tx, task_input: ToolInput, task: TaskRecord, result: ToolResult
) -> None:
    """Append the one result of a model's call, and clear its slot.

    Args:
        tx: the commit.
        task_input: which call.
        task: the task of the call, or the one that would have started it.
        result: what it came to.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    message = ToolResultMessage(
        call_id=task_input.call_id,
        tool_name=task_input.tool_name,
        content=result.content,
        is_error=result.is_error,
    )
    data: JsonObject = {}
    # An error of the harness has details only when the tool had given some.
    if result.details is not None or not result.diagnostics:
        data["details"] = result.details
    if result.diagnostics:
        data["diagnostics"] = list(result.diagnostics)
    draft = EntryDraft(kind=TOOL_RESULT, model=(message,), data=data)
    tx.append_entry(task.conversation_id, draft)
    await _note_wishes(tx, task, result)
    await settle_call(tx, task_input.tool_name, task, result.usage)


async def _note_wishes(tx: Tx, task: TaskRecord, result: ToolResult) -> None:
    """Keep what a result asks for beside its content, for the end of the round."""
    if result.terminate or result.handoff is not None:
        live = await tx.doc(LIVE, task.conversation_id)
        if live.run is not None:
            live.run.terminating += result.terminate
            live.run.handoff = result.handoff if result.handoff is not None else live.run.handoff
    if result.add_tools:
        agent = await tx.doc(AGENT, task.conversation_id)
        agent.tools_added.extend(n for n in result.add_tools if n not in agent.tools_added)


async def settle_call(tx: Tx, tool_name: str, task: TaskRecord, used: Usage | None) -> None:
    """Clear the slot of a call that has its result, and count it.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE, task.conversation_id)
    live.tools.pop(str(task.id), None)
    await count_call(tx, task.conversation_id, tool_name, used)
    await release(tx, task.conversation_id, task.id)
