"""The house style, as far as a program can see it.

Each rule is a function from one module to its offences, so that the rule itself can be tested on a
few lines; the tests run every rule over every module and show all offences at once.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.project.checkout import NAME, ROOT, listed, parse, sources
from tests.project.rules import (
    Rule,
    broad_excepts,
    clocks_and_chance,
    escapes,
    long_bodies,
    long_tests_without_goal,
    oversized,
    unfinished,
    without_docstring,
)

EXAMPLE_LINES: Final = 80
TOP_LEVEL: Final = frozenset({"pyproject.toml", "README.md", "LICENSE", NAME, "tests", "examples"})
GENERATED: Final = re.compile(r"__pycache__|.*\.egg-info|build|dist|.*\.sqlite.*")
ONE_MACHINE: Final = re.compile(r"(?<![\w.~])/(?:tmp|root|home|work)/")


def test_modules_stay_small() -> None:
    _hold(oversized, NAME, "examples")


def test_examples_fit_on_a_page() -> None:
    long = [
        f"{source.path}: {lines} lines, an example has at most {EXAMPLE_LINES}"
        for source in sources("examples")
        if (lines := len(source.text.splitlines())) > EXAMPLE_LINES
    ]
    assert not long, listed(long)


def test_function_bodies_stay_short() -> None:
    _hold(long_bodies, NAME, "examples")


def test_a_long_test_starts_with_its_goal() -> None:
    _hold(long_tests_without_goal, "tests")


def test_every_module_says_what_it_is() -> None:
    _hold(without_docstring, NAME, "examples", "tests")


def test_nothing_is_left_unfinished() -> None:
    _hold(unfinished, NAME, "examples")


def test_time_and_chance_are_read_in_one_place() -> None:
    _hold(clocks_and_chance, NAME)


def test_nothing_is_mocked_slept_or_skipped() -> None:
    _hold(escapes, NAME, "examples", "tests")


def test_every_broad_except_has_a_reason() -> None:
    _hold(broad_excepts, NAME, "examples", "tests")


def test_no_file_names_a_path_of_one_machine() -> None:
    offenders = [
        f"{path}:{number}: {line.strip()}"
        for path in _files()
        for number, line in enumerate(_text(ROOT / path).splitlines(), 1)
        if ONE_MACHINE.search(line)
    ]
    assert not offenders, listed(offenders)


def test_the_top_level_is_fixed() -> None:
    top = {path.parts[0] for path in _files()}
    strangers = {name for name in top - TOP_LEVEL if not name.startswith(".")}
    assert not strangers, f"not in the plan of the top level: {sorted(strangers)}"


CASES: Final[list[tuple[str, Rule, str, int]]] = [
    ("a module past the stop", oversized, '"""M."""\n' + "x = 1\n" * 400, 1),
    (
        "past the stop, with its reason",
        oversized,
        '"""M.\n\nSize: one table.\n"""\n' + "x = 1\n" * 400,
        0,
    ),
    (
        "past the wall, with its reason",
        oversized,
        '"""M.\n\nSize: one table.\n"""\n' + "x = 1\n" * 600,
        1,
    ),
    (
        "a body of 50 lines",
        long_bodies,
        'def f():\n    """D.\n\n    E.\n    """\n' + "    x = 1\n" * 50,
        0,
    ),
    ("a body of 51 lines", long_bodies, "async def f():\n" + "    x = 1\n" * 51, 1),
    (
        "a long test",
        long_tests_without_goal,
        "def test_f():\n" + "    x = 1\n" * 41,
        1,
    ),
    (
        "a long test with a goal",
        long_tests_without_goal,
        'def test_f():\n    """G."""\n' + "    x = 1\n" * 41,
        0,
    ),
    ("no docstring", without_docstring, "x = 1\n", 1),
    ("an empty file", without_docstring, "", 0),
    (
        "unfinished",
        unfinished,
        "x = 1  # TODO: y\nraise NotImplementedError\n",
        2,
    ),
    ("a clock", clocks_and_chance, "import time\nfrom random import Random\n", 2),
    (
        "a mock",
        escapes,
        "from unittest.mock import Mock\nfrom unittest import mock\n",
        2,
    ),
    ("a sleep", escapes, "import time\ntime.sleep(1)\n", 1),
    ("a sleep by its name", escapes, "from time import sleep\n", 1),
    ("a patch", escapes, "def test_f(monkeypatch): pass\n", 1),
    ("a skip", escapes, "@pytest.mark.skipif(True)\ndef test_f(): pass\n", 1),
    ("bare", broad_excepts, "try:\n    f()\nexcept:\n    pass\n", 1),
    (
        "broad",
        broad_excepts,
        "try:\n    f()\nexcept (OSError, Exception) as e:\n    pass\n",
        1,
    ),
    (
        "a broad group",
        broad_excepts,
        "try:\n    f()\nexcept* BaseException:\n    pass\n",
        1,
    ),
    (
        "silenced only",
        broad_excepts,
        "try:\n    f()\nexcept Exception:  # noqa: BLE001\n    pass\n",
        1,
    ),
    (
        "silenced with a reason",
        broad_excepts,
        "try:\n    f()\nexcept Exception:  # noqa: BLE001 - user code\n    pass\n",
        0,
    ),
    (
        "a reason above",
        broad_excepts,
        "try:\n    f()\n# User code fails alone.\nexcept Exception:\n    pass\n",
        0,
    ),
    ("narrow", broad_excepts, "try:\n    f()\nexcept OSError:\n    pass\n", 0),
]


@pytest.mark.parametrize(
    ("rule", "text", "count"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_the_rules_find_what_they_are_for(rule: Rule, text: str, count: int) -> None:
    found = list(rule(parse(text, f"{NAME}.sample")))
    assert len(found) == count, found


def test_a_path_of_one_machine_is_known_by_its_root() -> None:
    assert ONE_MACHINE.search('open("/' + 'tmp/x")')
    assert not ONE_MACHINE.search("tests/work/x https://host/home/ ~/work/")


def _hold(rule: Rule, *folders: str) -> None:
    offenders = [
        offence for folder in folders for source in sources(folder) for offence in rule(source)
    ]
    assert not offenders, listed(offenders)


def _files() -> list[Path]:
    """The files of the project: those git knows; without git, all that is not generated."""
    git = shutil.which("git")
    if git and (ROOT / ".git").exists():
        # A checkout may belong to another user than the one who tests it.
        command = [git, "-c", "safe.directory=*", "ls-files", "-z"]
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        return [
            Path(name) for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()
        ]
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return [path for path in found if not any(_is_generated(part) for part in path.parts)]


def _is_generated(part: str) -> bool:
    return (part.startswith(".") and part != ".ci") or GENERATED.fullmatch(part) is not None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
