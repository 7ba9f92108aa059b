"""The fault sweep: which calls it fails, and the broken promises that it finds."""

from __future__ import annotations

import pytest
import trio

from pidurable_actors.errors import DefinitionError, SessionFailed, StorageError
from pidurable_actors.testing import FaultFailure, MemoryDisk, SqliteDisk, World, fault_sweep
from tests.testing.test_explorer import step


async def two_steps(world: World) -> None:
    async with world.open_harness() as harness:
        await step(harness, 1)
        world.effect("charge", repeatable=True)
        await step(harness, 2)


@pytest.mark.parametrize("disk", [MemoryDisk, SqliteDisk])
def test_every_write_and_every_read_fails_once(disk: type[MemoryDisk]) -> None:
    places: list[str] = []

    def check(world: World) -> None:
        places.extend(world.places)

    report = fault_sweep(two_steps, check=check, disk=disk)
    assert report.writes == 3
    assert report.reads >= 3
    assert places == [
        *(f"when its storage failed at write {at}" for at in (1, 2, 3)),
        *(f"when its storage failed at stored-write {at}" for at in (1, 2, 3)),
        *(f"when its storage failed at read {at}" for at in range(1, report.reads + 1)),
    ]


def test_the_next_process_finds_a_write_that_was_stored_and_none_that_was_not() -> None:
    commits: list[int] = []

    async def story(world: World) -> None:
        if world.life == 2:
            commits.append(world.records.commit)
        await two_steps(world)

    fault_sweep(story, check=[])
    assert commits[:6] == [0, 1, 2, 1, 2, 3]


def test_a_program_that_swallows_the_failure_and_acts_is_found() -> None:
    """It charges although the step before was not stored, and charges again afterwards."""

    async def careless(world: World) -> None:
        try:
            async with world.open_harness() as harness:
                await step(harness, 1)
        except (SessionFailed, StorageError):
            pass
        world.effect("charge", repeatable=True)

    with pytest.raises(FaultFailure, match="the harness went on") as caught:
        fault_sweep(careless)
    assert caught.value.replay == "write:1"
    with pytest.raises(FaultFailure):
        fault_sweep(careless, replay="write:1")


def test_a_story_with_tasks_of_its_own_may_end_in_a_group() -> None:
    async def story(world: World) -> None:
        async with world.open_harness() as harness, trio.open_nursery() as nursery:
            for at in (1, 2, 3):
                nursery.start_soon(step, harness, at)

    assert fault_sweep(story).writes >= 2


def test_what_a_story_raises_itself_is_its_own_failure() -> None:
    async def story(world: World) -> None:
        async with world.open_harness() as harness:
            try:
                await step(harness, 1)
            except StorageError:
                raise ZeroDivisionError from None

    with pytest.raises(FaultFailure) as caught:
        fault_sweep(story)
    assert isinstance(caught.value.error, ZeroDivisionError)


@pytest.mark.parametrize("replay", ["write", "write:0", "close:1"])
def test_a_replay_that_no_failure_prints_is_refused(replay: str) -> None:
    with pytest.raises(DefinitionError, match="write what the failure printed"):
        fault_sweep(two_steps, replay=replay)
