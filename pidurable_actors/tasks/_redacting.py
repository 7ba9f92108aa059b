"""Redaction: what a call puts out is rid of secrets before it is shown or stored.

Output is redacted line by line, because a secret that comes in two pieces would be seen in neither:
a line is held back until it is whole, or too long to wait for. What cannot be redacted is withheld.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, cast, final

import attrs

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.agent import ToolResult
from pidurable_actors.records import TextBlock
from pidurable_actors.settings import RedactedCall

__all__ = ["HELD_CHARS", "Redact", "Redactor"]

Redact = Callable[[str, RedactedCall], str]

HELD_CHARS: Final = 8_192
"""Characters of a line without an end that are held back; then they are redacted as they are."""

_WITHHELD: Final = "[withheld: it could not be redacted]"


@final
class Redactor:
    """Redacts what one call puts out.

    Args:
        functions: applied one after the other.
        call: which call it is, for them.
        report: told of what one of them raised.
    """

    def __init__(
        self,
        functions: Iterable[Redact | None],
        call: RedactedCall,
        report: Callable[[BaseException], None],
    ) -> None:
        self._functions = [function for function in functions if function is not None]
        self._call = call
        self._report = report
        self._held = ""

    def text(self, text: str) -> str:
        """A text that is whole."""
        for function in self._functions if text else ():
            try:
                redacted: object = function(text, self._call)
            except Exception as error:  # noqa: BLE001 - what cannot be redacted must not be shown
                self._report(error)
                return _WITHHELD
            if not isinstance(redacted, str):
                self._report(TypeError(f"redact returned {type(redacted).__name__}; return text"))
                return _WITHHELD
            text = redacted
        return text

    def output(self, chunk: str, *, final: bool = False) -> str:
        """What may be shown after another chunk of output.

        Args:
            chunk: as it came.
            final: nothing comes after it.
        """
        if not self._functions:
            return chunk
        text = self._held + chunk
        whole = text.rfind("\n") + 1
        if final or len(text) - whole > HELD_CHARS:
            whole = len(text)
        self._held = text[whole:]
        return self.text(text[:whole])

    def result(self, result: ToolResult) -> ToolResult:
        """A result without secrets in its texts, details and diagnostics."""
        if not self._functions:
            return result
        return attrs.evolve(
            result,
            content=tuple(
                TextBlock(text=self.text(block.text)) if isinstance(block, TextBlock) else block
                for block in result.content
            ),
            details=self.json(result.details),
            diagnostics=tuple(cast(JsonObject, self.json(it)) for it in result.diagnostics),
            handoff=None if result.handoff is None else self.text(result.handoff),
        )

    def json(self, value: JSON) -> JSON:
        """JSON with its texts redacted; keys are names, and stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.json(item) for item in value]
        if isinstance(value, dict):
            return {key: self.json(item) for key, item in value.items()}
        return value
