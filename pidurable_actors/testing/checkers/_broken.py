"""How a broken promise is told: which check, what was seen, what was promised.

Owns the form of the text and nothing else. The invariant: the first word names the check, so that
a person finds its module and a test knows who spoke.
"""

from __future__ import annotations

__all__ = ["broken"]


def broken(check: str, promise: str, seen: str) -> AssertionError:
    """The error that a check raises.

    Args:
        check: its name.
        promise: what was promised, in one sentence without a full stop.
        seen: what was seen instead, with ids.
    """
    return AssertionError(f"{check}: {seen}\n  promised: {promise}")
