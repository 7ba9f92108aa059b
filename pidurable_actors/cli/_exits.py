"""How a command ends: the documented exit codes, and the error that carries one.

Invariant: whatever goes wrong is told in one sentence on standard error and one of these codes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import final

__all__ = ["CommandError", "Exit"]


class Exit(IntEnum):
    """Exit codes, the same for every verb; the last two are what shells use for signals."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130
    READER_GONE = 141


@final
class CommandError(Exception):
    """A command cannot do what it was asked to; the text is one sentence for a person.

    Attributes:
        exit: the code to end with.
    """

    def __init__(self, sentence: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(sentence)
        self.exit = code
