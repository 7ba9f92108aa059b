"""The view of a conversation: its record, what of its transcript is active, its built-in documents.

A view is one immutable JSON value with typed ways to look at it, so that the delta operations that
lead from one view to the next mean the same here, in storage and in a browser. Pure; how the value
comes about is the business of its subject.

    {"conversation": {...}, "entries": [...], "earlier": false,
     "documents": {"pi.live": {...}, ...}}

Active entries are those that a model sees the beginning of: from the newest head on, and of these
the newest `LIMITS.view_entries`; `earlier` says that there are more, which are read by page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Self, TypeVar, cast, final, overload

from pidurable_actors._frozen import FrozenDict, FrozenList, Value, freeze, thaw
from pidurable_actors._json import JSON, check_json, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.agent import (
    AGENT,
    INBOX,
    LIVE,
    PROVIDER,
    USAGE,
    AgentState,
    InboxState,
    LiveState,
    ProviderState,
    UsageState,
)
from pidurable_actors.errors import InvalidValue
from pidurable_actors.records import (
    ConversationRecord,
    EntryRecord,
    Operation,
    apply_operations,
)
from pidurable_actors.records.codec import decode_conversation, decode_entry
from pidurable_actors.session import DocumentDefinition

__all__ = ["BUILT_IN", "LIVE_PATH", "ConversationView", "ViewEntries", "live_of"]

D = TypeVar("D")

BUILT_IN: Final[dict[str, DocumentDefinition[Any]]] = {
    definition.kind: definition for definition in (LIVE, INBOX, AGENT, USAGE, PROVIDER)
}

LIVE_PATH: Final = ("documents", LIVE.kind)
"""Where the live document is in a view."""


def live_of(value: Value) -> Value:
    """The live document in the value of a view."""
    return cast("FrozenDict", cast("FrozenDict", value)["documents"])[LIVE.kind]


@final
class ViewEntries(Sequence[EntryRecord]):
    """The active entries of a view, oldest first; each is built when it is looked at."""

    __slots__ = ("_built", "_stored")

    def __init__(self, stored: FrozenList, built: dict[int, EntryRecord]) -> None:
        self._stored = stored
        self._built = built  # shared by the views of one conversation, by id

    @overload
    def __getitem__(self, at: int) -> EntryRecord: ...

    @overload
    def __getitem__(self, at: slice) -> list[EntryRecord]: ...

    def __getitem__(self, at: int | slice) -> EntryRecord | list[EntryRecord]:
        if isinstance(at, slice):
            return [self._build(stored) for stored in self._stored[at]]
        return self._build(self._stored[at])

    def __iter__(self) -> Iterator[EntryRecord]:
        return map(self._build, self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __repr__(self) -> str:
        return repr(list(self))

    def _build(self, stored: Value) -> EntryRecord:
        entry_id = _id(stored)
        built = self._built.get(entry_id)
        if built is None:
            if len(self._built) > 2 * LIMITS.view_entries:
                self._built.clear()
            built = self._built[entry_id] = decode_entry(encode_json(stored))
        return built


@final
class ConversationView:
    """A conversation as it was after one commit; immutable.

    Two views are equal when they show the same. ``str`` methods are those of its parts; `to_json`
    and `from_json` carry it elsewhere, and `apply` brings a copy there up to date.

    Attributes:
        number: the newest commit of the harness that it includes, a cursor.
        value: all of it, as one JSON value; what operations apply to.
    """

    __slots__ = ("_built", "number", "value")

    def __init__(
        self, value: FrozenDict, number: int, built: dict[int, EntryRecord] | None = None
    ) -> None:
        self.value: Final = value
        self.number: Final = number
        self._built: Final = {} if built is None else built

    @property
    def conversation(self) -> ConversationRecord:
        """Its record."""
        return decode_conversation(encode_json(self.value["conversation"]))

    @property
    def entries(self) -> ViewEntries:
        """The active entries, oldest first."""
        return ViewEntries(cast("FrozenList", self.value["entries"]), self._built)

    @property
    def earlier(self) -> bool:
        """Whether there are active entries before these; read them with `entries`."""
        return self.value["earlier"] is True

    @property
    def live(self) -> LiveState:
        """What goes on: ``pi.live``."""
        return self._document(LIVE)

    @property
    def inbox(self) -> InboxState:
        """What waits: ``pi.inbox``."""
        return self._document(INBOX)

    @property
    def agent(self) -> AgentState:
        """What it runs with: ``pi.agent``."""
        return self._document(AGENT)

    @property
    def usage(self) -> UsageState:
        """What it has used: ``pi.usage``."""
        return self._document(USAGE)

    @property
    def provider(self) -> ProviderState:
        """Its session at the provider: ``pi.provider``."""
        return self._document(PROVIDER)

    def apply(self, operations: Sequence[Operation], number: int | None = None) -> ConversationView:
        """The view after operations.

        Args:
            operations: those of a frame that follows this view.
            number: the frame's; None keeps this one's, as for progress.

        Raises:
            InvalidValue: they do not follow this view.
        """
        try:
            value = apply_operations(self.value, operations)
        except ValueError as error:
            raise InvalidValue("operations", f"they do not follow this view: {error}") from error
        return self.at(value, self.number if number is None else number)

    def at(self, value: Value, number: int) -> ConversationView:
        """Another view of the same conversation."""
        return ConversationView(cast("FrozenDict", value), number, self._built)

    def to_json(self) -> JSON:
        """A plain JSON value, for `from_json`."""
        return {"number": self.number, "value": thaw(self.value)}

    @classmethod
    def from_json(cls, stored: JSON) -> Self:
        """The view that `to_json` was called on.

        Raises:
            InvalidValue: it is no such value.
        """
        check_json(stored, "view")
        number = stored.get("number") if isinstance(stored, dict) else None
        value = stored.get("value") if isinstance(stored, dict) else None
        if not isinstance(number, int) or not isinstance(value, dict):
            raise InvalidValue("view", "it is not what to_json of a view returns")
        if {"conversation", "entries", "earlier", "documents"} - value.keys():
            raise InvalidValue("view", "parts of it are missing")
        return cls(cast("FrozenDict", freeze(value)), number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConversationView):
            return NotImplemented
        return encode_json(self.value) == encode_json(other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<view of conversation {_id(self.value['conversation'])} at commit {self.number}>"

    def _document(self, definition: DocumentDefinition[D]) -> D:
        documents = cast("FrozenDict", self.value["documents"])
        return definition.revision(documents[definition.kind])


def _id(stored: Value) -> int:
    return cast("int", cast("FrozenDict", stored)["id"])
