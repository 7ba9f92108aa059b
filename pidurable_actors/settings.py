"""Run policy that a host chooses. Plain frozen values, read when a decision is made.

Every unit is in the name. The defaults are safe for a service with one process.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs
from attrs import validators

__all__ = [
    "ProgressSettings",
    "RetrySettings",
    "Settings",
    "StreamSettings",
]


def _positive(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name} must be greater than 0, not {value!r}")


def _not_negative(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{attribute.name} must be 0 or more, not {value!r}")


def _share(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{attribute.name} must be between 0 and 1, not {value!r}")


@attrs.frozen(kw_only=True)
class RetrySettings:
    """How failed model requests are tried again.

    Wait n is ``base_s * 2**(n-1)``, at most `cap_s`, less up to `jitter` of itself.
    """

    enabled: bool = True
    max_retries: int = attrs.field(default=3, validator=_not_negative)
    base_s: float = attrs.field(default=2.0, validator=_not_negative)
    cap_s: float = attrs.field(default=60.0, validator=_not_negative)
    jitter: float = attrs.field(default=0.25, validator=_share)


@attrs.frozen(kw_only=True)
class ProgressSettings:
    """How streaming output is shown and stored.

    It is shown provisionally, at most every `interval_ms` and when a stream ends, and stored within
    `persist_within_ms`. With ``persist_within_ms=0`` every piece is stored before it is shown.
    """

    interval_ms: int = attrs.field(default=50, validator=_not_negative)
    persist_within_ms: int = attrs.field(default=1_000, validator=_not_negative)


@attrs.frozen(kw_only=True)
class StreamSettings:
    """When a silent model stream counts as dropped."""

    idle_timeout_s: float = attrs.field(default=120.0, validator=_positive)


@attrs.frozen(kw_only=True)
class Settings:
    """The policy of one harness.

    Attributes:
        restart_limit: how often a task may be cut off without progress before it is not run again;
            ``math.inf`` for no limit.
        on_restart_limit: ``"end"`` ends such a task, ``"park"`` keeps it for `retry_task`.
        commit_log: how many commits stay readable, in order, as `Harness.commits`; 0 for none.
        commit_timeout_s: real seconds after which a storage that has not answered counts as failed.
        close_grace_s: seconds after which a close reports what still holds it.
        tool_timeout_s: deadline of a tool call that declares none, in seconds.
        tool_mode: ``"parallel"`` runs the calls of one round together, ``"sequential"`` in order.
        follow_up_mode: how many queued inputs start the next run, ``"one"`` or ``"all"``.
        steering_mode: how many steering inputs join a run at one boundary.
    """

    restart_limit: float = attrs.field(default=5, validator=_positive)
    on_restart_limit: Literal["end", "park"] = attrs.field(
        default="end", validator=validators.in_(("end", "park"))
    )
    commit_log: int = attrs.field(default=10_000, validator=_not_negative)
    commit_timeout_s: float = attrs.field(default=30.0, validator=_positive)
    close_grace_s: float = attrs.field(default=10.0, validator=_not_negative)
    retry: RetrySettings = RetrySettings()
    progress: ProgressSettings = ProgressSettings()
    stream: StreamSettings = StreamSettings()
    tool_timeout_s: float | None = None
    tool_mode: Literal["parallel", "sequential"] = attrs.field(
        default="parallel", validator=validators.in_(("parallel", "sequential"))
    )
    follow_up_mode: Literal["one", "all"] = attrs.field(
        default="one", validator=validators.in_(("one", "all"))
    )
    steering_mode: Literal["one", "all"] = attrs.field(
        default="one", validator=validators.in_(("one", "all"))
    )
