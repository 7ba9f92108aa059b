"""A conversation as something to watch: its value, and what commits and progress do to it. Pure.

Owns the way from records to the view's value. Active entries are those that a model sees the
beginning of: from the newest head on, and of these the newest `LIMITS.view_entries`; `earlier` says
that there are more. Invariant: what changes lead to is what would be read from storage after them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import cast, final

from pidurable_actors._frozen import FrozenDict, FrozenList, Value, freeze
from pidurable_actors._json import decode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.agent import LIVE
from pidurable_actors.errors import StorageRequestError
from pidurable_actors.records import (
    AppendEntry,
    Change,
    ChangeDocument,
    ConversationId,
    EntryRecord,
    Operation,
    PutConversation,
    PutDocument,
    PutSubmission,
    PutTask,
    ReplaceRoot,
    SetValue,
    SpliceList,
    apply_operations,
    below,
    is_live,
    same_json,
)
from pidurable_actors.records.codec import encode_record
from pidurable_actors.runtime import ProgressBoard
from pidurable_actors.session import Journal
from pidurable_actors.storage import Storage
from pidurable_actors.views._channel import EndReason, StaleValue
from pidurable_actors.views._live import live_difference
from pidurable_actors.views._view import BUILT_IN, LIVE_PATH, ConversationView, live_of

__all__ = ["ConversationSubject", "window_before"]


@final
class ConversationSubject:
    """A conversation as something to watch.

    Args:
        conversation_id: which.
        board: the progress of running tasks; None to see none.
    """

    def __init__(self, conversation_id: ConversationId, board: ProgressBoard | None) -> None:
        self._id = conversation_id
        self._board = board
        self._built: dict[int, EntryRecord] = {}

    @property
    def key(self) -> Hashable:
        """``("conversation", id)``."""
        return "conversation", self._id

    @property
    def is_ours(self) -> bool:
        """Yes: the built-in documents have no code of others."""
        return True

    def ended(self, storage: Storage) -> EndReason | None:
        """Never: conversations stay."""
        return None

    def load(self, storage: Storage) -> Value:
        """The view's value, from a storage.

        Raises:
            StorageRequestError: there is no such conversation.
        """
        return self.read(storage)()

    def read(self, storage: Storage) -> Callable[[], Value]:
        """What makes the view's value of what a storage has.

        Raises:
            StorageRequestError: there is no such conversation.
        """
        record = storage.conversation(self._id)
        if record is None:
            raise StorageRequestError(f"there is no conversation {self._id}.")
        entries, earlier = window_before(storage, self._id, 2**63 - 1)
        conversation = freeze(decode_json(encode_record(record)))
        stored = {kind: storage.document(kind, "conversation", self._id) for kind in BUILT_IN}

        def make() -> Value:
            documents = {
                kind: definition.initial_value()
                if (found := stored[kind]) is None
                else definition.load(found.record, found.value)
                for kind, definition in BUILT_IN.items()
            }
            return FrozenDict(
                conversation=conversation,
                entries=entries,
                earlier=earlier,
                documents=FrozenDict(documents),
            )

        return make

    def show(self, value: Value, number: int) -> ConversationView:
        """The view."""
        return ConversationView(cast("FrozenDict", value), number, self._built)

    def after(self, value: Value, changes: Sequence[Change]) -> tuple[Value, tuple[Operation, ...]]:
        """The view after changes, and what leads there.

        Raises:
            StaleValue: earlier entries are active again.
        """
        operations = tuple(self.operations(value, changes))
        return apply_operations(value, operations), operations

    def operations(self, value: Value, changes: Sequence[Change]) -> list[Operation]:
        """What changes do to the view; it looks mostly at the entries of the value.

        Raises:
            StaleValue: earlier entries are active again.
        """
        found: list[Operation] = []
        for change in changes:
            match change:
                case PutConversation() if change.record.id == self._id:
                    found.append(SetValue(("conversation",), freeze(decode_json(change.text))))
                case PutDocument() | ChangeDocument() if self._shows(change):
                    found += _of_document(cast("FrozenDict", value), change)
                case _:
                    pass
        new = [c for c in changes if isinstance(c, AppendEntry) and self._is_mine(c.record)]
        if new:
            # Entries first: what a document says of them is about what is there.
            found[:0] = _appended(cast("FrozenDict", value), new)
        return found

    def progress(self, value: Value) -> tuple[Value, tuple[Operation, ...]]:
        """The view with what running tasks show."""
        sources = () if self._board is None else self._board.sources(self._id)
        if not sources:
            return value, ()
        view = cast("FrozenDict", value)
        documents = cast("FrozenDict", view["documents"])
        journal = Journal(LIVE.name)
        draft, root = LIVE.draft(documents[LIVE.kind], journal)
        for write in sources:
            write(draft)
        operations = tuple(below(LIVE_PATH, it) for it in journal.operations())
        journal.open = False
        if not operations:
            return value, ()
        return view.put("documents", documents.put(LIVE.kind, root.settled())), operations

    def shown_operations(
        self, before: Value, after: Value, operations: Sequence[Operation]
    ) -> Sequence[Operation]:
        """The commit's operations, with those on the live document made anew for what is shown."""
        others = [it for it in operations if it.path[:2] != LIVE_PATH]
        live = live_difference(live_of(before), live_of(after))
        return [*others, *(below(LIVE_PATH, it) for it in live)]

    def is_notable(self, changes: Sequence[Change]) -> bool:
        """Whether a submission is settled or a task of the conversation failed."""
        return any(
            isinstance(change, PutSubmission | PutTask)
            and change.record.conversation_id == self._id
            and (isinstance(change, PutSubmission) or not is_live(change.record))
            for change in changes
        )

    def end(self, changes: Sequence[Change]) -> EndReason | None:
        """Never: conversations stay."""
        return None

    def _shows(self, change: PutDocument | ChangeDocument) -> bool:
        record = change.record
        return (
            record.scope == "conversation"
            and record.scope_id == self._id
            and record.kind in BUILT_IN
            and not record.key
        )

    def _is_mine(self, entry: EntryRecord) -> bool:
        return entry.conversation_id == self._id


def window_before(
    storage: Storage, conversation_id: ConversationId, before: int
) -> tuple[FrozenList, bool]:
    """The active entries below an id, oldest first, and whether there are earlier ones.

    Args:
        storage: open.
        conversation_id: whose.
        before: only entries with a smaller id.
    """
    page = storage.entries(conversation_id, before=before, limit=LIMITS.view_entries)
    head = next((entry.head for entry in page if entry.head is not None), None)
    active = [entry for entry in page if head is None or entry.id >= head]
    earlier = False
    if len(active) == LIMITS.view_entries:
        previous = storage.entries(conversation_id, before=active[-1].id, limit=1)
        earlier = bool(previous) and (head is None or previous[0].id >= head)
    stored = [freeze(decode_json(encode_record(entry))) for entry in reversed(active)]
    return FrozenList(stored), earlier


def _appended(value: FrozenDict, new: Sequence[AppendEntry]) -> list[Operation]:
    """What new entries do to those of a view."""
    entries = cast("FrozenList", value["entries"])
    items = [freeze(decode_json(change.text)) for change in new]
    found: list[Operation] = [SpliceList(("entries",), len(entries), 0, tuple(items))]
    whole = entries.extend(items)
    heads = [change.record.head for change in new if change.record.head is not None]
    gone, earlier = 0, value["earlier"] is True
    if heads:
        if heads[-1] < _id(whole[0]):
            # What a head before this one took out of the view may be back, and is not at hand.
            raise StaleValue
        while gone < len(whole) and _id(whole[gone]) < heads[-1]:
            gone += 1
        earlier = False
    over = len(whole) - gone - LIMITS.view_entries
    if over > 0:
        gone, earlier = gone + over, True
    if gone:
        found.append(SpliceList(("entries",), 0, gone, ()))
    if earlier != value["earlier"]:
        found.append(SetValue(("earlier",), earlier))
    return found


def _of_document(value: FrozenDict, change: PutDocument | ChangeDocument) -> Iterator[Operation]:
    kind, operations = change.record.kind, change.operations
    first = operations[0] if operations else None
    if isinstance(first, ReplaceRoot):
        # A view shows the initial value of a document that is not there yet.
        shown = cast("FrozenDict", value.get("documents", FrozenDict())).get(kind)
        if shown is not None and same_json(shown, first.value):
            operations = operations[1:]
    return (below(("documents", kind), operation) for operation in operations)


def _id(stored: Value) -> int:
    return cast("int", cast("FrozenDict", stored)["id"])
