"""How a peer's program talks to the benchmarks: marked lines of JSON, as in ``child.py``."""

import json

__all__ = ["emit", "hwm_mb"]


def emit(event: str, **numbers: float) -> None:
    """Tell the parent that something is done, and what was measured."""
    print("@@bench " + json.dumps({"event": event, **numbers}), flush=True)


def hwm_mb() -> float:
    """The most memory that this process has had resident, in megabytes."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return float("nan")
