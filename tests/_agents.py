"""Short ways to open an agent on a storage and to read what it stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs

from pidurable_actors import (
    AgentChoice,
    Conversation,
    Extension,
    Harness,
    Models,
    Registry,
    Reply,
    Report,
    ScriptedModel,
    Settings,
    Tool,
    ToolCall,
    open_harness,
)
from pidurable_actors.agent import LIVE, LiveState
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import ModelProvider, ScriptedContext
from pidurable_actors.records import (
    ROOT_ID,
    SYSTEM,
    AssistantMessage,
    EntryRecord,
    Message,
    SubmissionRecord,
    TaskRecord,
    Terminal,
    ToolResultMessage,
    text_of,
)
from pidurable_actors.settings import ProgressSettings, RetrySettings
from pidurable_actors.storage import Storage

MODEL = "scripted/demo"
STORE_FIRST = ProgressSettings(persist_within_ms=0)
"""Progress is stored before it is shown."""

EXACT = RetrySettings(jitter=0)
"""Retries after exactly 2, 4 and 8 seconds."""

Answer = Reply | ProviderError


@attrs.frozen
class Agent:
    """An open harness, its root conversation, and what it was told of."""

    harness: Harness
    root: Conversation
    reports: list[Report]

    async def ask(self, content: str = "go", *, request_id: str | None = None) -> SubmissionRecord:
        """Submit and wait."""
        return await (await self.root.submit(content, request_id=request_id)).wait()

    async def live(self) -> LiveState:
        """What goes on in the root conversation."""
        return await self.root.snapshot(LIVE)

    async def attempt(self) -> int:
        """Which request of the present turn is under way."""
        generation = (await self.live()).generation
        assert generation is not None
        return generation.attempt

    async def generation(self) -> TaskRecord:
        """The task that answers the present run."""
        generation = (await self.live()).generation
        assert generation is not None
        return await self.harness.get_task(generation.task_id)

    async def entries(self) -> list[EntryRecord]:
        """What was said, oldest first: the transcript without the entries of the system."""
        found = (await self.root.entries(limit=1_000)).items
        return [entry for entry in reversed(found) if entry.kind != SYSTEM]

    async def lines(self) -> list[str]:
        """The transcript in short, oldest first."""
        return [short(message) for entry in await self.entries() for message in entry.model or ()]

    async def results(self) -> dict[str, ToolResultMessage]:
        """The tool results by call id; a call has one."""
        found: dict[str, ToolResultMessage] = {}
        for entry in await self.entries():
            for message in entry.model or ():
                if isinstance(message, ToolResultMessage):
                    assert message.call_id not in found, f"two results of {message.call_id}"
                    found[message.call_id] = message
        return found

    async def result_entry(self, call_id: str) -> EntryRecord:
        """The entry of a call's result."""
        (found,) = [
            entry
            for entry in await self.entries()
            for message in entry.model or ()
            if isinstance(message, ToolResultMessage) and message.call_id == call_id
        ]
        return found

    def tool_tasks(self) -> list[int]:
        """The live tool tasks."""
        return [task.id for task in self.harness.inspect().tasks if task.kind == "pi.tool"]


@asynccontextmanager
async def open_agent(
    storage: Storage,
    model: ModelProvider,
    *tools: Tool,
    settings: Settings | Callable[[], Settings] | None = None,
    registry: Registry | None = None,
    read_only: bool = False,
) -> AsyncIterator[Agent]:
    """Open a harness with one provider and some tools; its root runs with `MODEL`."""
    reports: list[Report] = []
    async with open_harness(
        storage,
        models=Models([model]),
        registry=registry or registry_of(*tools),
        settings=settings,
        on_report=reports.append,
        read_only=read_only,
    ) as harness:
        root = await harness.root(agent=AgentChoice(model=MODEL))
        yield Agent(harness, root, reports)


def registry_of(*tools: Tool) -> Registry:
    """A registry with these tools."""
    return Registry([Extension("test", tools=tools)])


def turns(*replies: Answer) -> ScriptedModel:
    """A model whose n-th answer in the transcript is the n-th reply; the last one repeats.

    It depends on the transcript alone, so it goes on after a restart.
    """
    return ScriptedModel(lambda ctx: replies[min(ctx.answers, len(replies) - 1)])


def in_order(*replies: Answer) -> ScriptedModel:
    """A model that answers its n-th request with the n-th reply; the last one repeats."""
    asked = iter(replies)
    last = [replies[-1]]
    return ScriptedModel(lambda _: next(asked, last[0]))


def echo(ctx: ScriptedContext) -> Reply:
    """A script that answers what it was asked."""
    return Reply(f"re: {ctx.user_text}")


def call(name: str, call_id: str = "c1", **arguments: str | int) -> ToolCall:
    """A tool call with a fixed id."""
    return ToolCall(name, dict(arguments), id=call_id)


def calling(*calls: ToolCall) -> Reply:
    """A reply that calls tools."""
    return Reply(tool_calls=calls)


def short(message: Message) -> str:
    """One message on one line: ``user hello``, ``calls add(c1)``, ``result c1 3``, ``error c1 …``."""
    text = text_of(message.content)
    if isinstance(message, ToolResultMessage):
        return f"{'error' if message.is_error else 'result'} {message.call_id} {text}"
    if isinstance(message, AssistantMessage):
        ending = "" if message.stop_reason in ("stop", "tool_use") else f" ({message.stop_reason})"
        if message.tool_calls and message.stop_reason != "aborted":
            made = " ".join(f"{call.name}({call.id})" for call in message.tool_calls)
            return f"calls {made}{ending}"
        return f"assistant {text}{ending}"
    return f"{message.role} {text}"


def error_text(message: str) -> str:
    """What the model reads of an error that the harness reports."""
    return f"<harness>\n[error] {message}\n</harness>"


def interrupted(name: str) -> str:
    """The exact text of a call that was cut off."""
    return error_text(f"Tool {name} was interrupted and may have partially run")


def codes(entry: EntryRecord) -> list[str]:
    """The diagnostic codes of a result."""
    assert isinstance(entry.data, dict)
    diagnostics = entry.data.get("diagnostics")
    assert isinstance(diagnostics, list)
    return [str(item["code"]) for item in diagnostics if isinstance(item, dict)]


@contextmanager
def peek(storage: Storage) -> Iterator[Storage]:
    """Look at what is stored, beside or after its owner."""
    storage.open(read_only=True)
    try:
        yield storage
    finally:
        storage.close()


def all_entries(storage: Storage) -> list[EntryRecord]:
    """The root conversation's entries, oldest first."""
    return list(reversed(storage.entries(ROOT_ID, before=2**63 - 1, limit=1_000)))


def all_tasks(storage: Storage) -> list[TaskRecord]:
    """Every task, by id."""
    return storage.tasks(after=0, limit=1_000)


def all_submissions(storage: Storage) -> list[SubmissionRecord]:
    """Every submission, by id."""
    return storage.submissions(after=0, limit=1_000)


def ended(task: TaskRecord) -> Terminal:
    """The end of a task that has one."""
    assert isinstance(task.state, Terminal), task
    return task.state
