"""How long to wait before a model is asked again; pure but for the jitter it is given."""

from __future__ import annotations

from pidurable_actors._clock import Chance
from pidurable_actors.settings import RetrySettings

__all__ = ["backoff_ms", "may_retry"]


def may_retry(settings: RetrySettings, attempt: int) -> bool:
    """Whether the request may be sent again after its `attempt`-th try failed."""
    return settings.enabled and attempt <= settings.max_retries


def backoff_ms(
    settings: RetrySettings, attempt: int, chance: Chance, *, retry_after_s: float | None = None
) -> int:
    """Milliseconds to wait after the `attempt`-th try; never less than the provider asked for."""
    longest = min(settings.base_s * 2.0 ** (attempt - 1), settings.cap_s)
    wait_s = longest * (1 - chance.uniform(0, settings.jitter))
    return round(max(wait_s, retry_after_s or 0.0) * 1000)
