"""Commits: in order, whole or not at all, seen by nobody before they are stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import deepcopy
from functools import partial

import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import Conversation, Harness, Tx
from pidurable_actors._json import JSON
from pidurable_actors.errors import (
    CallbackTooSlow,
    CommitReentered,
    HarnessClosed,
    InvalidValue,
    StorageRequestError,
    TransactionClosed,
)
from pidurable_actors.records import ConversationId, EntryDraft
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing._through import ThroughStorage
from pidurable_actors.testing.faults import HangingStorage
from tests._tasks import (
    COUNT,
    NOTE,
    Count,
    CountTo,
    Note,
    Sleeper,
    Ticker,
    append,
    notes,
    opened,
    outcome_of,
    until,
)

GONE = ConversationId(999)


async def read_count(conversation: Conversation) -> int:
    return (await conversation.snapshot(COUNT)).n


async def test_callbacks_run_one_at_a_time_in_the_order_of_their_calls() -> None:
    ran: list[str] = []
    async with opened(MemoryStorage()) as on:

        async def change(tx: Tx, name: str) -> None:
            ran.append(f"{name} begins")
            await trio.sleep(1)
            ran.append(f"{name} ends")

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(on.root.commit, lambda tx, name=name: change(tx, name))
                await trio.testing.wait_all_tasks_blocked()
    assert ran == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


async def test_a_callback_reads_its_own_writes() -> None:
    async with opened(MemoryStorage(), Ticker) as on:

        async def change(tx: Tx) -> None:
            entry = tx.append_entry(on.root.id, NOTE.new(Note("mine")))
            assert (await tx.entries(on.root.id))[0] == entry
            (await tx.doc(COUNT)).n = 7
            assert (await tx.doc(COUNT)).n == 7
            task = tx.create_task(Ticker, CountTo(3))
            assert (await tx.task(task)).input == {"to": 3}
            assert tx.set_memo(task, "m", 1) == 1
            assert tx.set_memo(task, "m", 2) == 1
            assert (await tx.task(task)).memos == {"m": 1}
            made = tx.create_conversation()
            assert await tx.conversation(made.id) == made

        await on.root.commit(change)


async def test_a_callback_sees_earlier_callbacks_that_are_not_stored_yet_and_readers_do_not() -> (
    None
):
    storage = HangingStorage(MemoryStorage())
    async with opened(storage) as on, trio.open_nursery() as nursery:
        storage.hang()

        async def add_one(tx: Tx) -> int:
            draft = await tx.doc(COUNT)
            draft.n += 1
            tx.append_entry(on.root.id, NOTE.new(Note(str(draft.n))))
            return draft.n

        seen: list[int] = []

        async def call() -> None:
            seen.append(await on.root.commit(add_one))

        for _ in range(5):
            nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []
        assert storage.inner.document("app.count", "conversation", on.root.id) is None
        storage.release()
        await until(lambda: len(seen) == 5)
        # The line moved on while the first write was held: the rest went in one group.
        assert sorted(seen) == [1, 2, 3, 4, 5]
        assert storage.groups[-2:] == [1, 4]
        assert await read_count(on.root) == 5
        assert await notes(on.root) == ["1", "2", "3", "4", "5"]


async def test_what_is_not_stored_is_seen_by_no_observer() -> None:
    """Hold a write that creates a task and one that ends it; look everywhere meanwhile."""
    storage = HangingStorage(MemoryStorage())
    async with opened(storage, Sleeper) as on, trio.open_nursery() as nursery:
        storage.hang()
        nursery.start_soon(on.start, Sleeper, 5.0)
        await trio.testing.wait_all_tasks_blocked()
        assert on.harness.inspect().tasks == ()
        assert on.harness.next_wake_ms() is None
        storage.release()
        await until(lambda: bool(on.harness.inspect().tasks))

        (view,) = on.harness.inspect().tasks
        assert (view.status, view.why) == ("pending", "not_scheduling")
        storage.hang()
        on.harness.resume()
        await trio.testing.wait_all_tasks_blocked()
        (view,) = on.harness.inspect().tasks
        assert (view.status, view.phase) == ("pending", "one")
        storage.release()


async def test_an_exception_rolls_everything_back_and_reaches_the_caller() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        await on.root.commit(append("kept"))

        async def change(tx: Tx) -> None:
            tx.append_entry(on.root.id, NOTE.new(Note("gone")))
            (await tx.doc(COUNT)).n = 5
            tx.create_task(Ticker, CountTo(1))
            raise ValueError("no")

        with raises(ValueError, match="no"):
            await on.root.commit(change)
        assert await notes(on.root) == ["kept"]
        assert await read_count(on.root) == 0
        assert on.harness.inspect().tasks == ()


async def test_a_rolled_back_draft_leaves_no_trace_in_what_later_callbacks_see() -> None:
    async with opened(MemoryStorage(), Sleeper) as on:
        # Live work keeps the document in memory.
        await on.start(Sleeper, 60.0)

        async def add(tx: Tx) -> None:
            (await tx.doc(COUNT)).items.append({"tags": ["a"]})

        async def spoil(tx: Tx) -> None:
            (await tx.doc(COUNT)).items[0]["tags"].append("spoiled")
            raise ValueError

        await on.root.commit(add)
        with raises(ValueError):
            await on.root.commit(spoil)

        async def look(tx: Tx) -> object:
            return deepcopy((await tx.doc(COUNT)).items)

        assert await on.root.commit(look) == [{"tags": ["a"]}]


async def test_a_change_deep_in_a_draft_is_stored() -> None:
    async with opened(MemoryStorage()) as on:

        async def add(tx: Tx) -> None:
            (await tx.doc(COUNT)).items.append({"tags": ["a"]})

        async def extend(tx: Tx) -> None:
            (await tx.doc(COUNT)).items[0]["tags"].append("b")

        await on.root.commit(add)
        await on.root.commit(extend)
        assert (await on.root.snapshot(COUNT)).items == [{"tags": ["a", "b"]}]


async def test_what_a_caller_keeps_of_a_commit_cannot_change_what_is_stored() -> None:
    storage = HangingStorage(MemoryStorage())
    async with opened(storage, Sleeper) as on, trio.open_nursery() as nursery:
        kept: list[Count] = []
        data: dict[str, JSON] = {"text": "as committed"}

        async def change(tx: Tx) -> None:
            draft = await tx.doc(COUNT)
            draft.items.append(["as committed"])
            kept.append(draft)
            made = tx.append_entry(on.root.id, EntryDraft(kind="app.note", data=data))
            data["text"] = "changed in the callback"
            assert made.data == {"text": "as committed"}

        storage.hang()
        nursery.start_soon(on.root.commit, change)
        await trio.testing.wait_all_tasks_blocked()
        with raises(TransactionClosed):
            kept[0].items[0].append("changed later")
        storage.release()
        await on.root.commit(lambda tx: tx.create_conversation())
        assert (await on.root.snapshot(COUNT)).items == [["as committed"]]
        assert await notes(on.root) == ["as committed"]


@mark.slow
async def test_a_group_holds_at_most_256_commits() -> None:
    storage = HangingStorage(MemoryStorage())
    async with opened(storage) as on, trio.open_nursery() as nursery:
        storage.hang()
        for number in range(600):
            nursery.start_soon(on.root.commit, append(str(number)))
        await trio.testing.wait_all_tasks_blocked()
        storage.release()
        await until(lambda: sum(storage.groups) == 601)
        assert storage.groups[-4:] == [1, 256, 256, 87]


async def test_commit_numbers_have_no_holes_and_ids_are_never_used_twice() -> None:
    storage = MemoryStorage()
    ids: list[int] = []
    for _ in range(3):
        head = storage.snapshot().open(read_only=False)
        async with opened(storage) as on:
            for number in range(4):
                ids.append(await on.root.commit(append(str(number))))
                with raises(ValueError):
                    await on.root.commit(lambda tx: int("no"))
                await on.root.commit(lambda tx: None)
        after = storage.snapshot().open(read_only=False)
        created = 1 if head.commit == 0 else 0
        assert after.commit == head.commit + 4 + created
    assert ids == sorted(set(ids))
    assert storage.snapshot().open(read_only=False).next_id > ids[-1]


# --- cancellation ---


async def test_cancelled_out_of_a_commit_means_that_nothing_was_stored() -> None:
    """Cancel a commit after each number of checkpoints; what it says must be what is stored."""
    storage = MemoryStorage()
    stored: set[str] = set()
    outcomes: set[bool] = set()
    async with opened(storage) as on:

        async def change(tx: Tx, text: str) -> str:
            await trio.lowlevel.checkpoint()
            tx.append_entry(on.root.id, NOTE.new(Note(text)))
            await trio.lowlevel.checkpoint()
            return text

        for steps in range(30):
            returned: str | None = None
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_after, scope, steps)
                    returned = await on.root.commit(partial(change, text=str(steps)))
            if returned is not None:
                stored.add(returned)
            outcomes.add(returned is not None)
            assert set(await notes(on.root)) == stored
    assert outcomes == {True, False}


async def _cancel_after(scope: trio.CancelScope, steps: int) -> None:
    for _ in range(steps):
        await trio.lowlevel.cancel_shielded_checkpoint()
    scope.cancel()


async def test_cancelled_while_it_is_written_it_returns_and_the_cancellation_comes_next() -> None:
    storage = HangingStorage(MemoryStorage())
    reached: list[str] = []
    async with opened(storage) as on, trio.open_nursery() as nursery:

        async def caller(scope: trio.CancelScope) -> None:
            with scope:
                await on.root.commit(append("stored"))
                reached.append("returned")
                await trio.lowlevel.checkpoint()
                reached.append("not reached")

        storage.hang()
        scope = trio.CancelScope()
        nursery.start_soon(caller, scope)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert reached == []
        storage.release()
        await until(lambda: scope.cancelled_caught)
        assert reached == ["returned"]
        assert await notes(on.root) == ["stored"]


async def test_cancelled_while_it_waits_for_its_turn_nothing_runs() -> None:
    async with opened(MemoryStorage()) as on, trio.open_nursery() as nursery:
        gate = trio.Event()

        async def hold(tx: Tx) -> None:
            await gate.wait()

        nursery.start_soon(on.root.commit, hold)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1) as scope:
            await on.root.commit(append("never"))
        assert scope.cancelled_caught
        gate.set()
        await on.root.commit(append("after"))
        assert await notes(on.root) == ["after"]


async def test_move_on_after_zero_stores_nothing() -> None:
    async with opened(MemoryStorage()) as on:
        with trio.move_on_after(0):
            await on.root.commit(append("never"))
        assert await notes(on.root) == []


# --- reentrance ---


async def test_calls_from_inside_a_callback_are_refused_at_once_also_from_its_child_tasks() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        task = await on.start(Ticker, CountTo(1))

        async def each(tx: Tx) -> int:
            refused = 0
            for call in (
                lambda: on.root.commit(append("no")),
                lambda: on.harness.commit(lambda tx: None),
                lambda: on.root.submit("no"),
                lambda: on.harness.wait_for_task(task),
                on.root.wait_for_idle,
                lambda: on.harness.retry_task(task),
                lambda: on.harness.abort_task(task),
            ):
                with raises(CommitReentered):
                    await call()
                refused += 1
            return refused

        async def in_a_child(tx: Tx) -> int:
            found: list[int] = []

            async def child() -> None:
                found.append(await each(tx))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(child)
            return found[0]

        assert await on.root.commit(each) == 7
        assert await on.root.commit(in_a_child) == 7
        await on.root.commit(append("works again"))
        assert await notes(on.root) == ["works again"]


async def test_a_child_task_that_outlives_its_callback_may_commit_again() -> None:
    async with opened(MemoryStorage()) as on, trio.open_nursery() as outer:
        ended = trio.Event()

        async def child() -> None:
            await ended.wait()
            await on.root.commit(append("later"))

        async def change(tx: Tx) -> None:
            outer.start_soon(child)
            await trio.lowlevel.checkpoint()

        await on.root.commit(change)
        ended.set()
        await trio.testing.wait_all_tasks_blocked()
        assert await notes(on.root) == ["later"]


async def test_two_harnesses_in_each_others_callbacks_are_told_too() -> None:
    async with opened(MemoryStorage("a")) as one, opened(MemoryStorage("b")) as two:

        async def outer(tx: Tx) -> str:
            return await two.root.commit(inner)

        async def inner(tx: Tx) -> str:
            with raises(CommitReentered):
                await one.root.commit(append("deadlock"))
            return "told"

        began = trio.current_time()
        assert await one.root.commit(outer) == "told"
        assert trio.current_time() == began


# --- what a callback may not do ---


async def test_a_callback_that_holds_the_line_is_cancelled_and_reported_with_its_stack() -> None:
    async with opened(MemoryStorage()) as on:

        async def stuck(tx: Tx) -> None:
            tx.append_entry(on.root.id, NOTE.new(Note("never")))
            await trio.sleep_forever()

        with raises(CallbackTooSlow) as told:
            await on.root.commit(stuck)
        assert told.value.held_s == 5
        (report,) = on.reports
        assert (report.kind, report.reason) == ("callback_slow", "cancelled")
        assert "in stuck" in report.detail
        await on.root.commit(append("works"))
        assert await notes(on.root) == ["works"]


async def test_a_transaction_dies_with_its_callback() -> None:
    kept: list[Tx] = []
    async with opened(MemoryStorage(), Ticker) as on:

        def keep(tx: Tx) -> None:
            kept.append(tx)

        def keep_and_fail(tx: Tx) -> None:
            kept.append(tx)
            raise ValueError

        await on.root.commit(keep)
        with raises(ValueError):
            await on.root.commit(keep_and_fail)
        for tx in kept:
            with raises(TransactionClosed):
                tx.append_entry(on.root.id, NOTE.new(Note("late")))
            with raises(TransactionClosed):
                tx.create_task(Ticker, CountTo(1))
            with raises(TransactionClosed):
                tx.create_conversation()
            for read in (tx.doc(COUNT), tx.entries(on.root.id), tx.conversation(on.root.id)):
                with raises(TransactionClosed):
                    await read


async def test_what_is_not_strict_json_is_refused_with_its_path_and_nothing_is_written() -> None:
    async with opened(MemoryStorage(), Ticker) as on:

        async def bad_document(tx: Tx) -> None:
            tx.append_entry(on.root.id, NOTE.new(Note("never")))
            draft = await tx.doc(COUNT)
            draft.items = [1, 2, 3, {"deep": float("nan")}]

        with raises(InvalidValue) as told:
            await on.root.commit(bad_document)
        assert told.value.path == 'docs["app.count"].items[3].deep'

        def bad_entry(tx: Tx) -> None:
            tx.append_entry(on.root.id, NOTE.new(Note("\ud800")))

        with raises(InvalidValue, match=r"entry\[app.note\].text"):
            await on.root.commit(bad_entry)
        with raises(InvalidValue, match=r"input\[test.ticker\].to"):
            await on.start(Ticker, CountTo(2**70))
        assert await notes(on.root) == []
        assert on.harness.inspect().tasks == ()


async def test_a_write_to_a_conversation_that_is_not_there_fails_only_its_commit() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        for change in (
            lambda tx: tx.append_entry(GONE, NOTE.new(Note("lost"))),
            lambda tx: tx.create_task(Ticker, CountTo(1), conversation_id=GONE),
        ):
            with raises(StorageRequestError):
                await on.harness.commit(change)
        await on.root.commit(append("works"))


# --- the end ---


async def test_a_callback_that_is_still_running_at_the_close_stores_nothing_and_is_told() -> None:
    storage = MemoryStorage()
    gate = trio.Event()
    told: list[type[Exception]] = []

    async def outside(harness: Harness, root: Conversation) -> None:
        async def change(tx: Tx) -> None:
            tx.append_entry(root.id, NOTE.new(Note("late")))
            await gate.wait()

        try:
            await root.commit(change)
        except HarnessClosed as error:
            told.append(type(error))

    async with trio.open_nursery() as nursery:
        async with opened(storage) as on:
            nursery.start_soon(outside, on.harness, on.root)
            await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert told == [HarnessClosed]
    async with opened(storage) as on:
        assert await notes(on.root) == []


async def test_a_read_in_a_callback_that_outlives_the_close_is_told_and_harms_nothing() -> None:
    for storage in (MemoryStorage(), ThroughStorage(MemoryStorage(), blocking=True)):
        gate = trio.Event()
        told: list[str] = []

        async def outside(root: Conversation, gate: trio.Event, told: list[str]) -> None:
            async def change(tx: Tx) -> None:
                await gate.wait()
                await tx.conversation(GONE)

            try:
                await root.commit(change)
            except HarnessClosed:
                told.append("closed")

        await _close_over(storage, outside, gate, told)
        assert told == ["closed"]


async def _close_over(
    storage: Storage,
    outside: Callable[[Conversation, trio.Event, list[str]], Awaitable[None]],
    gate: trio.Event,
    told: list[str],
) -> None:
    async with trio.open_nursery() as nursery:
        async with opened(storage) as on:
            nursery.start_soon(outside, on.root, gate, told)
            await trio.testing.wait_all_tasks_blocked()
        assert on.reports == []
        gate.set()


async def test_a_closed_harness_refuses_every_call() -> None:
    async with opened(MemoryStorage(), Sleeper) as on:
        task = await on.start(Sleeper, 1.0)
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"
    for call in (
        lambda: on.root.commit(append("late")),
        lambda: on.root.submit("late"),
        on.root.entries,
        lambda: on.harness.get_task(task),
        lambda: on.harness.wait_for_task(task),
        lambda: on.harness.conversation(1),
    ):
        with raises(HarnessClosed):
            await call()
    with raises(HarnessClosed):
        on.harness.resume()
