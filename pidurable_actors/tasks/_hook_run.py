"""Asking hooks and sections: what their api does, and what happens when one of them raises.

A hook fails only its own part: what it raises is reported and the hook skipped, except where its
caller says otherwise.

Size: the api of hooks, and one short function for each point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast, final, overload

import attrs
import trio

from pidurable_actors._json import JSON, JsonObject, check_json, check_text, copy_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.agent import (
    Agent,
    Approve,
    Block,
    CompactionEvent,
    Hook,
    HookPoint,
    Rewrite,
    Skip,
    Summary,
    ToolCallEvent,
    ToolResult,
)
from pidurable_actors.context import Context
from pidurable_actors.errors import InvalidValue
from pidurable_actors.models import ModelRequest
from pidurable_actors.records import (
    ASSISTANT,
    AssistantMessage,
    ConversationId,
    EntryDraft,
    TaskId,
    ToolResultMessage,
)
from pidurable_actors.records.codec import check_readable
from pidurable_actors.runtime import ConversationHandle, Missing, Runtime
from pidurable_actors.session import DocumentDefinition, Tx
from pidurable_actors.settings import Settings
from pidurable_actors.tasks._own_commit import own_commit
from pidurable_actors.tasks._reporting import tell
from pidurable_actors.tasks._tool_results import as_result

__all__ = [
    "FAILED",
    "Cleared",
    "HookRun",
    "after_response",
    "after_tool",
    "after_tools",
    "ask_hook",
    "before_compact",
    "before_request",
    "before_tool",
    "hook_failed",
    "on_abort",
    "on_yield",
]

T = TypeVar("T")
D = TypeVar("D")

FAILED: Final = object()
"""What a hook came to that raised, or returned what it must not."""


@final
@attrs.frozen
class Cleared:
    """A call that no hook blocked: its arguments, and what people are to be asked before it."""

    arguments: JsonObject
    asks: tuple[Approve, ...] = ()


@final
class HookRun:
    """The `HookApi` of one extension in one run of a task.

    Args:
        runtime: of the task.
        extension: whose hook or section it is; its memos are its own.
    """

    def __init__(self, runtime: Runtime, extension: str) -> None:
        self._runtime = runtime
        self._extension = extension

    @property
    def task_id(self) -> TaskId:
        """The task that asks."""
        return self._runtime.task_id

    @property
    def conversation_id(self) -> ConversationId:
        """The conversation."""
        return self._runtime.conversation_id

    @property
    def context(self) -> Context:
        """The context of the run."""
        return self._runtime.context

    @property
    def settings(self) -> Settings:
        """The harness's settings."""
        return self._runtime.settings

    def now_ms(self) -> int:
        """Durable time."""
        return self._runtime.now_ms()

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]]) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T]) -> T: ...

    async def commit(self, change: Callable[[Tx], Any]) -> Any:
        """Commit, bound to the conversation; see `HookApi.commit`.

        Durability: stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        return await own_commit(self._runtime, change)

    async def memo(self, name: str) -> JSON | Missing:
        """A memo of the extension; see `HookApi.memo`.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        return await self._runtime.memo(self._memo(name))

    async def set_memo(self, name: str, value: JSON) -> JSON:
        """Record a memo of the extension; see `HookApi.set_memo`.

        Durability: the winner is stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        return await self._runtime.set_memo(self._memo(name), value)

    async def snapshot(self, definition: DocumentDefinition[D], *, key: str = "") -> D:
        """A document of the conversation; see `HookApi.snapshot`.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        return await (await self.conversation()).snapshot(definition, key=key)

    async def conversation(self, conversation_id: int | None = None) -> ConversationHandle:
        """The handle of a conversation; see `HookApi.conversation`.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        wanted = self.conversation_id if conversation_id is None else conversation_id
        return await self._runtime.conversation(wanted)

    def _memo(self, name: str) -> str:
        # Escaped, so that no two pairs of extension and name come to the same.
        owner = self._extension.replace("~", "~0").replace("/", "~1")
        return f"pi.hook/{owner}/{name}"


async def before_request(runtime: Runtime, agent: Agent, request: ModelRequest) -> ModelRequest:
    """The request as the hooks want it sent.

    Durability: stores nothing of itself.

    Cancellation: the hooks may run again.
    """
    for name, hook in agent.hooks.get("before_request", ()):
        found = await ask_hook(runtime, name, hook, request, returns=ModelRequest)
        request = cast("ModelRequest", request if found in (None, FAILED) else found)
    return request


async def after_response(
    runtime: Runtime, agent: Agent, message: AssistantMessage
) -> AssistantMessage:
    """The answer as the hooks want it stored.

    Durability: stores nothing of itself.

    Cancellation: the hooks may run again.
    """
    for name, hook in agent.hooks.get("after_response", ()):
        found = await ask_hook(
            runtime, name, hook, message, returns=AssistantMessage, check=_check_answer
        )
        if isinstance(found, AssistantMessage):
            # Who was asked and what that used is no matter of opinion.
            message = attrs.evolve(found, model=message.model, usage=message.usage)
    return message


async def on_yield(runtime: Runtime, agent: Agent, message: AssistantMessage) -> str | None:
    """What the first hook says that wants the run to go on; None when none does.

    Durability: stores nothing of itself.

    Cancellation: the hooks may run again.
    """
    for name, hook in agent.hooks.get("on_yield", ()):
        found = await ask_hook(runtime, name, hook, message, returns=str, check=_check_said)
        if found is not FAILED and found:
            return cast("str", found)
    return None


async def after_tools(runtime: Runtime, agent: Agent, results: Sequence[ToolResultMessage]) -> None:
    """Tell the hooks of the results of a round.

    Durability: stores nothing of itself.

    Cancellation: the hooks may run again.
    """
    for name, hook in agent.hooks.get("after_tools", ()):
        await ask_hook(runtime, name, hook, results, returns=type(None))


async def before_tool(runtime: Runtime, agent: Agent, event: ToolCallEvent) -> Block | Cleared:
    """What becomes of a call: blocked, or its arguments as the hooks left them and their questions.

    A hook that raises blocks it: what could not be asked was not allowed.

    Durability: stores nothing of itself.

    Cancellation: the hooks may run again.
    """
    arguments = event.arguments
    asks: list[Approve] = []
    for name, hook in agent.hooks.get("before_tool", ()):
        # Each gets a copy: what is not returned changes nothing.
        asked = attrs.evolve(event, arguments=_copied(arguments))
        found = await ask_hook(
            runtime, name, hook, asked, returns=(Block, Rewrite, Approve), check=_check_verdict
        )
        if found is FAILED:
            return Block(f"a check of extension {name!r} failed")
        if isinstance(found, Block):
            return found
        if isinstance(found, Rewrite):
            arguments = _copied(found.arguments)
        elif isinstance(found, Approve):
            asks.append(found)
    return Cleared(arguments, tuple(asks))


async def after_tool(
    runtime: Runtime, agent: Agent, event: ToolCallEvent, result: ToolResult
) -> ToolResult:
    """The result as the hooks want it stored.

    Durability: stores nothing of itself.

    Cancellation: the hooks may run again.
    """
    for name, hook in agent.hooks.get("after_tool", ()):
        with _in_time(runtime, name, hook):
            found = await ask_hook(
                runtime,
                name,
                hook,
                attrs.evolve(event, arguments=_copied(event.arguments)),
                result,
                returns=ToolResult,
                check=lambda it: as_result(event.tool.name, it),
            )
            if isinstance(found, ToolResult):
                result = found
    return result


async def on_abort(runtime: Runtime, agent: Agent, event: ToolCallEvent) -> None:
    """Tell the hooks of a call that is aborted.

    Durability: stores nothing of itself.

    Cancellation: the hooks run again at the next open.
    """
    for name, hook in agent.hooks.get("on_abort", ()):
        with _in_time(runtime, name, hook):
            asked = attrs.evolve(event, arguments=_copied(event.arguments))
            await ask_hook(runtime, name, hook, asked, returns=type(None))


async def before_compact(
    runtime: Runtime, agent: Agent, event: CompactionEvent
) -> Skip | Summary | None:
    """What the first hook says that decides; None when a model is to be asked.

    Durability: stores nothing of itself.

    Cancellation: the hooks may run again.
    """
    for name, hook in agent.hooks.get("before_compact", ()):
        found = await ask_hook(
            runtime, name, hook, event, returns=(Skip, Summary), check=_check_summary
        )
        if isinstance(found, Skip | Summary):
            return found
    return None


async def ask_hook(
    runtime: Runtime,
    extension: str,
    hook: Hook,
    *about: object,
    returns: type | tuple[type, ...],
    check: Callable[[Any], object] | None = None,
) -> object:
    """Ask one hook.

    Args:
        runtime: of the task that asks.
        extension: whose hook it is.
        hook: the hook.
        about: what it is given before its api.
        returns: what it may return, besides None.
        check: raises for a value of that type that will not do.

    Returns:
        What it returned; `FAILED` when it raised or returned something else, which is reported.

    Durability: stores nothing of itself.

    Cancellation: the hook may run again.
    """
    try:
        found = await hook.function(*about, HookRun(runtime, extension))
        if found is not None:
            if not isinstance(found, returns):
                raise TypeError(_not_for_it(found, returns))  # noqa: TRY301 - as its own
            if check is not None:
                check(found)
    except Exception as error:  # noqa: BLE001 - a hook fails only its own part
        hook_failed(runtime, extension, hook.point, error)
        return FAILED
    return found


def hook_failed(runtime: Runtime, extension: str, what: HookPoint | str, error: Exception) -> None:
    """Report what a hook or a section raised."""
    detail = f"extension {extension!r}: {type(error).__name__}: {error}"
    tell(runtime, "hook_failed", reason=what, detail=detail, error=error)


@contextmanager
def _in_time(runtime: Runtime, extension: str, hook: Hook) -> Iterator[None]:
    """Give up a hook that holds back what must come to an end."""
    with trio.move_on_after(LIMITS.hook_s) as limit:
        yield
    if limit.cancelled_caught:
        late = TimeoutError(f"it took longer than {LIMITS.hook_s:g} s")
        hook_failed(runtime, extension, hook.point, late)


def _not_for_it(found: object, returns: type | tuple[type, ...]) -> str:
    kinds = returns if isinstance(returns, tuple) else (returns,)
    wanted = [kind.__name__ for kind in kinds if kind is not type(None)]
    return f"it returned {type(found).__name__}; return {' or '.join([*wanted, 'None'])}"


def _check_answer(message: AssistantMessage) -> None:
    check_readable(EntryDraft(kind=ASSISTANT, model=(message,)))
    for call_id, count in Counter(call.id for call in message.tool_calls).items():
        if count > 1 or not call_id:
            raise ValueError(f"it returned {count} calls with the id {call_id!r}")


def _check_said(text: str) -> None:
    check_text(text, "text")


def _check_summary(said: Skip | Summary) -> None:
    if isinstance(said, Skip):
        check_text(said.reason, "reason")
        return
    check_text(said.text, "summary")
    if not said.text.strip():
        raise InvalidValue("summary", "a summary has some text; return Skip() to make none")


def _check_verdict(verdict: Block | Rewrite | Approve) -> None:
    match verdict:
        case Block():
            check_text(verdict.reason, "reason")
        case Rewrite():
            check_json(verdict.arguments, "arguments")
        case Approve():
            pass  # It is checked when it is made.


def _copied(arguments: JsonObject) -> JsonObject:
    return cast("JsonObject", copy_json(arguments))
