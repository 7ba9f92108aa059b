"""Ready-made checks: what must hold when a story has ended, whatever was cut off on the way.

A check is a plain function of a `World`. It raises an `AssertionError` that says what was promised
and what was seen. Each is a witness of one promise and knows no other, so that several broken
promises are several facts; they agree only on the history of the path, which is read once.

`invariants` is all of them. Give `explore` other functions beside it for what a story promises.
"""

from pidurable_actors.testing.checkers._acknowledged_kept import acknowledged_kept
from pidurable_actors.testing.checkers._calls_have_one_result import calls_have_one_result
from pidurable_actors.testing.checkers._effects_once import effects_once
from pidurable_actors.testing.checkers._ids_unique import ids_unique
from pidurable_actors.testing.checkers._invariants import INVARIANTS, invariants
from pidurable_actors.testing.checkers._memos_single import memos_single
from pidurable_actors.testing.checkers._nothing_stuck import nothing_stuck
from pidurable_actors.testing.checkers._operations_lead_to_values import (
    operations_lead_to_values,
)
from pidurable_actors.testing.checkers._owned_work_ends_first import owned_work_ends_first
from pidurable_actors.testing.checkers._prefix_durable import prefix_durable
from pidurable_actors.testing.checkers._restarts_counted import restarts_counted
from pidurable_actors.testing.checkers._stored_before_acknowledged import (
    stored_before_acknowledged,
)
from pidurable_actors.testing.checkers._stored_before_published import stored_before_published
from pidurable_actors.testing.checkers._stored_is_acknowledged import stored_is_acknowledged
from pidurable_actors.testing.checkers._submissions_settled_once import submissions_settled_once
from pidurable_actors.testing.checkers._transitions_legal import transitions_legal
from pidurable_actors.testing.checkers._unsafe_runs_once import unsafe_runs_once
from pidurable_actors.testing.checkers._views_survive import views_survive

__all__ = [
    "INVARIANTS",
    "acknowledged_kept",
    "calls_have_one_result",
    "effects_once",
    "ids_unique",
    "invariants",
    "memos_single",
    "nothing_stuck",
    "operations_lead_to_values",
    "owned_work_ends_first",
    "prefix_durable",
    "restarts_counted",
    "stored_before_acknowledged",
    "stored_before_published",
    "stored_is_acknowledged",
    "submissions_settled_once",
    "transitions_legal",
    "unsafe_runs_once",
    "views_survive",
]
