"""``pi.generation``: one run, from the placed input to its answer.

Phases ``prepare`` (pin the model), ``request`` (ask it), ``retry`` (wait after a failure) and
``tools`` (wait for a round of calls). A request that a crash cut off counts as a failed attempt and
its stored half answer is kept; one that a clean close cut off is sent again at once. Which it was
is read from the record: a crash counts a restart, and entering a phase clears the count.

Size: one state machine; its phases and the ways a request can end are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import attrs

from pidurable_actors._json import JSON
from pidurable_actors.agent import (
    AGENT,
    CALLER,
    LIVE,
    PROVIDER,
    USAGE,
    AgentServices,
    GenerationInput,
    GenerationState,
    LiveState,
    Tool,
    ToolSlot,
    answer_run,
    fail_run,
    place_steering,
    place_writes,
)
from pidurable_actors.context import ContextKey
from pidurable_actors.errors import ProviderError, UnknownModel
from pidurable_actors.models import (
    Accumulator,
    ModelOptions,
    ModelProvider,
    ModelRequest,
    ThinkingLevel,
)
from pidurable_actors.records import (
    ASSISTANT,
    AssistantMessage,
    EntryDraft,
    EntryId,
    FaultedOutcome,
    SubmissionId,
    TaskId,
    TaskOutcome,
    TaskRecord,
    ToolCallBlock,
    UnansweredReason,
    Usage,
    model_context,
)
from pidurable_actors.runtime import (
    Aborted,
    Checkpoint,
    Completed,
    Continue,
    Failed,
    Next,
    Outcome,
    ProgressBoard,
    Report,
    SleepUntil,
    TaskActor,
    WaitFor,
    checkpoint_in,
    phase,
)
from pidurable_actors.session import Tx
from pidurable_actors.tasks._asking import ask
from pidurable_actors.tasks._half_answer import has_half, take_half, write_half
from pidurable_actors.tasks._retry import backoff_ms, may_retry
from pidurable_actors.tasks._rounds import answer_unstarted, calls_of, unusable_calls
from pidurable_actors.tasks._tool_results import ToolInput
from pidurable_actors.tasks.tool import ToolTask

__all__ = ["Generation", "Prepare", "Request", "Retry", "Tools"]

Answer: TypeAlias = int | None


@attrs.frozen
class Prepare(Checkpoint, phase="prepare"):
    """The model is to be chosen."""


@attrs.frozen
class Request(Checkpoint, phase="request"):
    """The model is asked; `newest` is the last id that existed when this was decided."""

    model: str
    attempt: int
    newest: int


@attrs.frozen
class Retry(Checkpoint, phase="retry"):
    """The model is asked again when the wait is over."""

    model: str
    attempt: int


@attrs.frozen
class Tools(Checkpoint, phase="tools"):
    """The calls of `entry` are answered by tool tasks; the first `started` calls have one."""

    entry: int
    started: int


class Generation(TaskActor[GenerationInput, Answer], kind="pi.generation", builtin=True):
    """One run of a conversation."""

    _answer: Accumulator | None = None
    _attempt = 0

    def start(self) -> Prepare:
        """Begin by choosing the model."""
        return Prepare()

    @phase(Prepare)
    async def prepare(self, at: Prepare) -> Next[Answer]:
        """Pin the model and the transcript.

        Durability: the request is stored before it is sent.

        Cancellation: runs again.
        """
        return await self.commit(self._next_request)

    @phase(Retry)
    async def retry(self, at: Retry) -> Next[Answer]:
        """The wait is over.

        Durability: the new attempt is stored before it is sent.

        Cancellation: runs again.
        """

        async def again(tx: Tx) -> Next[Answer]:
            generation = await self._generation(tx)
            generation.attempt = at.attempt
            generation.retry_at_ms = None
            generation.error = None
            return Continue(Request(at.model, at.attempt, tx.next_id - 1))

        return await self.commit(again)

    @phase(Request)
    async def request(self, at: Request) -> Next[Answer]:
        """Ask the model and store what it answers.

        Durability: the answer, its usage and the tasks of its calls are stored together.

        Cancellation: a close sends the request again; a crash counts a failed attempt.
        """
        if self.runtime.record.restarts:
            return await self._cut_off(at)
        self._attempt, self._answer = at.attempt, Accumulator()
        try:
            provider, request = await self._build(at)
        except UnknownModel as error:
            return await self._fail("no_model", str(error))
        except Exception as error:  # noqa: BLE001 - what a provider needs fails its run alone
            return await self._request_failed(at, self._answer, self._provider_error(error))
        board = self.runtime.service(ProgressBoard)
        # Shown until the answer is stored: another commit meanwhile must not take back any of it.
        with board.showing(self.conversation_id, self._write_half) as show:
            return await self._ask(at, provider, request, show)

    @phase(Tools)
    async def tools(self, at: Tools) -> Next[Answer]:
        """A round of calls is over, or one call of a sequential round.

        Durability: the next request is stored before it is sent.

        Cancellation: runs again.
        """
        calls = calls_of(await self.entry(EntryId(at.entry)))

        async def after(tx: Tx) -> Next[Answer]:
            if at.started < len(calls):
                return await self._start_tools(tx, EntryId(at.entry), calls, at.started)
            await place_writes(tx, self.conversation_id)
            await place_steering(tx, self._services, self.conversation_id)
            return await self._next_request(tx)

        return await self.commit(after)

    async def abort(self) -> Outcome:
        """End the run unanswered; the half answer is kept.

        Durability: stored with the end of the task.

        Cancellation: runs again at the next open.
        """

        async def stop(tx: Tx) -> Outcome:
            record = self.runtime.record
            await self._stop_request(tx, record)
            await answer_unstarted(tx, record, "aborted", "was aborted")
            reason = record.abort_reason
            await fail_run(tx, self.conversation_id, "aborted", reason or None)
            return Aborted(reason)

        return await self.commit(stop)

    @classmethod
    async def run_values(cls, tx: Tx, task: TaskRecord) -> Mapping[ContextKey[Any], Any]:
        """The caller of the run, for its tools and whatever they own.

        Durability: reads what is stored.

        Cancellation: the look-up is made again.
        """
        live = await tx.doc(LIVE, task.conversation_id)
        if live.run is not None and live.run.submissions:
            # The first alone: who joins a run later must not lend it, after a restart, rights that
            # it did not begin with.
            first = await tx.submission(SubmissionId(live.run.submissions[0]))
            if first.caller is not None:
                return {CALLER: first.caller}
        # A run that another one started works for whom that works. One that nobody started works
        # for nobody, whatever the host's own context says: what counts is what is stored.
        return {CALLER: None} if await tx.above(task) is None else {}

    @classmethod
    async def ended_by_runtime(cls, tx: Tx, task: TaskRecord, outcome: TaskOutcome) -> TaskOutcome:
        """End the run visibly when the task ends without its own code.

        Durability: stored with the end of the task.

        Cancellation: the commit rolls back.
        """
        detail = outcome.error if isinstance(outcome, FaultedOutcome) else None
        reason: UnansweredReason = "orphaned"
        if isinstance(outcome, FaultedOutcome):
            reason = "restart_limit" if outcome.by_restart_limit else "faulted"
        await answer_unstarted(tx, task, "tool_error", "was not started")
        await fail_run(tx, task.conversation_id, reason, detail)
        return outcome

    # --- asking ---

    async def _next_request(self, tx: Tx) -> Next[Answer]:
        """Decide what is asked next; ends the run when there is nobody to ask."""
        agent = await tx.doc(AGENT, self.conversation_id)
        if agent.model is None:
            detail = "the conversation has no model; give it one with configure(model=...)"
            await fail_run(tx, self.conversation_id, "no_model", detail)
            return Failed({"reason": "no_model"})
        live = await tx.doc(LIVE, self.conversation_id)
        generation = await self._generation(tx)
        generation.turn = 1 + (0 if live.run is None else live.run.turns)
        generation.attempt = 1
        generation.partial = []
        return Continue(Request(agent.model, 1, tx.next_id - 1))

    async def _ask(
        self, at: Request, provider: ModelProvider, request: ModelRequest, show: Callable[[], None]
    ) -> Next[Answer]:
        """Ask, and store what came of it."""
        answer = self._answer
        assert answer is not None, "a request is under way"
        try:
            store = self._store_half
            await ask(provider, request, answer, self.settings, show=show, store=store)
            message = answer.message(model=at.model)
        except UnknownModel as error:
            return await self._fail("no_model", str(error))
        except Exception as error:  # noqa: BLE001 - a provider's bug ends its run, not the harness
            return await self._request_failed(at, answer, self._provider_error(error))
        return await self._answered(answer, message)

    def _provider_error(self, error: Exception) -> ProviderError:
        """The error of a provider; any other is reported as a bug of it."""
        if isinstance(error, ProviderError):
            return error
        self.report(error)
        return ProviderError(f"{type(error).__name__}: {error}")

    async def _build(self, at: Request) -> tuple[ModelProvider, ModelRequest]:
        services = self._services
        provider, model_id = services.models.resolve(at.model)
        entries = await self.runtime.transcript(self.conversation_id)
        agent, session, left = await self._agent()
        if left:
            await self.commit(lambda tx: self._forget_half(tx, at.model))
        return provider, ModelRequest(
            model_id=model_id,
            messages=model_context([entry for entry in entries if entry.id <= at.newest]),
            tools=tuple(tool.spec for tool in self._tools.values()),
            options=agent,
            session_id=session,
        )

    async def _agent(self) -> tuple[ModelOptions, str | None, bool]:
        """Options, session id, and whether a request that a close cut off left half an answer."""

        async def look(tx: Tx) -> tuple[ModelOptions, str | None, bool]:
            agent = await tx.doc(AGENT, self.conversation_id)
            provider = await tx.doc(PROVIDER, self.conversation_id)
            live = await tx.doc(LIVE, self.conversation_id)
            options = ModelOptions(
                max_output_tokens=agent.max_output_tokens,
                thinking_level=cast("ThinkingLevel | None", agent.thinking_level),
            )
            left = live.generation is not None and has_half(live.generation)
            return options, provider.session_id or None, left

        return await self.runtime.look(look)

    async def _forget_half(self, tx: Tx, model: str) -> None:
        # The request is sent again in full; what the closed one used was used all the same.
        half = take_half(await self._generation(tx), model=model)
        await self._count(tx, model, half.usage)

    def _write_half(self, live: LiveState) -> None:
        assert self._answer is not None, "a request is under way"
        write_half(live, self.task_id, self._attempt, self._answer)

    async def _store_half(self) -> None:
        async def change(tx: Tx) -> None:
            self._write_half(await tx.doc(LIVE, self.conversation_id))

        await self.commit(change)

    # --- ends of a request ---

    async def _answered(self, answer: Accumulator, message: AssistantMessage) -> Next[Answer]:
        calls = message.tool_calls
        data = unusable_calls(answer)

        async def settle(tx: Tx) -> Next[Answer]:
            entry = tx.append_entry(
                self.conversation_id, EntryDraft(kind=ASSISTANT, model=(message,), data=data)
            )
            await self._count(tx, message.model, message.usage)
            live = await tx.doc(LIVE, self.conversation_id)
            if live.run is not None:
                live.run.turns += 1
            generation = await self._generation(tx)
            generation.partial = []
            generation.usage = Usage()
            if calls:
                return await self._start_tools(tx, entry.id, calls, 0)
            await answer_run(tx, self._services, self.conversation_id, entry.id)
            return Completed(entry.id)

        return await self.commit(settle)

    async def _start_tools(
        self, tx: Tx, entry: EntryId, calls: tuple[ToolCallBlock, ...], first: int
    ) -> Next[Answer]:
        """Make tasks for the calls of a round, all at once or the next one alone."""
        count = 1 if self._is_sequential(calls) else len(calls) - first
        live = await tx.doc(LIVE, self.conversation_id)
        tasks: list[TaskId] = []
        for call in calls[first : first + count]:
            task_input = ToolInput(entry=entry, call_id=call.id, tool_name=call.name)
            task = tx.create_task(ToolTask, task_input, owner=self.task_id)
            live.tools[str(task)] = ToolSlot(call_id=call.id, tool_name=call.name)
            tasks.append(task)
        return WaitFor(tasks, Tools(entry=entry, started=first + count))

    def _is_sequential(self, calls: tuple[ToolCallBlock, ...]) -> bool:
        if self.settings.tool_mode == "sequential":
            return True
        tools = self._tools
        return any(call.name in tools and tools[call.name].mode == "sequential" for call in calls)

    async def _request_failed(
        self, at: Request, answer: Accumulator, error: ProviderError
    ) -> Next[Answer]:
        again = error.retryable and may_retry(self.settings.retry, at.attempt)

        async def settle(tx: Tx) -> Next[Answer]:
            await self._keep_half(tx, at.model)
            if again:
                return await self._later(tx, at, str(error), error.retry_after_s)
            detail: JSON = {"kind": error.kind, "message": str(error), "attempts": at.attempt}
            await fail_run(tx, self.conversation_id, "model_error", detail)
            return Failed(detail)

        return await self.commit(settle)

    async def _cut_off(self, at: Request) -> Next[Answer]:
        """A crash came while the request was in flight: whether it was answered is unknown."""
        again = may_retry(self.settings.retry, at.attempt)

        async def settle(tx: Tx) -> Next[Answer]:
            await self._keep_half(tx, at.model)
            if again:
                return await self._later(tx, at, "the process was cut off", None)
            detail: JSON = {"attempts": at.attempt}
            await fail_run(tx, self.conversation_id, "interrupted", detail)
            return Failed({"reason": "interrupted", "attempts": at.attempt})

        step = await self.commit(settle)
        if not again:
            self.runtime.tell(
                Report(
                    kind="task_interrupted",
                    reason="interrupted",
                    task_id=self.task_id,
                    conversation_id=self.conversation_id,
                )
            )
        return step

    async def _fail(self, reason: UnansweredReason, detail: str) -> Next[Answer]:
        async def settle(tx: Tx) -> Next[Answer]:
            await fail_run(tx, self.conversation_id, reason, detail)
            return Failed({"reason": reason, "message": detail})

        return await self.commit(settle)

    async def _later(
        self, tx: Tx, at: Request, error: str, retry_after_s: float | None
    ) -> SleepUntil:
        wait_ms = backoff_ms(
            self.settings.retry, at.attempt, self._services.chance, retry_after_s=retry_after_s
        )
        generation = await self._generation(tx)
        generation.retry_at_ms = tx.now_ms + wait_ms
        generation.error = error
        return SleepUntil(tx.now_ms + wait_ms, Retry(at.model, at.attempt + 1))

    async def _stop_request(self, tx: Tx, record: TaskRecord) -> None:
        """Keep what an aborted request was answered so far; nothing when none was under way."""
        checkpoint = checkpoint_in(record) or {}
        if checkpoint.get("phase") != Request.phase_name:
            return
        generation = await self._generation(tx)
        if self._answer is not None or has_half(generation) or record.restarts:
            await self._keep_half(tx, str(checkpoint.get("model")))

    async def _keep_half(self, tx: Tx, model: str) -> None:
        """Count a request that ended early, and append what came as an aborted answer, if any."""
        half = take_half(await self._generation(tx), model=model)
        if self._answer is not None:
            half = self._answer.partial(model=model)
        if half.content:
            tx.append_entry(self.conversation_id, EntryDraft(kind=ASSISTANT, model=(half,)))
        await self._count(tx, model, half.usage)

    async def _count(self, tx: Tx, model: str, used: Usage) -> None:
        usage = await tx.doc(USAGE, self.conversation_id)
        usage.add(model, used)

    async def _generation(self, tx: Tx) -> GenerationState:
        live = await tx.doc(LIVE, self.conversation_id)
        if live.generation is None:
            live.generation = GenerationState(task_id=self.task_id)
        return live.generation

    @property
    def _services(self) -> AgentServices:
        return self.runtime.service(AgentServices)

    @property
    def _tools(self) -> dict[str, Tool]:
        """The tools that the model is told of."""
        return self._services.registry.tools(called_by="model")
