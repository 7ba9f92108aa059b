"""What one durable commit tells the world."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from pidurable_actors.records import Batch

__all__ = ["Publication"]


@attrs.frozen
class Publication:
    """A commit that storage has.

    Attributes:
        batch: its changes, in order, each with its record.
        values: the values of the context that committed it, without its cancellation.
    """

    batch: Batch
    values: Mapping[object, object]
