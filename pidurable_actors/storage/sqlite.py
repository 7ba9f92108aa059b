"""The SQLite backend: one file, one owner, a write-ahead log.

Owns the connection and the claim on the file. It never schedules, repairs or retries, beyond
waiting a bounded time for a lock that another program (a shell, a backup) holds for a moment.

The invariant: every write transaction first moves the one row of `meta` on, on the condition that
the epoch and the last commit are this owner's; then it writes the batches; all of it or nothing is
stored. So an owner that lost its claim cannot write, however late it wakes.

Reads fetch all their rows at once: no cursor, and so no read transaction, outlives a call.

Size: the whole protocol, a method for each look-up; statements, files, errors and the log have
modules of their own.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, final

from pidurable_actors._json import JSON, encode_json
from pidurable_actors.errors import StorageCorrupt, StorageFenced, StorageInUse
from pidurable_actors.records import (
    Batch,
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    EntryId,
    EntryRecord,
    LoggedCommit,
    ScopeKind,
    StoredDocument,
    SubmissionId,
    SubmissionRecord,
    SubmissionStatus,
    TaskId,
    TaskRecord,
    TaskStatus,
)
from pidurable_actors.records.codec import (
    decode_conversation,
    decode_entry,
    decode_submission,
    decode_task,
)
from pidurable_actors.storage import _sqlite_queries as queries
from pidurable_actors.storage._file_lock import FileLock
from pidurable_actors.storage._protocol import Head, LiveTask
from pidurable_actors.storage._rules import (
    Base,
    Delta,
    check_limit,
    check_sequence,
    not_open,
    stored_document,
    visible_entries,
)
from pidurable_actors.storage._sqlite_checkpoint import Checkpointer
from pidurable_actors.storage._sqlite_errors import driver_errors, translate
from pidurable_actors.storage._sqlite_files import (
    Durability,
    Place,
    connect,
    open_owner,
    open_reader,
    read_head,
    roll_back,
)
from pidurable_actors.storage._sqlite_rows import (
    decode_memo,
    delta_of,
    document_base,
    id_and_text,
    live_task,
    logged_commit,
    number,
)
from pidurable_actors.storage._sqlite_writes import PAGE_BYTES, log_batches, write_batch

__all__ = ["Durability", "SqliteStorage"]

_R = TypeVar("_R")
_Parameters = tuple[object, ...] | Mapping[str, object]

_ADVANCE: Final = """
    UPDATE meta SET commit_number = ?, commit_at_ms = ?, next_id = ?
    WHERE epoch = ? AND commit_number = ? AND next_id <= ?
"""
_ID_MAX: Final = 2**63 - 1


@final
class SqliteStorage:
    """A storage in one SQLite file, which operators may query while it is in use.

    Args:
        path: the file, made with mode 0600 when it does not exist; its directory must exist. Two
            log files and a lock file are kept beside it.
        durability: `process`: what was stored outlives the process. `power`: it also outlives a
            power cut, at the price of a disk flush for each write.
        busy_timeout_s: how long a lock of another program is waited for before the call fails.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: Durability = "process",
        *,
        busy_timeout_s: float = 5.0,
    ) -> None:
        # The working directory may change between now and the open.
        self._place: Final = Place(
            path=Path(path).absolute(),
            name=os.fspath(path),
            durability=durability,
            busy_timeout_s=busy_timeout_s,
        )
        self._lock: FileLock | None = None
        self._connection: sqlite3.Connection | None = None
        self._checkpointer: Checkpointer | None = None
        self._epoch = 0
        self._patient = True

    @property
    def name(self) -> str:
        """The path as it was given."""
        return self._place.name

    @property
    def blocking(self) -> bool:
        """True: every call may wait for the disk."""
        return True

    def open(self, *, read_only: bool) -> Head:
        """Take the file, or look at it beside its owner; see `Storage.open`.

        Raises:
            StorageInUse: this object is open, or another owner has the file.
            StorageUnusable: the path cannot hold a storage, or holds something else.
            StorageTooNew: its format is newer than this code.
            StorageCorrupt: it contradicts itself.
            StorageError: the disk failed, or another program held a lock for too long.
        """
        if self._connection is not None:
            raise StorageInUse(self.name, "this very object")
        self._patient = True
        if read_only:
            self._connection, head = open_reader(self._place)
        else:
            self._lock, self._connection, head = open_owner(self._place)
            self._checkpointer = Checkpointer(partial(connect, self._place))
            self._epoch = head.epoch
        return head

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store all batches in one transaction; see `Storage.apply`.

        Raises:
            StorageFenced: another owner took the file over; nothing was written.
            StorageCorrupt: the batches do not follow or contradict what is stored.
            StorageError: the disk failed; `wrote` is None only when the commit itself failed.
        """
        self._store(batches, patient=True)

    def apply_promptly(self, batches: Sequence[Batch]) -> bool:
        """Store all batches if that only writes to the operating system's memory.

        Returns:
            Whether they are stored. False, with nothing written, when the write must reach the
            disk (`power`), when the log is due to be copied, or while another program holds a lock.

        Raises:
            StorageError: as `apply`.
        """
        if self._place.durability != "process" or self._checkpointer is None:
            return False
        if self._checkpointer.wants_write:
            return False
        return self._store(batches, patient=False)

    def _store(self, batches: Sequence[Batch], *, patient: bool) -> bool:
        connection, checkpointer = self._connection, self._checkpointer
        if connection is None or checkpointer is None:
            raise not_open(self.name)
        if not batches:
            return True
        first = batches[0]
        check_sequence(self.name, after=first.number - 1, next_id=first.next_id, batches=batches)

        committing = False
        try:
            checkpointer.before_write(connection)
            if not self._begin(connection, patient=patient):
                return False
            size = self._advance(connection, batches)
            for batch in batches:
                size += write_batch(connection, batch)
            size += log_batches(connection, batches)
            committing = True
            connection.execute("COMMIT")
        except driver_errors as error:
            # A commit that failed half-way may yet be found in the log by the next open.
            certain = roll_back(connection) and not committing
            raise translate(error, self.name, wrote=False if certain else None) from error
        except BaseException:  # whatever it was, the transaction must not stay open
            roll_back(connection)
            raise
        checkpointer.after_write(size)
        return True

    def _begin(self, connection: sqlite3.Connection, *, patient: bool) -> bool:
        """Begin to write; False when another program has a lock and nobody wants to wait."""
        self._be_patient(connection, patient=patient)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if patient or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def _be_patient(self, connection: sqlite3.Connection, *, patient: bool) -> None:
        """Wait for the locks of other programs, or not at all."""
        if patient != self._patient:
            wait_ms = round(self._place.busy_timeout_s * 1000) if patient else 0
            connection.execute(f"PRAGMA busy_timeout = {wait_ms}")
            self._patient = patient

    def close(self) -> None:
        """Fold the log into the file and give up the claim. Closing again does nothing."""
        connection, self._connection = self._connection, None
        lock, self._lock = self._lock, None
        checkpointer, self._checkpointer = self._checkpointer, None
        try:
            if checkpointer is not None:
                checkpointer.close()
            if connection is not None:
                connection.close()
        finally:
            if lock is not None:
                lock.release()

    def conversation(self, conversation_id: ConversationId) -> ConversationRecord | None:
        """One conversation."""
        return self._one(decode_conversation, queries.CONVERSATION, conversation_id)

    def conversations(
        self, *, after: int, limit: int, owner: TaskId | None = None
    ) -> list[ConversationRecord]:
        """Conversations above an id, ascending; see `Storage.conversations`."""
        check_limit(limit)
        if owner is None:
            return self._all(decode_conversation, queries.CONVERSATIONS, (after, limit))
        query = queries.CONVERSATIONS_OF_OWNER
        return self._all(decode_conversation, query, (owner, after, limit))

    def entry(self, entry_id: EntryId) -> EntryRecord | None:
        """One entry."""
        return self._one(decode_entry, queries.ENTRY, entry_id)

    def entries(
        self,
        conversation_id: ConversationId,
        *,
        before: int,
        limit: int,
        kind: str | None = None,
    ) -> list[EntryRecord]:
        """What the conversation sees below an id, newest first; see `Storage.entries`."""
        check_limit(limit)

        def own(at: ConversationId, below: int, count: int) -> list[EntryRecord]:
            if kind is None:
                return self._all(decode_entry, queries.ENTRIES, (at, below, count))
            return self._all(decode_entry, queries.ENTRIES_OF_KIND, (at, below, kind, count))

        return visible_entries(
            conversation_id,
            before=min(before, _ID_MAX),
            limit=limit,
            own=own,
            conversation=self.conversation,
        )

    def task(self, task_id: TaskId) -> TaskRecord | None:
        """One task with its memos."""
        found = self._with_memos(queries.TASK, {"id": task_id})
        return found[0] if found else None

    def tasks(
        self,
        *,
        after: int,
        limit: int,
        conversation_id: ConversationId | None = None,
        kind: str | None = None,
        status: TaskStatus | None = None,
        abort_requested: bool | None = None,
    ) -> list[TaskRecord]:
        """Tasks above an id that match all that is given, ascending; see `Storage.tasks`."""
        check_limit(limit)
        if conversation_id is not None:
            query = queries.TASKS_IN_CONVERSATION
        elif status not in (None, "terminal"):
            query = queries.TASKS_LIVE
        else:
            query = queries.TASKS
        filters = {
            "after": after,
            "limit": limit,
            "conversation_id": conversation_id,
            "kind": kind,
            "status": status,
            "abort_requested": abort_requested,
        }
        return self._with_memos(query, filters)

    def live_tasks(self, *, after: int, limit: int) -> list[LiveTask]:
        """Index rows of tasks that are not terminal; see `Storage.live_tasks`."""
        check_limit(limit)
        return self._all(live_task, queries.LIVE_TASKS, (after, limit))

    def submission(self, submission_id: SubmissionId) -> SubmissionRecord | None:
        """One submission."""
        return self._one(decode_submission, queries.SUBMISSION, submission_id)

    def submission_by_request(
        self, conversation_id: ConversationId, request_id: str
    ) -> SubmissionRecord | None:
        """The submission that used `request_id` in this conversation."""
        query = queries.SUBMISSION_BY_REQUEST
        return self._one(decode_submission, query, conversation_id, request_id)

    def submissions(
        self,
        *,
        after: int,
        limit: int,
        conversation_id: ConversationId | None = None,
        status: SubmissionStatus | None = None,
    ) -> list[SubmissionRecord]:
        """Submissions above an id that match all that is given; see `Storage.submissions`."""
        check_limit(limit)
        if conversation_id is not None:
            query = queries.SUBMISSIONS_IN_CONVERSATION
        elif status in ("queued", "placed"):
            query = queries.SUBMISSIONS_UNSETTLED
        else:
            query = queries.SUBMISSIONS
        filters = {
            "after": after,
            "limit": limit,
            "conversation_id": conversation_id,
            "status": status,
        }
        return self._all(decode_submission, query, filters)

    def document(
        self,
        kind: str,
        scope: ScopeKind,
        scope_id: int,
        key: str = "",
        *,
        at_commit: int | None = None,
    ) -> StoredDocument | None:
        """One document, retired or not, now or after a commit; see `Storage.document`."""
        with self._one_view():
            row = self._one(document_base, queries.DOCUMENT, scope, scope_id, kind, key)
            if row is None:
                return None
            record, base = row
            if at_commit is None:
                return self._stored_document(record, base)
            at_commit = min(at_commit, _ID_MAX)
            if record.history == "latest":
                found = self._stored_document(record, base)
                return found if found.commit <= at_commit else None
            earlier: Base | None = base
            if base.commit > at_commit:
                earlier = self._one(Base, queries.DOCUMENT_BASE_UNTIL, record.id, at_commit)
            if earlier is None:
                return None
            return self._stored_document(record, earlier, until=at_commit)

    def documents(
        self, scope: ScopeKind, scope_id: int, *, after: tuple[str, str] | None = None, limit: int
    ) -> list[StoredDocument]:
        """Documents of one scope behind a name; see `Storage.documents`."""
        check_limit(limit)
        query = queries.DOCUMENTS if after is None else queries.DOCUMENTS_BEHIND
        with self._one_view():
            rows = self._all(document_base, query, (scope, scope_id, *(after or ()), limit))
            tails: defaultdict[int, list[Delta]] = defaultdict(list)
            ids = encode_json([record.id for record, _ in rows])
            for document_id, delta in self._all(delta_of, queries.DOCUMENTS_DELTAS, (ids,)):
                tails[document_id].append(delta)
            return [self._added_up(record, base, tails[record.id]) for record, base in rows]

    def head(self) -> Head:
        """Where the storage stands."""
        connection = self._open_connection()
        try:
            self._be_patient(connection, patient=True)
            return read_head(self._place, connection)
        except driver_errors as error:
            raise translate(error, self.name) from error

    def entry_commit(self, entry_id: EntryId) -> int | None:
        """The number of the commit that appended an entry."""
        return self._one(number, queries.ENTRY_COMMIT, entry_id)

    def commits(
        self, *, after: int, limit: int, conversation_id: ConversationId | None = None
    ) -> list[LoggedCommit]:
        """Logged commits above a number, ascending; see `Storage.commits`."""
        check_limit(limit)
        if conversation_id is None:
            return self._all(logged_commit, queries.COMMITS, (after, limit))
        query = queries.COMMITS_OF_CONVERSATION
        return self._all(logged_commit, query, (after, conversation_id, limit))

    def oldest_commit(self) -> int | None:
        """The smallest number in the log, None when the log is empty."""
        return self._one(number, queries.OLDEST_COMMIT)

    def _advance(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> int:
        """Move `meta` on, which also proves that this owner is the one and nothing is missing.

        Returns:
            What that adds to the log, in bytes.
        """
        first, last = batches[0], batches[-1]
        row = (
            last.number,
            last.at_ms,
            last.next_id,
            self._epoch,
            first.number - 1,
            first.next_id,
        )
        if connection.execute(_ADVANCE, row).rowcount == 1:
            return PAGE_BYTES
        stored: tuple[int, int, int] | None = connection.execute(queries.HEAD).fetchone()
        if stored is None:
            raise StorageCorrupt(f"{self.name}: the table meta has lost its row.", wrote=False)
        commit, next_id, epoch = stored
        if epoch != self._epoch:
            raise StorageFenced(self.name)
        raise StorageCorrupt(
            f"{self.name}: commit {first.number} with the first free id {first.next_id} does not "
            f"follow commit {commit} with {next_id}",
            wrote=False,
        )

    def _with_memos(self, query: str, parameters: _Parameters) -> list[TaskRecord]:
        memos: defaultdict[int, dict[str, JSON]] = defaultdict(dict)
        with self._one_view():
            rows = self._all(id_and_text, query, parameters)
            if not rows:
                return []
            ids = (encode_json([task_id for task_id, _ in rows]),)
            for task_id, name, value in self._all(decode_memo, queries.MEMOS, ids):
                memos[task_id][name] = value
        try:
            return [decode_task(text, memos.get(task_id, {})) for task_id, text in rows]
        except StorageCorrupt as error:
            raise self._unreadable(error) from error

    def _stored_document(
        self, record: DocumentRecord, base: Base, *, until: int = _ID_MAX
    ) -> StoredDocument:
        span = (record.id, base.commit, until)
        return self._added_up(record, base, self._all(Delta, queries.DOCUMENT_DELTAS, span))

    def _added_up(self, record: DocumentRecord, base: Base, tail: list[Delta]) -> StoredDocument:
        try:
            return stored_document(record, base, tail)
        except StorageCorrupt as error:
            raise self._unreadable(error) from error

    def _one(self, build: Callable[..., _R], query: str, *parameters: object) -> _R | None:
        found = self._all(build, query, parameters)
        return found[0] if found else None

    def _all(self, build: Callable[..., _R], query: str, parameters: _Parameters) -> list[_R]:
        """Run a read and build a value of each row's columns."""
        connection = self._open_connection()
        try:
            self._be_patient(connection, patient=True)
            rows = connection.execute(query, parameters).fetchall()
        except (UnicodeEncodeError, OverflowError):
            # A name or an id that cannot be stored is not there.
            return []
        except driver_errors as error:
            raise translate(error, self.name) from error
        try:
            return [build(*row) for row in rows]
        except (StorageCorrupt, ValueError) as error:
            raise self._unreadable(error) from error

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise not_open(self.name)
        return self._connection

    @contextmanager
    def _one_view(self) -> Iterator[None]:
        """All statements of a call see one state, whatever an owner beside it writes meanwhile."""
        connection = self._open_connection()
        if self._lock is not None:
            # Nobody but the owner itself writes.
            yield
            return
        connection.execute("BEGIN")
        try:
            yield
        finally:
            roll_back(connection)

    def _unreadable(self, error: Exception) -> StorageCorrupt:
        return StorageCorrupt(f"{self.name}: {error}")
