"""A conversation that grows, a model that summarizes, and what the model is asked with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pidurable_actors import Registry, Reply, ScriptedModel, Settings, Tool
from pidurable_actors.agent import Extension, Hook
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import ModelInfo, ModelRequest, ScriptedContext
from pidurable_actors.records import (
    COMPACTION,
    EntryRecord,
    Message,
    SystemMessage,
    TaskId,
    TaskOutcome,
    TextBlock,
    UserMessage,
    text_of,
)
from pidurable_actors.settings import CompactionSettings
from pidurable_actors.storage import Storage
from tests._agents import EXACT, Agent, Answer, ended, open_agent, short

Script = Callable[[ScriptedContext], Answer]

LONG = "x" * 400
"""About a hundred tokens."""

SMALL = CompactionSettings(
    reserve_tokens=200, keep_recent_tokens=120, background_tokens=0, max_tries=3
)
"""For `WINDOW`: a request of more than 800 tokens waits for a compaction."""

WINDOW = ModelInfo(context_window=1_000)


def is_summary(request: ModelRequest) -> bool:
    """Whether a request asks for a summary."""
    first = request.messages[0] if request.messages else None
    return isinstance(first, SystemMessage) and text_of(first.content).startswith(
        "You write summaries"
    )


def echoing(summary: Answer | Script | None = None, **options: float) -> Script:
    """A script that answers what it was asked, and summarizes as it is told."""

    def script(ctx: ScriptedContext) -> Answer:
        if is_summary(ctx.request):
            made = Reply("short") if summary is None else summary
            return made(ctx) if callable(made) else made
        return Reply(f"re: {ctx.user_text[:20]}", **options)  # type: ignore[arg-type]

    return script


class Compacting:
    """An open agent, and the model that it asks."""

    def __init__(self, agent: Agent, model: ScriptedModel) -> None:
        self.agent = agent
        self.root = agent.root
        self.harness = agent.harness
        self.model = model

    async def grow(self, turns: int, size: str = LONG) -> None:
        """Hold so many turns of a long question each."""
        for at in range(turns):
            assert (await self.agent.ask(f"{at} {size}")).status == "done"

    async def outcome(self, task_id: TaskId) -> TaskOutcome:
        """How a task ended."""
        return ended(await self.harness.wait_for_task(task_id)).outcome

    async def compacted(self, instructions: str | None = None) -> TaskOutcome:
        """Compact, and how that ended."""
        return await self.outcome(await self.root.compact(instructions))

    async def summaries(self) -> list[EntryRecord]:
        """The entries of summaries, oldest first."""
        return [entry for entry in await self.agent.entries() if entry.kind == COMPACTION]

    @property
    def asked(self) -> list[ModelRequest]:
        """The requests that did not ask for a summary."""
        return [request for request in self.model.requests if not is_summary(request)]

    @property
    def summarized(self) -> list[ModelRequest]:
        """Those that did."""
        return [request for request in self.model.requests if is_summary(request)]

    def seen(self, at: int = -1) -> list[str]:
        """What the model was asked with, each text cut to what matters."""
        return [line for message in self.asked[at].messages for line in _lines(message)]


@asynccontextmanager
async def compacting(
    storage: Storage,
    script: Script,
    *tools: Tool,
    info: ModelInfo | None = None,
    compaction: CompactionSettings = SMALL,
    hooks: tuple[Hook, ...] = (),
    settings: Settings | Callable[[], Settings] | None = None,
) -> AsyncIterator[Compacting]:
    """Open an agent whose model summarizes; it knows no window unless `info` says one."""
    model = ScriptedModel(script, info=info)
    chosen = settings or Settings(compaction=compaction, retry=EXACT)
    registry = Registry([Extension("test", tools=tools, hooks=hooks)])
    async with open_agent(storage, model, settings=chosen, registry=registry) as agent:
        yield Compacting(agent, model)


def _lines(message: Message) -> list[str]:
    if not isinstance(message, UserMessage):
        return [short(message)[:40].rstrip("x ")]
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    said = (text.partition("<summary>\n")[2].partition("\n")[0] for text in texts)
    return [
        f"summary {summary}" if summary else f"user {text}"[:40].rstrip("x ")
        for summary, text in zip(said, texts, strict=True)
    ]


def overflow(text: str = "prompt is too long") -> ProviderError:
    """How a provider refuses a request that is too long."""
    return ProviderError(text, kind="overflow")
