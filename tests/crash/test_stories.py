"""Every story of the product: every crash point, cancellation and failure of its storage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidurable_actors.testing import (
    Disk,
    Exploration,
    MemoryDisk,
    SqliteDisk,
    cancel_sweep,
    fault_sweep,
)
from pidurable_actors.testing.checkers import invariants
from tests.crash.owned_stories import ALL, aborted_checkout, check_aborted_checkout

SMALL = (
    "counter",
    "tracker, default",
    "tracker, reconcile",
    "retrying clients",
    "checkout, expired card",
    "checkout, aborted",
    "inbox, aborted",
    "hooks, an abort",
    "migration",
    "compaction, manual",
    "a budget",
    "approval",
    "abort of a question",
)
"""Stories for which every pair of crashes is tried each time; the others with ``-m soak``."""

DISKS = pytest.mark.parametrize("disk", [MemoryDisk, SqliteDisk])
Explore = Callable[..., Exploration]


@pytest.mark.slow
@DISKS
@pytest.mark.parametrize("name", ALL)
def test_a_story_keeps_its_promises_at_every_crash_point(
    name: str, disk: Callable[[], Disk], crash_explore: Explore
) -> None:
    told = ALL[name]
    report = crash_explore(told.story, check=[invariants, told.check], disk=disk)
    assert report.points > report.recoveries > 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name if name in SMALL else pytest.param(name, marks=pytest.mark.soak) for name in ALL],
)
def test_a_story_keeps_its_promises_when_its_recovery_is_cut_too(
    name: str, crash_explore: Explore
) -> None:
    told = ALL[name]
    report = crash_explore(told.story, check=[invariants, told.check], depth=2)
    assert report.recoveries > 50


@pytest.mark.soak
@DISKS
@pytest.mark.parametrize("name", ALL)
def test_a_story_keeps_its_promises_through_many_crashes(
    name: str, disk: Callable[[], Disk], crash_explore: Explore
) -> None:
    told = ALL[name]
    crash_explore(told.story, check=[invariants, told.check], disk=disk, depth=6, budget=2_000)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["end", "park"])
def test_a_restart_limit_holds_through_more_crashes_than_it_allows(
    policy: str, crash_explore: Explore
) -> None:
    told = ALL[f"restart limit, {policy}"]
    crash_explore(told.story, check=[invariants, told.check], depth=5, budget=400)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_a_story_keeps_its_promises_when_it_is_cancelled(name: str) -> None:
    told = ALL[name]
    report = cancel_sweep(told.story, check=[invariants, told.check])
    assert report.caller >= 4
    assert report.story > report.caller


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_a_story_keeps_its_promises_when_its_storage_fails(name: str) -> None:
    """C12, C18, C20: a failing call ends the harness; nothing is half settled or done twice."""
    told = ALL[name]
    report = fault_sweep(told.story, check=[invariants, told.check])
    assert report.writes >= 6
    assert report.reads >= 3


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 11))
def test_an_abort_at_every_commit_undoes_what_was_done_wherever_it_is_cut(
    at: int, crash_explore: Explore
) -> None:
    crash_explore(aborted_checkout(at), check=[invariants, check_aborted_checkout])
