"""Rows of the table: what is compared with what, and when a goal is met. Pure.

A *reading* names a number of a probe. Ratios say how many times better ours is, whichever way
better is, so that more is always better.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

__all__ = ["COLUMNS", "Cell", "Goal", "Reading", "Results", "Row", "met", "ratio"]

COLUMNS = ("raw", "dbos", "lg")
"""What ours is compared with, in the order of the table."""

Results = Mapping[str, Sequence[Mapping[str, float]]]
"""Per probe, the numbers of each round; a probe that failed or did not run is missing."""


@attrs.frozen
class Reading:
    """One number of a probe."""

    probe: str
    field: str


@attrs.frozen(kw_only=True)
class Goal:
    """What a row should reach: all of it.

    Attributes:
        text: for people.
        limit: a bound of the number itself.
        times: per column, how many times better ours has to be.
    """

    text: str
    limit: float | None = None
    times: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        name: stable, for ``--only`` and for programs that read the JSON.
        what: for people.
        better: which way is better.
        others: per column, what it is compared with.
    """

    name: str
    what: str
    unit: str
    better: Literal["more", "less"]
    ours: Reading
    others: Mapping[str, Reading] = attrs.field(factory=dict)
    goal: Goal | None = None

    @property
    def probes(self) -> set[str]:
        """The probes that the row reads."""
        return {self.ours.probe, *(reading.probe for reading in self.others.values())}


@attrs.frozen
class Cell:
    """The median of a reading over the rounds, and all of them."""

    median: float
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, reading: Reading | None, results: Results) -> Cell | None:
        """The cell of a reading; None when nothing was measured."""
        rounds = results.get(reading.probe, ()) if reading is not None else ()
        if reading is None or not rounds:
            return None
        values = tuple(numbers[reading.field] for numbers in rounds)
        return cls(statistics.median(values), values)


def ratio(row: Row, column: str, results: Results) -> float | None:
    """How many times better ours is than a column."""
    ours, theirs = Cell.of(row.ours, results), Cell.of(row.others.get(column), results)
    if ours is None or theirs is None:
        return None
    upper, lower = ours.median, theirs.median
    if row.better == "less":
        upper, lower = lower, upper
    return upper / lower if lower else None


def met(row: Row, results: Results) -> bool | None:
    """Whether the goal is reached, as far as it was measured; None when nothing of it was."""
    ours = Cell.of(row.ours, results)
    if row.goal is None or ours is None:
        return None
    checks: list[bool] = []
    if row.goal.limit is not None:
        within = ours.median <= row.goal.limit
        checks.append(within if row.better == "less" else ours.median >= row.goal.limit)
    for column, times in row.goal.times.items():
        found = ratio(row, column, results)
        if found is not None:
            checks.append(found >= times)
    return all(checks) if checks else None
