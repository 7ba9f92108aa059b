"""Damage to files and surroundings that turn hostile: what disks and operators really do.

    for damage in damages(path, seed="1", truncations=20, flips=200):
        shutil.copy(path, copy)
        damage.apply(copy)
        ...                                  # right content or a typed error, never a wrong answer

    with file_size_limit(200_000):           # a disk that fills in the middle of a commit
        ...

Owns the damage, never the judgement. Nothing here is simulated: bytes are changed in the file, and
errors come from the operating system. The invariants: the same seed damages the same places of a
file of the same size; after a block the surroundings are as before it.

Damage a closed file or a copy: a database that is open does not expect its file to change, and a
file that is mapped into memory and cut short ends the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias, final

import attrs

from pidurable_actors._clock import SeededChance

__all__ = [
    "Damage",
    "FlippedBit",
    "Truncation",
    "damages",
    "file_size_limit",
    "flip_bit",
    "read_only_directory",
    "truncate",
]

# From the kernel's header: the version of the call, and two rights before which permissions yield.
_CAPABILITY_VERSION: Final = 0x20080522
_CAP_DAC_OVERRIDE: Final = 1 << 1
_CAP_DAC_READ_SEARCH: Final = 1 << 2


@final
@attrs.frozen(kw_only=True)
class Truncation:
    """A file that ends early, as after a crash of the machine or a broken copy.

    Attributes:
        size_bytes: what is left.
    """

    size_bytes: int

    def apply(self, path: Path) -> None:
        """Do it to a file; see `truncate`."""
        truncate(path, self.size_bytes)


@final
@attrs.frozen(kw_only=True)
class FlippedBit:
    """One wrong bit, as of a decaying disk or bad memory.

    Attributes:
        offset: the byte, from 0.
        bit: the bit in it, 0 for the lowest to 7.
    """

    offset: int
    bit: int

    def apply(self, path: Path) -> None:
        """Do it to a file; see `flip_bit`."""
        flip_bit(path, self.offset, self.bit)


Damage: TypeAlias = Truncation | FlippedBit
"""One thing that is wrong with a file. Its text names the place, to do it again."""


def truncate(path: Path, size_bytes: int) -> None:
    """Cut a file short.

    Args:
        path: the file.
        size_bytes: what is left of it.

    Raises:
        ValueError: the file is not longer than that.
        OSError: it cannot be cut.
    """
    if not 0 <= size_bytes < path.stat().st_size:
        raise ValueError(f"{path.name} cannot be cut to {size_bytes} bytes")
    os.truncate(path, size_bytes)


def flip_bit(path: Path, offset: int, bit: int) -> None:
    """Turn one bit of a file over; a second time puts it back.

    Args:
        path: the file.
        offset: the byte, from 0.
        bit: the bit in it, 0 for the lowest to 7.

    Raises:
        ValueError: there is no such bit.
        OSError: the file cannot be changed.
    """
    if not (0 <= offset < path.stat().st_size and 0 <= bit < 8):
        raise ValueError(f"{path.name} has no bit {bit} of byte {offset}")
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def damages(path: Path, *, seed: str, truncations: int, flips: int) -> Iterator[Damage]:
    """Kinds of damage to try on copies of a file, spread over the whole of it.

    The file is divided into as many equal parts as there are tries, and each part is hit at a
    drawn place, so that more tries leave smaller gaps. The file itself is only measured.

    Args:
        path: the file, not empty.
        seed: what the places are drawn from.
        truncations: how many places to cut at, at most one for each byte.
        flips: how many bits to flip, at most one for each bit.
    """
    size = path.stat().st_size
    chance = SeededChance(f"damage {seed}")
    for cut in _spread(size, truncations, chance):
        yield Truncation(size_bytes=cut)
    for bit in _spread(size * 8, flips, chance):
        yield FlippedBit(offset=bit // 8, bit=bit % 8)


def _spread(size: int, count: int, chance: SeededChance) -> Iterator[int]:
    count = min(count, size)
    for part in range(count):
        start, end = size * part // count, size * (part + 1) // count
        yield start + chance.below(end - start)


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow past a size: to a database, a disk that is full.

    A write past the limit fails with EFBIG, wherever in a commit it is made; what is inside goes on
    working. Unlike a full disk it hits every file of the process, so keep the block short and what
    it prints small; a longer test belongs in a child process.

    Args:
        size_bytes: how long a file may become.

    Raises:
        ValueError: a lower limit is in force, or the block is not entered by the main thread of a
            process that does not yet ignore SIGXFSZ (Python's own start does).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The signal that comes with the error would end the process.
    handler = signal.getsignal(signal.SIGXFSZ)
    if handler is not signal.SIG_IGN:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    finally:
        if handler is not signal.SIG_IGN:
            signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def read_only_directory(path: Path) -> Iterator[None]:
    """Let nothing be created, changed or removed in a directory, as on a read-only file system.

    Opening a file to write gets EACCES; what is open already is not touched. Root is held to it
    too: the right to pass over permissions is given up meanwhile by the thread that enters and by
    the threads that it starts in the block. So open a harness inside the block.

    Args:
        path: the directory; what is below its own files is left alone.

    Raises:
        OSError: ENOTSUP when this process may write none the less, such as root where the system
            has no rights to give up; otherwise the directory cannot be changed.
    """
    changed = [path, *(child for child in path.iterdir() if child.is_file())]
    modes = [(entry, entry.stat().st_mode & 0o7777) for entry in changed]
    try:
        for entry, mode in modes:
            entry.chmod(mode & ~0o222)
        with _held_to_permissions():
            _check_refused(path)
            yield
    finally:
        for entry, mode in modes:
            entry.chmod(mode)


def _check_refused(path: Path) -> None:
    probe = path / ".pidurable-probe"
    try:
        probe.touch(exist_ok=False)
    except PermissionError:
        return
    probe.unlink()
    raise OSError(errno.ENOTSUP, "this user may write in every directory; run as another one")


@contextmanager
def _held_to_permissions() -> Iterator[None]:
    """Give up, for this thread, the rights that make permission bits mean nothing."""
    if os.geteuid() != 0 or sys.platform != "linux":
        yield
        return
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Twice effective, permitted, inheritable; both rights are in the first three.
    rights = (ctypes.c_uint32 * 6)()
    library = ctypes.CDLL(None, use_errno=True)
    _call(library.capget, header, rights)
    effective = rights[0]
    rights[0] = effective & ~(_CAP_DAC_OVERRIDE | _CAP_DAC_READ_SEARCH)
    _call(library.capset, header, rights)
    try:
        yield
    finally:
        rights[0] = effective
        _call(library.capset, header, rights)


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
