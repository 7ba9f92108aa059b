"""A tool that calls tools, and what was stored of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from pidurable_actors import Reply, Settings, Tool, ToolApi, ToolResult, tool
from pidurable_actors._json import JsonObject
from pidurable_actors.agent import Replay
from pidurable_actors.records import TaskRecord, text_of
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import STORE_FIRST, Agent, all_tasks, call, calling, open_agent, peek, turns

MODEL = (calling(call("outer")), Reply("done"))

Body = Callable[[ToolApi], Awaitable[Any]]


def outer(body: Body, **options: Any) -> Tool:
    """A tool of the model's that does `body`."""

    @tool("outer", **options)
    async def made(*, api: ToolApi) -> Any:
        """Call other tools."""
        return await body(api)

    return made


def adder(**options: Any) -> Tool:
    """A tool of the tools': ``add(a, b=1)``."""

    @tool("add", callers=["tools"], **options)
    async def add(a: int, b: int = 1) -> str:
        """Add two numbers."""
        await trio.lowlevel.checkpoint()
        return str(a + b)

    return add


@attrs.define
class Inner:
    """A tool of the tools' that hangs or returns, and how often its body was entered."""

    keys: list[str] = attrs.field(factory=list)

    @property
    def entered(self) -> int:
        """How often."""
        return len(self.keys)

    def tool(self, replay: Replay = "unsafe", *, hangs: bool = False, **options: Any) -> Tool:
        """``inner``: says ``working`` and hangs, or returns."""

        @tool("inner", callers=["tools"], replay=replay, **options)
        async def inner(*, api: ToolApi) -> ToolResult:
            """Do something inside."""
            self.keys.append(api.idempotency_key)
            await api.output("working\n")
            if hangs:
                await trio.sleep_forever()
            return ToolResult("did it", details={"run": self.entered})

        return inner


async def one_call(api: ToolApi) -> ToolResult:
    """Calls ``inner`` and returns what it returned."""
    return await api.call("inner", {}, key="one")


@attrs.frozen
class Ran:
    """What a run left: the storage, and the text and the data of ``outer``'s result."""

    storage: MemoryStorage
    text: str
    data: Any
    reports: list[str]

    def call(self) -> TaskRecord:
        """The one nested call."""
        (found,) = tasks_of(self.storage)
        return found


async def run(
    *tools: Tool, caller: JsonObject | None = None, settings: Settings | None = None
) -> Ran:
    """One run of a model that calls ``outer``."""
    storage = MemoryStorage()
    async with open_agent(storage, turns(*MODEL), *tools, settings=settings) as agent:
        settled = await (await agent.root.submit("go", caller=caller)).wait()
        assert settled.status == "done"
        assert (await agent.live()).tools == {}
        data = (await agent.result_entry("c1")).data
        return Ran(storage, await outer_text(agent), data, [r.kind for r in agent.reports])


async def cut(*tools: Tool, at_s: float = 0.5, close: bool = False) -> MemoryStorage:
    """What a process leaves that ends while the tools are at work."""
    storage = MemoryStorage()
    settings = Settings(progress=STORE_FIRST)
    async with open_agent(storage, turns(*MODEL), *tools, settings=settings) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(at_s)
        crashed = storage.snapshot()
    return storage if close else crashed


async def go_on(storage: Storage, *tools: Tool, settings: Settings | None = None) -> str:
    """Open the storage again and let the run end; the text of ``outer``'s result."""
    async with open_agent(storage, turns(*MODEL), *tools, settings=settings) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
        return await outer_text(agent)


async def outer_text(agent: Agent) -> str:
    """The text of the result of ``outer``, the only one there is."""
    (result,) = (await agent.results()).values()
    return text_of(result.content)


def tasks_of(storage: Storage, kind: str = "pi.call") -> list[TaskRecord]:
    """The stored tasks of a kind, by id."""
    with peek(storage) as stored:
        return [task for task in all_tasks(stored) if task.kind == kind]
