"""Leaving a choice as it is, as opposed to clearing it."""

from __future__ import annotations

__all__ = ["UNSET", "Unset"]


class Unset:
    """The type of `UNSET`: leave a choice as it is, as opposed to None, which clears it."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()
