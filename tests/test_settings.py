"""Settings: what means nothing is refused, with the name of the field."""

from __future__ import annotations

import math
from typing import Any

from pytest import mark, raises

from pidurable_actors import Budget, BudgetSettings, CompactionSettings, Selection, Settings
from pidurable_actors.errors import InvalidValue
from pidurable_actors.settings import (
    AgentChoice,
    ProgressSettings,
    RedactedCall,
    RetrySettings,
    StreamSettings,
)


async def _redact(text: str, call: RedactedCall) -> str:
    return text


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
        (Settings, {"tool_timeout_s": 0}),
        (Settings, {"commit_log": True}),
        (Settings, {"restart_limit": "5"}),
        (Settings, {"agent": "scripted/demo"}),
        (Settings, {"budget": Budget(turns=1)}),
        (Settings, {"compaction": False}),
        (Settings, {"retry": 3}),
        (Settings, {"progress": 0}),
        (Settings, {"stream": 5}),
        (Settings, {"redact": "secret"}),
        (Settings, {"redact": _redact}),
        (Budget, {"tokens": 0}),
        (Budget, {"tokens": "5"}),
        (Budget, {"turns": 1.5}),
        (Budget, {"turns": True}),
        (Budget, {"turns": math.inf}),
        (Budget, {"cost": -0.1}),
        (Budget, {"wall_s": math.nan}),
        (BudgetSettings, {"run": 5}),
        (BudgetSettings, {"conversation": None}),
        (BudgetSettings, {"near": 80}),
        (CompactionSettings, {"max_tries": 0}),
        (CompactionSettings, {"models": [1]}),
        (AgentChoice, {"budget": Budget(turns=1)}),
    ],
)
def test_what_means_nothing_is_refused_by_name(kind: Any, values: dict[str, Any]) -> None:
    with raises(InvalidValue) as refused:
        kind(**values)
    assert refused.value.path == next(iter(values))


def test_a_thing_in_the_place_of_its_name_is_refused_with_what_to_give_instead() -> None:
    with raises(InvalidValue, match="names are texts, and a Settings is none; give its name"):
        Selection([Settings()])  # type: ignore[list-item]
    with raises(InvalidValue, match="not empty"):
        Selection([""])
