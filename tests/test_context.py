"""Contexts: values and deadlines are inherited, cancelling goes down, the reason can be read."""

from __future__ import annotations

import math

import trio
import trio.testing
from pytest import raises

from pidurable_actors import BACKGROUND, Context, ContextKey, current_context
from pidurable_actors.actors import Engine
from pidurable_actors.session import Publication
from pidurable_actors.storage.memory import MemoryStorage
from tests._tasks import append, opened

TENANT: ContextKey[str] = ContextKey("tenant")
OTHER: ContextKey[str] = ContextKey("tenant")


def test_outside_of_any_the_background_is_current_and_it_is_never_over() -> None:
    assert current_context() is BACKGROUND
    assert BACKGROUND.deadline == math.inf
    assert BACKGROUND.reason is None
    assert not BACKGROUND.cancelled
    assert BACKGROUND.values == {}
    with raises(ValueError, match="never cancelled"):
        BACKGROUND.cancel("no")


async def test_values_are_inherited_and_keys_are_what_they_are_not_what_they_are_called() -> None:
    parent = Context(values={TENANT: "acme"})
    child = parent.child(values={OTHER: "beta"})
    assert (child.get(TENANT), child.get(OTHER)) == ("acme", "beta")
    assert parent.get(OTHER) is None
    assert parent.child().values is parent.values
    assert parent.child(values={TENANT: "gamma"}).get(TENANT) == "gamma"
    assert parent.get(TENANT) == "acme"
    assert repr(TENANT) == "<ContextKey tenant>"


async def test_a_scope_makes_its_context_current_also_in_child_tasks() -> None:
    seen: list[Context] = []

    async def look() -> None:
        seen.append(current_context())

    context = Context()
    async with trio.open_nursery() as nursery:
        with context.scope() as entered:
            assert entered is context
            assert current_context() is context
            nursery.start_soon(look)
            with context.child().scope() as below:
                assert current_context() is below
            assert current_context() is context
        assert current_context() is BACKGROUND
    assert seen == [context]


async def test_the_earlier_deadline_counts() -> None:
    now = trio.current_time()
    parent = Context(deadline=now + 5)
    assert parent.child(timeout=60).deadline == now + 5
    assert parent.child(timeout=1).deadline == now + 1
    assert parent.child().deadline == now + 5
    with parent.scope():
        await trio.sleep_forever()
    assert trio.current_time() == now + 5
    assert parent.reason == "deadline"
    assert parent.cancelled
    assert parent.child().reason == "deadline"


async def test_cancelling_leaves_the_block_quietly_and_the_reason_stays() -> None:
    context = Context()
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with context.scope():
                await trio.sleep_forever()
                raise AssertionError
            assert context.reason == "user pressed Esc"

        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        context.cancel("user pressed Esc")
        context.cancel("too late")


async def test_cancelling_goes_down_and_not_up() -> None:
    parent = Context()
    child, sibling = parent.child(), parent.child()
    ended: list[str] = []

    async def wait(context: Context, name: str) -> None:
        with context.scope():
            await trio.sleep_forever()
        ended.append(name)

    async with trio.open_nursery() as nursery:
        for context, name in ((parent, "parent"), (child, "child"), (sibling, "sibling")):
            nursery.start_soon(wait, context, name)
        await trio.testing.wait_all_tasks_blocked()
        child.cancel("only this one")
        await trio.testing.wait_all_tasks_blocked()
        assert ended == ["child"]
        assert parent.reason is None
        parent.cancel("all")
    assert sorted(ended) == ["child", "parent", "sibling"]
    reasons = [context.reason for context in (child, sibling, parent)]
    assert reasons == ["only this one", "all", "all"]


async def test_a_context_that_is_over_can_be_entered_and_ends_at_the_first_checkpoint() -> None:
    context = Context()
    context.cancel("before")
    reached: list[str] = []
    with context.child().scope():
        reached.append("entered")
        await trio.lowlevel.checkpoint()
        reached.append("not reached")
    assert reached == ["entered"]


async def test_an_error_passes_through_and_the_scope_is_forgotten() -> None:
    context = Context()
    with raises(LookupError), context.scope():
        raise LookupError
    assert current_context() is BACKGROUND
    context.cancel("nobody there")


async def test_the_hosts_cancellation_passes_through_a_scope() -> None:
    context = Context()
    with trio.move_on_after(1) as outer, context.scope() as entered:
        await trio.sleep_forever()
    assert outer.cancelled_caught
    assert not entered.cancelled


async def test_a_commit_in_a_context_that_is_cancelled_stores_nothing() -> None:
    async with opened(MemoryStorage()) as on:
        context = Context()
        context.cancel("over")
        with context.scope():
            await on.root.commit(append("never"))
        assert (await on.root.entries()).items == ()


async def test_a_publication_keeps_the_values_of_who_committed_and_not_the_cancellation() -> None:
    published: list[Publication] = []
    async with opened(MemoryStorage()) as on:
        engine: Engine = on.root._core.engine
        engine.publisher.listen(published.append)
        context = Context(values={TENANT: "acme"})
        with context.scope():
            await on.root.commit(append("x"))

            async def slowly(tx: object) -> None:
                append("y")(tx)  # type: ignore[arg-type]
                await trio.lowlevel.checkpoint()

            await on.root.commit(slowly)
        await on.root.commit(append("z"))
    assert [publication.values.get(TENANT) for publication in published] == ["acme", "acme", None]
