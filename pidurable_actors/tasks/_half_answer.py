"""The half answer of a request under way: how it gets into the live document, and out of it.

One function brings a draft of the document up to date with the stream, whether the draft is then
stored or only shown; it looks at what the draft has and adds the rest, so it may run at any time
and any number of times. The other makes a message of what is there.
"""

from __future__ import annotations

from pidurable_actors._json import JsonObject, decode_json
from pidurable_actors.agent import GenerationState, LiveState, PartialBlock
from pidurable_actors.models import Accumulator
from pidurable_actors.records import (
    AssistantMessage,
    TaskId,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)

__all__ = ["has_half", "stored_half", "take_half", "write_half"]


def write_half(live: LiveState, task_id: TaskId, attempt: int, answer: Accumulator) -> None:
    """Bring a draft of the live document up to date with what has come.

    Args:
        live: the draft; left alone when the request is no longer the one under way.
        task_id: the task that asks.
        attempt: which request of its turn this is.
        answer: what has come.
    """
    generation = live.generation
    if generation is None or generation.task_id != task_id or not _asks(live, generation, attempt):
        return
    partial = generation.partial
    for at, block in enumerate(answer.blocks):
        if at == len(partial):
            partial.append(PartialBlock(type=block.type, id=block.id, name=block.name))
        half = partial[at]
        text = half.text
        if len(text) < block.chars:
            text.append(answer.text_since(at, len(text)))
        if half.signature != block.signature:
            half.signature = block.signature
    if generation.usage != answer.usage:
        generation.usage = answer.usage


def has_half(generation: GenerationState) -> bool:
    """Whether a request has left something."""
    return bool(generation.partial) or generation.usage != Usage()


def stored_half(generation: GenerationState, *, model: str) -> AssistantMessage:
    """What the live document has of an answer, as one that was cut off."""
    content: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
    for half in generation.partial:
        text = str(half.text)
        if half.type == "tool_call":
            content.append(ToolCallBlock(id=half.id, name=half.name, arguments=_arguments(text)))
        elif half.type == "thinking" and (text or half.signature):
            content.append(ThinkingBlock(text=text, signature=half.signature))
        elif text:
            content.append(TextBlock(text=text))
    return AssistantMessage(
        content=tuple(content), stop_reason="aborted", model=model, usage=generation.usage
    )


def take_half(generation: GenerationState, *, model: str) -> AssistantMessage:
    """Take what the live document has of an answer out of it."""
    half = stored_half(generation, model=model)
    generation.partial = []
    generation.usage = Usage()
    return half


def _asks(live: LiveState, generation: GenerationState, attempt: int) -> bool:
    """Whether an attempt of the present turn is under way, and not answered or given up yet."""
    turns = 0 if live.run is None else live.run.turns
    waits = generation.retry_at_ms is not None
    return generation.turn == turns + 1 and generation.attempt == attempt and not waits


def _arguments(text: str) -> JsonObject:
    """The arguments that were whole; what was cut off within them is no JSON object."""
    try:
        value = decode_json(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
