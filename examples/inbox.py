"""An inbox that fills up while a run goes on, across a kill: each thing is placed in its turn.

Run it: ``python examples/inbox.py``. The first process dies by SIGKILL as soon as everything is
handed in; the second one opens the same file, hands in nothing new, and lets it happen.
"""

import signal
import subprocess
import sys
import tempfile

import attrs
import trio

import pidurable_actors as pi
from pidurable_actors.storage.sqlite import SqliteStorage


@attrs.frozen
class Note:
    text: str


NOTE = pi.define_entry("example.note", Note)


@pi.tool(replay="safe")
async def measure(what: str) -> str:
    """Measure something; it takes a while."""
    await trio.sleep(60 if sys.argv[1] == "killed" else 0.1)
    return f"{what}: 42"


def reply(at: pi.ScriptedContext) -> pi.Reply:
    if at.user_text == "Measure the ants.":
        return pi.Reply("Let me see.", tool_calls=[pi.ToolCall("measure", {"what": "ants"})])
    return pi.Reply(f"I read: {at.user_text}")


async def work(life: str) -> None:
    models = pi.Models([pi.ScriptedModel(reply)])
    registry = pi.Registry([pi.Extension("lab", tools=[measure])])
    async with pi.open_harness(SqliteStorage("i.db"), models=models, registry=registry) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        handed_in = {
            # Busy from here on. A request id finds what was handed in before.
            "the first": await root.submit("Measure the ants.", request_id="1"),
            "a follow-up": await root.submit("Now the bees.", request_id="2"),
            "another": await root.submit("And the wasps.", request_id="3"),
            "a steer": await root.submit("In inches!", request_id="4", when_busy="steer"),
            "a write": await root.write(NOTE.new(Note("It rains.")), request_id="5"),
            "a reset": await root.reset("So far: ants are 42.", request_id="6"),
        }
        await handed_in["another"].abort()  # Withdrawn: it will never be placed.
        if life == "killed":
            signal.raise_signal(signal.SIGKILL)
        for what, submission in handed_in.items():
            settled = await submission.wait()
            print(f"{what}: {settled.reason or settled.status}")
        for entry in reversed((await root.entries()).items):
            texts = [pi.text_of(message.content) for message in entry.model or ()]
            if entry.kind != "pi.system":
                print(f"  {entry.kind}:", *texts or [str(entry.data)])


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(trio.run(work, sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        for life in ("killed", "again"):
            ended = subprocess.call([sys.executable, __file__, life], cwd=folder)
            print(f"{life}: exit code {ended}", flush=True)
