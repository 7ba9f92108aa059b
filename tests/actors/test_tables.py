"""The life cycle and the decisions, as tables."""

from __future__ import annotations

from typing import get_args

from pytest import mark, raises

from pidurable_actors._json import JsonObject
from pidurable_actors.actors import TRANSITIONS, check_transition
from pidurable_actors.actors._decisions import startable
from pidurable_actors.errors import HarnessBug
from pidurable_actors.records import (
    CompletedOutcome,
    Completing,
    ConversationId,
    Parked,
    Pending,
    Running,
    Sleeping,
    TaskId,
    TaskRecord,
    TaskState,
    TaskStatus,
    Terminal,
    Waiting,
)

AT: JsonObject = {"phase": "at"}
STATES: dict[str, TaskState] = {
    "pending": Pending(checkpoint=AT),
    "running": Running(checkpoint=AT),
    "waiting": Waiting(checkpoint=AT, on=(TaskId(9),)),
    "sleeping": Sleeping(checkpoint=AT, until_ms=1_000),
    "parked": Parked(checkpoint=AT),
    "completing": Completing(outcome=CompletedOutcome()),
    "terminal": Terminal(outcome=CompletedOutcome()),
}


def record(status: str, *, aborted: bool = False) -> TaskRecord:
    return TaskRecord(
        id=TaskId(7),
        conversation_id=ConversationId(1),
        kind="test",
        version=1,
        input=None,
        state=STATES[status],
        abort_requested=aborted,
    )


def test_the_table_knows_every_status_and_nothing_comes_back_from_the_end() -> None:
    assert set(TRANSITIONS) == set(get_args(TaskStatus)) == set(STATES)
    assert set(TRANSITIONS["terminal"]) == {"terminal"}
    assert all(set(after) <= set(STATES) for after in TRANSITIONS.values())


@mark.parametrize("old", STATES)
@mark.parametrize("new", STATES)
def test_a_move_is_in_the_table_or_an_error_that_names_it(old: str, new: str) -> None:
    if new in TRANSITIONS[STATES[old].status]:
        check_transition(record(old), record(new))
    else:
        with raises(HarnessBug, match=rf"task 7 \(test\) cannot go from {old} to {new}"):
            check_transition(record(old), record(new))


@mark.parametrize(
    ("status", "aborted", "now_ms", "below", "start"),
    [
        ("pending", False, 0, 0, "run"),
        ("pending", False, 0, 3, "run"),
        ("pending", True, 0, 0, "abort"),
        ("pending", True, 0, 1, None),
        ("running", False, 0, 0, None),
        ("running", True, 0, 0, None),
        ("sleeping", False, 999, 0, None),
        ("sleeping", False, 1_000, 0, "run"),
        ("sleeping", True, 0, 0, "abort"),
        ("sleeping", True, 2_000, 2, None),
        ("waiting", False, 0, 0, None),
        ("waiting", True, 0, 0, "abort"),
        ("parked", False, 0, 0, None),
        ("parked", True, 0, 0, "abort"),
        ("completing", True, 0, 0, None),
        ("terminal", True, 0, 0, None),
    ],
)
def test_what_may_start(
    status: str, aborted: bool, now_ms: int, below: int, start: str | None
) -> None:
    assert startable(record(status, aborted=aborted), now_ms=now_ms, below=below) == start
