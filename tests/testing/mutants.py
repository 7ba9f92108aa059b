"""Broken implementations, each with the check that must notice it.

A mutant is the product with one fault put in on purpose, and a story small enough that the fault
shows. Faults of a backend are storages and disks that misbehave; faults of the runtime are changed
lines of its source, put in while the story is explored.

Owns the faults and the list of them; the stories are in `mutant_stories`, and what must come of
them in `test_checkers`. The invariant: a mutant differs from the product by its one fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import attrs
import trio

from pidurable_actors import Next, Tx
from pidurable_actors._frozen import Value
from pidurable_actors.actors import StorageActor, _engine, _ownership, _storage_actor
from pidurable_actors.agent import AgentServices, _runs
from pidurable_actors.harness import _submission
from pidurable_actors.records import (
    Batch,
    Change,
    ChangeDocument,
    ConversationId,
    DocumentRecord,
    EntryId,
    Operation,
    Pending,
    PutDocument,
    PutMemo,
    Running,
    Sleeping,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    UnansweredReason,
    Waiting,
)
from pidurable_actors.runtime import checkpoint_in
from pidurable_actors.session import CachedDocument, Drafts, Publication
from pidurable_actors.session._seams import FreshIds
from pidurable_actors.session._task_ledger import TaskLedger
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.tasks import generation
from pidurable_actors.tasks import tool as tool_task
from pidurable_actors.tasks._composing import read_agent
from pidurable_actors.tasks._tool_results import append_result
from pidurable_actors.tasks._tool_run import CallSurroundings, ToolRun
from pidurable_actors.tasks.tool import Call, Execute, ToolTask
from pidurable_actors.testing import Disk, MemoryDisk, World, checkers
from pidurable_actors.testing._disks import Image
from pidurable_actors.testing._through import ThroughStorage
from pidurable_actors.views import ConversationSubject
from tests.testing import mutant_stories as stories

__all__ = ["MUTANTS", "Mutant", "mutated"]


@contextmanager
def mutated(owner: object, name: str, replacement: object) -> Iterator[None]:
    """Have a class or module with one attribute replaced, and put it back.

    This is no mock: nothing stands in for a part that a test would rather not use, and nothing is
    asked afterwards how it was called. The replacement is the product with a line of its source
    changed, as a mistaken commit would change it, and everything else runs as it is.
    """
    original = vars(owner)[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


@attrs.frozen(kw_only=True)
class Mutant:
    """One fault.

    Attributes:
        fault: what is wrong, in words.
        claims: the check that must notice it.
        also: names of further checks that notice it, because their promise is broken as well.
        story: where it shows.
        disk: the storage, when that is what is broken.
        lines: changed lines of the runtime: owner, attribute, what it is instead.
    """

    fault: str
    claims: Callable[[World], None]
    also: frozenset[str] = frozenset()
    story: stories.Story
    disk: Callable[[], Disk] = MemoryDisk
    lines: Sequence[tuple[object, str, object]] = ()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have the fault in the runtime."""
        with ExitStack() as stack:
            for line in self.lines:
                stack.enter_context(mutated(*line))
            yield


# --- broken storages ---


class LazyStorage(ThroughStorage):
    """Says of a write that it is there, and makes it with the next call."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._late: list[Batch] = []

    def apply(self, batches: Sequence[Batch]) -> None:
        """Keep them; store what was kept."""
        self.before_read()
        self._late.extend(batches)

    def before_read(self) -> None:
        """Store what was kept."""
        late, self._late = self._late, []
        if late:
            self.inner.apply(late)

    def close(self) -> None:
        """Store what was kept, and close."""
        self.before_read()
        super().close()


class LossyStorage(ThroughStorage):
    """Leaves out some changes of each commit."""

    def __init__(
        self, inner: Storage, kept: Callable[[Sequence[Change]], Sequence[Change]]
    ) -> None:
        super().__init__(inner)
        self._kept = kept

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store the changes that are not left out."""
        super().apply([attrs.evolve(b, changes=tuple(self._kept(b.changes))) for b in batches])


def without_last(changes: Sequence[Change]) -> Sequence[Change]:
    """All but the last of several."""
    return changes[:-1] if len(changes) > 1 else changes


def without_memos(changes: Sequence[Change]) -> Sequence[Change]:
    """All but memos."""
    return [change for change in changes if not isinstance(change, PutMemo)]


class RememberingStorage(ThroughStorage):
    """Tells of each write, so that its disk can tear it."""

    def __init__(self, inner: Storage, tell: Callable[[Sequence[Batch]], None]) -> None:
        super().__init__(inner)
        self._tell = tell

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store, and tell."""
        super().apply(batches)
        self._tell(batches)


class TearingDisk:
    """A disk whose storage puts half of a commit in place when the process dies within the write."""

    def __init__(self) -> None:
        self._disk = MemoryDisk(lambda real: RememberingStorage(real, self._remember))
        self._written: tuple[Batch, ...] = ()
        self.capture = self._disk.capture
        self.close = self._disk.close
        self.restore = self._disk.restore
        self.storage = self._disk.storage

    def torn(self, before: Image, after: Image) -> Iterator[tuple[str, Image]]:
        """The first half of the changes, under the number of the whole."""
        assert isinstance(before, MemoryStorage)
        (batch,) = self._written[-1:]
        half = batch.changes[: len(batch.changes) // 2]
        if half:
            left = before.snapshot()
            left.open(read_only=False)
            left.apply([*self._written[:-1], attrs.evolve(batch, changes=half)])
            left.close()
            yield f"{len(half)} of {len(batch.changes)} changes", left

    def _remember(self, batches: Sequence[Batch]) -> None:
        self._written = tuple(batches)


# --- changed lines of the storage actor ---

ALWAYS_QUEUED = (_storage_actor, "_nobody_else_runs", lambda: False)
"""The shortcut for a lone commit is no fault; the ones below are in the long way."""


async def acknowledging_first(self: StorageActor, group: list[Any], *, alone: bool = False) -> None:
    """`_write`, with its callers let go on before the write."""
    for queued in group:
        _storage_actor._settle(queued)
    await trio.lowlevel.cancel_shielded_checkpoint()
    await trio.lowlevel.cancel_shielded_checkpoint()
    await self._lane.run(partial(self._storage.apply, [queued.batch for queued in group]))
    for queued in group:
        self.line.settle(queued.batch)
        self._publish(Publication(queued.batch, queued.values))
    self._tell_progress()


async def showing_first(self: StorageActor, group: list[Any], *, alone: bool = False) -> None:
    """`_write`, with its commits shown before the write."""
    for queued in group:
        self.line.settle(queued.batch)
        self._publish(Publication(queued.batch, queued.values))
    await self._lane.run(partial(self._storage.apply, [queued.batch for queued in group]))
    for queued in group:
        _storage_actor._settle(queued)
    self._tell_progress()


async def cancelled_in_flight(self: StorageActor, batch: Batch) -> None:
    """`_stored`, with a wait that can be cancelled although the commit is admitted."""
    queued = _storage_actor._Queued(batch, {})
    queued.parked = True
    self._queue.append(queued)
    self._wake()

    def leave(_: object) -> trio.lowlevel.Abort:
        queued.parked = False
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(leave)


def showing_less(batch: Batch, values: Mapping[object, object]) -> Publication:
    """`Publication`, without the documents."""
    shown = tuple(change for change in batch.changes if not isinstance(change, PutDocument))
    return Publication(attrs.evolve(batch, changes=shown), values)


def following_entries_alone(
    self: ConversationSubject, value: Value, changes: Sequence[Change]
) -> list[Operation]:
    """`ConversationSubject.operations`, which looks at no document."""
    others = [it for it in changes if not isinstance(it, PutDocument | ChangeDocument)]
    return SUBJECT_OPERATIONS(self, value, others)


SUBJECT_OPERATIONS = ConversationSubject.operations


# --- changed lines of the session and of ownership ---


def minting_twice(self: FreshIds) -> int:
    """`mint`, which gives each id with an even number twice."""
    minted = self.next // 2 * 2
    self.next += 1
    return minted


def freezing_no_memos(self: TaskLedger, changes: list[Change]) -> None:
    """`TaskLedger.freeze`, which forgets to write the memos."""
    self._memos.clear()
    TASK_LEDGER_FREEZE(self, changes)


TASK_LEDGER_FREEZE = TaskLedger.freeze


def telling_all_but_the_last(
    self: Drafts,
    changes: list[Change],
    record: DocumentRecord,
    value: Value,
    operations: tuple[Operation, ...],
    loaded_as: object,
) -> CachedDocument:
    """`Drafts._whole`, which leaves the last operation of an application's document out."""
    told = operations[:-1] if record.kind.startswith("test.") else operations
    return DRAFTS_WHOLE(self, changes, record, value, told, loaded_as)


DRAFTS_WHOLE = Drafts._whole


def waking_to_sleep(tx: Tx, waiter: TaskRecord) -> None:
    """`_wake`, which goes from waiting to sleeping."""
    assert isinstance(waiter.state, Waiting)
    state = Sleeping(checkpoint=waiter.state.checkpoint, until_ms=tx.now_ms)
    tx.tasks.put(attrs.evolve(waiter, state=state))


def giving_back_uncounted(tx: Tx, cut: list[TaskId]) -> None:
    """`_give_back` of the engine, which forgets the restart."""
    for task_id in cut:
        record = tx.tasks.find(task_id)
        assert record is not None
        assert isinstance(record.state, Running)
        pending = Pending(checkpoint=record.state.checkpoint)
        tx.tasks.put(attrs.evolve(record, state=pending))


# --- changed lines of the agent ---


async def withdrawing_anything(tx: Tx, record: SubmissionRecord, reason: UnansweredReason) -> bool:
    """`withdraw`, which does not look whether it is settled."""
    tx.put_submission(
        attrs.evolve(record, status="unanswered", reason=reason, draft=None, answer=None)
    )
    return True


async def answering_one(
    tx: Tx, services: AgentServices, conversation_id: ConversationId, answer: EntryId
) -> None:
    """`answer_run`, which forgets what is queued."""
    await _runs._settle_run(tx, conversation_id, answer=answer)


async def appending_nothing(*_: object, **__: object) -> None:
    """`append_result`, which appends nothing."""


async def appending_twice(*args: Any, **kwargs: Any) -> None:
    """`append_result`, twice."""
    await append_result(*args, **kwargs)
    await append_result(*args, **kwargs)


async def running_again(self: ToolTask) -> Next[None]:
    """`_interrupted`, which runs the tool once more."""
    agent = await read_agent(self.runtime)
    found = agent.tool(self.input.tool_name, "model")
    at: Any = checkpoint_in(self.runtime.record)
    assert found is not None
    self._taken = agent, found
    return await self._run(found, Execute(at["arguments"], at["replay"], at["key"]))


def beginning_with_another_key(self: ToolTask, at: Execute) -> ToolRun:
    """`_begin`, with a key that is not the intent's."""
    self._run_now = ToolRun(
        self.runtime,
        self.input.call_id,
        f"{at.key}, or so",
        around=CallSurroundings(tool_name="", cwd=None, redactor=self._redactor(None)),
    )
    return self._run_now


async def running_at_once(self: ToolTask, at: Call) -> Next[None]:
    """`call`, which runs the tool without storing the intent."""
    block, _ = await self._read_call()
    agent = await read_agent(self.runtime)
    found = agent.tool(self.input.tool_name, "model")
    assert found is not None
    self._taken = agent, found
    return await self._run(found, Execute(block.arguments, found.replay, "a key"))


# --- the list ---


def _names(*checks: Callable[[World], None]) -> frozenset[str]:
    return frozenset(check.__name__ for check in checks)


MUTANTS: Sequence[Mutant] = (
    Mutant(
        fault="a storage acknowledges before it is durable",
        claims=checkers.acknowledged_kept,
        also=_names(checkers.views_survive),
        story=stories.counter,
        disk=lambda: MemoryDisk(LazyStorage),
    ),
    Mutant(
        fault="the runtime acknowledges before it is durable",
        claims=checkers.stored_before_acknowledged,
        also=_names(checkers.acknowledged_kept),
        story=stories.counter,
        lines=[ALWAYS_QUEUED, (StorageActor, "_write", acknowledging_first)],
    ),
    Mutant(
        fault="the runtime publishes before it is durable",
        claims=checkers.stored_before_published,
        also=_names(checkers.acknowledged_kept, checkers.views_survive),
        story=stories.counter,
        lines=[ALWAYS_QUEUED, (StorageActor, "_write", showing_first)],
    ),
    Mutant(
        fault="a storage loses the last write of a batch",
        claims=checkers.prefix_durable,
        story=stories.note,
        disk=lambda: MemoryDisk(lambda real: LossyStorage(real, without_last)),
    ),
    Mutant(
        fault="a storage tears a batch",
        claims=checkers.prefix_durable,
        also=_names(checkers.restarts_counted, checkers.transitions_legal),
        story=stories.counter,
        disk=TearingDisk,
    ),
    Mutant(
        fault="of a change of a document something is not told",
        claims=checkers.operations_lead_to_values,
        story=stories.note,
        lines=[(Drafts, "_whole", telling_all_but_the_last)],
    ),
    Mutant(
        fault="something is shown that is not stored",
        claims=checkers.views_survive,
        story=stories.note,
        lines=[(_storage_actor, "Publication", showing_less)],
    ),
    Mutant(
        fault="a view that is kept up to date misses a change of a document",
        claims=checkers.views_survive,
        story=stories.calling_once,
        lines=[(ConversationSubject, "operations", following_entries_alone)],
    ),
    Mutant(
        fault="a commit is stored and its caller cancelled",
        claims=checkers.stored_is_acknowledged,
        story=stories.cancelled,
        lines=[ALWAYS_QUEUED, (StorageActor, "_stored", cancelled_in_flight)],
    ),
    Mutant(
        fault="an id is used again",
        claims=checkers.ids_unique,
        story=stories.counter,
        lines=[(FreshIds, "mint", minting_twice)],
    ),
    Mutant(
        fault="a task makes a move that the table does not have",
        claims=checkers.transitions_legal,
        story=stories.waiter,
        lines=[
            (_ownership, "_wake", waking_to_sleep),
            (_ownership, "check_transition", lambda *_: None),
        ],
    ),
    Mutant(
        fault="a restart is not counted",
        claims=checkers.restarts_counted,
        story=stories.counter,
        lines=[(_engine, "_give_back", giving_back_uncounted)],
    ),
    Mutant(
        fault="a memo is not written",
        claims=checkers.memos_single,
        story=stories.counter,
        lines=[(TaskLedger, "freeze", freezing_no_memos)],
    ),
    Mutant(
        fault="a storage drops memos",
        claims=checkers.memos_single,
        also=_names(checkers.prefix_durable),
        story=stories.counter,
        disk=lambda: MemoryDisk(lambda real: LossyStorage(real, without_memos)),
    ),
    Mutant(
        fault="an owner ends before its child",
        claims=checkers.owned_work_ends_first,
        story=stories.family,
        lines=[(TaskLedger, "below", lambda *_: 0)],
    ),
    Mutant(
        fault="a waiter is not woken",
        claims=checkers.nothing_stuck,
        story=stories.waiter,
        lines=[(_ownership, "_tell_waiter", lambda *_: None)],
    ),
    Mutant(
        fault="a submission is settled twice",
        claims=checkers.submissions_settled_once,
        story=stories.aborting_what_is_done,
        lines=[(_submission, "withdraw", withdrawing_anything)],
    ),
    Mutant(
        fault="an idle conversation forgets what is queued",
        claims=checkers.submissions_settled_once,
        story=stories.following_up,
        lines=[(generation, "answer_run", answering_one)],
    ),
    Mutant(
        fault="a call has no result",
        claims=checkers.calls_have_one_result,
        story=stories.calling_once,
        lines=[(tool_task, "append_result", appending_nothing)],
    ),
    Mutant(
        fault="a call has two results",
        claims=checkers.calls_have_one_result,
        story=stories.calling_once,
        lines=[(tool_task, "append_result", appending_twice)],
    ),
    Mutant(
        fault="an unsafe tool runs twice",
        claims=checkers.unsafe_runs_once,
        story=stories.calling_once,
        lines=[(ToolTask, "_interrupted", running_again)],
    ),
    Mutant(
        fault="a tool runs with another key than its intent's",
        claims=checkers.unsafe_runs_once,
        story=stories.calling_once,
        lines=[(ToolTask, "_begin", beginning_with_another_key)],
    ),
    Mutant(
        fault="a tool runs before its intent is stored",
        claims=checkers.unsafe_runs_once,
        story=stories.calling_once,
        lines=[(ToolTask, "call", running_at_once)],
    ),
    Mutant(
        fault="a safe tool does what must not be done twice",
        claims=checkers.effects_once,
        story=stories.charging_without_a_key,
    ),
)
