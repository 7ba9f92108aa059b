"""What a phase returns: the next step, or the end. Plain values; returning one does nothing yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import attrs

from pidurable_actors._json import JSON
from pidurable_actors.records import TaskId, WaitPolicy

__all__ = [
    "Aborted",
    "Checkpoint",
    "Completed",
    "Continue",
    "Failed",
    "Next",
    "Outcome",
    "SleepUntil",
    "WaitFor",
]

R = TypeVar("R")


class Checkpoint:
    """Base of checkpoint classes: ``@attrs.frozen class Tick(Checkpoint, phase="tick")``.

    A checkpoint names the step to enter next and carries what that step needs to know. It is stored
    as its fields beside ``"phase"``; the name is written out, because it is part of stored data.
    """

    __slots__ = ()
    phase_name: ClassVar[str] = ""

    def __init_subclass__(cls, *, phase: str | None = None) -> None:
        # attrs makes slotted classes twice, the second time without the keyword.
        if phase is not None:
            cls.phase_name = phase


@attrs.frozen
class Continue:
    """Go on at once with the phase of `checkpoint`, which must differ from the present one."""

    checkpoint: Checkpoint


@attrs.frozen
class SleepUntil:
    """Sleep, without code or process, until `when_ms` (epoch milliseconds); then `checkpoint`."""

    when_ms: int
    checkpoint: Checkpoint


@attrs.frozen
class WaitFor:
    """Wait, without code, until `tasks` have ended; then `checkpoint`.

    `policy` ``"fail_fast"`` (own children only) also aborts the others when one does not complete.
    """

    tasks: Sequence[TaskId]
    checkpoint: Checkpoint
    policy: WaitPolicy = "all_settled"


@attrs.frozen
class Completed(Generic[R]):
    """The end, with a result."""

    result: R = None  # type: ignore[assignment]


@attrs.frozen
class Failed:
    """The end that the task itself calls a failure. It can be tried again with `retry_task`."""

    error: JSON
    result: JSON = None


@attrs.frozen
class Aborted:
    """The end of a task that was stopped, or that stopped itself."""

    reason: str = ""


Outcome: TypeAlias = Completed[Any] | Failed | Aborted
"""What an abort handler returns."""

Next: TypeAlias = Continue | SleepUntil | WaitFor | Completed[R] | Failed | Aborted
"""What a phase returns: ``async def tick(self, at: Tick) -> Next[str]``."""
