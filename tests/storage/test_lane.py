"""The lane: calls in order, off the Trio thread; a hung call is given up, no thread is left."""

from __future__ import annotations

import threading

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors.errors import StorageHung
from pidurable_actors.storage import Lane
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing.faults import HangingStorage
from tests._tasks import Ticker, append, notes, opened


def lane(*, timeout_s: float = 30.0) -> Lane:
    return Lane("test", inline=False, timeout_s=timeout_s)


def fail() -> None:
    raise ValueError("in the thread")


async def test_calls_run_in_the_order_they_were_handed_over_on_one_other_thread() -> None:
    under_test = lane()
    ran: list[int] = []
    threads: set[int] = set()
    gate = threading.Event()

    def work(number: int) -> None:
        gate.wait()
        ran.append(number)
        threads.add(threading.get_ident())

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(under_test.run, lambda number=number: work(number))
            await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert ran == list(range(20))
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    under_test.stop()
    assert under_test.join(5)


async def test_a_call_returns_its_value_and_raises_its_error_brief_or_not() -> None:
    under_test = lane()
    for brief in (True, False):
        assert await under_test.run(lambda: 7, brief=brief) == 7
        with raises(ValueError, match="in the thread"):
            await under_test.run(fail, brief=brief)
    under_test.stop()
    assert under_test.join(5)


async def test_an_inline_lane_has_no_thread() -> None:
    under_test = Lane("test", inline=True, timeout_s=1)
    assert await under_test.run(threading.get_ident) == threading.get_ident()
    with raises(ValueError):
        await under_test.run(fail)
    under_test.stop()
    assert under_test.join(0)
    assert not under_test.hung


async def test_a_call_that_does_not_return_is_given_up_with_all_behind_it() -> None:
    under_test = lane(timeout_s=0.03)
    gate = threading.Event()
    late: list[str] = []
    given_up: list[str] = []

    async def call(name: str, work: object) -> None:
        with raises(StorageHung, match=r"did not answer within 0\.03 s"):
            await under_test.run(work)  # type: ignore[arg-type]
        given_up.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, "hangs", gate.wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(call, "behind", lambda: late.append("ran"))
    assert sorted(given_up) == ["behind", "hangs"]
    assert under_test.hung
    await call("later", lambda: late.append("ran"))
    gate.set()
    under_test.stop()
    assert under_test.join(5)
    assert late == []


async def test_a_call_that_takes_half_its_time_is_not_given_up() -> None:
    under_test = lane(timeout_s=0.1)
    never = threading.Event()
    for _ in range(3):
        assert await under_test.run(lambda: never.wait(0.05)) is False
    assert not under_test.hung
    under_test.stop()
    assert under_test.join(5)


async def test_there_may_be_no_time_limit() -> None:
    under_test = lane(timeout_s=float("inf"))
    never = threading.Event()
    assert await under_test.run(lambda: never.wait(0.02)) is False
    under_test.stop()
    assert under_test.join(5)


async def test_virtual_time_stands_still_while_the_thread_works_and_goes_on_after() -> None:
    under_test = lane()
    gates = [threading.Event(), threading.Event()]
    jumped: list[float] = []

    async def sleeper() -> None:
        await trio.sleep(5)
        jumped.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleeper)
        for gate in gates:
            nursery.start_soon(under_test.run, gate.wait)
        await trio.testing.wait_all_tasks_blocked()
        # Real time passes, in a thread that Trio does not know of.
        other = lane()
        assert await other.run(lambda: threading.Event().wait(0.05)) is False
        other.stop()
        assert jumped == []
        assert trio.current_time() == 0
        for gate in gates:
            gate.set()
    assert jumped == [5]
    under_test.stop()
    assert under_test.join(5)


@mark.real_time
async def test_on_the_real_clock_nothing_is_paused() -> None:
    under_test = lane()
    assert await under_test.run(lambda: threading.Event().wait(0.01)) is False
    under_test.stop()
    assert under_test.join(5)


async def test_a_call_is_not_cancelled_once_it_is_handed_over() -> None:
    under_test = lane()
    done: list[str] = []
    gate = threading.Event()

    def work() -> str:
        gate.wait()
        done.append("done")
        return "value"

    returned: list[str] = []
    async with trio.open_nursery() as nursery:

        async def call() -> None:
            returned.append(await under_test.run(work))

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        gate.set()
    assert (done, returned) == (["done"], ["value"])
    under_test.stop()
    assert under_test.join(5)


@mark.slow
async def test_c45_a_thousand_cancels_around_commits_scans_and_closes_do_no_harm() -> None:
    """Cancel calls on a threaded storage after 0 to 9 checkpoints, a thousand times.

    A commit that returned is stored, one that was cancelled is not, and no thread is left.
    """
    before = set(threading.enumerate())
    memory = MemoryStorage()
    stored: list[str] = []
    for round_ in range(10):
        async with opened(HangingStorage(memory), Ticker) as on:
            for number in range(100):
                name = f"{round_}-{number}"
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(_cancel_after, scope, number % 10)
                        nursery.start_soon(on.root.entries)
                        await on.root.commit(append(name))
                        stored.append(name)
            assert (await notes(on.root))[-1:] == stored[-1:]
    async with opened(memory) as on:
        assert await notes(on.root) == stored
    assert 0 < len(stored) <= 1_000
    assert set(threading.enumerate()) <= before


async def _cancel_after(scope: trio.CancelScope, steps: int) -> None:
    for _ in range(steps):
        await trio.lowlevel.cancel_shielded_checkpoint()
    scope.cancel()
