"""The line: the one place where transactions become batches.

A plain state machine without Trio: `open` admits batches in order, `closed` and `failed` refuse.
Admitting runs the rules (pure functions over the transaction, such as those of ownership), freezes
it, gives it the next number and makes it visible to later callbacks. Whoever drives the line runs
callbacks one at a time and hands the batches to storage in the order they were admitted.

Invariant: what is admitted is a sequence without holes; what is settled is a prefix of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, final

from pidurable_actors._clock import Clock
from pidurable_actors.errors import (
    ClosedError,
    HarnessClosed,
    ReadOnlySession,
    SessionFailed,
)
from pidurable_actors.records import Batch, CommitNumber
from pidurable_actors.session._seams import Binding, Reader
from pidurable_actors.session._state import SessionState
from pidurable_actors.session._transaction import Tx
from pidurable_actors.storage import Head

__all__ = ["Line", "LineState", "Rule"]

_FORGET_EACH: Final = 128
"""Commits after which the log forgets those that are too old."""

LineState: TypeAlias = Literal["open", "closed", "failed"]
Rule: TypeAlias = Callable[[Tx], None]


@final
class Line:
    """Admission of commits to one open storage.

    Args:
        state: the head that callbacks see.
        reader: where cold records are read.
        clock: the time of each commit.
        read_only: refuse every commit that writes.
        log: how many commits stay readable.
    """

    def __init__(
        self,
        state: SessionState,
        reader: Reader,
        clock: Clock,
        *,
        read_only: bool,
        log: Callable[[], int],
    ) -> None:
        self._log = log
        self._logs = True  # an earlier process may have
        self.state = state
        self.rules: list[Rule] = []
        self.schedulable: Callable[[str, int], bool] = _nothing_runs
        self._reader = reader
        self._clock = clock
        self.read_only = read_only
        self._status: LineState = "open"
        self._cause: BaseException | None = None

    @property
    def status(self) -> LineState:
        """Whether commits are admitted."""
        return self._status

    def check(self) -> None:
        """Refuse when nothing is admitted any more.

        Raises:
            HarnessClosed: the host closed it.
            SessionFailed: storage failed; the cause is chained.
        """
        if self._status != "open":
            raise self.refusal()

    def refusal(self) -> ClosedError:
        """The error that a call gets once the line is no longer open."""
        if self._status == "failed":
            failed = SessionFailed()
            failed.__cause__ = self._cause
            return failed
        return HarnessClosed()

    def begin(self, binding: Binding) -> Tx:
        """A transaction for one callback."""
        # A reader's memory is of its open, and an owner beside it goes on: it looks at storage.
        return Tx(
            self._fresh_state() if self.read_only else self.state,
            self._reader,
            now_ms=self._clock.now_ms(),
            binding=binding,
            schedulable=self.schedulable,
        )

    def _fresh_state(self) -> SessionState:
        return SessionState(Head(commit=self.state.number, next_id=self.state.next_id, epoch=0))

    def admit(self, tx: Tx) -> Batch | None:
        """Turn a finished transaction into the next batch; None when it wrote nothing.

        Raises:
            ReadOnlySession: it wrote something and the line is read-only.
            HarnessClosed, SessionFailed: the line ended while the callback ran.
            PiDurableError: a rule or a check refused it; nothing was admitted.
        """
        self.check()
        for rule in self.rules:
            rule(tx)
        changes, documents = tx.freeze()
        if not changes:
            return None
        if self.read_only:
            raise ReadOnlySession(
                "this harness was opened with read_only=True; open it as owner to change something."
            )
        number, kept = self.state.number + 1, self._log()
        batch = Batch(
            number=CommitNumber(number),
            at_ms=tx.now_ms,
            next_id=tx.next_id,
            changes=changes,
            logged=kept > 0,
            forget_below=self._forget_below(number, kept),
        )
        self.state.admit(batch, documents)
        return batch

    def _forget_below(self, number: int, kept: int) -> int:
        """What the log may forget with this commit; what it keeps has no holes."""
        forgotten, self._logs = kept == 0 and self._logs, kept > 0
        if forgotten:
            return number
        # In groups: forgetting commits one by one would double the writes of every commit.
        return max(0, number - kept + 1) if kept and number % _FORGET_EACH == 0 else 0

    def settle(self, batch: Batch) -> None:
        """Note that storage has the batch."""
        self.state.settle(batch, self._clock.now_ms())

    def close(self) -> None:
        """Admit nothing more."""
        if self._status == "open":
            self._status = "closed"

    def fail(self, cause: BaseException) -> None:
        """Admit nothing more, because storage failed."""
        if self._status != "failed":
            self._status = "failed"
            self._cause = cause


def _nothing_runs(_kind: str, _version: int) -> bool:
    return False
