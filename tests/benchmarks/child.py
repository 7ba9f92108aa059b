"""What runs in a child process: one function, whose numbers go to the parent as one marked line.

``python -m tests.benchmarks.child MODULE FUNCTION JSON``. It imports nothing else, so that what is
measured starts in a process as clean as a user's; the programs of the peers use it as well.
"""

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["MARK", "emit", "vm_kb"]

MARK: Final = "@@bench "


def emit(event: str, numbers: Mapping[str, float]) -> None:
    """Tell the parent that something is done, and what was measured."""
    print(MARK + json.dumps({"event": event, **numbers}), flush=True)


def vm_kb(field: str) -> float:
    """A line of the kernel's account of this process's memory: ``VmRSS`` now, ``VmHWM`` at most."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    return float("nan")


def main() -> None:
    module, function, arguments = sys.argv[1:]
    measure = getattr(importlib.import_module(f"tests.benchmarks.{module}"), function)
    emit("end", measure(**json.loads(arguments)))


if __name__ == "__main__":
    main()
