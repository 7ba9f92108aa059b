"""What the built-in tasks need of the process: registry, models, settings, chance.

Handed to tasks by the harness under its own type; nothing here is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

import attrs

from pidurable_actors._clock import Chance
from pidurable_actors._json import JsonObject
from pidurable_actors.agent._registry import Registry
from pidurable_actors.context import ContextKey
from pidurable_actors.models import Models
from pidurable_actors.records import ConversationId
from pidurable_actors.session import StartableTask
from pidurable_actors.settings import Settings

__all__ = [
    "CALLER",
    "AgentServices",
    "CompactionInput",
    "CompactionReason",
    "EnvTarget",
    "GenerationInput",
]

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
class EnvTarget:
    """What an environment is built for.

    Attributes:
        conversation_id: where the call was made.
        cwd: the working directory that the conversation chose; None when it chose none.
        tool_name: the tool that is called.
        call_id: the model's id of the call.
    """

    conversation_id: ConversationId
    cwd: str | None
    tool_name: str
    call_id: str


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
        env: builds the environment of a call; None when there are none.
    """

    registry: Registry
    models: Models
    settings: Callable[[], Settings]
    chance: Chance
    generation: StartableTask[GenerationInput]
    compaction: StartableTask[CompactionInput]
    env: Callable[[EnvTarget], Awaitable[object]] | None = None
