"""Models: the seam to model providers, their stream records, and the registry that finds them.

Adapters are modules of their own, imported by name; the scripted model is also here, because every
test and demo begins with it.
"""

from pidurable_actors.models._accumulator import (
    ANSWER_CHARS_MAX,
    Accumulator,
    MalformedCall,
    StreamedBlock,
)
from pidurable_actors.models._events import (
    Finished,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageReport,
)
from pidurable_actors.models._protocol import (
    ModelInfo,
    ModelOptions,
    ModelProvider,
    ModelRequest,
    Models,
    ToolSpec,
)
from pidurable_actors.models._tokens import (
    estimate_tokens,
    message_tokens,
    request_tokens,
)
from pidurable_actors.models.scripted import (
    Break,
    Fault,
    Garbage,
    Reply,
    ScriptedContext,
    ScriptedModel,
    Stall,
    ToolCall,
    Truncate,
)

__all__ = [
    "ANSWER_CHARS_MAX",
    "Accumulator",
    "Break",
    "Fault",
    "Finished",
    "Garbage",
    "MalformedCall",
    "ModelEvent",
    "ModelInfo",
    "ModelOptions",
    "ModelProvider",
    "ModelRequest",
    "Models",
    "Reply",
    "ScriptedContext",
    "ScriptedModel",
    "Stall",
    "StreamedBlock",
    "TextDelta",
    "ThinkingDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolSpec",
    "Truncate",
    "UsageReport",
    "estimate_tokens",
    "message_tokens",
    "request_tokens",
]
