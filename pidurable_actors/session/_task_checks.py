"""What a transaction refuses of tasks: owners that may own no more, memos that cannot be kept."""

from __future__ import annotations

from pidurable_actors._json import JSON, check_json, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import InvalidValue, TaskRefused
from pidurable_actors.records import TaskId, TaskRecord
from pidurable_actors.session._state import TaskSlot

__all__ = ["check_owner", "memo_text"]


def check_owner(owner: TaskId, found: TaskRecord | TaskSlot | None) -> TaskRecord | TaskSlot:
    """Refuse an owner of new work that cannot have any.

    Args:
        owner: its id.
        found: its newest record, or its index row; None when it is not live.

    Returns:
        What was found.

    Raises:
        TaskRefused: it is missing, ending or abort-marked.
    """
    status = found.state.status if isinstance(found, TaskRecord) else found and found.status
    if found is None or status in ("completing", "terminal"):
        raise TaskRefused(f"task {owner} is ending or missing; it can own no new work.", owner)
    if found.abort_requested:
        raise TaskRefused(f"task {owner} is being aborted; it can own no new work.", owner)
    return found


def memo_text(name: str, value: JSON) -> str:
    """The stored text of a new memo.

    Raises:
        InvalidValue: not strict JSON, a bad name, or larger than a memo may be.
    """
    path = f"memo[{name!r}]"
    if not name or len(name) > LIMITS.name_length:
        raise InvalidValue(path, f"a memo's name has 1 to {LIMITS.name_length} characters")
    check_json(name, f"the name of {path}")
    check_json(value, path)
    text = encode_json(value)
    size = len(text.encode())
    if size > LIMITS.memo_bytes:
        raise InvalidValue(path, f"{size:,} bytes; a memo holds {LIMITS.memo_bytes:,}")
    return text
