"""Promises about reading: look-ups, filters, pages, and what a fork sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import attrs
import pytest

from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import StorageRequestError
from pidurable_actors.records import (
    ROOT_ID,
    CompletedOutcome,
    Completing,
    ConversationId,
    ConversationRecord,
    DocumentRecord,
    EntryId,
    EntryRecord,
    ForkPoint,
    Owner,
    Parked,
    Pending,
    ScopeKind,
    Sleeping,
    SubmissionId,
    SubmissionRecord,
    SubmissionStatus,
    TaskId,
    TaskRecord,
    TaskState,
    TaskStatus,
    Waiting,
)
from pidurable_actors.storage import LiveTask, Storage
from pidurable_actors.testing.conformance._scribe import (
    DONE,
    RUNNING,
    Scribe,
    memo,
    put,
    put_document,
)
from pidurable_actors.testing.conformance._storage_hooks import StorageHooks

__all__ = ["ScanPromises"]

_R = TypeVar("_R")
_STEP = {"phase": "work"}
_TASK_FILTERS: Final[tuple[TaskStatus | None, ...]] = (None, "pending", "sleeping", "terminal")
_SUBMISSION_FILTERS: Final[tuple[SubmissionStatus | None, ...]] = (
    None,
    "queued",
    "placed",
    "done",
    "unanswered",
)
_STATES: list[TaskState] = [
    Pending(checkpoint=dict(_STEP)),
    RUNNING,
    Waiting(checkpoint=dict(_STEP), on=(TaskId(3),)),
    Sleeping(checkpoint=dict(_STEP), until_ms=1_800_000_000_000),
    Parked(checkpoint=dict(_STEP)),
    Completing(outcome=CompletedOutcome()),
    DONE,
]
_FAR = 10_000_000


class ScanPromises(StorageHooks):
    """Every look-up and every scan."""

    def test_an_unknown_id_is_none(self, scribe: Scribe) -> None:
        storage = scribe.storage
        scribe.entry()
        assert storage.conversation(ConversationId(99)) is None
        assert storage.entry(EntryId(99)) is None
        assert storage.task(TaskId(99)) is None
        assert storage.submission(SubmissionId(99)) is None
        assert storage.submission_by_request(ROOT_ID, "r") is None
        assert storage.document("d", "session", 0) is None
        assert storage.documents("conversation", 99, limit=9) == []
        assert storage.entries(ConversationId(99), before=_FAR, limit=5) == []

    def test_an_id_of_another_kind_of_record_is_none(self, scribe: Scribe) -> None:
        entry, task = scribe.entry(), scribe.task()
        assert scribe.storage.task(TaskId(entry.id)) is None
        assert scribe.storage.entry(EntryId(task.id)) is None

    @pytest.mark.parametrize("limit", [0, -1, LIMITS.page + 1])
    def test_a_page_of_no_or_too_many_rows_is_refused(self, scribe: Scribe, limit: int) -> None:
        storage = scribe.storage
        scans: list[Callable[[], object]] = [
            lambda: storage.conversations(after=0, limit=limit),
            lambda: storage.entries(ROOT_ID, before=_FAR, limit=limit),
            lambda: storage.tasks(after=0, limit=limit),
            lambda: storage.live_tasks(after=0, limit=limit),
            lambda: storage.submissions(after=0, limit=limit),
            lambda: storage.documents("session", 0, limit=limit),
            lambda: storage.commits(after=0, limit=limit),
        ]
        for scan in scans:
            with pytest.raises(StorageRequestError):
                scan()
        assert storage.tasks(after=0, limit=LIMITS.page) == []

    def test_conversations_are_scanned_by_id_and_owner(self, scribe: Scribe) -> None:
        owners = [None, TaskId(50), TaskId(51), None, TaskId(50), TaskId(50)]
        made = [
            ConversationRecord(
                id=ConversationId(scribe.new_id()),
                owner=None if owner is None else Owner(conversation_id=ROOT_ID, task_id=owner),
                created_at_ms=at,
            )
            for at, owner in enumerate(owners)
        ]
        # Stored in another order than that of their ids.
        scribe.commit(*(put(record) for record in reversed(made)))
        storage = scribe.storage
        assert storage.conversation(made[1].id) == made[1]
        assert _pages(lambda after: storage.conversations(after=after, limit=4)) == made
        assert _pages(
            lambda after: storage.conversations(after=after, limit=2, owner=TaskId(50))
        ) == [made[1], made[4], made[5]]
        assert storage.conversations(after=0, limit=9, owner=TaskId(52)) == []

    def test_entries_come_newest_first_by_page_and_kind(self, scribe: Scribe) -> None:
        made = [scribe.entry(kind=f"k{at % 3}", data=at) for at in range(10)]
        scribe.entry(conversation_id=ConversationId(77), data="elsewhere")
        storage = scribe.storage
        assert storage.entries(ROOT_ID, before=_FAR, limit=100) == made[::-1]
        assert storage.entries(ROOT_ID, before=_FAR, limit=3) == made[:-4:-1]
        assert storage.entries(ROOT_ID, before=made[4].id, limit=2) == [made[3], made[2]]
        assert storage.entries(ROOT_ID, before=made[0].id, limit=2) == []
        assert storage.entries(ROOT_ID, before=_FAR, limit=9, kind="k1") == [
            made[7],
            made[4],
            made[1],
        ]
        assert storage.entries(ROOT_ID, before=made[7].id, limit=1, kind="k1") == [made[4]]
        assert storage.entries(ROOT_ID, before=_FAR, limit=9, kind="k") == []

    def test_a_fork_sees_its_parent_up_to_the_fork_point_and_not_beyond(
        self, scribe: Scribe
    ) -> None:
        scribe.commit(put(ConversationRecord(id=ROOT_ID)))
        old = [scribe.entry(data=f"root {at}") for at in range(4)]
        child = self._fork(scribe, ROOT_ID, old[2])
        mine = [scribe.entry(conversation_id=child, data=f"child {at}") for at in range(2)]
        later = scribe.entry(data="root later")
        storage = scribe.storage
        assert storage.entries(child, before=_FAR, limit=9) == [
            mine[1],
            mine[0],
            old[2],
            old[1],
            old[0],
        ]
        assert storage.entries(ROOT_ID, before=_FAR, limit=9) == [later, *old[::-1]]

    def test_a_fork_of_a_fork_at_an_inherited_entry_sees_only_what_is_before_it(
        self, scribe: Scribe
    ) -> None:
        scribe.commit(put(ConversationRecord(id=ROOT_ID)))
        old = [scribe.entry(data=at) for at in range(3)]
        child = self._fork(scribe, ROOT_ID, old[2])
        mine = scribe.entry(conversation_id=child, data="child")
        # One leaves after the child's own entry, one at an entry that the child only inherits.
        late, early = self._fork(scribe, child, mine), self._fork(scribe, child, old[0])
        own = scribe.entry(conversation_id=early, data="grandchild")
        storage = scribe.storage
        assert storage.entries(late, before=_FAR, limit=9) == [mine, old[2], old[1], old[0]]
        assert storage.entries(early, before=_FAR, limit=9) == [own, old[0]]
        assert storage.entries(early, before=own.id, limit=9) == [old[0]]

    def test_pages_walk_through_a_long_line_of_forks(self, scribe: Scribe) -> None:
        scribe.commit(put(ConversationRecord(id=ROOT_ID)))
        at, made = ROOT_ID, []
        for generation in range(30):
            made += [
                scribe.entry(conversation_id=at, kind=f"k{generation % 2}", data=n)
                for n in range(3)
            ]
            # The last one of each generation stays behind.
            at = self._fork(scribe, at, made[-2])
            made.pop()
        storage = scribe.storage

        def page(kind: str | None) -> list[EntryRecord]:
            found: list[EntryRecord] = []
            while True:
                before = found[-1].id if found else _FAR
                more = storage.entries(at, before=before, limit=7, kind=kind)
                found += more
                assert len(more) <= 7
                if len(more) < 7:
                    return found

        assert page(None) == made[::-1]
        assert page("k1") == [entry for entry in made[::-1] if entry.kind == "k1"]

    def test_tasks_are_scanned_by_all_that_is_given(self, scribe: Scribe) -> None:
        """Every combination of filters against a plain loop over the records."""
        made = [
            scribe.task(
                conversation_id=ConversationId(conversation),
                kind=kind,
                state=state,
                abort_requested=abort,
            )
            for state in _STATES
            for conversation in (1, 77)
            for kind in ("app.a", "app.b")
            for abort in (False, True)
        ]
        made[0] = attrs.evolve(made[0], memos={"m": 1})
        scribe.commit(memo(made[0].id, "m", 1))
        storage = scribe.storage
        for conversation in (None, ConversationId(77), ConversationId(78)):
            for kind in (None, "app.a"):
                for status in _TASK_FILTERS:
                    for abort in (None, False, True):
                        look = _tasks(storage, conversation, kind, status, abort)
                        found = _pages(look)
                        assert found == [
                            task
                            for task in made
                            if conversation in (None, task.conversation_id)
                            and kind in (None, task.kind)
                            and status in (None, task.state.status)
                            and abort in (None, task.abort_requested)
                        ]

    def test_live_tasks_are_those_that_are_not_terminal(self, scribe: Scribe) -> None:
        made = [scribe.task(state=state, owner=TaskId(2)) for state in _STATES]
        made.append(scribe.task(abort_requested=True))
        storage = scribe.storage
        live = _pages(lambda after: storage.live_tasks(after=after, limit=3))
        assert [row.id for row in live] == [
            task.id for task in made if task.state.status != "terminal"
        ]
        assert live[3] == LiveTask(
            id=made[3].id,
            conversation_id=ROOT_ID,
            kind="app.job",
            version=1,
            status="sleeping",
            owner=TaskId(2),
            background=False,
            abort_requested=False,
            until_ms=1_800_000_000_000,
        )
        assert [row.until_ms for row in live].count(None) == len(live) - 1
        assert live[-1].abort_requested is True
        assert live[-1].owner is None

    def test_a_task_enters_and_leaves_the_live_ones_as_it_is_put(self, scribe: Scribe) -> None:
        task = scribe.task()
        for state in (*_STATES, _STATES[0], DONE, DONE, RUNNING):
            scribe.commit(put(attrs.evolve(task, state=state, background=True, version=2)))
            live = scribe.storage.live_tasks(after=0, limit=9)
            if state is DONE:
                assert live == []
            else:
                assert [(row.status, row.background, row.version) for row in live] == [
                    (state.status, True, 2)
                ]
            assert len(scribe.storage.tasks(after=0, limit=9, status=state.status)) == 1

    def test_submissions_are_scanned_by_conversation_and_status(self, scribe: Scribe) -> None:
        made = [
            scribe.submission(conversation_id=ConversationId(conversation), status=status)
            for status in ("queued", "placed", "done", "unanswered")
            for conversation in (1, 77)
            for _ in range(3)
        ]
        moved = attrs.evolve(made[0], status="done")
        back = attrs.evolve(made[-1], status="queued")
        scribe.commit(put(moved), put(back))
        made[0], made[-1] = moved, back
        storage = scribe.storage
        assert storage.submission(moved.id) == moved
        for conversation in (None, ROOT_ID, ConversationId(78)):
            for status in _SUBMISSION_FILTERS:
                found = _pages(_submissions(storage, conversation, status))
                assert found == [
                    record
                    for record in made
                    if conversation in (None, record.conversation_id)
                    and status in (None, record.status)
                ]

    def test_documents_are_found_by_scope_kind_and_key(self, scribe: Scribe) -> None:
        scopes: list[tuple[ScopeKind, int]] = [("session", 0), ("conversation", 1), ("task", 1)]
        names = [("b", ""), ("a", "2"), ("a", ""), ("a", "10")]
        for scope, scope_id in scopes:
            for kind, key in names:
                record = DocumentRecord(
                    id=scribe.new_id(), kind=kind, scope=scope, scope_id=scope_id, key=key
                )
                scribe.commit(put_document(record, f"{scope} {kind} {key}"))
        storage = scribe.storage
        for scope, scope_id in scopes:
            found = storage.documents(scope, scope_id, limit=9)
            assert [(stored.record.kind, stored.record.key) for stored in found] == sorted(names)
            assert [stored.value for stored in found] == [
                f"{scope} {kind} {key}" for kind, key in sorted(names)
            ]
            one = storage.document("a", scope, scope_id, "2")
            assert one is not None
            assert one.value == f"{scope} a 2"
        assert storage.document("a", "conversation", 2, "2") is None

    def test_a_scan_holds_nothing_that_a_write_waits_for(self, scribe: Scribe) -> None:
        made = [scribe.task() for _ in range(3)]
        page = scribe.storage.tasks(after=0, limit=2)
        scribe.commit(put(attrs.evolve(made[2], restarts=1)))
        assert page == made[:2]
        assert scribe.storage.tasks(after=made[1].id, limit=2)[0].restarts == 1

    def _fork(self, scribe: Scribe, parent: ConversationId, at: EntryRecord) -> ConversationId:
        fork = ConversationRecord(
            id=ConversationId(scribe.new_id()),
            parent=ForkPoint(conversation_id=parent, entry_id=at.id),
        )
        scribe.commit(put(fork))
        return fork.id


def _tasks(
    storage: Storage,
    conversation_id: ConversationId | None,
    kind: str | None,
    status: TaskStatus | None,
    abort_requested: bool | None,
) -> Callable[[int], list[TaskRecord]]:
    return lambda after: storage.tasks(
        after=after,
        limit=5,
        conversation_id=conversation_id,
        kind=kind,
        status=status,
        abort_requested=abort_requested,
    )


def _submissions(
    storage: Storage, conversation_id: ConversationId | None, status: SubmissionStatus | None
) -> Callable[[int], list[SubmissionRecord]]:
    return lambda after: storage.submissions(
        after=after, limit=2, conversation_id=conversation_id, status=status
    )


def _pages(scan: Callable[[int], list[_R]]) -> list[_R]:
    """All rows of a scan, page after page, each starting behind the last row of the one before."""
    found: list[_R] = []
    after = 0
    while page := scan(after):
        found += page
        last: int = page[-1].id  # type: ignore[attr-defined]
        assert last > after
        after = last
    return found
