"""The public conformance suite of a storage: subclass it, say how to make one, run pytest.

    class TestMyStorage(StorageConformance):
        def make_storage(self, tmp_path):
            return MyStorage(tmp_path / "session")

        def reopen(self, storage):
            return MyStorage(storage.path)

        def break_claim(self, storage):
            storage.lease.drop()

A backend is done when the suite passes with nothing skipped. Each test is one promise of
`pidurable_actors.storage.Storage`; where backends could differ, `MemoryStorage` is right. Crashes
of a process are not tried here: a backend on disk tests those with processes of its own.
"""

from __future__ import annotations

from pidurable_actors.testing.conformance._storage_commits import CommitPromises
from pidurable_actors.testing.conformance._storage_documents import DocumentPromises
from pidurable_actors.testing.conformance._storage_history import HistoryPromises
from pidurable_actors.testing.conformance._storage_log import LogPromises
from pidurable_actors.testing.conformance._storage_ownership import OwnershipPromises
from pidurable_actors.testing.conformance._storage_scans import ScanPromises
from pidurable_actors.testing.conformance._storage_text import TextPromises

__all__ = ["StorageConformance"]


class StorageConformance(
    OwnershipPromises,
    CommitPromises,
    DocumentPromises,
    HistoryPromises,
    LogPromises,
    ScanPromises,
    TextPromises,
):
    """Every promise of a storage. See the module for the three methods to override."""
