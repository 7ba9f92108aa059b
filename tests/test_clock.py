"""Clocks and chance: durable time never goes back, keys never come twice."""

from __future__ import annotations

import time
import uuid

import trio
from pytest import mark

from pidurable_actors._clock import (
    SystemChance,
    TrioClock,
    WallClock,
    default_clock,
    monotonic,
    uuid7,
)


class Hands:
    """The two clocks of a machine, set by hand."""

    def __init__(self) -> None:
        self.wall_s = 1_000_000.0
        self.running_s = 500.0

    def pass_time(self, seconds: float) -> None:
        self.wall_s += seconds
        self.running_s += seconds

    def clock(self) -> WallClock:
        return WallClock(wall_ns=lambda: round(self.wall_s * 1e9), running_s=lambda: self.running_s)


def test_it_follows_the_wall() -> None:
    hands = Hands()
    clock = hands.clock()
    assert clock.now_ms() == 1_000_000_000
    hands.pass_time(1.5)
    assert clock.now_ms() == 1_000_001_500


def test_a_step_forward_and_a_suspended_machine_are_followed_at_once() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.wall_s += 9 * 3_600
    assert clock.now_ms() == 1_000_000_000 + 9 * 3_600_000
    hands.pass_time(1)
    assert clock.now_ms() == 1_000_001_000 + 9 * 3_600_000


def test_a_step_back_neither_goes_back_nor_stands_still() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.wall_s -= 9 * 3_600
    assert clock.now_ms() == 1_000_000_000
    for second in range(1, 100):
        hands.pass_time(1)
        assert clock.now_ms() == 1_000_000_000 + second * 1_000
    # Once the wall has caught up it leads again.
    hands.wall_s += 10 * 3_600
    assert clock.now_ms() == round(hands.wall_s * 1_000)


def test_asked_often_after_a_step_back_it_loses_no_time() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.wall_s -= 3_600
    for _ in range(10_000):
        hands.pass_time(0.000_3)
        clock.now_ms()
    assert abs(clock.now_ms() - 1_000_003_000) <= 1


@mark.real_time
async def test_the_default_is_the_wall_and_trios_clock_when_that_can_be_set() -> None:
    before = time.time_ns() // 1_000_000
    now = default_clock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000
    assert isinstance(default_clock(), WallClock)


async def test_under_a_mock_clock_durable_time_is_virtual() -> None:
    clock = default_clock()
    assert isinstance(clock, TrioClock)
    began = clock.now_ms()
    await trio.sleep(3_600)
    assert clock.now_ms() == began + 3_600_000
    assert TrioClock(5).now_ms() == 3_600_005


def test_a_clock_that_an_application_brought_counts_as_trios() -> None:
    class Own(trio.abc.Clock):
        def start_clock(self) -> None:
            pass

        def current_time(self) -> float:
            return 12.0

        def deadline_to_sleep_time(self, deadline: float) -> float:
            return 0

    async def main() -> int:
        return default_clock().now_ms() - TrioClock(0).now_ms()

    assert trio.run(main, clock=Own()) > 0


def test_real_seconds_go_on() -> None:
    first = monotonic()
    assert monotonic() >= first


def test_chance_gives_keys_that_differ_and_ids_that_sort_by_time() -> None:
    chance = SystemChance()
    keys = {chance.key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in keys)
    assert all(2 <= chance.uniform(2, 3) <= 3 for _ in range(100))
    ids = [chance.session_id(at_ms) for at_ms in (1, 1_000, 1_767_225_600_000)]
    assert ids == sorted(ids)
    made = uuid.UUID(uuid7(1_767_225_600_000, 2**74 - 1))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == 1_767_225_600_000
