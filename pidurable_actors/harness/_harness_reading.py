"""What can be seen of a harness: what goes on, documents, questions, the log of commits, watches.

Size: one class of calls; most of it is what they promise.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from pidurable_actors._limits import LIMITS
from pidurable_actors.agent import USAGE, Question, UsageSums
from pidurable_actors.context import Context, within
from pidurable_actors.errors import (
    CursorTooOld,
    MisuseError,
    ReadOnlySession,
    StorageRequestError,
)
from pidurable_actors.harness import _questions
from pidurable_actors.harness._core import Core
from pidurable_actors.harness._inspect import (
    Inspection,
    TaskGraph,
    inspect_engine,
    inspect_graph,
)
from pidurable_actors.harness._pages import Page, check_limit
from pidurable_actors.records import (
    ConversationId,
    ConversationRecord,
    EntryId,
    LoggedCommit,
)
from pidurable_actors.session import DocKey, DocumentDefinition
from pidurable_actors.storage import Storage
from pidurable_actors.views import (
    DocumentSubject,
    GraphSubject,
    GraphView,
    Watch,
    open_watch,
)

__all__ = ["HarnessReading"]

D = TypeVar("D")


class HarnessReading:
    """The part of a harness that changes nothing."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # --- questions ---

    async def questions(
        self,
        *,
        conversation_id: int | None = None,
        limit: int = 50,
        cursor: str | None = None,
        context: Context | None = None,
    ) -> Page[Question]:
        """The questions that wait for an answer, oldest first.

        Args:
            conversation_id: only those of one conversation.
            limit: questions in the page.
            cursor: from the previous page.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: a bad limit or cursor.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        with within(context):
            return await _questions.open_questions(
                self._core, conversation_id, limit=limit, cursor=cursor
            )

    async def question(self, question_id: str, *, context: Context | None = None) -> Question:
        """A question by its id, whatever became of it.

        Args:
            question_id: which.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            StorageRequestError: there is none with this id.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        with within(context):
            return await _questions.question(self._core, question_id)

    # --- documents ---

    async def snapshot(
        self,
        definition: DocumentDefinition[D],
        scope_id: int | None = None,
        *,
        key: str = "",
        context: Context | None = None,
    ) -> D:
        """The durable value of a document; the initial value when there is none.

        Args:
            definition: which kind of document.
            scope_id: the conversation or task that it belongs to; none for one of the session.
            key: which of that kind.
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            What stands for an instance of the definition's class; immutable.

        Raises:
            MisuseError: it belongs to a conversation or task, and `scope_id` names none.
            StorageTooNew, StorageCorrupt, DefinitionError: the stored value and the definition do
                not go together.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        belongs = _scope_id(definition, scope_id)
        with within(context):
            return await self._core.snapshot(definition, belongs, key)

    async def snapshot_as_of(
        self,
        definition: DocumentDefinition[D],
        conversation_id: int,
        entry_id: int,
        *,
        key: str = "",
        context: Context | None = None,
    ) -> D:
        """What a document was when an entry was stored.

        Of a document of a conversation, see `Conversation.snapshot_as_of`; of one of the session,
        what it was after the commit that stored the entry.

        Args:
            definition: which kind of document, with ``history="rewindable"``.
            conversation_id: a conversation that sees the entry.
            entry_id: the entry.
            key: which of that kind.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            MisuseError: the definition keeps no history, or belongs to tasks.
            StorageRequestError: the conversation sees no such entry.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        if definition.scope == "task":
            raise MisuseError(f"document {definition.kind!r} belongs to a task, not to an entry.")
        with within(context):
            return await self._core.snapshot_as_of(
                definition,
                ConversationId(conversation_id),
                EntryId(entry_id),
                key,
                scope_id=0 if definition.scope == "session" else None,
            )

    async def document_keys(
        self,
        definition: DocumentDefinition[D],
        scope_id: int | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        context: Context | None = None,
    ) -> Page[str]:
        """The keys of the documents of one kind, in order; a document without a key has ``""``.

        Args:
            definition: which kind of document.
            scope_id: the conversation or task that they belong to; none for those of the session.
            limit: keys in the page.
            cursor: from the previous page.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            MisuseError: they belong to a conversation or task, and `scope_id` names none.
            StorageRequestError: a bad limit or cursor.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        belongs = _scope_id(definition, scope_id)
        with within(context):
            return await self._core.document_keys(definition, belongs, limit=limit, cursor=cursor)

    # --- watching ---

    def watch_doc(
        self,
        definition: DocumentDefinition[D],
        scope_id: int | None = None,
        *,
        key: str = "",
        context: Context | None = None,
    ) -> AbstractAsyncContextManager[Watch[D]]:
        """Watch one document while the block of an ``async with`` runs.

        The first frame has its value, the initial one when there is none; then exactly one comes
        for each commit that changes it, with the operations that did. A document of a task ends
        its watch as ``retired`` when the task has ended.

        Args:
            definition: which kind of document.
            scope_id: the conversation or task that it belongs to; none for one of the session.
            key: which of that kind.
            context: ends the watch when it is cancelled; see `Context`.

        Raises:
            MisuseError: it belongs to a conversation or task, and `scope_id` names none.
            StorageTooNew, StorageCorrupt, DefinitionError: the stored value and the definition do
                not go together.
            ReadOnlySession: a harness that only looks learns of no commits.
            CommitReentered: called from inside a commit callback.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out before the watch began.

        Durability: what a frame shows is stored.

        Cancellation: the watch ends, and nothing else does.
        """
        belongs = _scope_id(definition, scope_id)
        at = DocKey(definition.kind, definition.scope, belongs, key)
        core = self._core
        subject = DocumentSubject(definition, at)
        return core.watching(
            open_watch(core.hub, subject, core.read, document=at, context=context), context
        )

    def watch_task_graph(
        self, *, context: Context | None = None
    ) -> AbstractAsyncContextManager[Watch[GraphView]]:
        """Watch all live tasks while the block of an ``async with`` runs.

        The first frame has them all; then exactly one comes for each commit that creates, moves or
        ends one.

        Args:
            context: ends the watch when it is cancelled; see `Context`.

        Raises:
            ReadOnlySession, CommitReentered, HarnessClosed, SessionFailed: as for `watch_doc`.
            ContextCancelled: `context` was cancelled or ran out before the watch began.

        Durability: what a frame shows is stored.

        Cancellation: the watch ends, and nothing else does.
        """
        core = self._core
        subject = GraphSubject(core.engine.line.state.conversations.owner)
        return core.watching(open_watch(core.hub, subject, core.read, context=context), context)

    async def commits(
        self, *, after: int = 0, limit: int = 100, context: Context | None = None
    ) -> tuple[LoggedCommit, ...]:
        """Commits in order, from behind a number; the newest ``settings.commit_log`` are kept.

        Args:
            after: the number of the last commit that is known; 0 for none.
            limit: commits in the answer, at most 1,000.
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            CursorTooOld: some behind `after` are no longer kept; begin with a snapshot.
            StorageRequestError: there is no commit `after` yet, or the limit is out of range.
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        check_limit(limit)

        def look(storage: Storage) -> tuple[LoggedCommit, ...]:
            newest, oldest = storage.head().commit, storage.oldest_commit()
            if not 0 <= after <= newest:
                raise StorageRequestError(f"there is no commit {after}; the newest is {newest}.")
            if after < newest and (oldest is None or oldest > after + 1):
                raise CursorTooOld(
                    f"commits behind {after} are no longer kept; read a snapshot and go on from "
                    f"commit {newest}."
                )
            return tuple(storage.commits(after=after, limit=min(limit, LIMITS.page)))

        with within(context):
            return await self._core.read(look)

    async def wait_for_commit(self, *, after: int, context: Context | None = None) -> int:
        """Wait until there is a commit behind a number.

        Args:
            after: the number of the last commit that is known.
            context: ends the call when it is cancelled; see `Context`.

        Returns:
            The number of the newest commit.

        Raises:
            ReadOnlySession: a harness that only looks learns of no commits.
            HarnessClosed, SessionFailed: the harness ended first.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: that commit is stored.

        Cancellation: only the wait ends.
        """
        engine = self._core.engine
        with within(context):
            engine.storage.refuse_in_callback()
            engine.check_open()
            if engine.read_only:
                raise ReadOnlySession(
                    "this harness was opened with read_only=True and learns of no commits; "
                    "look for them with commits(after=)."
                )
            await engine.storage.wait_durable(after + 1)
            return engine.line.state.durable_number

    # --- looking ---

    def inspect(self) -> Inspection:
        """What is live and why it does or does not run."""
        return inspect_engine(self._core.engine)

    def task_graph(self) -> TaskGraph:
        """Who owns what of the live work, and why each task does or does not run."""
        return inspect_graph(self._core.engine)

    def next_wake_ms(self) -> int | None:
        """When the earliest sleeping task is due, epoch milliseconds; None when none sleeps."""
        return self._core.engine.supervisor.next_wake_ms()

    async def usage(self, *, context: Context | None = None) -> UsageSums:
        """What all conversations have used together.

        Args:
            context: ends the call when it is cancelled; see `Context`.

        Raises:
            HarnessClosed, SessionFailed: it is too late.
            ContextCancelled: `context` was cancelled or ran out.

        Durability: what is returned is stored.

        Cancellation: nothing happened.
        """
        total, after = UsageSums(), 0
        with within(context):
            while page := await self._conversation_page(after):
                for record in page:
                    usage = await self._core.snapshot(USAGE, record.id, "")
                    total.merge(usage)
                after = page[-1].id
        return total

    async def _conversation_page(self, after: int) -> list[ConversationRecord]:
        return await self._core.read(lambda s: s.conversations(after=after, limit=LIMITS.page))


def _scope_id(definition: DocumentDefinition[D], scope_id: int | None) -> int:
    if definition.scope == "session":
        return 0
    if scope_id is None:
        raise MisuseError(
            f"document {definition.kind!r} belongs to a {definition.scope}; say to which one."
        )
    return scope_id
