"""Child processes: started, listened to, and killed when a measurement is a kill.

The clock is the parent's: a number called ``since_start_s`` is the time from the start of the
process to the arrival of the line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.child import MARK

__all__ = ["ROOT", "ChildFailed", "Numbers", "call", "script"]

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE_S: Final = 120.0

Numbers = Mapping[str, float]


class ChildFailed(Exception):
    """A child process ended without the number it was started for."""


def call(
    module: str, function: str, arguments: Mapping[str, object], *, until: str = "end"
) -> Numbers:
    """Run a function of this package in a fresh process.

    Args:
        module: its module, below ``tests.benchmarks``.
        function: its name.
        arguments: what it takes, as JSON.
        until: the event to wait for; at any but the last the process is killed with SIGKILL.

    Raises:
        ChildFailed: it ended before that event.
    """
    command = [sys.executable, "-m", "tests.benchmarks.child", module, function]
    return _listen([*command, json.dumps(arguments)], until)


def script(python: Path, name: str, *arguments: object, until: str = "end") -> Numbers:
    """Run a peer's program under its own interpreter; otherwise like `call`."""
    command = [str(python), "-m", f"tests.benchmarks.peers.{name}", *map(str, arguments)]
    return _listen(command, until)


def _listen(command: Sequence[str], until: str) -> Numbers:
    began_s = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        stderr: list[str] = []
        reader = threading.Thread(target=stderr.extend, args=(process.stderr,), daemon=True)
        reader.start()
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        found: dict[str, float] | None = None
        for line in process.stdout:
            if not line.startswith(MARK):
                continue
            numbers = json.loads(line.removeprefix(MARK))
            if numbers.pop("event") == until:
                found = {**numbers, "since_start_s": time.perf_counter() - began_s}
                if until != "end":
                    process.kill()
                break
        process.stdout.read()
        process.wait()
        patience.cancel()
        reader.join()
    if found is None or (until == "end" and process.returncode):
        raise ChildFailed(f"{' '.join(command)}\n{''.join(stderr)[-2000:]}")
    return found
