"""The runtime: everything the author of a task sees, and nothing of the engine."""

from pidurable_actors.runtime._definition import (
    TaskActor,
    TaskDefinition,
    checkpoint_of,
    input_of,
    phase,
)
from pidurable_actors.runtime._durable import (
    STEP_TYPES,
    NoProgress,
    checkpoint_in,
    end_task,
    store_step,
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
from pidurable_actors.runtime._reports import (
    Report,
    Reporter,
    ReportKind,
)
from pidurable_actors.runtime._runtime import (
    MISSING,
    Missing,
    Runtime,
)
from pidurable_actors.runtime._values import (
    checkpoint_to_json,
    from_json,
    to_json,
)

__all__ = [
    "MISSING",
    "STEP_TYPES",
    "Aborted",
    "Checkpoint",
    "Completed",
    "Continue",
    "Failed",
    "Missing",
    "Next",
    "NoProgress",
    "Outcome",
    "Report",
    "ReportKind",
    "Reporter",
    "Runtime",
    "SleepUntil",
    "TaskActor",
    "TaskDefinition",
    "WaitFor",
    "checkpoint_in",
    "checkpoint_of",
    "checkpoint_to_json",
    "end_task",
    "from_json",
    "input_of",
    "phase",
    "store_step",
    "to_json",
]
