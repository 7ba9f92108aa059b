"""Tools: what a model may call, and what the call's code sees.

A tool's most important line is its `replay`: what may be done when a crash or a close cut its call
off. ``"unsafe"`` (the default) never runs it again and tells the model so; ``"safe"`` promises that
running it again does no harm; ``"reconcile"`` asks the tool's own handler whether it happened.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, final, overload

import attrs

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors._limits import LIMITS
from pidurable_actors.agent._schema import ToolSignature, takes_api
from pidurable_actors.context import Context
from pidurable_actors.errors import DefinitionError
from pidurable_actors.models import ToolSpec
from pidurable_actors.records import (
    ConversationId,
    ImageBlock,
    TaskId,
    TextBlock,
    Usage,
)
from pidurable_actors.runtime import Missing
from pidurable_actors.session import Tx

__all__ = [
    "NOT_DONE",
    "UNKNOWN",
    "Around",
    "ExecutionMode",
    "NotDone",
    "Replay",
    "Tool",
    "ToolApi",
    "ToolResult",
    "Unknown",
    "tool",
]

T = TypeVar("T")
Replay: TypeAlias = Literal["unsafe", "safe", "reconcile"]
ExecutionMode: TypeAlias = Literal["parallel", "sequential"]


_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_-]*")  # what every provider takes


def _as_content(
    content: str | tuple[TextBlock | ImageBlock, ...],
) -> tuple[TextBlock | ImageBlock, ...]:
    return (TextBlock(text=content),) if isinstance(content, str) else tuple(content)


@attrs.frozen
class ToolResult:
    """What a tool returns when text alone is not enough.

    Args:
        content: text, or text and image blocks, for the model.
        details: strict JSON for people and programs; the model does not see it.
        usage: what the tool used of models, added to the conversation's usage.
        is_error: whether the model should read it as a failure.
    """

    content: tuple[TextBlock | ImageBlock, ...] = attrs.field(converter=_as_content)
    details: JSON = attrs.field(default=None, kw_only=True)
    usage: Usage | None = attrs.field(default=None, kw_only=True)
    is_error: bool = attrs.field(default=False, kw_only=True)


@final
@attrs.frozen
class NotDone:
    """A reconcile handler's word that the effect has not happened and no longer can."""


@final
@attrs.frozen
class Unknown:
    """A reconcile handler's word that it cannot tell."""


NOT_DONE: Final = NotDone()
UNKNOWN: Final = Unknown()


class ToolApi(Protocol):
    """What a running tool call may use; asked for with a keyword-only ``api`` parameter.

    Every method raises `InvocationEnded` once the call is over.
    """

    @property
    def call_id(self) -> str:
        """The model's id of the call."""
        ...

    @property
    def task_id(self) -> TaskId:
        """The task of the call."""
        ...

    @property
    def conversation_id(self) -> ConversationId:
        """The conversation that it belongs to."""
        ...

    @property
    def idempotency_key(self) -> str:
        """A random key, made and stored with the intent: the same in every rerun of this call.

        Hand it to an external service that deduplicates by key, and the call happens once.
        """
        ...

    @property
    def context(self) -> Context:
        """The context of the run."""
        ...

    async def output(self, chunk: str | bytes) -> None:
        """Show output while the tool runs.

        It is bounded, and what is dropped at the bound is counted and said. The result is what the
        tool returns; this output is kept when the call is cut off.

        Args:
            chunk: text, or bytes read as UTF-8.

        Durability: stored within ``settings.progress.persist_within_ms``; with 0, on return.

        Cancellation: `Cancelled` leaves the chunk shown or not; never half.
        """
        ...

    def details(self, value: JSON) -> None:
        """Set the result's details.

        Raises:
            InvalidValue: it is not strict JSON.
        """
        ...

    def diagnostic(self, code: str, message: str) -> None:
        """Add a diagnostic to the result, for people and programs.

        Raises:
            InvalidValue: a part of it is not text that can be stored.
        """
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
        """The value recorded under `name` for this call, `MISSING` when there is none.

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


Execute: TypeAlias = Callable[..., Awaitable[object]]
Around: TypeAlias = Callable[
    [Callable[[], Awaitable[object]], Mapping[str, Any], ToolApi], Awaitable[object]
]
"""Code around a call: it gets the call, to be awaited or not, its arguments and the api."""
Reconcile: TypeAlias = Callable[[Mapping[str, Any], ToolApi], Awaitable[object]]


@final
@attrs.define(eq=False)
class Tool:
    """A tool; usually made by the `tool` decorator.

    Args:
        name: what the model calls; stored, so renaming it is a change of format.
        execute: async function; returns text or a `ToolResult`.
        description: for the model; the function's docstring by default.
        parameters: a JSON Schema written by hand; from the signature by default.
        replay: what may be done with a call that was cut off.
        reconcile: asked, for ``replay="reconcile"``, whether a call that was cut off happened.
        mode: ``"sequential"`` makes every round with this tool run in order.
        timeout_s: seconds after which a call is cancelled and becomes an error result.

    Raises:
        DefinitionError: the signature cannot be documented, there is no description, or a field is
            out of range.
    """

    name: str
    execute: Execute
    description: str = attrs.field(default="", kw_only=True)
    parameters: JsonObject | None = attrs.field(default=None, kw_only=True)
    replay: Replay = attrs.field(default="unsafe", kw_only=True)
    on_reconcile: Reconcile | None = attrs.field(default=None, kw_only=True, alias="reconcile")
    mode: ExecutionMode = attrs.field(default="parallel", kw_only=True)
    timeout_s: float | None = attrs.field(default=None, kw_only=True)
    signature: ToolSignature = attrs.field(init=False)
    wants_api: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        _check_name(self.name)
        if self.replay not in ("unsafe", "safe", "reconcile"):
            raise DefinitionError(
                f"tool {self.name!r}: replay is 'unsafe', 'safe' or 'reconcile', "
                f"not {self.replay!r}."
            )
        if self.mode not in ("parallel", "sequential"):
            raise DefinitionError(
                f"tool {self.name!r}: mode is 'parallel' or 'sequential', not {self.mode!r}."
            )
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise DefinitionError(f"tool {self.name!r}: timeout_s must be greater than 0.")
        if self.parameters is None:
            self.signature = ToolSignature.from_function(self.execute, name=self.name)
        else:
            self.signature = ToolSignature.from_schema(self.parameters, name=self.name)
        self.wants_api = takes_api(self.execute)
        self.description = self.description or self.signature.description
        if not self.description:
            raise DefinitionError(
                f"tool {self.name!r}: say what it does, in a docstring or description=, "
                "because the model chooses by it."
            )

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(self.name, self.description, self.signature.parameters)

    def around(self, code: Around) -> Tool:
        """The same tool, with `code` around each of its runs.

        Name, schema, policy and deadline stay; what `code` returns or raises is the call's result.
        A reconcile handler is not a run, and stays as it is.

        Args:
            code: async function of the call, its arguments and the api; ``await call()`` runs the
                tool.
        """
        execute, wants_api = self.execute, self.wants_api

        async def run(*, api: ToolApi, **arguments: object) -> object:
            given = {**arguments, "api": api} if wants_api else arguments
            return await code(lambda: execute(**given), arguments, api)

        made = copy.copy(self)
        made.execute, made.wants_api = run, True
        return made

    def reconcile(self, handler: Reconcile) -> Reconcile:
        """Decorator: the handler that is asked whether a call that was cut off happened.

        It gets the arguments by name and the api, and returns the result (it happened), `NOT_DONE`
        (it has not and no longer can: it is run) or `UNKNOWN`.
        """
        self.on_reconcile = handler
        return handler


def tool(
    name: str | None = None,
    *,
    description: str = "",
    parameters: JsonObject | None = None,
    replay: Replay = "unsafe",
    mode: ExecutionMode = "parallel",
    timeout_s: float | None = None,
) -> Callable[[Execute], Tool]:
    """Decorator that makes an async function a `Tool`; see there for the arguments.

    Raises:
        DefinitionError: see `Tool`.
    """

    def make(execute: Execute) -> Tool:
        return Tool(
            name if name is not None else str(getattr(execute, "__name__", "")),
            execute,
            description=description,
            parameters=parameters,
            replay=replay,
            mode=mode,
            timeout_s=timeout_s,
        )

    return make


def _check_name(name: str) -> None:
    if len(name) > LIMITS.name_length or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"tool name {name!r}: use letters, digits, '_' and '-', beginning with a letter."
        )
