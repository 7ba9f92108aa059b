"""What a call of a tool may use: reserved with its intent, or the call is not run."""

from __future__ import annotations

import math

from pidurable_actors.agent import (
    Agent,
    AgentServices,
    Granted,
    Limit,
    Need,
    Refused,
    Tool,
    reserve,
    tokens_of,
    wall_limit,
)
from pidurable_actors.records import Usage
from pidurable_actors.runtime import Runtime
from pidurable_actors.session import Tx

__all__ = ["call_time_s", "reserve_call", "wall_of"]


async def reserve_call(tx: Tx, runtime: Runtime, agent: Agent, tool: Tool) -> Granted | Refused:
    """Reserve what a call may use, in the commit that stores its intent.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    wanted = tool.reserve or Usage()
    need = Need(tokens=tokens_of(wanted), cost=wanted.cost)
    return await reserve(tx, runtime.service(AgentServices), agent, runtime.task_id, need)


async def wall_of(runtime: Runtime, agent: Agent) -> Limit | None:
    """The limit of time that comes first, for a call whose intent an earlier run stored.

    Durability: stores nothing.

    Cancellation: nothing happened.
    """
    services = runtime.service(AgentServices)
    return await runtime.look(lambda tx: wall_limit(tx, services, agent))


def call_time_s(runtime: Runtime, tool: Tool, wall: Limit | None) -> float | None:
    """How long a call may take, in seconds: by its deadline and by the budgets; None for ever."""
    own_s = tool.timeout_s or runtime.settings.tool_timeout_s
    left_s = min(math.inf if own_s is None else own_s, math.inf if wall is None else wall.left)
    return None if left_s == math.inf else max(left_s, 0.0)
