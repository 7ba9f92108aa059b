"""What can be watched: views, their frames and events, made from commits as they are stored."""

from pidurable_actors.views._channel import (
    EndReason,
    Frame,
)
from pidurable_actors.views._conversation import (
    ConversationSubject,
)
from pidurable_actors.views._documents import (
    DocumentSubject,
)
from pidurable_actors.views._events import (
    AgentChanged,
    BlockStarted,
    CompactionChanged,
    ConversationChanged,
    EntriesDropped,
    EntryAppended,
    Event,
    InboxChanged,
    LiveReplaced,
    MessageCleared,
    MessageEnded,
    MessageUpdated,
    QuestionAsked,
    QuestionEnded,
    RetryScheduled,
    RunChanged,
    RunEnded,
    RunStarted,
    Snapshot,
    SubmissionChanged,
    TaskFailed,
    ToolAnswered,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
    TurnStarted,
    UsageChanged,
)
from pidurable_actors.views._graph import (
    GraphSubject,
    GraphTask,
    GraphView,
)
from pidurable_actors.views._hub import (
    Hub,
)
from pidurable_actors.views._open import (
    open_events,
    open_watch,
)
from pidurable_actors.views._view import (
    ConversationView,
    ViewEntries,
)
from pidurable_actors.views._watch import (
    EventStream,
    Feed,
    Watch,
)

__all__ = [
    "AgentChanged",
    "BlockStarted",
    "CompactionChanged",
    "ConversationChanged",
    "ConversationSubject",
    "ConversationView",
    "DocumentSubject",
    "EndReason",
    "EntriesDropped",
    "EntryAppended",
    "Event",
    "EventStream",
    "Feed",
    "Frame",
    "GraphSubject",
    "GraphTask",
    "GraphView",
    "Hub",
    "InboxChanged",
    "LiveReplaced",
    "MessageCleared",
    "MessageEnded",
    "MessageUpdated",
    "QuestionAsked",
    "QuestionEnded",
    "RetryScheduled",
    "RunChanged",
    "RunEnded",
    "RunStarted",
    "Snapshot",
    "SubmissionChanged",
    "TaskFailed",
    "ToolAnswered",
    "ToolEnded",
    "ToolStarted",
    "ToolUpdated",
    "TurnStarted",
    "UsageChanged",
    "ViewEntries",
    "Watch",
    "open_events",
    "open_watch",
]
