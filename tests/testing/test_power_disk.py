"""Explorations whose crashes are power cuts: what each durability promises, and no more."""

from __future__ import annotations

import pytest

from pidurable_actors.testing import CrashFailure, PowerDisk, explore
from pidurable_actors.testing.checkers import invariants, prefix_durable
from tests.crash.stories import STORIES
from tests.testing.test_explorer import story_of_two


@pytest.mark.slow
def test_with_power_durability_every_promise_survives_a_power_cut_anywhere() -> None:
    told = STORIES["tracker, default"]
    report = explore(told.story, check=[invariants, told.check], disk=PowerDisk)
    assert report.recoveries > 60


@pytest.mark.slow
def test_with_process_durability_a_power_cut_may_cost_the_newest_commits_and_tears_none() -> None:
    def disk() -> PowerDisk:
        return PowerDisk("process")

    with pytest.raises(CrashFailure, match="acknowledged_kept"):
        explore(story_of_two, disk=disk)
    assert explore(story_of_two, check=prefix_durable, disk=disk).recoveries > 20


@pytest.mark.soak
@pytest.mark.parametrize("name", STORIES)
def test_every_story_survives_a_power_cut_anywhere(name: str) -> None:
    told = STORIES[name]
    explore(told.story, check=[invariants, told.check], disk=PowerDisk)
