"""Settings: what means nothing is refused, with the name of the field."""

from __future__ import annotations

import math
from typing import Any

from pytest import mark, raises

from pidurable_actors import Settings
from pidurable_actors.settings import ProgressSettings, RetrySettings, StreamSettings


def test_the_defaults_are_those_of_the_documentation() -> None:
    settings = Settings()
    assert (settings.restart_limit, settings.on_restart_limit) == (5, "end")
    assert (settings.commit_timeout_s, settings.close_grace_s) == (30, 10)
    assert settings.progress.persist_within_ms == 1_000


def test_limits_may_be_infinite() -> None:
    assert Settings(restart_limit=math.inf, commit_timeout_s=math.inf).restart_limit == math.inf


@mark.parametrize(
    ("kind", "values"),
    [
        (Settings, {"restart_limit": 0}),
        (Settings, {"restart_limit": math.nan}),
        (Settings, {"on_restart_limit": "retry"}),
        (Settings, {"commit_timeout_s": 0}),
        (Settings, {"close_grace_s": -1}),
        (Settings, {"tool_mode": "random"}),
        (Settings, {"follow_up_mode": "none"}),
        (Settings, {"steering_mode": "none"}),
        (RetrySettings, {"max_retries": -1}),
        (RetrySettings, {"jitter": 1.5}),
        (RetrySettings, {"base_s": -0.1}),
        (RetrySettings, {"cap_s": math.nan}),
        (ProgressSettings, {"persist_within_ms": -1}),
        (StreamSettings, {"idle_timeout_s": 0}),
    ],
)
def test_what_means_nothing_is_refused_by_name(kind: Any, values: dict[str, Any]) -> None:
    with raises(ValueError, match=next(iter(values))):
        kind(**values)
