"""Pages and cursors: opaque, bound to their query, refused when malformed or foreign."""

from __future__ import annotations

import base64
import binascii
from typing import Final, Generic, TypeVar

import attrs

from pidurable_actors._json import JSON, decode_json, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import StorageRequestError

__all__ = ["Page", "check_limit", "read_cursor", "read_text_cursor", "write_cursor"]

T = TypeVar("T")

_MALFORMED: Final = "malformed cursor; start again without one."


@attrs.frozen
class Page(Generic[T]):
    """Part of a listing.

    Attributes:
        items: in the order of the listing.
        next_cursor: hand it to the same call for what follows; None at the end.
    """

    items: tuple[T, ...]
    next_cursor: str | None


def write_cursor(query: list[JSON], position: int | str) -> str:
    """A cursor for a query at a position."""
    return base64.urlsafe_b64encode(encode_json([query, position]).encode()).decode()


def read_cursor(cursor: str | None, query: list[JSON], start: int) -> int:
    """The number in a cursor of this query; `start` when there is no cursor.

    Raises:
        StorageRequestError: it is malformed or belongs to another query.
    """
    position = None if cursor is None else _position(cursor, query)
    if isinstance(position, str):
        raise StorageRequestError(_MALFORMED)
    return start if position is None else position


def read_text_cursor(cursor: str | None, query: list[JSON]) -> str | None:
    """The text in a cursor of this query; None when there is no cursor.

    Raises:
        StorageRequestError: it is malformed or belongs to another query.
    """
    position = None if cursor is None else _position(cursor, query)
    if isinstance(position, int):
        raise StorageRequestError(_MALFORMED)
    return position


def _position(cursor: str, query: list[JSON]) -> int | str:
    try:
        value = decode_json(base64.urlsafe_b64decode(cursor.encode()))
    except (binascii.Error, ValueError) as error:
        raise StorageRequestError(_MALFORMED) from error
    match value:
        case [found, int(position) | str(position)] if found == query:
            return position
        case [list(), int() | str()]:
            raise StorageRequestError(
                "the cursor belongs to another query; use it with the call that returned it."
            )
        case _:
            raise StorageRequestError(_MALFORMED)


def check_limit(limit: int) -> None:
    """Refuse a page size that is out of range.

    Raises:
        StorageRequestError: below 1 or above the page limit.
    """
    if not 1 <= limit <= LIMITS.page:
        raise StorageRequestError(f"limit must be between 1 and {LIMITS.page}, not {limit}.")
