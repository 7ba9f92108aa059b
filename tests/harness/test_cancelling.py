"""C56: cancelling a call, after any number of its checkpoints, ends only the call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio
from pytest import mark

from pidurable_actors import Reply, ScriptedModel
from pidurable_actors.models import ScriptedContext
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from tests._agents import Agent, open_agent
from tests._tasks import Sleeper, opened, outcome_of

STEPS = 25


def echo(context: ScriptedContext) -> Reply:
    """Answer anything."""
    return Reply("answer")


async def cancelled_after(steps: int, call: Callable[[], Awaitable[Any]]) -> bool:
    """Whether the call returned although it was cancelled, that many checkpoints after its start."""
    returned = False
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            if steps:
                nursery.start_soon(_cancel, scope, steps)
            else:
                scope.cancel()
            await call()
            returned = True
            nursery.cancel_scope.cancel()
    return returned


async def _cancel(scope: trio.CancelScope, steps: int) -> None:
    for _ in range(steps):
        await trio.lowlevel.cancel_shielded_checkpoint()
    scope.cancel()


def storages(path: Path) -> list[Storage]:
    return [MemoryStorage(), SqliteStorage(path / "agent.sqlite")]


@mark.parametrize("which", [0, 1])
async def test_a_cancelled_submit_is_all_or_nothing_and_the_same_request_finds_it(
    tmp_path: Path, which: int
) -> None:
    async with open_agent(storages(tmp_path)[which], ScriptedModel(echo)) as agent:
        for steps in range(STEPS):
            request = f"r{steps}"
            returned = await cancelled_after(
                steps, partial(agent.root.submit, request, request_id=request)
            )
            before = await _inputs(agent)
            submission = await agent.root.submit(request, request_id=request)
            assert (await submission.wait()).status == "done"
            assert (await _inputs(agent)).count(request) == 1
            assert not returned or request in before or agent.harness.inspect().tasks == ()


async def _inputs(agent: Agent) -> list[str]:
    return [line.removeprefix("user ") for line in await agent.lines() if line.startswith("user ")]


@mark.parametrize("which", [0, 1])
async def test_a_cancelled_wait_ends_only_the_wait(tmp_path: Path, which: int) -> None:
    async with opened(storages(tmp_path)[which], Sleeper) as on:
        task = await on.start(Sleeper, 3_600.0)
        for steps in range(STEPS):
            assert not await cancelled_after(steps, lambda: on.harness.wait_for_task(task))
            assert not await cancelled_after(steps, on.root.wait_for_idle)
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"


@mark.parametrize("which", [0, 1])
async def test_a_cancelled_abort_has_marked_or_has_not_and_can_be_asked_for_again(
    tmp_path: Path, which: int
) -> None:
    async with opened(storages(tmp_path)[which], Sleeper) as on:
        marked: set[bool] = set()
        for steps in range(STEPS):
            task = await on.start(Sleeper, 3_600.0)
            await cancelled_after(steps, partial(on.harness.abort_task, task, reason="r"))
            marked.add((await on.harness.get_task(task)).abort_requested)
            record = await on.harness.abort_task(task, reason="again")
            assert outcome_of(record).status == "aborted"
            assert record.abort_reason in ("r", "again")
        assert marked == {False, True}


@mark.parametrize("which", [0, 1])
async def test_a_cancelled_creation_leaves_a_whole_task_or_none(tmp_path: Path, which: int) -> None:
    async with opened(storages(tmp_path)[which], Sleeper) as on:
        created = 0
        for steps in range(STEPS):
            created += await cancelled_after(steps, lambda: on.start(Sleeper, 1.0))
            assert len(on.harness.inspect().tasks) == created
        assert 0 < created < STEPS
        await on.root.wait_for_idle()
        assert on.harness.inspect().tasks == ()
