"""A storage that fails at one write: the harness ends, and the next process finishes the work.

C18 and C20: whether the failing write landed or not, nothing is half settled and no unsafe effect
comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
import trio

from pidurable_actors import Reply, ScriptedModel, Settings
from pidurable_actors.errors import SessionFailed, StorageError
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import Batch
from pidurable_actors.settings import RetrySettings
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import STORE_FIRST, call, calling, open_agent
from tests.crash.sweep import World, check_ended
from tests.crash.test_every_boundary import check_tools, tools_of

SETTINGS = Settings(progress=STORE_FIRST, retry=RetrySettings(max_retries=8))


class FailingStorage:
    """Fails at the n-th write, before it or after it landed."""

    def __init__(self, inner: MemoryStorage, at: int, *, landed: bool) -> None:
        self._inner = inner
        self._at = at
        self._landed = landed
        self.failed = False

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store, or fail when it is its turn."""
        self._at -= 1
        if self._at == 0:
            self.failed = True
            if self._landed:
                self._inner.apply(batches)
            raise StorageError("the disk is gone", wrote=None if self._landed else False)
        self._inner.apply(batches)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def script(ctx: ScriptedContext) -> Reply:
    if ctx.answers:
        return Reply("answer")
    return calling(call("search", "c0"), call("ticket", "c1"))


async def fail_at(world: World, at: int, *, landed: bool) -> bool:
    """Run until the failing write; whether it came."""
    storage = FailingStorage(world.storage, at, landed=landed)

    async def run() -> None:
        async with open_agent(
            cast("Storage", storage), ScriptedModel(script), *tools_of(world), settings=SETTINGS
        ) as agent:
            submission = await agent.root.submit("go", request_id="r1")
            try:
                await submission.wait()
            except SessionFailed as error:
                assert isinstance(error.__cause__, StorageError)
                assert (await agent.harness.closed()).reason == "failed"

    try:
        await run()
    except (StorageError, SessionFailed):
        assert storage.failed
    return storage.failed


@pytest.mark.slow
@pytest.mark.parametrize("landed", [False, True])
async def test_a_write_that_fails_ends_the_harness_and_loses_nothing(*, landed: bool) -> None:
    at = 0
    failed = True
    while failed:
        at += 1
        world = World(MemoryStorage())
        failed = await fail_at(world, at, landed=landed)
        async with open_agent(
            world.storage, ScriptedModel(script), *tools_of(world), settings=SETTINGS
        ) as agent:
            with trio.fail_after(1_000):
                await agent.ask("go", request_id="r1")
        check_ended(world)
        check_tools(world)
    assert at > 10
