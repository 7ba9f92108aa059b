"""The explorer: which crash points it finds, what a recovery starts from, and what a failure says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio

from pidurable_actors import Harness, Tx, define_doc
from pidurable_actors.errors import DefinitionError, MisuseError
from pidurable_actors.testing import (
    CrashFailure,
    Disk,
    MemoryDisk,
    SqliteDisk,
    StoryStuck,
    World,
    explore,
)
from pidurable_actors.testing._disks import scratch

HOUR_S = 3_600.0


@attrs.define
class Steps:
    """How far a story has come."""

    done: int = 0


STEPS = define_doc("test.steps", Steps)


async def step(harness: Harness, upto: int) -> None:
    """Store that the story has come so far."""

    async def change(tx: Tx) -> None:
        steps = await tx.doc(STEPS)
        steps.done = max(steps.done, upto)

    root = await harness.root()
    await root.commit(change)


async def done(harness: Harness) -> int:
    """How far the story has come."""
    return (await (await harness.root()).snapshot(STEPS)).done


async def story_of_two(world: World) -> None:
    async with world.open_harness() as harness:
        await step(harness, 1)
        world.effect("charge", repeatable=True)
        await step(harness, 2)


class Seen:
    """A check that keeps what it is shown."""

    def __init__(self) -> None:
        self.crashes: list[tuple[str, ...]] = []
        self.effects: list[int] = []
        self.lives: list[int] = []

    def __call__(self, world: World) -> None:
        self.crashes.append(world.places)
        self.effects.append(len(world.effects))
        self.lives.append(world.life)


def test_a_point_is_before_and_after_each_write_and_each_effect() -> None:
    seen = Seen()
    report = explore(story_of_two, check=seen)
    # Points that leave the same are tried once, under the name of the last of them.
    assert seen.crashes == [
        (),
        ("before commit 1",),
        ("before commit 2",),
        ("before effect 'charge'",),
        ("before commit 3",),
        ("after commit 3, before it was acknowledged",),
        ("after the end",),
    ]
    assert report.points == 10
    assert report.recoveries == 6


def test_a_recovery_starts_from_what_the_dead_process_left_and_nothing_later() -> None:
    found: list[tuple[int, int]] = []

    async def story(world: World) -> None:
        async with world.open_harness() as harness:
            if world.life > 1:
                found.append((await done(harness), len(world.effects)))
            await step(harness, 1)
            world.effect("charge", repeatable=True)
            await step(harness, 2)

    explore(story)
    assert found == [(0, 0), (0, 0), (1, 0), (1, 1), (2, 1), (2, 1)]


def test_nothing_that_unwinds_is_part_of_a_death() -> None:
    """A `finally`, shielded or not, runs in the life that ends, never between crash and recovery."""
    found: list[int] = []

    async def story(world: World) -> None:
        async with world.open_harness() as harness:
            if world.life > 1:
                found.append(world.count("cleaned"))
            try:
                await step(harness, 1)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
                    world.effect("cleaned", repeatable=True)

    explore(story)
    assert found == [0, 0, 0, 1, 1]


def test_hours_cost_nothing_and_go_on_after_a_crash() -> None:
    starts: list[int] = []

    async def story(world: World) -> None:
        starts.append(world.clock.now_ms())
        async with world.open_harness() as harness:
            await trio.sleep(10 * HOUR_S)
            await step(harness, 1)
            await trio.sleep(10 * HOUR_S)
            world.effect("late", repeatable=True)

    report = explore(story)
    first = starts[0]
    hours = [(start - first) / HOUR_S / 1000 for start in starts]
    assert hours == [0, 10, 10, 20, 20, 20]
    assert report.seconds < 5


def test_the_same_seed_repeats_everything_and_another_orders_tasks_otherwise() -> None:
    def order(seed: int) -> list[list[str]]:
        told: list[list[str]] = []

        async def story(world: World) -> None:
            mine: list[str] = [world.chance.key()]
            told.append(mine)

            async def run(name: str) -> None:
                for _ in range(3):
                    mine.append(name)
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                for name in "abcde":
                    nursery.start_soon(run, name)
            world.effect("one")

        explore(story, seed=seed, check=[])
        return told

    assert order(1) == order(1)
    assert order(1) != order(2)
    keys = [mine[0] for mine in order(1)]
    assert len(set(keys)) == len(keys), "no two lives make the same keys"


def test_depth_two_crashes_inside_each_recovery() -> None:
    seen = Seen()
    report = explore(story_of_two, check=seen, depth=2)
    assert report.depth == 2
    assert {len(crashes) for crashes in seen.crashes} == {0, 1, 2}
    assert report.recoveries > 30
    assert max(seen.effects) == 3, "each life may have charged once"
    lengths = [len(crashes) for crashes in seen.crashes]
    # The fewest crashes first; to go deeper, a path of one crash is run once more.
    assert lengths[:9] == [0, 1, 1, 1, 1, 1, 1, 1, 2]


def test_a_budget_bounds_the_runs_and_deep_paths_are_random_but_repeatable() -> None:
    first, second, other = Seen(), Seen(), Seen()
    assert explore(story_of_two, check=first, depth=5, budget=60).recoveries <= 60
    explore(story_of_two, check=second, depth=5, budget=60)
    explore(story_of_two, check=other, depth=5, budget=60, seed=1)
    assert first.crashes == second.crashes
    assert first.crashes != other.crashes
    assert max(map(len, first.crashes)) == 5
    assert len(first.crashes) == 61


# --- outside state ---


def test_outside_objects_survive_as_they_were_at_the_crash() -> None:
    found: list[dict[str, int]] = []

    async def story(world: World) -> None:
        bank = world.external("bank", dict[str, int]())
        if world.life > 1:
            found.append(dict(bank))
        async with world.open_harness() as harness:
            await step(harness, 1)
            bank["paid"] = bank.get("paid", 0) + 1
            await step(harness, 2)

    explore(story, check=[])
    assert found[0] == {}
    assert {"paid": 1} in found
    assert all(bank.get("paid", 0) <= 1 for bank in found)


def test_files_of_the_world_survive_as_they_were_at_the_crash() -> None:
    found: list[list[str]] = []

    async def story(world: World) -> None:
        if world.life > 1:
            found.append(sorted(path.name for path in world.directory.rglob("*")))
        async with world.open_harness() as harness:
            await step(harness, 1)
            (world.directory / "inner").mkdir(exist_ok=True)
            (world.directory / "inner" / "ticket").write_text("open")
            await step(harness, 2)

    explore(story, check=[])
    assert found[0] == []
    assert found[-1] == ["inner", "ticket"]


def test_an_outside_object_that_cannot_be_copied_is_refused() -> None:
    async def story(world: World) -> None:
        world.external("lock", (part for part in "abc"))

    with pytest.raises(CrashFailure) as caught:
        explore(story)
    assert isinstance(caught.value.error, MisuseError)
    assert "world.external('lock')" in str(caught.value.error)


def test_checkpoints_of_user_code_are_points_on_request() -> None:
    """Between the two changes nothing is stored and no effect is named: only a checkpoint."""

    async def story(world: World) -> None:
        bank = world.external("bank", dict[str, bool]())
        bank["debited"] = True
        await trio.lowlevel.checkpoint()
        bank["credited"] = True

    found: list[dict[str, bool]] = []

    async def noting(world: World) -> None:
        if world.life > 1:
            found.append(dict(world.external("bank", dict[str, bool]())))
        await story(world)

    explore(noting, check=[])
    assert {"debited": True} not in found
    explore(noting, check=[], checkpoints=True)
    assert {"debited": True} in found


def test_an_effect_says_whether_it_is_new_to_the_outside() -> None:
    said: list[bool] = []

    async def story(world: World) -> None:
        said.append(world.effect("charge", key="k1"))

    explore(story, check=[])
    assert said == [True, True, False]


@pytest.mark.parametrize("disk", [MemoryDisk, SqliteDisk])
def test_an_exploration_leaves_nothing_behind(disk: Callable[[], Disk]) -> None:
    before = _scratches()

    async def story(world: World) -> None:
        (world.directory / "file").write_text("x")
        await story_of_two(world)

    explore(story, disk=disk)
    assert _scratches() == before


def _scratches() -> set[Path]:
    """Those of this process: others explore beside it."""
    place = scratch()
    place.rmdir()
    return set(place.parent.glob(f"pidurable-{os.getpid()}-*"))


# --- SQLite ---


def test_a_write_of_a_file_is_also_cut_in_two() -> None:
    seen = Seen()
    report = explore(story_of_two, check=seen, disk=SqliteDisk)
    torn = [where for crashes in seen.crashes for where in crashes if "within" in where]
    assert len(torn) >= 9
    assert report.recoveries > explore(story_of_two, check=[]).recoveries


def test_memory_and_sqlite_come_to_the_same() -> None:
    def told(disk: Callable[[], Disk]) -> list[tuple[tuple[str, ...], int]]:
        ends: list[tuple[tuple[str, ...], int]] = []

        def check(world: World) -> None:
            if not any("within" in where for where in world.crashes):
                ends.append((world.crashes, len(world.effects)))

        explore(story_of_two, check=check, disk=disk)
        return ends

    assert told(MemoryDisk) == told(SqliteDisk)


# --- failures ---


async def charging_twice(world: World) -> None:
    async with world.open_harness() as harness:
        world.effect("charge", repeatable=True)
        await step(harness, 1)


def at_most(count: int) -> Callable[[World], None]:
    """Refuses more charges."""

    def check(world: World) -> None:
        if world.count("charge") > count:
            raise AssertionError(f"charged {world.count('charge')} times")

    return check


def test_a_failure_names_the_place_and_repeats() -> None:
    with pytest.raises(CrashFailure) as caught:
        explore(charging_twice, check=at_most(1))
    failure = caught.value
    assert failure.places == ("before commit 1",)
    assert isinstance(failure.error, AssertionError)
    text = str(failure)
    assert text.startswith("killed before commit 1: AssertionError: charged 2 times")
    assert f"replay={failure.replay!r}" in text

    seen = Seen()
    with pytest.raises(CrashFailure) as again:
        explore(charging_twice, check=[seen, at_most(1)], replay=failure.replay)
    assert str(again.value) == text
    assert seen.crashes == [(), ("before commit 1",)], "just this path"


def test_a_failure_that_needs_two_crashes_is_found_at_depth_two() -> None:
    explore(charging_twice, check=at_most(2))
    with pytest.raises(CrashFailure) as caught:
        explore(charging_twice, check=at_most(2), depth=3)
    assert len(caught.value.places) == 2


def test_a_random_failure_is_shrunk_to_the_fewest_crashes() -> None:
    with pytest.raises(CrashFailure) as caught:
        explore(charging_twice, check=at_most(2), depth=6, budget=500, seed=3)
    assert len(caught.value.places) == 2
    with pytest.raises(CrashFailure):
        explore(charging_twice, check=at_most(2), replay=caught.value.replay)


def test_a_story_that_fails_undisturbed_says_so() -> None:
    async def story(_: World) -> None:
        raise ZeroDivisionError

    with pytest.raises(CrashFailure, match="with no crash at all: ZeroDivisionError") as caught:
        explore(story)
    assert caught.value.places == ()


def test_a_story_that_never_ends_is_stuck_and_says_what_is_live() -> None:
    async def story(world: World) -> None:
        async with world.open_harness():
            await trio.sleep_forever()

    with pytest.raises(CrashFailure) as caught:
        explore(story)
    assert isinstance(caught.value.error, StoryStuck)
    assert "live were: none" in str(caught.value.error)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"depth": 0}, "depth is 0"),
        ({"replay": "seven"}, "write what the failure printed"),
        ({"replay": "0:99"}, "the story has changed since"),
    ],
)
def test_a_wrong_argument_is_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        explore(story_of_two, **options)  # type: ignore[arg-type]
