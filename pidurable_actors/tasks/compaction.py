"""``pi.compaction``: the older part of a conversation becomes a summary.

Phases ``prepare`` (choose what is summarized, ask the hooks, pin the model), ``request`` (ask it
for the summary) and ``retry`` (wait after a failure). The summary is checked and handed in as a
write in the one commit that ends the task, so that a conversation is never held up by a compaction
that is over. A request that a crash cut off counts as a failed attempt; one that a clean close cut
off is sent again, uncounted.

Size: one state machine; its phases and the ways it can end are read together.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.agent import (
    LIVE,
    Agent,
    AgentServices,
    CompactionEvent,
    CompactionInput,
    CompactionPlan,
    Need,
    Refused,
    Skip,
    Summary,
    admit_submission,
    compaction_ended,
    compaction_failed,
    ended_because,
    go_on,
    outdates,
    plan_compaction,
    release,
    reserve,
    summary_waits,
    withdraw_inputs,
)
from pidurable_actors.errors import ProviderError, UnknownModel
from pidurable_actors.models import (
    Accumulator,
    ModelInfo,
    ModelOptions,
    ModelProvider,
    ModelRequest,
    estimate_tokens,
    message_tokens,
    request_tokens,
)
from pidurable_actors.records import (
    EntryId,
    EntryRecord,
    TaskOutcome,
    TaskRecord,
    Usage,
    model_context,
    text_of,
)
from pidurable_actors.runtime import (
    Aborted,
    Checkpoint,
    Completed,
    Continue,
    Failed,
    Next,
    Outcome,
    SleepUntil,
    TaskActor,
    checkpoint_in,
    phase,
)
from pidurable_actors.session import Tx
from pidurable_actors.tasks._asking import as_provider_error, ask, was_refused
from pidurable_actors.tasks._attempt import count_usage
from pidurable_actors.tasks._compaction_range import CompactionRange, choose_range, range_before
from pidurable_actors.tasks._composing import read_agent
from pidurable_actors.tasks._hook_run import before_compact
from pidurable_actors.tasks._reporting import tell, tell_near
from pidurable_actors.tasks._retry import backoff_ms, may_retry
from pidurable_actors.tasks._summary_request import (
    summary_entry,
    summary_message,
    summary_request,
)

__all__ = ["Compacted", "Compaction", "GoOn", "GoingOn", "Prepare", "Request", "Retry"]

_LONGEST_ANSWER: Final = 4
"""The summary may take one part in so many of its model's window."""


@attrs.frozen(kw_only=True)
class Compacted:
    """What a compaction comes to.

    Attributes:
        submission: the write that the summary was handed in as.
        entry: the entry of the summary; None while it waits for the next boundary, and when it came
            too late to be placed.
        tokens_before: what was summarized, by the estimate.
        tokens_after: the summary.
    """

    submission: int
    entry: int | None
    tokens_before: int
    tokens_after: int


@attrs.frozen
class Prepare(Checkpoint, phase="prepare"):
    """What is summarized is to be chosen."""


@attrs.frozen
class Request(Checkpoint, phase="request"):
    """The model is asked; `newest` is the last entry that was seen, `first` the first kept one.

    `most` is how many tokens a budget leaves for the summary.
    """

    model: str
    attempt: int
    first: int
    newest: int
    most: int | None = None


@attrs.frozen
class Retry(Checkpoint, phase="retry"):
    """All is chosen anew when the wait is over, for the model is asked the `attempt`-th time."""

    attempt: int


class Compaction(TaskActor[CompactionInput, Compacted], kind="pi.compaction", builtin=True):
    """One compaction of a conversation."""

    _answer: Accumulator | None = None
    _decided = False  # by this run of the task, which has not sent it before
    _known = False  # what the request used: it was answered, or refused before anything came

    def start(self) -> Prepare:
        """Begin by choosing what is summarized."""
        return Prepare()

    @phase(Prepare)
    async def prepare(self, _: Prepare) -> Next[Compacted]:
        """Choose what is summarized, ask the hooks, and pin the model.

        Durability: the request is stored before it is sent.

        Cancellation: runs again; the hooks are asked again.
        """
        return await self._choose(1)

    @phase(Retry)
    async def retry(self, at: Retry) -> Next[Compacted]:
        """The wait is over.

        Durability: the new attempt is stored before it is sent.

        Cancellation: runs again; the hooks are asked again.
        """
        return await self._choose(at.attempt)

    @phase(Request)
    async def request(self, at: Request) -> Next[Compacted]:
        """Ask for the summary, and hand it in.

        Durability: the summary, its usage and the end of the task are stored together.

        Cancellation: a close sends the request again; a crash counts a failed attempt.
        """
        if self.runtime.record.restarts:
            return await self._cut_off(at)
        if not self._decided:
            anew: Next[Compacted] | None = await self.commit(lambda tx: self._lose(tx, at))
            if anew is not None:
                return anew
        entries = await self.runtime.transcript(self.conversation_id)
        if any(outdates(entry, EntryId(at.first)) for entry in entries if entry.id > at.newest):
            return await self._fail("stale", "what it would stand for has changed")
        known = [entry for entry in entries if entry.id <= at.newest]
        plan = plan_compaction(self._services, (await read_agent(self.runtime)).model)
        about = range_before(known, EntryId(at.first), plan.info)
        answer = self._answer = Accumulator()
        try:
            await self._ask(at, plan, about, answer)
            message = answer.message(model=at.model)
            self._known = True
        except UnknownModel as error:
            return await self._fail("no_model", str(error))
        except Exception as error:  # noqa: BLE001 - a provider's bug ends its compaction alone
            return await self._request_failed(at, as_provider_error(error, self.report))
        text = text_of(message.content).strip()
        if not text or message.stop_reason == "length":
            why = "said nothing" if not text else "was cut off at its longest answer"
            detail: JSON = {"kind": "other", "message": f"{at.model} {why}", "attempts": at.attempt}
            return await self._fail("model_error", detail, at, message.usage)
        return await self._end(about, text, at.newest, plan.info, at=at, used=message.usage)

    async def abort(self) -> Outcome:
        """Let the conversation go on without a summary.

        Durability: stored with the end of the task.

        Cancellation: runs again at the next open.
        """

        async def stop(tx: Tx) -> Outcome:
            record = self.runtime.record
            checkpoint = checkpoint_in(record) or {}
            asked = checkpoint.get("phase") == Request.phase_name
            if asked and (self._answer is not None or record.restarts):
                used = Usage() if self._answer is None else self._answer.usage
                await self._count(tx, str(checkpoint.get("model")), used)
            else:
                # An earlier run has sent it, perhaps; what this one decided it has not sent.
                lost = None if self._decided else Usage()
                await release(tx, self.conversation_id, self.task_id, reported=lost)
            await self._give_up(tx, "aborted", record.abort_reason or None)
            return Aborted(record.abort_reason)

        return await self.commit(stop)

    @classmethod
    async def ended_by_runtime(cls, tx: Tx, task: TaskRecord, outcome: TaskOutcome) -> TaskOutcome:
        """Hold nothing up any longer when the task ends without its own code.

        Durability: stored with the end of the task.

        Cancellation: the commit rolls back.
        """
        reason, detail = ended_because(outcome)
        live = await tx.doc(LIVE, task.conversation_id)
        compaction_failed(live, task.id, reason, detail)
        await release(tx, task.conversation_id, task.id, reported=Usage())
        if live.held and live.run is None:
            if await tx.takes_work(task.conversation_id):
                tx.create_task(GoOn, None, conversation_id=task.conversation_id)
            else:
                # Nobody could answer them any more.
                live.held = False
                await withdraw_inputs(tx, task.conversation_id)
        return outcome

    # --- asking ---

    async def _choose(self, attempt: int) -> Next[Compacted]:
        """Decide what the model is asked, or the end when it need not be asked."""
        if await self.runtime.look(lambda tx: summary_waits(tx, self.conversation_id)):
            return await self._fail("nothing", "a summary waits for the next boundary")
        agent = await read_agent(self.runtime)
        plan = plan_compaction(self._services, agent.model)
        entries = await self.runtime.transcript(self.conversation_id)
        about = choose_range(
            entries,
            conversation_id=self.conversation_id,
            keep_tokens=self._keep(plan, entries),
            info=plan.info,
        )
        if about is None:
            return await self._fail("nothing", "there is nothing to summarize")
        given = await self._asked_hooks(agent, about)
        if isinstance(given, Skip):
            return await self._fail("skipped", given.reason or "a hook skipped it")
        if isinstance(given, Summary):
            return await self._end(about, given.text, entries[-1].id, plan.info)
        model = plan.summary_model
        if model is None:
            detail = "the conversation has no model; give it one with configure(model=...)"
            return await self._fail("no_model", detail)
        try:
            _, request, info = self._built(plan, about, model)
        except UnknownModel as error:
            return await self._fail("no_model", str(error))
        need = Need(tokens=request_tokens(request, info), most=info.max_output_tokens, info=info)
        asked = Request(model, attempt, about.first, entries[-1].id)
        return await self._reserve(agent, need, asked)

    async def _reserve(self, agent: Agent, need: Need, asked: Request) -> Next[Compacted]:
        """Ask, as far as every budget allows it."""
        near: tuple[str, ...] = ()

        async def settle(tx: Tx) -> Next[Compacted]:
            nonlocal near
            granted = await reserve(tx, self._services, agent, self.task_id, need)
            if isinstance(granted, Refused):
                await self._give_up(tx, "budget", granted.detail)
                return Failed({"reason": "budget", "detail": granted.detail})
            near = granted.near
            return Continue(attrs.evolve(asked, most=granted.most))

        step = await self.commit(settle)
        self._decided = True
        tell_near(self.runtime, near)
        return step

    def _keep(self, plan: CompactionPlan, entries: list[EntryRecord]) -> int:
        if self.input.reason != "overflow":
            return plan.keep_tokens
        # The provider counts more than the estimate does, or has a smaller window than is known.
        return min(plan.keep_tokens, estimate_tokens(model_context(entries), (), plan.info) // 2)

    async def _asked_hooks(self, agent: Agent, about: CompactionRange) -> Skip | Summary | None:
        event = CompactionEvent(
            reason=self.input.reason, entries=about.entries, instructions=self.input.instructions
        )
        return await before_compact(self.runtime, agent, event)

    async def _ask(
        self, at: Request, plan: CompactionPlan, about: CompactionRange, answer: Accumulator
    ) -> None:
        provider, request, _ = self._built(plan, about, at.model)
        if at.most is not None:
            request = attrs.evolve(request, options=ModelOptions(max_output_tokens=at.most))
        await ask(provider, request, answer, self.settings, show=_show, store=_store)

    def _built(
        self, plan: CompactionPlan, about: CompactionRange, model: str
    ) -> tuple[ModelProvider, ModelRequest, ModelInfo]:
        """The request for the summary, whom it goes to, and what is known of the model."""
        provider, model_id = self._services.models.resolve(model)
        info = provider.info(model_id)
        window = plan.window if model == plan.model else info.context_window
        request = summary_request(
            about.entries,
            self.input.instructions,
            model_id=model_id,
            info=info,
            room=None if window is None else window - window // _LONGEST_ANSWER,
        )
        return provider, request, info

    # --- ends ---

    async def _request_failed(self, at: Request, error: ProviderError) -> Next[Compacted]:
        used = Usage() if self._answer is None else self._answer.usage
        nothing_came = self._answer is not None and not self._answer.blocks and used == Usage()
        self._known = nothing_came and was_refused(error)
        if error.retryable and may_retry(self.settings.retry, at.attempt):
            return await self._later(at, used, error.retry_after_s)
        reason = "overflow" if error.kind == "overflow" else "model_error"
        detail: JSON = {"kind": error.kind, "message": str(error), "attempts": at.attempt}
        return await self._fail(reason, detail, at, used)

    async def _cut_off(self, at: Request) -> Next[Compacted]:
        """A crash came while the request was in flight: whether it was answered is unknown."""
        if may_retry(self.settings.retry, at.attempt):
            return await self._later(at, Usage(), None)
        step = await self._fail("interrupted", {"attempts": at.attempt}, at, Usage())
        tell(self.runtime, "task_interrupted", reason="interrupted")
        return step

    async def _later(
        self, at: Request, used: Usage, retry_after_s: float | None
    ) -> Next[Compacted]:
        wait_ms = backoff_ms(
            self.settings.retry, at.attempt, self._services.chance, retry_after_s=retry_after_s
        )

        async def settle(tx: Tx) -> Next[Compacted]:
            await self._count(tx, at.model, used)
            return SleepUntil(tx.now_ms + wait_ms, Retry(at.attempt + 1))

        return await self.commit(settle)

    async def _fail(
        self, reason: str, detail: JSON, at: Request | None = None, used: Usage | None = None
    ) -> Next[Compacted]:
        async def settle(tx: Tx) -> Next[Compacted]:
            if at is not None and used is not None:
                await self._count(tx, at.model, used)
            else:
                await release(tx, self.conversation_id, self.task_id)
            await self._give_up(tx, reason, detail)
            return Failed({"reason": reason, "detail": detail})

        return await self.commit(settle)

    async def _end(
        self,
        about: CompactionRange,
        text: str,
        newest: int,
        info: ModelInfo,
        *,
        at: Request | None = None,
        used: Usage | None = None,
    ) -> Next[Compacted]:
        """Hand the summary in, if it is shorter than what it stands for.

        Args:
            about: what it stands for.
            text: the summary.
            newest: the last entry that was seen when it was chosen.
            info: of the conversation's model, for the estimate.
            at: the request, unless a hook gave the summary.
            used: what the request used.
        """
        after = message_tokens(summary_message(text), info)
        if after >= about.tokens:
            detail: JSON = {"tokens_before": about.tokens, "tokens_after": after}
            return await self._fail("not_shorter", detail, at, used)
        data: JsonObject = {
            "seen": newest,
            "reason": self.input.reason,
            "tokens_before": about.tokens,
            "tokens_after": after,
            "model": None if at is None else at.model,
        }
        draft = summary_entry(about, text, data)

        async def settle(tx: Tx) -> Next[Compacted]:
            if at is not None and used is not None:
                await count_usage(tx, self.runtime, at.model, used)
                await release(tx, self.conversation_id, self.task_id)
            compaction_ended(await tx.doc(LIVE, self.conversation_id), self.task_id)
            placed = await admit_submission(
                tx, self._services, self.conversation_id, draft, kind="write"
            )
            await go_on(tx, self._services, self.conversation_id)
            return Completed(
                Compacted(
                    submission=placed.id,
                    entry=placed.entry,
                    tokens_before=about.tokens,
                    tokens_after=after,
                )
            )

        return await self.commit(settle)

    async def _lose(self, tx: Tx, at: Request) -> Next[Compacted] | None:
        """Where budgets hold, they must allow the request anew: an earlier run sent it, perhaps."""
        lost = await release(tx, self.conversation_id, self.task_id, reported=Usage())
        return Continue(Retry(at.attempt)) if lost else None

    async def _count(self, tx: Tx, model: str, used: Usage) -> None:
        """Count a request that came to nothing; what it may have used besides is gone."""
        priced = await count_usage(tx, self.runtime, model, used)
        reported = None if self._known else priced
        await release(tx, self.conversation_id, self.task_id, reported=reported)

    async def _give_up(self, tx: Tx, reason: str, detail: JSON) -> None:
        live = await tx.doc(LIVE, self.conversation_id)
        compaction_failed(live, self.task_id, reason, detail)
        await go_on(tx, self._services, self.conversation_id)

    @property
    def _services(self) -> AgentServices:
        return self.runtime.service(AgentServices)


@attrs.frozen
class GoingOn(Checkpoint, phase="go_on"):
    """What was held up is to go on."""


class GoOn(TaskActor[None, None], kind="pi.go-on", builtin=True):
    """Starts what a compaction held up that ended without its own code."""

    def start(self) -> GoingOn:
        """There is one step."""
        return GoingOn()

    @phase(GoingOn)
    async def go_on(self, _: GoingOn) -> Next[None]:
        """Start the run that waits.

        Durability: the run and the end of this task are stored together.

        Cancellation: runs again.
        """

        async def settle(tx: Tx) -> Next[None]:
            await go_on(tx, self.runtime.service(AgentServices), self.conversation_id)
            return Completed(None)

        return await self.commit(settle)


def _show() -> None:
    """Nothing is shown of a summary before it is whole."""


async def _store() -> None:
    """Nor is anything stored."""
    await trio.lowlevel.checkpoint()
