"""The life cycle of a task as one literal table.

Every write of a task's state goes through `check_transition`; a move that the table does not have
is a bug of the engine, named with task, states and kind. The README's diagram is made from it.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors.errors import HarnessBug
from pidurable_actors.records import TaskRecord, TaskStatus

__all__ = ["TRANSITIONS", "check_transition"]

TRANSITIONS: Final[dict[TaskStatus, dict[TaskStatus, str]]] = {
    "pending": {
        "running": "reserved",
        "pending": "marked for abort",
        "parked": "cut off too often",
        "terminal": "cut off too often, or orphaned",
        "completing": "cut off too often, with work below",
    },
    "running": {
        "running": "next phase, memo, or abort mark",
        "pending": "cut off, closed, or waits for its abort handler",
        "waiting": "waits for tasks",
        "sleeping": "sleeps",
        "completing": "ended, with work below",
        "terminal": "ended",
    },
    "waiting": {
        "waiting": "marked for abort",
        "running": "what it waited for has ended, or its abort handler runs",
        "pending": "what it waited for has ended",
        "terminal": "orphaned",
        "completing": "orphaned, with work below",
    },
    "sleeping": {
        "sleeping": "marked for abort, or made due",
        "running": "due, or its abort handler runs",
        "terminal": "orphaned",
        "completing": "orphaned, with work below",
    },
    "parked": {
        "parked": "marked for abort",
        "pending": "tried again",
        "running": "its abort handler runs",
        "terminal": "orphaned",
        "completing": "orphaned, with work below",
    },
    "completing": {
        "completing": "marked for abort",
        "terminal": "the work below has ended",
    },
    "terminal": {
        "terminal": "linked to its retry, or pruned",
    },
}
"""From each status, the statuses that may follow, and why."""


def check_transition(before: TaskRecord, after: TaskRecord) -> None:
    """Refuse a move that the life cycle does not have.

    Raises:
        HarnessBug: naming the task and the move.
    """
    old, new = before.state.status, after.state.status
    if new not in TRANSITIONS[old]:
        raise HarnessBug(f"task {before.id} ({before.kind}) cannot go from {old} to {new}")
