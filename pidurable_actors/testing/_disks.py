"""Where a world keeps what survives: a storage whose durable bytes can be captured and put back.

Owns the images. It never looks into them and runs no story. The invariant: an image is what the
next process would find if this one died now, and restoring it any number of times gives the same
bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeAlias, final

from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage

__all__ = ["Disk", "FileDisk", "FileTree", "Image", "MemoryDisk", "SqliteDisk", "scratch"]

Image: TypeAlias = object
"""What survives, in the disk's own form; compared by identity."""

_PAGE: Final = 4_096
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a private directory is made inside


class Disk(Protocol):
    """What an exploration asks of a backend; one process at a time uses it."""

    def storage(self) -> Storage:
        """A storage on what is there now, not yet open."""
        ...

    def capture(self) -> Image:
        """What would survive if the process died now."""
        ...

    def torn(self, before: Image, after: Image) -> Iterator[tuple[str, Image]]:
        """What a death within the write that made `after` of `before` may leave, each with words.

        Nothing when a write of this backend cannot be cut in two.
        """
        ...

    def restore(self, image: Image | None) -> None:
        """Put back what survived; None for a disk that was never used. No storage is open."""
        ...

    def close(self) -> None:
        """Remove what the disk keeps outside this process."""
        ...


@final
class MemoryDisk:
    """A `MemoryStorage`; its writes are whole or not there.

    Args:
        wrap: makes the storage that is used of the real one, such as one with faults.
    """

    def __init__(self, wrap: Callable[[MemoryStorage], Storage] | None = None) -> None:
        self._wrap = wrap
        self._now = MemoryStorage()

    def storage(self) -> Storage:
        """The memory storage, wrapped if asked for."""
        return self._now if self._wrap is None else self._wrap(self._now)

    def capture(self) -> Image:
        """A snapshot."""
        return self._now.snapshot()

    def torn(self, before: Image, after: Image) -> Iterator[tuple[str, Image]]:
        """Nothing: see the class."""
        return iter(())

    def restore(self, image: Image | None) -> None:
        """Start from a copy of a snapshot."""
        self._now = image.snapshot() if isinstance(image, MemoryStorage) else MemoryStorage()

    def close(self) -> None:
        """Nothing is kept outside."""


@final
class FileDisk:
    """A storage that keeps files in one directory.

    A death of the process leaves the files as the operating system has them, synced or not. A death
    within a write is tried where the write changed one file: a part of the changed bytes is there.

    Args:
        make: makes the storage in a directory, not yet open.
        ignored: endings of file names that hold nothing durable.
        place: an existing directory, which `close` leaves; by default a new one.
    """

    def __init__(
        self,
        make: Callable[[Path], Storage],
        *,
        ignored: tuple[str, ...] = (".lock",),
        place: Path | None = None,
    ) -> None:
        self._make = make
        self._own = place is None
        self._place = scratch() if place is None else place
        self._tree = FileTree(self._place, ignored=ignored)

    def storage(self) -> Storage:
        """A new storage object in the directory."""
        return self._make(self._place)

    def capture(self) -> Image:
        """The bytes of the files."""
        return self._tree.capture()

    def torn(self, before: Image, after: Image) -> Iterator[tuple[str, Image]]:
        """The one changed file with a part of its new bytes."""
        assert isinstance(before, Mapping)
        assert isinstance(after, Mapping)
        changed = [name for name in after if before.get(name) != after[name]]
        if len(changed) == 1 and before.keys() <= after.keys():
            (name,) = changed
            for cut, content in _cuts(before.get(name, b""), after[name]):
                yield f"{cut} bytes into {name}", {**before, name: content}

    def restore(self, image: Image | None) -> None:
        """Write the files."""
        assert image is None or isinstance(image, Mapping)
        self._tree.restore(image or {})

    def close(self) -> None:
        """Remove the directory, if the disk made it."""
        self._tree.forget()
        if self._own:
            shutil.rmtree(self._place, ignore_errors=True)


def SqliteDisk(  # noqa: N802 - reads as its kind
    *, busy_timeout_s: float = 5.0, place: Path | None = None
) -> FileDisk:
    """A `SqliteStorage` in a file of its own, with the write-ahead log beside it.

    Args:
        busy_timeout_s: how long a lock of another program is waited for.
        place: an existing directory for the files, which `close` leaves; by default a new one.
    """
    # SQLite makes the shared memory anew from the log, so what it holds does not matter.
    return FileDisk(
        lambda place: SqliteStorage(place / "story.sqlite", busy_timeout_s=busy_timeout_s),
        ignored=(".lock", "-shm"),
        place=place,
    )


@final
class FileTree:
    """The files below a directory, as bytes.

    Files that are read stay open until `forget`: closing a second descriptor of a file would drop
    the locks that a database in this process holds on it.

    Args:
        root: the directory.
        ignored: endings of names that are left out.
    """

    def __init__(self, root: Path, *, ignored: tuple[str, ...] = ()) -> None:
        self._root = root
        self._ignored = ignored
        self._open: dict[tuple[str, int], int] = {}
        self._last: Mapping[str, bytes] = {}

    def capture(self) -> Mapping[str, bytes]:
        """Content by relative name; the very object of the last time when nothing changed."""
        found = {name: self._read(name) for name in self._names()}
        if found != self._last:
            self._last = found
        return self._last

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Make the directory hold these files and nothing else."""
        self.forget()
        for child in self._root.iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()
        for name, content in files.items():
            path = self._root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._last = files

    def forget(self) -> None:
        """Close what was opened to read."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _names(self) -> list[str]:
        return sorted(
            os.path.relpath(Path(directory) / name, self._root)
            for directory, _, names in os.walk(self._root)
            for name in names
            if not name.endswith(self._ignored or ("\0",))
        )

    def _read(self, name: str) -> bytes:
        path = self._root / name
        key = (name, path.stat().st_ino)
        if key not in self._open:
            self._open[key] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        descriptor = self._open[key]
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def scratch() -> Path:
    """A new directory, in memory where the machine has a file system there."""
    # Its syncs cost nothing, and an exploration makes thousands.
    base = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=f"pidurable-{os.getpid()}-", dir=base))


def _cuts(before: bytes, after: bytes) -> Iterator[tuple[int, bytes]]:
    """The file with the first part of what changed, cut at a few telling places."""
    start, end = _first_difference(before, after), len(after)
    for cut in sorted({start + 24, start + 4_096 + 24, (start + end) // 2, end - 1}):
        if start < cut < end:
            yield cut, after[:cut] + before[cut:]


def _first_difference(one: bytes, other: bytes) -> int:
    shorter = min(len(one), len(other))
    for start in range(0, shorter, _PAGE):
        ours, theirs = one[start : start + _PAGE], other[start : start + _PAGE]
        if ours != theirs:
            return start + next(
                (at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
                min(len(ours), len(theirs)),
            )
    return shorter
