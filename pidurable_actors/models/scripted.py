"""A model that follows a script: deterministic, without a key or a network, for tests and demos.

`ScriptedModel` asks a plain function what to answer and plays the answer as a real provider would
stream it, with delays, cuts, stalls and broken arguments where the script says so. It never draws a
random number or looks at the wall clock; waiting goes through Trio, so a virtual clock moves it.

Invariant: the answer to a request, generated call ids included, depends on the request alone. Any
process that sends the same request gets the same answer.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final, TypeAlias, assert_never, final

import attrs
import trio

from pidurable_actors._json import JsonObject, check_json, encode_json, fingerprint
from pidurable_actors.errors import DefinitionError, ProviderError
from pidurable_actors.models._events import (
    Finished,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageReport,
)
from pidurable_actors.models._protocol import ModelInfo, ModelRequest
from pidurable_actors.records import (
    AssistantMessage,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)

__all__ = [
    "Break",
    "Fault",
    "Garbage",
    "Reply",
    "ScriptedContext",
    "ScriptedModel",
    "Stall",
    "ToolCall",
    "Truncate",
]

REQUESTS_KEPT: Final = 256
"""Requests that a scripted model remembers; the oldest are forgotten."""

_CHARS_PER_TOKEN = 4
_IMAGE_TOKENS = 1_000


@attrs.frozen
class ToolCall:
    """A tool call in a reply. Without an `id` it gets one that depends on the transcript alone."""

    name: str
    arguments: JsonObject = attrs.field(factory=dict)
    id: str | None = None

    def __attrs_post_init__(self) -> None:
        check_json(self.arguments, f"arguments of the scripted call {self.name!r}")


@attrs.frozen
class Truncate:
    """The stream ends after `after` characters of output, without the end that a whole one has."""

    after: int


@attrs.frozen
class Stall:
    """The stream goes silent for ever after `after` characters of output."""

    after: int


@attrs.frozen
class Break:
    """The stream raises `error` after `after` characters of output."""

    after: int
    error: ProviderError


@attrs.frozen
class Garbage:
    """The arguments of every call of the reply are `text`, which is not JSON."""

    text: str = '{"'


Fault: TypeAlias = Truncate | Stall | Break | Garbage
_Step: TypeAlias = ModelEvent | Stall | ProviderError


def _as_tuple(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple(calls)


@attrs.frozen
class Reply:
    """What the scripted model answers, in the order thinking, text, tool calls.

    Attributes:
        text: the text of the answer.
        tool_calls: the calls it makes.
        thinking: its reasoning.
        usage: what the request uses, reported before the first text, so that a reply that breaks
            off has used it too; None estimates a token for every four characters.
        stop_reason: why it stops; None derives it from `tool_calls`.
        delay_s: how long the first event takes, in seconds.
        chunk: characters in one delta; None sends each part whole.
        chunk_delay_s: how long each delta takes, in seconds.
        fault: how the stream goes wrong, if it does. Characters are counted over thinking, text
            and arguments.

    Raises:
        DefinitionError: a number is out of range, or `Garbage` has no call to spoil.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = attrs.field(default=(), converter=_as_tuple, kw_only=True)
    thinking: str = attrs.field(default="", kw_only=True)
    usage: Usage | None = attrs.field(default=None, kw_only=True)
    stop_reason: StopReason | None = attrs.field(default=None, kw_only=True)
    delay_s: float = attrs.field(default=0.0, kw_only=True)
    chunk: int | None = attrs.field(default=None, kw_only=True)
    chunk_delay_s: float = attrs.field(default=0.0, kw_only=True)
    fault: Fault | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.chunk is not None and self.chunk < 1:
            raise DefinitionError(f"chunk of a Reply is {self.chunk}; it must be 1 or more.")
        for name, seconds in (("delay_s", self.delay_s), ("chunk_delay_s", self.chunk_delay_s)):
            if not 0 <= seconds < math.inf:
                raise DefinitionError(f"{name} of a Reply is {seconds}; it must be 0 or more.")
        if isinstance(self.fault, Garbage) and not self.tool_calls:
            raise DefinitionError("a Reply with Garbage needs a tool call to spoil.")


@attrs.frozen
class ScriptedContext:
    """What a script decides from: the request, and short ways to read it."""

    request: ModelRequest

    @property
    def model_id(self) -> str:
        """The model that was asked for."""
        return self.request.model_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """The transcript as the model sees it, oldest first."""
        return self.request.messages

    @property
    def last(self) -> Message | None:
        """The newest message."""
        return self.messages[-1] if self.messages else None

    @property
    def user_text(self) -> str:
        """The newest text of a user, or nothing.

        What users said one after the other is one message; this is the last text in it.
        """
        for message in reversed(self.messages):
            if isinstance(message, UserMessage):
                texts = [block.text for block in message.content if isinstance(block, TextBlock)]
                return texts[-1] if texts else ""
        return ""

    @property
    def answers(self) -> int:
        """How many answers of the model the transcript holds."""
        return sum(isinstance(message, AssistantMessage) for message in self.messages)

    def tool_results(self, name: str | None = None) -> tuple[ToolResultMessage, ...]:
        """The results in the transcript, oldest first; only those of the tool `name` when given."""
        return tuple(
            message
            for message in self.messages
            if isinstance(message, ToolResultMessage) and name in (None, message.tool_name)
        )


Script: TypeAlias = Callable[[ScriptedContext], Reply | ProviderError]


@final
class ScriptedModel:
    """A model provider that answers what a plain function says.

    ``ScriptedModel(lambda ctx: Reply(f"You said {ctx.user_text}."))``

    Args:
        reply: decides each answer from its context alone. It returns a `Reply`, or returns or
            raises a `ProviderError` to refuse the request; any other exception is a bug of the
            script and leaves `stream` as it is.
        name: the provider's name in references.
        models: the model ids it lists; None serves any.
        info: what it says of each of them, such as their context window and prices.
    """

    def __init__(
        self,
        reply: Script,
        *,
        name: str = "scripted",
        models: tuple[str, ...] | None = None,
        info: ModelInfo | None = None,
    ) -> None:
        self._reply = reply
        self._name = name
        self._models = models
        self._info = info or ModelInfo()
        self._requests: deque[ModelRequest] = deque(maxlen=REQUESTS_KEPT)

    @property
    def name(self) -> str:
        """The provider's name in references."""
        return self._name

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The requests it received, oldest first; the newest `REQUESTS_KEPT` of them."""
        return tuple(self._requests)

    def models(self) -> tuple[str, ...] | None:
        """The model ids it lists, or None when any id may be asked for."""
        return self._models

    def info(self, model_id: str) -> ModelInfo:
        """What it was made with, for every model."""
        return self._info

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Answer a request; see `ModelProvider.stream`.

        Raises:
            ProviderError: on entry when the script refuses; between events at a `Break`.

        Cancellation:
            At every event. A cancelled wait loses no event: asking again goes on where it stood.
        """
        self._requests.append(request)
        context = ScriptedContext(request)
        reply = self._reply(context)
        if isinstance(reply, ProviderError):
            await trio.lowlevel.checkpoint()
            raise copy.copy(reply)  # A script may hold one error and refuse with it many times.
        await trio.sleep(reply.delay_s)
        yield _Playback(_steps(reply, context), reply.chunk_delay_s)


@final
class _Playback:
    """Plays steps as an async iterator, one checkpoint or delay before each."""

    def __init__(self, steps: Iterator[_Step], chunk_delay_s: float) -> None:
        self._steps = steps
        self._chunk_delay_s = chunk_delay_s
        self._next = next(steps, None)

    def __aiter__(self) -> _Playback:
        return self

    async def __anext__(self) -> ModelEvent:
        step = self._next
        await trio.sleep(self._chunk_delay_s if _output(step) else 0)
        if isinstance(step, Stall):
            await trio.sleep_forever()
        self._next = next(self._steps, None)
        if step is None:
            raise StopAsyncIteration
        if isinstance(step, ProviderError):
            raise step
        assert not isinstance(step, Stall)
        return step


def _steps(reply: Reply, context: ScriptedContext) -> Iterator[_Step]:
    yield UsageReport(reply.usage or _estimate(reply, context.request))
    parts = _parts(reply, context)
    match reply.fault:
        case None | Garbage():
            yield from parts
            yield Finished(reply.stop_reason or ("tool_use" if reply.tool_calls else "stop"))
        case Truncate(after=after):
            yield from _first(parts, after)
        case Stall(after=after):
            yield from _first(parts, after)
            yield reply.fault
        case Break(after=after, error=error):
            yield from _first(parts, after)
            yield copy.copy(error)
        case _:
            assert_never(reply.fault)


def _parts(reply: Reply, context: ScriptedContext) -> Iterator[ModelEvent]:
    for chunk in _chunks(reply.thinking, reply.chunk):
        yield ThinkingDelta(chunk)
    for chunk in _chunks(reply.text, reply.chunk):
        yield TextDelta(chunk)
    ids = _call_ids(reply, context)
    for index, call in enumerate(reply.tool_calls):
        yield ToolCallStart(index, ids[index], call.name)
        for chunk in _chunks(_arguments_text(reply, call), reply.chunk):
            yield ToolCallDelta(index, chunk)
        yield ToolCallEnd(index)


def _first(events: Iterator[ModelEvent], chars: int) -> Iterator[ModelEvent]:
    """The events up to so many characters of output; the last one is cut to fit."""
    for event in events:
        size = len(_output(event))
        if size > chars:
            if chars > 0:
                yield _cut(event, chars)
            return
        chars -= size
        yield event


def _output(step: _Step | None) -> str:
    match step:
        case TextDelta(text=text) | ThinkingDelta(text=text) | ToolCallDelta(arguments_text=text):
            return text
        case _:
            return ""


def _cut(event: ModelEvent, chars: int) -> ModelEvent:
    text = _output(event)[:chars]
    if isinstance(event, ToolCallDelta):
        return ToolCallDelta(event.index, text)
    return ThinkingDelta(text) if isinstance(event, ThinkingDelta) else TextDelta(text)


def _chunks(text: str, size: int | None) -> Iterator[str]:
    size = size or len(text) or 1
    return (text[at : at + size] for at in range(0, len(text), size))


def _arguments_text(reply: Reply, call: ToolCall) -> str:
    return reply.fault.text if isinstance(reply.fault, Garbage) else encode_json(call.arguments)


def _call_ids(reply: Reply, context: ScriptedContext) -> tuple[str, ...]:
    """The ids of the calls: readable by turn and position, unique by a digest of the transcript.

    The count of answers alone would repeat once a compaction or a reset has shortened what the
    model sees. A request that is sent again gets the same ids.
    """
    if all(call.id is not None for call in reply.tool_calls):
        return tuple(call.id or "" for call in reply.tool_calls)
    made = f"call_{context.answers + 1}_{{}}_{fingerprint(context.messages)[:8]}"
    return tuple(
        made.format(at) if call.id is None else call.id
        for at, call in enumerate(reply.tool_calls, start=1)
    )


def _estimate(reply: Reply, request: ModelRequest) -> Usage:
    asked = sum(_tokens(message) for message in request.messages)
    calls = sum(len(_arguments_text(reply, call)) for call in reply.tool_calls)
    said = len(reply.text) + len(reply.thinking) + calls
    return Usage(input_tokens=asked, output_tokens=math.ceil(said / _CHARS_PER_TOKEN))


def _tokens(message: Message) -> int:
    tokens = 0
    for block in message.content:
        match block:
            case TextBlock(text=text) | ThinkingBlock(text=text):
                tokens += math.ceil(len(text) / _CHARS_PER_TOKEN)
            case ToolCallBlock(arguments=arguments):
                tokens += math.ceil(len(encode_json(arguments)) / _CHARS_PER_TOKEN)
            case _:
                tokens += _IMAGE_TOKENS
    return tokens
