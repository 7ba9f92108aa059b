"""Watching one document: of a session, a conversation or a task, by one definition or several."""

from __future__ import annotations

from typing import Any

import attrs
import trio
from pytest import mark, raises

from pidurable_actors import Completed, Next, TaskActor, phase
from pidurable_actors._json import JSON, encode_json
from pidurable_actors.errors import MisuseError, StorageCorrupt
from pidurable_actors.records import apply_operations
from pidurable_actors.session import DocumentDefinition, define_doc
from pidurable_actors.storage.memory import MemoryStorage
from tests._tasks import COUNT, Count, One, opened, until
from tests.views.following import channels_of, hub_of


class Odd(BaseException):
    """Nothing that anybody expects."""


@attrs.define
class Old:
    n: int = 0


@attrs.define
class New:
    n: float = 0.0
    twice: int = 0


def migrate(value: JSON, version: int) -> JSON:
    """Twice as much is known now."""
    assert isinstance(value, dict)
    n = value["n"]
    assert isinstance(n, int)
    if n == 13:
        raise Odd("thirteen")
    return {"n": n, "twice": 2 * n}


SESSION = define_doc("test.session", Count, scope="session")
OLD = define_doc("test.versions", Old, scope="session")
NEW = define_doc("test.versions", New, scope="session", version=2, migrate=migrate)
MORE = define_doc("test.versions", New, scope="session")
MINE = define_doc("test.mine", Count, scope="task")


class Busy(TaskActor[int, None], kind="test.busy"):
    """Counts in a document of its own, and ends."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        for _ in range(self.input):
            await self.commit(self.count)
            await trio.sleep(1)
        return Completed(None)

    async def count(self, tx: Any) -> None:
        (await tx.doc(MINE)).n += 1


async def add(on: Any, definition: DocumentDefinition[Any], *, key: str = "", by: int = 1) -> None:
    async def change(tx: Any) -> None:
        (await tx.doc(definition, key=key)).n += by

    await on.root.commit(change)


@mark.parametrize("definition", [SESSION, COUNT], ids=["session", "conversation"])
async def test_a_document_is_watched_from_before_it_exists(
    definition: DocumentDefinition[Count],
) -> None:
    async with opened(MemoryStorage()) as on:
        scope_id = None if definition is SESSION else on.root.id
        async with on.harness.watch_doc(definition, scope_id) as watch:
            first = await anext(watch)
            assert (first.view.n, first.operations) == (0, None)
            await add(on, definition, key="another of the family")
            await add(on, SESSION if definition is COUNT else COUNT)
            for n in (1, 2, 3):
                await add(on, definition)
                frame = await anext(watch)
                assert (frame.view.n, frame.provisional) == (n, False)
                assert frame.operations
        async with on.harness.watch_doc(definition, scope_id, key="another of the family") as other:
            assert (await anext(other)).view.n == 1
        assert not hub_of(on.harness)._documents


async def test_a_document_of_a_task_ends_its_watches_with_the_task() -> None:
    """Watch a document of a task, one that it never makes, and both again when it has ended."""
    async with opened(MemoryStorage(), Busy) as on:
        task = await on.start(Busy, 3)
        never = define_doc("test.never", Count, scope="task")
        async with (
            on.harness.watch_doc(MINE, task) as watch,
            on.harness.watch_doc(never, task) as other,
        ):
            on.harness.resume()
            assert [frame.view.n async for frame in watch] == [0, 1, 2, 3]
            assert [frame.view.n async for frame in other] == [0]
            assert (watch.end, other.end) == ("retired", "retired")
            async with on.harness.watch_doc(MINE, task) as late:
                assert [frame.view.n async for frame in late] == [3]
                assert late.end == "retired"
        assert not channels_of(on.harness)


async def test_each_definition_of_a_kind_sees_its_own_value() -> None:
    """An old writer; watched by itself, by a newer version and by a class with more fields."""
    async with opened(MemoryStorage()) as on:
        await add(on, OLD)
        async with (
            on.harness.watch_doc(OLD) as old,
            on.harness.watch_doc(NEW) as new,
            on.harness.watch_doc(MORE) as more,
        ):
            for n in (1, 4, 7):
                assert (await anext(old)).view.n == n
                newer = (await anext(new)).view
                assert (newer.n, newer.twice) == (n, 2 * n)
                longer = (await anext(more)).view
                assert (longer.n, longer.twice) == (n, 0)
                await add(on, OLD, by=3)
            await add(on, MORE)
            assert [(await anext(more)).view.n for _ in range(2)] == [10, 11]


async def test_a_migration_that_raises_fails_only_its_own_watch() -> None:
    async with opened(MemoryStorage()) as on:
        await add(on, OLD, by=10)
        async with on.harness.watch_doc(OLD) as old, on.harness.watch_doc(NEW) as new:
            async with on.harness.watch_doc(NEW) as new_too:
                await add(on, OLD, by=3)
                await add(on, OLD, by=1)
                assert [(await anext(old)).view.n for _ in range(3)] == [10, 13, 14]
                for watch in (new, new_too):
                    assert (await anext(watch)).view.twice == 20
                    with raises(Odd):
                        await anext(watch)
                    with raises(StopAsyncIteration):
                        await anext(watch)
            async with on.harness.watch_doc(NEW) as again:
                assert (await anext(again)).view.twice == 28
            await add(on, OLD, by=-1)
            with raises(Odd):
                async with on.harness.watch_doc(NEW):
                    raise AssertionError
            await add(on, OLD, by=-1)
        assert not channels_of(on.harness)
        assert not on.kinds()


async def test_a_value_that_does_not_fit_fails_the_watch_that_it_does_not_fit() -> None:
    @attrs.define
    class Words:
        n: str = ""

    words = define_doc("test.versions", Words, scope="session")
    async with opened(MemoryStorage()) as on:
        await add(on, OLD)
        with raises(StorageCorrupt):
            async with on.harness.watch_doc(words):
                raise AssertionError
        with raises(MisuseError):
            on.harness.watch_doc(COUNT)
        await add(on, OLD)


async def test_the_operations_of_a_document_lead_from_one_view_to_the_next() -> None:
    """Change a document that is stored as deltas and sometimes whole; keep a copy by operations."""
    async with opened(MemoryStorage()) as on:

        async def change(tx: Any) -> None:
            draft = await tx.doc(COUNT)
            draft.n += 1
            draft.items.append("x" * 97)
            if draft.n % 7 == 0:
                del draft.items[0]

        async with on.harness.watch_doc(COUNT, on.root.id) as watch:
            (await anext(watch),)
            (channel,) = channels_of(on.harness).values()
            value = channel.durable["seen"]  # type: ignore[index, call-overload]
            for n in range(1, 40):
                await on.root.commit(change)
                frame = await anext(watch)
                assert frame.operations is not None
                value = apply_operations(value, frame.operations)
                assert encode_json(value) == encode_json(channel.durable["seen"])  # type: ignore[index, call-overload]
                assert (frame.view.n, len(frame.view.items)) == (n, n - n // 7)
        await until(lambda: not channels_of(on.harness))
