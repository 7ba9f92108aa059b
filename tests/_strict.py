"""What the strictest providers demand of a request, so that tests refuse what one of them would."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from pidurable_actors import Reply, ScriptedModel
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import ModelRequest, ScriptedContext, ToolSpec
from pidurable_actors.records import (
    AssistantMessage,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)

__all__ = ["Script", "are_prefixes", "check_strictly", "strict_model", "strictly"]

Script = Callable[[ScriptedContext], Reply | ProviderError]


def strictly(script: Script) -> Script:
    """A script that refuses, as a bug of the test, a request that a strict provider would refuse."""

    def checked(ctx: ScriptedContext) -> Reply | ProviderError:
        check_strictly(ctx.messages, ctx.request.tools)
        return script(ctx)

    return checked


def strict_model(*replies: Reply | ProviderError) -> ScriptedModel:
    """A strict model whose n-th answer in the transcript is the n-th reply; the last one repeats."""
    return ScriptedModel(strictly(lambda ctx: replies[min(ctx.answers, len(replies) - 1)]))


def check_strictly(messages: Sequence[Message], tools: Iterable[ToolSpec] = ()) -> None:
    """Refuse what is not legal: roles, calls and their results, empty parts, names that come twice.

    The system speaks first, and in between where it tells what changed, but never between a call
    and its results. Else user and assistant take turns, and the last word is not the assistant's.
    """
    names = [tool.name for tool in tools]
    assert len(set(names)) == len(names), f"tools with one name: {names}"
    rest = [message for message in messages if not isinstance(message, SystemMessage)]
    assert rest, "nobody says anything"
    assert isinstance(rest[0], UserMessage), f"the first word is not a user's: {rest[0]}"
    assert not isinstance(rest[-1], AssistantMessage), f"the last word is no question: {rest[-1]}"
    for message in messages:
        _check_parts(message)
    _check_turns(messages)
    _check_calls(messages)


def are_prefixes(requests: Sequence[ModelRequest]) -> bool:
    """Whether each request begins with all that the one before it said.

    What a user adds to what a user said is one message with it, so the last one may have grown.
    """
    return all(_begins(*pair) for pair in pairwise(requests))


def _begins(earlier: ModelRequest, later: ModelRequest) -> bool:
    *same, last = earlier.messages
    at = len(same)
    if tuple(same) != later.messages[:at] or len(later.messages) <= at:
        return False
    grown = later.messages[at]
    return type(grown) is type(last) and grown.content[: len(last.content)] == last.content


def _check_parts(message: Message) -> None:
    spoken = not isinstance(message, ToolResultMessage)  # a result may have nothing to say
    assert message.content or not spoken, f"an empty message: {message}"
    for block in message.content:
        match block:
            case TextBlock(text=text):
                assert text, f"an empty text: {message}"
            case ToolCallBlock(id=call_id, name=name):
                assert call_id, f"a call without an id: {message}"
                assert name, f"a call of nothing: {message}"
            case ThinkingBlock() | ImageBlock():
                pass
    if isinstance(message, AssistantMessage):
        ids = [call.id for call in message.tool_calls]
        assert len(set(ids)) == len(ids), f"an id comes twice in one answer: {ids}"
        assert message.stop_reason not in ("error", "aborted"), f"a failed answer: {message}"


def _check_turns(messages: Sequence[Message]) -> None:
    spoken: Message | None = None  # the last that was not the system's
    for message in messages:
        match message:
            case UserMessage():
                assert not isinstance(spoken, UserMessage), f"a user twice: {message}"
            case AssistantMessage():
                assert not isinstance(spoken, AssistantMessage), f"an assistant twice: {message}"
        if not isinstance(message, SystemMessage):
            spoken = message


def _check_calls(messages: Sequence[Message]) -> None:
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        assert not isinstance(message, ToolResultMessage), f"a result without a call: {message}"
        if isinstance(message, AssistantMessage):
            for made in message.tool_calls:
                result = messages[at] if at < len(messages) else None
                assert isinstance(result, ToolResultMessage), f"{made.id} has no result"
                assert (result.call_id, result.tool_name) == (made.id, made.name)
                at += 1
