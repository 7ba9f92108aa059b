"""What an answer costs: in a long conversation, and with hooks, a section and a budget around it."""

from __future__ import annotations

from functools import partial
from typing import Literal

import trio

from pidurable_actors import (
    AgentChoice,
    Budget,
    BudgetSettings,
    Conversation,
    Extension,
    HookApi,
    Models,
    Reply,
    ScriptedModel,
    Settings,
    ToolCallEvent,
    Tx,
    hook,
    section,
)
from pidurable_actors.models import ModelInfo, ModelRequest
from pidurable_actors.records import EntryDraft, TextBlock, UserMessage
from tests.benchmarks.children import Numbers
from tests.benchmarks.measure_answers import reply, search
from tests.benchmarks.measure_documents import cpu_us
from tests.benchmarks.programs import start

__all__ = ["dressed", "grown"]

LINE = "a line of the conversation, as long as people write them " * 2


@section("rules")
async def rules(_: HookApi) -> str:
    """What is always the same."""
    return "Be brief, and look before you answer."


@hook.before_request
async def look_at_request(_: ModelRequest, __: HookApi) -> None:
    """Nothing to say."""


@hook.before_tool
async def look_at_call(_: ToolCallEvent, __: HookApi) -> None:
    """Nothing to say."""


def grown(path: str, counts: tuple[int, int], steps: int) -> Numbers:
    """Answer in a conversation of few entries and in one of many, whose window is known.

    Returns:
        Microseconds of processor time per answer.
    """
    few, many = (trio.run(_grown, f"{path}-{count}", count, steps) for count in counts)
    return {"few_us": few, "many_us": many}


async def _grown(path: str, count: int, steps: int) -> float:
    info = ModelInfo(context_window=10_000_000)
    models = Models([ScriptedModel(lambda _: Reply("Noted."), info=info)])
    async with start(path, models=models) as harness:
        root = await harness.root(agent=AgentChoice(model="scripted/demo"))
        await root.commit(partial(_fill, count))
        return await cpu_us(lambda: _ask(root), steps)


def dressed(path: str, steps: int) -> Numbers:
    """Answer with a tool call, plainly and with two hooks, a section and a budget.

    Returns:
        Microseconds of processor time per answer.
    """
    plain, full = (trio.run(_dressed, f"{path}-{how}", how, steps) for how in ("plain", "full"))
    return {"few_us": plain, "many_us": full}


async def _dressed(path: str, how: Literal["plain", "full"], steps: int) -> float:
    extension = Extension("logs", tools=[search])
    settings = Settings()
    if how == "full":
        hooks = [look_at_request, look_at_call]
        extension = Extension("logs", tools=[search], sections=[rules], hooks=hooks)
        settings = Settings(budget=BudgetSettings(conversation=Budget(tokens=10**12, cost=10**9)))
    models = Models([ScriptedModel(reply)])
    async with start(path, models=models, agent=extension, settings=settings) as harness:

        async def answer() -> None:
            agent = AgentChoice(model="scripted/demo")
            await _ask(await harness.create_conversation(agent=agent))

        return await cpu_us(answer, steps)


def _fill(count: int, tx: Tx) -> None:
    for _ in range(count):
        message = UserMessage(content=(TextBlock(text=LINE),))
        assert tx.conversation_id is not None
        tx.append_entry(tx.conversation_id, EntryDraft(kind="app.line", model=(message,)))


async def _ask(conversation: Conversation) -> None:
    settled = await (await conversation.submit("How many errors are there?")).wait()
    assert settled.status == "done", settled
