"""Forks: what each sees, which documents it starts with, and what it costs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import attrs
import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import AgentChoice, Conversation, Harness, Tx
from pidurable_actors.agent import AGENT, INBOX, LIVE, PROVIDER, USAGE
from pidurable_actors.errors import StorageRequestError
from pidurable_actors.records import ConversationId, EntryId
from pidurable_actors.session import DocumentDefinition, define_doc
from pidurable_actors.testing._through import ThroughStorage
from pidurable_actors.testing.faults import HangingStorage
from tests._tasks import NOTE, Note, append, notes, until
from tests.documents.kit import (
    BOOK,
    KEPT,
    Book,
    Counted,
    Picks,
    Place,
    edit,
    memory_place,
    note,
    opened_at,
    sqlite_place,
    table,
)

CURRENT = define_doc("app.current", Book, fork="current")
POLICIES: dict[str, DocumentDefinition[Book]] = {"initial": BOOK, "current": CURRENT, "as_of": KEPT}


def _n(value: int) -> Any:
    return lambda book: setattr(book, "n", value)


async def _set_all(root: Conversation, n: int) -> None:
    async def change(tx: Tx) -> None:
        for definition in POLICIES.values():
            (await tx.doc(definition)).n = n

    await root.commit(change)


async def _all_of(at: Conversation) -> list[int]:
    return [(await at.snapshot(definition)).n for definition in POLICIES.values()]


# --- a model of everything ---


@attrs.define
class Branch:
    """A conversation as the test knows it."""

    seen: list[int] = attrs.Factory(list)
    books: dict[str, Book] = attrs.Factory(lambda: {name: Book() for name in POLICIES})


@mark.slow
@mark.parametrize("seed", range(3))
async def test_a_tree_of_forks_is_what_a_model_remembers(place: Place, seed: int) -> None:
    """Random work and forks anywhere in a growing tree, reopened now and then.

    The test keeps plain copies of what each conversation sees and has, and of what the documents
    were at each entry. They are compared at the end of every opening: neither a parent nor a fork
    may ever see what the other did later.
    """
    picks, was = Picks(seed), dict[int, Book]()
    tree = {1: Branch()}

    async def work(at: Conversation) -> None:
        branch, edits = tree[at.id], [(picks.of([*POLICIES]), picks.edit()) for _ in range(3)]
        edits = edits[: picks.below(4)]

        async def change(tx: Tx) -> int:
            for name, one in edits:
                one(await tx.doc(POLICIES[name]))
            return tx.append_entry(at.id, NOTE.new(Note(f"{at.id}"))).id

        entry_id = await at.commit(change)
        for name, one in edits:
            one(branch.books[name])
        branch.seen.append(entry_id)
        was[entry_id] = deepcopy(branch.books["as_of"])

    async def fork(at: Conversation) -> None:
        branch = tree[at.id]
        cut = picks.of(branch.seen)
        made = await at.fork(at=None if cut == branch.seen[-1] else cut)
        books = {"initial": Book(), "current": deepcopy(branch.books["current"])}
        books["as_of"] = deepcopy(was[cut])
        tree[made.id] = Branch([it for it in branch.seen if it <= cut], books)

    for _ in range(4):
        async with opened_at(place()) as (harness, root):
            for _ in range(30):
                at = await harness.conversation(picks.of([*tree]))
                if tree[at.id].seen and picks.below(4) == 0:
                    await fork(at)
                else:
                    await work(at)
            for branch_id, branch in tree.items():
                await _check(await harness.conversation(branch_id), branch, was)
            assert await notes(root) == ["1"] * len(tree[1].seen)
    assert len(tree) > 8


async def _check(at: Conversation, branch: Branch, was: dict[int, Book]) -> None:
    page = await at.entries(limit=1_000)
    assert [entry.id for entry in reversed(page.items)] == branch.seen
    within = await at.commit(lambda tx: tx.entries(at.id, limit=1_000))
    assert within == list(page.items)
    for name, definition in POLICIES.items():
        assert table(await at.snapshot(definition)) == table(branch.books[name])
    for entry_id in branch.seen:
        assert table(await at.snapshot_as_of(KEPT, entry_id)) == table(was[entry_id])


# --- policies ---


async def test_each_policy_gives_a_fork_what_it_says_and_no_later_change_reaches_it(
    place: Place,
) -> None:
    async with opened_at(place()) as (harness, root):
        await _set_all(root, 1)
        first = await root.commit(note())
        await _set_all(root, 2)
        second = await root.commit(note())
        await _set_all(root, 3)
        forks = [await root.fork(at=first), await root.fork(at=second), await root.fork()]
        await _set_all(root, 4)
        assert [await _all_of(one) for one in forks] == [[0, 3, 1], [0, 3, 2], [0, 3, 2]]
        await _set_all(forks[0], 5)
        ids = [one.id for one in forks]
    async with opened_at(place()) as (harness, root):
        forks = [await harness.conversation(one) for one in ids]
        assert await _all_of(root) == [4, 4, 4]
        assert [await _all_of(one) for one in forks] == [[5, 5, 5], [0, 3, 2], [0, 3, 2]]
        # As of an entry of the parent a fork sees what the parent had, except of what began anew.
        as_of = [(await one.snapshot_as_of(KEPT, first)).n for one in forks]
        assert as_of == [1, 1, 1]


async def test_a_fork_at_an_entry_before_a_document_was_made_does_not_have_it(
    place: Place,
) -> None:
    async with opened_at(place()) as (_, root):
        first = await root.commit(note())
        await _set_all(root, 1)
        made = await root.fork(at=first)
        assert await _all_of(made) == [0, 1, 0]
        await made.commit(edit(KEPT, _n(7)))
        assert (await made.snapshot(KEPT)).n == 7
        assert (await root.snapshot(KEPT)).n == 1


async def test_every_member_of_a_family_is_copied_also_those_that_are_not_in_memory(
    place: Place,
) -> None:
    keys = [f"{at:03}" for at in range(150)]

    async def fill(tx: Tx) -> None:
        for definition in (CURRENT, KEPT):
            for key in keys:
                (await tx.doc(definition, key=key)).n += 1

    async with opened_at(place()) as (_, root):
        await root.commit(fill)
        entry = await root.commit(note())
    async with opened_at(place()) as (_, root):
        await root.commit(edit(CURRENT, _n(9), key="149"))
        await root.commit(edit(KEPT, _n(9), key="149"))
        made = await root.fork(at=entry)
        assert [(await made.snapshot(CURRENT, key=key)).n for key in keys] == [1] * 149 + [9]
        assert [(await made.snapshot(KEPT, key=key)).n for key in keys] == [1] * 150


async def test_a_fork_of_what_is_stored_in_an_older_version_keeps_that_version(
    place: Place,
) -> None:
    def double(value: Any, _: int) -> Any:
        return {**value, "n": value["n"] * 2}

    newer = define_doc(CURRENT.kind, Book, version=2, fork="current", migrate=double)
    async with opened_at(place()) as (_, root):
        await root.commit(edit(CURRENT, _n(3)))
        await root.commit(note())
        untouched = await root.fork()

        async def fork_and_look(tx: Tx) -> ConversationId:
            made = await tx.fork(root.id)
            assert (await tx.doc(newer, made.id)).n == 6
            return made.id

        looked_at = await root.commit(fork_and_look)
    async with opened_at(place()) as (harness, _):
        for made_id in (untouched.id, looked_at):
            assert (await (await harness.conversation(made_id)).snapshot(newer)).n == 6


# --- in one commit ---


async def test_a_fork_in_the_commit_of_its_entry_sees_the_commit_so_far(place: Place) -> None:
    """What the commit does behind the fork is the parent's alone, wherever it is read."""

    async def change(tx: Tx) -> tuple[ConversationId, EntryId]:
        tx.append_entry(root.id, NOTE.new(Note("before")))
        for definition in POLICIES.values():
            (await tx.doc(definition)).n = 1
        entry = tx.append_entry(root.id, NOTE.new(Note("cut")))
        made = await tx.fork(root.id)
        assert made.parent is not None
        assert made.parent.entry_id == entry.id
        for definition in POLICIES.values():
            (await tx.doc(definition)).n = 2
        tx.append_entry(root.id, NOTE.new(Note("after")))
        tx.append_entry(made.id, NOTE.new(Note("of the fork")))
        assert [NOTE.match(it) for it in await tx.entries(made.id)] == [
            Note("of the fork"),
            Note("cut"),
            Note("before"),
        ]
        assert (await tx.doc(KEPT, made.id)).n == 1
        return made.id, entry.id

    async with opened_at(place()) as (_, root):
        made_id, entry_id = await root.commit(change)
    async with opened_at(place()) as (harness, root):
        made = await harness.conversation(made_id)
        assert await notes(made) == ["before", "cut", "of the fork"]
        assert await notes(root) == ["before", "cut", "after"]
        assert await _all_of(made) == [0, 1, 1]
        assert await _all_of(root) == [2, 2, 2]
        assert (await root.snapshot_as_of(KEPT, entry_id)).n == 2


async def test_forks_of_forks_in_one_commit_have_the_documents_of_each_other(
    place: Place,
) -> None:
    async def change(tx: Tx) -> list[ConversationId]:
        made = [(await tx.fork(root.id)).id]
        (await tx.doc(CURRENT, made[0])).n = 2
        for _ in range(3):
            made.append((await tx.fork(made[-1])).id)
        (await tx.doc(CURRENT, made[1])).n = 3
        return made

    async with opened_at(place()) as (harness, root):
        await _set_all(root, 1)
        await root.commit(note())
        made = await root.commit(change)
        forks = [await harness.conversation(one) for one in made]
        assert [await _all_of(one) for one in forks] == [
            [0, 2, 1],
            [0, 3, 1],
            [0, 2, 1],
            [0, 2, 1],
        ]


async def test_a_new_entry_s_document_comes_from_where_the_entry_is(place: Place) -> None:
    async def change(tx: Tx) -> ConversationId:
        entry = tx.append_entry(root.id, NOTE.new(Note("new")))
        (await tx.doc(KEPT)).n = 1
        child = await tx.fork(root.id)
        (await tx.doc(KEPT, child.id)).n = 2
        return (await tx.fork(child.id, at=entry.id)).id

    async with opened_at(place()) as (harness, root):
        made = await harness.conversation(await root.commit(change))
        assert (await made.snapshot(KEPT)).n == 1


# --- what is not stored yet ---


async def test_a_fork_at_an_entry_that_is_admitted_and_not_stored_waits_and_is_right(
    place: Place,
) -> None:
    """The writes are held: the fork's commit waits for its entry, and finds what it was then."""
    made: list[Conversation] = []

    async def fork(root: Conversation, at: int | None) -> None:
        made.append(await root.fork(at=at))

    with HangingStorage(place().inner) as storage:
        async with opened_at(storage) as (_, root), trio.open_nursery() as nursery:
            await _set_all(root, 1)
            first = await root.commit(note("first"))
            storage.hang()
            steps: list[Callable[[], Awaitable[object]]] = [
                lambda: _set_all(root, 2),
                lambda: root.commit(note("second")),
                lambda: _set_all(root, 3),
                lambda: fork(root, first),
                lambda: fork(root, None),
            ]
            for step in steps:
                nursery.start_soon(step)
                await trio.testing.wait_all_tasks_blocked()
            assert made == []
            storage.release()
            await until(lambda: len(made) == 2)
            made.sort(key=lambda one: one.id)
            assert [await notes(one) for one in made] == [["first"], ["first", "second"]]
            assert [await _all_of(one) for one in made] == [[0, 3, 1], [0, 3, 2]]


async def test_a_callback_sees_each_entry_once_however_much_of_it_is_stored(
    place: Place,
) -> None:
    """Callbacks of a chain of forks read at every stage of storing, in pages and by kind.

    Forty commits are under way at once on a storage behind its thread, so a callback finds entries
    that are stored, admitted or its own. Callbacks run in order, so the test knows what each sees.
    """
    other = "app.other"
    seen: dict[ConversationId, list[tuple[int, str]]] = {}

    async def check(tx: Tx, at: ConversationId, picks: Picks) -> None:
        for _ in range(4):
            limit = 1 + picks.below(9)
            kind = picks.of([None, "app.note", other])
            before = picks.of([None, *(EntryId(it) for it, _ in seen[at])])
            expected = [
                entry_id
                for entry_id, its_kind in reversed(seen[at])
                if kind in (None, its_kind) and (before is None or entry_id < before)
            ]
            found = await tx.entries(at, limit=limit, kind=kind, before=before)
            assert [entry.id for entry in found] == expected[:limit]

    async def step(at: ConversationId, seed: int) -> None:
        async def change(tx: Tx) -> None:
            picks = Picks(seed)
            await check(tx, at, picks)
            for _ in range(1 + picks.below(3)):
                draft = attrs.evolve(NOTE.new(Note("")), kind=picks.of(["app.note", other]))
                seen[at].append((tx.append_entry(at, draft).id, draft.kind))
                await check(tx, at, picks)

        await harness.commit(change)

    storage = ThroughStorage(place().inner, blocking=True)
    async with opened_at(storage) as (harness, root):
        seen[root.id] = [(await root.commit(note()), "app.note")]
        at = root
        for _ in range(3):
            made = await at.fork()
            seen[made.id] = list(seen[at.id])
            async with trio.open_nursery() as nursery:
                for seed in range(40):
                    nursery.start_soon(step, Picks(seed).of([*seen]), seed)
            at = made


# --- what is refused, and what is a fork's own ---


async def test_a_fork_where_there_is_nothing_to_fork_at_is_refused(place: Place) -> None:
    async with opened_at(place()) as (harness, root):
        with raises(StorageRequestError, match="no entry to fork at"):
            await root.fork()
        first = await root.commit(append("1"))
        fork = await root.fork()
        second = await root.commit(append("2"))
        own = await fork.commit(append("of the fork"))
        sibling = await root.fork(at=first)
        for at, unseen in ((fork, second), (sibling, own), (sibling, second), (root, own)):
            with raises(StorageRequestError, match=f"{at.id} does not see entry {unseen}"):
                await at.fork(at=unseen)
        with raises(StorageRequestError, match="there is no entry 999"):
            await root.fork(at=999)
        with raises(StorageRequestError, match="there is no conversation 999"):
            await harness.commit(lambda tx: tx.fork(ConversationId(999)))
        assert len((await harness.conversations()).items) == 3


async def test_a_fork_has_its_own_session_and_inbox_and_runs_with_what_its_parent_does(
    place: Place,
) -> None:
    async with opened_at(place()) as (_, root):
        await root.configure(thinking_level="low", max_output_tokens=5)
        entry = await root.commit(note())

        async def fill(tx: Tx) -> None:
            (await tx.doc(USAGE)).tools["t"] = 1
            (await tx.doc(INBOX)).writes = 1

        await root.commit(fill)
        await root.configure(max_output_tokens=7)
        forks = [
            await root.fork(at=entry),
            await root.fork(agent=AgentChoice(thinking_level="high")),
        ]
        agents = [await fork.snapshot(AGENT) for fork in forks]
        assert [(it.thinking_level, it.max_output_tokens) for it in agents] == [
            ("low", 7),
            ("high", None),
        ]
        sessions = {(await at.snapshot(PROVIDER)).session_id for at in (root, *forks)}
        assert len(sessions - {""}) == 3
        for fork in forks:
            assert not (await fork.snapshot(USAGE)).tools
            assert (await fork.snapshot(INBOX)).writes == 0
            assert (await fork.snapshot(LIVE)).run is None
            record = await fork.record()
            assert record is not None
            assert record.parent is not None
            assert (record.parent.conversation_id, record.parent.entry_id) == (root.id, entry)
        await forks[0].configure(max_output_tokens=9)
        assert (await root.snapshot(AGENT)).max_output_tokens == 7


# --- what it costs ---


async def _fork_cost(place: Place, entries: int, *, warm: bool) -> dict[str, int]:
    """Reads, rows and written characters of a fork at the newest and at the second entry."""
    ids: list[int] = []

    async def fill(tx: Tx) -> None:
        for _ in range(min(500, entries - len(ids))):
            entry = tx.append_entry(ConversationId(1), NOTE.new(Note("x" * 50)))
            ids.append(entry.id)

    async def forks(harness: Harness) -> None:
        root = await harness.root()
        await root.fork()
        await root.fork(at=ids[1])

    async def spent(storage: Counted, harness: Harness) -> dict[str, int]:
        calls, rows, chars = storage.calls, storage.rows, storage.document_chars
        await forks(harness)
        return {
            "calls": storage.calls - calls,
            "rows": storage.rows - rows,
            "chars": storage.document_chars - chars,
        }

    storage = place()
    async with opened_at(storage) as (harness, root):
        await root.commit(edit(KEPT, lambda it: it.text.append("x" * 100)))
        while len(ids) < entries:
            await root.commit(fill)
        if warm:
            return await spent(storage, harness)
    storage = place()
    async with opened_at(storage) as (harness, _):
        return await spent(storage, harness)


@mark.slow
@mark.parametrize("warm", [True, False], ids=["in memory", "cold"])
async def test_a_fork_costs_the_same_whatever_the_length_of_the_history(
    place: Place, tmp_path: Path, *, warm: bool
) -> None:
    is_memory = place().name == "memory"
    other = memory_place() if is_memory else sqlite_place(tmp_path / "other.sqlite")
    short, long = await _fork_cost(place, 10, warm=warm), await _fork_cost(other, 10_000, warm=warm)
    assert short == long
    assert short["rows"] < 30


async def test_a_fork_of_a_deep_chain_sees_the_whole_of_it(place: Place) -> None:
    async with opened_at(place()) as (harness, root):
        at = root
        for depth in range(120):
            await at.commit(append(str(depth)))
            at = await at.fork()
        ids = [it.id for it in (await at.entries(limit=1_000)).items]
        assert len(ids) == 120
        assert (await at.snapshot(KEPT)).n == 0
        middle = await at.fork(at=ids[60])
        assert await notes(middle) == [str(depth) for depth in range(60)]
        deepest = at.id
    async with opened_at(place()) as (harness, _):
        at = await harness.conversation(deepest)
        await at.commit(append("last"))
        assert await notes(at) == [*(str(depth) for depth in range(120)), "last"]
