"""What a power cut may leave of SQLite's files: which bytes were synced, which changes came since.

Owns the watch from its beginning to its end: it fills a ledger (`_unsynced`, where the fault model
is) through a tap in SQLite (`_sqlite_tap`). It never changes what SQLite does, and reads files only
before SQLite has them open.

The invariant: `written` is what the real files hold, `kept` what a sync promised of them.

The `-shm` files are left out: they are shared memory, not written through the tap, and SQLite
rebuilds them. What other code writes below the directory is seen only at entering, and when SQLite
opens a file that is new to the watch; its syncs are never seen.
"""

from __future__ import annotations

import _sqlite3
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from pidurable_actors.errors import MisuseError
from pidurable_actors.testing._sqlite_tap import Tap, library
from pidurable_actors.testing._unsynced import Image, Ledger, images

__all__ = ["SyncedFiles"]


@final
class SyncedFiles:
    """Watches SQLite's files below a directory, through every connection opened in the block.

    Enter it while no connection to these files is open; what they hold then counts as synced. Open
    blocks end in the reverse of their order. After its end the watch answers as at its end.

    Args:
        directory: where the files are; links in its path are followed.

    Attributes:
        on_event: told of ``("open" | "write" | "truncate" | "sync" | "delete", name)`` after it
            is noted, inside SQLite, on the thread that uses it. It may ask the watch; what it
            raises is kept, and raised when the watch is asked next.
    """

    def __init__(self, directory: Path) -> None:
        self.on_event: Callable[[str, str], None] | None = None
        self._root: Final = Path(os.path.realpath(directory))
        self._ledger: Final = Ledger()
        self._tap: Tap | None = None
        self._fault: BaseException | None = None

    def __enter__(self) -> Self:
        """Begin to watch.

        Raises:
            MisuseError: it was entered before, or this Python's SQLite cannot be watched.
        """
        if self._tap is not None:
            raise MisuseError("a watch is entered once; make a new SyncedFiles.")
        sqlite = library(getattr(_sqlite3, "__file__", None))
        self.begin_anew()
        self._tap = Tap(sqlite, self._root, self._ledger, told=self._told, failed=self._failed)
        self._tap.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the watch, and raise what went wrong inside SQLite unless the block raised."""
        assert self._tap is not None
        self._tap.remove()
        if error is None:
            self._check()

    def begin_anew(self) -> None:
        """Take the files that are there now as synced; no connection to them is open."""
        self._ledger.clear()
        for path in sorted(self._root.rglob("*")):
            if path.is_file() and not path.name.endswith("-shm"):
                self._ledger.found(path.relative_to(self._root).as_posix(), path.read_bytes())

    @property
    def syncs(self) -> int:
        """How many syncs of files have succeeded."""
        self._check()
        return self._ledger.syncs

    def kept(self) -> Image:
        """The files, by relative name, that a power cut now is sure to leave.

        A file whose name was never synced with its directory is absent; one whose name was synced
        and whose bytes were not is empty.
        """
        self._check()
        disk, _ = self._ledger.snapshot()
        return disk.image()

    def written(self) -> Image:
        """The files as programs see them now, which is what the death of the process leaves."""
        self._check()
        disk, changes = self._ledger.snapshot()
        return disk.after(changes).image()

    def outcomes(self, *, limit: int) -> Iterator[tuple[str, Image]]:
        """Images that a power cut now may leave, each once, with a label, in a fixed order.

        The first is the worst, `kept`; the second is `written`. Then in turn: the unsynced changes
        of one file without those of the others; all changes up to one; all, with the last write
        torn; all but one; only one. When there are more than `limit`, those tried are spread over
        all changes.

        Args:
            limit: how many images at most.
        """
        self._check()
        disk, changes = self._ledger.snapshot()
        return islice(images(disk, changes), limit)

    def _told(self, event: str, name: str) -> None:
        if self.on_event is not None:
            self.on_event(event, name)

    def _failed(self, fault: BaseException) -> None:
        self._fault = self._fault or fault

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault
