"""The other runtimes: where their interpreters are, and how to install them."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["ENVIRONMENT", "PEERS", "find_peers", "install_peers"]

ENVIRONMENT: Final = "PIDURABLE_BENCH_PEERS"
"""The directory of the virtual environments, when ``--peers`` does not give it."""

PEERS: Final[Mapping[str, tuple[str, ...]]] = {
    "dbos": ("dbos==3.4.0",),
    "lg": ("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"),
}
"""What is installed in the virtual environment of each name."""


def find_peers(directory: str | None) -> dict[str, Path]:
    """The interpreters in a directory, or in the one that the environment names."""
    where = directory or os.environ.get(ENVIRONMENT)
    if not where:
        return {}
    found = {name: Path(where).absolute() / name / "bin" / "python" for name in PEERS}
    return {name: python for name, python in found.items() if python.exists()}


def install_peers(directory: str) -> None:
    """Make the virtual environments and install the runtimes with pip.

    Raises:
        subprocess.CalledProcessError: pip failed; its output has been shown.
    """
    for name, packages in PEERS.items():
        home = Path(directory).absolute() / name
        print(f"{home}: {' '.join(packages)}", file=sys.stderr)
        venv.create(home, with_pip=True)
        subprocess.run(
            [home / "bin" / "python", "-m", "pip", "install", "--quiet", *packages], check=True
        )
