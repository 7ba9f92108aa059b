"""Cold start: a new process that imports the package, opens a new file and commits once.

The programs are texts for ``python -c``, so that the process holds nothing of the benchmarks.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.children import ROOT, ChildFailed, Numbers

__all__ = ["foreign_modules", "ours", "raw", "slow_imports"]

_OURS: Final = """
import sys, trio
from pidurable_actors import open_harness
from pidurable_actors.storage.sqlite import SqliteStorage
async def main():
    async with open_harness(SqliteStorage(sys.argv[1])) as harness:
        await harness.root()
        print("done", flush=True)
trio.run(main)
"""
_RAW: Final = """
import sqlite3, sys, trio
async def main():
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, record TEXT NOT NULL)")
    connection.execute("INSERT INTO rows VALUES (1, 'x')")
    print("done", flush=True)
trio.run(main)
"""
_IMPORT: Final = "import pidurable_actors, pidurable_actors.storage.sqlite"
_LOADED: Final = f"{_IMPORT}, sys; print(*sys.modules)"
_FOREIGN: Final = re.compile(
    r"(openai|anthropic|psycopg\w*|httpx|h11|wsproto|trio_websocket|aiohttp|pidurable_actors\."
    r"(remote|cli|testing))(\.|$)"
)
_REPEAT: Final = 3


def ours(directory: Path) -> Numbers:
    """Seconds from the start of the process to the first stored commit."""
    return _first_commit(_OURS, directory)


def raw(directory: Path) -> Numbers:
    """The same with Trio and the SQLite module alone."""
    return _first_commit(_RAW, directory)


def foreign_modules() -> list[str]:
    """What importing the package loads of model SDKs, drivers and servers; should be nothing."""
    return [name for name in _python("-c", _LOADED).stdout.split() if _FOREIGN.match(name)]


def slow_imports(count: int) -> list[tuple[str, int, int]]:
    """The modules whose import takes longest: name, own and cumulated microseconds."""
    lines = _python("-X", "importtime", "-c", _IMPORT).stderr.splitlines()
    found: list[tuple[str, int, int]] = []
    for line in lines:
        own, cumulated, name = (part.strip() for part in line.split(":", 1)[1].split("|"))
        if own.isdigit():
            found.append((name, int(own), int(cumulated)))
    return sorted(found, key=lambda one: -one[1])[:count]


def _first_commit(program: str, directory: Path) -> Numbers:
    took_s: list[float] = []
    for at in range(_REPEAT):
        path = directory / f"cold-{at}.sqlite"
        began_s = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            took_s.append(time.perf_counter() - began_s)
        if line != "done\n":
            raise ChildFailed(program)
    return {"seconds": statistics.median(took_s)}


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
