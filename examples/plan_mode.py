"""Plan mode: only reading tools run until one ends it. Run ``python examples/plan_mode.py``."""

import signal
import subprocess
import sys
import tempfile

import attrs
import trio

import pidurable_actors as pi
from pidurable_actors import Block, HookApi, ToolCallEvent, hook, section
from pidurable_actors.storage.sqlite import SqliteStorage


@attrs.define
class Mode:
    planning: bool = True


MODE = pi.define_doc("example.mode", Mode)


@section("mode")  # Sent again when it says something else.
async def mode(api: HookApi) -> str:
    return "Plan." if (await api.snapshot(MODE)).planning else "Carry out the plan."


@hook.before_tool
async def only_reading(event: ToolCallEvent, api: HookApi) -> Block | None:
    early = event.tool.name == "write" and (await api.snapshot(MODE)).planning
    return Block("plan first") if early else None


@pi.tool(replay="safe")
async def read(file: str) -> str:
    """Read a file."""
    if sys.argv[1] == "killed":  # The next process opens the same file, and plans on.
        signal.raise_signal(signal.SIGKILL)
    return f"{file} is empty"


@pi.tool()
async def write(file: str) -> str:
    """Write a file."""
    return f"{file} is written"


async def act(tx: pi.Tx) -> None:
    (await tx.doc(MODE)).planning = False


@pi.tool(replay="safe")
async def end_plan(file: str, *, api: pi.ToolApi) -> str:
    """End the planning."""
    await api.commit(act)
    return f"{file} may be written"


CALLS = [pi.ToolCall(name, {"file": "news"}) for name in ("write", "read", "end_plan", "write")]
MODEL = pi.ScriptedModel(lambda at: pi.Reply("On it.", tool_calls=CALLS[at.answers :][:1]))
PLAN = pi.Extension("p", tools=[read, write, end_plan], sections=[mode], hooks=[only_reading])


async def main() -> None:
    storage, models = SqliteStorage("plan.sqlite"), pi.Models([MODEL])
    async with pi.open_harness(storage, models=models, registry=pi.Registry([PLAN])) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        await (await root.submit("Write the news.", request_id="news")).wait()
        for entry in reversed((await root.entries()).items):
            print(f"{entry.kind}:", *(pi.text_of(it.content) for it in entry.model or ()))


if sys.argv[1:]:
    sys.exit(trio.run(main))
with tempfile.TemporaryDirectory() as folder:
    for life in ("killed", "again"):
        print(life, subprocess.call([sys.executable, __file__, life], cwd=folder), flush=True)
