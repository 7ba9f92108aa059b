"""The cancellation sweep: where it cancels, and the broken promises that it finds."""

from __future__ import annotations

import attrs
import pytest
import trio

from pidurable_actors import (
    Checkpoint,
    Completed,
    Extension,
    Next,
    Registry,
    TaskActor,
    Tx,
    define_doc,
    phase,
)
from pidurable_actors.errors import DefinitionError
from pidurable_actors.records import TaskId
from pidurable_actors.testing import CancelFailure, World, cancel_sweep


@attrs.frozen
class Work(Checkpoint, phase="work"):
    """The only step."""


@attrs.define
class Begun:
    """The one job."""

    task_id: int = 0


BEGUN = define_doc("test.begun", Begun)


class Job(TaskActor[None, str], kind="test.job"):
    """Takes a minute."""

    def start(self) -> Work:
        return Work()

    @phase(Work)
    async def work(self, at: Work) -> Next[str]:
        await trio.sleep(60)
        return Completed("done")


async def begin(tx: Tx) -> TaskId:
    begun = await tx.doc(BEGUN)
    if not begun.task_id:
        begun.task_id = tx.create_task(Job, None)
    return TaskId(begun.task_id)


REGISTRY = Registry([Extension("jobs", tasks=[Job])])


async def story(world: World) -> None:
    async with world.open_harness(registry=REGISTRY) as harness:
        root = await harness.root()
        await harness.wait_for_task(await root.commit(begin))


def test_every_checkpoint_of_the_caller_and_of_the_story_is_tried() -> None:
    report = cancel_sweep(story)
    # Making the root, reading it back, the commit, the wait; and around them the open and the close.
    assert report.caller >= 4
    assert report.story >= report.caller + 3


def test_a_cancelled_caller_is_run_again_and_finds_the_work_of_the_first_run() -> None:
    jobs: set[int] = set()

    def check(world: World) -> None:
        jobs.update(world.records.tasks)
        assert len(world.records.tasks) == 1
        (task,) = world.records.tasks.values()
        assert task.outcome is not None
        assert task.restarts == 0, "neither a cancellation nor a close counts"

    cancel_sweep(story, check=check)
    assert jobs


def test_work_that_dies_with_its_caller_is_found() -> None:
    """The job waits for something that only its caller does."""
    told = trio.Event

    async def dependent(world: World) -> None:
        event = told()

        class Waits(TaskActor[None, str], kind="test.waits"):
            def start(self) -> Work:
                return Work()

            @phase(Work)
            async def work(self, at: Work) -> Next[str]:
                await event.wait()
                return Completed("done")

        async def begin_it(tx: Tx) -> TaskId:
            begun = await tx.doc(BEGUN)
            if not begun.task_id:
                begun.task_id = tx.create_task(Waits, None)
            return TaskId(begun.task_id)

        registry = Registry([Extension("waits", tasks=[Waits])])
        async with world.open_harness(registry=registry) as harness:
            root = await harness.root()
            task_id = await root.commit(begin_it)
            harness.resume()
            await trio.sleep(1)
            event.set()
            await harness.wait_for_task(task_id)

    with pytest.raises(CancelFailure, match="the work did not go on") as caught:
        cancel_sweep(dependent)
    assert "test.waits (running)" in str(caught.value)
    cancel_sweep(dependent, work_ends=False)


def test_a_story_that_is_half_made_after_a_cancellation_is_found_and_repeats() -> None:
    """Two commits where one was needed: between them a cancellation leaves half."""

    async def halves(world: World) -> None:
        account = world.external("account", {"debited": 0, "credited": 0})
        account["debited"] += 1
        await trio.lowlevel.checkpoint()
        account["credited"] += 1

    def check(world: World) -> None:
        account = world.external("account", {"debited": 0, "credited": 0})
        assert account["debited"] == account["credited"]

    with pytest.raises(CancelFailure) as caught:
        cancel_sweep(halves, check=check)
    assert caught.value.replay == "story:1"
    assert caught.value.place.startswith("cancelled at checkpoint 1 of the story")
    with pytest.raises(CancelFailure):
        cancel_sweep(halves, check=check, replay=caught.value.replay)


@pytest.mark.parametrize("replay", ["1", "caller:0", "caller:x", "world:3"])
def test_a_replay_that_no_failure_prints_is_refused(replay: str) -> None:
    with pytest.raises(DefinitionError, match="write what the failure printed"):
        cancel_sweep(story, replay=replay)
