"""The tasks of one transaction: what it writes, and what its rules look at.

The engine's own door to tasks; application callbacks create tasks and read them through `Tx`. It
sees the transaction's writes over the admitted index, and costs per question no more than the
neighbours of the task. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import final

import attrs

from pidurable_actors._json import JSON, JsonObject, decode_json, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import InvalidValue, TaskRefused
from pidurable_actors.records import (
    ENDED,
    Change,
    ConversationId,
    DropMemos,
    Pending,
    PutMemo,
    PutTask,
    Running,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.records.codec import encode_task
from pidurable_actors.session._seams import FreshIds, TaskSeed
from pidurable_actors.session._state import SessionState, TaskSlot
from pidurable_actors.session._task_checks import check_owner, memo_text

__all__ = ["TaskLedger"]


@final
class TaskLedger:
    """Task writes of one transaction.

    Args:
        state: what is admitted.
        now_ms: the time of the commit.
        ids: where fresh ids come from.
        schedulable: whether a task of a kind and version would be started now.
    """

    __slots__ = (
        "_above",
        "_ids",
        "_memos",
        "_new_below",
        "_now_ms",
        "_schedulable",
        "_state",
        "_tasks",
        "_ungoverned",
    )

    def __init__(
        self,
        state: SessionState,
        *,
        now_ms: int,
        ids: FreshIds,
        schedulable: Callable[[str, int], bool],
    ) -> None:
        self._state = state
        self._now_ms = now_ms
        self._ids = ids
        self._schedulable = schedulable
        self._tasks: dict[TaskId, TaskRecord] = {}
        self._memos: dict[tuple[TaskId, str], str] = {}
        self._new_below: dict[TaskId, int] = {}
        self._above: dict[TaskId, TaskId] = {}  # of tasks that are new
        # New ordinary tasks at the top of a conversation, whose owner is still to be looked up.
        self._ungoverned: dict[ConversationId, list[TaskId]] = {}

    # --- writes ---

    def create(
        self,
        seed: TaskSeed,
        conversation_id: ConversationId,
        *,
        owner: TaskId | None = None,
        background: bool = False,
    ) -> TaskRecord:
        """Create a task, running at once where it would be started anyway: one write, not two.

        Raises:
            TaskRefused: the owner is missing, of another conversation, ending or abort-marked, or
                `background` was combined with `owner`.
        """
        if owner is not None:
            if background:
                raise TaskRefused("background work is owned by its conversation, not by a task.")
            found = self.check_owner(owner)
            if found.conversation_id != conversation_id:
                raise TaskRefused(f"task {owner} belongs to another conversation.", owner)
        start = self._schedulable(seed.kind, seed.version)
        record = TaskRecord(
            id=TaskId(self._ids.mint()),
            conversation_id=conversation_id,
            kind=seed.kind,
            version=seed.version,
            input=seed.input,
            owner=owner,
            background=background,
            state=(Running if start else Pending)(checkpoint=seed.checkpoint),
            started_at_ms=self._now_ms if start else None,
        )
        self._tasks[record.id] = record
        if owner is not None:
            self._put_below(owner, record.id)
        elif not background:
            self._ungoverned.setdefault(conversation_id, []).append(record.id)
        return record

    def check_owner(self, owner: TaskId) -> TaskRecord | TaskSlot:
        """The newest record of a task that may own new work, or its index row.

        Raises:
            TaskRefused: it is missing, ending or abort-marked.
        """
        # The index row is enough, so an owner that sleeps need not be loaded.
        return check_owner(owner, self._tasks.get(owner) or self._state.live(owner))

    @property
    def ungoverned(self) -> tuple[ConversationId, ...]:
        """Conversations in which ordinary work was created, for `govern`."""
        return tuple(self._ungoverned)

    def govern(self, conversation_id: ConversationId, owner: TaskId | None) -> None:
        """Make what was created at the top of a conversation the work of the task that owns it.

        Raises:
            TaskRefused: that task is missing, ending or abort-marked.
        """
        made = self._ungoverned.pop(conversation_id, ())
        if owner is not None and made:
            self.check_owner(owner)
            for task_id in made:
                self._put_below(owner, task_id)

    def _put_below(self, owner: TaskId, task_id: TaskId) -> None:
        self._above[task_id] = owner
        if self.is_live(task_id):
            self._new_below[owner] = self._new_below.get(owner, 0) + 1

    def succeed(
        self, ended: TaskRecord, checkpoint: JsonObject, memos: Mapping[str, JSON]
    ) -> TaskId:
        """Start a successor of an ended task from a checkpoint and memos; links both records.

        Raises:
            TaskRefused: the owner of the task is missing or ending.
        """
        seed = TaskSeed(ended.kind, ended.version, ended.input, checkpoint)
        made = self.create(
            seed, ended.conversation_id, owner=ended.owner, background=ended.background
        )
        self._tasks[made.id] = attrs.evolve(made, retry_of=ended.id, memos=memos)
        for name, value in memos.items():
            self._memos[made.id, name] = encode_json(value)
        self._tasks[ended.id] = attrs.evolve(ended, retried_as=made.id)
        return made.id

    def put(self, record: TaskRecord) -> None:
        """Replace a live task's record.

        Raises:
            TaskRefused: the task has ended; an outcome is settled once.
        """
        before = self.find(record.id)
        assert before is not None, "a task is read before it is written"
        if isinstance(before.state, Terminal) and before.state is not record.state:
            raise TaskRefused(f"task {record.id} has ended.", record.id)
        self._tasks[record.id] = record
        if isinstance(record.state, Terminal) and not isinstance(before.state, Terminal):
            above = self.above(record.id)
            if above is not None:
                self._new_below[above] = self._new_below.get(above, 0) - 1

    def memo(self, task_id: TaskId, name: str, value: JSON) -> JSON:
        """Record a memo; see `Tx.set_memo`."""
        record = self.find(task_id)
        if record is None or isinstance(record.state, ENDED):
            raise TaskRefused(f"task {task_id} has ended; it records no more memos.", task_id)
        if name in record.memos:
            return record.memos[name]
        text = memo_text(name, value)
        held = self._state.memo_bytes(record)
        held += sum(len(made) for (task, _), made in self._memos.items() if task == task_id)
        if held + len(text) > LIMITS.memos_bytes:
            raise InvalidValue(
                f"memo[{name!r}]", f"the memos of a task hold {LIMITS.memos_bytes:,} bytes in all"
            )
        self._memos[task_id, name] = text
        # Through text, so that the caller may change its own value afterwards.
        kept = decode_json(text)
        self._tasks[task_id] = attrs.evolve(record, memos={**record.memos, name: kept})
        return kept

    # --- what rules look at ---

    def find(self, task_id: TaskId) -> TaskRecord | None:
        """The task if it is live and loaded; None says nothing about storage."""
        found = self._tasks.get(task_id)
        return self.admitted(task_id) if found is None else found

    def admitted(self, task_id: TaskId) -> TaskRecord | None:
        """A live task as it was before this transaction, None when it is new or not loaded."""
        slot = self._state.tasks.get(task_id)
        return None if slot is None else slot.head

    def slot(self, task_id: TaskId) -> TaskSlot | None:
        """The index row of a task that was live before this transaction."""
        return self._state.live(task_id)

    @property
    def written(self) -> Iterable[TaskRecord]:
        """What this transaction wrote, each task in its newest form."""
        return self._tasks.values()

    @property
    def ended(self) -> list[TaskRecord]:
        """What it wrote that holds an outcome, in the order it was written."""
        return [r for r in self._tasks.values() if isinstance(r.state, ENDED)]

    def is_live(self, task_id: TaskId) -> bool:
        """Whether a task exists and is not terminal."""
        record = self._tasks.get(task_id)
        if record is not None:
            return not isinstance(record.state, Terminal)
        return self._state.live(task_id) is not None

    def has_ended(self, task_id: TaskId) -> bool:
        """Whether a task, known to exist, is terminal."""
        return not self.is_live(task_id)

    def above(self, task_id: TaskId) -> TaskId | None:
        """The task whose ordinary work a live or new task is, None when it is nobody's."""
        slot = self._state.tasks.get(task_id)
        return self._above.get(task_id) if slot is None else slot.above

    def below(self, task_id: TaskId) -> int:
        """How many live tasks are the ordinary work of `task_id`."""
        return self._state.ordinary_below(task_id) + self._new_below.get(task_id, 0)

    def children(self, task_id: TaskId) -> tuple[TaskId, ...]:
        """The live tasks that were the ordinary work of `task_id` before this transaction."""
        return tuple(self._state.children.get(task_id, ()))

    def waiters(self, task_id: TaskId) -> tuple[TaskId, ...]:
        """Tasks that wait for `task_id`, among others."""
        return tuple(self._state.waiters.get(task_id, ()))

    def remaining(self, task_id: TaskId) -> int:
        """How many tasks `task_id` still waited for before this transaction."""
        return self._state.remaining.get(task_id, 0)

    def failed_fast(self, task_id: TaskId) -> bool:
        """Whether what `task_id` waits for carries abort marks, as one of it did not complete."""
        return task_id in self._state.failed_fast

    def can_run(self, record: TaskRecord) -> bool:
        """Whether the scheduler would start the task now."""
        return self._schedulable(record.kind, record.version)

    def freeze(self, changes: list[Change]) -> None:
        """Append the changes to store."""
        for (task_id, name), text in self._memos.items():
            changes.append(PutMemo(task_id, name, text))
        for task in self._tasks.values():
            if isinstance(task.state, Terminal) and task.memos:
                changes.append(DropMemos(task.id))
                task = attrs.evolve(task, memos={})  # noqa: PLW2901 - one record, two forms
            changes.append(PutTask(task, encode_task(task)))
