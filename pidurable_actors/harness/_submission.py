"""The submission handle: what was handed to a conversation, waited for and withdrawn."""

from __future__ import annotations

from typing import Final, final

import attrs

from pidurable_actors.agent import withdraw
from pidurable_actors.context import Context, within
from pidurable_actors.errors import StorageRequestError, Unanswered
from pidurable_actors.harness._core import Core
from pidurable_actors.records import ConversationId, SubmissionId, SubmissionRecord, text_of
from pidurable_actors.runtime import AssistantEntry
from pidurable_actors.session import Binding, Tx

__all__ = ["Submission"]

_SETTLED: Final = ("done", "unanswered")


@final
@attrs.frozen
class Submission:
    """A handle without state; two are equal when their ids are.

    Attributes:
        id: the submission's id.
        conversation_id: the conversation that it was handed to.
    """

    id: SubmissionId
    conversation_id: ConversationId
    _core: Core = attrs.field(eq=False, repr=False)

    async def record(self, *, context: Context | None = None) -> SubmissionRecord:
        """What is stored of it.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: it does not exist any more.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        with within(context):
            found = await self._core.read(lambda storage: storage.submission(self.id))
        if found is None:
            raise StorageRequestError(f"there is no submission {self.id}.")
        return found

    async def wait(self, *, context: Context | None = None) -> SubmissionRecord:
        """Wait until it is settled; asks for progress.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            The record: ``done`` with the `answer`'s entry id, or ``unanswered`` with a `reason`.

        Raises:
            ReadOnlySession: the harness schedules nothing and it is not settled.
            TaskRefused: the code of a task waits for its own conversation, which cannot end first.
            HarnessClosed, SessionFailed: the harness ended first; open the storage again and wait.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: only the wait ends; the work goes on.
        """
        with within(context):
            self._core.engine.storage.refuse_in_callback()
            while True:
                with self._core.engine.publisher.watch(("submission", self.id)) as wait:
                    if not self._is_open():
                        record = await self.record()
                        if record.status in _SETTLED:
                            return record
                    await self._core.refuse_waiting_inside(conversation_id=self.conversation_id)
                    self._core.need_progress()
                    await wait.event.wait()
                    if isinstance(wait.record, SubmissionRecord) and wait.record.status in _SETTLED:
                        return wait.record

    def _is_open(self) -> bool:
        """Whether it is known to be unsettled; False says nothing about storage."""
        line = self._core.engine.line
        known = line.state.conversations.submission(self.id)
        return not line.read_only and known is not None and known.status not in _SETTLED

    async def answer(self, *, context: Context | None = None) -> str:
        """Wait until it is settled; the text of the answer.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            Unanswered: it ended without one; ``.reason`` and ``.detail`` say why.
            ReadOnlySession, HarnessClosed, SessionFailed: as for `wait`.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: only the wait ends; the work goes on.
        """
        with within(context):
            record = await self.wait()
            if record.answer is None:
                raise Unanswered(self.id, record.reason or record.type, record.detail)
            answer = record.answer
            entry = await self._core.read(lambda storage: storage.entry(answer))
        message = None if entry is None else AssistantEntry.match(entry)
        return "" if message is None else text_of(message.content)

    async def abort(self, *, context: Context | None = None) -> bool:
        """Withdraw it while it is queued.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            Whether it was withdrawn; False when it had been placed already (then
            `Conversation.abort` stops the run).

        Raises:
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: on return it is stored as ``unanswered``, reason ``withdrawn``.

        Cancellation: `Cancelled` means that nothing was stored.
        """

        async def change(tx: Tx) -> bool:
            return await withdraw(tx, await tx.submission(self.id), "withdrawn")

        with within(context):
            return await self._core.commit(change, Binding(self.conversation_id))
