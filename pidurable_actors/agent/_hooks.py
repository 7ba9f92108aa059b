"""Hooks: where an extension's code is asked in the course of a run, and what it may say.

Owns the points, what each is given and what it may return. Hooks of one point run in the order of
their extensions. They may run again after a crash; one that must decide once notes its decision in
a memo. What a hook raises is reported and the hook skipped; in `before_tool` it blocks the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, final, overload

import attrs

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.agent._questions import Approve
from pidurable_actors.agent._tool import Tool
from pidurable_actors.agent._tool_api import ToolResult
from pidurable_actors.context import Context
from pidurable_actors.errors import DefinitionError
from pidurable_actors.models import ModelRequest
from pidurable_actors.records import (
    AssistantMessage,
    ConversationId,
    EntryRecord,
    TaskId,
    ToolResultMessage,
)
from pidurable_actors.runtime import ConversationHandle, Missing
from pidurable_actors.session import DocumentDefinition, Tx
from pidurable_actors.settings import Settings

__all__ = [
    "Block",
    "CompactionEvent",
    "Hook",
    "HookApi",
    "HookPoint",
    "Rewrite",
    "Skip",
    "Summary",
    "ToolCallEvent",
    "hook",
]

T = TypeVar("T")
D = TypeVar("D")

HookPoint: TypeAlias = Literal[
    "before_request",
    "after_response",
    "on_yield",
    "after_tools",
    "before_tool",
    "after_tool",
    "on_abort",
    "before_compact",
]


@attrs.frozen(kw_only=True)
class ToolCallEvent:
    """A call that a hook is asked about.

    Attributes:
        call_id: the model's id of the call; of a nested one, that of the call that it is made for.
        tool: the tool.
        arguments: as they are now, after the hooks before this one.
        called_by: ``"model"`` or ``"tools"``.
    """

    call_id: str
    tool: Tool
    arguments: JsonObject
    called_by: Literal["model", "tools"] = "model"


@attrs.frozen(kw_only=True)
class CompactionEvent:
    """A compaction that a hook is asked about.

    Attributes:
        reason: ``"manual"``, ``"background"``, ``"threshold"`` or ``"overflow"``.
        entries: what the summary stands for, oldest first.
        instructions: what it was asked for with.
    """

    reason: str
    entries: tuple[EntryRecord, ...]
    instructions: str | None = None


@final
@attrs.frozen
class Block:
    """The call is not run; the model reads `reason` as its error."""

    reason: str


@final
@attrs.frozen
class Rewrite:
    """The call goes on with these arguments."""

    arguments: JsonObject


@final
@attrs.frozen
class Skip:
    """The compaction is not made."""

    reason: str = ""


@final
@attrs.frozen
class Summary:
    """The summary itself; no model is asked for one."""

    text: str


class HookApi(Protocol):
    """What a hook and a section may use. It ends with the run of the task that asked them."""

    @property
    def task_id(self) -> TaskId:
        """The task that asks: of the run, of the call, or of the compaction."""
        ...

    @property
    def conversation_id(self) -> ConversationId:
        """The conversation."""
        ...

    @property
    def context(self) -> Context:
        """The context of the run."""
        ...

    @property
    def settings(self) -> Settings:
        """The harness's settings, read live."""
        ...

    def now_ms(self) -> int:
        """Durable time, epoch milliseconds."""
        ...

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]]) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T]) -> T: ...

    async def commit(self, change: Callable[[Tx], Any]) -> Any:
        """Commit, bound to the conversation.

        Durability: on return everything that the callback wrote is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def memo(self, name: str) -> JSON | Missing:
        """The value that this extension recorded under `name` for this task, or `MISSING`.

        The task is the run's for the hooks of a run, so a name that is meant for one request or
        one call says which.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        ...

    async def set_memo(self, name: str, value: JSON) -> JSON:
        """Record a value under `name`; the first writer wins and is returned.

        Durability: on return the winner is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def snapshot(self, definition: DocumentDefinition[D], *, key: str = "") -> D:
        """The value of a document of the conversation, of everything committed so far.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        ...

    async def conversation(self, conversation_id: int | None = None) -> ConversationHandle:
        """The handle of a conversation, by default this one.

        Raises:
            StorageRequestError: there is none with this id.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        ...


BeforeRequest: TypeAlias = Callable[[ModelRequest, HookApi], Awaitable[ModelRequest | None]]
AfterResponse: TypeAlias = Callable[[AssistantMessage, HookApi], Awaitable[AssistantMessage | None]]
OnYield: TypeAlias = Callable[[AssistantMessage, HookApi], Awaitable[str | None]]
AfterTools: TypeAlias = Callable[[Sequence[ToolResultMessage], HookApi], Awaitable[None]]
BeforeTool: TypeAlias = Callable[
    [ToolCallEvent, HookApi], Awaitable[Block | Rewrite | Approve | None]
]
AfterTool: TypeAlias = Callable[[ToolCallEvent, ToolResult, HookApi], Awaitable[ToolResult | None]]
OnAbort: TypeAlias = Callable[[ToolCallEvent, HookApi], Awaitable[None]]
BeforeCompact: TypeAlias = Callable[[CompactionEvent, HookApi], Awaitable[Skip | Summary | None]]


@final
@attrs.frozen
class Hook:
    """Code for one point; made by a decorator of `hook`."""

    point: HookPoint
    function: Callable[..., Awaitable[object]]

    def __attrs_post_init__(self) -> None:
        called = getattr(self.function, "__call__", None)  # noqa: B004 - of an object, its method
        if not any(map(inspect.iscoroutinefunction, (self.function, called))):
            raise DefinitionError(
                f"a {self.point} hook is an async function, not {self.function!r}."
            )
        given = "call, result and api" if self.point == "after_tool" else "one value and api"
        try:
            inspect.signature(self.function).bind(*[None] * (3 if "result" in given else 2))
        except TypeError:
            raise DefinitionError(
                f"a {self.point} hook is given {given}, which {self.function!r} does not take."
            ) from None


@final
class _Decorators:
    """One decorator for each point: ``@hook.before_tool``."""

    @staticmethod
    def before_request(function: BeforeRequest) -> Hook:
        """Asked before each request to a model; may return another request in its place.

        Another one is sent as it is, so it must be legal for the provider. It is not stored.
        """
        return Hook("before_request", function)

    @staticmethod
    def after_response(function: AfterResponse) -> Hook:
        """Asked when an answer is whole and before it is stored; may return another in its place.

        Who was asked, and what that used, stays. A crash meanwhile costs the answer, so it should
        be quick.
        """
        return Hook("after_response", function)

    @staticmethod
    def on_yield(function: OnYield) -> Hook:
        """Asked when the run would end with this answer; a text it returns goes on with the run.

        The answer is stored by then. The text becomes an input of the same run; the first hook that
        returns one decides. Nothing ends a run that a hook always continues but its budget.
        """
        return Hook("on_yield", function)

    @staticmethod
    def after_tools(function: AfterTools) -> Hook:
        """Told of the results of a round, in call order, before the next request is decided."""
        return Hook("after_tools", function)

    @staticmethod
    def before_tool(function: BeforeTool) -> Hook:
        """Asked before the intent of a call is stored: may block it or rewrite its arguments.

        With `Approve` it asks a person first, once all hooks have had their say: those after it may
        still block the call or rewrite its arguments. None of them is asked again then. One that
        raises blocks the call. What it does to the arguments that it was given, and does not
        return, changes nothing.
        """
        return Hook("before_tool", function)

    @staticmethod
    def after_tool(function: AfterTool) -> Hook:
        """Asked when a tool has returned and before that is stored; may return another result.

        It runs in a shield that is bounded, because a result that exists must not be lost.
        """
        return Hook("after_tool", function)

    @staticmethod
    def on_abort(function: OnAbort) -> Hook:
        """Told of a call that is aborted, before its result says so; the time it has is bounded.

        The arguments are those of the intent, when that was stored.
        """
        return Hook("on_abort", function)

    @staticmethod
    def before_compact(function: BeforeCompact) -> Hook:
        """Asked before a summary is made: may `Skip` it, or give the `Summary` itself."""
        return Hook("before_compact", function)


hook: Final = _Decorators()
"""Decorators that make hooks: ``Extension("gate", hooks=[...])`` takes what they return."""
