"""What the built-in tasks need of the process: registry, models, settings, chance.

Handed to tasks by the harness under its own type; nothing here is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import attrs

from pidurable_actors._clock import Chance
from pidurable_actors._json import JsonObject
from pidurable_actors.agent._registry import Registry
from pidurable_actors.context import ContextKey
from pidurable_actors.models import Models
from pidurable_actors.session import StartableTask
from pidurable_actors.settings import Settings

__all__ = ["CALLER", "AgentServices", "CompactionInput", "CompactionReason", "GenerationInput"]

CompactionReason: TypeAlias = Literal["manual", "background", "threshold", "overflow"]
"""Why a compaction is made: asked for, in good time, before a request, after a refused one."""

CALLER: Final[ContextKey[JsonObject]] = ContextKey("caller")
"""Who a run works for: the `caller` stored with its first submission.

``api.context.get(CALLER)`` in a tool; None when that submission named no caller, whoever joins the
run later. The run of a conversation that a task owns works for whom that task works, unless its own
submission says otherwise.
"""


@attrs.frozen
class GenerationInput:
    """Input of ``pi.generation``: nothing; what it answers is in ``pi.live``."""


@attrs.frozen(kw_only=True)
class CompactionInput:
    """Input of ``pi.compaction``.

    Attributes:
        reason: why it is made.
        instructions: what the summary should heed, as whoever asked for it says.
    """

    reason: CompactionReason = "manual"
    instructions: str | None = None


@attrs.frozen(kw_only=True)
class AgentServices:
    """The process's side of agents.

    Attributes:
        registry: what is installed.
        models: the providers.
        settings: read live.
        chance: jitter and keys.
        generation: the task class that answers a run.
        compaction: the task class that summarizes.
    """

    registry: Registry
    models: Models
    settings: Callable[[], Settings]
    chance: Chance
    generation: StartableTask[GenerationInput]
    compaction: StartableTask[CompactionInput]
