"""Typed entry kinds: tokens that make drafts and read records of one kind.

Defining a kind registers nothing. `define_entry` is for an application's own lines, whose data is
an attrs class; the built-in kinds carry one message each.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, final

import attrs

from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import DefinitionError
from pidurable_actors.records import (
    ASSISTANT,
    TOOL_RESULT,
    USER,
    AssistantMessage,
    EntryDraft,
    EntryRecord,
    Message,
    TextBlock,
    ToolResultMessage,
    UserMessage,
)
from pidurable_actors.runtime._values import from_json, to_json

__all__ = [
    "AssistantEntry",
    "EntryKind",
    "MessageEntryKind",
    "ToolResultEntry",
    "UserEntry",
    "define_entry",
]

D = TypeVar("D")
M = TypeVar("M", bound=Message)


@final
@attrs.frozen(eq=False)
class EntryKind(Generic[D]):
    """An application's kind of entry; made by `define_entry`."""

    kind: str
    data: type[D]

    def new(self, data: D, *, text: str | None = None) -> EntryDraft:
        """A draft with this data.

        Args:
            data: an instance of the kind's class.
            text: what the model sees of it, as a user message; nothing by default.

        Raises:
            InvalidValue: the data is not strict JSON when unstructured.
        """
        model = None if text is None else (UserMessage(content=(TextBlock(text=text),)),)
        return EntryDraft(kind=self.kind, model=model, data=to_json(data, f"entry[{self.kind}]"))

    def match(self, entry: EntryRecord) -> D | None:
        """The entry's data when it is of this kind, else None.

        Raises:
            InvalidValue: it is of this kind and its data does not fit the class any more.
        """
        if entry.kind != self.kind:
            return None
        return from_json(entry.data, self.data, f"entry[{self.kind}] {entry.id}")


@final
@attrs.frozen(eq=False)
class MessageEntryKind(Generic[M]):
    """A built-in kind of entry that carries one message."""

    kind: str
    message: type[M]

    def new(self, message: M) -> EntryDraft:
        """A draft with this message."""
        return EntryDraft(kind=self.kind, model=(message,))

    def match(self, entry: EntryRecord) -> M | None:
        """The entry's message when it is of this kind, else None."""
        if entry.kind != self.kind or not entry.model:
            return None
        first = entry.model[0]
        return first if isinstance(first, self.message) else None


UserEntry: Final = MessageEntryKind(USER, UserMessage)
"""What a person or the host said: ``pi.user``."""

AssistantEntry: Final = MessageEntryKind(ASSISTANT, AssistantMessage)
"""What the model answered: ``pi.assistant``."""

ToolResultEntry: Final = MessageEntryKind(TOOL_RESULT, ToolResultMessage)
"""What a tool call came to: ``pi.tool-result``."""


def define_entry(kind: str, data: type[D]) -> EntryKind[D]:
    """Define an application's kind of entry.

    Args:
        kind: stored identity, such as ``app.note``.
        data: attrs class of its data.

    Raises:
        DefinitionError: the kind is empty, too long or starts with ``pi.``, or `data` is not an
            attrs class.
    """
    if not kind or len(kind) > LIMITS.name_length or kind.startswith("pi."):
        raise DefinitionError(
            f"entry kind {kind!r}: use 1 to {LIMITS.name_length} characters and a prefix of your "
            "own; 'pi.' belongs to the package."
        )
    _check_data(kind, data)
    return EntryKind(kind, data)


def _check_data(kind: str, data: type) -> None:
    if not attrs.has(data):
        raise DefinitionError(f"entry kind {kind!r}: {data!r} must be an attrs class.")
