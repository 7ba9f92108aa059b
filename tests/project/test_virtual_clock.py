"""Async tests run on virtual time unless they ask for real time."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

DAY_S = 86_400.0


@pytest.fixture
async def slow_fixture() -> float:
    await trio.sleep(DAY_S)
    return trio.current_time()


async def test_a_day_of_sleep_costs_nothing() -> None:
    assert trio.current_time() == 0.0
    await trio.sleep(DAY_S)
    assert trio.current_time() == DAY_S


async def test_a_timeout_that_is_far_away_fires_at_its_time() -> None:
    with trio.move_on_after(DAY_S) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == DAY_S


async def test_fixtures_share_the_clock_of_their_test(slow_fixture: float) -> None:
    assert slow_fixture == DAY_S
    assert trio.current_time() == DAY_S


@given(st.floats(min_value=0.0, max_value=DAY_S))
async def test_every_generated_example_starts_with_a_clock_of_its_own(pause_s: float) -> None:
    assert trio.current_time() == 0.0
    await trio.sleep(pause_s)
    assert trio.current_time() == pause_s


@pytest.mark.parametrize("pause_s", [1.0, DAY_S])
async def test_parametrized_tests_are_virtual_too(pause_s: float) -> None:
    await trio.sleep(pause_s)
    assert trio.current_time() == pause_s


class TestInAClass:
    async def test_methods_are_virtual_too(self) -> None:
        await trio.sleep(DAY_S)
        assert trio.current_time() == DAY_S


async def test_a_named_clock_fixture_wins(mock_clock: MockClock) -> None:
    assert trio.lowlevel.current_clock() is mock_clock
    mock_clock.jump(3.0)
    assert trio.current_time() == 3.0


@pytest.mark.real_time
async def test_real_time_opts_out() -> None:
    assert not isinstance(trio.lowlevel.current_clock(), MockClock)
