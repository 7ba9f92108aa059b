"""Programs that the tests of the SQLite storage run in processes of their own, to kill them.

`python -m tests.storage.children <program> <path> ...`; each line that a program prints is a fact.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from pidurable_actors.errors import StorageError, StorageFenced, StorageInUse
from pidurable_actors.records import (
    ROOT_ID,
    AppendText,
    Batch,
    Change,
    ConversationRecord,
    DocumentRecord,
    DropMemos,
    EntryId,
    EntryRecord,
    Pending,
    RetireDocuments,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
)
from pidurable_actors.storage import Storage, _sqlite_files, _sqlite_schema
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.conformance._scribe import (
    DONE,
    Scribe,
    change_document,
    memo,
    put,
    put_document,
)

ROOT = Path(__file__).parents[2]
TASK = TaskId(2)
FIRST_ENTRY = 10


class Child:
    """One running program; killed at the end of the block if it still runs."""

    def __init__(self, program: str, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.storage.children", program, *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def line(self) -> str:
        """The next line that it prints, empty when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, line: str = "") -> None:
        """Answer it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> list[str]:
        """Kill it, as by `kill -9`, and return the lines that it had still printed."""
        self.process.kill()
        rest, _ = self.process.communicate()
        return rest.split()

    def rest(self) -> list[str]:
        """Wait for its end and return the lines that it printed."""
        rest, _ = self.process.communicate()
        assert self.process.returncode == 0
        return rest.splitlines()


def step(number: int, *, padding: int = 0) -> tuple[Change, ...]:
    """What commit `number` of a stream writes: a task's step, an entry and a memo, all naming it."""
    task = TaskRecord(
        id=TASK,
        conversation_id=ROOT_ID,
        kind="app.stream",
        version=1,
        input="." * padding,
        state=Pending(checkpoint={"phase": "step", "n": number}),
    )
    entry = EntryRecord(
        id=EntryId(FIRST_ENTRY + number), conversation_id=ROOT_ID, kind="app.step", data=number
    )
    return put(task), put(entry), memo(TASK, f"step-{number}", number)


def steps(first: int, how_many: int, *, padding: int = 0) -> list[Batch]:
    """Consecutive commits of a stream."""
    scribe = Scribe(SqliteStorage("unused"), first - 1, FIRST_ENTRY + first)
    return [
        attrs.evolve(
            scribe.draft(*step(first + at, padding=padding), ahead=at),
            next_id=FIRST_ENTRY + first + at + 1,
        )
        for at in range(how_many)
    ]


def check_prefix(storage: Storage, last: int) -> None:
    """All of commits 1 to `last` and nothing else is stored, whichever way one looks."""
    numbers = list(range(1, last + 1))
    entries: list[EntryRecord] = []
    while page := storage.entries(ROOT_ID, before=entries[-1].id if entries else 10**9, limit=1000):
        entries += page
    assert [entry.data for entry in reversed(entries)] == numbers
    task = storage.task(TASK)
    if last == 0:
        assert task is None
        return
    assert task is not None
    assert isinstance(task.state, Pending)
    assert task.state.checkpoint["n"] == last
    assert list(task.memos) == [f"step-{number}" for number in numbers]
    assert [live.id for live in storage.live_tasks(after=0, limit=9)] == [TASK]


def _hold(path: str) -> None:
    """Own the storage; for each line that comes in, commit once and tell how it went."""
    storage = SqliteStorage(path)
    try:
        scribe = Scribe.open(storage)
    except StorageInUse as error:
        print(f"in use by {error.owner}", flush=True)
        return
    print("open", flush=True)
    for _ in sys.stdin:
        try:
            print(f"committed {scribe.commit()}", flush=True)
        except StorageFenced as error:
            print(f"fenced, wrote {error.wrote}", flush=True)
    storage.close()


def _stream(path: str, padding: str) -> None:
    """Commit for ever, in batches of one to seven, and tell the last number of each."""
    storage = SqliteStorage(path)
    last = storage.open(read_only=False).commit
    for round_number in count():
        batches = steps(last + 1, 1 + round_number % 7, padding=int(padding))
        storage.apply(batches)
        last = batches[-1].number
        print(last, flush=True)


def _crash_points(path: str) -> None:
    """Die before each statement of one write, and after it; tell what the next owner finds.

    Each line tells the statement, whether `apply` returned, and how much of each kind is there.
    """
    base = Path(path)
    batches = _write_that_dies(base)
    for at in count(1):
        copy = base.with_name(f"{at}.sqlite")
        shutil.copy(base, copy)
        returned = _survives(partial(_apply_dying_at, copy, batches, at))
        print(json.dumps({"statement": at, "returned": returned, **_facts(copy)}), flush=True)
        if returned:
            return


def _write_that_dies(base: Path) -> list[Batch]:
    """Prepare a storage; then every kind of change, over two commits, with forgetting."""
    prepare = SqliteStorage(base)
    scribe = Scribe.open(prepare)
    task = scribe.task()
    request = scribe.submission(request_id="r")
    scribe.commit(memo(task.id, "kept", 1))
    scribe.next_id = 20
    latest, kept, mine = (
        DocumentRecord(id=11, kind="latest", scope="session", scope_id=0),
        DocumentRecord(id=12, kind="kept", scope="session", scope_id=0, history="rewindable"),
        DocumentRecord(id=13, kind="mine", scope="task", scope_id=task.id),
    )
    more = AppendText((), "+")
    scribe.commit(*(put_document(it, "old") for it in (latest, kept, mine)))
    scribe.commit(*(change_document(it, more) for it in (latest, kept)))
    prepare.close()
    document = DocumentRecord(id=9, kind="d", scope="session", scope_id=0)
    entry = EntryRecord(id=EntryId(8), conversation_id=ROOT_ID, kind="n")
    late = SubmissionRecord(
        id=SubmissionId(7), conversation_id=ROOT_ID, type="input", status="queued", request_id="s"
    )
    first = scribe.draft(
        put(ConversationRecord(id=ROOT_ID)),
        put(entry),
        put_document(document, 1),
        *(change_document(it, more) for it in (latest, kept, mine)),
    )
    second = scribe.draft(
        put(attrs.evolve(task, state=DONE)),
        DropMemos(task.id),
        put(attrs.evolve(request, status="done")),
        put(late),
        put_document(latest, "new"),
        put_document(kept, "new"),
        RetireDocuments(task.id, 1_234),
        ahead=1,
    )
    return [first, attrs.evolve(second, forget_below=3)]


def _facts(path: Path) -> dict[str, object]:
    storage = SqliteStorage(path)
    head = storage.open(read_only=False)
    task = storage.task(TASK)
    assert task is not None
    kept = [storage.document("kept", "session", 0, at_commit=at) for at in range(4, 9)]
    (mine,) = storage.documents("task", TASK, limit=9)
    facts: dict[str, object] = {
        "commit": head.commit,
        "next_id": head.next_id,
        "status": task.state.status,
        "memos": len(task.memos),
        "conversations": len(storage.conversations(after=0, limit=9)),
        "entries": len(storage.entries(ROOT_ID, before=99, limit=9)),
        "queued": len(storage.submissions(after=0, limit=9, status="queued")),
        "late": storage.submission_by_request(ROOT_ID, "s") is not None,
        "live": len(storage.live_tasks(after=0, limit=9)),
        "documents": " ".join(str(it.value) for it in storage.documents("session", 0, limit=9)),
        "history": " ".join("none" if it is None else str(it.value) for it in kept),
        "mine": f"{mine.value} {mine.record.retired_at_ms}",
        "log": " ".join(str(it.number) for it in storage.commits(after=0, limit=9)),
        "changes": sum(len(it.changes) for it in storage.commits(after=5, limit=9)),
    }
    storage.close()
    return facts


def _survives(work: Callable[[], object]) -> bool:
    """Do it in a process of its own; whether that ended by itself."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            # Only an error leads here, and this copy of the program must not go on.
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL)
    return code == 0


def _apply_dying_at(path: Path, batches: list[Batch], at: int) -> None:
    storage = SqliteStorage(path)
    storage.open(read_only=False)
    assert storage._connection is not None
    with _dying_at(storage._connection, at):
        storage.apply(batches)


@contextmanager
def _dying_at(connection: sqlite3.Connection, at: int) -> Iterator[None]:
    """Die before a statement, counted from 1, or after the last one and before anybody is told."""
    statements = count(1)

    def before_statement(_: str) -> None:
        if next(statements) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    connection.set_trace_callback(before_statement)
    yield
    before_statement("")


def _starve(path: str, size: str) -> None:
    """Write until files may not grow further; then allow it again and go on."""
    # Linux sends a signal as well, which would end the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    storage = SqliteStorage(path)
    last = storage.open(read_only=False).commit
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
    try:
        while True:
            storage.apply(steps(last + 1, 1, padding=3_000))
            last += 1
    except StorageError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(json.dumps({"last": last, "kind": type(error).__name__, "wrote": error.wrote}))
    storage.close()


def _checkpoint(path: str) -> None:
    """Hold the lock that SQLite takes while it copies the log: a byte of the shared memory."""
    with Path(f"{path}-shm").open("r+b") as shared:
        fcntl.lockf(shared, fcntl.LOCK_EX, 1, 121)
        print("locked", flush=True)
        sys.stdin.readline()


def _as_nobody(path: str) -> None:
    """Open what another user's directory holds, as an owner and as a reader."""
    SqliteStorage(path)
    if os.geteuid() == 0:
        os.setuid(65_534)
    for read_only in (False, True):
        try:
            SqliteStorage(path).open(read_only=read_only)
        except StorageError as error:
            print(f"{type(error).__name__} {error}")


def _half_migrate(path: str) -> None:
    """Die in the middle of making the tables."""
    place = SqliteStorage(path)._place
    statements = iter(_sqlite_schema.MIGRATIONS[0])
    _sqlite_files._create(place, place.path)
    connection = _sqlite_files.connect(place)
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(4):
        connection.execute(next(statements))
    os.kill(os.getpid(), signal.SIGKILL)


def _migration_points(path: str) -> None:
    """Die before each statement of the migration of an older file, and after the last one.

    Each line tells the statement, whether the take-over returned, and the version that it left.
    The files stay, named by the number of the statement.
    """
    base = Path(path)
    for at in count(1):
        copy = base.with_name(f"{at}.sqlite")
        shutil.copy(base, copy)
        returned = _survives(partial(_take_over_dying_at, copy, at))
        with closing(sqlite3.connect(copy)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        facts = {"statement": at, "returned": returned, "version": version}
        print(json.dumps(facts), flush=True)
        if returned:
            return


def _take_over_dying_at(path: Path, at: int) -> None:
    place = SqliteStorage(path)._place
    connection = _sqlite_files.connect(place)
    with _dying_at(connection, at):
        _sqlite_files._take_over(place, connection)


PROGRAMS: dict[str, Callable[..., None]] = {
    "hold": _hold,
    "stream": _stream,
    "crash-points": _crash_points,
    "starve": _starve,
    "checkpoint": _checkpoint,
    "as-nobody": _as_nobody,
    "half-migrate": _half_migrate,
    "migration-points": _migration_points,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
