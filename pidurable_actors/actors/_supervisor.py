"""The supervisor: decides what runs, starts it, and stops it.

It looks at durable commits only. What a commit made ready is reserved (stored as ``running``) in a
commit of the supervisor's own, checked again against the newest state; whatever is durably
``running`` and has no invocation gets one. So a task that is created running, woken running or
reserved starts by the same rule, and nothing starts that storage does not say is running.

It alone starts and stops invocations. An invocation's failure is its task's; what leaves an
invocation is a bug, or a wish to end the process, and ends the harness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any, TypeAlias, final

import attrs
import trio

from pidurable_actors._clock import Clock, TrioClock
from pidurable_actors._limits import LIMITS
from pidurable_actors.actors._decisions import blocked_by, ended_badly, startable
from pidurable_actors.actors._endings import about, give_back, in_words, stop_crash_loop, with_hook
from pidurable_actors.actors._host import Host
from pidurable_actors.actors._invocation import Invocation, StopReason
from pidurable_actors.actors._ownership import mark_below
from pidurable_actors.actors._storage_actor import StorageActor
from pidurable_actors.actors._timer import TimerActor
from pidurable_actors.context import BACKGROUND, Context
from pidurable_actors.errors import CallbackTooSlow
from pidurable_actors.records import (
    Completing,
    Parked,
    Pending,
    PutTask,
    Running,
    Sleeping,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.runtime import Report, Reporter, TaskActor
from pidurable_actors.session import Binding, Publication, SessionState, Tx
from pidurable_actors.settings import Settings

__all__ = ["KindLookup", "Supervisor"]

AnyActor: TypeAlias = TaskActor[Any, Any]
KindLookup: TypeAlias = Callable[[str], type[AnyActor] | None]


@attrs.frozen(kw_only=True)
class _Decision:
    """What one commit of the supervisor takes up, and what follows once it is stored."""

    ready: list[TaskId]
    marks: list[TaskId]
    unstarted: set[TaskId]
    blocked: dict[TaskId, str] = attrs.field(factory=dict)
    reports: list[Report] = attrs.field(factory=list)
    looped: list[TaskRecord] = attrs.field(factory=list)


@final
class Supervisor:
    """Runs the tasks of one harness.

    Args:
        storage: where it commits.
        host: what invocations ask of the engine.
        clock: durable time.
        kinds: the installed task class of a kind.
        settings: read live.
        report: the host's reports.
        fatal: told of what must end the harness: a bug, `KeyboardInterrupt`, `SystemExit`.
    """

    def __init__(
        self,
        storage: StorageActor,
        host: Host,
        *,
        clock: Clock,
        kinds: KindLookup,
        settings: Callable[[], Settings],
        report: Reporter,
        fatal: Callable[[BaseException], None],
    ) -> None:
        self._storage = storage
        self._host = host
        self._clock = clock
        self._kinds = kinds
        self._settings = settings
        self._reporter = report
        self._fatal = fatal
        check_s = math.inf if isinstance(clock, TrioClock) else LIMITS.clock_check_s
        self._timer = TimerActor(clock, due=self._look_at, sleeps=self._sleeps, check_s=check_s)
        self._nursery: trio.Nursery | None = None
        self._context = copy_context()  # of the engine, so that a run inherits from no committer
        self._invocations: dict[TaskId, Invocation] = {}
        self._ready: dict[TaskId, None] = {}  # an ordered set
        self._to_mark: dict[TaskId, None] = {}  # owners whose live work gets an abort mark
        self._unstarted: set[TaskId] = set()  # stored as running, and cannot run here
        self._blocked: dict[TaskId, str] = {}
        self._work = trio.Event()
        self._idle = trio.Event()
        self._scheduling = False
        self._stopping: StopReason | None = None

    # --- scheduling ---

    @property
    def scheduling(self) -> bool:
        """Whether tasks are started."""
        return self._scheduling

    def would_start(self, kind: str, version: int) -> bool:
        """Whether a ready task of this kind would be started now."""
        return (
            self._scheduling
            and self._stopping is None
            and self.blocked_reason(kind, version) is None
        )

    def blocked_reason(self, kind: str, version: int) -> str | None:
        """Why tasks of this kind and stored version cannot run here; None when they can."""
        cls = self._kinds(kind)
        return blocked_by(kind, version, None if cls is None else cls.definition.version)

    def resume(self) -> None:
        """Start scheduling; what is ready is started. Again does nothing."""
        if not self._scheduling:
            self._scheduling = True
            self._timer.resume()
            self._work.set()

    def kinds_changed(self) -> None:
        """Look again at the tasks that were blocked, because the registry changed."""
        # Their reasons stay, so that one which is blocked as before is not reported again.
        self._look_at(*self._blocked)

    def next_wake_ms(self) -> int | None:
        """The earliest time at which a sleeping task is due."""
        return self._timer.next_ms()

    def load(self, state: SessionState) -> None:
        """Take what is live at open: sleepers to the timer, the rest to be looked at."""
        for slot in state.tasks.values():
            held = slot.durable.state if slot.durable is not None else None
            if slot.abort_requested or (isinstance(held, Completing) and ended_badly(held)):
                self._to_mark[slot.id] = None
            if slot.until_ms is not None:
                self._timer.add(slot.until_ms, slot.id)
            if slot.abort_requested or slot.status == "pending":
                self._look_at(slot.id)

    # --- the actor ---

    def attach(self, nursery: trio.Nursery) -> None:
        """Take the nursery that invocations are started in."""
        self._nursery = nursery

    @property
    def timer(self) -> TimerActor:
        """The timer, an actor of its own."""
        return self._timer

    async def run(self) -> None:
        """Reserve what is ready and mark what is aborted, for ever.

        Durability: a task is stored as running before it is started.

        Cancellation: only by the engine, after every invocation has ended.
        """
        while True:
            await self._work.wait()
            self._work = trio.Event()
            while self._scheduling and self._stopping is None and (self._ready or self._to_mark):
                try:
                    await self._decide()
                except Exception:  # a bug goes on; a storage raises what it wants when it fails
                    if self._storage.line.status == "open":
                        raise
                    break

    def published(self, publication: Publication) -> None:
        """Look at one durable commit: start, stop, wake, as it says. Synchronous and in order."""
        for change in publication.batch.changes:
            if isinstance(change, PutTask):
                self._see(change.record)

    async def stop(self, reason: StopReason) -> None:
        """Stop every invocation and wait until all have ended.

        Durability: on a close, each running task is stored as pending first.

        Cancellation: only by the engine.
        """
        self._stopping = reason
        for invocation in tuple(self._invocations.values()):
            invocation.stop(reason)
        with trio.move_on_after(self._settings().close_grace_s):
            await self._wait_idle()
        if self._invocations:
            for task_id, invocation in self._invocations.items():
                self._reporter(
                    Report(kind="close_held", task_id=task_id, detail=invocation.stack())
                )
            await self._wait_idle()
        if self._scheduling and self._storage.line.status == "open":
            await self._storage.commit(self._give_back)

    def _give_back(self, tx: Tx) -> None:
        """What was admitted as running and not started before the close came is not a cut."""
        for slot in self._storage.line.state.tasks.values():
            if slot.status == "running":
                record = tx.tasks.find(slot.id)
                assert record is not None, "a running task is loaded"
                give_back(tx, record)

    @property
    def running(self) -> Mapping[TaskId, Invocation]:
        """The invocations under way."""
        return self._invocations

    # --- looking at commits ---

    def _see(self, record: TaskRecord) -> None:
        invocation = self._invocations.get(record.id)
        match record.state:
            case Running():
                if invocation is None:
                    self._start(record)
                elif record.abort_requested:
                    invocation.stop("abort")
            case Sleeping() if not record.abort_requested:
                self._timer.add(record.state.until_ms, record.id)
            case Terminal():
                self._blocked.pop(record.id, None)
                self._see_owner(record)
            case Completing() if ended_badly(record.state):
                self._to_mark[record.id] = None
                self._work.set()
            case Pending():
                self._look_at(record.id)
            case _ if record.abort_requested:
                self._look_at(record.id)
            case _:
                pass
        if record.abort_requested and not isinstance(record.state, Terminal):
            self._to_mark[record.id] = None
            self._work.set()

    def _see_owner(self, record: TaskRecord) -> None:
        if record.owner is None:
            return
        owner = self._storage.line.state.live(record.owner)
        if owner is not None and owner.abort_requested:
            # Its abort handler may be due, now that less lives below it.
            self._look_at(owner.id)

    def _look_at(self, *task_ids: TaskId) -> None:
        self._ready.update(dict.fromkeys(task_ids))
        self._work.set()

    def _start(self, record: TaskRecord) -> None:
        if self._nursery is None or self._stopping is not None or not self._scheduling:
            return
        cls = self._kinds(record.kind)
        if cls is None or self.blocked_reason(record.kind, record.version) is not None:
            # The registry changed between reservation and start; given back by the next decision.
            self._unstarted.add(record.id)
            self._look_at(record.id)
            return
        invocation = Invocation(self._host, cls, record, Context(parent=BACKGROUND))
        self._invocations[record.id] = invocation
        self._context.run(self._nursery.start_soon, self._run_invocation, record.id, invocation)

    @trio.lowlevel.enable_ki_protection
    async def _run_invocation(self, task_id: TaskId, invocation: Invocation) -> None:
        try:
            try:
                await invocation.run()
            finally:
                del self._invocations[task_id]
                if not self._invocations:
                    self._idle.set()
            self._see_after(task_id)
        except BaseException as error:  # noqa: BLE001 - a bug, or a wish to end the process
            # Nothing is started any more; what this run leaves is given back by the close.
            self._stopping = self._stopping or "close"
            self._fatal(error)

    def _see_after(self, task_id: TaskId) -> None:
        # Commits that came while the invocation was ending were for a task that seemed to run.
        slot = self._storage.line.state.tasks.get(task_id)
        record = None if slot is None else slot.durable
        if record is None or self._stopping is not None:
            return
        if record.abort_requested or not isinstance(record.state, Sleeping):
            self._see(record)
        elif record.state.until_ms <= self._clock.now_ms():
            # The timer may have come while the invocation was ending.
            self._look_at(task_id)

    async def _wait_idle(self) -> None:
        while self._invocations:
            self._idle = trio.Event()
            await self._idle.wait()

    def _sleeps(self, task_id: TaskId, until_ms: int) -> bool:
        slot = self._storage.line.state.tasks.get(task_id)
        return slot is not None and slot.until_ms == until_ms and not slot.abort_requested

    # --- deciding ---

    async def _decide(self) -> None:
        ready = _take(self._ready, LIMITS.wake_at_once)
        decision = _Decision(
            ready=ready,
            marks=_take(self._to_mark, LIMITS.wake_at_once),
            unstarted=self._unstarted.intersection(ready),
        )
        self._unstarted -= decision.unstarted

        async def change(tx: Tx) -> None:
            for owner in decision.marks:
                await mark_below(tx, owner)
            await tx.load_tasks(ready)
            for task_id in ready:
                await self._reserve(tx, task_id, decision)

        try:
            await self._storage.commit(change)
        except CallbackTooSlow:
            # The storage is slow, which is no bug; what was taken is looked at again.
            self._ready.update(dict.fromkeys(ready))
            self._to_mark.update(dict.fromkeys(decision.marks))
            self._unstarted |= decision.unstarted
            return
        self._blocked.update(decision.blocked)
        for report in decision.reports:
            self._reporter(report)
        for record in decision.looped:
            await self._stop_loop(record)

    async def _reserve(self, tx: Tx, task_id: TaskId, decision: _Decision) -> None:
        if not tx.tasks.is_live(task_id):
            return
        record = await tx.task(task_id)
        if task_id in decision.unstarted and isinstance(record.state, Running):
            give_back(tx, record)
            return
        why = startable(record, now_ms=tx.now_ms, below=tx.tasks.below(task_id))
        if why is None or task_id in self._invocations:
            return
        blocked = self.blocked_reason(record.kind, record.version)
        if blocked is not None:
            if self._blocked.get(task_id) != blocked:
                decision.blocked[task_id] = blocked
                decision.reports.append(about("task_blocked", record, detail=blocked))
            return
        self._blocked.pop(task_id, None)
        parked = isinstance(record.state, Parked)
        if record.restarts >= self._settings().restart_limit and not parked:
            decision.looped.append(record)
            return
        assert not isinstance(record.state, Completing | Terminal), "no outcome is startable"
        tx.tasks.put(
            attrs.evolve(
                record,
                state=Running(checkpoint=record.state.checkpoint),
                started_at_ms=record.started_at_ms or tx.now_ms,
                # The abort handler of a parked task gets tries of its own.
                restarts=0 if parked else record.restarts,
            )
        )

    async def _stop_loop(self, record: TaskRecord) -> None:
        # In a commit of its own, because what its class leaves behind is user code.
        cls = self._kinds(record.kind)
        assert cls is not None, "checked by the decision"
        policy = self._settings().on_restart_limit
        report = await with_hook(
            lambda change: self._storage.commit(change, Binding(record.conversation_id, record.id)),
            cls,
            lambda tx, cls: stop_crash_loop(tx, cls, record.id, policy),
            lambda e: self._reporter(about("handler_failed", record, error=e, detail=in_words(e))),
        )
        if report is not None:
            self._reporter(report)


def _take(ready: dict[TaskId, None], count: int) -> list[TaskId]:
    taken = list(ready)[:count] if len(ready) > count else list(ready)
    for task_id in taken:
        del ready[task_id]
    return taken
