"""The `ToolApi` of one run of a tool: output, details, diagnostics, and the task's own runtime.

Output is kept in a bounded buffer and stored behind the tool's back, within the time that the
settings give, or on the spot when they give none. It is progress: the result is what the tool
returns.

Size: one public class; most of it is what its calls promise.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final, Self, TypeVar, cast, final, overload

import attrs
import outcome
import trio

from pidurable_actors._frozen import FrozenText
from pidurable_actors._json import JSON, JsonObject, check_json, copy_json
from pidurable_actors.agent import LIVE, AgentServices, EnvTarget, LiveState, ToolResult, ToolSlot
from pidurable_actors.context import Context
from pidurable_actors.errors import InvocationEnded, MisuseError
from pidurable_actors.models import Models
from pidurable_actors.records import ConversationId, TaskId, TaskRecord
from pidurable_actors.runtime import (
    ConversationHandle,
    Missing,
    ProgressBoard,
    Runtime,
)
from pidurable_actors.session import StartableTask, Tx
from pidurable_actors.settings import AgentChoice
from pidurable_actors.tasks._asking import Came, follow
from pidurable_actors.tasks._nested import NestedInput, call_tool
from pidurable_actors.tasks._own_commit import own_commit
from pidurable_actors.tasks._redacting import Redactor

__all__ = ["OUTPUT_CHARS", "OUTPUT_LINES", "CallSurroundings", "Paused", "ToolRun", "shown_output"]

T = TypeVar("T")
InputT = TypeVar("InputT")

OUTPUT_CHARS: Final = 50 * 1024
"""Characters of output kept; what comes first is dropped and counted."""

OUTPUT_LINES: Final = 2_000
"""Lines of output kept; what comes first is dropped and counted."""


@final
@attrs.frozen
class Paused:
    """A run that asked a question: how much it had put out, and what it had said of its result."""

    chars: int = 0
    details: JSON = None
    diagnostics: list[JsonObject] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class CallSurroundings:
    """What a call has of its process and its agent.

    Attributes:
        tool_name: the tool.
        cwd: the working directory of the conversation's tools.
        redactor: of what the call puts out.
    """

    tool_name: str
    cwd: str | None
    redactor: Redactor


@final
class ToolRun:
    """One run of a tool, as the tool sees it.

    Args:
        runtime: the runtime of the call's task.
        call_id: the model's id of the call.
        key: the idempotency key of the intent.
        around: what the call has of its process and its agent.
        nested: the task class of the calls that the tool makes; without it, it makes none.
    """

    def __init__(
        self,
        runtime: Runtime,
        call_id: str,
        key: str,
        *,
        around: CallSurroundings,
        nested: StartableTask[NestedInput] | None = None,
    ) -> None:
        self._runtime = runtime
        self._nested = nested
        self._around = around
        self._env: object = None
        self._call_id = call_id
        self._key = key
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._output = FrozenText()
        self._chars = 0  # all output so far
        self._lines: deque[int] = deque()  # where the kept lines end, counted from the first
        self._stored = 0  # how much of all output the live document has
        self._line_is_whole = True
        self._came = Came()
        self._shown_while = ExitStack()
        self._show: Callable[[], None] = _nobody_looks
        self._over = False
        self.detail: JSON = None
        self.diagnostics: list[JsonObject] = []

    # --- the tool's side (`ToolApi`) ---

    @property
    def call_id(self) -> str:
        """The model's id of the call."""
        return self._call_id

    @property
    def task_id(self) -> TaskId:
        """The task of the call."""
        return self._runtime.task_id

    @property
    def conversation_id(self) -> ConversationId:
        """Its conversation."""
        return self._runtime.conversation_id

    @property
    def idempotency_key(self) -> str:
        """The key stored with the intent."""
        return self._key

    @property
    def context(self) -> Context:
        """The context of the run."""
        return self._runtime.context

    @property
    def cwd(self) -> str | None:
        """The working directory of the conversation's tools."""
        return self._around.cwd

    @property
    def models(self) -> Models:
        """The model providers of the process."""
        return self._runtime.service(AgentServices).models

    async def env(self) -> Any:
        """The environment of the call; see `ToolApi.env`.

        Durability: stores nothing.

        Cancellation: it is not built, or built again when it is asked for again.
        """
        self._check()
        build = self._runtime.service(AgentServices).env
        if build is None:
            raise MisuseError("this harness has no environments; open it with env=.")
        if self._env is None:
            target = EnvTarget(
                conversation_id=self.conversation_id,
                cwd=self.cwd,
                tool_name=self._around.tool_name,
                call_id=self._call_id,
            )
            self._env = await build(target)
        return self._env

    async def output(self, chunk: str | bytes) -> None:
        """Show output; see `ToolApi.output`.

        Durability: stored within ``settings.progress.persist_within_ms``; with 0, on return.

        Cancellation: the chunk is shown or not, never half.
        """
        self._check()
        text = chunk if isinstance(chunk, str) else self._decoder.decode(chunk)
        whole = text.encode("utf-8", "replace").decode()
        self._keep(self._around.redactor.output(whole))
        if self._runtime.settings.progress.persist_within_ms == 0:
            await self._persist()
        else:
            self._came.tell()
            await trio.lowlevel.checkpoint()

    def details(self, value: JSON) -> None:
        """Set the result's details."""
        self._check()
        check_json(value, "details")
        self.detail = copy_json(value)

    def diagnostic(self, code: str, message: str) -> None:
        """Add a diagnostic to the result."""
        self._check()
        check_json([code, message], "diagnostic")
        self.diagnostics.append({"code": code, "message": message})

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]]) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T]) -> T: ...

    async def commit(self, change: Callable[[Tx], Any]) -> Any:
        """Commit, bound to the conversation.

        Durability: stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._check()
        return await own_commit(self._runtime, change)

    async def memo(self, name: str) -> JSON | Missing:
        """The value recorded under `name`.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        self._check()
        return await self._runtime.memo(name)

    async def set_memo(self, name: str, value: JSON) -> JSON:
        """Record a value under `name`; the first writer wins.

        Durability: the winner is stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._check()
        return await self._runtime.set_memo(name, value)

    async def create_task(
        self,
        key: str,
        actor: StartableTask[InputT],
        task_input: InputT,
        *,
        background: bool = False,
    ) -> TaskId:
        """A task, made once for each key; see `ToolApi.create_task`.

        Durability: on return the task is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._check()
        name = f"pi.task/{key}"

        async def once(tx: Tx) -> TaskId:
            known = (await tx.task(self.task_id)).memos.get(name)
            if isinstance(known, int):
                return TaskId(known)
            owner = None if background else self.task_id
            made = tx.create_task(actor, task_input, owner=owner, background=background)
            tx.set_memo(self.task_id, name, made)
            return made

        return await self._runtime.commit(once)

    async def wait_for_task(self, task_id: TaskId) -> TaskRecord:
        """Wait until a task has ended.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        self._check()
        return await self._runtime.wait_for_task(task_id)

    async def conversation(self, conversation_id: int) -> ConversationHandle:
        """The handle of a conversation.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        self._check()
        return await self._runtime.conversation(conversation_id)

    async def create_conversation(
        self, key: str, *, agent: AgentChoice | None = None
    ) -> ConversationHandle:
        """A conversation that the call owns; see `ToolApi.create_conversation`.

        Durability: on return it exists in storage.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        self._check()
        return await self._runtime.create_conversation(key, agent=agent)

    async def call(self, tool_name: str, arguments: JsonObject, *, key: str) -> ToolResult:
        """Call another tool, once for each key; see `ToolApi.call`.

        Durability: on return the result is stored.

        Cancellation: only the wait ends; what was stored goes on.
        """
        self._check()
        assert self._nested is not None, "the task of a call says what nested calls are"
        return await call_tool(self._runtime, self._nested, tool_name, arguments, key=key)

    # --- the task's side ---

    @property
    def shown(self) -> str:
        """The output kept, with a note on what was dropped."""
        return shown_output(str(self._output), self._dropped)

    @property
    def _dropped(self) -> int:
        return self._chars - len(self._output)

    def __enter__(self) -> Self:
        """Show its output until its result is stored, so that no commit in between hides it."""
        board = self._runtime.service(ProgressBoard)
        self._show = self._shown_while.enter_context(
            board.showing(self.conversation_id, self.write)
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Show it no more."""
        self._shown_while.close()

    @property
    def paused(self) -> Paused:
        """What must be known to go on after a question as if there had been no pause."""
        # It is stored with the question.
        clean = self._around.redactor.json
        diagnostics = [cast(JsonObject, clean(it)) for it in self.diagnostics]
        return Paused(self._chars, copy_json(clean(self.detail)), diagnostics)

    def go_on(self, paused: Paused, stored: ToolSlot) -> None:
        """Take over what the run before a question left.

        Args:
            paused: what it was when the question was asked.
            stored: the slot of the call; it may have output of a run since that was cut off.
        """
        self._chars = min(paused.chars, stored.dropped)
        self._keep(str(stored.output)[: paused.chars - self._chars])
        self.detail = copy_json(paused.details)
        self.diagnostics = [dict(it) for it in paused.diagnostics]

    async def storing(self, work: Callable[[], Awaitable[object]]) -> object:
        """Run `work`; store output behind its back meanwhile.

        What it returns or raises comes out as it is: not in a group, and not lost to a
        cancellation that it did not let through.

        Durability: what was shown `persist_within_ms` ago is stored.

        Cancellation: cancels `work`.
        """
        # Shielded, so that a cancellation from outside reaches the work alone: a result that the
        # work has all the same is not lost on the way out. Bounded by the end of the work.
        storer = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, storer)
            ended = await outcome.acapture(work)
            storer.cancel()
        rest = self._decoder.decode(b"", final=True)
        self._keep(self._around.redactor.output(rest, final=True))
        if self._runtime.context.reason in ("close", "abort") and self._stored != self._chars:
            # Only a crash may lose output; after an abort the result is often written by another
            # run, when what the call owns has ended. Bounded like every commit.
            with trio.CancelScope(shield=True):
                await self._persist()
        return ended.unwrap()

    def end(self) -> None:
        """Make every later use by the tool fail."""
        self._over = True

    async def _follow(self, storer: trio.CancelScope) -> None:
        progress = self._runtime.settings.progress
        if progress.persist_within_ms:
            with storer:
                await follow(self._came, progress, self._show, self._persist)

    async def _persist(self) -> None:
        chars = self._chars

        async def change(tx: Tx) -> None:
            self.write(await tx.doc(LIVE, self.conversation_id))

        await self._runtime.commit(change)
        self._stored = chars

    def write(self, live: LiveState) -> None:
        """Bring a draft of the live document up to date; it has a beginning of all output."""
        slot = live.tools.get(str(self.task_id))
        if slot is None:
            return
        known = slot.dropped + len(slot.output)
        if known < self._chars:
            slot.output.append(self._output.since(max(0, known - self._dropped)))
        if slot.dropped < self._dropped:
            slot.output.trim_front(len(slot.output) - len(self._output))
            slot.dropped = self._dropped

    def _keep(self, text: str) -> None:
        if not text:
            return
        self._output = self._output.append(text)
        for line in text.splitlines(keepends=True):
            self._chars += len(line)
            if self._lines and not self._line_is_whole:
                self._lines[-1] = self._chars
            else:
                self._lines.append(self._chars)
            self._line_is_whole = line.splitlines() != [line]
        self._trim()

    def _trim(self) -> None:
        first = self._chars - OUTPUT_CHARS
        while len(self._lines) > OUTPUT_LINES:
            first = max(first, self._lines.popleft())
        if first > self._dropped:
            self._output = self._output.trim_front(first - self._dropped)
        while self._lines and self._lines[0] <= self._dropped:
            self._lines.popleft()

    def _check(self) -> None:
        if self._over:
            raise InvocationEnded(self.task_id)


def shown_output(output: str, dropped: int) -> str:
    """Output as it is shown, with a note on what was dropped before it."""
    return f"[{dropped} characters dropped]\n{output}" if dropped else output


def _nobody_looks() -> None:
    """What a run shows before it begins."""
