"""Explore every story and print what was tried: ``python -m tests.crash [--depth N] [--budget N]``.

Exhaustive unless a budget is given. The figures of the README are those of this command.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from pidurable_actors.testing import Disk, MemoryDisk, SqliteDisk, explore
from pidurable_actors.testing.checkers import invariants
from tests.crash.owned_stories import ALL

DISKS: Final[dict[str, Callable[[], Disk]]] = {"memory": MemoryDisk, "sqlite": SqliteDisk}


def main() -> None:
    """Explore, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--depth", type=int, default=1, help="crashes on one path")
    parser.add_argument("--budget", type=int, help="recoveries for each story")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disk", choices=["memory", "sqlite", "both"], default="both")
    parser.add_argument("stories", nargs="*", help="names, or parts of names")
    asked = parser.parse_args()

    chosen = DISKS if asked.disk == "both" else {asked.disk: DISKS[asked.disk]}
    print(f"{'story':28}{'disk':8}{'points':>8}{'recoveries':>12}{'seconds':>9}{'points/s':>10}")
    for name, told in ALL.items():
        if asked.stories and not any(part in name for part in asked.stories):
            continue
        for disk_name, disk in chosen.items():
            report = explore(
                told.story,
                check=[invariants, told.check],
                disk=disk,
                depth=asked.depth,
                budget=asked.budget,
                seed=asked.seed,
            )
            print(
                f"{name:28}{disk_name:8}{report.points:8}{report.recoveries:12}"
                f"{report.seconds:9.2f}{report.points / report.seconds:10.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
