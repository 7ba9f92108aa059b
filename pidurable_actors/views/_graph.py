"""All live tasks as something to watch: who owns what, and where each stands. Pure.

It shows what is stored of each task and nothing else: whether code is running right now is in no
record. Its value is ``{"tasks": {id: {...}}, "conversations": {id: owner}}``, ids as text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, cast, final, get_args

import attrs

from pidurable_actors._frozen import FrozenDict, FrozenList, Value, freeze
from pidurable_actors._limits import LIMITS
from pidurable_actors.records import (
    Change,
    ConversationId,
    DeleteKey,
    Operation,
    PutConversation,
    PutTask,
    SetValue,
    Sleeping,
    TaskId,
    TaskRecord,
    TaskStatus,
    Waiting,
    apply_operations,
    diff,
    is_live,
)
from pidurable_actors.storage import Storage
from pidurable_actors.views._channel import EndReason

__all__ = ["GraphSubject", "GraphTask", "GraphView"]

_LIVE: Final = tuple(status for status in get_args(TaskStatus) if status != "terminal")


@attrs.frozen(kw_only=True)
class GraphTask:
    """One live task, as it is stored.

    Attributes:
        owner: the task that owns it; None when its conversation does.
        phase: the step that it is at; None once it has its outcome.
        waiting_on: the tasks that it waits for.
        until_ms: when it wakes.
    """

    id: TaskId
    conversation_id: ConversationId
    kind: str
    status: TaskStatus
    owner: TaskId | None
    background: bool
    abort_requested: bool
    restarts: int
    phase: str | None
    waiting_on: tuple[TaskId, ...]
    until_ms: int | None


@final
class GraphView:
    """All live tasks after one commit; immutable.

    Attributes:
        number: the newest commit that it includes.
        value: all of it, as one JSON value.
    """

    __slots__ = ("number", "value")

    def __init__(self, value: Value, number: int) -> None:
        self.value: Final = cast("FrozenDict", value)
        self.number: Final = number

    @property
    def tasks(self) -> Mapping[TaskId, GraphTask]:
        """The live tasks, by id, in the order of their ids; built anew at each call."""
        stored = cast("FrozenDict", self.value["tasks"])
        return {TaskId(it): _built(cast("FrozenDict", stored[str(it)])) for it in _sorted(stored)}

    @property
    def conversations(self) -> Mapping[ConversationId, TaskId]:
        """The conversations that a task owns and in which something is live, with that task."""
        stored = cast("FrozenDict", self.value["conversations"])
        return {ConversationId(it): TaskId(cast("int", stored[str(it)])) for it in _sorted(stored)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphView):
            return NotImplemented
        return self.value == other.value

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(cast('FrozenDict', self.value['tasks']))} tasks at commit {self.number}>"


@final
class GraphSubject:
    """The live tasks of a harness.

    Args:
        owner_of: the task that owns a conversation in which something was just created.
    """

    def __init__(self, owner_of: Callable[[ConversationId], TaskId | None]) -> None:
        self._owner_of = owner_of

    @property
    def key(self) -> Hashable:
        """``("graph",)``."""
        return ("graph",)

    @property
    def is_ours(self) -> bool:
        """Yes."""
        return True

    def ended(self, storage: Storage) -> EndReason | None:
        """Never."""
        return None

    def read(self, storage: Storage) -> Callable[[], Value]:
        """What makes the value of what a storage has."""
        value = self.load(storage)
        return lambda: value

    def load(self, storage: Storage) -> Value:
        """All live tasks that a storage has."""
        tasks: dict[str, Value] = {}
        conversations: dict[str, Value] = {}
        for status in _LIVE:
            after = 0
            while page := storage.tasks(after=after, limit=LIMITS.page, status=status):
                for record in page:
                    tasks[str(record.id)] = _stored(record)
                after = page[-1].id
        for conversation_id in {_conversation(it) for it in tasks.values()}:
            record_of = storage.conversation(ConversationId(conversation_id))
            if record_of is not None and record_of.owner is not None:
                conversations[str(conversation_id)] = record_of.owner.task_id
        return FrozenDict(
            tasks=FrozenDict(sorted(tasks.items(), key=lambda item: int(item[0]))),
            conversations=FrozenDict(sorted(conversations.items(), key=lambda item: int(item[0]))),
        )

    def show(self, value: Value, number: int) -> GraphView:
        """The view."""
        return GraphView(value, number)

    def after(self, value: Value, changes: Sequence[Change]) -> tuple[Value, tuple[Operation, ...]]:
        """All live tasks after changes, and what leads there."""
        operations = tuple(self._operations(value, changes))
        return apply_operations(value, operations), operations

    def _operations(self, value: Value, changes: Sequence[Change]) -> list[Operation]:
        owners = {c.record.id: c.record.owner for c in changes if isinstance(c, PutConversation)}
        before = cast("FrozenDict", cast("FrozenDict", value)["tasks"])
        found: list[Operation] = []
        added: dict[str, FrozenDict] = {}
        gone: set[str] = set()
        for change in changes:
            if not isinstance(change, PutTask):
                continue
            key, path = str(change.record.id), ("tasks", str(change.record.id))
            known = added.get(key, before.get(key))
            if not is_live(change.record):
                if known is not None:
                    found.append(DeleteKey(path))
                    gone.add(key)
                continue
            stored = _stored(change.record)
            found += [SetValue(path, stored)] if known is None else diff(known, stored, path)
            added[key] = stored
        if added or gone:
            found += self._owned(cast("FrozenDict", value), added, gone, owners)
        return found

    def progress(self, value: Value) -> tuple[Value, tuple[Operation, ...]]:
        """None."""
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
        """Never."""
        return None

    def _owned(
        self,
        value: FrozenDict,
        added: Mapping[str, FrozenDict],
        gone: set[str],
        owners: Mapping[ConversationId, object],
    ) -> list[Operation]:
        """What the tasks that came and went do to the owned conversations."""
        known = cast("FrozenDict", value["conversations"])
        before = cast("FrozenDict", value["tasks"])
        found: list[Operation] = []
        came = {_conversation(it) for key, it in added.items() if key not in gone}
        for conversation_id in sorted(came):
            at = str(conversation_id)
            owner = self._owner(ConversationId(conversation_id), owners)
            if at not in known and owner is not None:
                found.append(SetValue(("conversations", at), owner))
        left = {_conversation(before[key]) for key in gone if key in before} - came
        if left & {int(it) for it in known}:
            live = {_conversation(task) for key, task in before.items() if key not in gone}
            found += [
                DeleteKey(("conversations", str(it)))
                for it in sorted(map(int, known))
                if it in left - live
            ]
        return found

    def _owner(
        self, conversation_id: ConversationId, owners: Mapping[ConversationId, object]
    ) -> TaskId | None:
        edge = owners.get(conversation_id)
        if edge is not None:
            return cast("TaskId", getattr(edge, "task_id", None))
        return self._owner_of(conversation_id)


def _stored(record: TaskRecord) -> FrozenDict:
    state = record.state
    checkpoint = getattr(state, "checkpoint", None)
    return FrozenDict(
        id=record.id,
        conversation_id=record.conversation_id,
        kind=record.kind,
        status=state.status,
        owner=record.owner,
        background=record.background,
        abort_requested=record.abort_requested,
        restarts=record.restarts,
        phase=None if checkpoint is None else freeze(checkpoint["phase"]),
        waiting_on=FrozenList(state.on if isinstance(state, Waiting) else ()),
        until_ms=state.until_ms if isinstance(state, Sleeping) else None,
    )


def _built(stored: FrozenDict) -> GraphTask:
    fields = dict(stored)
    fields["waiting_on"] = tuple(cast("FrozenList", stored["waiting_on"]))  # type: ignore[assignment]
    return GraphTask(**fields)  # type: ignore[arg-type]


def _conversation(task: Value) -> int:
    return cast("int", cast("FrozenDict", task)["conversation_id"])


def _sorted(stored: FrozenDict) -> list[int]:
    return sorted(map(int, stored))
