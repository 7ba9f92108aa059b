"""The engine: opens a storage, repairs what a crash left, runs the actors, and shuts them down.

Owns the engine's outermost nursery. Nothing is raised through it: a bug of the runtime, and what
wants to end the process, is kept and raised to the host after the nurseries are gone. It runs under
a shield, because the host's cancellation must end the body, not the work: the end of the body
closes the engine, in order, and the shield ends with the close.

Order of a close: no new work; invocations end and their tasks are given back; what was admitted is
written; waits end; the storage closes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast, final

import attrs
import trio

from pidurable_actors._clock import Clock
from pidurable_actors.actors._host import Host
from pidurable_actors.actors._loading import load_live
from pidurable_actors.actors._ownership import check_states, settle_ended
from pidurable_actors.actors._publisher import Publisher
from pidurable_actors.actors._reservations import KindLookup
from pidurable_actors.actors._storage_actor import StorageActor
from pidurable_actors.actors._supervisor import Supervisor
from pidurable_actors.context import Context, ContextKey, current_context
from pidurable_actors.errors import (
    ClosedError,
    HarnessBug,
    HarnessClosed,
    StorageError,
)
from pidurable_actors.records import ConversationId, Pending, Running, TaskId
from pidurable_actors.runtime import Report, Reporter
from pidurable_actors.session import CommitWitness, Line, SessionState, Tx
from pidurable_actors.settings import Settings
from pidurable_actors.storage import Lane, Storage

__all__ = ["ClosedEnd", "Engine"]

T = TypeVar("T")
Values: TypeAlias = Mapping[ContextKey[Any], Any]
EngineStatus: TypeAlias = Literal["open", "closing", "closed"]


@attrs.frozen(kw_only=True)
class ClosedEnd:
    """How a harness ended.

    Attributes:
        reason: ``"closed"`` by its host, ``"failed"`` by its storage or a bug.
        error: what made it fail.
    """

    reason: Literal["closed", "failed"]
    error: BaseException | None = None


@final
class Engine:
    """One open storage and the actors that run on it.

    Args:
        storage: the backend, not yet open.
        clock: durable time.
        kinds: the installed task class of a kind.
        settings: read live.
        report: the host's reports.
        services: what built-in tasks find under a type.
        read_only: look only.
        inline: run the storage on the Trio thread.
        witness: told of each commit.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        clock: Clock,
        kinds: KindLookup,
        settings: Callable[[], Settings],
        report: Reporter,
        services: Mapping[type, object],
        read_only: bool,
        inline: bool,
        witness: CommitWitness | None = None,
    ) -> None:
        self.clock = clock
        self.report = report
        self.read_only = read_only
        self.settings = settings
        self.body_scope = trio.CancelScope()
        self.publisher = Publisher()
        self._backend = storage
        self._lane = Lane(
            storage.name,
            inline=inline or not storage.blocking,
            timeout_s=settings().commit_timeout_s,
            give_up=storage.close,
        )
        self.storage = StorageActor(
            storage,
            self._lane,
            report=report,
            publish=self.publisher.publish,
            failed=self._storage_failed,
            broken=self._fatal,
            witness=witness,
        )
        self.host = Host(
            self.storage,
            self.publisher,
            clock=clock,
            settings=settings,
            report=report,
            services=services,
        )
        self.supervisor = Supervisor(
            self.storage,
            self.host,
            clock=clock,
            kinds=kinds,
            settings=settings,
            report=report,
            fatal=self._fatal,
            # Values alone: the host's cancellation ends its body, and the work by the close.
            base=Context(values=cast(Values, current_context().values)),
        )
        if witness is not None:
            self.publisher.listen(witness.published)
        self.publisher.listen(self.supervisor.published)
        self._status: EngineStatus = "open"
        self._ending = trio.Event()
        self._written = trio.Event()
        self._closed = trio.Event()
        self._failure: BaseException | None = None
        self._bug: BaseException | None = None

    # --- what the host sees ---

    @property
    def line(self) -> Line:
        """The line."""
        return self.storage.line

    @property
    def failed(self) -> bool:
        """Whether its storage failed, or a bug ended it."""
        return self._bug is not None or self._failure is not None

    @property
    def closing(self) -> bool:
        """Whether no new work is admitted any more."""
        return self._status != "open"

    def check_open(self) -> None:
        """Refuse a call that comes too late.

        Raises:
            HarnessClosed: the harness is closing or closed.
            SessionFailed: its storage failed.
        """
        self.line.check()
        if self.closing:
            raise HarnessClosed

    async def open(self) -> None:
        """Open the storage and load the index of live work.

        Raises:
            StorageInUse, StorageError: as the storage says; nothing is left open.

        Durability: ownership is stored.

        Cancellation: the opening is finished, then the storage is closed again.
        """
        try:
            head = await self._lane.run(lambda: self._backend.open(read_only=self.read_only))
        except BaseException:  # nothing is open, and the lane's threads must not stay
            self._stop_lane()
            raise
        try:
            state = SessionState(head)
            self.storage.attach(
                Line(
                    state,
                    self.storage,
                    self.clock,
                    read_only=self.read_only,
                    log=lambda: self.settings().commit_log,
                )
            )
            self.line.rules.extend((settle_ended, check_states))
            self.line.schedulable = self.supervisor.would_start
            await load_live(self.storage, state)
            await trio.lowlevel.checkpoint()
        except BaseException:  # the storage must not stay open without an owner
            await self._close_storage()
            raise

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Run the actors until the end is asked for, then shut down.

        Durability: what was admitted is stored before it returns.

        Cancellation: shielded; `request_close` ends it.
        """
        # Shielded until the close is done; every step of the close is bounded by what it waits for:
        # storage calls by the lane's time limit, user code by its own shields, which are reported.
        with trio.CancelScope(shield=True):
            try:
                async with trio.open_nursery() as actors:
                    self.supervisor.attach(actors)
                    actors.start_soon(self._guard, self._write)
                    actors.start_soon(self._guard, self.supervisor.timer.run)
                    actors.start_soon(self._guard, self.supervisor.run)
                    await self._ending.wait()
                    await self._guard(self._shut_down)
                    actors.cancel_scope.cancel()
            finally:
                self._status = "closed"
                self.publisher.end()
                self.publisher.finish()
                self._closed.set()

    async def repair(self) -> None:
        """Give back what the previous owner was running, counting the cut, in one commit.

        Raises:
            StorageError: the storage failed.

        Durability: stored on return, before anything runs.

        Cancellation: `Cancelled` means that nothing was stored; the next open does it.
        """
        state = self.line.state
        cut = [slot.id for slot in state.tasks.values() if slot.status == "running"]
        if cut and not self.read_only:
            await self.storage.commit(lambda tx: _give_back(tx, cut))
        self.supervisor.load(state)

    def resume(self) -> None:
        """Start scheduling."""
        self.check_open()
        self.supervisor.resume()

    def request_close(self) -> None:
        """Let `run` shut down."""
        if self._status == "open":
            self._status = "closing"
        self._ending.set()

    async def is_busy(self, conversation_id: ConversationId) -> bool:
        """Whether work that is not in the background is live there; False is durable.

        Durability: when it returns False, the ends of that work are stored.

        Cancellation: nothing happened.
        """
        # In turn with commits, so that what was handed in before is seen.
        busy = await self.storage.commit(lambda _: conversation_id in self.line.state.busy)
        if not busy:
            await self.storage.wait_durable(self.line.state.number)
        return busy

    async def is_at_work(self) -> bool:
        """Whether anything but background work is live; False is durable.

        Durability: when it returns False, the ends of that work are stored.

        Cancellation: nothing happened.
        """
        roots = await self.storage.commit(lambda _: self.line.state.roots)
        if not roots:
            await self.storage.wait_durable(self.line.state.number)
        return roots > 0

    async def wait_closed(self) -> ClosedEnd:
        """Wait for the end of the harness.

        Durability: stores nothing.

        Cancellation: only the wait ends.
        """
        await self._closed.wait()
        error = self._bug or self._failure
        return ClosedEnd(reason="closed" if error is None else "failed", error=error)

    def outcome(self, body_error: BaseException | None) -> BaseException | None:
        """What the block of `open_harness` raises, given what its body raised."""
        if self._bug is not None:
            if not isinstance(self._bug, Exception):
                return self._bug
            bug = self._bug if isinstance(self._bug, HarnessBug) else HarnessBug()
            if bug is not self._bug:
                bug.__cause__ = self._bug
            bug.body_error = body_error
            return bug
        if body_error is not None:
            return body_error
        return None if self._failure is None else self.line.refusal()

    # --- ending ---

    async def _write(self) -> None:
        try:
            await self.storage.run()
        except BaseException as error:  # also what ends the process: it is raised again
            # Whoever waits for a commit must learn that nobody will write it.
            self.storage.abandon(error)
            raise
        finally:
            self._written.set()

    async def _shut_down(self) -> None:
        self._status = "closing"
        failed = self.line.status == "failed"
        try:
            await self.supervisor.stop("failed" if failed else "close")
        finally:
            # Whatever happened, what was admitted is written and the storage given up.
            self.line.close()
            self.publisher.end()
            self.storage.stop()
            await self._written.wait()
            await self._close_storage()

    async def _close_storage(self) -> None:
        if not self._lane.hung:
            try:
                await self._lane.run(self._backend.close)
            except Exception as error:  # noqa: BLE001 - whatever a backend raises, the lane ends
                if not self._lane.hung:
                    self.report(Report(kind="storage_failed", reason="close", error=error))
        if self._lane.hung:
            self.report(
                Report(
                    kind="close_held",
                    reason="storage_hung",
                    detail="a storage call never returned; its thread was left behind",
                )
            )
        self._stop_lane()

    def _stop_lane(self) -> None:
        self._lane.stop()
        self._lane.join(1.0)

    def _storage_failed(self, error: BaseException) -> None:
        self._failure = error
        self.publisher.end()
        self._ending.set()
        self.report(Report(kind="storage_failed", error=error, detail=str(error)))

    @trio.lowlevel.enable_ki_protection
    async def _guard(self, actor: Callable[[], Awaitable[None]]) -> None:
        try:
            await actor()
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - a bug must reach the host, not the nursery
            # What the storage did has been told already.
            if self._failure is None or not isinstance(error, ClosedError | StorageError):
                self._fatal(error)

    def _fatal(self, error: BaseException) -> None:
        if self._bug is None:
            self._bug = error
        self.body_scope.cancel(reason="the runtime failed")
        self._ending.set()
        self._written.set()


def _give_back(tx: Tx, cut: list[TaskId]) -> None:
    for task_id in cut:
        record = tx.tasks.find(task_id)
        assert record is not None, "running tasks are loaded at open"
        assert isinstance(record.state, Running), "nothing moves before the repair"
        pending = Pending(checkpoint=record.state.checkpoint)
        tx.tasks.put(attrs.evolve(record, state=pending, restarts=record.restarts + 1))
