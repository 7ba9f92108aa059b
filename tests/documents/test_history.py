"""What a document was: as of every entry, before it existed, and across versions and policies."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pytest import mark, raises

from pidurable_actors import Conversation, Harness, Tx
from pidurable_actors.errors import MisuseError, StorageRequestError, StorageTooNew
from pidurable_actors.records import ROOT_ID, ChangeDocument, EntryId
from pidurable_actors.session import DocumentDefinition, define_doc
from tests._tasks import NOTE, Note
from tests.documents.kit import (
    BOOK,
    KEPT,
    Book,
    Edit,
    Picks,
    Place,
    edit,
    logged,
    note,
    opened_at,
    stored,
    table,
)

FOR_ALL = define_doc("app.for-all", Book, scope="session", history="rewindable")
FOR_TASK = define_doc("app.for-task", Book, scope="task", history="rewindable")
EARLY = EntryId(999_999)


@mark.slow
@mark.parametrize("seed", range(3))
async def test_a_document_as_of_every_entry_is_what_a_model_remembers(
    place: Place, seed: int
) -> None:
    """Random commits with entries, changes or both, in any order, reopened now and then.

    The test keeps plain copies: what each document was after the commit of each entry. They are
    compared at the end of every opening, so that no later change may touch what was.
    """
    picks, models = Picks(seed), {"conversation": Book(), "session": Book()}
    was: dict[int, dict[str, dict[str, Any]]] = {}

    def some_edits() -> dict[str, list[Edit]]:
        return {scope: [picks.edit() for _ in range(picks.below(3))] for scope in models}

    async def commit(root: Conversation) -> None:
        edits, before, count = some_edits(), picks.below(2), picks.below(3)

        async def change(tx: Tx) -> list[EntryId]:
            ids = [_append(tx) for _ in range(count)] if before else []
            for scope, definition in (("conversation", KEPT), ("session", FOR_ALL)):
                for one in edits[scope]:
                    one(await tx.doc(definition))
            return ids or [_append(tx) for _ in range(count)]

        made = await root.commit(change)
        for scope, book in models.items():
            for one in edits[scope]:
                one(book)
        now = {scope: table(deepcopy(book)) for scope, book in models.items()}
        was.update((entry_id, now) for entry_id in made)

    for _ in range(5):
        async with opened_at(place()) as (harness, root):
            for _ in range(25):
                await commit(root)
            for entry_id, then in was.items():
                assert await _as_of(harness, entry_id) == then
    assert len(was) > 60


def _append(tx: Tx) -> EntryId:
    return tx.append_entry(ROOT_ID, NOTE.new(Note(""))).id


async def _as_of(harness: Harness, entry_id: int) -> dict[str, dict[str, Any]]:
    kept = await harness.snapshot_as_of(KEPT, ROOT_ID, entry_id)
    for_all = await harness.snapshot_as_of(FOR_ALL, ROOT_ID, entry_id)
    return {"conversation": table(kept), "session": table(for_all)}


async def test_before_it_was_made_a_document_is_what_its_class_starts_with(place: Place) -> None:
    async with opened_at(place()) as (harness, root):
        first = await root.commit(note())
        await root.commit(edit(KEPT, lambda it: it.text.append("x")))
        await harness.commit(edit(FOR_ALL, lambda it: it.text.append("x")))
        second = await root.commit(note())
        for definition in (KEPT, FOR_ALL):
            before = await harness.snapshot_as_of(definition, ROOT_ID, first)
            assert table(before) == table(Book())
            after = await harness.snapshot_as_of(definition, ROOT_ID, second)
            assert str(after.text) == "x"


async def test_what_keeps_no_history_and_what_is_not_seen_is_refused(place: Place) -> None:
    async with opened_at(place()) as (harness, root):
        entry = await root.commit(note())
        other = await harness.create_conversation()
        elsewhere = await other.commit(note())
        with raises(MisuseError, match='history="rewindable"'):
            await root.snapshot_as_of(BOOK, entry)
        with raises(MisuseError, match="belongs to a task, not to an entry"):
            await harness.snapshot_as_of(FOR_TASK, ROOT_ID, entry)
        for definition in (KEPT, FOR_ALL):
            for unseen in (elsewhere, EARLY, 0, -1):
                with raises(StorageRequestError, match=f"sees no entry {unseen}"):
                    await harness.snapshot_as_of(definition, ROOT_ID, unseen)
            with raises(StorageRequestError, match="conversation 999 sees no entry"):
                await harness.snapshot_as_of(definition, 999, entry)


async def test_members_of_a_family_have_histories_of_their_own(place: Place) -> None:
    ids = []
    async with opened_at(place()) as (_, root):
        for _ in range(4):
            for key in "ab":
                await root.commit(edit(KEPT, lambda it: setattr(it, "n", it.n + 1), key=key))
            await root.commit(edit(KEPT, lambda it: setattr(it, "n", it.n + 9), key="b"))
            ids.append(await root.commit(note()))
    async with opened_at(place()) as (_, root):
        for at, entry_id in enumerate(ids):
            assert (await root.snapshot_as_of(KEPT, entry_id, key="a")).n == at + 1
            assert (await root.snapshot_as_of(KEPT, entry_id, key="b")).n == 10 * (at + 1)
            assert (await root.snapshot_as_of(KEPT, entry_id, key="c")).n == 0


# --- versions ---


def _versions(long: int) -> tuple[DocumentDefinition[Book], DocumentDefinition[Book]]:
    """A rewindable definition and its next version, which doubles a number and adds some text."""

    def migrate(value: Any, version: int) -> Any:
        assert version == 1
        return {**value, "n": value["n"] * 2, "text": value["text"] + "m" * long}

    return KEPT, define_doc(
        KEPT.kind, Book, version=2, history="rewindable", fork="as_of", migrate=migrate
    )


@mark.parametrize("long", [0, 3_000], ids=["short", "long"])
async def test_a_migration_happens_at_each_look_and_is_stored_with_the_next_change(
    place: Place, long: int
) -> None:
    older, newer = _versions(long)
    storage = place()
    async with opened_at(storage) as (harness, root):
        await root.commit(edit(older, lambda it: setattr(it, "n", 3)))
        first = await root.commit(note())
        before = stored(storage, older, ROOT_ID)

        # A look, and a commit that changes nothing, leave it as it is.
        assert (await root.snapshot(newer)).n == 6
        assert (await root.snapshot_as_of(newer, first)).n == 6
        await root.commit(edit(newer, lambda it: it.n))
        assert stored(storage, older, ROOT_ID) == before

        await root.commit(edit(newer, lambda it: it.text.append("!")))
        second = await root.commit(note())
        assert stored(storage, newer, ROOT_ID).record.version == 2
        changes = (await logged(harness))[-2].changes
        assert [c.record.version for c in changes if isinstance(c, ChangeDocument)] == [2]
    async with opened_at(place()) as (harness, root):
        # What it was is migrated from the version it was in, and so is refused by none but the old.
        assert (await root.snapshot_as_of(newer, first)).n == 6
        assert (await root.snapshot_as_of(newer, second)).n == 6
        assert str((await root.snapshot_as_of(newer, second)).text) == "m" * long + "!"
        assert (await root.snapshot_as_of(older, first)).n == 3
        with raises(StorageTooNew, match=r"2.*1") as told:
            await root.snapshot(older)
        assert (told.value.stored, told.value.known) == (2, 1)
        with raises(StorageTooNew):
            await root.commit(edit(older, lambda it: it.n))
        assert (await root.snapshot(newer)).n == 6


# --- policies ---


@mark.parametrize("long", [0, 3_000], ids=["short", "long"])
async def test_history_is_kept_from_the_change_that_first_asks_for_it(
    place: Place, long: int
) -> None:
    latest = define_doc(KEPT.kind, Book)
    storage = place()
    async with opened_at(storage) as (_, root):
        await root.commit(edit(latest, lambda it: it.text.append("x" * long)))
        await root.commit(note())
        await root.commit(edit(latest, lambda it: setattr(it, "n", 1)))
        await root.commit(note())
        assert stored(storage, KEPT, ROOT_ID).record.history == "latest"
        entries = []
        for n in range(2, 6):
            await root.commit(edit(KEPT, lambda it, n=n: setattr(it, "n", n)))  # type: ignore[misc]
            entries.append(await root.commit(note()))
        assert stored(storage, KEPT, ROOT_ID).record.history == "rewindable"
        assert [(await root.snapshot_as_of(KEPT, at)).n for at in entries] == [2, 3, 4, 5]

        # And no longer than it is asked for.
        await root.commit(edit(latest, lambda it: setattr(it, "n", 6)))
        last = await root.commit(note())
        assert stored(storage, KEPT, ROOT_ID).record.history == "latest"
        assert (await root.snapshot_as_of(KEPT, last)).n == 6
        assert [(await root.snapshot_as_of(KEPT, at)).n for at in entries] == [0, 0, 0, 0]
