"""Facts of the machine that a table of times is worthless without."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

__all__ = ["facts"]


def facts(directory: Path) -> dict[str, str]:
    """What the measurements run on; `directory` is where their files lie."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return {
        "machine": f"{len(os.sched_getaffinity(0))} cores, {_processor()}, load {load}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "packages": ", ".join(f"{name} {version(name)}" for name in ("trio", "attrs", "msgspec")),
        "SQLite": sqlite3.sqlite_version,
        "file system": _file_system(directory),
    }


def _processor() -> str:
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """The type of the file system that the directory is on."""
    place = directory.resolve()
    best, kind = "", "unknown"
    for line in _lines(Path("/proc/mounts")):
        _, mount, found, *_ = line.split()
        if place.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
