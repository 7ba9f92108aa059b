"""A supervised harness is opened again after its storage failed, with waits that grow and reset."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from pytest import raises

from pidurable_actors import Harness, Settings, open_harness, supervise_harness
from pidurable_actors.errors import SessionFailed, StorageInUse
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.faults import DiskError, FaultyStorage, HangingStorage
from tests._tasks import append, notes


class Openings:
    """Opens the same contents again and again; each storage fails at its second write."""

    def __init__(self) -> None:
        self.memory = MemoryStorage()
        self.opened_s: list[float] = []
        self.storage = FaultyStorage(self.memory)

    def __call__(self) -> AbstractAsyncContextManager[Harness]:
        self.opened_s.append(trio.current_time())
        self.storage = FaultyStorage(self.memory)
        return open_harness(self.storage)


async def test_it_opens_again_after_a_failure_and_ends_with_its_body() -> None:
    openings = Openings()

    async def body(harness: Harness) -> None:
        root = await harness.root()
        attempt = len(openings.opened_s)
        await root.commit(append(str(attempt)))
        if attempt == 1:
            openings.storage.arm(at_write=1)
            with raises(DiskError):
                await root.commit(append("lost"))
            await trio.sleep_forever()  # the failure cancels the body
        if attempt == 2:
            openings.storage.arm(at_write=1)
            await root.commit(append("lost, and raised"))
        if attempt == 3:
            openings.storage.arm(at_write=1)
            with raises(DiskError):
                await root.commit(append("lost"))
            await root.commit(append("refused"))

    await supervise_harness(openings, body, first_wait_s=1)
    assert openings.opened_s == [0, 1, 3, 7]
    async with open_harness(openings.memory) as harness:
        assert await notes(await harness.root()) == ["1", "2", "3", "4"]


async def test_waits_are_bounded_and_start_over_after_a_healthy_time() -> None:
    openings = Openings()

    async def body(harness: Harness) -> None:
        root = await harness.root()
        attempt = len(openings.opened_s)
        if attempt == 6:
            await trio.sleep(100)
        if attempt == 8:
            return
        openings.storage.arm(at_write=1)
        await root.commit(append("lost"))

    await supervise_harness(openings, body, first_wait_s=1, longest_wait_s=4, healthy_after_s=60)
    waits = [after - before for before, after in pairwise(openings.opened_s)]
    assert waits == [1, 2, 4, 4, 4, 101, 2]


async def test_what_the_body_raises_ends_it_bare() -> None:
    openings = Openings()

    async def body(harness: Harness) -> None:
        raise LookupError("mine")

    with raises(LookupError, match="mine"):
        await supervise_harness(openings, body)
    assert len(openings.opened_s) == 1


async def test_a_storage_that_another_owner_has_is_not_tried_again() -> None:
    openings = Openings()

    async def body(harness: Harness) -> None:
        raise AssertionError

    async with open_harness(openings.memory.peer()):
        with raises(StorageInUse):
            await supervise_harness(openings, body)


async def test_cancelling_it_closes_the_harness() -> None:
    openings = Openings()
    harnesses: list[Harness] = []

    async def body(harness: Harness) -> None:
        harnesses.append(harness)
        await trio.sleep_forever()

    with trio.move_on_after(5) as scope:
        await supervise_harness(openings, body)
    assert scope.cancelled_caught
    assert (await harnesses[0].closed()).reason == "closed"
    with raises(Exception, match="closed") as told:
        await harnesses[0].root()
    assert not isinstance(told.value, SessionFailed)


@pytest.mark.real_time
async def test_a_storage_that_hung_is_opened_again_when_its_call_has_returned(
    tmp_path: Path,
) -> None:
    """The second opening meets the claim of the first, whose call is still under way."""
    attempts: list[str] = []
    refused_twice = trio.Event()

    with HangingStorage(SqliteStorage(tmp_path / "agent.sqlite")) as hanging:

        def factory() -> AbstractAsyncContextManager[Harness]:
            attempts.append("opened")
            if len(attempts) == 4:
                refused_twice.set()
            storage = hanging if len(attempts) == 1 else SqliteStorage(tmp_path / "agent.sqlite")
            return open_harness(storage, settings=Settings(commit_timeout_s=0.05))

        async def body(harness: Harness) -> None:
            root = await harness.root()
            if len(attempts) == 1:
                hanging.hang()
                await root.commit(append("late"))
            assert await notes(root) == ["late"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(supervise_harness, factory, body, first_wait_s=0.01, longest_wait_s=0.02)
            )
            await refused_twice.wait()
            hanging.release()


async def test_what_the_body_finds_in_use_is_its_own_trouble() -> None:
    async def body(_: Harness) -> None:
        raise StorageInUse("other.sqlite", "somebody")

    with raises(StorageInUse):
        await supervise_harness(Openings(), body)
