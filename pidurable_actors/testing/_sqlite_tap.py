"""A tap in SQLite's own file layer: it passes everything on, and tells what passed.

Owns the C interface of a VFS that is the default one but for a few functions. It never changes what
SQLite does, never raises into SQLite, and opens no file: closing a second descriptor of a file that
SQLite has open would drop SQLite's locks.

The order matters in two places. A change is noted after it happened, a sync covers what was noted
before it began: so a doubt between threads makes less durable, never more. And of a directory's
sync, which has no function of its own in a VFS, SQLite's opening of the directory is the sign.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, addressof, c_char_p, c_int, c_int64, c_void_p, string_at
from functools import partial
from pathlib import Path
from typing import Final, final

from pidurable_actors.errors import MisuseError
from pidurable_actors.testing._unsynced import File, Ledger

__all__ = ["Tap", "library"]

_OK: Final = 0
_OPEN_DELETE_ON_CLOSE: Final = 0x8
_OPEN_FOLDER: Final = b"openDirectory"

# The C interface. Names are passed on as addresses, never as Python bytes: SQLite keeps them, and
# finds the parameters of a URI behind them.
_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_Delete = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_Close = CFUNCTYPE(c_int, c_void_p)
_Transfer = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)
_Size = CFUNCTYPE(c_int, c_void_p, c_void_p)
_OpenFolder = CFUNCTYPE(c_int, c_void_p, c_void_p)
_SetCall = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
_GetCall = CFUNCTYPE(c_void_p, c_void_p, c_char_p)


def _others(names: str) -> list[tuple[str, type[c_void_p]]]:
    return [(name, c_void_p) for name in names.split()]


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = (
        ("iVersion", c_int),
        ("xClose", _Close),
        ("xRead", _Transfer),
        ("xWrite", _Transfer),
        ("xTruncate", _Truncate),
        ("xSync", _Sync),
        ("xFileSize", _Size),
        *_others("xLock xUnlock xCheckReservedLock xFileControl xSectorSize"),
        *_others("xDeviceCharacteristics xShmMap xShmLock xShmBarrier xShmUnmap xFetch xUnfetch"),
    )


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = (
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", _Open),
        ("xDelete", _Delete),
        *_others("xAccess xFullPathname xDlOpen xDlError xDlSym xDlClose xRandomness xSleep"),
        *_others("xCurrentTime xGetLastError xCurrentTimeInt64"),
        ("xSetSystemCall", _SetCall),
        ("xGetSystemCall", _GetCall),
        ("xNextSystemCall", c_void_p),
    )


def library(extension: str | None) -> ctypes.CDLL:
    """The SQLite that Python's module uses: its symbols are found through that module.

    Args:
        extension: the file of the module, None when it is built in.
    """
    library = ctypes.CDLL(extension)
    try:
        library.sqlite3_vfs_find.restype = c_void_p
        library.sqlite3_vfs_find.argtypes = [c_char_p]
        library.sqlite3_vfs_register.argtypes = [c_void_p, c_int]
        library.sqlite3_vfs_unregister.argtypes = [c_void_p]
    except AttributeError as error:
        raise MisuseError(
            "the SQLite library of this Python hides its symbols, so its files cannot be watched; "
            "use a Python whose sqlite3 module is linked to a shared SQLite library."
        ) from error
    return library


@final
class Tap:
    """SQLite's default file layer, with a ledger told of what passes."""

    def __init__(
        self,
        library: ctypes.CDLL,
        root: Path,
        ledger: Ledger,
        *,
        told: Callable[[str, str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._library: Final = library
        self._root: Final = root
        self._ledger: Final = ledger
        self._told: Final = told
        self._failed: Final = failed
        self._default_at: Final[int] = library.sqlite3_vfs_find(None)
        self._default: Final = _Vfs.from_address(self._default_at)
        open_folder = self._default.iVersion >= 3 and self._default.xGetSystemCall(
            self._default_at, _OPEN_FOLDER
        )
        if not open_folder:
            raise MisuseError(
                "the default file layer of this Python's SQLite is not the one for Unix, so its "
                "files cannot be watched; enter before another one is made the default."
            )
        self._open_folder: Final = _OpenFolder(open_folder)
        self._telling_open_folder: Final = _OpenFolder(self._folder_opened)
        self._vfs: Final = _Vfs.from_buffer_copy(self._default)
        self._vfs.zName = f"watched-{id(self):x}".encode()
        self._vfs.xOpen = _Open(self._opened)
        self._vfs.xDelete = _Delete(self._deleted)
        # Address of an open file -> what it is, and its own methods.
        self._open: Final[dict[int, tuple[File, _Methods]]] = {}
        # Address of methods -> a copy that tells.
        self._telling: Final[dict[int, _Methods]] = {}
        # Thread -> the last change before SQLite opened a directory to sync it.
        self._folder_marks: Final[dict[int, int]] = {}
        self._watching = False

    def install(self) -> None:
        """Become the default for every connection opened from now on."""
        _INSTALLED.append(self)
        self._watching = True
        self._set_open_folder(self._telling_open_folder)
        self._library.sqlite3_vfs_register(addressof(self._vfs), 1)

    def remove(self) -> None:
        """Give the default back. Connections that stay open are served, and not noted."""
        self._library.sqlite3_vfs_unregister(addressof(self._vfs))
        self._library.sqlite3_vfs_register(self._default_at, 1)
        self._set_open_folder(self._open_folder)
        self._watching = False

    def _set_open_folder(self, function: ctypes._CFunctionType) -> None:
        address = ctypes.cast(function, c_void_p)
        self._default.xSetSystemCall(self._default_at, _OPEN_FOLDER, address)

    def _note(self, event: str, name: str, note: Callable[[], None]) -> None:
        """Note and tell what happened to a file of the directory."""
        if not self._watching:
            return
        try:
            note()
            self._told(event, name)
        # SQLite cannot carry it, and must not: the watch raises it when it is asked.
        except BaseException as fault:  # noqa: BLE001
            self._failed(fault)

    def _opened(self, _: int, path: int | None, at: int, flags: int, out: int | None) -> int:
        code: int = self._default.xOpen(self._default_at, path, at, flags, out)
        if code == _OK and path is not None and not flags & _OPEN_DELETE_ON_CLOSE:
            name = self._name(path)
            if name is not None:
                self._note("open", name, partial(self._replace_methods, name, at))
        return code

    def _replace_methods(self, name: str, at: int) -> None:
        # An open file begins with the address of its methods.
        methods_at = c_void_p.from_address(at)
        original_at = methods_at.value
        assert original_at is not None
        original = _Methods.from_address(original_at)
        file = self._ledger.open(name, read=partial(_content, original, at))
        self._open[at] = file, original
        telling = self._telling.get(original_at)
        if telling is None:
            # Whichever thread comes first: SQLite keeps the address, so the copy must never go.
            telling = self._telling.setdefault(original_at, self._that_tell(original))
        methods_at.value = addressof(telling)

    def _that_tell(self, original: _Methods) -> _Methods:
        methods = _Methods.from_buffer_copy(original)
        methods.xClose = _Close(self._closed)
        methods.xWrite = _Transfer(self._wrote)
        methods.xTruncate = _Truncate(self._truncated)
        methods.xSync = _Sync(self._synced)
        return methods

    def _closed(self, at: int) -> int:
        # First: as soon as it is closed, another thread's file may have the address.
        file, original = self._open.pop(at)
        self._ledger.close(file)
        code: int = original.xClose(at)
        return code

    def _wrote(self, at: int, data: int, size: int, place: int) -> int:
        file, original = self._open[at]
        code: int = original.xWrite(at, data, size, place)
        if code == _OK:
            note = partial(self._ledger.write, file, place, string_at(data, size))
            self._note("write", file.name, note)
        return code

    def _truncated(self, at: int, size: int) -> int:
        file, original = self._open[at]
        code: int = original.xTruncate(at, size)
        if code == _OK:
            self._note("truncate", file.name, partial(self._ledger.truncate, file, size))
        return code

    def _synced(self, at: int, flags: int) -> int:
        (file, original), through = self._open[at], self._ledger.mark()
        code, folder = self._and_folder(lambda: original.xSync(at, flags))
        if code == _OK:
            note = partial(self._ledger.sync, file, through=through, folder=folder)
            self._note("sync", file.name, note)
        return code

    def _deleted(self, _: int, path: int, sync_folder: int) -> int:
        code, folder = self._and_folder(
            lambda: self._default.xDelete(self._default_at, path, sync_folder)
        )
        if code == _OK:
            name = self._name(path)
            if name is not None:
                self._note("delete", name, partial(self._ledger.delete, name, folder=folder))
        return code

    def _and_folder(self, call: Callable[[], int]) -> tuple[int, int | None]:
        """Call SQLite; its code, and the last change before it synced the directory, if it did."""
        thread = threading.get_ident()
        self._folder_marks.pop(thread, None)
        return call(), self._folder_marks.pop(thread, None)

    def _folder_opened(self, path: int, descriptor: int) -> int:
        """SQLite opens a directory for one purpose, to sync it in the same call."""
        code: int = self._open_folder(path, descriptor)
        if code == _OK:
            self._folder_marks[threading.get_ident()] = self._ledger.mark()
        return code

    def _name(self, address: int) -> str | None:
        """What a path is called below the directory, None when it is elsewhere."""
        path = Path(os.fsdecode(string_at(address)))
        if path.is_relative_to(self._root):
            return path.relative_to(self._root).as_posix()
        return None


def _content(methods: _Methods, file: int) -> bytes:
    """What an open file holds, read through SQLite."""
    size = c_int64()
    code = methods.xFileSize(file, addressof(size))
    data = ctypes.create_string_buffer(size.value)
    if code == _OK and size.value:
        code = methods.xRead(file, addressof(data), size.value, 0)
    if code != _OK:
        raise OSError(f"a file could not be read when it was opened: SQLite's code {code}")
    return data.raw


_INSTALLED: Final[list[Tap]] = []
"""Every tap for ever: a connection that outlives its block still calls it."""
