"""Extensions with hooks, the run that asks them, and what it came to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import trio

from pidurable_actors import Extension, Registry, Reply, Tool, ToolCall, tool
from pidurable_actors.agent import Hook, HookPoint
from pidurable_actors.storage import Storage
from tests._agents import Agent, call, calling, open_agent
from tests._strict import strict_model

__all__ = ["ADDING", "BAD_TEXT", "Noted", "add", "always", "hooking", "reports_of", "run_hooks"]

BAD_TEXT = "\ud800"
"""Text that no storage takes."""

ADDING = (calling(call("add", a=1, b=2)), Reply("done"))
"""What a model says that calls ``add`` once."""


@tool("add")
async def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    await trio.lowlevel.checkpoint()
    return str(a + b)


class Noted:
    """Notes, by name, what hooks were asked about, in the order in which they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def at(self, point: HookPoint, name: str, answer: Any = None) -> Hook:
        """A hook that notes what it is asked about and returns, raises or awaits `answer`."""

        async def noting(about: Any, *more: Any) -> object:
            self.asked.append((name, about if len(more) == 1 else (about, *more[:-1])))
            await trio.lowlevel.checkpoint()
            if isinstance(answer, BaseException):
                raise answer
            return await answer(about, *more) if callable(answer) else answer

        return Hook(point, noting)

    @property
    def names(self) -> list[str]:
        """Who was asked, in order."""
        return [name for name, _ in self.asked]


def always(answer: object) -> Callable[..., Awaitable[object]]:
    """An answer that depends on nothing."""

    async def given(*_: object) -> object:
        await trio.lowlevel.checkpoint()
        return answer

    return given


def hooking(*hooks: Hook | Iterable[Hook], tools: Iterable[Tool] = (add,)) -> Registry:
    """A registry with an extension for each of `hooks`: ``e1``, ``e2``, and so on."""
    listed = [[it] if isinstance(it, Hook) else list(it) for it in hooks]
    found = [Extension(f"e{n}", hooks=its) for n, its in enumerate(listed, start=1)]
    return Registry([Extension("tools", tools=tools), *found])


class Ran:
    """What a run came to."""

    def __init__(
        self, lines: list[str], status: str, reason: str | None, reports: list[str]
    ) -> None:
        self.lines = lines
        self.status = status
        self.reason = reason
        self.reports = reports


async def run_hooks(
    storage: Storage, *hooks: Hook | Iterable[Hook], calls: Iterable[ToolCall] = (), says: str = ""
) -> Ran:
    """One run with these hooks: a round of calls of ``add``, if any, and an answer."""
    made = tuple(calls)
    replies = (*((calling(*made),) if made else ()), Reply(says or "done"))
    async with open_agent(storage, strict_model(*replies), registry=hooking(*hooks)) as agent:
        settled = await agent.ask()
        await agent.root.wait_for_idle()
        return Ran(await agent.lines(), settled.status, settled.reason, reports_of(agent))


def reports_of(agent: Agent) -> list[str]:
    """What was reported, in short: ``hook_failed before_tool``."""
    return [f"{report.kind} {report.reason}" for report in agent.reports]
