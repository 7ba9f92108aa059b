"""pidurable_actors: a durable agent runtime for Trio.

Kill the process at any instant, open the same storage again, and the work goes on from the last
stored step. This is the front door; everything else is imported from its room by name, such as
``pidurable_actors.storage.sqlite.SqliteStorage``.
"""

from pidurable_actors.actors import ClosedEnd
from pidurable_actors.agent import (
    CALLER,
    NOT_DONE,
    UNKNOWN,
    Extension,
    NotDone,
    Registry,
    Tool,
    ToolApi,
    ToolResult,
    Unknown,
    tool,
)
from pidurable_actors.context import BACKGROUND, Context, ContextKey, current_context
from pidurable_actors.errors import PiDurableError
from pidurable_actors.harness import (
    Conversation,
    Harness,
    Page,
    Submission,
    open_harness,
    supervise_harness,
)
from pidurable_actors.models import Models, Reply, ScriptedContext, ScriptedModel, ToolCall
from pidurable_actors.records import text_of
from pidurable_actors.runtime import (
    MISSING,
    Aborted,
    AssistantEntry,
    Checkpoint,
    Completed,
    Continue,
    Failed,
    Next,
    Outcome,
    Report,
    SleepUntil,
    TaskActor,
    ToolResultEntry,
    UserEntry,
    WaitFor,
    define_entry,
    phase,
)
from pidurable_actors.session import Text, Tx, define_doc
from pidurable_actors.settings import (
    AgentChoice,
    Budget,
    BudgetSettings,
    CompactionSettings,
    ProgressSettings,
    RetrySettings,
    Selection,
    Settings,
)
from pidurable_actors.views import ConversationView, Frame

__all__ = [
    "BACKGROUND",
    "CALLER",
    "MISSING",
    "NOT_DONE",
    "UNKNOWN",
    "Aborted",
    "AgentChoice",
    "AssistantEntry",
    "Budget",
    "BudgetSettings",
    "Checkpoint",
    "ClosedEnd",
    "CompactionSettings",
    "Completed",
    "Context",
    "ContextKey",
    "Continue",
    "Conversation",
    "ConversationView",
    "Extension",
    "Failed",
    "Frame",
    "Harness",
    "Models",
    "Next",
    "NotDone",
    "Outcome",
    "Page",
    "PiDurableError",
    "ProgressSettings",
    "Registry",
    "Reply",
    "Report",
    "RetrySettings",
    "ScriptedContext",
    "ScriptedModel",
    "Selection",
    "Settings",
    "SleepUntil",
    "Submission",
    "TaskActor",
    "Text",
    "Tool",
    "ToolApi",
    "ToolCall",
    "ToolResult",
    "ToolResultEntry",
    "Tx",
    "Unknown",
    "UserEntry",
    "WaitFor",
    "current_context",
    "define_doc",
    "define_entry",
    "open_harness",
    "phase",
    "supervise_harness",
    "text_of",
    "tool",
]
