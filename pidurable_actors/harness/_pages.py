"""Pages and cursors: opaque, bound to their query, refused when malformed or foreign."""

from __future__ import annotations

import base64
import binascii
from typing import Generic, TypeVar

import attrs

from pidurable_actors._json import JSON, decode_json, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import StorageRequestError

__all__ = ["Page", "check_limit", "read_cursor", "write_cursor"]

T = TypeVar("T")


@attrs.frozen
class Page(Generic[T]):
    """Part of a listing.

    Attributes:
        items: in the order of the listing.
        next_cursor: hand it to the same call for what follows; None at the end.
    """

    items: tuple[T, ...]
    next_cursor: str | None


def write_cursor(query: list[JSON], position: int) -> str:
    """A cursor for a query at a position."""
    return base64.urlsafe_b64encode(encode_json([query, position]).encode()).decode()


def read_cursor(cursor: str | None, query: list[JSON], start: int) -> int:
    """The position in a cursor of this query; `start` when there is no cursor.

    Raises:
        StorageRequestError: it is malformed or belongs to another query.
    """
    if cursor is None:
        return start
    try:
        value = decode_json(base64.urlsafe_b64decode(cursor.encode()))
    except (binascii.Error, ValueError) as error:
        raise StorageRequestError("malformed cursor; start again without one.") from error
    match value:
        case [found, int(position)] if found == query:
            return position
        case [list(), int()]:
            raise StorageRequestError(
                "the cursor belongs to another query; use it with the call that returned it."
            )
        case _:
            raise StorageRequestError("malformed cursor; start again without one.")


def check_limit(limit: int) -> None:
    """Refuse a page size that is out of range.

    Raises:
        StorageRequestError: below 1 or above the page limit.
    """
    if not 1 <= limit <= LIMITS.page:
        raise StorageRequestError(f"limit must be between 1 and {LIMITS.page}, not {limit}.")
