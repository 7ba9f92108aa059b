"""The SQLite file as operators see it, and what reads and writes of it cost."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest

from pidurable_actors.records import (
    ROOT_ID,
    AppendText,
    Change,
    ConversationId,
    ConversationRecord,
    EntryId,
    ForkPoint,
    HistoryPolicy,
    PutTask,
    ReplaceRoot,
    RetireDocuments,
    Sleeping,
    TaskId,
    TaskRecord,
    Waiting,
)
from pidurable_actors.records.codec import encode_record, encode_task
from pidurable_actors.storage import _sqlite_queries as queries
from pidurable_actors.storage._sqlite_checkpoint import Checkpointer
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.conformance._scribe import (
    DONE,
    RUNNING,
    Scribe,
    change_document,
    memo,
    put,
    put_document,
)
from tests.storage.children import steps

# As the articles print them.
COUNTER = """SELECT id, status, record ->> '$.state.checkpoint.n' AS n,
    record ->> '$.memos' AS memos, record ->> '$.restarts' AS restarts FROM tasks;"""
AGENT = """SELECT id, kind, status, record ->> '$.restarts' AS restarts,
    record ->> '$.state.checkpoint.phase' AS phase,
    record ->> '$.state.checkpoint.replay' AS replay FROM tasks ORDER BY id;"""

TASK_SCANS = (queries.TASKS, queries.TASKS_LIVE, queries.TASKS_IN_CONVERSATION)
TASK_FILTERS = {
    "after": 0,
    "limit": 9,
    "conversation_id": 1,
    "kind": None,
    "status": "running",
    "abort_requested": None,
}
SUBMISSION_SCANS = (
    queries.SUBMISSIONS,
    queries.SUBMISSIONS_UNSETTLED,
    queries.SUBMISSIONS_IN_CONVERSATION,
)
SUBMISSION_FILTERS = {"after": 0, "limit": 9, "conversation_id": 1, "status": "queued"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sqlite"


@pytest.fixture
def scribe(path: Path) -> Iterator[Scribe]:
    storage = SqliteStorage(path)
    with closing(storage):
        scribe = Scribe.open(storage)
        # Tests that count pages make their own checkpoints.
        storage._checkpointer = Checkpointer(partial(sqlite3.connect, path), log_bytes=10**12)
        yield scribe


def test_the_queries_of_the_articles_answer_while_the_owner_works(
    path: Path, scribe: Scribe
) -> None:
    state = attrs.evolve(RUNNING, checkpoint={"phase": "count", "n": 3, "replay": "unsafe"})
    counter = scribe.task(kind="app.counter", state=state)
    scribe.commit(memo(counter.id, "printed-1", True), memo(counter.id, "printed-2", True))
    restarted = attrs.evolve(scribe.task(kind="pi.tool", state=DONE), restarts=2)
    scribe.commit(put(restarted))
    with closing(scribe.storage):
        assert _ask(path, COUNTER) == [
            f'{counter.id}|running|3|{{"printed-1":true,"printed-2":true}}|',
            f"{restarted.id}|terminal|||2",
        ]
        assert _ask(path, AGENT) == [
            f"{counter.id}|app.counter|running||count|unsafe",
            f"{restarted.id}|pi.tool|terminal|2||",
        ]
    # And when nobody has it open.
    assert len(_ask(path, COUNTER)) == 2


def test_the_view_shows_memos_as_they_were_recorded(path: Path, scribe: Scribe) -> None:
    task = scribe.task()
    scribe.commit(memo(task.id, "z", {"b": [1, -0.0, 2**63 - 1], "a": "\x00\u2028"}))
    scribe.commit(memo(task.id, "a", None))
    with closing(scribe.storage), closing(sqlite3.connect(path)) as shell:
        (text,) = shell.execute("SELECT record ->> '$.memos' FROM tasks").fetchone()
        assert text == ('{"z":{"b":[1,-0.0,9223372036854775807],"a":"\\u0000\u2028"},"a":null}')
        columns = [row[1] for row in shell.execute("PRAGMA table_info(tasks)")]
    assert columns == [
        "id",
        "conversation_id",
        "kind",
        "version",
        "status",
        "owner",
        "background",
        "abort_requested",
        "until_ms",
        "record",
    ]


def test_the_tables_of_documents_and_commits_can_be_queried(path: Path, scribe: Scribe) -> None:
    extra = {"later": [1, 1.50, -0.0, "\x00\u2028"]}
    record = scribe.new_document(scope="task", scope_id=5, key="a", created_at_ms=7, extra=extra)
    scribe.commit(put_document(record, {"n": 1}))
    scribe.commit(change_document(record, ReplaceRoot(2)), put(scribe.task()))
    scribe.commit(RetireDocuments(TaskId(5), 1_234))
    with closing(sqlite3.connect(path)) as shell:
        (text,) = shell.execute("SELECT record FROM documents").fetchone()
        # Written by SQLite, and yet the text that a new record would have.
        assert text == encode_record(attrs.evolve(record, retired_at_ms=1_234))
        assert shell.execute(
            """
            SELECT number, at_ms - 1700000000000, conversations,
                value ->> '$.change', value ->> '$.record.id', value ->> '$.operations[0].op'
            FROM commits, json_each(changes) ORDER BY number
            """
        ).fetchall() == [
            (1, 0, "", "document", 2, "replace"),
            (2, 1, ",1,", "task", 3, None),
            (3, 2, ",1,", "document", 2, "replace"),
            (3, 2, ",1,", "task", 3, None),
            (4, 3, "", "retire_documents", None, None),
        ]


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        (queries.CONVERSATION, (1,)),
        (queries.CONVERSATIONS, (1, 9)),
        (queries.CONVERSATIONS_OF_OWNER, (5, 1, 9)),
        (queries.ENTRY, (1,)),
        (queries.ENTRIES, (1, 99, 9)),
        (queries.ENTRIES_OF_KIND, (1, 99, "k", 9)),
        (queries.LIVE_TASKS, (0, 9)),
        (queries.SUBMISSION, (1,)),
        (queries.SUBMISSION_BY_REQUEST, (1, "r")),
        (queries.DOCUMENT, ("session", 0, "k", "")),
        (queries.DOCUMENTS, ("session", 0, 9)),
        (queries.DOCUMENTS_BEHIND, ("session", 0, "k", "", 9)),
        (queries.DOCUMENT_DELTAS, (1, 0, 9)),
        (queries.DOCUMENT_BASE_UNTIL, (1, 9)),
        (queries.COMMITS, (0, 9)),
        (queries.COMMITS_OF_CONVERSATION, (0, 1, 9)),
        (queries.OLDEST_COMMIT, ()),
        (queries.ENTRY_COMMIT, (1,)),
        (queries.TASK, {"id": 1}),
        *((query, TASK_FILTERS) for query in TASK_SCANS),
        *((query, SUBMISSION_FILTERS) for query in SUBMISSION_SCANS),
    ],
)
def test_every_read_starts_at_its_place_and_sorts_nothing(
    scribe: Scribe, query: str, parameters: tuple[object, ...] | dict[str, object]
) -> None:
    storage = scribe.storage
    assert isinstance(storage, SqliteStorage)
    with closing(storage):
        assert storage._connection is not None
        plan = storage._connection.execute(f"EXPLAIN QUERY PLAN {query}", parameters).fetchall()
    for *_, line in plan:
        # A subquery has a line of its own, and its look-up the next.
        assert line.startswith(("SEARCH", "CORRELATED SCALAR SUBQUERY"))
        assert "TEMP B-TREE" not in line


def test_a_step_of_a_task_writes_two_pages_however_much_is_stored(scribe: Scribe) -> None:
    """One page of the tasks and the one of meta; no index is touched while a task lives."""
    tasks = [scribe.task(input="." * 500) for _ in range(100)]
    states = (RUNNING, Sleeping(checkpoint={}, until_ms=5), Waiting(checkpoint={}))
    for at, task in enumerate(tasks):
        step = put(attrs.evolve(task, state=states[at % 3], input="!" * 500))
        assert _pages_written(scribe, step, logged=False) == 2


@pytest.mark.slow
def test_the_log_adds_a_page_to_a_commit_and_forgetting_in_turns_next_to_nothing(
    scribe: Scribe,
) -> None:
    """Past the first, a page of the log holds several commits; each new one costs three pages."""
    task = scribe.task()
    # Until the log has its full length, so that pages are freed and taken again.
    for _ in range(300):
        scribe.commit(put(task))
    written = 0
    for at in range(300):
        step = put(attrs.evolve(task, input=f"{at:0500}"))
        forget = scribe.number - 200 if at % 50 == 0 else 0
        written += _pages_written(scribe, step, forget_below=forget)
    assert scribe.storage.oldest_commit() == 351
    assert written <= 300 * (2 + 1 + 3 / 4)


@pytest.mark.parametrize("history", ["latest", "rewindable"])
def test_a_change_of_a_document_writes_two_pages_however_long_it_is(
    scribe: Scribe, history: HistoryPolicy
) -> None:
    record = scribe.new_document(history=history)
    scribe.commit(put_document(record, "." * 1_000_000))
    written = [
        _pages_written(scribe, change_document(record, AppendText((), f"{at:0100}")), logged=False)
        for at in range(100)
    ]
    assert written[0] == 2
    # A page that fills is divided, which writes its neighbours as well.
    assert sum(written) <= 2.5 * 100


def test_the_estimate_of_what_a_write_adds_to_the_log_is_about_right(scribe: Scribe) -> None:
    latest, kept = scribe.new_document(), scribe.new_document("app.kept", history="rewindable")
    scribe.commit(put_document(latest, "."), put_document(kept, "." * 50_000))
    storage = _sqlite(scribe)
    for changes in (
        (put(scribe.task()),),
        (change_document(latest, AppendText((), "." * 30_000)),),
        (put_document(kept, "." * 50_000),),
        (put_document(latest, "." * 9_000), change_document(kept, AppendText((), "."))),
    ):
        _log_frames(scribe)
        assert storage._checkpointer is not None
        before = storage._checkpointer._since
        scribe.commit(*changes)
        estimate = storage._checkpointer._since - before
        actual = _log_frames(scribe) * 4096
        assert actual / 2 <= estimate <= actual * 3


def test_what_a_round_writes_does_not_grow_with_the_conversation(scribe: Scribe) -> None:
    """C32: a step, an entry and a memo cost the same after a thousand of them as after ten."""
    frames = []
    for start in (1, 11, 500, 990):
        while scribe.number < start - 1:
            (batch,) = steps(scribe.number + 1, 1)
            scribe.storage.apply([batch])
            scribe.number += 1
        total = 0
        for _ in range(10):
            _log_frames(scribe)
            (batch,) = steps(scribe.number + 1, 1)
            scribe.storage.apply([batch])
            scribe.number += 1
            total += _log_frames(scribe)
        frames.append(total)
    scribe.storage.close()
    assert max(frames) <= min(frames) + 10


def test_an_earlier_value_is_read_from_the_base_before_it_however_long_the_history(
    scribe: Scribe,
) -> None:
    """Count the steps of SQLite's virtual machine for the same question, asked of longer pasts."""
    record = scribe.new_document(history="rewindable")
    storage = _sqlite(scribe)
    costs = []
    for rounds in (10, 200):
        for _ in range(rounds):
            scribe.commit(put_document(record, 0))
            for at in range(5):
                scribe.commit(change_document(record, ReplaceRoot(at)))
        for at_commit in (40, scribe.number - 40, scribe.number):
            with _counting(storage) as work:
                found = storage.document(record.kind, "session", 0, at_commit=at_commit)
            assert found is not None
            assert found.value == (at_commit - 2) % 6
            costs.append(len(work))
    assert max(costs) <= min(costs) * 2


def test_live_tasks_are_told_without_their_texts(scribe: Scribe) -> None:
    scribe.task()
    storage = scribe.storage
    assert isinstance(storage, SqliteStorage)
    with closing(storage):
        assert storage._connection is not None
        storage._connection.execute("UPDATE task_records SET record = 'unreadable'")
        assert len(storage.live_tasks(after=0, limit=9)) == 1


def test_a_page_of_a_long_line_of_forks_reads_a_page(scribe: Scribe) -> None:
    """C32's sibling for reading: count the virtual machine's steps, not the time."""
    storage = scribe.storage
    assert isinstance(storage, SqliteStorage)
    scribe.commit(put(ConversationRecord(id=ROOT_ID)))
    costs = []
    for length in (50, 2_000):
        entries = [scribe.entry() for _ in range(length)]
        fork = ConversationRecord(
            id=ConversationId(scribe.new_id()),
            parent=ForkPoint(conversation_id=ROOT_ID, entry_id=entries[-2].id),
        )
        scribe.commit(put(fork))
        with _counting(storage) as work:
            assert len(storage.entries(fork.id, before=10**9, limit=20)) == 20
        costs.append(len(work))
    storage.close()
    assert costs[1] <= costs[0] * 1.2


def test_live_tasks_are_found_among_many_that_ended(scribe: Scribe) -> None:
    storage = scribe.storage
    assert isinstance(storage, SqliteStorage)
    costs = []
    for ended in (5, 500):
        for _ in range(ended):
            scribe.task(state=DONE)
            scribe.submission(status="done")
        scribe.task()
        scribe.submission()
        with _counting(storage) as work:
            assert storage.tasks(after=0, limit=9, status="running")
            assert storage.submissions(after=0, limit=9, status="queued")
            assert storage.live_tasks(after=0, limit=9)
        costs.append(len(work))
    storage.close()
    assert costs[1] <= costs[0] * 1.5


@pytest.mark.slow
def test_a_hundred_thousand_live_tasks_are_found_page_by_page(scribe: Scribe) -> None:
    storage = scribe.storage
    first = scribe.next_id
    scribe.next_id += 100_000
    record = TaskRecord(
        id=TaskId(1), conversation_id=ROOT_ID, kind="k", version=1, input="." * 300, state=RUNNING
    )
    text = encode_task(record)
    with closing(storage):
        for start in range(0, 100_000, 10_000):
            changes = [
                PutTask(attrs.evolve(record, id=TaskId(first + start + at)), text)
                for at in range(10_000)
            ]
            scribe.commit(*changes)
        found, after = 0, 0
        while page := storage.live_tasks(after=after, limit=1_000):
            found += len(page)
            after = page[-1].id
        assert found == 100_000
        assert storage.entry(EntryId(after)) is None


@contextmanager
def _counting(storage: SqliteStorage) -> Iterator[list[None]]:
    """One item for each step that SQLite's virtual machine makes meanwhile."""
    assert storage._connection is not None
    steps: list[None] = []
    storage._connection.set_progress_handler(lambda: steps.append(None), 1)
    yield steps
    storage._connection.set_progress_handler(None, 1)


def _sqlite(scribe: Scribe) -> SqliteStorage:
    assert isinstance(scribe.storage, SqliteStorage)
    return scribe.storage


def _pages_written(
    scribe: Scribe, change: Change, *, logged: bool = True, forget_below: int = 0
) -> int:
    """Commit a change and count the pages that it adds to SQLite's log."""
    _log_frames(scribe)
    draft = scribe.draft(change)
    scribe.storage.apply([attrs.evolve(draft, logged=logged, forget_below=forget_below)])
    scribe.number += 1
    return _log_frames(scribe)


def _log_frames(scribe: Scribe) -> int:
    """Pages in the log since the last call, which is then empty."""
    storage = _sqlite(scribe)
    assert storage._connection is not None
    before = storage._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    storage._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    return int(before[1])


def _ask(path: Path, query: str) -> list[str]:
    """What the `sqlite3` shell prints, or the driver when there is no shell."""
    shell = shutil.which("sqlite3")
    if shell is not None:
        run = subprocess.run([shell, path, query], capture_output=True, text=True, check=True)
        return run.stdout.splitlines()
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(query).fetchall()
    return ["|".join("" if value is None else str(value) for value in row) for row in rows]
