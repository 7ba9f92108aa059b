"""One round of tool calls, run to its end and looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import trio

from pidurable_actors import (
    Reply,
    Settings,
    Tool,
    ToolCall,
    tool,
)
from pidurable_actors.records import (
    text_of,
)
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    all_tasks,
    call,
    calling,
    ended,
    open_agent,
    peek,
    turns,
)


class Counter:
    """Counts, from outside, how often a tool's body was entered."""

    def __init__(self) -> None:
        self.entered = 0

    def tool(self, **options: Any) -> Tool:
        """An ``add`` tool that counts."""

        @tool("add", **options)
        async def add(
            a: Annotated[int, "the first number"], b: Annotated[int, "the second"] = 1
        ) -> str:
            """Add two numbers."""
            self.entered += 1
            await trio.lowlevel.checkpoint()
            return str(a + b)

        return add


class Ran:
    """What a round came to."""

    def __init__(self, results: Any, entry: Any, outcomes: Any, reports: Sequence[str]) -> None:
        self.results = results
        self.entry = entry
        self.outcomes = outcomes
        self.reports = reports

    @property
    def text(self) -> str:
        """The text of the one result."""
        (result,) = self.results.values()
        return text_of(result.content)

    @property
    def is_error(self) -> bool:
        """Whether the one result is an error."""
        (result,) = self.results.values()
        return bool(result.is_error)


async def run_tool(made: Tool, *calls: ToolCall, settings: Settings | None = None) -> Ran:
    """One round with these calls; the tool's own name by default."""
    storage = MemoryStorage()
    model = turns(calling(*(calls or (call(made.name),))), Reply("done"))
    async with open_agent(storage, model, made, settings=settings) as agent:
        settled = await agent.ask()
        assert settled.status == "done"
        results = await agent.results()
        entry = await agent.result_entry(next(iter(results)))
        reports = [report.kind for report in agent.reports]
    with peek(storage) as stored:
        outcomes = [ended(task).outcome for task in all_tasks(stored) if task.kind == "pi.tool"]
    return Ran(results, entry, outcomes, reports)
