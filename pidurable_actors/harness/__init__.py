"""The harness: open, converse, close."""

from pidurable_actors.harness._conversation import (
    Conversation,
)
from pidurable_actors.harness._harness import (
    Harness,
)
from pidurable_actors.harness._inspect import (
    Inspection,
    OwnedConversation,
    TaskGraph,
    TaskView,
    inspect_engine,
    inspect_graph,
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
    "Conversation",
    "Harness",
    "Inspection",
    "OwnedConversation",
    "Page",
    "Submission",
    "TaskGraph",
    "TaskView",
    "check_limit",
    "inspect_engine",
    "inspect_graph",
    "open_harness",
    "read_cursor",
    "supervise_harness",
    "write_cursor",
]
