"""The command prints the rows that it promises; how fast anything is, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.catalogue import rows
from tests.benchmarks.children import ROOT
from tests.benchmarks.probes import FULL, QUICK, probes
from tests.benchmarks.rows import Goal, Reading, Results, Row, met, ratio

STEPS = Row(
    name="steps",
    what="steps",
    unit="steps/s",
    better="more",
    ours=Reading("ours", "rate"),
    others={"raw": Reading("raw", "rate"), "dbos": Reading("dbos", "rate")},
    goal=Goal(text="60 x DBOS, half of raw", times={"dbos": 60, "raw": 0.5}),
)
LATENESS = Row(
    name="late",
    what="lateness",
    unit="ms",
    better="less",
    ours=Reading("ours", "ms"),
    others={"raw": Reading("raw", "ms")},
    goal=Goal(text="at most 5", limit=5.0),
)


@pytest.mark.slow
def test_a_quick_run_prints_the_promised_rows(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.benchmarks", "--quick", "--only", "steps-one,raw"]
    done = subprocess.run(
        [*command, "--json", str(report), "--dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(report.read_text())["rows"]
    promised = [row for row in rows(QUICK) if row.name.startswith(("steps-one", "raw"))]
    assert [row["name"] for row in printed] == [row.name for row in promised]
    assert all(row["median"] > 0 for row in printed)
    assert all(row.what in done.stdout for row in promised)
    assert not list(tmp_path.glob("bench-*"))


def test_every_row_reads_a_probe_that_exists() -> None:
    for sizes in (FULL, QUICK):
        known = probes(sizes)
        assert {name for row in rows(sizes) for name in row.probes} <= set(known)


def test_names_of_rows_are_unique() -> None:
    names = [row.name for row in rows(FULL)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"ours": [{"rate": 600}], "raw": [{"rate": 1000}], "dbos": [{"rate": 10}]}, True),
        ({"ours": [{"rate": 600}], "raw": [{"rate": 1000}], "dbos": [{"rate": 11}]}, False),
        ({"ours": [{"rate": 600}], "raw": [{"rate": 1000}]}, True),
        ({"ours": [{"rate": 400}], "raw": [{"rate": 1000}]}, False),
        ({"ours": [{"rate": 600}]}, None),
        ({"raw": [{"rate": 1000}]}, None),
    ],
)
def test_a_goal_is_met_when_all_that_was_measured_of_it_is(
    results: Results, expected: bool | None
) -> None:
    assert met(STEPS, results) is expected


def test_a_ratio_says_how_many_times_better_ours_is() -> None:
    results: Results = {"ours": [{"rate": 30, "ms": 2}], "raw": [{"rate": 10, "ms": 8}]}
    assert ratio(STEPS, "raw", results) == pytest.approx(3)
    assert ratio(LATENESS, "raw", results) == pytest.approx(4)
    assert met(LATENESS, results) is True


def test_medians_of_the_rounds_are_compared() -> None:
    results: Results = {"ours": [{"ms": 1}, {"ms": 9}, {"ms": 4}]}
    assert met(LATENESS, results) is True
