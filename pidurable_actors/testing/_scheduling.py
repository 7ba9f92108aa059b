"""Trio's order of tasks, made repeatable.

The one module that uses private names of Trio: the switch that makes its order depend on nothing
but its random source, and that source. A test pins both, so a Trio that renames them is noticed by
the suite and not by a run that quietly repeats differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from trio._core import _run

__all__ = ["seeded_scheduling"]

_RUN: Final[Any] = _run


@contextmanager
def seeded_scheduling(seed: int) -> Iterator[None]:
    """Let every Trio run inside order its tasks by `seed` alone; restored afterwards."""
    switched, state = _RUN._ALLOW_DETERMINISTIC_SCHEDULING, _RUN._r.getstate()  # noqa: SLF001
    _RUN._ALLOW_DETERMINISTIC_SCHEDULING = True  # noqa: SLF001
    _RUN._r.seed(seed)  # noqa: SLF001
    try:
        yield
    finally:
        _RUN._ALLOW_DETERMINISTIC_SCHEDULING = switched  # noqa: SLF001
        _RUN._r.setstate(state)  # noqa: SLF001
