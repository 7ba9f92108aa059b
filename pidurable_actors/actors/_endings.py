"""Ends that the runtime decides: a fault of the task's code, and being cut off too often.

Functions of a transaction. They complete an end with what the task's class leaves behind, and say
what the host is told. They never run the task's phases or its abort handler.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

import attrs

from pidurable_actors._json import JSON
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import ClosedError, StorageError
from pidurable_actors.records import (
    Completing,
    FaultedOutcome,
    OrphanedOutcome,
    Parked,
    Pending,
    Running,
    TaskId,
    TaskOutcome,
    TaskRecord,
    Terminal,
)
from pidurable_actors.runtime import Report, ReportKind, TaskActor, end_task
from pidurable_actors.session import TaskSlot, Tx

__all__ = [
    "about",
    "describe_error",
    "end_by_runtime",
    "give_back",
    "in_words",
    "orphan_blocked",
    "stop_crash_loop",
    "with_hook",
]

T = TypeVar("T")
AnyActor: TypeAlias = TaskActor[Any, Any]


async def end_by_runtime(
    tx: Tx, cls: type[AnyActor] | None, task_id: TaskId, outcome: TaskOutcome
) -> bool:
    """End a task without its own code, in one commit with what its class leaves behind.

    Returns:
        Whether the task was live and had no outcome yet.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    record = await tx.task(task_id)
    if isinstance(record.state, Terminal | Completing):
        return False
    if cls is not None:
        outcome = await cls.ended_by_runtime(tx, record, outcome)
        record = await tx.task(task_id)
    end_task(tx, record, outcome)
    return True


async def orphan_blocked(
    tx: Tx,
    task_id: TaskId,
    why_blocked: Callable[[TaskSlot], str | None],
    builtin: Callable[[str], type[AnyActor] | None],
    reason: str,
) -> None:
    """End what is blocked among a task and its ordinary work, without its code.

    A task of the package's own, which may be blocked by what others install, leaves its visible
    result.

    Args:
        tx: the commit.
        task_id: the live task to begin with.
        why_blocked: why a live task cannot run here, None when it can.
        builtin: the package's own task class of a kind.
        reason: kept in the outcomes, with what blocked the task.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    found = [task_id]
    # Breadth first, so that going back meets the lowest before what owns them.
    for above in found:
        found.extend(tx.tasks.children(above))
    await tx.load_tasks(found)
    for at in reversed(found):
        slot = tx.tasks.slot(at)
        blocked = None if slot is None else why_blocked(slot)
        if blocked is not None:
            detail = f"{reason}: {blocked}" if reason else blocked
            assert slot is not None, "what is blocked is live"
            cls = builtin(slot.kind)
            if cls is not None and cls.definition.version != slot.version:
                cls = None
            await end_by_runtime(tx, cls, at, OrphanedOutcome(reason=detail))


async def with_hook(
    commit: Callable[[Callable[[Tx], Awaitable[T]]], Awaitable[T]],
    cls: type[AnyActor],
    end: Callable[[Tx, type[AnyActor] | None], Awaitable[T]],
    failed: Callable[[Exception], None],
) -> T:
    """Commit an end with what the class leaves behind, or without it when the class fails.

    Args:
        commit: commits one callback.
        cls: the class.
        end: the callback, given the class, or None to do without it.
        failed: told of what the class did wrong; its writes were rolled back.

    Durability: stored on return.

    Cancellation: `Cancelled` means that nothing was stored.
    """
    try:
        return await commit(lambda tx: end(tx, cls))
    except (ClosedError, StorageError):
        raise
    except Exception as error:  # noqa: BLE001 - the hook is user code and fails only its own part
        failed(error)
        return await commit(lambda tx: end(tx, None))


async def stop_crash_loop(
    tx: Tx, cls: type[AnyActor] | None, task_id: TaskId, policy: Literal["end", "park"]
) -> Report | None:
    """End or park a task that was cut off too often without progress.

    One that is being aborted is ended whatever the policy: its handler is what is cut off, and a
    parked task would only be sent to it again.

    Returns:
        What the host is told once it is stored; None when the task has its outcome already.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    record = await tx.task(task_id)
    state = record.state
    if policy == "park" and isinstance(state, Pending) and not record.abort_requested:
        tx.tasks.put(attrs.evolve(record, state=Parked(checkpoint=state.checkpoint)))
        return about("task_parked", record, reason="restart_limit")
    outcome = FaultedOutcome(error={"reason": "restart_limit", "restarts": record.restarts})
    if not await end_by_runtime(tx, cls, record.id, outcome):
        return None
    builtin = cls is not None and cls.definition.builtin
    kind: ReportKind = "task_interrupted" if builtin else "task_faulted"
    return about(kind, record, reason="restart_limit")


def give_back(tx: Tx, record: TaskRecord) -> None:
    """Make a task that was reserved pending again, without counting a restart."""
    assert isinstance(record.state, Running), "only what was reserved is given back"
    tx.tasks.put(attrs.evolve(record, state=Pending(checkpoint=record.state.checkpoint)))


def about(
    kind: ReportKind,
    record: TaskRecord,
    *,
    reason: str = "",
    detail: str = "",
    error: BaseException | None = None,
) -> Report:
    """A report about a task."""
    return Report(
        kind=kind,
        reason=reason,
        detail=detail,
        error=error,
        task_id=record.id,
        conversation_id=record.conversation_id,
    )


def describe_error(error: BaseException) -> JSON:
    """What is stored of an exception: its type, its message and the end of its trace."""
    trace = "".join(traceback.format_exception(error))
    return {
        "type": _storable(type(error).__name__),
        "message": _storable(_message(error)),
        "trace": _storable(trace[-LIMITS.error_chars :]),
    }


def in_words(error: BaseException) -> str:
    """An exception in one line for people."""
    return f"{type(error).__name__}: {_message(error)}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the text of a user's exception is user code
        return "(its text could not be made)"


def _storable(text: str) -> str:
    # A message may hold anything, a lone surrogate included; the record must stay storable.
    return text[: LIMITS.error_chars].encode("utf-8", "backslashreplace").decode()
