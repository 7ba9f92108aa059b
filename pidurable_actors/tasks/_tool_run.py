"""The `ToolApi` of one run of a tool: output, details, diagnostics, and the task's own runtime.

Output is kept in a bounded buffer and stored behind the tool's back, within the time that the
settings give, or on the spot when they give none. It is progress: the result is what the tool
returns.
"""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, final, overload

import outcome
import trio

from pidurable_actors._json import JSON, JsonObject, check_json, copy_json
from pidurable_actors.agent import LIVE, ToolResult
from pidurable_actors.context import Context
from pidurable_actors.errors import InvocationEnded
from pidurable_actors.records import ConversationId, TaskId, TaskRecord
from pidurable_actors.runtime import AgentChoice, ConversationHandle, Missing, Runtime
from pidurable_actors.session import StartableTask, Tx
from pidurable_actors.tasks._nested import NestedInput, call_tool

__all__ = ["OUTPUT_CHARS", "OUTPUT_LINES", "ToolRun"]

T = TypeVar("T")
InputT = TypeVar("InputT")

OUTPUT_CHARS: Final = 50 * 1024
"""Characters of output kept; what comes first is dropped and counted."""

OUTPUT_LINES: Final = 2_000
"""Lines of output kept; what comes first is dropped and counted."""


@final
class ToolRun:
    """One run of a tool, as the tool sees it.

    Args:
        runtime: the runtime of the call's task.
        call_id: the model's id of the call.
        key: the idempotency key of the intent.
        nested: the task class of the calls that the tool makes; without it, it makes none.
    """

    def __init__(
        self,
        runtime: Runtime,
        call_id: str,
        key: str,
        *,
        nested: StartableTask[NestedInput] | None = None,
    ) -> None:
        self._runtime = runtime
        self._nested = nested
        self._call_id = call_id
        self._key = key
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""
        self._fresh: list[str] = []  # what came since it was trimmed
        self._fresh_chars = 0
        self._dropped = 0
        self._stored = ""  # what of the output the live document has
        self._dirty = trio.Event()
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

    async def output(self, chunk: str | bytes) -> None:
        """Show output; see `ToolApi.output`.

        Durability: stored within ``settings.progress.persist_within_ms``; with 0, on return.

        Cancellation: the chunk is shown or not, never half.
        """
        self._check()
        text = chunk if isinstance(chunk, str) else self._decoder.decode(chunk)
        self._keep(text.encode("utf-8", "replace").decode())
        if self._runtime.settings.progress.persist_within_ms == 0:
            await self._persist()
        else:
            self._dirty.set()
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
        return await self._runtime.commit(change)

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
        self._trim()
        if not self._dropped:
            return self._kept
        return f"[{self._dropped} characters dropped]\n{self._kept}"

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
            nursery.start_soon(self._store_regularly, storer)
            ended = await outcome.acapture(work)
            storer.cancel()
        self._keep(self._decoder.decode(b"", final=True))
        if self._runtime.context.reason in ("close", "abort") and self._stored != self.shown:
            # Only a crash may lose output; after an abort the result is often written by another
            # run, when what the call owns has ended. Bounded like every commit.
            with trio.CancelScope(shield=True):
                await self._persist()
        return ended.unwrap()

    def end(self) -> None:
        """Make every later use by the tool fail."""
        self._over = True

    async def _store_regularly(self, storer: trio.CancelScope) -> None:
        with storer:
            while True:
                await self._dirty.wait()
                # Waiting first gathers what comes meanwhile: at most one write per interval.
                await trio.sleep(self._runtime.settings.progress.persist_within_ms / 1000)
                self._dirty = trio.Event()
                await self._persist()

    async def _persist(self) -> None:
        shown, key = self.shown, str(self.task_id)

        async def change(tx: Tx) -> None:
            live = await tx.doc(LIVE, self.conversation_id)
            slot = live.tools.get(key)
            if slot is not None:
                slot.output = shown

        await self._runtime.commit(change)
        self._stored = shown

    def _keep(self, text: str) -> None:
        self._fresh.append(text)
        self._fresh_chars += len(text)
        # Trimmed once in a while, or many small pieces would each cost the whole buffer.
        if self._fresh_chars > OUTPUT_CHARS:
            self._trim()

    def _trim(self) -> None:
        whole = self._kept + "".join(self._fresh)
        lines = whole.splitlines(keepends=True)
        kept = "".join(lines[-OUTPUT_LINES:]) if len(lines) > OUTPUT_LINES else whole
        self._kept = kept[-OUTPUT_CHARS:]
        self._dropped += len(whole) - len(self._kept)
        self._fresh.clear()
        self._fresh_chars = 0

    def _check(self) -> None:
        if self._over:
            raise InvocationEnded(self.task_id)
