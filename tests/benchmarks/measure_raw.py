"""The baselines: rows written with the SQLite module of Python alone, and Python itself."""

from __future__ import annotations

import sqlite3
import time

from tests.benchmarks.children import Numbers

__all__ = ["python", "transactions"]

_CREATE = "CREATE TABLE rows (id INTEGER PRIMARY KEY, record TEXT NOT NULL)"
_PUT = """
    INSERT INTO rows (id, record) VALUES (?, ?)
    ON CONFLICT (id) DO UPDATE SET record = excluded.record
"""
_PAD = "x" * 590
_ROWS = 10_000
_STRIDE = 7_919  # a prime: rows that follow each other in time lie apart in the file


def transactions(path: str, synchronous: str, batch: int, seconds: float) -> Numbers:
    """Write rows of 600 bytes in transactions of `batch` rows for some seconds.

    SQLite does not write a row whose bytes did not change, so that each write is a new text.

    Returns:
        Rows a second.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(_CREATE)
    connection.execute("BEGIN")
    connection.executemany(_PUT, ((at + 1, _text(at)) for at in range(_ROWS)))
    connection.execute("COMMIT")
    # First until the log has its size: a flush of a file that grows costs far more.
    _write(connection, batch, seconds / 2, first=_ROWS)
    written, took_s = _write(connection, batch, seconds, first=100 * _ROWS)
    connection.close()
    return {"rate": written / took_s}


def python() -> Numbers:
    """Time a loop of fixed work, which says how fast the machine is just now.

    Returns:
        Milliseconds of processor time for a million rounds, the least of some tries.
    """
    tries_s: list[float] = []
    for _ in range(5):
        began_s = time.process_time()
        total = 0
        for at in range(1_000_000):
            total += at & 7
        tries_s.append(time.process_time() - began_s)
    return {"loop_ms": min(tries_s) * 1e3}


def _write(
    connection: sqlite3.Connection, batch: int, seconds: float, *, first: int
) -> tuple[int, float]:
    execute = connection.execute
    at = first
    took_s = 0.0
    began_s = time.perf_counter()
    while took_s < seconds:
        execute("BEGIN IMMEDIATE")
        for _ in range(batch):
            execute(_PUT, (at * _STRIDE % _ROWS + 1, _text(at)))
            at += 1
        execute("COMMIT")
        took_s = time.perf_counter() - began_s
    return at - first, took_s


def _text(at: int) -> str:
    return f"{at:010d}{_PAD}"
