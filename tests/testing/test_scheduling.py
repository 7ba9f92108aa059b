"""The two private names of Trio that make its order repeatable are there and do that."""

from __future__ import annotations

import trio
from trio._core import _run

from pidurable_actors.testing._scheduling import seeded_scheduling


def order(seed: int) -> list[int]:
    """In which order twenty tasks take their steps."""
    told: list[int] = []

    async def run(number: int) -> None:
        for _ in range(3):
            told.append(number)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(run, number)

    with seeded_scheduling(seed):
        trio.run(main)
    return told


def test_trio_has_the_names_that_are_used() -> None:
    assert _run._ALLOW_DETERMINISTIC_SCHEDULING in (True, False)
    assert callable(_run._r.getstate)


def test_one_seed_gives_one_order_and_seeds_differ() -> None:
    orders = [order(7) for _ in range(5)]
    assert all(one == orders[0] for one in orders)
    assert len({tuple(order(seed)) for seed in range(5)}) == 5


def test_trio_is_left_as_it_was() -> None:
    switch, state = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r.getstate()
    order(3)
    assert switch == _run._ALLOW_DETERMINISTIC_SCHEDULING
    assert state == _run._r.getstate()
