"""``pi.tool`` and ``pi.call``: one tool call, from the wish of a model or a tool to its one result.

Phase ``call`` resolves and validates; then the intent is stored: final arguments, replay policy and
a fresh idempotency key; phase ``execute`` runs the tool and stores its result. A run that *enters*
at ``execute`` without having passed ``call`` was cut off there, by a crash or a close: then the
stored and the present replay policy decide, and only when both agree is anything done again.

Two checkpoints are waits for people, without code: ``approval`` before the intent, when a hook
asked, and ``asked`` when the tool itself did. After the second, ``resume`` is an intent like
``execute``, of the tool's handler for the answer; what came before is never run again.

The two kinds differ in who calls, where the call is read from, and where its result goes: that of a
model's call to the transcript, that of a nested one to the outcome of its task.

Invariant: every call that reaches its task gets exactly one result, also when it is cut off too
often, aborted, or its tool is gone. A question that it waits for ends no later than the call.

Size: one task class, whose phases share how a tool is run and how its one result is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import attrs
import trio

from pidurable_actors._json import JSON, JsonObject, fingerprint
from pidurable_actors.agent import (
    CALLER,
    EXPIRED,
    LIVE,
    Agent,
    AgentServices,
    Answer,
    Approve,
    ArgumentsInvalid,
    Block,
    Expired,
    Granted,
    Limit,
    NotDone,
    Question,
    Refused,
    Tool,
    ToolCallEvent,
    ToolResult,
    Unknown,
    read_approval,
    release,
)
from pidurable_actors.records import (
    EntryId,
    FailedOutcome,
    FaultedOutcome,
    TaskOutcome,
    TaskRecord,
    ToolCallBlock,
    Usage,
)
from pidurable_actors.runtime import (
    Aborted,
    Checkpoint,
    Completed,
    Continue,
    Failed,
    Next,
    Outcome,
    ServiceLookup,
    SleepUntil,
    TaskActor,
    checkpoint_in,
    from_json,
    phase,
)
from pidurable_actors.session import Tx
from pidurable_actors.settings import RedactedCall
from pidurable_actors.tasks._composing import read_agent
from pidurable_actors.tasks._hook_run import after_tool, before_tool, on_abort
from pidurable_actors.tasks._nested import NestedInput, result_to_json
from pidurable_actors.tasks._questions import (
    Approval,
    Asked,
    Came,
    Execute,
    Intent,
    Resume,
    ask_approval,
    ask_back,
    look_at_question,
    may_have_run,
    missing_tool,
    no_handler,
    take_over,
    what_came,
    withdraw_question,
)
from pidurable_actors.tasks._redacting import Redactor
from pidurable_actors.tasks._reporting import tell_near
from pidurable_actors.tasks._rounds import find_call
from pidurable_actors.tasks._tool_budget import call_time_s, reserve_call, wall_of
from pidurable_actors.tasks._tool_results import (
    ResultCode,
    ToolInput,
    append_result,
    error_result,
    settle_call,
)
from pidurable_actors.tasks._tool_run import CallSurroundings, ToolRun, shown_output

__all__ = ["Approval", "Asked", "Call", "Execute", "NestedCall", "Resume", "ToolInput", "ToolTask"]

Step: TypeAlias = Next[Any]
"""What a phase returns; what an outcome carries is for each of the two kinds to say."""


@attrs.frozen
class Call(Checkpoint, phase="call"):
    """The call is to be resolved and validated."""


class ToolTask(TaskActor[ToolInput, JSON], kind="pi.tool", version=1, builtin=True):
    """One tool call of a model."""

    called_by: ClassVar[Literal["model", "tools"]] = "model"

    _taken: tuple[Agent, Tool] | None = None  # what the call was resolved to in this run
    _found: Tool | None = None  # the tool that was last looked up, whether it is run or not
    _wall: Limit | None = None
    _run_now: ToolRun | None = None
    _answer: Answer | Expired = EXPIRED  # to the question that this run goes on after

    def start(self) -> Call:
        """Begin with the call."""
        return Call()

    @phase(Call)
    async def call(self, at: Call) -> Step:
        """Resolve the tool, see whether the call is allowed and valid, and store the intent.

        Arguments are validated before the hooks see them, and again when a hook has rewritten them.

        Durability: the intent is stored before the tool runs.

        Cancellation: runs again in full.
        """
        block, unusable = await self._read_call()
        agent, tool = await self._resolve()
        if tool is None:
            return await self._fail("tool_unavailable", f"Tool {block.name} is not available")
        if not self._is_allowed(tool):
            return await self._not_allowed()
        if unusable:
            return await self._fail("invalid_arguments", unusable)
        try:
            tool.signature.convert(block.arguments)
            event = self._event(tool, block.arguments)
            verdict = await before_tool(self.runtime, agent, event)
            if isinstance(verdict, Block):
                return await self._blocked(verdict.reason)
            tool.signature.convert(verdict.arguments)
        except ArgumentsInvalid as error:
            return await self._invalid(error)
        if verdict.asks:
            return await self._ask_approval(verdict.arguments, verdict.asks)
        return await self._intend(agent, tool, verdict.arguments)

    @phase(Approval)
    async def approval(self, at: Approval) -> Step:
        """Do what people said of the call: go on to the intent, or not; sleep on until they have.

        Durability: an expiry is stored before anything else happens; a refusal with the result.

        Cancellation: runs again.
        """
        found = await self._look(at)
        if isinstance(found, SleepUntil):
            return found
        if found.status != "answered":
            return await self._blocked("nobody approved it in time")
        said = read_approval(found.value)
        if not said.approved:
            return await self._blocked(said.reason or "it was not approved")
        if found.fingerprint != fingerprint(at.arguments):
            return await self._blocked("somebody approved other arguments")
        arguments = at.arguments if said.arguments is None else said.arguments
        if at.asks:
            return await self._ask_approval(arguments, at.asks)
        taken = await self._take_tool(at, arguments)
        return await self._intend(*taken, arguments) if isinstance(taken, tuple) else taken

    @phase(Execute)
    async def execute(self, at: Execute) -> Step:
        """Run the tool, or apply the replay policy when an earlier run was cut off here.

        Durability: the result is stored with the end of the task.

        Cancellation: counts as cut off.
        """
        return await self._carry_out(at)

    @phase(Asked)
    async def asked(self, at: Asked) -> Step:
        """Store the intent of going on once the question has its end; until then sleep on.

        Durability: an expiry is stored before anything else happens.

        Cancellation: runs again.
        """
        found = await self._look(at)
        if isinstance(found, SleepUntil):
            return found
        taken = await self._take_tool(at, at.arguments)
        if not isinstance(taken, tuple):
            return taken
        if taken[1].on_resume is None:
            return await self._fail("tool_error", no_handler(taken[1]))
        self._taken = taken
        self._wall = await wall_of(self.runtime, taken[0])
        return Continue(Resume(**attrs.asdict(at, recurse=False)))

    @phase(Resume)
    async def resume(self, at: Resume) -> Step:
        """Run the tool's handler for the answer; cut off here, as in `execute`.

        Durability: the result is stored with the end of the task.

        Cancellation: counts as cut off.
        """
        return await self._carry_out(at)

    async def abort(self) -> Outcome:
        """Leave an error result, so that the transcript stays whole.

        Durability: stored with the end of the task.

        Cancellation: runs again at the next open.
        """
        agent, tool = self._taken or await self._resolve()
        if tool is not None and agent.hooks.get("on_abort"):
            block, _ = await self._read_call()
            intent = (checkpoint_in(self.runtime.record) or {}).get("arguments")
            arguments = intent if isinstance(intent, dict) else block.arguments
            await on_abort(self.runtime, agent, self._event(tool, arguments))
        message = f"Tool {self.input.tool_name} was aborted{may_have_run(self.runtime.record)}"
        return await self._fail("aborted", message, self._run_now)

    @classmethod
    async def ended_by_runtime(cls, tx: Tx, task: TaskRecord, outcome: TaskOutcome) -> TaskOutcome:
        """Leave an error result when the task ends without its own code.

        Durability: stored with the end of the task.

        Cancellation: the commit rolls back.
        """
        limit = isinstance(outcome, FaultedOutcome) and outcome.by_restart_limit
        task_input = from_json(task.input, ToolInput, "input[pi.tool]")
        code: ResultCode = "restart_limit" if limit else "tool_error"
        name = task_input.tool_name
        message = (
            f"Tool {name} was cut off too often{may_have_run(task)}; it is not run again"
            if limit
            else f"Tool {name} failed{may_have_run(task)}"
        )
        result = error_result(message, code, shown=await _stored_output(tx, task))
        await withdraw_question(tx, task)
        await _lose(tx, task)
        await cls._keep(tx, task, result)
        if limit:
            return FailedOutcome(error={"reason": code}, result=cls._carried(result))
        return outcome

    @classmethod
    async def blocked_by(cls, tx: Tx, task: TaskRecord, services: ServiceLookup) -> str | None:
        """The tool that is to go on after a question and is not here.

        Durability: stores nothing.

        Cancellation: it is asked again.
        """
        return await missing_tool(tx, task, services, cls.called_by)

    # --- asking people ---

    async def _look(self, at: Asked | Approval) -> SleepUntil | Question:
        return await self.commit(lambda tx: look_at_question(tx, at))

    async def _ask_approval(self, arguments: JsonObject, asks: Sequence[Approve]) -> Step:
        return await self.commit(lambda tx: ask_approval(tx, self.runtime.record, arguments, asks))

    async def _take_tool(
        self, at: Asked | Approval, arguments: JsonObject
    ) -> tuple[Agent, Tool] | Step:
        """The tool as it is now, or the step to take when it cannot be run like that."""
        agent, tool = await self._resolve()
        if tool is None:
            # Through a reservation, which finds it blocked.
            return SleepUntil(self.now_ms(), at)
        if not self._is_allowed(tool):
            return await self._not_allowed()
        try:
            tool.signature.convert(arguments)
        except ArgumentsInvalid as error:
            return await self._invalid(error)
        return agent, tool

    # --- running ---

    async def _intend(self, agent: Agent, tool: Tool, arguments: JsonObject) -> Step:
        """Store the intent, with what the call may use reserved."""
        key = self.runtime.service(AgentServices).chance.key()
        intent = Execute(arguments=arguments, replay=tool.replay, key=key)
        granted = Granted()

        async def store(tx: Tx) -> Step | Refused:
            nonlocal granted
            found = await reserve_call(tx, self.runtime, agent, tool)
            if isinstance(found, Refused):
                return found
            granted = found
            return Continue(intent)

        step = await self.commit(store)
        if isinstance(step, Refused):
            return await self._fail("blocked", f"Tool {tool.name} was not run: {step.words}")
        self._taken, self._wall = (agent, tool), granted.wall
        tell_near(self.runtime, granted.near)
        return step

    async def _carry_out(self, at: Execute | Resume) -> Step:
        """Run what was intended, or what the replay policy says when an earlier run was cut off."""
        if self._taken is not None:
            # The code that the intent was stored for, whatever was installed since.
            return await self._run(self._taken[1], at)
        agent, tool = await self._resolve()
        if tool is not None:
            self._taken = agent, tool
            self._wall = await wall_of(self.runtime, agent)
        if tool is not None and at.replay == tool.replay == "safe":
            return await self._run(tool, at)
        if tool is not None and at.replay == tool.replay == "reconcile":
            return await self._reconcile(tool, at)
        return await self._interrupted()

    async def _run(self, tool: Tool, at: Execute | Resume) -> Step:
        timeout_s = call_time_s(self.runtime, tool, self._wall)
        with self._begin(at) as run:
            await self._take_over(run, at)
            came: Came | None = None
            try:
                with trio.CancelScope() as deadline:
                    if timeout_s is not None:
                        deadline.deadline = trio.current_time() + timeout_s
                    came = what_came(tool, await run.storing(self._code(tool, at, run)))
            except Exception as error:  # noqa: BLE001 - a tool's error is the model's to read
                return await self._fail("tool_error", f"{type(error).__name__}: {error}", run)
            finally:
                run.end()
            if self.context.reason == "abort":
                # The stop wins over a value that comes in spite of it: the runtime drops this step,
                # says so, and runs the abort handler.
                return Completed(None)
            if came is None or deadline.cancel_called:
                return await self._fail(
                    "timeout", f"Tool {tool.name} did not finish within {timeout_s:g} s", run
                )
            return await self._store(came, run, at)

    def _code(
        self, tool: Tool, at: Execute | Resume, run: ToolRun
    ) -> Callable[[], Awaitable[object]]:
        """What is to be run: the tool, or its handler for an answer."""
        arguments = tool.signature.convert(at.arguments)
        if isinstance(at, Execute):
            if tool.wants_api:
                arguments["api"] = run
            return lambda: tool.execute(**arguments)
        handler = tool.on_resume
        if handler is None:
            raise TypeError(no_handler(tool))
        return lambda: handler(self._answer, at.state, arguments, run)

    async def _reconcile(self, tool: Tool, at: Execute | Resume) -> Step:
        assert tool.on_reconcile is not None, "checked when the extension was made"
        handler = tool.on_reconcile
        with self._begin(at) as run:
            await self._take_over(run, at)
            came: Came | None = None
            try:
                arguments = tool.signature.convert(at.arguments)
                found = await run.storing(lambda: handler(arguments, run))
                if not isinstance(found, NotDone | Unknown):
                    came = what_came(tool, found)
            except Exception as error:  # noqa: BLE001 - a handler that fails cannot tell
                self.report(error)
                return await self._interrupted()
            finally:
                run.end()
            if came is not None:
                return await self._store(came, run, at)
            if isinstance(found, NotDone):
                return await self._run(tool, at)
            return await self._interrupted()

    def _begin(self, at: Execute | Resume) -> ToolRun:
        assert self._taken is not None, "what runs was resolved"
        agent, tool = self._taken
        around = CallSurroundings(tool_name=tool.name, cwd=agent.cwd, redactor=self._redactor(tool))
        self._run_now = ToolRun(
            self.runtime, self.input.call_id, at.key, around=around, nested=NestedCall
        )
        return self._run_now

    def _redactor(self, tool: Tool | None) -> Redactor:
        call = RedactedCall(
            tool_name=self.input.tool_name,
            call_id=self.input.call_id,
            conversation_id=self.conversation_id,
        )
        own = None if tool is None else tool.redact
        return Redactor((own, self.settings.redact), call, self.report)

    async def _take_over(self, run: ToolRun, at: Execute | Resume) -> None:
        if isinstance(at, Resume):
            record = self.runtime.record
            self._answer = await self.runtime.look(lambda tx: take_over(tx, record, run, at))

    async def _blocked(self, why: str) -> Step:
        return await self._fail("blocked", f"Tool {self.input.tool_name} was blocked: {why}")

    async def _not_allowed(self) -> Step:
        name = self.input.tool_name
        return await self._fail("blocked", f"Tool {name} is not allowed for this caller")

    async def _invalid(self, error: ArgumentsInvalid) -> Step:
        return await self._fail("invalid_arguments", f"Invalid arguments: {error}")

    async def _interrupted(self) -> Step:
        name = self.input.tool_name
        return await self._fail(
            "interrupted", f"Tool {name} was interrupted and may have partially run"
        )

    # --- results ---

    async def _store(self, came: Came, run: ToolRun, at: Execute | Resume) -> Step:
        # What exists must not be lost to a cancellation that comes before it is stored.
        # Bounded: hooks by their time limit, the line by the limit on callbacks, the storage by its
        # own time limit.
        with trio.CancelScope(shield=True):
            if not isinstance(came, ToolResult):
                asks = came
                return await self.commit(
                    lambda tx: ask_back(tx, self.runtime.record, asks, at, run)
                )
            result = attrs.evolve(
                came,
                details=run.detail if came.details is None else came.details,
                diagnostics=(*came.diagnostics, *run.diagnostics),
            )
            return await self._settle(result, at)
        raise AssertionError("nobody cancels the shield")

    async def _settle(self, result: ToolResult, at: Intent) -> Step:
        if self._taken is not None:
            agent, tool = self._taken
            event = self._event(tool, at.arguments)
            result = await after_tool(self.runtime, agent, event, result)
            result = self._redactor(tool).result(result)
        ending = Completed(self._carried(result))

        async def settle(tx: Tx) -> Step:
            await self._keep(tx, self.runtime.record, result)
            return ending

        await self.commit(settle)
        return ending

    async def _fail(
        self, code: ResultCode, message: str, run: ToolRun | None = None
    ) -> Failed | Aborted:
        redactor = self._redactor(self._found)
        told = redactor.text(message)

        async def settle(tx: Tx) -> Failed | Aborted:
            record = self.runtime.record
            shown = await _stored_output(tx, record) if run is None else run.shown
            result = error_result(
                told,
                code,
                shown=shown,
                details=None if run is None else run.detail,
                diagnostics=() if run is None else run.diagnostics,
            )
            # Its text is redacted already, and its first diagnostic is a word of the harness.
            clean, told_first = redactor.result(result), result.diagnostics[:1]
            diagnostics = (*told_first, *clean.diagnostics[1:])
            result = attrs.evolve(clean, content=result.content, diagnostics=diagnostics)
            await withdraw_question(tx, record)
            await _lose(tx, record)
            await self._keep(tx, record, result)
            if code == "aborted":
                return Aborted(told)
            return Failed({"code": code, "message": told}, result=self._carried(result))

        return await self.commit(settle)

    @classmethod
    async def _keep(cls, tx: Tx, task: TaskRecord, result: ToolResult) -> None:
        """Store the result beside the outcome."""
        await append_result(tx, from_json(task.input, ToolInput, "input"), task, result)

    @classmethod
    def _carried(cls, result: ToolResult) -> JSON:
        """What the outcome itself has of the result."""
        return None

    # --- looking up ---

    async def _resolve(self) -> tuple[Agent, Tool | None]:
        """What the conversation runs with now, and the tool of the call in it."""
        agent = await read_agent(self.runtime)
        self._found = agent.tool(self.input.tool_name, self.called_by)
        return agent, self._found

    def _event(self, tool: Tool, arguments: JsonObject) -> ToolCallEvent:
        return ToolCallEvent(
            call_id=self.input.call_id, tool=tool, arguments=arguments, called_by=self.called_by
        )

    def _is_allowed(self, tool: Tool) -> bool:
        try:
            return tool.allows(self.context.get(CALLER))
        except Exception as error:  # noqa: BLE001 - a predicate that fails allows nothing
            self.report(error)
            return False

    async def _read_call(self) -> tuple[ToolCallBlock, str]:
        """The call, and what is wrong with it; empty when it can be run."""
        return find_call(await self.entry(EntryId(self.input.entry)), self.input.call_id)


class NestedCall(ToolTask, kind="pi.call", version=1, builtin=True):
    """One tool call of a tool; made by `ToolApi.call`."""

    called_by = "tools"

    @classmethod
    async def _keep(cls, tx: Tx, task: TaskRecord, result: ToolResult) -> None:
        called = from_json(task.input, ToolInput, "input")
        await settle_call(tx, called.tool_name, task, result.usage)

    @classmethod
    def _carried(cls, result: ToolResult) -> JSON:
        return result_to_json(result)

    async def _read_call(self) -> tuple[ToolCallBlock, str]:
        called = from_json(self.runtime.record.input, NestedInput, "input")
        await trio.lowlevel.checkpoint()
        block = ToolCallBlock(id=called.call_id, name=called.tool_name, arguments=called.arguments)
        return block, ""


async def _lose(tx: Tx, task: TaskRecord) -> None:
    """Count what a call may have used that ends without a result of its tool."""
    if may_have_run(task):
        await release(tx, task.conversation_id, task.id, reported=Usage())


async def _stored_output(tx: Tx, task: TaskRecord) -> str:
    live = await tx.doc(LIVE, task.conversation_id)
    slot = live.tools.get(str(task.id))
    return "" if slot is None else shown_output(str(slot.output), slot.dropped)
