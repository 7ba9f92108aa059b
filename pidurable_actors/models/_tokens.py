"""How many tokens a request has, as near as one can tell without the model's own tokenizer.

The method: bytes of UTF-8, divided by those of an average token of the model, and rounded up for
each message; an image counts a flat number; each message and each tool has some overhead. Bytes and
not characters, because a script with many bytes a character has more tokens a character, too. An
estimate is never stored as usage: that is what a provider reports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from pidurable_actors._json import encode_json
from pidurable_actors.models._protocol import ModelInfo, ModelRequest, ToolSpec
from pidurable_actors.records import (
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

__all__ = ["estimate_tokens", "message_tokens", "request_tokens"]

IMAGE_TOKENS: Final = 1_000
"""What an image counts, whatever its size."""

_OVERHEAD: Final = 4


def estimate_tokens(
    messages: Sequence[Message], tools: Sequence[ToolSpec] = (), info: ModelInfo | None = None
) -> int:
    """The tokens of a request.

    Args:
        messages: what is asked.
        tools: what the model is told of.
        info: of the model; its bytes per token, 4 by default.
    """
    known = info or ModelInfo()
    return sum(message_tokens(message, known) for message in messages) + sum(
        _tokens(encode_json([tool.name, tool.description, tool.parameters]), known)
        for tool in tools
    )


def request_tokens(request: ModelRequest, info: ModelInfo) -> int:
    """The tokens of a request as it is sent."""
    return estimate_tokens(request.messages, request.tools, info)


def message_tokens(message: Message, info: ModelInfo) -> int:
    """The tokens of one message."""
    images = 0
    size = 0
    for block in message.content:
        match block:
            case TextBlock(text=text) | ThinkingBlock(text=text):
                size += _bytes(text)
            case ToolCallBlock():
                size += _bytes(block.name) + _bytes(encode_json(block.arguments))
            case ImageBlock():
                images += IMAGE_TOKENS
    return math.ceil(size / info.bytes_per_token) + images + _OVERHEAD


def _tokens(text: str, info: ModelInfo) -> int:
    return math.ceil(_bytes(text) / info.bytes_per_token) + _OVERHEAD


def _bytes(text: str) -> int:
    # A text that is ASCII knows so, and is as long as its bytes are.
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
