"""The log of commits: in order, without holes, and what its operations add up to is what is stored."""

from __future__ import annotations

from typing import Any

import attrs
import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import (
    Reply,
    ScriptedModel,
    Settings,
    Tx,
    open_harness,
    tool,
)
from pidurable_actors._frozen import Value
from pidurable_actors._json import encode_json
from pidurable_actors.context import BACKGROUND
from pidurable_actors.errors import (
    ContextCancelled,
    CursorTooOld,
    HarnessClosed,
    ReadOnlySession,
    StorageRequestError,
)
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import (
    AppendEntry,
    ChangeDocument,
    DropMemos,
    LoggedCommit,
    PutConversation,
    PutMemo,
    PutSubmission,
    PutTask,
    RetireDocuments,
    apply_operations,
)
from pidurable_actors.session._line import _FORGET_EACH
from pidurable_actors.storage import Storage
from pidurable_actors.testing._records import DocumentKey, Fold, read_records
from tests._agents import call, calling, open_agent
from tests._tasks import NOTE, CountTo, Note, Ticker, append
from tests.documents.kit import (
    BOOK,
    KEPT,
    Picks,
    Place,
    edit,
    logged,
    memory_place,
    note,
    opened_at,
    sqlite_place,
)


async def test_commits_come_in_order_in_pages_and_across_restarts(place: Place) -> None:
    for turn in range(3):
        async with opened_at(place()) as (harness, root):
            for at in range(10):
                await root.commit(append(f"{turn}.{at}"))
            found = await logged(harness)
            newest = await harness.wait_for_commit(after=0)
            assert [it.number for it in found] == list(range(1, newest + 1))
            assert [it.at_ms for it in found] == sorted(it.at_ms for it in found)
            for after in (0, 1, newest - 1, newest):
                page = await harness.commits(after=after, limit=3)
                assert list(page) == found[after : after + 3]


@mark.slow
async def test_the_log_keeps_the_newest_commits_and_says_when_a_cursor_is_too_old(
    place: Place,
) -> None:
    """At least as many as the settings say stay, and never many more; none is missing between."""
    settings = Settings(commit_log=20)
    for _ in range(2):
        async with opened_at(place(), settings=settings) as (harness, root):
            for _ in range(200):
                await root.commit(note())
                newest = await harness.wait_for_commit(after=0)
                oldest = await harness._core.read(lambda s: s.oldest_commit())
                assert oldest is not None
                kept = newest - oldest + 1
                assert min(20, newest) <= kept < 20 + _FORGET_EACH
                page = await harness.commits(after=oldest - 1, limit=1_000)
                assert [it.number for it in page] == list(range(oldest, newest + 1))
                if oldest > 1:
                    with raises(CursorTooOld, match=f"behind {oldest - 2} are no longer kept"):
                        await harness.commits(after=oldest - 2)


async def test_a_cursor_or_limit_that_cannot_be_is_refused(place: Place) -> None:
    async with opened_at(place()) as (harness, root):
        await root.commit(note())
        newest = await harness.wait_for_commit(after=0)
        for after in (newest + 1, -1, 10**12):
            with raises(StorageRequestError, match=f"there is no commit {after}"):
                await harness.commits(after=after)
        for limit in (0, -1, 1_001):
            with raises(StorageRequestError, match="limit"):
                await harness.commits(limit=limit)
        assert await harness.commits(after=newest) == ()
    with raises(HarnessClosed):
        await harness.commits()


async def test_a_log_that_is_turned_off_and_on_never_has_a_hole(place: Place) -> None:
    """The settings change at random between commits; a cursor is either served whole or refused."""
    picks, kept = Picks("on and off"), 1_000

    async def check(harness: Any) -> None:
        newest = await harness.wait_for_commit(after=0)
        served = 0
        for after in range(newest, -1, -1):
            try:
                page = await harness.commits(after=after, limit=1_000)
            except CursorTooOld:
                break
            assert [it.number for it in page] == list(range(after + 1, newest + 1))
            served = len(page)
        for earlier in range(newest - served):
            with raises(CursorTooOld):
                await harness.commits(after=earlier)

    def settings() -> Settings:
        return Settings(commit_log=kept)

    for _ in range(6):
        async with opened_at(place(), settings=settings) as (harness, root):
            for _ in range(25):
                if picks.below(6) == 0:
                    kept = picks.of([0, 0, 1, 5, 1_000])
                await root.commit(note())
                if kept == 0:
                    newest = await harness.wait_for_commit(after=0)
                    assert await harness.commits(after=newest) == ()
                    with raises(CursorTooOld):
                        await harness.commits(after=newest - 1)
            await check(harness)


async def test_a_log_that_was_never_kept_refuses_every_earlier_cursor(place: Place) -> None:
    async with opened_at(place(), settings=Settings(commit_log=0)) as (harness, root):
        await root.commit(note())
        with raises(CursorTooOld):
            await harness.commits()
        before = await harness.wait_for_commit(after=0)
    async with opened_at(place()) as (harness, root):
        assert await harness.commits(after=before) == ()
        await root.commit(note())
        (made,) = await harness.commits(after=before)
        assert made.number == before + 1
        with raises(CursorTooOld):
            await harness.commits(after=before - 1)


# --- waiting ---


async def test_wait_for_commit_returns_at_once_when_there_is_one_and_else_when_it_is_stored(
    place: Place,
) -> None:
    woken: list[int] = []
    async with opened_at(place()) as (harness, root), trio.open_nursery() as nursery:
        newest = await harness.wait_for_commit(after=0)
        assert await harness.wait_for_commit(after=newest - 1) == newest

        async def wait(after: int) -> None:
            woken.append(await harness.wait_for_commit(after=after))

        for after in (newest, newest + 1):
            nursery.start_soon(wait, after)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == []
        await root.commit(note())
        await trio.testing.wait_all_tasks_blocked()
        assert woken == [newest + 1]
        await root.commit(note())
        await trio.testing.wait_all_tasks_blocked()
        assert woken == [newest + 1, newest + 2]
        with raises(ContextCancelled):
            await harness.wait_for_commit(after=10**9, context=BACKGROUND.child(timeout=1))


async def test_a_wait_for_a_commit_ends_with_its_harness(place: Place) -> None:
    ended: list[type[Exception]] = []

    async def wait() -> None:
        try:
            await harness.wait_for_commit(after=10**9)
        except HarnessClosed as error:
            ended.append(type(error))

    async with trio.open_nursery() as nursery, opened_at(place()) as (harness, _):
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
    assert ended == [HarnessClosed]


async def test_a_reader_is_told_that_it_learns_of_no_commits(place: Place) -> None:
    async with opened_at(place()) as (_, root):
        await root.commit(note())
    async with open_harness(place(), read_only=True) as harness:
        assert len(await harness.commits()) >= 2
        with raises(ReadOnlySession, match="learns of no commits"):
            await harness.wait_for_commit(after=0)


# --- what it says ---


async def _everything(storage: Storage, *, still: bool) -> list[LoggedCommit]:
    """Commits with every kind of change."""
    async with opened_at(storage, Ticker, still=still) as (harness, root):

        async def make(tx: Tx) -> None:
            task = tx.create_task(Ticker, CountTo(2))
            tx.set_memo(task, "m", {"a": [1, None, "\u2028"]})
            (await tx.doc(KEPT)).text.append("x" * 3_000)
            (await tx.doc(OWN, task)).n = 1
            tx.append_entry(root.id, append_draft("one"))

        await root.commit(make)
        await root.commit(edit(KEPT, lambda it: it.text.append("y")))
        await root.write(append_draft("two"), request_id="r1")
        # One after the other: what runs at once is stored in any order.
        await harness.wait_for_idle()
        await root.fork()
        return await logged(harness)


def append_draft(text: str) -> Any:
    """An entry."""
    return NOTE.new(Note(text))


OWN = attrs.evolve(KEPT, kind="app.own", scope="task", fork="initial")


async def test_every_kind_of_change_is_logged_as_it_was_made_and_the_same_everywhere(
    tmp_path: Any,
) -> None:
    places = (memory_place(), sqlite_place(tmp_path / "agent.sqlite"))
    told = [await _everything(place(), still=True) for place in places]
    assert told[0] == told[1]
    kinds = {type(change) for it in told[0] for change in it.changes}
    assert kinds == {
        AppendEntry,
        ChangeDocument,
        DropMemos,
        PutConversation,
        PutMemo,
        PutSubmission,
        PutTask,
        RetireDocuments,
    }
    again = []
    for place in places:
        async with opened_at(place()) as (harness, _):
            again.append(await logged(harness))
    assert again[0] == again[1]
    assert again[0][: len(told[0])] == told[0]


@tool(replay="safe")
async def look(n: int) -> str:
    """Look something up."""
    return "found " * n


def _script(ctx: ScriptedContext) -> Reply:
    if ctx.answers % 3 < 2:
        return calling(*(call("look", f"c{n}", n=n) for n in range(1, 1 + ctx.answers % 4)))
    return Reply(f"an answer to {ctx.user_text} " * 20, chunk=40, chunk_delay_s=1)


@mark.slow
@mark.parametrize("seed", range(2))
async def test_what_the_log_says_adds_up_to_what_is_stored(place: Place, seed: int) -> None:
    """Runs of the agent, forks, steering and documents of the application, in several openings.

    The records of the log, in order, are what the storage has; the operations on documents lead
    from nothing to the stored values. Nothing but the log is used for the sum.
    """
    picks, log = Picks(seed), list[LoggedCommit]()
    for _ in range(3):
        async with open_agent(place(), ScriptedModel(_script), look) as agent:
            at = agent.root
            for _ in range(6):
                handle = await at.submit(f"go {picks.below(9)}")
                if picks.below(2):
                    await trio.sleep(2)
                    await at.submit("steered", when_busy="steer")
                await at.commit(edit(KEPT, picks.edit(2_000)))
                await handle.wait()
                await at.wait_for_idle()
                await at.commit(edit(BOOK, picks.edit(2_000)))
                if picks.below(3) == 0:
                    at = await at.fork()
            log = await logged(agent.harness)
    stored = read_records(place())
    assert stored.commit == log[-1].number
    fold, documents = Fold(), dict[DocumentKey, Value]()
    for commit in log:
        for change in commit.changes:
            if isinstance(change, ChangeDocument):
                it = change.record
                key = (it.scope, it.scope_id, it.kind, it.key)
                documents[key] = apply_operations(documents.get(key, ""), change.operations)
            else:
                fold._write(change)
    assert _texts(documents) == _texts(stored.documents)
    told = fold.records()
    for name in ("conversations", "entries", "tasks", "submissions"):
        assert getattr(told, name) == getattr(stored, name)


def _texts(documents: Any) -> dict[DocumentKey, str]:
    return {key: encode_json(value) for key, value in sorted(documents.items())}


# --- queues ---


async def _queued(place: Place, count: int, *, answered: bool) -> tuple[int, int]:
    """What is stored while inputs queue behind a slow answer, and while they leave the queue."""
    storage = place()
    model = ScriptedModel(lambda ctx: Reply("a", delay_s=60 * (ctx.answers == 0)))
    async with open_agent(storage, model) as agent:
        handles = [await agent.root.submit("i") for _ in range(count)]
        queued = storage.document_chars + storage.log_chars
        if answered:
            await handles[-1].wait()
        else:
            await agent.root.abort()
        assert (await handles[-1].wait()).status == ("done" if answered else "unanswered")
        return queued, storage.document_chars + storage.log_chars - queued


@mark.slow
async def test_two_thousand_queued_inputs_store_what_they_say_and_no_more(place: Place) -> None:
    """Counted, documents and log together; withdrawn at the end in one commit."""
    queued, withdrawn = await _queued(place, 2_000, answered=False)
    assert queued < 2_000 * 2_000
    assert withdrawn < 2_000 * 800


@mark.slow
async def test_twice_as_many_queued_inputs_store_about_twice_as_much(place: Place) -> None:
    short = await _queued(memory_place(), 40, answered=True)
    long = await _queued(place, 80, answered=True)
    for few, many in zip(short, long, strict=True):
        assert many < 2.3 * few
