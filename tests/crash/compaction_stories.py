"""Stories of compactions: asked for, at the threshold, in the background, and after a refusal.

Wherever they are cut, each leaves one summary, every input is answered once and in order, and
nothing is held up. The one who summarizes is seen from outside: it is asked once, and once more in
each life at most.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from pidurable_actors import (
    AgentChoice,
    Conversation,
    Models,
    Reply,
    ScriptedModel,
)
from pidurable_actors._frozen import FrozenDict
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import ModelInfo, ScriptedContext, estimate_tokens
from pidurable_actors.records import (
    ASSISTANT,
    COMPACTION,
    ROOT_ID,
    USER,
    AssistantMessage,
    EntryRecord,
    UserMessage,
    text_of,
)
from pidurable_actors.settings import CompactionSettings
from pidurable_actors.testing import World
from tests._agents import MODEL
from tests.crash.stories import SETTINGS, Told, statuses_of
from tests.tasks.compacting import is_summary, overflow

__all__ = ["COMPACTIONS"]

LONG: Final = "x" * 400
SMALL: Final = CompactionSettings(
    reserve_tokens=100, keep_recent_tokens=120, background_tokens=0, max_tries=9
)
EARLY: Final = attrs.evolve(SMALL, background_tokens=100)
KNOWN: Final = ModelInfo(context_window=400)
REFUSED_FROM: Final = 300


@asynccontextmanager
async def growing(
    world: World,
    *,
    info: ModelInfo | None = None,
    compaction: CompactionSettings = SMALL,
    refuses: bool = False,
) -> AsyncIterator[Conversation]:
    """The root conversation; its provider may refuse what is too long."""

    def script(ctx: ScriptedContext) -> Reply | ProviderError:
        if is_summary(ctx.request):
            world.effect("summarized", repeatable=True)
            return Reply("short", delay_s=1)
        if refuses and estimate_tokens(ctx.messages) > REFUSED_FROM:
            return overflow()
        return Reply(f"re: {ctx.user_text.split()[0]}", delay_s=0.2)

    async with world.open_harness(
        models=Models([ScriptedModel(script, info=info)]),
        settings=attrs.evolve(SETTINGS, compaction=compaction),
    ) as harness:
        yield await harness.root(agent=AgentChoice(model=MODEL))


async def ask(root: Conversation, *names: str) -> None:
    """Long questions, one after the other."""
    for name in names:
        await (await root.submit(f"{name} {LONG}", request_id=name)).wait()


async def manual(world: World) -> None:
    """Ask for a compaction and, while it is made, a question."""
    async with growing(world, compaction=attrs.evolve(SMALL, keep_recent_tokens=10)) as root:
        await ask(root, "one")
        if not (await root.entries(COMPACTION)).items:
            await root.compact()
        await (await root.submit("two", request_id="two", when_busy="steer")).wait()


async def threshold(world: World) -> None:
    """Outgrow the threshold; the question that does so waits, and another one behind it."""
    async with growing(world, info=KNOWN) as root:
        await ask(root, "one", "two")
        third = await root.submit(f"three {LONG}", request_id="three")
        await (await root.submit("four", request_id="four")).wait()
        await third.wait()


async def background(world: World) -> None:
    """Come near the threshold; the summary is made while the conversation goes on."""
    async with growing(world, info=KNOWN, compaction=EARLY) as root:
        await ask(root, "one", "two")
        await (await root.submit("three", request_id="three")).wait()
        await trio.sleep(30)
        await (await root.submit("four", request_id="four")).wait()


async def refused(world: World) -> None:
    """Outgrow a window that only the provider knows."""
    async with growing(world, refuses=True) as root:
        await ask(root, "one", "two", "three")
        await (await root.submit("four", request_id="four")).wait()


def check_manual(world: World) -> None:
    """The smallest of them."""
    check_compacted(world, "one", "two")


def check_four(world: World) -> None:
    """The others."""
    check_compacted(world, "one", "two", "three", "four")


def check_compacted(world: World, *names: str) -> None:
    """One summary; each input answered once, in order; nothing under way or held."""
    # The summary is handed in as a submission of its own.
    assert statuses_of(world) == ["done"] * (len(names) + 1)
    entries = world.records.transcript()
    assert sum(entry.kind == COMPACTION for entry in entries) == 1
    assert [_said(entry).split()[0] for entry in entries if entry.kind == USER] == [*names]
    answers = [_said(entry) for entry in entries if _is_whole(entry)]
    assert answers == [f"re: {name}" for name in names]
    assert 1 <= world.count("summarized") <= world.life
    live = world.records.documents["conversation", ROOT_ID, "pi.live", ""]
    assert isinstance(live, FrozenDict)
    assert (live["run"], list(live["compactions"]), live["held"]) == (None, [], False)  # type: ignore[arg-type]
    assert live["compaction_failure"] is None


def _is_whole(entry: EntryRecord) -> bool:
    message = entry.model[0] if entry.model else None
    return (
        entry.kind == ASSISTANT
        and isinstance(message, AssistantMessage)
        and message.stop_reason == "stop"
    )


def _said(entry: EntryRecord) -> str:
    message = entry.model[0] if entry.model else None
    assert isinstance(message, UserMessage | AssistantMessage)
    return text_of(message.content)


COMPACTIONS: Final[Mapping[str, Told]] = {
    "compaction, manual": Told(manual, check_manual),
    "compaction, threshold": Told(threshold, check_four),
    "compaction, background": Told(background, check_four),
    "compaction, overflow": Told(refused, check_four),
}
