"""The SQLite storage keeps every promise."""

from __future__ import annotations

from pathlib import Path

from pidurable_actors.storage import Storage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.conformance import StorageConformance


class TestSqliteStorage(StorageConformance):
    def make_storage(self, tmp_path: Path) -> SqliteStorage:
        return SqliteStorage(tmp_path / "agent.sqlite")

    def reopen(self, storage: Storage) -> SqliteStorage:
        return SqliteStorage(storage.name)

    def break_claim(self, storage: Storage) -> None:
        Path(f"{storage.name}.lock").unlink()


class TestSqliteStorageAgainstPowerLoss(TestSqliteStorage):
    def make_storage(self, tmp_path: Path) -> SqliteStorage:
        return SqliteStorage(tmp_path / "agent.sqlite", "power")
