"""The baseline: the same rows written with nothing but the SQLite module of Python."""

from __future__ import annotations

import sqlite3
import time

from tests.benchmarks.children import Numbers

__all__ = ["transactions"]

_CREATE = "CREATE TABLE rows (id INTEGER PRIMARY KEY, record TEXT NOT NULL)"
_PUT = """
    INSERT INTO rows (id, record) VALUES (?, ?)
    ON CONFLICT (id) DO UPDATE SET record = excluded.record
"""
_ROWS = 1_000


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
    pad = "x" * 590
    execute = connection.execute
    written = 0
    end_s = 0.0
    began_s = time.perf_counter()
    while True:
        execute("BEGIN IMMEDIATE")
        for _ in range(batch):
            execute(_PUT, (written % _ROWS + 1, f"{written:010d}{pad}"))
            written += 1
        execute("COMMIT")
        end_s = time.perf_counter()
        if end_s - began_s >= seconds:
            break
    connection.close()
    return {"rate": written / (end_s - began_s)}
