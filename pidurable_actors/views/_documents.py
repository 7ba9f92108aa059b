"""One document as something to watch. Pure.

Beside the value as the definition sees it, the stored one is kept: the operations of a commit are
for that. They are those of the view as well, as long as both are one; where the definition had to
migrate or complete what another one stored, the operations of a frame are the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast, final

from pidurable_actors._frozen import FrozenDict, Value
from pidurable_actors.records import (
    Change,
    ChangeDocument,
    Operation,
    PutDocument,
    PutTask,
    ReplaceRoot,
    TaskId,
    apply_operations,
    diff,
    is_live,
)
from pidurable_actors.session import DocKey, DocumentDefinition
from pidurable_actors.storage import Storage
from pidurable_actors.views._channel import EndReason

__all__ = ["DocumentSubject"]


@final
class DocumentSubject:
    """A document.

    Args:
        definition: its kind.
        document: which.
    """

    def __init__(self, definition: DocumentDefinition[Any], document: DocKey) -> None:
        self._definition = definition
        self._at = document

    @property
    def key(self) -> Hashable:
        """``("document", DocKey, definition)``: two definitions see two values."""
        return "document", self._at, self._definition

    @property
    def is_ours(self) -> bool:
        """No: what a definition brings along runs as well."""
        return False

    def read(self, storage: Storage) -> Callable[[], Value]:
        """What makes ``{"stored": ..., "seen": ...}``, of the initial value when there is none."""
        at, definition = self._at, self._definition
        found = storage.document(at.kind, at.scope, at.scope_id, at.key)

        def make() -> Value:
            if found is None:
                initial = definition.initial_value()
                return FrozenDict(stored=initial, seen=initial)
            seen = definition.load(found.record, found.value)
            return FrozenDict(stored=found.value, seen=seen)

        return make

    def ended(self, storage: Storage) -> EndReason | None:
        """``retired`` when the task that it belongs to has ended."""
        if self._at.scope != "task":
            return None
        task = storage.task(TaskId(self._at.scope_id))
        return "retired" if task is not None and not is_live(task) else None

    def show(self, value: Value, number: int) -> Any:
        """What stands for an instance of the definition's class; nobody can change it."""
        return self._definition.revision(cast("FrozenDict", value)["seen"])

    def after(self, value: Value, changes: Sequence[Change]) -> tuple[Value, tuple[Operation, ...]]:
        """The document after changes, and what leads from what was seen to what is."""
        pair = cast("FrozenDict", value)
        found: tuple[Operation, ...] = ()
        for change in changes:
            match change:
                case PutDocument() | ChangeDocument() if _key(change) == self._at:
                    pair, operations = self._changed(pair, change)
                    found += operations
                case _:
                    pass
        return pair, found

    def progress(self, value: Value) -> tuple[Value, tuple[Operation, ...]]:
        """None: progress is shown in the view of its conversation."""
        return value, ()

    def shown_operations(
        self, before: Value, after: Value, operations: Sequence[Operation]
    ) -> Sequence[Operation]:
        """The commit's."""
        return operations

    def is_notable(self, changes: Sequence[Change]) -> bool:
        """Never."""
        return False

    def end(self, changes: Sequence[Change]) -> EndReason | None:
        """``retired`` when the task that it belongs to ends."""
        at = self._at
        retired = at.scope == "task" and any(
            isinstance(change, PutTask)
            and change.record.id == at.scope_id
            and not is_live(change.record)
            for change in changes
        )
        return "retired" if retired else None

    def _changed(
        self, pair: FrozenDict, change: PutDocument | ChangeDocument
    ) -> tuple[FrozenDict, tuple[Operation, ...]]:
        operations = change.operations
        stored = apply_operations(pair["stored"], operations)
        if pair["seen"] is pair["stored"] and not any(
            isinstance(operation, ReplaceRoot) for operation in operations
        ):
            return FrozenDict(stored=stored, seen=stored), operations
        seen = self._definition.load(change.record, stored)
        return FrozenDict(stored=stored, seen=seen), tuple(diff(pair["seen"], seen))


def _key(change: PutDocument | ChangeDocument) -> DocKey:
    record = change.record
    return DocKey(record.kind, record.scope, record.scope_id, record.key)
