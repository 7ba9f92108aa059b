"""Answers: many conversations, each with one input, one tool call and one answer."""

from __future__ import annotations

import time
from typing import Annotated

import trio

from pidurable_actors import (
    AgentChoice,
    Conversation,
    Extension,
    Models,
    Reply,
    ScriptedModel,
    ToolCall,
    tool,
)
from pidurable_actors.models.scripted import ScriptedContext
from pidurable_actors.records import ToolResultMessage
from tests.benchmarks.children import Numbers
from tests.benchmarks.programs import commits_in, start

__all__ = ["run"]


@tool(replay="safe")
async def search(pattern: Annotated[str, "what to look for"]) -> str:
    """Search the logs."""
    return f"3 lines match {pattern}"


def reply(context: ScriptedContext) -> Reply:
    """Call the tool once, then answer."""
    if isinstance(context.last, ToolResultMessage):
        return Reply("There are three matches.")
    return Reply(tool_calls=[ToolCall("search", {"pattern": "error"})])


def run(path: str, conversations: int) -> Numbers:
    """Submit one input to each conversation at once and wait for all answers.

    Returns:
        Answers a second; commits and milliseconds of processor time per answered input.
    """
    return trio.run(_run, path, conversations)


async def _run(path: str, conversations: int) -> Numbers:
    models = Models([ScriptedModel(reply)])
    async with start(path, models=models, agent=Extension("logs", tools=[search])) as harness:
        agent = AgentChoice(model="scripted/demo")
        await _ask(await harness.root(agent=agent))
        made = [await harness.create_conversation(agent=agent) for _ in range(conversations)]
        before, cpu_s, began_s = commits_in(path), time.process_time(), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for conversation in made:
                nursery.start_soon(_ask, conversation)
        took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        commits = commits_in(path) - before
    return {
        "rate": conversations / took_s,
        "commits": commits / conversations,
        "cpu_ms": cpu_s / conversations * 1e3,
    }


async def _ask(conversation: Conversation) -> None:
    submission = await conversation.submit("How many errors are there?")
    settled = await submission.wait()
    assert settled.status == "done", settled
