"""What is stored of a change: about what it says, and reading it is never unbounded."""

from __future__ import annotations

from pytest import mark, raises

from pidurable_actors import Tx
from pidurable_actors._json import encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import DefinitionError
from pidurable_actors.records import ROOT_ID
from pidurable_actors.session import DocumentDefinition, define_doc
from pidurable_actors.session._conversations import IDLE_KEPT
from tests._tasks import Sleeper
from tests.documents.kit import BOOK, KEPT, Book, Picks, Place, edit, opened_at, stored, table

DEFINITIONS = mark.parametrize("definition", [BOOK, KEPT], ids=["latest", "rewindable"])
Definition = DocumentDefinition[Book]


@DEFINITIONS
async def test_appending_to_a_long_text_stores_about_what_is_appended(
    place: Place, definition: Definition
) -> None:
    storage = place()
    async with opened_at(storage) as (_, root):
        await root.commit(edit(definition, lambda it: it.text.append("x" * 1_000_000)))
        before, logged = storage.document_chars, storage.log_chars
        for _ in range(200):
            await root.commit(edit(definition, lambda it: it.text.append("y" * 100)))
        assert storage.document_chars - before < 200 * 200
        assert storage.log_chars - logged < 200 * 600
        assert str((await root.snapshot(definition)).text) == "x" * 1_000_000 + "y" * 20_000


@mark.slow
@DEFINITIONS
async def test_appending_to_a_long_list_stores_about_what_is_appended(
    place: Place, definition: Definition
) -> None:
    storage = place()
    async with opened_at(storage) as (_, root):
        await root.commit(edit(definition, lambda it: it.items.extend(range(100_000))))
        before, logged = storage.document_chars, storage.log_chars
        for _ in range(200):
            await root.commit(edit(definition, lambda it: it.items.append("y" * 100)))
        assert storage.document_chars - before < 200 * 250
        assert storage.log_chars - logged < 200 * 650
    async with opened_at(place()) as (_, root):
        items = (await root.snapshot(definition)).items
        assert len(items) == 100_200
        assert items[99_999:100_001] == [99_999, "y" * 100]


@mark.slow
@DEFINITIONS
@mark.parametrize("reopened", [False, True], ids=["in one go", "reopened on the way"])
async def test_what_is_stored_grows_as_the_document_does(
    place: Place, definition: Definition, *, reopened: bool
) -> None:
    """Twice the appends store about twice as much, bases included, whoever made the last one."""

    async def grow(times: int) -> int:
        chars = 0
        for _ in range(10):
            storage = place()
            async with opened_at(storage) as (_, root):
                for _ in range(times // 10 if reopened else times):
                    await root.commit(edit(definition, lambda it: it.text.append("z" * 100)))
            chars += storage.document_chars
            if not reopened:
                break
        return chars

    first = await grow(500)
    assert first < 6 * 500 * 100
    assert await grow(500) < 8 * 500 * 100


async def test_a_queue_that_stays_short_stores_about_what_passes_through_it(place: Place) -> None:
    def turn(book: Book) -> None:
        book.items.append("i" * 100)
        if len(book.items) > 100:
            book.items.pop(0)

    storage = place()
    async with opened_at(storage) as (_, root):
        for _ in range(1_000):
            await root.commit(edit(BOOK, turn))
    assert storage.document_chars < 1_000 * 800


@mark.slow
@DEFINITIONS
@mark.parametrize("reopened", [False, True], ids=["in one go", "reopened at every step"])
async def test_reading_a_document_never_takes_more_than_about_twice_its_size(
    place: Place, definition: Definition, *, reopened: bool
) -> None:
    """Whatever is done to it, what it takes to read it stays near its size; it is what it was.

    A document is grown and cut in turn. After every change the stored base and tail are compared
    with the stored value, and the value with that of a model.
    """
    model, picks = Book(), Picks(f"replay {reopened}")
    at, longest = 0, 0
    model.text.append("first")

    async def next_steps(count: int) -> None:
        nonlocal at, longest
        storage = place()
        async with opened_at(storage) as (_, root):
            if not at:
                await root.commit(edit(definition, lambda it: it.text.append("first")))
            for _ in range(count):
                change = picks.edit(longest=20 if at % 60 >= 35 else 6_000)
                if at % 60 == 35:
                    change = _cut
                change(model)
                await root.commit(edit(definition, change))
                at += 1
                it = stored(storage, definition, ROOT_ID)
                size, tail = len(encode_json(it.value)), LIMITS.document_tail_chars
                assert it.base_chars + it.tail_chars <= 2 * size + tail
                longest = max(longest, it.base_chars)
            assert table(await root.snapshot(definition)) == table(model)

    for _ in range(60 if reopened else 3):
        await next_steps(1 if reopened else 100)
    assert longest > LIMITS.document_tail_chars


def _cut(book: Book) -> None:
    book.text.trim_front(len(str(book.text)) * 19 // 20)
    book.items.clear()


async def test_a_document_that_shrank_before_a_restart_does_not_drag_its_base_along(
    place: Place,
) -> None:
    async with opened_at(place()) as (_, root):
        await root.commit(edit(BOOK, lambda it: it.text.append("x" * 100_000)))
        await root.commit(edit(BOOK, lambda it: it.text.trim_front(45_000)))
    for _ in range(6):
        storage = place()
        async with opened_at(storage) as (_, root):
            await root.commit(edit(BOOK, lambda it: it.text.trim_front(9_000)))
            found = stored(storage, BOOK, ROOT_ID)
            size = len(encode_json(found.value))
            assert found.base_chars + found.tail_chars < 2 * size + LIMITS.document_tail_chars


@DEFINITIONS
async def test_a_commit_that_is_rolled_back_leaves_a_document_as_it_was(
    place: Place, definition: Definition
) -> None:
    storage = place()
    async with opened_at(storage) as (_, root):
        await root.commit(edit(definition, lambda it: it.text.append("x" * 5_000)))

        async def fails(tx: Tx) -> None:
            book = await tx.doc(definition)
            book.text.append("lost")
            book.items.append("lost")
            raise ValueError

        before = stored(storage, definition, ROOT_ID)
        for _ in range(3):
            with raises(ValueError, match=r"^$"):
                await root.commit(fails)
        assert stored(storage, definition, ROOT_ID) == before
        await root.commit(edit(definition, lambda it: it.text.append("kept")))
    async with opened_at(place()) as (_, root):
        book = await root.snapshot(definition)
        assert str(book.text) == "x" * 5_000 + "kept"
        assert book.items == []


async def test_a_migration_that_raises_changes_nothing_and_may_be_tried_again(
    place: Place,
) -> None:
    attempts = []

    def migrate(value: object, version: int) -> object:
        attempts.append(version)
        assert isinstance(value, dict)
        value["n"] += 1
        if len(attempts) < 3:
            raise ZeroDivisionError
        return value

    newer = define_doc("app.book", Book, version=2, migrate=migrate)  # type: ignore[arg-type]
    storage = place()
    async with opened_at(storage) as (_, root):
        await root.commit(edit(BOOK, lambda it: it.text.append("x" * 5_000)))
        await root.commit(edit(BOOK, lambda it: it.text.append("y")))
        before = stored(storage, BOOK, ROOT_ID)
        with raises(ZeroDivisionError):
            await root.commit(edit(newer, lambda it: it.text.append("lost")))
        with raises(ZeroDivisionError):
            await root.snapshot(newer)
        assert stored(storage, BOOK, ROOT_ID) == before
        with raises(DefinitionError, match="version 1 and defined in version 3"):
            await root.snapshot(define_doc("app.book", Book, version=3))
        await root.commit(edit(newer, lambda it: it.text.append("z")))
        assert (await root.snapshot(newer)).n == 1
        assert str((await root.snapshot(newer)).text)[-3:] == "xyz"


async def test_a_conversation_that_was_forgotten_goes_on_from_what_is_stored(
    place: Place,
) -> None:
    storage = place()
    async with opened_at(storage) as (harness, root):
        await root.commit(edit(BOOK, lambda it: it.text.append("x" * 5_000)))
        await root.commit(edit(BOOK, lambda it: it.text.append("y")))
        state = harness._core.engine.line.state.conversations
        for _ in range(IDLE_KEPT + 1):
            await harness.commit(lambda tx: tx.create_conversation())
        assert state.get(root.id) is None
        deltas = len(storage.deltas)
        await root.commit(edit(BOOK, lambda it: it.text.append("z")))
        assert len(storage.deltas) == deltas + 1
        assert str((await root.snapshot(BOOK)).text) == "x" * 5_000 + "yz"


async def test_the_documents_of_the_session_that_were_forgotten_are_found_again(
    place: Place,
) -> None:
    words = define_doc("app.words", Book, scope="session")
    async with opened_at(place()) as (harness, _):

        async def number(tx: Tx) -> None:
            for at in range(IDLE_KEPT + 100):
                (await tx.doc(words, key=str(at))).n += at

        for _ in range(2):
            await harness.commit(number)
        for at in (0, 50, IDLE_KEPT + 99):
            assert (await harness.snapshot(words, key=str(at))).n == 2 * at


async def test_a_family_with_more_members_than_are_loaded_at_once_is_whole(place: Place) -> None:
    """Beyond the limit members are read one by one; each change finds the newest value."""
    keys = [f"k{at:03}" for at in range(LIMITS.conversation_documents * 2)]
    for turn in range(1, 4):
        async with opened_at(place()) as (_, root):

            async def all_of_them(tx: Tx) -> None:
                for key in keys:
                    (await tx.doc(KEPT, key=key)).n += 1
                (await tx.doc(KEPT, key="zz")).n += 1

            await root.commit(all_of_them)
            for key in (*keys, "zz"):
                assert (await root.snapshot(KEPT, key=key)).n == turn
                await root.commit(edit(KEPT, lambda it: it.items.append(1), key=key))
    async with opened_at(place()) as (_, root):
        for key in (*keys, "zz"):
            book = await root.snapshot(KEPT, key=key)
            assert (book.n, list(book.items)) == (3, [1, 1, 1])


async def test_keys_and_scopes_do_not_see_each_other(place: Place) -> None:
    """C58: names that differ in case, form or spaces are different documents."""
    names = ("", "a", "A", "a ", "\u00e1", "a\u0301", "0", "conversation")
    for_all = define_doc("app.book", Book, scope="session")
    for_task = define_doc("app.book", Book, scope="task")
    async with opened_at(place(), Sleeper) as (harness, root):
        task = await root.commit(lambda tx: tx.create_task(Sleeper, 60.0))
        scopes = ((BOOK, root.id), (for_all, 0), (for_task, task))
        for at, (definition, scope_id) in enumerate(scopes):
            for name in names:
                await harness.commit(
                    edit(
                        definition,
                        lambda it, at=at, name=name: it.items.append([at, name]),  # type: ignore[misc]
                        scope_id,
                        name,
                    )
                )
    async with opened_at(place(), Sleeper) as (harness, _):
        for at, (definition, scope_id) in enumerate(scopes):
            for name in names:
                book = await harness.snapshot(definition, scope_id, key=name)
                assert [list(it) for it in book.items] == [[at, name]]
