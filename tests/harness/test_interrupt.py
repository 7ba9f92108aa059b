"""Ctrl-C in a real process: the harness closes, and what ran is given back uncounted."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from pytest import mark

PROGRAM = """
import sys
import attrs, trio
from pidurable_actors import (
    Checkpoint, Completed, Extension, Next, Registry, TaskActor, open_harness, phase,
)
from pidurable_actors.storage.sqlite import SqliteStorage

@attrs.frozen
class Work(Checkpoint, phase="work"):
    pass

class Long(TaskActor[None, None], kind="test.long"):
    def start(self) -> Work:
        return Work()

    @phase(Work)
    async def work(self, at: Work) -> Next[None]:
        print("running", flush=True)
        if sys.argv[2] == "spin":
            while True:
                await trio.lowlevel.checkpoint()
        await trio.sleep_forever()
        return Completed(None)

async def main() -> None:
    registry = Registry([Extension("test", tasks=[Long])])
    async with open_harness(SqliteStorage(sys.argv[1]), registry=registry) as harness:
        root = await harness.root()
        task = await root.commit(lambda tx: tx.create_task(Long, None))
        await harness.wait_for_task(task)

trio.run(main)
"""


@mark.slow
@mark.parametrize("how", ["sleep", "spin"])
def test_ctrl_c_closes_the_harness_and_counts_no_restart(tmp_path: Path, how: str) -> None:
    file = tmp_path / "agent.sqlite"
    command = [sys.executable, "-c", PROGRAM, str(file), how]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "HarnessBug" not in errors
    with closing(sqlite3.connect(file)) as stored:
        query = "SELECT status, record ->> '$.restarts' FROM tasks"
        assert stored.execute(query).fetchall() == [("pending", None)]
