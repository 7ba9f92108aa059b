"""Contexts: values and deadlines are inherited, cancelling goes down, the reason can be read.

And `within`, which makes the end of a context the error of one call.
"""

from __future__ import annotations

import math
from typing import Any

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import BACKGROUND, Context, ContextKey, Tx, current_context
from pidurable_actors.actors import Engine
from pidurable_actors.context import within
from pidurable_actors.errors import CommitReentered, ContextCancelled, MisuseError
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


async def test_entering_another_context_inside_a_callback_does_not_hide_the_callback() -> None:
    async with opened(MemoryStorage()) as on:

        async def change(tx: Tx) -> bool:
            other = Context(values={TENANT: "acme"})
            with other.scope() as entered, entered.child(values={OTHER: "beta"}).scope():
                with raises(CommitReentered):
                    await on.root.commit(append("deadlock"))
                assert current_context().get(TENANT) == "acme"
                assert current_context().get(OTHER) == "beta"
            with other.scope():
                other.cancel("over")
                await trio.lowlevel.checkpoint()
                raise AssertionError
            with Context().scope():
                current_context().cancel("over")
                await trio.lowlevel.checkpoint()
                raise AssertionError
            return True

        began = trio.current_time()
        assert await on.root.commit(change)
        assert trio.current_time() == began


# --- one call in a context ---


async def test_within_none_does_nothing() -> None:
    with Context(values={TENANT: "acme"}).scope() as context, within(None):
        assert current_context() is context
        with within(None), raises(LookupError), within(None):
            raise LookupError


async def test_within_a_context_its_values_are_current_and_only_inside() -> None:
    context = Context(values={TENANT: "acme"})
    with within(context):
        assert current_context() is context
        await trio.lowlevel.checkpoint()
    assert current_context() is BACKGROUND
    with within(BACKGROUND):
        await trio.lowlevel.checkpoint()


async def test_within_a_context_that_is_over_nothing_is_done() -> None:
    parent = Context(deadline=trio.current_time() + 60)
    parent.cancel("user pressed Esc")
    reached: list[str] = []
    with raises(ContextCancelled) as told, within(parent.child(timeout=5)):
        reached.append("entered")
    assert reached == []
    assert (told.value.reason, told.value.deadline) == (
        "user pressed Esc",
        trio.current_time() + 5,
    )
    with raises(ContextCancelled) as late, within(Context(deadline=trio.current_time())):
        reached.append("entered")
    assert (late.value.reason, late.value.deadline) == ("deadline", trio.current_time())
    assert reached == []


async def test_within_a_context_that_ends_meanwhile_the_error_says_why_and_the_caller_lives_on() -> (
    None
):
    context = Context().child()

    async def wait() -> None:
        with raises(ContextCancelled) as told, within(context):
            await trio.sleep_forever()
        assert (told.value.reason, told.value.deadline) == ("user pressed Esc", math.inf)
        assert current_context() is BACKGROUND
        await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        context.cancel("user pressed Esc")

    with raises(ContextCancelled) as late, within(Context().child(timeout=5)):
        await trio.sleep_forever()
    assert (late.value.reason, late.value.deadline) == ("deadline", trio.current_time())


async def test_within_an_outcome_stays_the_outcome() -> None:
    """Results, errors, and errors among cancelled children, of a block whose context is over."""

    async def returns() -> str:
        context = Context()
        with within(context):
            context.cancel("too late")
            return "stored"

    async def fails() -> None:
        context = Context()
        with within(context):
            context.cancel("too late")
            raise LookupError("mine")

    async def fails_while_it_is_cancelled() -> None:
        context = Context()
        with within(context):
            context.cancel("over")
            try:
                await trio.lowlevel.checkpoint()
            finally:
                raise LookupError("mine")

    async def fails_beside_a_child_that_is_cancelled() -> None:
        with within(Context(deadline=trio.current_time() + 1)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                with trio.CancelScope(shield=True):
                    await trio.sleep(2)
                raise LookupError("mine")

    assert await returns() == "stored"
    for call in (fails, fails_while_it_is_cancelled):
        with raises(LookupError, match="mine"):
            await call()
    with raises(ExceptionGroup) as group:
        await fails_beside_a_child_that_is_cancelled()
    assert [str(error) for error in group.value.exceptions] == ["mine"]
    assert current_context() is BACKGROUND


@mark.parametrize("context_too", [False, True])
@mark.parametrize("before", [False, True])
async def test_within_a_context_the_hosts_cancellation_stays_the_hosts(
    context_too: bool, before: bool
) -> None:
    context = Context()
    with trio.CancelScope() as outer:
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                if context_too:
                    context.cancel("over")
                outer.cancel()

            if before:
                await end()
            else:
                nursery.start_soon(end)
            with within(context):
                await trio.sleep_forever()
    assert outer.cancelled_caught
    assert context.cancelled == context_too
    with trio.move_on_after(0) as at_once:
        with within(context):
            await trio.sleep_forever()
        raise AssertionError
    assert at_once.cancelled_caught


async def test_within_a_shield_the_context_counts_and_not_the_host() -> None:
    context = Context()
    context.cancel("over")
    with trio.CancelScope() as outer:
        outer.cancel()
        with trio.CancelScope(shield=True):
            with raises(ContextCancelled), within(context):
                await trio.sleep_forever()
            await trio.lowlevel.checkpoint()


async def test_within_what_is_no_context_is_misuse() -> None:
    wrong: Any = trio.CancelScope()
    with raises(MisuseError, match="takes a Context, not <"), within(wrong):
        raise AssertionError
