"""The ledger of a file system before a power cut: what is durable, and every change since.

Owns the fault model. A sync makes the changes of one file durable that were made before it began; a
sync of a directory does the same for the names in it. Of all other changes any part may be lost:
each whole, and a write also at the borders of 512-byte sectors. The name of a new file is a change
of its directory, so a file may be synced and yet have no name. Bytes outside a write are never
harmed, and what was synced never decays.

It reads and writes no real file.

The invariant: the durable bytes with all later changes, in their order, are what the files hold.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count, zip_longest
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias, final

import attrs

from pidurable_actors.errors import MisuseError

__all__ = ["File", "Image", "Ledger", "images"]

Image: TypeAlias = dict[str, bytes]
"""Files by relative name."""

_Kind: TypeAlias = Literal["create", "write", "truncate", "delete"]

_SECTOR_BYTES: Final = 512


@attrs.frozen
class File:
    """One file for as long as it lives; a name that is created again is another file."""

    name: str
    number: int


@attrs.frozen(kw_only=True, eq=False)
class Change:
    """One change that no sync has covered.

    Attributes:
        number: its place in the order of all changes.
        file: whose bytes it changes, or which gets or loses its name.
        at: where the data goes, or the size that is left.
    """

    number: int
    kind: _Kind
    file: File
    at: int = 0
    data: bytes = b""

    def is_in(self, file: File) -> bool:
        """Whether a sync of the file covers it."""
        return self.kind in ("write", "truncate") and self.file == file

    def is_beside(self, file: File) -> bool:
        """Whether a sync of the file's directory covers it."""
        return self.kind in ("create", "delete") and _folder(self.file) == _folder(file)

    def __str__(self) -> str:
        match self.kind:
            case "write":
                return f"write {len(self.data)} bytes at {self.at} of {self.file.name}"
            case "truncate":
                return f"truncate {self.file.name} to {self.at} bytes"
        return f"{self.kind} {self.file.name}"


@attrs.frozen
class Disk:
    """Names and bytes; both change."""

    names: dict[str, File] = attrs.Factory(dict)
    contents: dict[File, bytearray] = attrs.Factory(dict)

    def apply(self, change: Change) -> None:
        """Make one change, whether or not those before it were made."""
        name = change.file.name
        content = self.contents.setdefault(change.file, bytearray())
        match change.kind:
            case "create":
                self.names[name] = change.file
            case "delete":
                # Another file has the name when the creation of that one came first.
                if self.names.get(name) == change.file:
                    del self.names[name]
            case "write":
                content.extend(bytes(max(0, change.at - len(content))))
                content[change.at : change.at + len(change.data)] = change.data
            case "truncate":
                content.extend(bytes(max(0, change.at - len(content))))
                del content[change.at :]

    def after(self, changes: Iterable[Change]) -> Disk:
        """A disk with these changes made."""
        contents = {file: bytearray(content) for file, content in self.contents.items()}
        disk = Disk(dict(self.names), contents)
        for change in changes:
            disk.apply(change)
        return disk

    def image(self) -> Image:
        """What can be reached by name."""
        return {name: bytes(self.contents[file]) for name, file in sorted(self.names.items())}


@final
class Ledger:
    """The durable disk, and all changes since in their order; for any thread."""

    def __init__(self) -> None:
        self.syncs = 0
        self._lock: Final = threading.Lock()
        self._durable: Final = Disk()
        self._pending: list[Change] = []
        self._files: Final[dict[str, File]] = {}
        self._numbers: Final = count(1)
        self._users: Final = Counter[File]()
        self._last = 0

    def found(self, name: str, content: bytes) -> File:
        """Take a file as durable."""
        file = self._files[name] = self._durable.names[name] = File(name, next(self._numbers))
        self._durable.contents[file] = bytearray(content)
        return file

    def clear(self) -> None:
        """Know of no file any more."""
        with self._lock:
            self._durable.names.clear()
            self._durable.contents.clear()
            self._pending.clear()
            self._files.clear()

    def snapshot(self) -> tuple[Disk, list[Change]]:
        """The durable disk, and what came since; both the caller's own."""
        with self._lock:
            return self._durable.after(()), list(self._pending)

    def mark(self) -> int:
        """The last change so far: what a sync that begins now is sure to cover."""
        with self._lock:
            return self._last

    def open(self, name: str, *, read: Callable[[], bytes]) -> File:
        """Note that a file is opened, before anything is done with it.

        Args:
            name: its name.
            read: what the file holds. Only a file that nobody else has open can be compared with
                the notes: a change by another thread may have happened and not be noted yet.

        Raises:
            MisuseError: that is not what was noted.
        """
        with self._lock:
            file = self._files.get(name)
            if file is None:
                file = self._files[name] = File(name, next(self._numbers))
                self._add("create", file)
                if content := read():
                    self._add("write", file, 0, content)
            elif not self._users[file] and self._written(file) != read():
                raise MisuseError(
                    f"{name} was changed by something else than the watched SQLite; do that before "
                    "the watch is entered."
                )
            self._users[file] += 1
            return file

    def close(self, file: File) -> None:
        """Note that one who opened a file does nothing with it any more."""
        with self._lock:
            self._users[file] -= 1

    def write(self, file: File, at: int, data: bytes) -> None:
        """Note bytes that were written."""
        with self._lock:
            self._add("write", file, at, data)

    def truncate(self, file: File, size: int) -> None:
        """Note a new size, in bytes."""
        with self._lock:
            self._add("truncate", file, size)

    def sync(self, file: File, *, through: int, folder: int | None) -> None:
        """Make a file's changes durable up to one, and the names beside it up to `folder`."""
        with self._lock:
            self.syncs += 1
            self._settle(lambda it: it.is_in(file) and it.number <= through)
            if folder is not None:
                self._settle(lambda it: it.is_beside(file) and it.number <= folder)

    def delete(self, name: str, *, folder: int | None) -> None:
        """Note that a name is gone; durably with the names beside it up to `folder`."""
        with self._lock:
            file = self._files.pop(name)
            own = self._add("delete", file)
            if folder is not None:
                self._settle(
                    lambda it: it.is_beside(file) and (it.number <= folder or it.number == own)
                )

    def _add(self, kind: _Kind, file: File, at: int = 0, data: bytes = b"") -> int:
        self._last += 1
        self._pending.append(Change(number=self._last, kind=kind, file=file, at=at, data=data))
        return self._last

    def _written(self, file: File) -> bytes:
        return bytes(self._durable.after(self._pending).contents[file])

    def _settle(self, covered: Callable[[Change], bool]) -> None:
        for change in self._pending:
            if covered(change):
                self._durable.apply(change)
        self._pending = [change for change in self._pending if not covered(change)]


def images(disk: Disk, changes: Sequence[Change]) -> Iterator[tuple[str, Image]]:
    """What may be left of a disk and changes that no sync covered, each image once, labelled."""
    seen = set()
    for label, chosen in _choices(changes):
        image = disk.after(chosen).image()
        digest = _digest(image)
        if digest not in seen:
            seen.add(digest)
            yield label, image


def _choices(changes: Sequence[Change]) -> Iterator[tuple[str, Sequence[Change]]]:
    yield "nothing unsynced", ()
    yield "all that was written", changes
    total, spread = len(changes), _spread(len(changes))
    names = sorted({change.file.name for change in changes})
    families = (
        ((f"only {name}", [it for it in changes if it.file.name == name]) for name in names),
        ((f"the first {at} of {total} changes", changes[:at]) for at in spread),
        _torn(changes),
        ((f"all but: {changes[at]}", [*changes[:at], *changes[at + 1 :]]) for at in spread),
        ((f"only: {changes[at]}", [changes[at]]) for at in spread),
    )
    for choice in chain.from_iterable(zip_longest(*families)):
        if choice is not None:
            yield choice


def _torn(changes: Sequence[Change]) -> Iterator[tuple[str, Sequence[Change]]]:
    """All changes, with the last write cut at the border of a sector: its head, or its tail."""
    at = max((at for at, it in enumerate(changes) if it.kind == "write"), default=None)
    if at is None:
        return
    write, before, after = changes[at], changes[:at], changes[at + 1 :]
    first_border = (write.at // _SECTOR_BYTES + 1) * _SECTOR_BYTES
    for border in range(first_border, write.at + len(write.data), _SECTOR_BYTES):
        cut = border - write.at
        head = attrs.evolve(write, data=write.data[:cut])
        yield f"torn, up to {border}: {write}", [*before, head, *after]
        tail = attrs.evolve(write, at=border, data=write.data[cut:])
        yield f"torn, from {border}: {write}", [*before, tail, *after]


def _spread(total: int) -> list[int]:
    """The numbers below `total`, any beginning of them spread over all: bits read backwards."""
    width = total.bit_length()
    return sorted(range(total), key=lambda number: int(f"{number:0{width}b}"[::-1], 2))


def _digest(image: Image) -> bytes:
    digest = hashlib.blake2b()
    for name, content in image.items():
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.digest()


def _folder(file: File) -> PurePosixPath:
    return PurePosixPath(file.name).parent
