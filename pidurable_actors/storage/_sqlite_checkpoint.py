"""Copying the write-ahead log back into the database, off the thread that writes.

Owns a second connection and the thread that uses it, both made when the log first grows enough to
matter. It never decides whether something is durable: a commit is durable in the log, and a
checkpoint that fails loses nothing.

Why not leave it to SQLite, which checkpoints inside the commit that fills the log: measured under a
steady stream of small commits, one in 500 then took 8 ms and the mean doubled. The thread copies
while the writer goes on; but the log starts again from its beginning only when all of it is copied
at the moment of a write, which under a stream never happens by itself. So past `log_max_bytes`
the writer copies the little that is left, before its transaction.

The size of the log is not asked for but estimated from what is written, and corrected by what each
checkpoint reports. The connection stays open until the storage closes.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Final, final

from pidurable_actors.storage._sqlite_errors import driver_errors

__all__ = ["Checkpointer"]

_FRAME_BYTES: Final = 4096 + 24
_CHECKPOINT: Final = "PRAGMA wal_checkpoint(PASSIVE)"


@final
class Checkpointer:
    """Watches the log of one owner; every method is called by the writer's thread.

    Args:
        connect: makes the second connection, on the checkpointing thread.
        log_bytes: what the log grows by before the thread copies it.
        log_max_bytes: the log at which the writer lends a hand; it only grows past it while a
            reader pins it.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        log_bytes: int = 4 * 1024 * 1024,
        log_max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._connect: Final = connect
        self._log_bytes: Final = log_bytes
        self._log_max_bytes: Final = log_max_bytes
        self._thread: threading.Thread | None = None
        self._wake: Final = threading.Event()
        self._stopping = False
        # The log's size when it was last known, the estimate since, and the limits for both.
        self._known = 0
        self._since = 0
        self._known_max = log_max_bytes
        self._asked = False
        # Written by the thread, taken by the writer: one reference, so no lock.
        self._reported: int | None = None

    @property
    def wants_write(self) -> bool:
        """Whether the next write will first have to copy the log."""
        return self._known + self._since >= self._known_max

    def before_write(self, connection: sqlite3.Connection) -> None:
        """Copy what is left of the log when it is past its bound.

        Raises:
            sqlite3.Error: the disk failed; what was committed is safe in the log.
        """
        if not self.wants_write:
            return
        size, done = _checkpoint(connection)
        if size is not None:
            self._known, self._since = size, 0
        if done:
            # The next write starts the log again from its beginning.
            self._known, self._known_max = 0, self._log_max_bytes
        else:
            # Pinned by a reader, or the thread is copying: not again before it has grown more.
            self._known_max = self._known + self._since + self._log_bytes
        # A thread that met an error gets another chance.
        self._asked = False

    def after_write(self, size: int) -> None:
        """Take note of a commit that added about `size` bytes to the log."""
        self._since += size
        if self._since < self._log_bytes:
            return
        if self._reported is not None:
            self._known, self._since = self._reported, 0
            self._reported, self._asked = None, False
        elif not self._asked:
            self._asked = True
            self._start()
            self._wake.set()

    def close(self) -> None:
        """Stop the thread, after the checkpoint that it is in, and close its connection."""
        if self._thread is not None:
            self._stopping = True
            self._wake.set()
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            # A daemon: a host that exits without closing loses nothing.
            self._thread = threading.Thread(
                target=self._run, name="pidurable-sqlite-checkpoint", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except driver_errors:
            # The writer meets the same trouble at the bound, in a place that can report it.
            return
        try:
            while True:
                self._wake.wait()
                self._wake.clear()
                if self._stopping:
                    return
                try:
                    self._reported, _ = _checkpoint(connection)
                except driver_errors:
                    # As above; the estimate goes on growing towards the bound.
                    continue
        finally:
            connection.close()


def _checkpoint(connection: sqlite3.Connection) -> tuple[int | None, bool]:
    """Copy as much as possible without waiting.

    Returns:
        How many bytes are in the log, None when another checkpoint was going on; and whether all of
        them are copied.
    """
    row: tuple[int, int, int] = connection.execute(_CHECKPOINT).fetchone()
    busy, frames, copied = row
    return None if frames < 0 else frames * _FRAME_BYTES, busy == 0 and frames == copied
