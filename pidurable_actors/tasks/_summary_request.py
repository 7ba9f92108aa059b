"""The request for a summary, and the entry that a summary becomes. Pure.

The transcript goes in as text and not as messages, so that a model summarizes it instead of going
on with it. Long texts are clipped in their middle, tool results more than what was said, until the
request fits the window of the model that is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pidurable_actors._json import JsonObject, encode_json
from pidurable_actors.models import ModelInfo, ModelRequest, request_tokens
from pidurable_actors.records import (
    COMPACTION,
    LEFT_OUT,
    AssistantMessage,
    Block,
    ContextEdit,
    EntryDraft,
    EntryRecord,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from pidurable_actors.tasks._compaction_range import CompactionRange

__all__ = ["summary_entry", "summary_message", "summary_request"]

RESULT_CHARS: Final = 4_000
"""Characters of a tool result that are shown to who summarizes, where the request has room."""

SHORTEST_CHARS: Final = 125
"""A result is not clipped to less than this; of more than has room then, the middle is left out."""

SPOKEN: Final = 4
"""What was said may be so many times longer than a result."""

_SYSTEM: Final = """\
You write summaries of conversations between a user and an assistant that uses tools. A summary \
takes the place of the conversation: the assistant goes on from it and sees nothing else of what \
came before. Do not answer the user and do not go on with the conversation; write the summary \
only."""

_TASK: Final = """\
Summarize the conversation above. Keep what is needed to go on with the work:
- what the user wants, with every condition that was set, and what is still open;
- what was decided, and why;
- what was found out: names, paths, ids, numbers and error texts as they were written;
- what was done, with which result, and what was tried in vain;
- what comes next.
Be brief. If an earlier summary is part of the conversation, take over what still matters of it."""

_SAYS: Final = "The earlier part of this conversation is replaced by this summary of it."


def summary_request(
    about: Iterable[EntryRecord],
    instructions: str | None,
    *,
    model_id: str,
    info: ModelInfo,
    room: int | None,
) -> ModelRequest:
    """What the model is asked that writes the summary.

    Args:
        about: the entries, oldest first.
        instructions: what the summary should heed besides.
        model_id: who is asked.
        info: of that model.
        room: tokens that the request may have; None for any number.
    """
    entries = tuple(about)
    chars = RESULT_CHARS
    while True:
        text = "\n\n".join(_said(entries, chars))
        request = _request(text, instructions, model_id)
        if room is None or request_tokens(request, info) <= room:
            return request
        if chars <= SHORTEST_CHARS:
            break
        chars //= 2
    # So much was said that its middle is left out.
    whole = len(text)
    while whole > SHORTEST_CHARS and request_tokens(request, info) > room:
        whole = whole * 3 // 4
        request = _request(_clipped(text, whole), instructions, model_id)
    return request


def _request(text: str, instructions: str | None, model_id: str) -> ModelRequest:
    parts = [f"<conversation>\n{text}\n</conversation>", _TASK]
    if instructions:
        parts.append(f"Heed this as well: {instructions}")
    return ModelRequest(
        model_id=model_id,
        messages=(
            SystemMessage(content=(TextBlock(text=_SYSTEM),)),
            UserMessage(content=(TextBlock(text="\n\n".join(parts)),)),
        ),
    )


def summary_message(text: str) -> UserMessage:
    """What the model sees of a summary."""
    content = TextBlock(text=f"{_SAYS}\n\n<summary>\n{text}\n</summary>")
    return UserMessage(content=(content,))


def summary_entry(about: CompactionRange, text: str, data: JsonObject) -> EntryDraft:
    """The entry of a summary: the model's view begins with it, and goes on with what is kept."""
    edits = () if about.replaced is None else (ContextEdit(entry_id=about.replaced),)
    return EntryDraft(
        kind=COMPACTION, model=(summary_message(text),), data=data, head=about.first, edits=edits
    )


def _said(entries: Sequence[EntryRecord], chars: int) -> Iterator[str]:
    for entry in entries:
        for message in entry.model or ():
            said = _in_text(message, chars)
            if said:
                yield said


def _in_text(message: Message, chars: int) -> str:
    match message:
        case ToolResultMessage():
            what = "error" if message.is_error else "result"
            return f"[{what} of {message.tool_name}]\n{_blocks(message.content, chars)}"
        case AssistantMessage() if message.stop_reason in LEFT_OUT:
            return ""
        case AssistantMessage():
            said = _blocks(message.content, chars * SPOKEN)
            calls = [_call(call, chars * SPOKEN) for call in message.tool_calls]
            return "\n".join(["[assistant]", *([said] if said else []), *calls])
        case _:
            return f"[{message.role}]\n{_blocks(message.content, chars * SPOKEN)}"


def _blocks(content: Iterable[Block], chars: int) -> str:
    texts = [
        _clipped(block.text, chars) if isinstance(block, TextBlock) else "(an image)"
        for block in content
        if isinstance(block, TextBlock | ImageBlock)
    ]
    return "\n".join(texts)


def _call(call: ToolCallBlock, chars: int) -> str:
    return f"calls {call.name} {_clipped(encode_json(call.arguments), chars)}"


def _clipped(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    half = chars // 2
    return f"{text[:half]}\n(... {len(text) - 2 * half} characters ...)\n{text[-half:]}"
