"""Processes that really die: at each crash point, at random moments, and by their own hand."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Literal

import pytest
import trio

from pidurable_actors.errors import DefinitionError, MisuseError
from pidurable_actors.records import TaskRecord, ToolResultMessage
from pidurable_actors.testing import CrashFailure, SqliteDisk, StoryStuck, World
from pidurable_actors.testing._world import Story
from pidurable_actors.testing.checkers import invariants
from pidurable_actors.testing.kills import KillMismatch, kill_at_random, kill_matrix
from tests._agents import codes, short
from tests.crash.stories import (
    check_counter,
    check_one_answer,
    check_tools,
    counter,
    kill9,
    results_of,
    retrying_client,
    statuses_of,
)
from tests.testing import stories

ROOT: Final = Path(__file__).parents[2]
Check = Callable[[World], None]


def check_outside(world: World) -> None:
    """What is outside was done, and told as done."""
    assert world.external("bank", stories.Bank()) == stories.Bank({"order 7": 100})
    assert (world.directory / "receipts" / "7.txt").read_text() == "100"
    assert not results_of(world)["charge"].is_error


def check_crowd(world: World) -> None:
    """Every call of every round has its one result, and no steer is lost or doubled."""
    told = [short(m) for entry in world.records.entries.values() for m in entry.model or ()]
    assert sum(line.startswith("result") for line in told) == stories.ROUNDS * stories.WIDE
    steers = sorted(line for line in told if line.startswith("user steer"))
    assert steers == [f"user steer {number}" for number in range(stories.ROUNDS)]


# --- kills at every crash point ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "check", "fewest"),
    [
        (counter, check_counter, 40),
        (kill9, check_tools, 40),
        (stories.two_at_once, check_tools, 40),
        (retrying_client, check_one_answer, 10),
        (stories.outside, check_outside, 20),
    ],
)
def test_a_death_at_any_crash_point_leaves_its_snapshot_and_the_story_goes_on(
    story: Story, check: Check, fewest: int
) -> None:
    report = kill_matrix(story, check=[invariants, check])
    assert report.kills >= fewest
    assert report.kills > 2 * report.writes
    assert str(report) == f"{report.kills} kills, {report.writes} writes, {report.seconds:.2f} s"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "part"),
    [
        (stories.pid_in_effect, "effects[0].key: '"),
        (stories.pid_in_file, "files['pid']: b'"),
        (stories.pid_in_external, "externals['bank'].charged['by']: "),
        (stories.pid_in_record, "records.documents["),
        (stories.sooner_over, "where: "),
    ],
)
def test_a_death_that_leaves_something_else_is_told_with_the_difference(
    story: Story, part: str
) -> None:
    with pytest.raises(KillMismatch, match="left something else") as caught:
        kill_matrix(story, check=())
    assert any(words.startswith(part) for words in caught.value.differences)
    assert caught.value.place in str(caught.value)


@pytest.mark.slow
def test_a_snapshot_that_lacks_the_newest_commit_is_found_out() -> None:
    with pytest.raises(KillMismatch) as caught:
        kill_matrix(counter, disk=stories.forgetful)
    assert caught.value.differences == ("records.commit: 0 in the snapshot, 1 in reality",)
    assert caught.value.place == "after commit 1, before it was acknowledged"
    with pytest.raises(KillMismatch) as again:
        kill_matrix(counter, disk=stories.forgetful, replay=caught.value.replay)
    assert str(again.value) == str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("search", [kill_matrix, partial(kill_at_random, longest_ms=60)])
def test_a_storage_that_acknowledges_before_it_has_stored_is_found_out(
    search: Callable[..., object],
) -> None:
    with pytest.raises(CrashFailure, match="a commit whose caller went on") as caught:
        search(stories.tickets, disk=stories.lazy)
    assert isinstance(caught.value.error, AssertionError)
    assert caught.value.places


@pytest.mark.slow
def test_a_failure_after_a_kill_says_how_to_repeat_just_that_one() -> None:
    with pytest.raises(CrashFailure, match="charge") as caught:
        kill_matrix(stories.greedy, seed=3)
    failure = caught.value
    assert isinstance(failure.error, AssertionError)
    assert str(failure).startswith(f"seed 3, killed {failure.places[0]}: ")
    assert f"kill_matrix(..., replay={failure.replay!r})" in str(failure)
    with pytest.raises(CrashFailure) as again:
        kill_matrix(stories.greedy, replay=failure.replay)
    assert (again.value.replay, str(again.value)) == (failure.replay, str(failure))


@pytest.mark.slow
def test_a_replay_that_the_story_has_outgrown_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the kill is at mark 900"):
        kill_matrix(stories.world_only, replay="0:900")
    for words in ("", "7", "0:", "0:1.2", "x:2", "0:-1"):
        with pytest.raises(DefinitionError, match="what the failure printed"):
            kill_matrix(stories.world_only, replay=words)


@pytest.mark.slow
def test_a_story_that_fails_by_itself_is_not_killed() -> None:
    with pytest.raises(CrashFailure, match="with no crash at all: ValueError: of no value") as it:
        kill_matrix(stories.failing)
    with pytest.raises(CrashFailure, match="of no value"):
        kill_matrix(stories.failing, replay=it.value.replay)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "advice"),
    [(stories.incomparable, "__eq__"), (stories.unpicklable, "keep plain data in it")],
)
def test_an_outside_object_that_cannot_be_compared_over_processes_is_refused(
    story: Story, advice: str
) -> None:
    with pytest.raises(CrashFailure, match=advice) as caught:
        kill_matrix(story)
    assert isinstance(caught.value.error, MisuseError)


# --- kills at random moments ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "check", "rounds"),
    [(stories.tickets, check_tools, 10), (stories.crowd, check_crowd, 1)],
)
def test_a_story_survives_kills_at_random_moments(story: Story, check: Check, rounds: int) -> None:
    report = kill_at_random(story, check=[invariants, check], rounds=rounds)
    assert 0 < report.kills <= 3 * rounds
    assert report.writes > 10 * rounds


@pytest.mark.soak
@pytest.mark.parametrize(
    ("story", "check"), [(stories.tickets, check_tools), (stories.crowd, check_crowd)]
)
def test_a_story_survives_hundreds_of_kills_at_random_moments(story: Story, check: Check) -> None:
    report = kill_at_random(story, check=[invariants, check], rounds=100)
    assert report.kills > 100


@pytest.mark.slow
def test_the_seed_is_the_first_that_a_failure_at_a_random_moment_says() -> None:
    def never(world: World) -> None:
        assert not world.crashes, "there was a crash"

    with pytest.raises(CrashFailure) as caught:
        kill_at_random(stories.tickets, check=never, seed=5, longest_ms=1, kills=2)
    failure = caught.value
    assert failure.replay == "5:1"
    assert str(failure).startswith("seed 5, killed after ")
    assert "repeat it with kill_at_random(..., replay='5:1')" in str(failure)
    with pytest.raises(CrashFailure) as again:
        kill_at_random(stories.tickets, check=never, longest_ms=1, kills=2, replay=failure.replay)
    assert again.value.places == failure.places


@pytest.mark.slow
def test_an_object_in_memory_is_refused_where_a_kill_may_come_at_any_time() -> None:
    with pytest.raises(CrashFailure, match=r"world\.effect, or keep it in world\.directory") as it:
        kill_at_random(stories.registering, kills=0, rounds=1)
    assert isinstance(it.value.error, MisuseError)


@pytest.mark.slow
def test_what_a_process_raised_is_raised_with_its_traceback() -> None:
    with pytest.raises(CrashFailure) as caught:
        kill_at_random(stories.failing, kills=0, rounds=1)
    assert isinstance(caught.value.error, ValueError)
    assert "in failing" in caught.value.error.__notes__[0]
    with pytest.raises(CrashFailure, match=r"in failing_untold(.|\n)*this and that") as caught:
        kill_at_random(stories.failing_untold, kills=0, rounds=1)
    assert isinstance(caught.value.error, ChildProcessError)


@pytest.mark.slow
def test_what_processes_print_stays_with_them(capfd: pytest.CaptureFixture[str]) -> None:
    kill_at_random(stories.talkative, kills=0, rounds=1)
    assert capfd.readouterr() == ("", "")


# --- processes that end themselves ---


def check_ended(world: World) -> None:
    """The call is ended in the fourth process, and the sibling's result is kept."""
    assert world.count("kill") == 3
    assert not results_of(world)["sibling"].is_error
    (kill,) = (
        entry
        for entry in world.records.entries.values()
        if any(
            isinstance(m, ToolResultMessage) and m.tool_name == "kill" for m in entry.model or ()
        )
    )
    assert codes(kill) == ["restart_limit"]
    assert tool_task(world, "kill").state.status == "terminal"
    assert statuses_of(world) == ["done"]
    assert ("task_interrupted", "restart_limit") in reports(world)
    assert world.crashes == ("by itself, with exit status 9",) * 3


def check_parked(world: World) -> None:
    """The call is parked in the fourth process, and runs when it is retried there."""
    assert world.count("kill") == 4
    assert [e.life for e in world.effects if e.name == "disarmed"] == [4]
    assert short(results_of(world)["kill"]) == "result k1 survived"
    assert statuses_of(world) == ["done"]
    assert ("task_parked", "restart_limit") in reports(world)


def reports(world: World) -> list[tuple[str, str]]:
    """What the last process reported."""
    return [(report.kind, report.reason) for report in world.reports]


def tool_task(world: World, name: str) -> TaskRecord:
    """The task of the one call of a tool."""
    (found,) = (
        task
        for task in world.records.tasks.values()
        if isinstance(task.input, dict) and task.input.get("tool_name") == name
    )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "check"), [("end", check_ended), ("park", check_parked)])
def test_a_tool_that_kills_its_process_is_ended_or_parked_at_the_limit(
    policy: Literal["end", "park"], check: Check
) -> None:
    story = partial(stories.deadly, policy=policy)
    # The limit is three: the third cut is the last, and the fourth process ends or parks the call.
    report = kill_at_random(story, check=[invariants, check], kills=0, rounds=1)
    assert report.kills == 3


@pytest.mark.slow
def test_a_story_whose_processes_all_end_themselves_is_given_up() -> None:
    with pytest.raises(CrashFailure, match="20 processes died, and none came") as caught:
        kill_at_random(stories.always_deadly, kills=0, rounds=1)
    assert caught.value.places == ("by itself, with exit status 0",) * 20


# --- processes that hang ---


async def until(happened: Callable[[], object]) -> None:
    """Wait for what another process does."""
    with trio.fail_after(10):
        while not happened():  # noqa: ASYNC110 - another process cannot set an event
            await trio.sleep(0.01)


def lives(said: Path) -> bool:
    """Whether the process is there that said its number."""
    try:
        os.kill(int(said.read_text().split()[0]), 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_process_that_hangs_is_ended_and_reported_with_where_it_was(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with pytest.raises(CrashFailure, match=r"within 1 s(.|\n)* in hanging") as caught:
        kill_at_random(partial(stories.hanging, said=said), kills=0, rounds=1, timeout_s=1)
    assert isinstance(caught.value.error, StoryStuck)
    assert not lives(said)


@pytest.mark.slow
@pytest.mark.real_time
async def test_no_process_outlives_the_one_that_tests(tmp_path: Path) -> None:
    said = tmp_path / "said"
    program = (
        "from functools import partial; from pathlib import Path; from tests.testing import stories"
        "\nfrom pidurable_actors.testing.kills import kill_at_random"
        f"\nkill_at_random(partial(stories.hanging, said=Path({str(said)!r})), kills=0, rounds=1)"
    )
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, [sys.executable, "-c", program], cwd=ROOT, check=False)
        tests = await nursery.start(run)
        await until(lambda: said.exists() and said.read_text())
        tests.kill()
    await until(lambda: not lives(said))
    # Who was killed cannot tidy up.
    shutil.rmtree(Path(said.read_text().split(maxsplit=1)[1]).parents[1])


# --- stories that another process finds, or not ---


def test_a_story_that_another_process_cannot_find_is_refused() -> None:
    async def closure(_: World) -> None:
        await trio.lowlevel.checkpoint()

    for story in (closure, lambda world: closure(world)):  # noqa: PLW0108 - it is about lambdas
        for search in (kill_matrix, kill_at_random):
            with pytest.raises(DefinitionError, match="not a closure or a lambda"):
                search(story)
    with pytest.raises(DefinitionError, match=r"^disk .* not a closure or a lambda"):
        kill_matrix(stories.world_only, disk=lambda *, place=None: SqliteDisk(place=place))


def test_numbers_that_leave_nothing_to_do_are_refused() -> None:
    with pytest.raises(DefinitionError, match="every"):
        kill_matrix(stories.world_only, every=0)
    for kills, rounds in ((-1, 1), (1, 0)):
        with pytest.raises(DefinitionError, match="there must be a round"):
            kill_at_random(stories.world_only, kills=kills, rounds=rounds)


PROGRAM: Final = """
import attrs

from pidurable_actors.testing.kills import kill_matrix

LOADED = __name__

@attrs.define
class Counter:
    starts: int = 0

async def story(world):
    world.external("counter", Counter()).starts += 1
    async with world.open_harness() as harness:
        await harness.root()

if __name__ == "__main__":
    print(kill_matrix(story, check=lambda world: None))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [["program.py"], ["-m", "program"]])
def test_a_story_of_the_program_that_is_run_is_found_in_its_file(
    tmp_path: Path, how: list[str]
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-W", "error", *how],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("4 kills, 1 writes, ")


@pytest.mark.slow
def test_a_story_of_a_program_without_a_file_is_refused() -> None:
    program = PROGRAM.replace("print(", "", 1).replace("None))", "None)")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert "in __main__, which has no file" in done.stderr


@pytest.mark.slow
def test_a_story_of_a_module_that_is_on_no_path_is_found_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.py"
    file.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("elsewhere", file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["elsewhere"] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        assert kill_matrix(module.story).kills == 4
        file.write_text("raise RuntimeError('not today')")
        with pytest.raises(DefinitionError, match=r"could not load(.|\n)*not today"):
            kill_matrix(module.story)
    finally:
        del sys.modules["elsewhere"]
