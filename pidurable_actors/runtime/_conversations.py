"""Conversations as the code of a task sees them: the handles of the harness, behind protocols.

A task may talk to any conversation, and own some. Nothing here holds state; the harness provides a
`ConversationDoor` to every run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import attrs

from pidurable_actors._json import JsonObject
from pidurable_actors.records import (
    ConversationId,
    ConversationRecord,
    EntryDraft,
    ImageBlock,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TextBlock,
    WhenBusy,
)
from pidurable_actors.session import DocumentDefinition, Tx
from pidurable_actors.settings import AgentChoice

__all__ = ["ConversationDoor", "ConversationHandle", "SubmissionHandle"]

D = TypeVar("D")


class SubmissionHandle(Protocol):
    """A submission; see `pidurable_actors.Submission`."""

    @property
    def id(self) -> SubmissionId:
        """Its id."""
        ...

    @property
    def conversation_id(self) -> ConversationId:
        """The conversation that it was handed to."""
        ...

    async def record(self) -> SubmissionRecord:
        """What is stored of it.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        ...

    async def wait(self) -> SubmissionRecord:
        """Wait until it is settled.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        ...

    async def answer(self) -> str:
        """Wait until it is settled; the text of the answer.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        ...

    async def abort(self) -> bool:
        """Withdraw it if it is still queued.

        Durability: on return the withdrawal is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...


class ConversationHandle(Protocol):
    """A conversation; see `pidurable_actors.Conversation`."""

    @property
    def id(self) -> ConversationId:
        """Its id."""
        ...

    async def submit(
        self,
        content: str | tuple[TextBlock | ImageBlock, ...],
        *,
        request_id: str | None = None,
        when_busy: WhenBusy = "follow_up",
        caller: JsonObject | None = None,
    ) -> SubmissionHandle:
        """Hand in an input for the model to answer.

        Durability: on return the input is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def write(self, entry: EntryDraft, *, request_id: str | None = None) -> SubmissionHandle:
        """Hand in an entry that asks nothing of the model.

        Durability: on return it is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def compact(self, instructions: str | None = None, *, background: bool = False) -> TaskId:
        """Replace the older part of what the model sees by a summary; the task that writes it.

        Durability: on return the task is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def reset(
        self, handoff: str | None = None, *, request_id: str | None = None
    ) -> SubmissionHandle:
        """Let the model see nothing of what came before.

        Durability: on return it is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def retry(self, *, request_id: str | None = None) -> SubmissionHandle:
        """Go on with the run that ended unanswered.

        Durability: on return the run is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        ...

    async def abort(self, *, reason: str = "", background: bool = False) -> None:
        """Stop what runs there, and wait until idle.

        Durability: on return all ends are stored.

        Cancellation: only the wait ends; once the marks are stored, the abort goes on.
        """
        ...

    async def wait_for_idle(self) -> None:
        """Wait until nothing but background work goes on there.

        Durability: the ends of the work are stored.

        Cancellation: only the wait ends.
        """
        ...

    async def record(self) -> ConversationRecord | None:
        """What is stored of it.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        ...

    async def snapshot(self, definition: DocumentDefinition[D], *, key: str = "") -> D:
        """The durable value of one of its documents.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        ...


@attrs.frozen(kw_only=True)
class ConversationDoor:
    """What the harness lets the code of its tasks do with conversations.

    Attributes:
        open: the handle of a conversation that exists.
        create: creates one in a commit, owned by a task.
        check: refuses an agent that cannot run.
    """

    open: Callable[[int], Awaitable[ConversationHandle]]
    create: Callable[[Tx, TaskId, AgentChoice | None], Awaitable[ConversationRecord]]
    check: Callable[[AgentChoice | None], None]
