"""The accumulator: turns a stream of model events into the message that is stored.

Owns the rules by which events become content blocks. Pure: it never waits, and it never raises for
what a model wrote. Bad arguments and repeated call ids are reported beside the message for the
engine to answer; only a stream that breaks its own protocol is a `ProviderError`.

Invariants: the message depends on the text and not on how it was cut into deltas; the cost is
linear in the text; what comes out is strict JSON that every storage takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, assert_never, final

import attrs

from pidurable_actors._json import JsonObject, check_json, decode_json
from pidurable_actors.errors import InvalidValue, ProviderError
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
from pidurable_actors.records import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)

__all__ = ["ANSWER_CHARS_MAX", "Accumulator", "MalformedCall", "StreamedBlock"]

ANSWER_CHARS_MAX: Final = 16_000_000
"""Characters of one answer; a stream that sends more is broken off as a `ProviderError`."""

_DEPTH_KEPT = 32  # Levels of the JSON limit kept for the records around a call's arguments, so that
# a commit is never refused for what a model wrote.
_BLOCK_CHARS = 100  # What a block counts for against the bound, beside its text.

_BlockType: TypeAlias = Literal["text", "thinking", "tool_call"]


@attrs.frozen(kw_only=True)
class StreamedBlock:
    """One block of an answer as far as it has come; see `Accumulator.blocks`.

    `chars` is the length of its text, for a call that of the raw text of its arguments. `id` and
    `name` are those of a tool call, else empty.
    """

    type: _BlockType
    chars: int
    id: str = ""
    name: str = ""
    signature: str | None = None


@attrs.frozen(kw_only=True)
class MalformedCall:
    """The arguments of a call that are no JSON object: their raw text, and what is wrong."""

    text: str
    reason: str


@attrs.define(kw_only=True)
class _Block:
    type: _BlockType
    id: str = ""
    name: str = ""
    signature: str | None = None
    ended: bool = False
    parts: list[str] = attrs.field(factory=list)  # joined only when a message is asked for
    chars: int = 0
    half: str = ""  # A high surrogate at the end of a delta; the other half comes in the next one.


@final
class Accumulator:
    """Builds the assistant's message from a stream of events.

    Adjacent text is one block, and so is adjacent thinking up to its signature; tool calls stand
    where they started. A second call with an id that this answer already used is stored as
    ``ID-2``, ``ID-3`` and so on, the first free one; a call without an id as ``call-1`` and so on.
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._open_calls: dict[int, int] = {}
        self._ids: set[str] = set()
        self._numbers: dict[str, int] = {}  # An id as received → its last number tried.
        self._duplicates: dict[str, str] = {}
        self._malformed: dict[str, MalformedCall] = {}
        self._chars = 0
        self._usage = Usage()
        self._message: AssistantMessage | None = None

    @property
    def usage(self) -> Usage:
        """What the request has used as far as was reported, finished or not."""
        return self._usage

    @property
    def finished(self) -> bool:
        """Whether the answer is whole."""
        return self._message is not None

    @property
    def malformed(self) -> Mapping[str, MalformedCall]:
        """Calls whose arguments are no JSON object, by call id; their message has ``{}``.

        Known once the answer is finished. Empty arguments are ``{}`` and fine; arguments that were
        cut off are malformed even if their text happens to be JSON.
        """
        return self._malformed

    @property
    def duplicates(self) -> Mapping[str, str]:
        """Calls that repeated an earlier id or had none: the stored id → the id as received."""
        return self._duplicates

    def feed(self, event: ModelEvent) -> None:
        """Take the next event.

        Raises:
            ProviderError: the stream breaks its own protocol (an unknown call index, content after
                the end), or the answer is longer than `ANSWER_CHARS_MAX`.
        """
        if self._message is not None and not isinstance(event, UsageReport):
            raise _broken(f"{type(event).__name__} after the end")
        match event:
            case TextDelta():
                self._add_text(event.text)
            case ThinkingDelta():
                self._add_thinking(event)
            case ToolCallStart():
                self._start_call(event)
            case ToolCallDelta():
                self._write(self._call_at(event.index), event.arguments_text)
            case ToolCallEnd():
                self._blocks[self._call_at(event.index)].ended = True
                del self._open_calls[event.index]
            case UsageReport():
                self._usage = event.usage
            case Finished():
                self._message = self._build(event.stop_reason, self._malformed)
            case _:
                assert_never(event)

    def message(self, *, model: str = "") -> AssistantMessage:
        """The whole answer.

        Args:
            model: the reference to store with it, ``provider/model_id``.

        Raises:
            ProviderError: retryable, kind ``network``: the stream ended before `Finished` came.
        """
        if self._message is None:
            raise ProviderError(
                "the model's stream ended before the answer was whole",
                retryable=True,
                kind="network",
            )
        return attrs.evolve(self._message, model=model, usage=self._usage)

    def partial(self, *, model: str = "") -> AssistantMessage:
        """What has come so far, as an answer that was cut off (stop reason ``aborted``).

        Calls that are not whole have ``{}`` as arguments. Costs the whole text at each call; to
        follow a stream, use `blocks`. The content is empty when nothing has come.
        """
        built = self._build("aborted", {})
        return attrs.evolve(built, model=model, usage=self._usage)

    @property
    def blocks(self) -> list[StreamedBlock]:
        """The blocks that have begun, in their order, without their texts."""
        return [
            StreamedBlock(
                type=block.type,
                chars=block.chars,
                id=block.id,
                name=block.name,
                signature=block.signature,
            )
            for block in self._blocks
        ]

    def text_since(self, at: int, chars: int) -> str:
        """The text of a block from a place on, at the price of what comes from there on.

        Args:
            at: which block, as `blocks` numbers them.
            chars: how much of it is known already.
        """
        block = self._blocks[at]
        wanted = block.chars - chars
        found: list[str] = []
        for part in reversed(block.parts):
            if wanted <= 0:
                break
            found.append(part[-wanted:])
            wanted -= len(part)
        return "".join(reversed(found))

    def _add_text(self, text: str) -> None:
        if not text:
            return
        if not self._blocks or self._blocks[-1].type != "text":
            self._open(_Block(type="text"))
        self._write(len(self._blocks) - 1, text)

    def _add_thinking(self, event: ThinkingDelta) -> None:
        if not event.text and event.signature is None:
            return
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.type != "thinking" or last.signature is not None:
            last = self._open(_Block(type="thinking"))
        self._write(len(self._blocks) - 1, event.text)
        if event.signature is not None:
            self._count(len(event.signature))
            last.signature = _whole(event.signature)

    def _start_call(self, event: ToolCallStart) -> None:
        received = _whole(event.id)
        made = self._free_id(received)
        if made != received:
            self._duplicates[made] = received
        self._ids.add(made)
        self._open_calls[event.index] = len(self._blocks)
        self._count(len(made) + len(event.name))
        self._open(_Block(type="tool_call", id=made, name=_whole(event.name)))

    def _free_id(self, received: str) -> str:
        made = received or "call-1"
        number = self._numbers.get(received, 1)
        while made in self._ids:
            number += 1
            made = f"{received or 'call'}-{number}"
        # Where to go on, or many repetitions of one id would try all the earlier ones each time.
        self._numbers[received] = number
        return made

    def _call_at(self, index: int) -> int:
        at = self._open_calls.get(index)
        if at is None:
            raise _broken(f"arguments of the tool call {index}, which is not open")
        return at

    def _open(self, block: _Block) -> _Block:
        self._count(_BLOCK_CHARS)
        self._blocks.append(block)
        return block

    def _write(self, at: int, text: str) -> None:
        self._count(len(text))
        block = self._blocks[at]
        if block.half or not text.isascii():
            text = block.half + text
            cut = len(text) - 1 if text and "\ud800" <= text[-1] <= "\udbff" else len(text)
            text, block.half = _whole(text[:cut]), text[cut:]
        if text:
            block.parts.append(text)
            block.chars += len(text)

    def _count(self, chars: int) -> None:
        self._chars += chars
        if self._chars > ANSWER_CHARS_MAX:
            raise ProviderError(
                f"the model's answer is longer than {ANSWER_CHARS_MAX} characters", kind="invalid"
            )

    def _build(
        self, stop_reason: StopReason, malformed: dict[str, MalformedCall]
    ) -> AssistantMessage:
        content: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
        for block in self._blocks:
            text = "".join(block.parts)
            if block.type == "tool_call":
                arguments = _arguments(block, text, malformed)
                content.append(ToolCallBlock(id=block.id, name=block.name, arguments=arguments))
            elif block.type == "thinking" and (text or block.signature):
                content.append(ThinkingBlock(text=text, signature=block.signature))
            elif text:
                content.append(TextBlock(text=text))
        return AssistantMessage(content=tuple(content), stop_reason=stop_reason)


def _arguments(block: _Block, text: str, malformed: dict[str, MalformedCall]) -> JsonObject:
    reason = "the arguments were cut off"
    if block.ended:
        try:
            return _parse(text)
        except ValueError as error:
            reason = str(error)
    malformed[block.id] = MalformedCall(text=text, reason=reason)
    return {}


def _parse(text: str) -> JsonObject:
    if not text.strip():
        return {}
    try:
        value = decode_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments are not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("the arguments are not a JSON object")  # noqa: TRY004
    # Wrapping the value uses up the part of the limit that is kept for the records around it.
    wrapped: object = value
    for _ in range(_DEPTH_KEPT):
        wrapped = [wrapped]
    try:
        check_json(wrapped, "arguments")
    except InvalidValue as error:
        raise ValueError(f"the arguments cannot be stored: {error.reason}") from error
    return value


def _whole(text: str) -> str:
    """Text that can be stored: surrogate pairs put together, lone ones replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _broken(what: str) -> ProviderError:
    return ProviderError(f"the model's stream is out of order: {what}", retryable=True)
