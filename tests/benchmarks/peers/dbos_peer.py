"""DBOS on SQLite: ``-m tests.benchmarks.peers.dbos_peer DIRECTORY WHAT NUMBER...``, run by an interpreter that has it.

``steps WORKFLOWS STEPS``; ``park WORKFLOWS SECONDS``, which never ends by itself; ``recover
WORKFLOWS`` of a parked directory; ``cold``.
"""

import importlib
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.child import emit, vm_kb

dbos: Any = importlib.import_module("dbos")
DBOS: Any = dbos.DBOS


class Count:
    """Workflows that have come to a point."""

    def __init__(self) -> None:
        self.wanted = 0
        self._guard = threading.Lock()
        self.reached = threading.Event()

    def add(self) -> None:
        with self._guard:
            self.wanted -= 1
            if self.wanted == 0:
                self.reached.set()


slept = Count()


def _next(value: int) -> int:
    return value + 1


def _many(steps: int) -> int:
    value = 0
    for _ in range(steps):
        value = next_step(value)
    return value


def _sleeper(seconds: float) -> int:
    value = next_step(0)
    slept.add()
    DBOS.sleep(seconds)
    return int(next_step(value))


def steps(workflows: int, count: int) -> None:
    DBOS.start_workflow(many, 1).get_result()
    began_s = time.perf_counter()
    handles = [DBOS.start_workflow(many, count) for _ in range(workflows)]
    results = [handle.get_result() for handle in handles]
    took_s = time.perf_counter() - began_s
    assert results == [count] * workflows
    emit("end", {"rate": workflows * count / took_s})


def park(path: Path, workflows: int, seconds: int) -> None:
    slept.wanted = workflows
    for _ in range(workflows):
        DBOS.start_workflow(sleeper, float(seconds))
    slept.reached.wait()
    due_s = time.time() + seconds
    # A workflow has written two outputs once its sleep is stored.
    while _number(path, "SELECT count(*) FROM operation_outputs") < 2 * workflows:
        threading.Event().wait(0.05)
    emit("parked", {"due_s": due_s, "hwm_mb": vm_kb("VmHWM") / 1024})
    threading.Event().wait()


def recover(path: Path, workflows: int) -> None:
    query = "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'"
    while _number(path, query) < workflows:
        threading.Event().wait(0.02)
    emit("recovered", {"hwm_mb": vm_kb("VmHWM") / 1024})


def _number(path: Path, query: str) -> int:
    connection = sqlite3.connect(path, timeout=30)
    try:
        row: tuple[int] = connection.execute(query).fetchone()
    finally:
        connection.close()
    return row[0]


if __name__ == "__main__":
    path = Path(sys.argv[1]) / "dbos.sqlite"
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path}",
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": "local",
            "run_admin_server": False,
            "enable_otlp": False,
        }
    )
    next_step = DBOS.step()(_next)
    many = DBOS.workflow()(_many)
    sleeper = DBOS.workflow()(_sleeper)
    DBOS.launch()
    what, numbers = sys.argv[2], [int(text) for text in sys.argv[3:]]
    if what == "steps":
        steps(*numbers)
    elif what == "park":
        park(path, *numbers)
    elif what == "recover":
        recover(path, *numbers)
    else:
        assert DBOS.start_workflow(many, 1).get_result() == 1
        emit("first", {})
    # Its threads would hold the process.
    os._exit(0)
