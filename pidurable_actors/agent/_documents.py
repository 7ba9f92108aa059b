"""The built-in documents of a conversation: part of the public format, all snake_case.

Plain mutable attrs classes, changed only inside commits. `LIVE` says what goes on now, `INBOX` what
waits, `AGENT` what the conversation runs with, `USAGE` what it has used, `PROVIDER` its id there.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs

from pidurable_actors._json import JSON
from pidurable_actors.records import Usage
from pidurable_actors.session import Text, define_doc

__all__ = [
    "AGENT",
    "BUDGET",
    "INBOX",
    "LIVE",
    "PROVIDER",
    "USAGE",
    "AgentState",
    "BudgetChoice",
    "BudgetLimits",
    "BudgetState",
    "BudgetTally",
    "CompactionFailure",
    "CompactionState",
    "GenerationState",
    "InboxItem",
    "InboxState",
    "LiveState",
    "NameChoice",
    "PartialBlock",
    "ProviderState",
    "QuestionSlot",
    "Reservation",
    "RunFailure",
    "RunState",
    "ToolSlot",
    "UsageState",
    "UsageSums",
    "UsageTotals",
]


@attrs.define
class RunState:
    """A run: the submissions that it answers, in order, and the turns so far.

    `terminating` counts the results of the present round that ask for the end of the run, and
    `handoff` is the text with which one of them asks to begin anew. `tokens` and `cost` are what it
    has used, and `told` the limits that the host was told of. `paused_ms` is how long answers to
    questions and signals were waited for, without the time since `paused_since_ms`.
    """

    submissions: list[int] = attrs.field(factory=list)
    started_at_ms: int = 0
    turns: int = 0
    terminating: int = 0
    handoff: str | None = None
    tokens: int = 0
    cost: float = 0.0
    told: list[str] = attrs.field(factory=list)
    paused_ms: int = 0
    paused_since_ms: int | None = None

    def pause(self, now_ms: int) -> None:
        """A question is open: time that passes is not the run's."""
        if self.paused_since_ms is None:
            self.paused_since_ms = now_ms

    def unpause(self, now_ms: int) -> None:
        """No question is open any more."""
        if self.paused_since_ms is not None:
            self.paused_ms += now_ms - self.paused_since_ms
            self.paused_since_ms = None

    def ran_ms(self, now_ms: int) -> int:
        """How long it has run, without the time in which a question or a signal was waited for."""
        paused_ms = self.paused_ms
        if self.paused_since_ms is not None:
            paused_ms += now_ms - self.paused_since_ms
        return max(0, now_ms - self.started_at_ms - paused_ms)


@attrs.define
class PartialBlock:
    """One block of a half answer; the `text` of a tool call is the raw text of its arguments."""

    type: Literal["text", "thinking", "tool_call"] = "text"
    text: Text = attrs.field(factory=Text)
    id: str = ""
    name: str = ""
    signature: str | None = None


@attrs.define
class GenerationState:
    """The task that asks the model, and the answer as far as it has come.

    `turn` counts the turns of the run, from 1 once a request is decided, and `attempt` the requests
    of this turn, 1 for the first; `retry_at_ms` is set while it waits. `usage` is that of the
    request under way, as far as it was reported.
    """

    task_id: int = 0
    turn: int = 0
    attempt: int = 1
    retry_at_ms: int | None = None
    error: str | None = None
    partial: list[PartialBlock] = attrs.field(factory=list)
    usage: Usage = attrs.field(factory=Usage)


@attrs.define
class ToolSlot:
    """A tool call under way and its output: what is kept of it, and how much was dropped before.

    `asked` counts the questions that it has asked so far.
    """

    call_id: str = ""
    tool_name: str = ""
    output: Text = attrs.field(factory=Text)
    dropped: int = 0
    asked: int = 0


@attrs.define
class QuestionSlot:
    """A question that is open: what people are shown of it.

    `kind` is ``ask``, ``approve`` or ``signal``; for a signal, `text` is its name.
    """

    kind: str = "ask"
    text: str = ""
    tool_name: str = ""
    deadline_ms: int | None = None


@attrs.define
class RunFailure:
    """Why the last run ended without an answer, and what it did not answer."""

    reason: str = ""
    detail: JSON = None
    submissions: list[int] = attrs.field(factory=list)


@attrs.define
class CompactionState:
    """A compaction under way.

    `reason` is ``manual``, ``background``, ``threshold`` or ``overflow``; while a `blocking` one is
    under way, no input is placed and no request is sent. `policy` is a digest of the settings and
    the models that it began with.
    """

    task_id: int = 0
    reason: str = "manual"
    blocking: bool = True
    policy: str = ""


@attrs.define
class CompactionFailure:
    """Why the last compaction came to nothing, and how many in a row did under one policy."""

    reason: str = ""
    detail: JSON = None
    count: int = 0
    policy: str = ""


@attrs.define
class LiveState:
    """What goes on in a conversation: ``pi.live``. Everything is empty while it is idle."""

    run: RunState | None = None
    generation: GenerationState | None = None
    tools: dict[str, ToolSlot] = attrs.field(factory=dict)
    questions: dict[str, QuestionSlot] = attrs.field(factory=dict)
    compactions: list[CompactionState] = attrs.field(factory=list)
    run_failure: RunFailure | None = None
    compaction_failure: CompactionFailure | None = None
    held: bool = False  # a run waits for the end of a compaction

    @property
    def compacting(self) -> CompactionState | None:
        """The compaction that the next request and the inbox wait for."""
        return next((it for it in self.compactions if it.blocking), None)

    @property
    def half_text(self) -> str:
        """The text of the answer under way, as far as it has come; empty when there is none."""
        blocks = self.generation.partial if self.generation is not None else ()
        return "".join(str(block.text) for block in blocks if block.type == "text")


@attrs.define
class InboxItem:
    """A submission that waits for its place; its content is in the submission."""

    submission_id: int = 0
    type: str = "input"
    when_busy: str = "follow_up"


@attrs.define
class InboxState:
    """What waits, oldest first: ``pi.inbox``; how much of it is writes, and steering inputs."""

    items: list[InboxItem] = attrs.field(factory=list)
    writes: int = 0
    steering: int = 0


@attrs.define
class NameChoice:
    """A `Selection` as it is stored."""

    exact: list[str] | None = None
    add: list[str] = attrs.field(factory=list)
    remove: list[str] = attrs.field(factory=list)


@attrs.define
class BudgetLimits:
    """A `Budget` as it is stored."""

    tokens: int | None = None
    cost: float | None = None
    turns: int | None = None
    wall_s: float | None = None


@attrs.define
class BudgetChoice:
    """`BudgetSettings` as they are stored."""

    run: BudgetLimits = attrs.field(factory=BudgetLimits)
    conversation: BudgetLimits = attrs.field(factory=BudgetLimits)
    subtree: BudgetLimits = attrs.field(factory=BudgetLimits)
    near: float = 0.8


@attrs.define
class AgentState:
    """What a conversation chose to run with: ``pi.agent``. None means the default.

    `tools_added` are those that results of tools added to the choice.
    """

    model: str | None = None
    thinking_level: str | None = None
    max_output_tokens: int | None = None
    extensions: NameChoice | None = None
    tools: NameChoice | None = None
    tools_added: list[str] = attrs.field(factory=list)
    instructions: str | None = None
    cwd: str | None = None
    budget: BudgetChoice | None = None


@attrs.define
class UsageTotals:
    """Sums over requests; `requests` counts the failed ones too."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float = 0.0

    def merge(self, other: UsageTotals) -> None:
        """Add other sums."""
        for name in attrs.fields_dict(UsageTotals):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add(self, usage: Usage) -> None:
        """Count one request."""
        self.requests += 1
        for name in attrs.fields_dict(Usage):
            # What is not reported is most of it, and each change is told to whoever watches.
            if used := getattr(usage, name):
                setattr(self, name, getattr(self, name) + used)


@attrs.define
class UsageSums:
    """Requests per ``provider/model``, calls per tool, turns, and milliseconds of ended runs."""

    models: dict[str, UsageTotals] = attrs.field(factory=dict)
    tools: dict[str, int] = attrs.field(factory=dict)
    turns: int = 0
    run_ms: int = 0

    def merge(self, other: UsageSums) -> None:
        """Add other sums."""
        for reference, totals in other.models.items():
            self.models.setdefault(reference, UsageTotals()).merge(totals)
        for name, calls in other.tools.items():
            self.tools[name] = self.tools.get(name, 0) + calls
        self.turns += other.turns
        self.run_ms += other.run_ms

    def add(self, reference: str, usage: Usage) -> None:
        """Count one request to ``provider/model``."""
        self.models.setdefault(reference, UsageTotals()).add(usage)


@attrs.define
class UsageState(UsageSums):
    """What a conversation has used, and what all those below it have: ``pi.usage``.

    `below` are the conversations that its tasks own, those that theirs own, and so on.
    """

    below: UsageSums = attrs.field(factory=UsageSums)


@attrs.define
class Reservation:
    """What a request or a call under way may come to."""

    tokens: int = 0
    cost: float = 0.0
    turns: int = 0


@attrs.define
class BudgetTally:
    """What is reserved, by task, and what may have been used by requests that were cut off."""

    reserved: dict[str, Reservation] = attrs.field(factory=dict)
    lost_tokens: int = 0
    lost_cost: float = 0.0


@attrs.define
class BudgetState:
    """What is reserved in a conversation, and `below` it: ``pi.budget``.

    `told` are the limits whose nearness the host was told of.
    """

    own: BudgetTally = attrs.field(factory=BudgetTally)
    below: BudgetTally = attrs.field(factory=BudgetTally)
    told: list[str] = attrs.field(factory=list)


@attrs.define
class ProviderState:
    """The conversation's session id at its provider: ``pi.provider``."""

    session_id: str = ""


LIVE: Final = define_doc("pi.live", LiveState)
INBOX: Final = define_doc("pi.inbox", InboxState)
AGENT: Final = define_doc("pi.agent", AgentState, fork="current")
USAGE: Final = define_doc("pi.usage", UsageState)
BUDGET: Final = define_doc("pi.budget", BudgetState)
PROVIDER: Final = define_doc("pi.provider", ProviderState)
"""The built-in documents; ``tx.doc(LIVE, conversation_id)``."""
