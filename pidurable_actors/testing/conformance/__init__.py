"""Conformance suites: what each implementation of a seam promises, as classes to subclass."""

import pytest

# Before the suites are imported, so that their assertions explain themselves as a test's do.
pytest.register_assert_rewrite(
    "pidurable_actors.testing.conformance._storage_commits",
    "pidurable_actors.testing.conformance._storage_documents",
    "pidurable_actors.testing.conformance._storage_history",
    "pidurable_actors.testing.conformance._storage_log",
    "pidurable_actors.testing.conformance._storage_ownership",
    "pidurable_actors.testing.conformance._storage_scans",
    "pidurable_actors.testing.conformance._storage_text",
)

from pidurable_actors.testing.conformance.storage import StorageConformance  # noqa: E402

__all__ = ["StorageConformance"]
