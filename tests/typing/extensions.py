# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""Read by the type checkers, never run: hooks and sections say what they are given and may return.

A line that must be refused carries an ignore; the checkers complain about one that is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pidurable_actors import Extension, ToolResult
from pidurable_actors.agent import (
    Block,
    Hook,
    HookApi,
    Rewrite,
    Section,
    ToolCallEvent,
    hook,
    section,
)
from pidurable_actors.models import ModelRequest
from pidurable_actors.records import AssistantMessage, ToolResultMessage


@hook.before_tool
async def gate(event: ToolCallEvent, api: HookApi) -> Block | Rewrite | None:
    coin = await api.set_memo("coin", value=True)
    return Block(str(coin)) if event.tool.name == "x" else Rewrite({**event.arguments, "b": 1})


@hook.before_tool
async def only_blocks(_: ToolCallEvent, __: HookApi) -> Block:
    return Block("never")


@hook.after_tool
async def hide(_: ToolCallEvent, result: ToolResult, api: HookApi) -> ToolResult | None:
    return result if api.now_ms() else None


@hook.before_request
async def request(asked: ModelRequest, _: HookApi) -> ModelRequest:
    return asked


@hook.on_yield
async def more(message: AssistantMessage, _: HookApi) -> str | None:
    return message.model or None


@hook.after_tools
async def told(results: Sequence[ToolResultMessage], _: HookApi) -> None:
    assert len(results)


@hook.on_yield  # type: ignore[arg-type]
async def wrong_answer(_: AssistantMessage, __: HookApi) -> int:
    return 7


@hook.after_tools  # type: ignore[arg-type]
async def wrong_question(_: ToolCallEvent, __: HookApi) -> None:
    return None


@hook.before_tool  # type: ignore[arg-type]
def not_async(_: ToolCallEvent, __: HookApi) -> None:
    return None


@section("mood", order=-1)
async def mood(api: HookApi) -> str | None:
    return str(api.conversation_id)


@section("number")  # type: ignore[arg-type]
async def number(_: HookApi) -> int:
    return 7


made: Hook = gate
said: Section = mood
extension = Extension("e", hooks=[gate, hide, more], sections=[mood, Section("rules", "Be kind.")])
wrong = Extension("e", hooks=[mood])  # type: ignore[list-item]
