"""The runtime: everything the author of a task sees, and nothing of the engine."""

from pidurable_actors.runtime._choice import (
    UNSET,
    Unset,
)
from pidurable_actors.runtime._conversations import (
    ConversationDoor,
    ConversationHandle,
    SubmissionHandle,
)
from pidurable_actors.runtime._definition import (
    TaskDefinition,
    define_task,
    phase,
)
from pidurable_actors.runtime._durable import (
    OUTCOME_TYPES,
    STEP_TYPES,
    NoProgress,
    checkpoint_in,
    end_task,
    store_step,
    store_wait,
)
from pidurable_actors.runtime._entry_kinds import (
    AssistantEntry,
    EntryKind,
    MessageEntryKind,
    ToolResultEntry,
    UserEntry,
    define_entry,
)
from pidurable_actors.runtime._outcomes import (
    Aborted,
    Checkpoint,
    Completed,
    Continue,
    Failed,
    Next,
    Outcome,
    SleepUntil,
    WaitFor,
)
from pidurable_actors.runtime._progress import (
    ProgressBoard,
    WriteProgress,
)
from pidurable_actors.runtime._reports import (
    Report,
    Reporter,
    ReportKind,
)
from pidurable_actors.runtime._runtime import (
    MISSING,
    TASK,
    Missing,
    Runtime,
    ServiceLookup,
)
from pidurable_actors.runtime._task_actor import (
    TaskActor,
    checkpoint_of,
    input_of,
)
from pidurable_actors.runtime._values import (
    checkpoint_to_json,
    from_json,
    to_json,
)

__all__ = [
    "MISSING",
    "OUTCOME_TYPES",
    "STEP_TYPES",
    "TASK",
    "UNSET",
    "Aborted",
    "AssistantEntry",
    "Checkpoint",
    "Completed",
    "Continue",
    "ConversationDoor",
    "ConversationHandle",
    "EntryKind",
    "Failed",
    "MessageEntryKind",
    "Missing",
    "Next",
    "NoProgress",
    "Outcome",
    "ProgressBoard",
    "Report",
    "ReportKind",
    "Reporter",
    "Runtime",
    "ServiceLookup",
    "SleepUntil",
    "SubmissionHandle",
    "TaskActor",
    "TaskDefinition",
    "ToolResultEntry",
    "Unset",
    "UserEntry",
    "WaitFor",
    "WriteProgress",
    "checkpoint_in",
    "checkpoint_of",
    "checkpoint_to_json",
    "define_entry",
    "define_task",
    "end_task",
    "from_json",
    "input_of",
    "phase",
    "store_step",
    "store_wait",
    "to_json",
]
