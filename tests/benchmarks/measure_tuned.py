"""Any measurement in a process whose garbage collector is set as the README advises a service."""

from __future__ import annotations

import gc
import importlib

from tests.benchmarks.children import Numbers

__all__ = ["run"]

_THRESHOLDS = (50_000, 20, 100)
"""What the README's chapter on speed says; the interpreter's own are (700, 10, 10) on 3.11."""


def run(target: str, **arguments: object) -> Numbers:
    """Set the thresholds, then measure as the `run` of a module beside this one does."""
    gc.set_threshold(*_THRESHOLDS)
    measured: Numbers = importlib.import_module(f"tests.benchmarks.{target}").run(**arguments)
    return measured
