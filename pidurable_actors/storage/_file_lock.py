"""One owner per file: an `flock` on a file beside it.

Owns the lock file. It never opens the guarded file itself: closing any second descriptor of a
SQLite file would drop SQLite's own locks in the whole process.

An `flock` belongs to an open file description, so a second open conflicts in the same process as
well as in another one, and the kernel drops it when its owner dies, however it dies. The lock file
stays after the release: whoever removed it could remove the one that the next owner just locked.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Final, Self, final

from pidurable_actors.errors import StorageInUse, StorageUnusable

__all__ = ["FileLock"]

_OWNER_BYTES: Final = 500


@final
class FileLock:
    """A held claim on a file, from `acquire` to `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, path: Path, *, storage: str) -> Self:
        """Lock ``<path>.lock``, creating it for this user alone, and write who has it.

        Args:
            path: the real path of the guarded file, so that every way to it meets the same lock.
            storage: how errors name the storage.

        Raises:
            StorageInUse: another description has the lock; at once.
            StorageUnusable: the lock file cannot be made or locked.
        """
        lock_path = path.with_name(f"{path.name}.lock")
        try:
            # Not following a link at this name: it could lead to a file that is not ours to write.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(lock_path, flags, 0o600)
        except OSError as error:
            raise StorageUnusable(
                f"{storage}: the lock file {lock_path} cannot be opened: {error.strerror}."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except BlockingIOError as error:
            owner = os.pread(descriptor, _OWNER_BYTES, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise StorageInUse(storage, owner or "another process") from error
        except OSError as error:
            os.close(descriptor)
            raise StorageUnusable(
                f"{storage}: the lock file {lock_path} cannot be locked: {error.strerror}."
            ) from error
        return cls(descriptor)

    def release(self) -> None:
        """Give the claim up. Releasing again does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
