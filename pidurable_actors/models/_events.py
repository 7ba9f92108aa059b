"""What a model streams: the events of one answer, in the order in which they may come.

Pure values. Text, thinking and tool calls come in any order and mix; the events of one call follow
its start, and calls may overlap. `Finished` says that the answer is whole: without it, the stream
was cut off, however it ended.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from pidurable_actors.records import StopReason, Usage

__all__ = [
    "Finished",
    "ModelEvent",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "UsageReport",
]


@attrs.frozen
class TextDelta:
    """More text of the answer."""

    text: str


@attrs.frozen
class ThinkingDelta:
    """More reasoning. A `signature` closes the block that it signs, and may come without text."""

    text: str
    signature: str | None = None


@attrs.frozen
class ToolCallStart:
    """A tool call begins; `index` names it in the events that follow."""

    index: int
    id: str
    name: str


@attrs.frozen
class ToolCallDelta:
    """More of the JSON text of a call's arguments."""

    index: int
    arguments_text: str


@attrs.frozen
class ToolCallEnd:
    """A call's arguments are whole; a call that never ends was cut off."""

    index: int


@attrs.frozen
class UsageReport:
    """What the request has used so far; a later report replaces an earlier one."""

    usage: Usage


@attrs.frozen
class Finished:
    """The answer is whole. Only a `UsageReport` may follow."""

    stop_reason: StopReason


ModelEvent: TypeAlias = (
    TextDelta | ThinkingDelta | ToolCallStart | ToolCallDelta | ToolCallEnd | UsageReport | Finished
)
