"""A family: many documents of one kind in one scope, told apart by keys and listed by page."""

from __future__ import annotations

from functools import partial

import attrs
from pytest import raises

from pidurable_actors import Conversation, Page, Tx, define_doc
from pidurable_actors.errors import MisuseError, StorageRequestError
from pidurable_actors.storage.memory import MemoryStorage
from tests._tasks import opened


@attrs.define
class Note:
    """One note."""

    text: str = ""


NOTE = define_doc("app.note", Note)
NOTES = define_doc("app.notes", Note)  # its name comes right behind
SESSION_NOTE = define_doc("app.note", Note, scope="session")


async def write(root: Conversation, *keys: str) -> None:
    async def change(tx: Tx) -> None:
        for key in keys:
            (await tx.doc(NOTE, key=key)).text = f"in {key}"
        (await tx.doc(NOTES, key="other")).text = "another kind"

    await root.commit(change)


async def test_the_keys_of_a_family_are_listed_in_order_and_by_page() -> None:
    async with opened(MemoryStorage()) as on:
        keys = ["", *(f"k{number:02}" for number in range(25))]
        await write(on.root, *reversed(keys))
        assert await on.root.document_keys(NOTE) == Page(tuple(keys), None)
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await on.root.document_keys(NOTE, limit=4, cursor=cursor)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == keys
        assert (await on.root.document_keys(NOTES)).items == ("other",)


async def test_a_family_without_an_unnamed_document_has_only_its_keys() -> None:
    async with opened(MemoryStorage()) as on:
        assert await on.root.document_keys(NOTE) == Page((), None)
        await write(on.root, "b", "a")
        assert (await on.root.document_keys(NOTE)).items == ("a", "b")


async def test_a_family_of_the_session_is_listed_by_the_harness() -> None:
    async with opened(MemoryStorage()) as on:

        async def change(tx: Tx) -> None:
            (await tx.doc(SESSION_NOTE, key="x")).text = "for all"

        await on.harness.commit(change)
        assert (await on.harness.document_keys(SESSION_NOTE)).items == ("x",)
        assert (await on.harness.document_keys(NOTE, on.root.id)).items == ()
        with raises(MisuseError, match="say to which one"):
            await on.harness.document_keys(NOTE)


async def test_a_wrong_limit_or_cursor_of_a_family_is_refused() -> None:
    async with opened(MemoryStorage()) as on:
        await write(on.root, "a", "b")
        cursor = (await on.root.document_keys(NOTE, limit=1)).next_cursor
        assert cursor is not None
        entries = (await on.root.entries(limit=1)).next_cursor
        for call, text in (
            (partial(on.root.document_keys, NOTE, limit=0), "limit must be"),
            (partial(on.root.document_keys, NOTES, cursor=cursor), "another query"),
            (partial(on.root.document_keys, NOTE, cursor="?"), "malformed"),
            (partial(on.root.entries, cursor=cursor), "another query"),
        ):
            with raises(StorageRequestError, match=text):
                await call()
        assert entries is None
