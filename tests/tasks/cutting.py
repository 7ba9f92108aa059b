"""A run whose tool is cut off, and the process that finishes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
import trio

from pidurable_actors import Reply, Settings, Tool, ToolApi, tool
from pidurable_actors.agent import Replay
from pidurable_actors.records import (
    Batch,
    EntryRecord,
    TaskRecord,
    ToolResultMessage,
    text_of,
)
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing._through import ThroughStorage
from tests._agents import (
    STORE_FIRST,
    all_tasks,
    call,
    calling,
    open_agent,
    peek,
    turns,
)

Cut = Literal["crash", "close"]


CUTS: tuple[Cut, ...] = ("crash", "close")


MODEL = (calling(call("append", line="hello")), Reply("done"))


Handler = Callable[[Mapping[str, Any], ToolApi], Awaitable[object]]


class Photographed(ThroughStorage):
    """A memory storage that keeps what it holds before each write and at the end.

    Attributes:
        pictures: closed storages, oldest first.
    """

    def __init__(self, inner: MemoryStorage) -> None:
        super().__init__(inner)
        self.pictures: list[MemoryStorage] = []
        self._memory = inner

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store, and take pictures."""
        self.pictures.append(self._memory.snapshot())
        super().apply(batches)
        self.pictures.append(self._memory.snapshot())


@attrs.define
class Outside:
    """The file that the tool appends to, and what it saw."""

    lines: list[str] = attrs.field(factory=list)
    keys: list[str] = attrs.field(factory=list)

    def tool(
        self,
        replay: Replay,
        *,
        hangs: bool = False,
        says: str = "working\n",
        handler: Handler | None = None,
    ) -> Tool:
        """``append``: appends, says something, and hangs or returns."""

        @tool("append", replay=replay)
        async def append(line: str, *, api: ToolApi) -> str:
            """Append a line to a file."""
            self.lines.append(line)
            self.keys.append(api.idempotency_key)
            if says:
                await api.output(says)
            if hangs:
                await trio.sleep_forever()
            return "appended"

        if handler is not None:
            append.reconcile(handler)
        return append


@attrs.frozen
class Found:
    """What the second process left."""

    result: ToolResultMessage
    entry: EntryRecord
    task: TaskRecord
    status: str

    @property
    def text(self) -> str:
        """The text of the result."""
        return text_of(self.result.content)


async def cut_off(outside: Outside, first: Tool, how: Cut, **settings: Any) -> MemoryStorage:
    """Run until the tool hangs, then end the process."""
    storage = MemoryStorage()
    options = Settings(**{"progress": STORE_FIRST, **settings})
    async with open_agent(storage, turns(*MODEL), first, settings=options) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(0.5)
        assert outside.lines == ["hello"]
        crashed = storage.snapshot()
    return crashed if how == "crash" else storage


async def finish(storage: Storage, *tools: Tool, settings: Settings | None = None) -> Found:
    """Open the storage again and let the run end."""
    async with open_agent(storage, turns(*MODEL), *tools, settings=settings) as agent:
        settled = await agent.ask("go", request_id="r1")
        (result,) = (await agent.results()).values()
        entry = await agent.result_entry("c1")
        assert (await agent.lines())[-1] == "assistant done"
    with peek(storage) as stored:
        (task,) = [task for task in all_tasks(stored) if task.kind == "pi.tool"]
    return Found(result, entry, task, settled.status)
