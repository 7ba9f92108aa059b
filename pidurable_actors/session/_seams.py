"""What the session asks of others: a reader of storage, and task classes to create tasks from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, final

import attrs

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors._limits import LIMITS
from pidurable_actors.records import (
    ConversationId,
    ConversationRecord,
    StoredDocument,
    TaskId,
)
from pidurable_actors.storage import Storage

__all__ = ["Binding", "FreshIds", "Reader", "StartableTask", "TaskSeed", "whole_conversation"]

T = TypeVar("T")
InputT_contra = TypeVar("InputT_contra", contravariant=True)


class Reader(Protocol):
    """Runs a read on the storage, wherever the storage lives."""

    async def read(self, look: Callable[[Storage], T]) -> T:
        """The result of ``look(storage)``.

        Durability: what is returned is stored.

        Cancellation: the look-up is finished; the cancellation arrives later.
        """
        ...

    async def catch_up(self) -> None:
        """Wait until everything that is admitted now is stored.

        Durability: it is stored on return.

        Cancellation: only the wait ends.
        """
        ...


@final
class FreshIds:
    """The ids that one transaction may use, in order.

    An object of its own, so that the parts of a transaction can share it without referring to the
    transaction: a cycle per commit would be left to the garbage collector.
    """

    __slots__ = ("next",)

    def __init__(self, first: int) -> None:
        self.next = first

    def mint(self) -> int:
        """A fresh id."""
        minted = self.next
        self.next += 1
        return minted


@attrs.frozen
class TaskSeed:
    """What a new task starts with."""

    kind: str
    version: int
    input: JSON
    checkpoint: JsonObject


class StartableTask(Protocol[InputT_contra]):
    """What `Tx.create_task` takes: a `TaskActor` class."""

    def seed(self, task_input: InputT_contra, /) -> TaskSeed:
        """Validate the input and work out the first checkpoint; pure."""
        ...


@attrs.frozen
class Binding:
    """What a transaction belongs to: the defaults of its writes."""

    conversation_id: ConversationId | None = None
    task_id: TaskId | None = None


def whole_conversation(
    conversation_id: ConversationId,
) -> Callable[[Storage], tuple[ConversationRecord | None, list[StoredDocument]]]:
    """A look that reads a conversation's record and documents at once."""

    def look(storage: Storage) -> tuple[ConversationRecord | None, list[StoredDocument]]:
        record = storage.conversation(conversation_id)
        if record is None:
            return None, []
        limit = LIMITS.conversation_documents
        return record, storage.documents("conversation", conversation_id, limit=limit)

    return look
