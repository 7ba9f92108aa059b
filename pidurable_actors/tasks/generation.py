"""``pi.generation``: one run, from the placed input to its answer.

Phases ``prepare`` (render the prompt, pin the model), ``request`` (ask it), ``retry`` (wait after a
failure), ``tools`` (wait for a round of calls) and ``yield`` (ask the hooks whether an answer ends
the run). A request that a crash cut off counts as a failed attempt and its stored half answer is
kept; one that a clean close cut off is sent again at once. Which it was is read from the record: a
crash counts a restart, and entering a phase clears the count.

Size: one state machine; its phases and the ways a request can end are read together.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio

from pidurable_actors._json import JSON
from pidurable_actors.agent import (
    CALLER,
    LIVE,
    Agent,
    AgentServices,
    GenerationInput,
    Limit,
    Refused,
    answer_run,
    ended_because,
    fail_run,
    place_steering,
    place_writes,
    priced,
    release,
)
from pidurable_actors.context import ContextKey
from pidurable_actors.errors import ProviderError, UnknownModel
from pidurable_actors.models import (
    Accumulator,
    ModelOptions,
    ModelProvider,
    ModelRequest,
)
from pidurable_actors.records import (
    ASSISTANT,
    USER,
    AssistantMessage,
    EntryDraft,
    EntryId,
    SubmissionId,
    TaskId,
    TaskOutcome,
    TaskRecord,
    TextBlock,
    ToolCallBlock,
    UnansweredReason,
    Usage,
    UserMessage,
)
from pidurable_actors.runtime import (
    Aborted,
    AssistantEntry,
    Checkpoint,
    Completed,
    Continue,
    Failed,
    Next,
    Outcome,
    ProgressBoard,
    SleepUntil,
    TaskActor,
    WaitFor,
    checkpoint_in,
    phase,
)
from pidurable_actors.session import Tx
from pidurable_actors.tasks._asking import as_provider_error, ask, was_refused
from pidurable_actors.tasks._attempt import (
    Attempt,
    begin_attempt,
    count_usage,
    generation_state,
    has_stored_half,
    keep_half,
)
from pidurable_actors.tasks._composing import Composed, agent_in, compose, read_agent
from pidurable_actors.tasks._deciding import (
    Answered,
    Ask,
    Ended,
    decide,
    nothing_to_ask,
)
from pidurable_actors.tasks._hook_run import after_response, after_tools, on_yield
from pidurable_actors.tasks._making_room import Room, Tried, room_after_refusal
from pidurable_actors.tasks._reporting import tell, tell_near
from pidurable_actors.tasks._retry import backoff_ms, may_retry
from pidurable_actors.tasks._rounds import (
    answer_unstarted,
    begin_round,
    calls_of,
    end_round,
    is_sequential,
    results_of,
    start_calls,
    unusable_calls,
)
from pidurable_actors.tasks._sending import Sending, build_request, sending_again, session_in
from pidurable_actors.tasks.tool import ToolTask

__all__ = ["Generation", "Prepare", "Request", "Retry", "Tools", "Yield"]

Answer: TypeAlias = int | None
EndRound: TypeAlias = Callable[[Tx], Awaitable[Next[Answer] | None]]


@attrs.frozen
class Prepare(Checkpoint, phase="prepare"):
    """The next request is to be decided; `waited` counts the compactions that it waited for.

    Of a turn that is tried again: which request of it this is, who was asked before, and what was
    done for its room.
    """

    waited: int = 0
    attempt: int = 1
    model: str | None = None
    tried: Tried | None = None


@attrs.frozen
class Request(Checkpoint, phase="request"):
    """The model is asked; `newest` is the last entry that it sees.

    `options` are those that were chosen, with an answer no longer than what a budget leaves.
    """

    model: str
    attempt: int
    newest: int
    options: ModelOptions | None = None
    tried: Tried | None = None


@attrs.frozen
class Retry(Checkpoint, phase="retry"):
    """The model is asked again when the wait is over."""

    model: str
    attempt: int
    tried: Tried | None = None


@attrs.frozen
class Tools(Checkpoint, phase="tools"):
    """The calls of `entry` are answered by tool tasks; the first `started` calls have one."""

    entry: int
    started: int


@attrs.frozen
class Yield(Checkpoint, phase="yield"):
    """The answer of `entry` calls nothing; hooks are asked whether the run goes on."""

    entry: int


class Generation(TaskActor[GenerationInput, Answer], kind="pi.generation", builtin=True):
    """One run of a conversation."""

    _attempt: Attempt | None = None
    _sending: Sending | None = None
    _near: tuple[str, ...] = ()

    def start(self) -> Prepare:
        """Begin by choosing the model."""
        return Prepare()

    @phase(Prepare)
    async def prepare(self, at: Prepare) -> Next[Answer]:
        """Place what waits, render the prompt, and pin the model and the transcript.

        Durability: the request is stored before it is sent.

        Cancellation: runs again.
        """
        return await self._prepare(at)

    @phase(Retry)
    async def retry(self, at: Retry) -> Next[Answer]:
        """The wait is over.

        Durability: the new attempt is stored before it is sent.

        Cancellation: runs again.
        """
        return await self._prepare(Prepare(attempt=at.attempt, model=at.model, tried=at.tried))

    @phase(Request)
    async def request(self, at: Request) -> Next[Answer]:
        """Ask the model and store what it answers.

        Durability: the answer, its usage and the tasks of its calls are stored together.

        Cancellation: a close sends the request again; a crash counts a failed attempt.
        """
        if self.runtime.record.restarts:
            return await self._cut_off(at)
        attempt = self._attempt = Attempt(self.runtime, at.attempt)
        if self._sending is None:
            anew = Prepare(attempt=at.attempt, model=at.model, tried=at.tried)
            found = await sending_again(self.runtime, at.model, at.newest, anew)
            if isinstance(found, Continue):
                return found
            self._sending = found
        try:
            provider, request = await build_request(
                self.runtime, at.model, at.options, self._sending
            )
        except UnknownModel as error:
            return await self._fail("no_model", str(error))
        except Exception as error:  # noqa: BLE001 - what a provider needs fails its run alone
            return await self._request_failed(at, as_provider_error(error, self.report))
        board = self.runtime.service(ProgressBoard)
        # Shown until the answer is stored: another commit meanwhile must not take back any of it.
        with board.showing(self.conversation_id, attempt.write) as show:
            return await self._ask(at, attempt, provider, request, show)

    @phase(Tools)
    async def tools(self, at: Tools) -> Next[Answer]:
        """A round of calls is over, or one call of a sequential round.

        Durability: the next request is stored before it is sent.

        Cancellation: runs again.
        """
        answer = EntryId(at.entry)
        calls = calls_of(await self.entry(answer))
        if at.started < len(calls):
            agent = await read_agent(self.runtime)
            return await self.commit(
                lambda tx: self._start_tools(tx, answer, calls, at.started, agent)
            )
        if self._services.registry.has_hooks("after_tools"):
            agent = await read_agent(self.runtime)
            entries = await self.runtime.transcript(self.conversation_id)
            await after_tools(self.runtime, agent, results_of(entries, answer))
        return await self._prepare(Prepare(), end=partial(self._end_round, answer, len(calls)))

    @phase(Yield)
    async def yield_(self, at: Yield) -> Next[Answer]:
        """The model has answered: end the run, or go on with what a hook says.

        Durability: the end, or the input that goes on, is stored.

        Cancellation: runs again.
        """
        entry = await self.entry(EntryId(at.entry))
        message = AssistantEntry.match(entry)
        assert message is not None, "what is yielded is an answer"
        said = await on_yield(self.runtime, await read_agent(self.runtime), message)

        async def settle(tx: Tx) -> Next[Answer]:
            if said is None:
                return await self._end_answered(tx, entry.id)
            content = (TextBlock(text=said),)
            draft = EntryDraft(kind=USER, model=(UserMessage(content=content),))
            tx.append_entry(self.conversation_id, draft)
            return Continue(Prepare())

        return await self.commit(settle)

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
        reason, detail = ended_because(outcome)
        await answer_unstarted(tx, task, "tool_error", "was not started")
        await release(tx, task.conversation_id, task.id, reported=Usage())
        await fail_run(tx, task.conversation_id, reason, detail)
        return outcome

    # --- asking ---

    async def _prepare(self, at: Prepare, *, end: EndRound | None = None) -> Next[Answer]:
        """Decide what is asked next; ends the run when there is nobody to ask.

        Args:
            at: what was done for this request so far.
            end: ends the round before it, which may end the run.
        """
        self._near = ()
        # What a commit ends with is stored with it; the agent is what goes on.
        found: Next[Answer] | Agent = await self.commit(lambda tx: self._boundary(tx, at, end))
        if not isinstance(found, Agent):
            return found
        ended: Next[Answer] | None = None
        while ended is None:
            composed = await compose(self.runtime, found)
            ended = await self.commit(partial(self._decide, composed=composed, at=at))
        tell_near(self.runtime, self._near)
        return ended

    async def _boundary(self, tx: Tx, at: Prepare, end: EndRound | None) -> Next[Answer] | Agent:
        """Place what waits between two requests; the end, when that leaves nothing to ask."""
        ended = None if end is None else await end(tx)
        if ended is not None:
            return ended
        live = await tx.doc(LIVE, self.conversation_id)
        if live.compacting is not None:
            after = attrs.evolve(at, waited=at.waited + 1)
            return WaitFor([TaskId(live.compacting.task_id)], after)
        if not at.waited and not (live.run is not None and live.run.turns):
            # The start of the run was a boundary.
            return await agent_in(tx, self._services)
        if await place_writes(tx, self.conversation_id):
            return Failed((await nothing_to_ask(tx, self.runtime)).error)
        if live.run is not None and live.run.turns:
            await place_steering(tx, self._services, self.conversation_id)
        return await agent_in(tx, self._services)

    async def _decide(self, tx: Tx, composed: Composed, at: Prepare) -> Next[Answer] | None:
        model = at.model or composed.agent.model
        found = await decide(tx, self.runtime, composed, model, at.tried)
        match found:
            case None:
                return None
            case Ended():
                return Failed(found.error)
            case Answered():
                return Continue(Yield(found.entry))
            case Room():
                return found.before(attrs.evolve(at, waited=at.waited + 1, tried=found.tried))
            case Ask():
                self._near = found.near
                self._sending = Sending(
                    agent=composed.agent,
                    entries=found.entries,
                    session=await session_in(tx),
                    wall=found.wall,
                )
                await begin_attempt(tx, self.runtime, at.attempt)
                return Continue(
                    Request(found.model, at.attempt, found.newest, found.options, at.tried)
                )

    async def _out_of_time(self, at: Request, wall: Limit) -> Next[Answer]:
        """The time that a budget allows ran out while the model answered."""
        detail = Refused(attrs.evolve(wall, used=wall.value)).detail

        async def settle(tx: Tx) -> Next[Answer]:
            await keep_half(tx, self.runtime, at.model, self._attempt)
            await fail_run(tx, self.conversation_id, "budget", detail)
            return Failed({"reason": "budget", "detail": detail})

        return await self.commit(settle)

    async def _ask(
        self,
        at: Request,
        attempt: Attempt,
        provider: ModelProvider,
        request: ModelRequest,
        show: Callable[[], None],
    ) -> Next[Answer]:
        """Ask, and store what came of it."""
        answer, sending = attempt.answer, self._sending
        assert sending is not None, "what is asked was decided"
        try:
            store = attempt.store
            wall = sending.wall
            with trio.move_on_after(math.inf if wall is None else wall.left) as limit:
                await ask(provider, request, answer, self.settings, show=show, store=store)
            if limit.cancelled_caught and wall is not None:
                return await self._out_of_time(at, wall)
            message = answer.message(model=at.model)
            used = priced(self._services, at.model, message.usage)
            message = attrs.evolve(message, usage=used)
        except UnknownModel as error:
            return await self._fail("no_model", str(error))
        except Exception as error:  # noqa: BLE001 - a provider's bug ends its run, not the harness
            return await self._request_failed(at, as_provider_error(error, self.report))
        message = await after_response(self.runtime, sending.agent, message)
        return await self._answered(sending.agent, answer, message)

    # --- ends of a request ---

    async def _answered(
        self, agent: Agent, answer: Accumulator, message: AssistantMessage
    ) -> Next[Answer]:
        calls = message.tool_calls
        data = unusable_calls(answer)

        async def settle(tx: Tx) -> Next[Answer]:
            entry = tx.append_entry(
                self.conversation_id, EntryDraft(kind=ASSISTANT, model=(message,), data=data)
            )
            await count_usage(tx, self.runtime, message.model, message.usage, turns=1)
            await release(tx, self.conversation_id, self.task_id)
            live = await tx.doc(LIVE, self.conversation_id)
            if live.run is not None:
                live.run.turns += 1
            generation = await generation_state(tx, self.runtime)
            generation.partial = []
            generation.usage = Usage()
            if calls:
                return await self._start_tools(tx, entry.id, calls, 0, agent)
            if agent.hooks.get("on_yield"):
                return Continue(Yield(entry.id))
            return await self._end_answered(tx, entry.id)

        return await self.commit(settle)

    async def _end_answered(self, tx: Tx, entry: EntryId) -> Next[Answer]:
        await answer_run(tx, self._services, self.conversation_id, entry)
        return Completed(entry)

    async def _start_tools(
        self, tx: Tx, entry: EntryId, calls: tuple[ToolCallBlock, ...], first: int, agent: Agent
    ) -> Next[Answer]:
        """Make tasks for the calls of a round, all at once or the next one alone."""
        one_by_one = self.settings.tool_mode == "sequential" or is_sequential(agent, calls)
        wanted = calls[first : first + 1] if one_by_one else calls[first:]
        if not first:
            await begin_round(tx, self.conversation_id)
        tasks = await start_calls(tx, ToolTask, self.task_id, entry, wanted)
        return WaitFor(tasks, Tools(entry=entry, started=first + len(wanted)))

    async def _end_round(self, entry: EntryId, calls: int, tx: Tx) -> Next[Answer] | None:
        """Do what the results of a round agreed on: end the run, or begin anew with a text."""
        agreed = await end_round(tx, self.conversation_id, calls)
        return await self._end_answered(tx, entry) if agreed == "terminate" else None

    async def _request_failed(self, at: Request, error: ProviderError) -> Next[Answer]:
        again = error.retryable and may_retry(self.settings.retry, at.attempt)
        too_long = None
        if error.kind == "overflow" and self._sending is not None:
            too_long = self._sending.entries

        refused = was_refused(error)

        async def settle(tx: Tx) -> Next[Answer]:
            await keep_half(tx, self.runtime, at.model, self._attempt, refused=refused)
            if too_long is not None:
                room = await room_after_refusal(
                    tx, self.runtime, too_long, at.model, tried=at.tried, refused=str(error)
                )
                if room is not None:
                    # Another request of the turn, when it comes to that.
                    (await generation_state(tx, self.runtime)).attempt = at.attempt + 1
                    after = Prepare(1, at.attempt + 1, at.model, room.tried)
                    return room.before(after)
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
            await keep_half(tx, self.runtime, at.model, self._attempt)
            if again:
                return await self._later(tx, at, "the process was cut off", None)
            detail: JSON = {"attempts": at.attempt}
            await fail_run(tx, self.conversation_id, "interrupted", detail)
            return Failed({"reason": "interrupted", "attempts": at.attempt})

        step = await self.commit(settle)
        if not again:
            tell(self.runtime, "task_interrupted", reason="interrupted")
        return step

    async def _fail(self, reason: UnansweredReason, detail: str) -> Next[Answer]:
        async def settle(tx: Tx) -> Next[Answer]:
            await release(tx, self.conversation_id, self.task_id)
            await fail_run(tx, self.conversation_id, reason, detail)
            return Failed({"reason": reason, "message": detail})

        return await self.commit(settle)

    async def _later(
        self, tx: Tx, at: Request, error: str, retry_after_s: float | None
    ) -> SleepUntil:
        wait_ms = backoff_ms(
            self.settings.retry, at.attempt, self._services.chance, retry_after_s=retry_after_s
        )
        generation = await generation_state(tx, self.runtime)
        generation.retry_at_ms = tx.now_ms + wait_ms
        generation.error = error
        return SleepUntil(tx.now_ms + wait_ms, Retry(at.model, at.attempt + 1, at.tried))

    async def _stop_request(self, tx: Tx, record: TaskRecord) -> None:
        """Keep what an aborted request was answered so far; nothing when none was under way."""
        checkpoint = checkpoint_in(record) or {}
        if checkpoint.get("phase") != Request.phase_name:
            return
        begun = self._attempt is not None or record.restarts
        if begun or await has_stored_half(tx, self.runtime):
            model = str(checkpoint.get("model"))
            await keep_half(tx, self.runtime, model, self._attempt)
        else:
            # An earlier run has sent it, perhaps; what this one decided it has not sent.
            lost = Usage() if self._sending is None else None
            await release(tx, self.conversation_id, self.task_id, reported=lost)

    @property
    def _services(self) -> AgentServices:
        return self.runtime.service(AgentServices)
