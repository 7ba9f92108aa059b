# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""Read by the type checkers, never run: questions, answers and their handlers are typed.

A line that must be refused carries an ignore; the checkers complain about one that is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from pidurable_actors import (
    EXPIRED,
    Answer,
    Approve,
    Ask,
    Expired,
    Harness,
    Question,
    ToolApi,
    WaitForSignal,
    tool,
)
from pidurable_actors._json import JSON
from pidurable_actors.agent import Block, HookApi, ToolCallEvent, hook


@tool()
async def order(item: str) -> str | Ask | WaitForSignal:
    """Order."""
    return Ask(item)


@order.resume
async def place(
    answer: Answer | Expired, state: JSON, arguments: Mapping[str, Any], api: ToolApi
) -> str:
    """The answer has its parts once it is known to be one."""
    if answer is EXPIRED:
        return "late"
    assert_type(answer, Answer)
    return answer.by


@order.resume  # type: ignore[arg-type]
async def short_of_arguments(answer: Answer | Expired) -> str:
    """A handler takes all four."""
    return ""


@hook.before_tool
async def gate(event: ToolCallEvent, api: HookApi) -> Approve | Block | None:
    """A hook may ask."""
    return Approve("Sure?")


async def host(harness: Harness) -> None:
    """A host lists and answers."""
    page = await harness.questions(limit=3)
    assert_type(page.items, tuple[Question, ...])
    assert_type(await harness.answer(page.items[0].id, {"a": [1, None]}, by="ann"), Question)
    await harness.answer(page.items[0].id, 1)  # type: ignore[call-arg]
