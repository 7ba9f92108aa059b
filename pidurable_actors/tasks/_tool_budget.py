"""What a call of a tool may use: reserved with its intent, or the call is not run."""

from __future__ import annotations

import math

from pidurable_actors.agent import (
    Agent,
    AgentServices,
    Granted,
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

__all__ = ["call_time_s", "reserve_call"]


async def reserve_call(tx: Tx, runtime: Runtime, agent: Agent, tool: Tool) -> Granted | Refused:
    """Reserve what a call may use, in the commit that stores its intent.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    wanted = tool.reserve or Usage()
    need = Need(tokens=tokens_of(wanted), cost=wanted.cost)
    return await reserve(tx, runtime.service(AgentServices), agent, runtime.task_id, need)


async def call_time_s(runtime: Runtime, agent: Agent, tool: Tool) -> float | None:
    """How long a call may take, in seconds: by its deadline and by the budgets; None for ever.

    Durability: stores nothing.

    Cancellation: nothing happened.
    """
    own_s = tool.timeout_s or runtime.settings.tool_timeout_s
    services = runtime.service(AgentServices)
    wall = await runtime.look(lambda tx: wall_limit(tx, services, agent))
    left_s = min(math.inf if own_s is None else own_s, math.inf if wall is None else wall.left)
    return None if left_s == math.inf else max(left_s, 0.0)
