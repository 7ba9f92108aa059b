"""The table, as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.rows import COLUMNS, Cell, Results, Row, met, ratio

__all__ = ["NOTE", "as_json", "as_text"]

NOTE = (
    "Times depend on the machine and on what else it does: compare ratios of one run. A ratio says\n"
    "how many times better ours is; more than 1 is better. raw: SQLite alone; for\n"
    "growth ours beside few; for lateness a ticker beside one busy task."
)
_HEADS = ("what", "ours", "unit", "raw", "ratio", "DBOS", "ratio", "LangGraph", "ratio", "goal")


def as_text(rows: Sequence[Row], results: Results) -> str:
    """The rows in aligned columns."""
    lines = [(*_HEADS, "met"), *(_line(row, results) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    texts = [
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([texts[0], "-+-".join("-" * width for width in widths), *texts[1:]])


def as_json(rows: Sequence[Row], results: Results) -> list[dict[str, object]]:
    """The rows with every round."""
    return [_record(row, results) for row in rows]


def _line(row: Row, results: Results) -> tuple[str, ...]:
    cells = [row.what, _number(Cell.of(row.ours, results)), row.unit]
    for column in COLUMNS:
        found = ratio(row, column, results)
        cells.append(_number(Cell.of(row.others.get(column), results)))
        cells.append("-" if found is None else f"{found:.2f}")
    cells.append("-" if row.goal is None else row.goal.text)
    cells.append({True: "yes", False: "no", None: "-"}[met(row, results)])
    return tuple(cells)


def _record(row: Row, results: Results) -> dict[str, object]:
    ours = Cell.of(row.ours, results)
    others: dict[str, object] = {}
    for column, reading in row.others.items():
        cell = Cell.of(reading, results)
        if cell is not None:
            others[column] = {
                "median": cell.median,
                "rounds": cell.rounds,
                "ratio": ratio(row, column, results),
            }
    return {
        "name": row.name,
        "what": row.what,
        "unit": row.unit,
        "better": row.better,
        "median": None if ours is None else ours.median,
        "rounds": [] if ours is None else ours.rounds,
        "others": others,
        "goal": None if row.goal is None else row.goal.text,
        "met": met(row, results),
    }


def _number(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    size = abs(cell.median)
    if size >= 100:
        return f"{cell.median:,.0f}"
    return f"{cell.median:.1f}" if size >= 10 else f"{cell.median:.3g}"
