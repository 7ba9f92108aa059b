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
from functools import partial
from typing import final

import trio

from pidurable_actors._clock import Clock, TrioClock
from pidurable_actors._limits import LIMITS
from pidurable_actors.actors._contexts import Contexts
from pidurable_actors.actors._decisions import ended_badly
from pidurable_actors.actors._endings import about, give_back, in_words, stop_crash_loop, with_hook
from pidurable_actors.actors._host import Host
from pidurable_actors.actors._invocation import Invocation, StopReason
from pidurable_actors.actors._reservations import Decision, KindLookup, Reservations
from pidurable_actors.actors._shell import Shells
from pidurable_actors.actors._storage_actor import StorageActor
from pidurable_actors.actors._timer import TimerActor
from pidurable_actors.context import BACKGROUND, Context
from pidurable_actors.errors import CallbackTooSlow
from pidurable_actors.records import (
    ChangeDocument,
    Completing,
    DocumentRecord,
    Pending,
    PutDocument,
    PutTask,
    Running,
    Sleeping,
    TaskId,
    TaskRecord,
    Terminal,
)
from pidurable_actors.runtime import Report, Reporter
from pidurable_actors.session import Binding, Publication, SessionState, TaskSlot, Tx
from pidurable_actors.settings import Settings

__all__ = ["Supervisor"]


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
        base: the values that every run sees.
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
        base: Context = BACKGROUND,
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
        self._shells = Shells(self._above, self._has_work)
        self._contexts = Contexts(host, kinds=kinds, above=self._above, base=base)
        self._attached = False
        self._invocations: dict[TaskId, Invocation] = {}
        self._ready: dict[TaskId, None] = {}  # an ordered set
        self._to_mark: dict[TaskId, None] = {}  # work that gets an abort mark from above
        self._unstarted: set[TaskId] = set()  # stored as running, and cannot run here
        self._reservations = Reservations(kinds, settings, host.service)
        self._changes = 0  # of what may have blocked a task
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
        """Whether a ready task of this kind and version would be started as it is stored."""
        return (
            self._scheduling
            and self._stopping is None
            and self._reservations.runs_as_stored(kind, version)
        )

    def why_blocked(self, slot: TaskSlot) -> str | None:
        """Why a live task cannot run here; None when it can, or does: a run keeps its code."""
        return None if slot.id in self._invocations else self._reservations.why_blocked(slot)

    def resume(self) -> None:
        """Start scheduling; what is ready is started. Again does nothing."""
        if not self._scheduling:
            self._scheduling = True
            self._timer.resume()
            self._work.set()

    def kinds_changed(self) -> None:
        """Look again at the tasks that were blocked, because the registry changed."""
        # Their reasons stay, so that one which is blocked as before is not reported again.
        self._changes += 1
        self._look_at(*self._reservations.blocked)

    def next_wake_ms(self) -> int | None:
        """The earliest time at which a sleeping task is due."""
        return self._timer.next_ms()

    def load(self, state: SessionState) -> None:
        """Take what is live at open: sleepers to the timer, the rest to be looked at."""
        for slot in state.tasks.values():
            held = slot.durable.state if slot.durable is not None else None
            if slot.abort_requested or (isinstance(held, Completing) and ended_badly(held)):
                self._mark_below(slot.id)
            if slot.until_ms is not None:
                self._timer.add(slot.until_ms, slot.id)
            if slot.abort_requested or slot.status == "pending":
                self._look_at(slot.id)

    # --- the actor ---

    def attach(self, nursery: trio.Nursery) -> None:
        """Take the nursery that invocations are started in."""
        self._shells.attach(nursery)
        self._attached = True

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
            elif isinstance(change, PutDocument | ChangeDocument):
                self._see_document(change.record)

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
        self._shells.close()
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
                self._reservations.blocked.pop(record.id, None)
                self._contexts.forget(record.id)
                self._see_owner(record)
            case Completing() if ended_badly(record.state):
                self._mark_below(record.id)
            case Pending():
                self._look_at(record.id)
            case _ if record.abort_requested:
                self._look_at(record.id)
            case _:
                pass
        if record.abort_requested and not isinstance(record.state, Terminal):
            self._mark_below(record.id)

    def _see_document(self, record: DocumentRecord) -> None:
        """Look again at the blocked tasks of a conversation, which may have chosen otherwise."""
        self._changes += 1
        if record.scope == "conversation" and self._reservations.blocked:
            tasks = self._storage.line.state.tasks
            for task_id in self._reservations.blocked:
                slot = tasks.get(task_id)
                if slot is not None and slot.conversation_id == record.scope_id:
                    self._look_at(task_id)

    def _see_owner(self, record: TaskRecord) -> None:
        state = self._storage.line.state
        above = state.settled_above.get(record.id)
        if above is None:
            return
        self._shells.work_ended(above)
        owner = state.live(above)
        if owner is not None and owner.abort_requested:
            # Its abort handler may be due, now that less lives below it.
            self._look_at(owner.id)

    def _mark_below(self, owner: TaskId) -> None:
        # All that it will ever own: the owner is ending, durably, and is given no new work.
        state = self._storage.line.state
        for task_id in state.children.get(owner, ()):
            if not state.tasks[task_id].abort_requested:
                self._to_mark[task_id] = None
        self._work.set()

    def _look_at(self, *task_ids: TaskId) -> None:
        self._ready.update(dict.fromkeys(task_ids))
        self._work.set()

    def _start(self, record: TaskRecord) -> None:
        if not self._attached or self._stopping is not None or not self._scheduling:
            return
        cls = self._kinds(record.kind)
        if cls is None or cls.definition.version != record.version:
            # The registry changed between reservation and start; given back by the next decision.
            self._unstarted.add(record.id)
            self._look_at(record.id)
            return
        invocation = Invocation(
            self._host, cls, record, context_of=self._contexts.of, kinds=self._kinds
        )
        self._invocations[record.id] = invocation
        self._shells.start(
            record.id,
            partial(self._run_invocation, record.id, invocation),
            f"task {record.id} {record.kind}",
        )

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

    def _above(self, task_id: TaskId) -> TaskId | None:
        slot = self._storage.line.state.tasks.get(task_id)
        return None if slot is None else slot.above

    def _has_work(self, task_id: TaskId) -> bool:
        return self._storage.line.state.ordinary_below(task_id) > 0

    def _sleeps(self, task_id: TaskId, until_ms: int) -> bool:
        slot = self._storage.line.state.tasks.get(task_id)
        return slot is not None and slot.until_ms == until_ms and not slot.abort_requested

    # --- deciding ---

    async def _decide(self) -> None:
        ready = _take(self._ready, LIMITS.wake_at_once)
        decision = Decision(
            ready=ready,
            marks=_take(self._to_mark, LIMITS.wake_at_once),
            unstarted=self._unstarted.intersection(ready),
        )
        self._unstarted -= decision.unstarted
        changes = self._changes

        try:
            await self._storage.commit(
                lambda tx: self._reservations.take_up(tx, decision, self._invocations.keys())
            )
        except CallbackTooSlow:
            # The storage is slow, which is no bug; what was taken is looked at again.
            self._ready.update(dict.fromkeys(ready))
            self._to_mark.update(dict.fromkeys(decision.marks))
            self._unstarted |= decision.unstarted
            return
        self._reservations.blocked.update(decision.blocked)
        if changes != self._changes:
            # What blocks them may have come while this was stored.
            self._look_at(*decision.blocked)
        for report in decision.reports:
            self._reporter(report)
        for record in decision.looped:
            await self._stop_loop(record)

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
