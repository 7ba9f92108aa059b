"""Reports: what the runtime tells its host about trouble that it has dealt with.

A report never asks for an answer. A handler that raises is itself logged and never does harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, final

import attrs

from pidurable_actors.records import ConversationId, TaskId

__all__ = ["Report", "ReportKind", "Reporter"]

_log: Final = logging.getLogger("pidurable_actors")
# Quiet unless the host configures logging: without a handler of ours Python prints warnings itself.
_log.addHandler(logging.NullHandler())

ReportKind: TypeAlias = Literal[
    "task_faulted",
    "task_interrupted",
    "task_parked",
    "task_blocked",
    "budget_near",
    "hook_failed",
    "handler_failed",
    "callback_slow",
    "storage_failed",
    "close_held",
]


@attrs.frozen(kw_only=True)
class Report:
    """One thing that happened.

    Attributes:
        kind: what.
        reason: a short word for programs, such as ``restart_limit``; empty when `kind` says it all.
        detail: a sentence or a stack for people.
        error: the exception, when there is one.
        task_id: the task it is about.
        conversation_id: the conversation it is about.
    """

    kind: ReportKind
    reason: str = ""
    detail: str = ""
    error: BaseException | None = None
    task_id: TaskId | None = None
    conversation_id: ConversationId | None = None


@final
class Reporter:
    """Hands reports to the host's handler, and to `logging` when that fails or is missing."""

    __slots__ = ("_handler",)

    def __init__(self, handler: Callable[[Report], object] | None) -> None:
        self._handler = handler

    def __call__(self, report: Report) -> None:
        """Deliver one report; raises nothing but what ends the process."""
        _log.log(
            logging.INFO if report.kind in ("task_blocked", "callback_slow") else logging.WARNING,
            "%s task=%s conversation=%s %s %s",
            report.kind,
            report.task_id,
            report.conversation_id,
            report.reason,
            report.detail,
        )
        if self._handler is None:
            return
        try:
            self._handler(report)
        except Exception:  # noqa: BLE001 - a host's handler must not harm what it is told about
            _log.exception("on_report raised for %s", report.kind)
