"""What a backend tells the suite about itself, and the fixtures that the promises use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidurable_actors.storage import Storage
from pidurable_actors.testing.conformance._scribe import Scribe

__all__ = ["StorageHooks"]


class StorageHooks(ABC):
    """Override the first three methods."""

    @abstractmethod
    def make_storage(self, tmp_path: Path) -> Storage:
        """A new, empty, closed storage; `tmp_path` is a directory for this test alone."""

    @abstractmethod
    def reopen(self, storage: Storage) -> Storage:
        """Another closed object for the place of `storage`, as a second process would make it."""

    @abstractmethod
    def break_claim(self, storage: Storage) -> None:
        """Make the place of an open storage free without its knowledge.

        As an expired lease or a deleted lock file would: the next open succeeds and `storage` goes
        on believing that it is the owner.
        """

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        """A new storage, closed again after the test."""
        storage = self.make_storage(tmp_path)
        yield storage
        storage.close()

    @pytest.fixture
    def scribe(self, storage: Storage) -> Scribe:
        """The owner of a new storage."""
        return Scribe.open(storage)
