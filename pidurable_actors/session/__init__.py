"""The session: what a commit is, without Trio. Transactions, admission, and what is in memory."""

from pidurable_actors.session._documents import (
    DocumentDefinition,
    define_doc,
)
from pidurable_actors.session._drafts import (
    Drafts,
)
from pidurable_actors.session._line import (
    Line,
    LineState,
    Rule,
)
from pidurable_actors.session._publication import (
    Publication,
)
from pidurable_actors.session._seams import (
    Binding,
    Reader,
    StartableTask,
    TaskSeed,
)
from pidurable_actors.session._state import (
    CachedDocument,
    DocKey,
    Pending,
    SessionState,
    TaskSlot,
)
from pidurable_actors.session._transaction import (
    Tx,
)

__all__ = [
    "Binding",
    "CachedDocument",
    "DocKey",
    "DocumentDefinition",
    "Drafts",
    "Line",
    "LineState",
    "Pending",
    "Publication",
    "Reader",
    "Rule",
    "SessionState",
    "StartableTask",
    "TaskSeed",
    "TaskSlot",
    "Tx",
    "define_doc",
]
