"""Document definitions: what may be one, and what becomes of values that do not fit."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
from pytest import mark, raises

from pidurable_actors import Tx, define_doc
from pidurable_actors.errors import (
    DefinitionError,
    InvalidValue,
    MisuseError,
    StorageCorrupt,
    StorageRequestError,
    StorageTooNew,
)
from pidurable_actors.records import ConversationId, TaskId
from pidurable_actors.storage.memory import MemoryStorage
from tests._tasks import COUNT, Count, Sleeper, opened


@attrs.frozen
class Frozen:
    n: int = 0


@attrs.define
class Required:
    n: int


@attrs.define
class Words:
    words: dict[str, str] = attrs.Factory(dict)


@attrs.define
class Renamed:
    n: list[int] = attrs.Factory(list)


class Plain:
    pass


SESSION = define_doc("app.session", Words, scope="session")
TASK = define_doc("app.task", Words, scope="task")


@mark.parametrize(
    ("kind", "state", "text"),
    [
        ("", Count, "use 1 to 200 characters"),
        ("k" * 201, Count, "use 1 to 200 characters"),
        ("app.x", Plain, "must be an attrs class"),
        ("app.x", Frozen, "is frozen"),
        ("app.x", Required, r"Required.n needs a default"),
    ],
)
def test_what_cannot_be_a_document_is_refused_when_it_is_defined(
    kind: str, state: Any, text: str
) -> None:
    with raises(DefinitionError, match=text):
        define_doc(kind, state)


async def set_word(tx: Tx, definition: Any, scope_id: int | None, word: str, key: str = "") -> None:
    (await tx.doc(definition, scope_id, key)).words[word] = word


async def words(tx: Tx, definition: Any, scope_id: int | None, key: str = "") -> list[str]:
    return list((await tx.doc(definition, scope_id, key)).words)


async def test_documents_belong_to_the_session_a_conversation_or_a_task() -> None:
    storage = MemoryStorage()
    async with opened(storage, Sleeper) as on:
        task = await on.start(Sleeper, 60.0)
        await on.harness.commit(lambda tx: set_word(tx, SESSION, None, "all"))
        await on.root.commit(lambda tx: set_word(tx, TASK, task, "one"))
        await on.root.commit(lambda tx: set_word(tx, TASK, task, "two"))
    async with opened(storage, Sleeper) as on:
        assert await on.harness.commit(lambda tx: words(tx, SESSION, None)) == ["all"]
        assert await on.root.commit(lambda tx: words(tx, TASK, task)) == ["one", "two"]
        with raises(StorageRequestError, match="no task 999"):
            await on.root.commit(lambda tx: words(tx, TASK, 999))
        with raises(MisuseError, match="belongs to a task"):
            await on.root.commit(lambda tx: words(tx, TASK, None))
        with raises(MisuseError, match="belongs to a conversation"):
            await on.harness.commit(lambda tx: tx.doc(COUNT))
        with raises(StorageRequestError, match="no conversation 999"):
            await on.harness.commit(lambda tx: tx.doc(COUNT, 999))


async def test_one_kind_has_as_many_documents_as_keys() -> None:
    keyed = define_doc("app.keyed", Words)
    async with opened(MemoryStorage()) as on:
        for key in ("", "a", "b"):
            await on.root.commit(
                partial(set_word, definition=keyed, scope_id=None, word=f"in {key}", key=key)
            )
        for key in ("", "a", "b"):
            assert (await on.root.snapshot(keyed, key=key)).words == {f"in {key}": f"in {key}"}


async def test_a_document_that_did_not_change_is_not_written() -> None:
    storage = MemoryStorage()
    async with opened(storage) as on:

        async def set_to_one(tx: Tx) -> None:
            (await tx.doc(COUNT)).n = 1

        await on.root.commit(set_to_one)
        before = storage.snapshot().open(read_only=False).commit
        await on.root.commit(set_to_one)
        assert storage.snapshot().open(read_only=False).commit == before


async def test_a_value_of_a_newer_version_or_another_shape_is_refused_and_left_alone() -> None:
    newer = define_doc("app.count", Count, version=2, migrate=lambda value, _: value)
    forgot = define_doc("app.count", Count, version=3)
    renamed = define_doc("app.count", Renamed, version=2)
    storage = MemoryStorage()

    async def touch(tx: Tx, definition: Any) -> None:
        (await tx.doc(definition)).n += 1

    async with opened(storage) as on:
        await on.root.commit(lambda tx: touch(tx, COUNT))
        # A newer definition takes an older value and stores its own version with it.
        await on.root.commit(lambda tx: touch(tx, newer))
        with raises(StorageTooNew) as told:
            await on.root.commit(lambda tx: touch(tx, COUNT))
        assert (told.value.stored, told.value.known) == (2, 1)
        with raises(
            DefinitionError, match=r"stored in version 2 and defined in version 3.*migrate="
        ):
            await on.root.commit(lambda tx: touch(tx, forgot))
        with raises(StorageCorrupt, match="does not fit Renamed"):
            await on.root.commit(lambda tx: touch(tx, renamed))
        assert (await on.root.snapshot(newer)).n == 2


async def test_two_definitions_of_one_kind_in_one_commit_are_a_mistake_that_is_named() -> None:
    other = define_doc("app.count", Words)
    async with opened(MemoryStorage()) as on:

        async def both(tx: Tx) -> None:
            await tx.doc(COUNT)
            await tx.doc(other)

        with raises(MisuseError, match=r"'app.count' is opened as Words and as Count"):
            await on.root.commit(both)


async def test_a_key_that_cannot_be_stored_is_refused() -> None:
    async with opened(MemoryStorage()) as on:
        for key in ("\ud800", "k" * 201):
            with raises(InvalidValue, match="key"):
                await on.root.commit(partial(Tx.doc, definition=COUNT, key=key))


async def test_many_idle_conversations_are_forgotten_and_found_again() -> None:
    """Touch more conversations than stay in memory; each must keep what it had."""
    async with opened(MemoryStorage()) as on:

        async def add(tx: Tx) -> None:
            (await tx.doc(COUNT)).n += 1

        made = [await on.harness.create_conversation() for _ in range(1_050)]
        for _ in range(2):
            for conversation in made[:20]:
                await conversation.commit(add)
        assert [(await c.snapshot(COUNT)).n for c in made[:21]] == [2] * 20 + [0]


async def test_ids_that_are_not_there_are_bad_reads_of_that_commit() -> None:
    async with opened(MemoryStorage()) as on:
        for read in (
            lambda tx: tx.conversation(ConversationId(999)),
            lambda tx: tx.task(TaskId(999)),
            lambda tx: tx.submission(999),
        ):
            with raises(StorageRequestError, match="999"):
                await on.harness.commit(read)
        with raises(MisuseError, match="conversation_id="):
            await on.harness.commit(lambda tx: tx.create_task(Sleeper, 1.0))


@attrs.define
class Anything:
    value: Any = None


@mark.parametrize(("before", "after"), [(1, True), (False, 0), (1, 1.0), (0.0, -0.0)])
async def test_a_change_that_python_calls_equal_and_json_does_not_is_stored(
    before: object, after: object
) -> None:
    anything = define_doc("app.anything", Anything)

    async def put(tx: Tx, value: object) -> None:
        (await tx.doc(anything)).value = value

    async with opened(MemoryStorage()) as on:
        await on.root.commit(partial(put, value=before))
        await on.root.commit(partial(put, value=after))
        assert repr((await on.root.snapshot(anything)).value) == repr(after)
