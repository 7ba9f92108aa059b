"""Task classes: what an application writes.

A `TaskActor` class is a definition; defining one registers nothing. One object of it lives for one
run (*invocation*): its attributes are volatile, what lasts is its checkpoint, its memos and what it
committed.

Size: one public class; most of it is what its methods promise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

import trio

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.context import Context, ContextKey
from pidurable_actors.errors import InvalidValue, MisuseError
from pidurable_actors.records import (
    ConversationId,
    EntryId,
    EntryRecord,
    TaskId,
    TaskOutcome,
    TaskRecord,
)
from pidurable_actors.runtime._conversations import ConversationHandle
from pidurable_actors.runtime._definition import TaskDefinition, define_task
from pidurable_actors.runtime._outcomes import Aborted, Checkpoint, Outcome
from pidurable_actors.runtime._runtime import Missing, Runtime, ServiceLookup
from pidurable_actors.runtime._values import checkpoint_to_json, from_json, to_json
from pidurable_actors.session import TaskSeed, Tx
from pidurable_actors.settings import AgentChoice, Settings

__all__ = ["TaskActor", "checkpoint_of", "input_of"]

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")
T = TypeVar("T")


class TaskActor(Generic[InputT, ResultT]):
    """Base of task classes: ``class Ticker(TaskActor[CountTo, str], kind="example.ticker")``.

    A subclass has a plain `start` that returns the first checkpoint, an async method marked
    ``@phase(...)`` per checkpoint class, and optionally an async `abort`. Each phase must bear
    being run again from its top: after a crash it is.

    Args:
        kind: stored identity, written out and never changed; required.
        version: raised when the stored form of input or checkpoints changes.
    """

    definition: ClassVar[TaskDefinition]

    _runtime: Runtime | None = None
    _input: Any = None

    def __init_subclass__(
        cls, *, kind: str | None = None, version: int = 1, builtin: bool = False
    ) -> None:
        super().__init_subclass__()
        cls.definition = define_task(cls, TaskActor, kind, version, builtin=builtin)

    @classmethod
    def seed(cls, task_input: InputT, /) -> TaskSeed:
        """What a new task starts with; called by `Tx.create_task`.

        Raises:
            InvalidValue: the input or the first checkpoint cannot be stored, or the input does not
                come back as what it was.
        """
        definition = cls.definition
        stored = to_json(task_input, f"input[{definition.kind}]")
        actor = cls()
        actor._input = from_json(stored, definition.input_type, f"input[{definition.kind}]")
        return TaskSeed(
            definition.kind, definition.version, stored, cls.store_checkpoint(actor.start())
        )

    @classmethod
    def store_checkpoint(cls, checkpoint: Checkpoint) -> JsonObject:
        """The stored form of one of this class's checkpoints.

        Raises:
            MisuseError: it is not a checkpoint of this class.
            InvalidValue: it is not strict JSON.
        """
        name = getattr(type(checkpoint), "phase_name", None)
        known = cls.definition.phases.get(name) if isinstance(name, str) else None
        if known is None or known[0] is not type(checkpoint):
            raise MisuseError(
                f"{cls.__name__}: {checkpoint!r} is not a checkpoint of this task; it has "
                f"{', '.join(sorted(cls.definition.phases))}."
            )
        return checkpoint_to_json(checkpoint)

    @classmethod
    async def ended_by_runtime(cls, tx: Tx, task: TaskRecord, outcome: TaskOutcome) -> TaskOutcome:
        """Called inside the commit in which the runtime ends a task without running its code.

        That happens when it faults, is orphaned, or reaches the restart limit. Built-in tasks leave
        their visible result here; it must only read and write through `tx`.

        Args:
            tx: the commit.
            task: the record before its end.
            outcome: what it would end with.

        Returns:
            What it ends with.

        Durability: stored with the commit, together with the end of the task.

        Cancellation: not cancelled; it must not wait for anything but reads of `tx`.
        """
        return outcome

    @classmethod
    def migrate(
        cls, version: int, task_input: JSON, checkpoint: JsonObject
    ) -> tuple[JSON, JsonObject]:
        """Make of a stored task of an older version what this version reads; written by a subclass.

        Called in the commit that reserves the task, whatever it was doing. Pure: the same stored
        task may be migrated again when that commit is lost. While it fails, the task is blocked.

        Args:
            version: the stored version, less than the class's.
            task_input: the stored input.
            checkpoint: the stored checkpoint, ``{"phase": ..., ...}``.

        Returns:
            Input and checkpoint in the form of this version.
        """
        raise MisuseError(f"{cls.__name__} has no migrate().")

    @classmethod
    async def run_values(cls, tx: Tx, task: TaskRecord) -> Mapping[ContextKey[Any], Any]:
        """Context values for the runs of a task and of everything that is its work.

        Asked when one of them starts and they are not known, after a restart again: so they must
        come from what is stored, and `tx` must only be read.

        Durability: stores nothing.

        Cancellation: the look-up is made again for the next run.
        """
        return {}

    @classmethod
    async def blocked_by(cls, tx: Tx, task: TaskRecord, services: ServiceLookup) -> str | None:
        """Why a stored task cannot run here now, for want of something that may come; else None.

        Asked before a task is taken up that is due, or that an earlier process left; not for its
        abort handler. A task that is blocked stays as it is, is reported once, and is asked about
        again when the registry or a document of its conversation changes.

        Args:
            tx: the commit that would reserve it; must only be read.
            task: the record.
            services: what the harness provides.

        Durability: stores nothing.

        Cancellation: it is asked again.
        """
        return None

    # --- what a subclass writes ---

    def start(self) -> Checkpoint:
        """The first checkpoint. Pure: it sees `input` and nothing else."""
        raise MisuseError(f"{type(self).__name__} has no start().")

    async def abort(self) -> Outcome:
        """Decide how the task ends after an abort mark, once everything that it owns has ended.

        Runs in a fresh context; may be run again after a crash. Undo here what must be undone.

        Durability: the outcome is stored when it returns.

        Cancellation: only a close of the harness cancels it; the next open runs it again.
        """
        await trio.lowlevel.checkpoint()
        return Aborted(self._here().record.abort_reason)

    # --- what the runtime offers ---

    @property
    def input(self) -> InputT:
        """The input the task was created with."""
        return cast(InputT, self._input)

    @property
    def task_id(self) -> TaskId:
        """This task."""
        return self._here().task_id

    @property
    def conversation_id(self) -> ConversationId:
        """The conversation that it belongs to."""
        return self._here().conversation_id

    @property
    def context(self) -> Context:
        """The context of this run."""
        return self._here().context

    @property
    def settings(self) -> Settings:
        """The harness's settings, read live."""
        return self._here().settings

    @property
    def runtime(self) -> Runtime:
        """The runtime itself, for helpers that are not methods of the task."""
        return self._here()

    def now_ms(self) -> int:
        """Durable time, epoch milliseconds."""
        return self._here().now_ms()

    @overload
    async def commit(self, change: Callable[[Tx], Awaitable[T]]) -> T: ...

    @overload
    async def commit(self, change: Callable[[Tx], T]) -> T: ...

    async def commit(self, change: Callable[[Tx], Any]) -> Any:
        """Commit, bound to this task and its conversation.

        A callback that returns a `Next` value makes it the stored next step of the task, in this
        very commit; the phase must then return that same object and commit nothing more.

        Args:
            change: plain or async function of the transaction.

        Returns:
            What `change` returned.

        Raises:
            InvocationEnded: the run is over.
            MisuseError: the next step was stored by an earlier commit of this phase.
            CommitReentered: called from inside a commit callback.

        Durability: on return everything that `change` wrote is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        return await self._here().commit(change)

    async def memo(self, name: str) -> JSON | Missing:
        """The value recorded under `name`, `MISSING` when there is none.

        Raises:
            InvocationEnded: the run is over.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        return await self._here().memo(name)

    async def set_memo(self, name: str, value: JSON) -> JSON:
        """Record a value under `name`; the first writer wins.

        Returns:
            The winner, which is `value` or what was recorded before.

        Raises:
            InvalidValue: not strict JSON, or past a limit.
            InvocationEnded: the run is over.

        Durability: on return the winner is stored.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        return await self._here().set_memo(name, value)

    async def get_task(self, task_id: TaskId) -> TaskRecord:
        """The durable record of a task.

        Raises:
            StorageRequestError: there is none with this id.
            InvocationEnded: the run is over.

        Durability: reads what is stored.

        Cancellation: nothing happened.
        """
        return await self._here().get_task(task_id)

    async def wait_for_task(self, task_id: TaskId) -> TaskRecord:
        """Wait, in this run, until a task has ended. `WaitFor` waits without a run.

        Raises:
            TaskRefused: the task is this one or one that owns it, so it cannot end before this.
            StorageRequestError: there is none with this id.
            InvocationEnded: the run is over.

        Durability: what is returned is stored.

        Cancellation: only the wait ends.
        """
        return await self._here().wait_for_task(task_id)

    async def outcomes(self, task_ids: Sequence[TaskId]) -> list[TaskOutcome]:
        """The outcomes of ended tasks, in the order asked for.

        Raises:
            StorageRequestError: one of them is missing or has not ended.
            InvocationEnded: the run is over.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        return await self._here().outcomes(task_ids)

    async def entry(self, entry_id: EntryId) -> EntryRecord:
        """A durable transcript entry.

        Raises:
            StorageRequestError: there is none with this id.
            InvocationEnded: the run is over.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        return await self._here().entry(entry_id)

    async def conversation(self, conversation_id: int) -> ConversationHandle:
        """The handle of a conversation.

        Raises:
            StorageRequestError: there is none with this id.
            InvocationEnded: the run is over.

        Durability: it exists in storage.

        Cancellation: nothing happened.
        """
        return await self._here().conversation(conversation_id)

    async def create_conversation(
        self, key: str, *, agent: AgentChoice | None = None
    ) -> ConversationHandle:
        """A conversation that this task owns, made once for each key.

        A run that starts again after a crash finds the one that an earlier run made. What runs in
        it is this task's work: the task's end waits for it, and an abort of the task reaches it.

        Args:
            key: its identity among this task's conversations, written out.
            agent: what it runs with, when it is made now.

        Raises:
            UnknownModel: no installed provider serves the model of `agent`.
            TaskRefused: this task is being aborted.
            InvocationEnded: the run is over.

        Durability: on return it exists in storage.

        Cancellation: `Cancelled` means that nothing was stored.
        """
        return await self._here().create_conversation(key, agent=agent)

    async def sleep(self, seconds: float) -> None:
        """Sleep in this run; nothing of it is stored. `SleepUntil` survives a restart.

        Durability: none.

        Cancellation: the sleep ends.
        """
        self._here()
        await trio.sleep(seconds)

    def report(self, error: BaseException) -> None:
        """Hand an error to the host's `on_report` and go on."""
        self._here().report(error)

    def attach(self, runtime: Runtime, task_input: object) -> None:
        """Called by the engine before a run."""
        self._runtime = runtime
        self._input = task_input

    def _here(self) -> Runtime:
        if self._runtime is None:
            raise MisuseError(
                f"{type(self).__name__}.start() is pure: it may use self.input and nothing else."
            )
        return self._runtime


def input_of(cls: type[TaskActor[Any, Any]], record: TaskRecord) -> object:
    """The typed input of a stored task.

    Raises:
        InvalidValue: it does not fit the class any more.
    """
    return from_json(record.input, cls.definition.input_type, f"input[{record.kind}]")


def checkpoint_of(cls: type[TaskActor[Any, Any]], stored: JsonObject) -> tuple[Checkpoint, str]:
    """The typed checkpoint of a stored task and the name of the method to enter.

    Raises:
        InvalidValue: the phase is unknown or its fields do not fit.
    """
    name = stored.get("phase")
    known = cls.definition.phases.get(name) if isinstance(name, str) else None
    if known is None:
        raise InvalidValue("checkpoint.phase", f"{cls.__name__} has no phase {name!r}")
    checkpoint_class, method = known
    fields = {key: value for key, value in stored.items() if key != "phase"}
    return from_json(fields, checkpoint_class, f"checkpoint[{name}]"), method
