# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""Read by the type checkers, never run: ids do not mix, records do not change, states are closed.

A line that must be refused carries an ignore; the checkers complain about one that is not needed.
"""

from __future__ import annotations

from typing import assert_never, assert_type

from pidurable_actors._json import JSON
from pidurable_actors.records import (
    Completing,
    ConversationId,
    ConversationRecord,
    EntryId,
    Parked,
    Pending,
    Running,
    Sleeping,
    StepState,
    TaskId,
    TaskState,
    Terminal,
    Waiting,
)


def wants_a_task(task: TaskId) -> int:
    return task


wants_a_task(TaskId(1))
wants_a_task(EntryId(1))  # type: ignore[arg-type]
wants_a_task(1)  # type: ignore[arg-type]


def a_record_does_not_change(record: ConversationRecord) -> None:
    assert_type(record.id, ConversationId)
    record.id = ConversationId(2)  # type: ignore[misc]


def every_state_is_known(state: TaskState) -> None:
    match state:
        case Pending() | Running() | Waiting() | Sleeping() | Parked():
            assert_type(state, StepState)
        case Completing() | Terminal():
            print(state.outcome.status)
        case _:
            assert_never(state)


def a_forgotten_state_is_found(state: TaskState) -> None:
    match state:
        case Pending() | Running() | Waiting() | Sleeping() | Completing() | Terminal():
            pass
        case _:
            assert_never(state)  # type: ignore[arg-type]


strict_json: JSON = {"steps": [1, 2.5, "three", None, {"done": True}]}
a_set_is_not_json: JSON = {"steps": {1, 2}}  # type: ignore[dict-item]
a_key_is_text: JSON = {1: "one"}  # type: ignore[dict-item]
