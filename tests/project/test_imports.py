"""Importing is cheap: no driver, no vendor's library and no test tool comes along."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

from tests.project.checkout import NAME, doors

DRIVERS: Final = frozenset({"anthropic", "openai", "psycopg", "sqlite3"})
SERVERS: Final = frozenset({"trio_websocket", "wsproto", "http.server"})
TEST_TOOLS: Final = frozenset({"_pytest", "hypothesis", "pytest", "pytest_trio", "trio.testing"})
OWN_LATECOMERS: Final = frozenset({f"{NAME}.testing", f"{NAME}.cli", f"{NAME}.remote"})


def test_the_front_door_loads_no_driver_server_or_test_tool() -> None:
    forbidden = DRIVERS | SERVERS | TEST_TOOLS | OWN_LATECOMERS
    assert _loaded_by(NAME) & forbidden == set()


def test_what_the_check_looks_for_would_be_seen() -> None:
    assert "sqlite3" in _loaded_by("sqlite3")
    assert "trio.testing" in _loaded_by("trio.testing")


@pytest.mark.parametrize(
    ("adapter", "extra"),
    [
        ("models.anthropic", "anthropic"),
        ("models.openai", "openai"),
        ("storage.postgres", "psycopg"),
    ],
)
def test_an_adapter_loads_its_library_only_when_it_is_used(adapter: str, extra: str) -> None:
    module = f"{NAME}.{adapter}"
    if module in doors():
        assert extra not in _loaded_by(module)


def _loaded_by(module: str) -> set[str]:
    """The names in `sys.modules` of a new interpreter that imported `module` and nothing else."""
    program = f"import json, sys, {module}; json.dump(sorted(sys.modules), sys.stdout)"
    # Isolated: neither this process's path nor its environment variables take part.
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))
