"""The harness: open, converse, close."""

from pidurable_actors.harness._choice import (
    UNSET,
    AgentChoice,
    Unset,
    apply_choice,
    check_choices,
)
from pidurable_actors.harness._conversation import (
    Conversation,
)
from pidurable_actors.harness._harness import (
    Harness,
)
from pidurable_actors.harness._inspect import (
    Inspection,
    TaskView,
    inspect_engine,
)
from pidurable_actors.harness._open import (
    open_harness,
)
from pidurable_actors.harness._pages import (
    Page,
    check_limit,
    read_cursor,
    write_cursor,
)
from pidurable_actors.harness._submission import (
    Submission,
)
from pidurable_actors.harness._supervise import (
    supervise_harness,
)

__all__ = [
    "UNSET",
    "AgentChoice",
    "Conversation",
    "Harness",
    "Inspection",
    "Page",
    "Submission",
    "TaskView",
    "Unset",
    "apply_choice",
    "check_choices",
    "check_limit",
    "inspect_engine",
    "open_harness",
    "read_cursor",
    "supervise_harness",
    "write_cursor",
]
