"""What one durable commit tells the world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs

from pidurable_actors.records import Batch, CommitNumber

__all__ = ["CommitWitness", "Publication"]


@attrs.frozen
class Publication:
    """A commit that storage has.

    Attributes:
        batch: its changes, in order, each with its record.
        values: the values of the context that committed it, without its cancellation.
    """

    batch: Batch
    values: Mapping[object, object]


class CommitWitness(Protocol):
    """Told of each commit at the moments that a promise is about; must not raise."""

    def published(self, publication: Publication) -> None:
        """The commit is shown to whoever looks."""
        ...

    def acknowledged(self, number: CommitNumber) -> None:
        """The caller of commit `number` goes on."""
        ...
