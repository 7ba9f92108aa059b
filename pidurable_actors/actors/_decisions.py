"""What to start: pure functions of a record, the time and what lives below it."""

from __future__ import annotations

from typing import Literal, TypeAlias, assert_never

from pidurable_actors.records import (
    Completing,
    Parked,
    Pending,
    Running,
    Sleeping,
    TaskRecord,
    Terminal,
    Waiting,
)

__all__ = ["Start", "blocked_by", "ended_badly", "startable"]

Start: TypeAlias = Literal["run", "abort"]


def startable(record: TaskRecord, *, now_ms: int, below: int) -> Start | None:
    """Whether the task may be reserved now, and for what.

    Args:
        record: the newest record.
        now_ms: durable time.
        below: how many live tasks it owns.

    Returns:
        ``"abort"`` for its abort handler, which waits until nothing lives below; ``"run"`` for its
        next phase; None when it has to wait, runs already, or has its outcome.
    """
    state = record.state
    if isinstance(state, (Completing, Terminal, Running)):
        return None
    if record.abort_requested:
        return "abort" if below == 0 else None
    match state:
        case Pending():
            return "run"
        case Sleeping():
            return "run" if state.until_ms <= now_ms else None
        case Waiting() | Parked():
            return None
        case _:
            assert_never(state)


def blocked_by(
    kind: str, version: int, installed: int | None, *, migrates: bool = False
) -> str | None:
    """Why tasks of a kind and stored version cannot run here; None when they can.

    Args:
        kind: the kind.
        version: the stored version.
        installed: the version of the installed class, None when there is none.
        migrates: whether that class takes older versions.
    """
    if installed is None:
        return f"task kind {kind!r} is not installed"
    if version > installed:
        return f"stored version {version} of {kind!r} is newer than the installed {installed}"
    if version < installed and not migrates:
        return (
            f"stored version {version} of {kind!r} is older than the installed {installed}, "
            "which has no migrate()"
        )
    return None


def ended_badly(state: Completing) -> bool:
    """Whether a held outcome ends the work below, too."""
    return state.outcome.status != "completed"
