"""What the code of a tool sees: the api of its call, and what it may return.

A protocol and plain values; who provides them is in `pidurable_actors.tasks`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeVar, final, overload

import attrs

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.context import Context
from pidurable_actors.errors import InvalidValue
from pidurable_actors.models import Models
from pidurable_actors.records import (
    ConversationId,
    ImageBlock,
    TaskId,
    TaskRecord,
    TextBlock,
    Usage,
)
from pidurable_actors.runtime import ConversationHandle, Missing
from pidurable_actors.session import StartableTask, Tx
from pidurable_actors.settings import AgentChoice

__all__ = ["NOT_DONE", "UNKNOWN", "NotDone", "ToolApi", "ToolResult", "Unknown"]

T = TypeVar("T")
InputT = TypeVar("InputT")


def _as_content(
    content: str | tuple[TextBlock | ImageBlock, ...],
) -> tuple[TextBlock | ImageBlock, ...]:
    return (TextBlock(text=content),) if isinstance(content, str) else tuple(content)


# Typed, because mypy cannot tell what a bare `tuple` makes of its argument.
def _as_diagnostics(diagnostics: Iterable[JsonObject]) -> tuple[JsonObject, ...]:
    return tuple(diagnostics)


def _as_names(names: Iterable[str]) -> tuple[str, ...]:
    # A text is a list of letters, which is never what was meant.
    if isinstance(names, str):
        raise InvalidValue("add_tools", f"names are a list of texts, not {names!r}")
    return tuple(names)


@attrs.frozen
class ToolResult:
    """What a tool returns when text alone is not enough.

    Args:
        content: text, or text and image blocks, for the model.
        details: strict JSON for people and programs; the model does not see it.
        usage: what the tool used of models, added to the conversation's usage.
        is_error: whether the model should read it as a failure.
        diagnostics: ``{"code": ..., "message": ...}`` each, for people and programs; those of
            `ToolApi.diagnostic` come after them. The first one of an error that the harness tells
            of has its code, such as ``"interrupted"``.
        terminate: ends the run after this round, when all results of the round agree; the answer is
            the one that made the calls.
        handoff: begins anew after this round with this text, which is all that the model sees then;
            the last result of the round that has one decides.
        add_tools: names of tools that the conversation may use from the next request on, although
            its choice of tools leaves them out.

    `terminate`, `handoff` and `add_tools` are for results that a model asked for; those of nested
    calls are ignored.

    Raises:
        InvalidValue: `add_tools` is a text. What cannot be stored is found out when it is returned.
    """

    content: tuple[TextBlock | ImageBlock, ...] = attrs.field(converter=_as_content)
    details: JSON = attrs.field(default=None, kw_only=True)
    usage: Usage | None = attrs.field(default=None, kw_only=True)
    is_error: bool = attrs.field(default=False, kw_only=True)
    diagnostics: tuple[JsonObject, ...] = attrs.field(
        default=(), converter=_as_diagnostics, kw_only=True
    )
    terminate: bool = attrs.field(default=False, kw_only=True)
    handoff: str | None = attrs.field(default=None, kw_only=True)
    add_tools: tuple[str, ...] = attrs.field(default=(), converter=_as_names, kw_only=True)


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
        """The model's id of the call; of a nested one, that of the call that it is made for."""
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

    @property
    def cwd(self) -> str | None:
        """The working directory that the conversation, or the settings, chose for its tools."""
        ...

    @property
    def models(self) -> Models:
        """The model providers of the process; what a tool uses of them belongs in its result."""
        ...

    async def env(self) -> Any:
        """The environment of the call: what ``open_harness(env=...)`` built for it.

        It is built when a run of the call first asks for it, and kept for that run.

        Raises:
            MisuseError: the harness has none.
            Exception: whatever building it raised.

        Durability: stores nothing.

        Cancellation: it is not built, or built again when it is asked for again.
        """
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

    async def create_task(
        self,
        key: str,
        actor: StartableTask[InputT],
        task_input: InputT,
        *,
        background: bool = False,
    ) -> TaskId:
        """A task, made once for each key of this call.

        A run that starts again after a crash finds the one that an earlier run made. An ordinary
        one is this call's work: the call's end waits for it, and an abort of the call reaches it.

        Args:
            key: its identity among the tasks of this call, written out.
            actor: the task class.
            task_input: its input, when it is made now.
            background: owned by the conversation, so that it outlives the call.

        Raises:
            InvalidValue: the input is not strict JSON.
            TaskRefused: this call is being aborted.

        Durability: on return the task is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def wait_for_task(self, task_id: TaskId) -> TaskRecord:
        """Wait until a task has ended.

        Raises:
            TaskRefused: it cannot end before this call.
            StorageRequestError: there is none with this id.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        ...

    async def conversation(self, conversation_id: int) -> ConversationHandle:
        """The handle of a conversation.

        Raises:
            StorageRequestError: there is none with this id.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        ...

    async def create_conversation(
        self, key: str, *, agent: AgentChoice | None = None
    ) -> ConversationHandle:
        """A conversation that this call owns, made once for each key: a subagent.

        See `TaskActor.create_conversation`; the call's end waits for what runs in it.

        Args:
            key: its identity among the conversations of this call, written out.
            agent: what it runs with, when it is made now.

        Raises:
            UnknownModel: no installed provider serves the model of `agent`.
            TaskRefused: this call is being aborted.

        Durability: on return it exists in storage.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def call(self, tool_name: str, arguments: JsonObject, *, key: str) -> ToolResult:
        """Call another tool, once for each key of this call.

        A nested call is a task of its own, and this call's work: the call's end waits for it, and
        an abort of the call reaches it first. It is validated, noted before it runs and replayed as
        its own tool says. A run that starts again after a crash finds the one that an earlier run
        made: what that came to is returned, and nothing of it is done again that may not be.

        What goes wrong in it is no exception but an error result, in the words and with the codes
        that a model would get. The transcript has nothing of it.

        Args:
            tool_name: a tool that lets tools call it; any other is ``tool_unavailable``.
            arguments: its arguments by name, as JSON.
            key: its identity among the calls of this call, written out.

        Returns:
            Its result. What it used is counted already, and not in it.

        Raises:
            MisuseError: `key` stands for another tool or for other arguments.
            InvalidValue: the arguments are not strict JSON, or a text cannot be stored.
            TaskRefused: this call is being aborted.

        Durability: on return the result is stored; from before the tool runs, the call is.

        Cancellation: only the wait ends. A call that is stored goes on; this one ends after it.
        """
        ...
