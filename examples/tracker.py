"""The ticket was opened, then the process died: what each way to declare the tool makes of that.

Run it: ``python examples/tracker.py``. Each line is two processes: one is killed, one recovers.
"""

import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

import pidurable_actors as pi
from pidurable_actors.storage.sqlite import SqliteStorage


def tickets(folder: str = ".") -> dict[str, str]:  # One file per ticket, its key inside.
    return {file.read_text(): f"Opened {file.name}" for file in Path(folder).glob("TICKET-*")}


def create(key: str) -> str:  # The same key, the same ticket: many services promise that.
    if sys.argv[2] == "before":
        signal.raise_signal(signal.SIGKILL)
    if key not in tickets():
        Path(f"TICKET-{len(tickets()) + 1}").write_text(key)
    if sys.argv[2] == "after":
        signal.raise_signal(signal.SIGKILL)
    return tickets()[key]


async def plain(title: str) -> str:
    return create(f"{title}: no key, so this is ticket number {len(tickets()) + 1}")


async def keyed(title: str, *, api: pi.ToolApi) -> str:
    return create(api.idempotency_key)  # Stored with the intent, so a rerun has the same one.


async def look_up(arguments: object, api: pi.ToolApi) -> str | pi.NotDone:
    return tickets().get(api.idempotency_key, pi.NOT_DONE)


LOST = "<harness> [error] Tool open_ticket was interrupted and may have partially run </harness>"
tool = partial(pi.Tool, "open_ticket", description="Open a ticket in the issue tracker")
asking = tool(keyed, replay="reconcile", reconcile=look_up)
STORIES = {  # The declaration; when it is killed; tickets then, tickets at the end, stored result.
    "default": (tool(plain), "after", (1, 1, LOST)),
    "safe, no key": (tool(plain, replay="safe"), "after", (1, 2, "Opened TICKET-2")),
    "safe, with key": (tool(keyed, replay="safe"), "after", (1, 1, "Opened TICKET-1")),
    "reconcile": (asking, "after", (1, 1, "Opened TICKET-1")),
    "reconcile, not yet opened": (asking, "before", (0, 1, "Opened TICKET-1")),
}


async def work() -> None:
    ask = [pi.ToolCall("open_ticket", {"title": "NPE in OrderService"})]
    model = pi.ScriptedModel(lambda at: pi.Reply(tool_calls=[] if at.tool_results() else ask))
    registry = pi.Registry([pi.Extension("tracker", tools=[STORIES[sys.argv[1]][0]])])
    storage, models = SqliteStorage("agent.sqlite"), pi.Models([model])
    async with pi.open_harness(storage, registry=registry, models=models) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        await (await root.submit("Open a ticket.", request_id="ticket-1")).wait()
        (entry,) = (await root.entries("pi.tool-result")).items
        print(*(pi.text_of(message.content) for message in entry.model or ()))


if sys.argv[1:]:
    sys.exit(trio.run(work))
for name, (_, killed, expected) in STORIES.items():
    worker = [sys.executable, str(Path(__file__).resolve()), name]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*worker, killed], cwd=folder, check=False)
        then = len(tickets(folder))
        result = subprocess.check_output([*worker, "never"], cwd=folder, text=True)
        found = (then, len(tickets(folder)), " ".join(result.split()))
    print(f"{name:26} {found[0]} ticket(s) then, {found[1]} at the end: {found[2]}", flush=True)
    assert found == expected
