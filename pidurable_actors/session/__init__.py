"""The session: what a commit is, without Trio. Transactions, admission, and what is in memory."""

from pidurable_actors.session._conversations import (
    CachedDocument,
    ConversationMemory,
    Conversations,
    DocKey,
)
from pidurable_actors.session._cursors import (
    Journal,
)
from pidurable_actors.session._documents import (
    DocumentDefinition,
    define_doc,
)
from pidurable_actors.session._drafts import (
    Drafts,
)
from pidurable_actors.session._forks import (
    stored_documents,
)
from pidurable_actors.session._line import (
    Line,
    LineState,
    Rule,
)
from pidurable_actors.session._publication import (
    CommitWitness,
    Publication,
)
from pidurable_actors.session._seams import (
    Binding,
    FreshIds,
    Reader,
    StartableTask,
    TaskSeed,
    whole_conversation,
)
from pidurable_actors.session._state import (
    UNSETTLED,
    SessionState,
    TaskSlot,
)
from pidurable_actors.session._task_ledger import (
    TaskLedger,
)
from pidurable_actors.session._tracked import (
    Text,
    TrackedDict,
    TrackedList,
)
from pidurable_actors.session._transaction import (
    Tx,
)

__all__ = [
    "UNSETTLED",
    "Binding",
    "CachedDocument",
    "CommitWitness",
    "ConversationMemory",
    "Conversations",
    "DocKey",
    "DocumentDefinition",
    "Drafts",
    "FreshIds",
    "Journal",
    "Line",
    "LineState",
    "Publication",
    "Reader",
    "Rule",
    "SessionState",
    "StartableTask",
    "TaskLedger",
    "TaskSeed",
    "TaskSlot",
    "Text",
    "TrackedDict",
    "TrackedList",
    "Tx",
    "define_doc",
    "stored_documents",
    "whole_conversation",
]
