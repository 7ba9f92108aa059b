"""All checks as one.

Owns their list and order: from the storage up to the application, so that what is told first of
several broken promises is the one nearest to the cause. It checks nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._acknowledged_kept import acknowledged_kept
from pidurable_actors.testing.checkers._calls_have_one_result import calls_have_one_result
from pidurable_actors.testing.checkers._effects_once import effects_once
from pidurable_actors.testing.checkers._ids_unique import ids_unique
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

__all__ = ["INVARIANTS", "invariants"]

INVARIANTS: Final[tuple[Callable[[World], None], ...]] = (
    stored_before_acknowledged,
    stored_before_published,
    acknowledged_kept,
    prefix_durable,
    operations_lead_to_values,
    views_survive,
    stored_is_acknowledged,
    ids_unique,
    transitions_legal,
    restarts_counted,
    memos_single,
    owned_work_ends_first,
    submissions_settled_once,
    calls_have_one_result,
    unsafe_runs_once,
    effects_once,
    nothing_stuck,
)
"""Every ready-made check, in the order in which `invariants` runs them."""


def invariants(world: World) -> None:
    """Every ready-made check.

    Raises:
        AssertionError: a promise was broken; the first word of its text names the check.
    """
    for check in INVARIANTS:
        check(world)
