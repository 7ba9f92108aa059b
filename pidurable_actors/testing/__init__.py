"""Crash testing: stories run again from every place where their process could have died.

PYTEST_DONT_REWRITE (this door has no assertions, and conftests import from it before pytest does.)

`explore` tries every crash point of a story in virtual time, `cancel_sweep` every cancellation,
`fault_sweep` every failure of the storage. Imported by name: `kills` (processes that really die),
`checkers` (what must hold), `faults` (storages and clocks that misbehave), `damage` (files that
do), `conformance` (suites that every backend passes). ``pytest -p pidurable_actors.testing`` makes
async tests stories.

Nothing of the package imports from here.
"""

from pidurable_actors.testing._cancelling import CancelFailure, CancelSweep, cancel_sweep
from pidurable_actors.testing._disks import Disk, FileDisk, MemoryDisk, SqliteDisk
from pidurable_actors.testing._explorer import explore
from pidurable_actors.testing._faulting import FaultFailure, FaultSweep, fault_sweep
from pidurable_actors.testing._findings import CrashFailure, Exploration, StoryStuck
from pidurable_actors.testing._power import PowerDisk
from pidurable_actors.testing._trace import Effect
from pidurable_actors.testing._world import World

__all__ = [
    "CancelFailure",
    "CancelSweep",
    "CrashFailure",
    "Disk",
    "Effect",
    "Exploration",
    "FaultFailure",
    "FaultSweep",
    "FileDisk",
    "MemoryDisk",
    "PowerDisk",
    "SqliteDisk",
    "StoryStuck",
    "World",
    "cancel_sweep",
    "explore",
    "fault_sweep",
]

pytest_plugins = ["pidurable_actors.testing._plugin"]
