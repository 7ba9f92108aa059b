"""How one shown live document becomes the next, told so that text only ever grows. Pure.

A commit stores progress that is partly shown already. Owns the operations that lead from what was
shown to what is shown then: text that grew is appended, blocks that came are appended one by one,
what is dropped from the front of an output is trimmed, and a half answer that is gone is emptied.
Whatever else differs follows as a plain difference, so the result is right in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from pidurable_actors._frozen import EMPTY_LIST, FrozenDict, FrozenList, FrozenText, Value
from pidurable_actors.records import (
    AppendText,
    Operation,
    Path,
    SetValue,
    SpliceList,
    TrimText,
    apply_operations,
    diff,
)

__all__ = ["live_difference"]

_PARTIAL: Final = ("generation", "partial")


def live_difference(before: Value, after: Value) -> list[Operation]:
    """Operations that lead from one live document to another.

    Args:
        before: what was shown.
        after: what is shown next.
    """
    if before is after:
        return []
    old, new = cast("FrozenDict", before), cast("FrozenDict", after)
    grown: list[Operation] = [*_half_answer(old, new), *_outputs(old, new)]
    return [*grown, *diff(apply_operations(old, grown), new)]


def _half_answer(old: FrozenDict, new: FrozenDict) -> Iterator[Operation]:
    if old["generation"] is None:
        return
    shown, coming = _blocks(old), _blocks(new)
    same = _task(old) == _task(new)
    if not same or not _continues(shown, coming):
        if shown:
            yield SpliceList(_PARTIAL, 0, len(shown), ())
        shown = EMPTY_LIST
    if same:
        yield from _grown(shown, coming)


def _continues(shown: FrozenList, coming: FrozenList) -> bool:
    """Whether each block that is shown is the beginning of the one that comes in its place."""
    return len(shown) <= len(coming) and all(
        one["type"] == other["type"]
        and one["id"] == other["id"]
        and one["name"] == other["name"]
        and str(other["text"]).startswith(str(one["text"]))
        for one, other in zip(_dicts(shown), _dicts(coming), strict=False)
    )


def _grown(shown: FrozenList, coming: FrozenList) -> Iterator[Operation]:
    for at, (one, other) in enumerate(zip(_dicts(shown), _dicts(coming), strict=False)):
        before, after = FrozenText.of(one["text"]), FrozenText.of(other["text"])
        if len(after) > len(before):
            yield AppendText((*_PARTIAL, at, "text"), after.since(len(before)))
        if one["signature"] != other["signature"]:
            yield SetValue((*_PARTIAL, at, "signature"), other["signature"])
    if len(coming) > len(shown):
        yield SpliceList(_PARTIAL, len(shown), 0, tuple(coming[len(shown) :]))


def _outputs(old: FrozenDict, new: FrozenDict) -> Iterator[Operation]:
    coming = cast("FrozenDict", new["tools"])
    for task, slot in cast("FrozenDict", old["tools"]).items():
        other = coming.get(task)
        if other is not None and other is not slot:
            yield from _output(("tools", task), cast("FrozenDict", slot), cast("FrozenDict", other))


def _output(path: Path, slot: FrozenDict, other: FrozenDict) -> Iterator[Operation]:
    before, after = FrozenText.of(slot["output"]), FrozenText.of(other["output"])
    gone, dropped = cast("int", slot["dropped"]), cast("int", other["dropped"])
    known, total = gone + len(before), dropped + len(after)
    if total < known or dropped < gone:
        return
    new = min(total - known, len(after))
    if new:
        yield AppendText((*path, "output"), after.since(len(after) - new))
    trimmed = len(before) + new - len(after)
    if trimmed > 0:
        yield TrimText((*path, "output"), trimmed)
    if dropped != gone:
        yield SetValue((*path, "dropped"), dropped)


def _blocks(live: FrozenDict) -> FrozenList:
    generation = cast("FrozenDict | None", live["generation"])
    return EMPTY_LIST if generation is None else cast("FrozenList", generation["partial"])


def _task(live: FrozenDict) -> Value:
    generation = cast("FrozenDict | None", live["generation"])
    return None if generation is None else generation["task_id"]


def _dicts(blocks: FrozenList) -> Iterator[FrozenDict]:
    return cast("Iterator[FrozenDict]", iter(blocks))
