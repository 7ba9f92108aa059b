"""Reports of built-in tasks to the host, each with its task and its conversation."""

from __future__ import annotations

from collections.abc import Sequence

from pidurable_actors.runtime import Report, ReportKind, Runtime

__all__ = ["tell", "tell_near"]


def tell(
    runtime: Runtime,
    kind: ReportKind,
    *,
    reason: str = "",
    detail: str = "",
    error: BaseException | None = None,
) -> None:
    """Tell the host of something; see `Report`."""
    runtime.tell(
        Report(
            kind=kind,
            reason=reason,
            detail=detail,
            error=error,
            task_id=runtime.task_id,
            conversation_id=runtime.conversation_id,
        )
    )


def tell_near(runtime: Runtime, near: Sequence[str]) -> None:
    """Tell the host of limits that are near."""
    for limit in near:
        tell(runtime, "budget_near", detail=limit)
