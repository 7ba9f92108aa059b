"""``python -m tests.benchmarks``: measure, and print the table of goals.

Times are never asserted: the command fails only when a measurement of ours cannot be made.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.catalogue import rows
from tests.benchmarks.children import ChildFailed, Numbers
from tests.benchmarks.installing import ENVIRONMENT, find_peers, install_peers
from tests.benchmarks.machine import facts
from tests.benchmarks.measure_cold import slow_imports
from tests.benchmarks.probes import FULL, PEERS, QUICK, Lab, Probe, probes
from tests.benchmarks.rows import Row
from tests.benchmarks.table import NOTE, as_json, as_text

IMPORTS_SHOWN = 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    if options.install_peers:
        install_peers(options.install_peers)
        return 0
    if options.imports:
        _show_imports()
        return 0
    return _measure(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, help="how often each is measured, for the median; 3")
    add("--only", default="", metavar="NAME[,NAME]", help="rows whose name begins so")
    add("--quick", action="store_true", help="small sizes, one round: does it run at all?")
    add("--json", type=Path, metavar="FILE", help="also write every round there")
    add("--peers", metavar="DIR", help=f"virtual environments of the peers; {ENVIRONMENT}")
    add("--install-peers", metavar="DIR", help="make these and leave")
    add("--dir", type=Path, metavar="DIR", help="where the files lie, which the file system is of")
    add("--imports", action="store_true", help="show what takes longest to import and leave")
    add("--list", action="store_true", help="show the names of the rows and leave")
    return parser


def _measure(options: argparse.Namespace) -> int:
    sizes = QUICK if options.quick else FULL
    names = [name for name in options.only.split(",") if name]
    wanted = [row for row in rows(sizes) if not names or row.name.startswith(tuple(names))]
    if not wanted or options.list:
        print("\n".join(row.name for row in rows(sizes)))
        return 0 if options.list else 2
    rounds = options.rounds or (1 if options.quick else 3)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        lab = Lab(Path(directory), find_peers(options.peers))
        known = facts(lab.directory)
        print("\n".join(f"{name}: {value}" for name, value in known.items()))
        print(f"{NOTE}\n")
        results, failed = _run(lab, wanted, probes(sizes), rounds)
    print(as_text(wanted, results))
    for name, error in failed.items():
        print(f"\n{name} failed:\n{error}", file=sys.stderr)
    if options.json:
        table = {"machine": known, "rounds": rounds, "rows": as_json(wanted, results)}
        options.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return int(any(row.ours.probe in failed for row in wanted))


def _run(
    lab: Lab, wanted: Sequence[Row], known: dict[str, Probe], rounds: int
) -> tuple[dict[str, list[Numbers]], dict[str, str]]:
    """Run what the rows read, round after round, so that a slow minute touches all alike."""
    needed = {name for row in wanted for name in row.probes}
    results: dict[str, list[Numbers]] = {}
    failed: dict[str, str] = {}
    for turn in range(rounds):
        for name, probe in known.items():
            peer = name.split("-", 1)[0]
            absent = peer in PEERS and peer not in lab.peers
            if name not in needed or absent or name in failed:
                continue
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
            try:
                results.setdefault(name, []).append(probe(lab))
            except ChildFailed as error:
                failed[name] = str(error)
                results.pop(name, None)
    return results, failed


def _show_imports() -> None:
    print("own us | with all | module")
    for name, own_us, all_us in slow_imports(IMPORTS_SHOWN):
        print(f"{own_us:6} | {all_us:8} | {name}")


if __name__ == "__main__":
    sys.exit(main())
