"""Ask one question that needs one tool; everything on the way is stored.

Run it: ``python examples/quickstart.py``

A scripted model stands in for a real one, so no key is needed. The conversation lives in a SQLite
file. Give it a path of your own, kill this program at any moment and start it again: it goes on
from the last stored step, and the same ``request_id`` finds the same question.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import trio

from pidurable_actors import (
    AgentChoice,
    Extension,
    Models,
    Registry,
    Reply,
    ScriptedContext,
    ScriptedModel,
    ToolCall,
    open_harness,
    text_of,
    tool,
)
from pidurable_actors.storage.sqlite import SqliteStorage


# "safe": after a crash in the middle, running it again does no harm.
@tool(replay="safe")
async def search_logs(pattern: Annotated[str, "text to look for"]) -> str:
    """Search the service logs for a pattern."""
    return f"3 matches for {pattern}, all in OrderService.java:42"


def reply(context: ScriptedContext) -> Reply:
    """Decide from the transcript, as a model does."""
    found = context.tool_results("search_logs")
    if not found:
        return Reply(tool_calls=[ToolCall("search_logs", {"pattern": "NullPointerException"})])
    return Reply(f"The orders fail because of a bug: {text_of(found[-1].content)}.")


async def main(file: Path) -> None:
    """Ask, wait, print."""
    registry = Registry([Extension("triage", tools=[search_logs])])
    models = Models([ScriptedModel(reply)])
    async with open_harness(SqliteStorage(file), registry=registry, models=models) as harness:
        root = await harness.root(agent=AgentChoice(model="scripted/demo"))
        submission = await root.submit("Why do orders fail?", request_id="orders-1")
        print(f"done: {await submission.answer()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trio.run(main, Path(folder) / "agent.sqlite")
