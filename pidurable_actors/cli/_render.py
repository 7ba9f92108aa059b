"""What a person sees: headings, labelled steps, tables and commands, as wide as the terminal is.

Owns every escape sequence. It writes ASCII only, so that any terminal and any file can take it, and
colour only where someone looks: on a terminal, unless `NO_COLOR` says otherwise.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TextIO, TypeAlias, final

__all__ = ["Cell", "Screen", "Style", "table_lines"]

Style: TypeAlias = Literal["plain", "bold", "good", "bad", "effect", "faint"]
Cell: TypeAlias = str | int | None

_CODES: Final[Mapping[Style, str]] = {
    "plain": "",
    "bold": "1",
    "good": "32",
    "bad": "1;31",
    "effect": "33",
    "faint": "2",
}
_WIDTH_MIN: Final = 24
_WIDTH_MAX: Final = 88
_LABEL: Final = 12
_INDENT: Final = "  "


@final
class Screen:
    """Writes paragraphs to a stream and flushes each, so that a person can follow.

    Args:
        stream: where to write.
        width: columns; clamped to what can be read.
        colour: whether escape sequences may be written.
    """

    def __init__(self, stream: TextIO, *, width: int, colour: bool) -> None:
        self._stream = stream
        self._width = min(max(width, _WIDTH_MIN), _WIDTH_MAX)
        self._colour = colour
        self._begun = False

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str]) -> Screen:
        """A screen that suits a stream: its width, and colour on a terminal without `NO_COLOR`."""
        plain = environment.get("NO_COLOR", "") != "" or environment.get("TERM") == "dumb"
        width = shutil.get_terminal_size().columns
        return cls(stream, width=width, colour=stream.isatty() and not plain)

    def heading(self, text: str) -> None:
        """A line that begins a part, with a blank line between it and what came before."""
        if self._begun:
            self._write("")
        self._write_wrapped(text, style="bold")

    def paragraph(self, text: str) -> None:
        """Text at the left edge."""
        self._write_wrapped(text)

    def step(self, label: str, text: str, style: Style = "plain") -> None:
        """One thing that happened: a short coloured label, and what it was."""
        first = f"{_INDENT}{label:<{_LABEL}}"
        lines = self._wrap(text, first=first, rest=" " * len(first))
        lines[0] = lines[0].replace(label, self._paint(label, style), 1)
        for line in lines:
            self._write(line)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Rows in columns, or one field below the other where the terminal is too narrow."""
        first, *rest = table_lines(head, rows, width=self._width - len(_INDENT))
        self._write(_INDENT + self._paint(first, "faint"))
        for line in rest:
            self._write(f"{_INDENT}{line}".rstrip())

    def command(self, text: str) -> None:
        """A command to copy: never wrapped."""
        self._write(_INDENT + text)

    def _write_wrapped(self, text: str, style: Style = "plain") -> None:
        for line in self._wrap(text):
            self._write(self._paint(line, style))

    def _wrap(self, text: str, *, first: str = "", rest: str = "") -> list[str]:
        return textwrap.wrap(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
        )

    def _paint(self, text: str, style: Style) -> str:
        code = _CODES[style]
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text

    def _write(self, line: str) -> None:
        self._begun = True
        print(line, file=self._stream, flush=True)


def table_lines(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, width: int) -> list[str]:
    """The lines of a table; an empty cell is a dash."""
    texts = [[("-" if cell is None else str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    if rows and sum(widths) + 2 * (len(widths) - 1) > width:
        return _stacked(head, texts)
    return [
        "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
        for line in ([*head], *texts)
    ]


def _stacked(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    size = max(map(len, head))
    lines = [""]
    for row in rows:
        lines += [f"{name:<{size}}  {cell}" for name, cell in zip(head, row, strict=True)]
        lines.append("")
    return lines[1:-1]
