"""The storages that every promise of these tests is kept on."""

from __future__ import annotations

from pathlib import Path

from pytest import FixtureRequest, fixture

from tests.documents.kit import Place, memory_place, sqlite_place


@fixture(params=["memory", "sqlite"])
def place(request: FixtureRequest, tmp_path: Path) -> Place:
    """A storage as the next process finds it."""
    return memory_place() if request.param == "memory" else sqlite_place(tmp_path / "agent.sqlite")
