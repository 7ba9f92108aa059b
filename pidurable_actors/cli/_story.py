"""The program that both processes of ``pidurable demo crash`` run; not for people.

``python -m pidurable_actors.cli._story FOLDER PART PACE_S``. Part ``die`` ends by SIGKILL inside
``open_ticket``, part ``recover`` goes on with the same file. What happens is told on standard
output, one JSON object a line, at the moment at which it happens; the demo puts it into words.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final, Literal, TypeAlias

import trio

from pidurable_actors._json import encode_json
from pidurable_actors.agent import Extension, Registry, Tool, ToolApi, tool
from pidurable_actors.harness import Conversation, Harness, open_harness
from pidurable_actors.models import Models, Reply, ScriptedContext, ScriptedModel, ToolCall
from pidurable_actors.records import USER, ToolResultMessage, text_of
from pidurable_actors.settings import AgentChoice
from pidurable_actors.storage.sqlite import SqliteStorage

__all__ = ["FILE", "TICKETS", "Part"]

Part: TypeAlias = Literal["die", "recover"]

FILE: Final = "agent.sqlite"
TICKETS: Final = "tickets.txt"
_QUESTION: Final = "Investigate the order failures."
_FOUND: Final = "3 matches: NullPointerException in OrderService.java:42"


async def run(folder: Path, part: Part, pace_s: float) -> None:
    """Open the file, say what is in it, ask (or find the question again), and wait.

    Durability: everything is stored in `FILE`, and the ticket in `TICKETS`.

    Cancellation: closes the harness.
    """
    tools = make_tools(folder, part, pace_s)
    async with open_harness(
        SqliteStorage(folder / FILE),
        registry=Registry([Extension("triage", tools=tools)]),
        models=Models([ScriptedModel(lambda context: reply(context, pace_s))]),
    ) as harness:
        root = await harness.root(agent=AgentChoice(model="scripted/demo"))
        await look(harness, root)
        submission = await root.submit(_QUESTION, request_id="investigate-1")
        settled = await submission.wait()
        (newest,) = (await root.entries(limit=1)).items
        answer = "".join(text_of(message.content) for message in newest.model or ())
        questions = len((await root.entries(USER)).items)
        tell("settled", status=settled.status, answer=answer, questions=str(questions))


async def look(harness: Harness, root: Conversation) -> None:
    """Tell what the file holds, before anything is scheduled.

    Durability: stores nothing.

    Cancellation: nothing happened.
    """
    tell("opened", pid=str(os.getpid()), entries=str(len((await root.entries()).items)))
    for view in harness.inspect().tasks:
        tell("found", kind=view.kind, status=view.status, restarts=str(view.restarts))


def make_tools(folder: Path, part: Part, pace_s: float) -> list[Tool]:
    """The two tools: one that only reads, and one that acts on the world and may die of it."""

    @tool(replay="safe")
    async def search_logs(pattern: str) -> str:
        """Search the service logs for a pattern."""
        tell("searching", pattern=pattern)
        await trio.sleep(pace_s)
        return _FOUND

    @tool()
    async def open_ticket(title: str, *, api: ToolApi) -> str:
        """Open a ticket in the issue tracker."""
        tell("opening", title=title, key=api.idempotency_key)
        await trio.sleep(pace_s)
        async with await trio.open_file(folder / TICKETS, "a", encoding="utf-8") as tracker:
            await tracker.write(f"TICKET-1 {title}\n")
        tell("effect")
        await trio.sleep(pace_s)
        if part == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return "Opened TICKET-1"

    return [search_logs, open_ticket]


def reply(context: ScriptedContext, pace_s: float) -> Reply:
    """Decide from the transcript, so that every process decides alike."""
    last = context.last
    if not isinstance(last, ToolResultMessage):
        tell("asked")
        call = ToolCall("search_logs", {"pattern": "NullPointerException"})
        return Reply(tool_calls=[call], delay_s=pace_s)
    tell("asked", after=last.tool_name, result=text_of(last.content))
    if last.tool_name == "search_logs":
        call = ToolCall("open_ticket", {"title": "NPE in OrderService"})
        return Reply(tool_calls=[call], delay_s=pace_s)
    if last.is_error:
        text = "I found the bug. Whether its ticket was opened is not known: look before retrying."
        return Reply(text, delay_s=pace_s)
    return Reply("I found the bug and opened a ticket.", delay_s=pace_s)


def tell(event: str, **facts: str) -> None:
    """One line for the demo, at once."""
    print(encode_json({"event": event, **facts}), flush=True)


def main() -> None:
    """Run one part of the story."""
    folder, part, pace = sys.argv[1:]
    trio.run(run, Path(folder), "die" if part == "die" else "recover", float(pace))


if __name__ == "__main__":
    main()
