"""What a model sees: messages made of content blocks.

Pure values. The `role` of a message and the `type` of a block are stored with it and tell the codec
which class to build. Binary data is base64 text, so that every value here is strict JSON.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from pidurable_actors._json import JsonObject

__all__ = [
    "AssistantMessage",
    "Block",
    "ImageBlock",
    "Message",
    "StopReason",
    "SystemMessage",
    "TextBlock",
    "ThinkingBlock",
    "ToolCallBlock",
    "ToolResultMessage",
    "Usage",
    "UserMessage",
    "text_of",
]

StopReason: TypeAlias = Literal["stop", "length", "tool_use", "aborted", "error"]


@attrs.frozen(kw_only=True)
class TextBlock:
    """Plain text: ``{"type": "text", "text": ...}``."""

    text: str
    type: Literal["text"] = attrs.field(default="text", init=False)


@attrs.frozen(kw_only=True)
class ThinkingBlock:
    """A model's reasoning, with the provider's signature when it gave one."""

    text: str
    signature: str | None = None
    type: Literal["thinking"] = attrs.field(default="thinking", init=False)


@attrs.frozen(kw_only=True)
class ImageBlock:
    """An image: base64 ``data`` and its ``media_type`` such as ``image/png``."""

    data: str
    media_type: str
    type: Literal["image"] = attrs.field(default="image", init=False)


@attrs.frozen(kw_only=True)
class ToolCallBlock:
    """A model's wish to call a tool; `id` is the provider's and ties the result to the call."""

    id: str
    name: str
    arguments: JsonObject
    type: Literal["tool_call"] = attrs.field(default="tool_call", init=False)


Block: TypeAlias = TextBlock | ThinkingBlock | ImageBlock | ToolCallBlock


@attrs.frozen(kw_only=True)
class Usage:
    """What one request used: tokens by kind and the cost in the currency of the price list."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float = 0.0


@attrs.frozen(kw_only=True)
class SystemMessage:
    """Instructions of the host, never of a user."""

    content: tuple[TextBlock, ...]
    role: Literal["system"] = attrs.field(default="system", init=False)


@attrs.frozen(kw_only=True)
class UserMessage:
    """What a person or the host said to the model."""

    content: tuple[TextBlock | ImageBlock, ...]
    role: Literal["user"] = attrs.field(default="user", init=False)


@attrs.frozen(kw_only=True)
class AssistantMessage:
    """A model's answer: text, thinking and tool calls in the order they came.

    `stop_reason` is ``aborted`` for a half answer that a crash or an abort cut off.
    """

    content: tuple[TextBlock | ThinkingBlock | ToolCallBlock, ...]
    stop_reason: StopReason = "stop"
    model: str = ""
    usage: Usage = Usage()
    role: Literal["assistant"] = attrs.field(default="assistant", init=False)

    @property
    def tool_calls(self) -> tuple[ToolCallBlock, ...]:
        """The calls in this answer, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolCallBlock))


@attrs.frozen(kw_only=True)
class ToolResultMessage:
    """What a tool call came to; `is_error` tells a failure, whoever reported it."""

    call_id: str
    tool_name: str
    content: tuple[TextBlock | ImageBlock, ...]
    is_error: bool = False
    role: Literal["tool_result"] = attrs.field(default="tool_result", init=False)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage


def text_of(content: tuple[Block, ...]) -> str:
    """The text blocks of a message, joined."""
    return "".join(block.text for block in content if isinstance(block, TextBlock))
