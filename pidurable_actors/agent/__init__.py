"""Agents: tools, extensions, the registry, runs and the inbox."""

from pidurable_actors.agent._documents import (
    AGENT,
    INBOX,
    LIVE,
    PROVIDER,
    USAGE,
    AgentState,
    GenerationState,
    InboxItem,
    InboxState,
    LiveState,
    ProviderState,
    RunFailure,
    RunState,
    ToolSlot,
    UsageState,
    UsageTotals,
)
from pidurable_actors.agent._new import (
    check_agent,
    new_conversation,
)
from pidurable_actors.agent._registry import (
    Extension,
    Registry,
)
from pidurable_actors.agent._runs import (
    admit_submission,
    answer_run,
    fail_run,
    place_steering,
    place_writes,
    withdraw,
    withdraw_inputs,
)
from pidurable_actors.agent._schema import (
    ArgumentsInvalid,
    ToolSignature,
    takes_api,
)
from pidurable_actors.agent._services import (
    CALLER,
    AgentServices,
    GenerationInput,
)
from pidurable_actors.agent._tool import (
    Around,
    ExecutionMode,
    Replay,
    Tool,
    tool,
)
from pidurable_actors.agent._tool_api import (
    NOT_DONE,
    UNKNOWN,
    NotDone,
    ToolApi,
    ToolResult,
    Unknown,
)

__all__ = [
    "AGENT",
    "CALLER",
    "INBOX",
    "LIVE",
    "NOT_DONE",
    "PROVIDER",
    "UNKNOWN",
    "USAGE",
    "AgentServices",
    "AgentState",
    "ArgumentsInvalid",
    "Around",
    "ExecutionMode",
    "Extension",
    "GenerationInput",
    "GenerationState",
    "InboxItem",
    "InboxState",
    "LiveState",
    "NotDone",
    "ProviderState",
    "Registry",
    "Replay",
    "RunFailure",
    "RunState",
    "Tool",
    "ToolApi",
    "ToolResult",
    "ToolSignature",
    "ToolSlot",
    "Unknown",
    "UsageState",
    "UsageTotals",
    "admit_submission",
    "answer_run",
    "check_agent",
    "fail_run",
    "new_conversation",
    "place_steering",
    "place_writes",
    "takes_api",
    "tool",
    "withdraw",
    "withdraw_inputs",
]
