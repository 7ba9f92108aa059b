"""The conversation handle: submit, write, fork, abort. It holds no state.

What can be seen of a conversation is in `_conversation_reading`.

Size: one public class; most of it is what its calls promise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, final, get_args, overload

import attrs

from pidurable_actors._json import JSON, JsonObject, check_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.actors import with_abort
from pidurable_actors.agent import (
    AGENT,
    admit_submission,
    check_agent,
    choose,
    fork_conversation,
    retry_run,
    start_compaction,
    withdraw_inputs,
)
from pidurable_actors.context import Context, within
from pidurable_actors.errors import InvalidValue
from pidurable_actors.harness import _questions
from pidurable_actors.harness._conversation_reading import ConversationReading
from pidurable_actors.harness._submission import Submission
from pidurable_actors.records import (
    RESET,
    USER,
    EntryDraft,
    EntryId,
    ImageBlock,
    SubmissionType,
    TaskId,
    TextBlock,
    UserMessage,
    WhenBusy,
)
from pidurable_actors.records.codec import check_readable
from pidurable_actors.runtime import UNSET, Unset
from pidurable_actors.session import Binding, Tx
from pidurable_actors.settings import AgentChoice, BudgetSettings, Selection, ThinkingLevel

__all__ = ["Conversation"]

T = TypeVar("T")


@final
@attrs.frozen
class Conversation(ConversationReading):
    """A handle without state; two are equal when their ids are.

    Attributes:
        id: the conversation's id; 1 for the root.
    """

    # --- handing in ---

    async def submit(
        self,
        content: str | tuple[TextBlock | ImageBlock, ...],
        *,
        request_id: str | None = None,
        when_busy: WhenBusy = "follow_up",
        caller: JsonObject | None = None,
        context: Context | None = None,
    ) -> Submission:
        """Hand in an input for the model to answer; asks for progress.

        Idle, it is placed and its run starts, in one commit. Busy, it queues: ``"follow_up"`` for
        the next run, ``"steer"`` for the present one after its tool round.

        Args:
            content: text, or text and image blocks.
            request_id: the client's own id of the request; a repetition finds the same submission,
                also after a restart.
            when_busy: what to do while a run is going; ``"reject"`` refuses.
            caller: who asks, as JSON; stored, so that a run that is resumed still knows.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            RequestConflict: `request_id` was used before with something else.
            ConversationBusy: ``when_busy="reject"`` and a run is going.
            InvalidValue: content, request id or caller cannot be stored.
            ReadOnlySession, HarnessClosed, SessionFailed, CommitReentered: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return the input is stored; it is answered even if the process dies now.

        Cancellation: `Cancelled` means that nothing was stored; with a `request_id`, submitting
            again is safe in any case.
        """
        draft = EntryDraft(kind=USER, model=(UserMessage(content=_as_blocks(content)),))
        if when_busy not in get_args(WhenBusy):
            raise InvalidValue("when_busy", f"use one of {', '.join(get_args(WhenBusy))}")
        with within(context):
            return await self._admit(draft, "input", when_busy, request_id, caller)

    async def write(
        self, entry: EntryDraft, *, request_id: str | None = None, context: Context | None = None
    ) -> Submission:
        """Hand in an entry that asks nothing of the model; placed at the next boundary.

        Args:
            entry: the entry; an entry kind's ``new(...)`` makes one.
            request_id: as for `submit`.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            RequestConflict, InvalidValue, ReadOnlySession, HarnessClosed, SessionFailed: as for
                `submit`.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return it is stored; placed at once when no run is going.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        with within(context):
            return await self._admit(entry, "write", "follow_up", request_id, None)

    async def reset(
        self,
        handoff: str | None = None,
        *,
        request_id: str | None = None,
        context: Context | None = None,
    ) -> Submission:
        """Let the model see nothing of what came before; the history stays.

        It is placed like a `write`: at once when no run is going, else at the next boundary. There
        the run ends with reason ``reset``, because its question is out of sight; with a `handoff`
        it goes on from that.

        Args:
            handoff: what the model sees in place of everything before.
            request_id: as for `submit`.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            RequestConflict, InvalidValue, ReadOnlySession, HarnessClosed, SessionFailed: as for
                `submit`.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return it is stored; placed at once when no run is going.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        if handoff is not None:
            _check_said(handoff, "handoff")
        model = None if handoff is None else (UserMessage(content=_as_blocks(handoff)),)
        with within(context):
            draft = EntryDraft(kind=RESET, model=model)
            return await self._admit(draft, "write", "follow_up", request_id, None)

    async def retry(
        self, *, request_id: str | None = None, context: Context | None = None
    ) -> Submission:
        """Go on with the run that ended unanswered, without repeating its input; asks for progress.

        What was stored of that run stays: finished tool calls are not run again. Its own
        submissions stay ``unanswered``, because a submission is settled once.

        Args:
            request_id: as for `submit`.
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            A submission of type ``retry``, to be waited for like any other.

        Raises:
            NothingToRetry: the last run was answered, or a reset took its question out of sight, or
                there was none.
            ConversationBusy: a run is going.
            RequestConflict, InvalidValue, ReadOnlySession, HarnessClosed, SessionFailed: as for
                `submit`.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return the run is stored; it goes on even if the process dies now.

        Cancellation: `Cancelled` means that nothing was stored; with a `request_id`, trying again
            is safe in any case.
        """
        _check_request_id(request_id)
        with within(context):
            self._core.need_progress()
            record = await self._core.commit(
                lambda tx: retry_run(tx, self._core.services, self.id, request_id),
                Binding(self.id),
            )
        return Submission(record.id, self.id, self._core)

    async def compact(
        self,
        instructions: str | None = None,
        *,
        background: bool = False,
        context: Context | None = None,
    ) -> TaskId:
        """Replace the older part of what the model sees by a summary; the history stays.

        A task writes the summary, with a model, and hands it in as a `write`: it is placed at once
        when no run is going, else at the next boundary. The newest turns are kept word for word, as
        the settings say. The running request and tools go on meanwhile; inputs and the next request
        wait for the end, unless it is made in the background.

        One that is under way is returned, whatever it was asked for with; a call that is not in the
        background makes inputs and the next request wait for it. The code of a tool or a hook may
        ask for one, and a tool may wait for it; its summary is placed at the next boundary.

        Args:
            instructions: what the summary should heed besides.
            background: nothing waits for it, and an ordinary abort does not stop it.
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            The task, for `Harness.wait_for_task`. It completes with ``submission``, ``entry``,
            ``tokens_before`` and ``tokens_after``; it fails when there is nothing to summarize, a
            hook skips it, the model fails, or the summary is no shorter than what it stands for.

        Raises:
            InvalidValue: the instructions cannot be stored.
            TaskRefused: the task that owns the conversation is ending or has ended.
            ReadOnlySession, HarnessClosed, SessionFailed, CommitReentered: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return the task is stored; it goes on even if the process dies now.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        if instructions is not None:
            _check_said(instructions, "instructions")
        with within(context):
            self._core.need_progress()
            return await self._core.commit(
                lambda tx: start_compaction(
                    tx,
                    self._core.services,
                    self.id,
                    reason="manual",
                    instructions=instructions,
                    background=background,
                ),
                Binding(self.id),
            )

    async def signal(
        self, name: str, value: JSON = None, *, by: str, context: Context | None = None
    ) -> None:
        """Send a signal of this conversation, once; what waits for it goes on. Asks for progress.

        It is a fact of this conversation, and of no fork of it: a wait that begins later finds it.

        Args:
            name: what tools wait for with `WaitForSignal`; compared as it is written.
            value: JSON that they get.
            by: who sends it; stored.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            AlreadyAnswered: it was sent before; that one stands.
            InvalidValue: a part of it cannot be stored.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return the signal is stored.

        Cancellation: `Cancelled` means that nothing was stored; sending it again is safe in any
            case.
        """
        with within(context):
            await _questions.signal(self._core, self.id, name, value, by)

    async def _admit(
        self,
        draft: EntryDraft,
        kind: SubmissionType,
        when_busy: WhenBusy,
        request_id: str | None,
        caller: JsonObject | None,
    ) -> Submission:
        check_readable(draft)
        _check_request_id(request_id)
        check_json(caller, "caller")
        self._core.need_progress()
        record = await self._core.commit(
            lambda tx: admit_submission(
                tx,
                self._core.services,
                self.id,
                draft,
                kind=kind,
                when_busy=when_busy,
                request_id=request_id,
                caller=caller,
            ),
            Binding(self.id),
        )
        return Submission(record.id, self.id, self._core)

    # --- changing ---

    @overload
    async def commit(
        self, change: Callable[[Tx], Awaitable[T]], *, context: Context | None = None
    ) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T], *, context: Context | None = None) -> T: ...

    async def commit(self, change: Callable[[Tx], Any], *, context: Context | None = None) -> Any:
        """Commit, bound to this conversation.

        Args:
            change: plain or async function of the transaction.
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            What `change` returned.

        Raises:
            CommitReentered: called from inside a commit callback.
            ReadOnlySession: it wrote something through a read-only harness.
            HarnessClosed, SessionFailed: it is too late.
            StorageError: the storage failed; the harness ends.
            Exception: whatever `change` raised; nothing was stored.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return everything that `change` wrote is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        with within(context):
            return await self._core.commit(change, Binding(self.id))

    async def configure(
        self,
        *,
        model: str | Unset | None = UNSET,
        thinking_level: ThinkingLevel | Unset | None = UNSET,
        max_output_tokens: int | Unset | None = UNSET,
        extensions: Selection | Iterable[str] | Unset | None = UNSET,
        tools: Selection | Iterable[str] | Unset | None = UNSET,
        instructions: str | Unset | None = UNSET,
        cwd: str | Unset | None = UNSET,
        budget: BudgetSettings | Unset | None = UNSET,
        context: Context | None = None,
    ) -> None:
        """Change what the conversation runs with, from its next request on; None clears a choice.

        What is cleared is as the `agent` of the settings says, whenever it is asked.

        Args:
            model: ``provider/model_id``.
            thinking_level: ``off``, ``low``, ``medium`` or ``high``.
            max_output_tokens: per answer.
            extensions: which of the installed ones take part; see `AgentChoice`.
            tools: which of their tools may be called; tools that results added are forgotten.
            instructions: the last section of the system prompt.
            cwd: the working directory of its tools.
            budget: in place of that of the settings.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            UnknownModel: no installed provider serves the model.
            InvalidValue: a choice means nothing.
            HarnessClosed, SessionFailed, ReadOnlySession: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return the choices are stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        given = {
            "model": model,
            "thinking_level": thinking_level,
            "max_output_tokens": max_output_tokens,
            "extensions": extensions,
            "tools": tools,
            "instructions": instructions,
            "cwd": cwd,
            "budget": budget,
        }
        chosen = {name: value for name, value in given.items() if not isinstance(value, Unset)}
        # Made once, so that what an iterator gives is not used up.
        checked = AgentChoice(**chosen)  # type: ignore[arg-type]
        chosen = {name: getattr(checked, name) for name in chosen}
        if checked.model is not None:
            self._core.services.models.resolve(checked.model)

        async def change(tx: Tx) -> None:
            choose(await tx.doc(AGENT, self.id), chosen)

        with within(context):
            await self._core.commit(change, Binding(self.id))

    async def fork(
        self,
        *,
        at: int | None = None,
        agent: AgentChoice | None = None,
        context: Context | None = None,
    ) -> Conversation:
        """A new conversation that goes on from an entry of this one.

        It sees what this one sees up to that entry, and this one never sees what it does. No entry
        is copied, so a fork costs the same whatever the length of the history. Documents start as
        their policy says. Its model sees an error as the result of each call that had none at that
        entry; no entry is written for that.

        Args:
            at: the last entry that it sees; by default the newest.
            agent: what it runs with; by default as this one does now.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: there is no such entry, or this conversation does not see it.
            UnknownModel: no installed provider serves the model of `agent`.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return the fork is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        services = self._core.services
        check_agent(services, agent)
        entry_id = None if at is None else EntryId(at)
        with within(context):
            made = await self._core.commit(
                lambda tx: fork_conversation(tx, services, self.id, at=entry_id, agent=agent),
                Binding(self.id),
            )
        return Conversation(made.id, self._core)

    async def abort(
        self, *, reason: str = "", background: bool = False, context: Context | None = None
    ) -> None:
        """Withdraw queued inputs, stop the running work, and wait until idle; asks for progress.

        Queued writes stay. Running tools get an ``aborted`` result, and the run's submissions end
        ``unanswered`` with reason ``aborted``.

        Args:
            reason: kept in the outcomes.
            background: also stop background work, and wait for its end.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            ReadOnlySession, HarnessClosed, SessionFailed: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: the marks are stored before anything stops; on return all ends are stored.

        Cancellation: only the wait ends; once the marks are stored, the abort goes on.
        """
        check_json(reason, "reason")
        state = self._core.engine.line.state

        async def change(tx: Tx) -> None:
            await withdraw_inputs(tx, self.id)
            slots = map(tx.tasks.slot, state.conversation_tasks.get(self.id, ()))
            top = [slot for slot in slots if slot is not None and slot.owner is None]
            wanted = [slot.id for slot in top if background or not slot.background]
            await tx.load_tasks(wanted)
            for task_id in wanted:
                record = await tx.task(task_id)
                if record.background:
                    stopped.append(record.id)
                if not record.abort_requested:
                    tx.tasks.put(with_abort(record, reason))

        stopped: list[TaskId] = []
        with within(context):
            self._core.need_progress()
            await self._core.commit(change, Binding(self.id))
            await self._until_idle()
            for task_id in stopped:
                await self._core.engine.host.wait_for_task(task_id)

    async def wait_for_idle(self, *, context: Context | None = None) -> None:
        """Wait until nothing but background work goes on here; asks for progress.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            TaskRefused: the code of a task waits for its own conversation, which cannot be idle.
            ReadOnlySession, HarnessClosed, SessionFailed: as named.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: the ends of the work are stored.

        Cancellation: only the wait ends.
        """
        with within(context):
            await self._core.refuse_waiting_inside(conversation_id=self.id)
            await self._until_idle()

    async def _until_idle(self) -> None:
        while True:
            with self._core.engine.publisher.watch(("conversation", self.id)) as wait:
                self._core.need_progress()
                if not await self._core.engine.is_busy(self.id):
                    return
                await wait.event.wait()


def _check_request_id(request_id: str | None) -> None:
    if request_id is not None:
        if not 1 <= len(request_id) <= LIMITS.name_length:
            raise InvalidValue("request_id", f"use 1 to {LIMITS.name_length} characters")
        check_json(request_id, "request_id")


def _check_said(text: object, name: str) -> None:
    if not isinstance(text, str) or not text:
        raise InvalidValue(name, f"use a text, or leave it out, not {text!r}")


def _as_blocks(
    content: str | tuple[TextBlock | ImageBlock, ...],
) -> tuple[TextBlock | ImageBlock, ...]:
    if isinstance(content, str):
        blocks: tuple[TextBlock | ImageBlock, ...] = (TextBlock(text=content),)
    elif isinstance(content, Iterable):
        blocks = tuple(content)
    else:
        raise InvalidValue("content", "an input is text, or a tuple of text and image blocks")
    if not any(not isinstance(block, TextBlock) or block.text for block in blocks):
        raise InvalidValue("content", "an input needs at least one block with something in it")
    return blocks
