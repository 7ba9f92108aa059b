"""Stories for processes that are killed: functions of a module, so that another process finds them.

Besides whole stories there are those that do not repeat in another process, that fail, hang, or end
their process themselves. The stories of the product are in `tests.crash.stories`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, final

import attrs
import trio

from pidurable_actors import (
    AgentChoice,
    Extension,
    Harness,
    Models,
    Registry,
    Reply,
    ScriptedModel,
    Settings,
    Tx,
    define_doc,
    tool,
)
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import Batch
from pidurable_actors.settings import RetrySettings
from pidurable_actors.storage import Storage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing import Disk, FileDisk, SqliteDisk, World
from pidurable_actors.testing._disks import Image
from pidurable_actors.testing._through import ThroughStorage
from tests._agents import MODEL, STORE_FIRST, call, calling
from tests.crash.stories import conversation, round_of

AT_ONCE: Final = Settings(progress=STORE_FIRST, retry=RetrySettings(max_retries=8, base_s=0))
ROUNDS: Final = 3
WIDE: Final = 32


async def two_at_once(world: World) -> None:
    """A safe and an unsafe tool, called together."""
    await round_of("search", "ticket")(world)


async def tickets(world: World) -> None:
    """Search, then open a ticket, in two rounds and without a pause, for real time."""

    @tool(replay="safe")
    async def search() -> str:
        """Search; running it again does no harm."""
        world.effect("search", repeatable=True)
        await trio.lowlevel.checkpoint()
        return "3 matches"

    @tool()
    async def ticket() -> str:
        """Open a ticket."""
        world.effect("ticket")
        await trio.lowlevel.checkpoint()
        return "opened"

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.tool_results("ticket"):
            return Reply("done", chunk=1)
        return calling(call("ticket", "c1") if ctx.tool_results("search") else call("search", "c0"))

    async with conversation(world, script, search, ticket, settings=AT_ONCE) as root:
        await (await root.submit("Investigate", request_id="i1")).wait()


async def crowd(world: World) -> None:
    """Rounds of many tools that end together, while steering comes in."""

    @tool(replay="safe")
    async def count(number: int) -> str:
        """Say a number."""
        await trio.sleep(0.001)
        return str(number)

    def script(ctx: ScriptedContext) -> Reply:
        done = len(ctx.tool_results()) // WIDE
        if done == ROUNDS:
            return Reply("done")
        return calling(*(call("count", f"r{done}-{at}", number=at) for at in range(WIDE)))

    async with conversation(world, script, count, settings=AT_ONCE) as root:
        handles = [await root.submit("go", request_id="go")]
        for number in range(ROUNDS):
            content = f"steer {number}"
            handles.append(await root.submit(content, request_id=content, when_busy="steer"))
        for handle in handles:
            await handle.wait()


@attrs.define
class Bank:
    """A service outside, which knows keys."""

    charged: dict[str, int] = attrs.field(factory=dict)


async def outside(world: World) -> None:
    """A tool that charges a service outside and writes a receipt."""
    bank = world.external("bank", Bank())

    @tool(replay="safe")
    async def charge() -> str:
        """Charge once, whatever happens."""
        bank.charged["order 7"] = 100
        await trio.sleep(1)
        folder = world.directory / "receipts"
        folder.mkdir(exist_ok=True)
        (folder / "7.txt").write_text("100")
        await trio.sleep(1)
        return "charged"

    def script(ctx: ScriptedContext) -> Reply:
        return Reply("done") if ctx.answers else calling(call("charge", "c0"))

    async with conversation(world, script, charge) as root:
        await (await root.submit("Pay.", request_id="p1")).wait()
    assert bank == Bank({"order 7": 100})
    assert (world.directory / "receipts" / "7.txt").read_text() == "100"


async def greedy(world: World) -> None:
    """A tool that is declared safe and is not."""

    @tool(replay="safe")
    async def charge() -> str:
        """Charge, without a key."""
        world.effect("charge")
        await trio.lowlevel.checkpoint()
        return "charged"

    def script(ctx: ScriptedContext) -> Reply:
        return Reply("done") if ctx.answers else calling(call("charge", "c0"))

    async with conversation(world, script, charge) as root:
        await (await root.submit("Pay.", request_id="p1")).wait()


# --- a tool that takes its process with it ---


async def deadly(world: World, policy: Literal["end", "park"]) -> None:
    """A tool ends its process, until the limit; an operator who finds it parked disarms it."""
    disarmed = world.directory / "disarmed"

    @tool(replay="safe")
    async def kill() -> str:
        """End the process."""
        world.effect("kill", repeatable=True)
        if not disarmed.exists():
            await trio.sleep(0.05)  # Time for the sibling to come to its end.
            os._exit(9)
        return "survived"

    @tool(replay="safe")
    async def sibling() -> str:
        """Do no harm."""
        world.effect("sibling", repeatable=True)
        await trio.lowlevel.checkpoint()
        return "fine"

    def script(ctx: ScriptedContext) -> Reply:
        return Reply("done") if ctx.answers else calling(call("sibling", "s1"), call("kill", "k1"))

    async with world.open_harness(
        registry=Registry([Extension("deadly", tools=[kill, sibling])]),
        models=Models([ScriptedModel(script)]),
        settings=Settings(restart_limit=3, on_restart_limit=policy),
    ) as harness:
        root = await harness.root(agent=AgentChoice(model=MODEL))
        submission = await root.submit("go", request_id="r1")
        if policy == "park":
            parked = await _parked(harness)
            disarmed.touch()
            world.effect("disarmed", repeatable=True)
            await harness.retry_task(parked)
        await submission.wait()


async def _parked(harness: Harness) -> int:
    while True:
        for task in harness.inspect().tasks:
            if task.why == "parked":
                return task.id
        await trio.sleep(0.001)


async def always_deadly(_: World) -> None:
    """End the process, each time."""
    await trio.lowlevel.checkpoint()
    os._exit(0)


# --- stories that go wrong in a process of their own ---


async def hanging(world: World, said: Path) -> None:
    """Say which process this is and where it keeps its files, and block it."""
    said.write_text(f"{os.getpid()} {world.directory}")  # noqa: ASYNC240 - and so does the next
    signal.pause()
    await trio.lowlevel.checkpoint()


async def failing(_: World) -> None:
    """Print, and raise what can be told to another process."""
    await trio.lowlevel.checkpoint()
    print("printed")
    raise ValueError("of no value")


@final
class Untold(Exception):
    """An error that cannot be made again from its arguments."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


async def failing_untold(_: World) -> None:
    """Raise what cannot be told to another process."""
    await trio.lowlevel.checkpoint()
    raise Untold("this", "that")


async def talkative(world: World) -> None:
    """Print and write to both standard files."""
    os.write(2, b"written\n")
    print("printed")
    await world_only(world)


async def registering(world: World) -> None:
    """Register an outside object."""
    world.external("bank", Bank())
    await world_only(world)


async def world_only(world: World) -> None:
    """One commit."""
    async with world.open_harness() as harness:
        await harness.root()


# --- stories that do not repeat in another process ---


async def pid_in_effect(world: World) -> None:
    """What is done names the process."""
    world.effect("greet", key=str(os.getpid()))
    await world_only(world)


async def pid_in_file(world: World) -> None:
    """What is written names the process."""
    (world.directory / "pid").write_text(str(os.getpid()))
    await world_only(world)


async def pid_in_external(world: World) -> None:
    """What is charged names the process."""
    world.external("bank", Bank()).charged["by"] = os.getpid()
    await world_only(world)


@attrs.define
class Note:
    """A document."""

    pid: int = 0


NOTE: Final = define_doc("test.note", Note)


async def pid_in_record(world: World) -> None:
    """What is stored names the process."""

    async def sign(tx: Tx) -> None:
        (await tx.doc(NOTE)).pid = os.getpid()

    async with world.open_harness() as harness:
        await (await harness.root()).commit(sign)


PARENT: Final = os.getpid()


async def sooner_over(world: World) -> None:
    """In a process that was forked, one effect less."""
    if os.getpid() == PARENT:
        world.effect("more")
    await world_only(world)


class Incomparable:
    """An outside object without an ``__eq__``."""


async def incomparable(world: World) -> None:
    """Register an object that does not know how to compare."""
    world.external("service", Incomparable())
    await world_only(world)


@attrs.define
class Unpicklable:
    """An outside object that can be copied and not pickled."""

    call: object = attrs.field(factory=lambda: lambda: None, eq=False)


async def unpicklable(world: World) -> None:
    """Register an object that cannot be pickled."""
    world.external("service", Unpicklable())
    await world_only(world)


@final
class ForgetfulDisk:
    """A disk whose captures lack the newest change."""

    def __init__(self, real: Disk) -> None:
        self._real = real
        self._newest: Image = None

    def storage(self) -> Storage:
        """The real one."""
        return self._real.storage()

    def capture(self) -> Image:
        """What the capture before this one should have been."""
        before, self._newest = self._newest, self._real.capture()
        return self._newest if before is None else before

    def torn(self, before: Image, after: Image) -> Iterator[tuple[str, Image]]:
        """Nothing."""
        return iter(())

    def restore(self, image: Image | None) -> None:
        """To the real one."""
        self._newest = None
        self._real.restore(image)

    def close(self) -> None:
        """Close the real one."""
        self._real.close()


def forgetful(*, place: Path | None = None) -> Disk:
    """Forgetful where snapshots are taken, honest where processes die."""
    return ForgetfulDisk(SqliteDisk()) if place is None else SqliteDisk(place=place)


class LazyStorage(ThroughStorage):
    """A storage that says it has a write and makes it with the next one, or when it is closed."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._kept: list[Batch] = []

    def apply(self, batches: Sequence[Batch]) -> None:
        """Make the write before this one."""
        self._flush()
        self._kept = list(batches)

    def close(self) -> None:
        """Make the last write, and close."""
        self._flush()
        super().close()

    def _flush(self) -> None:
        batches, self._kept = self._kept, []
        if batches:
            self.inner.apply(batches)


def lazy(*, place: Path | None = None) -> Disk:
    """Keeps a storage that acknowledges before it has stored."""
    return FileDisk(
        lambda found: LazyStorage(SqliteStorage(found / "story.sqlite")),
        ignored=(".lock", "-shm"),
        place=place,
    )
