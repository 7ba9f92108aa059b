"""A process dies by SIGKILL inside a tool; another one opens the same file and finishes the answer.

Run it: ``python examples/kill9.py``. It runs itself twice as a worker. ``search_logs`` only reads
and is declared safe; ``open_ticket`` acts on the world and keeps the default: never run it again.
"""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import trio

import pidurable_actors as pi
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import ToolResultMessage, text_of
from pidurable_actors.storage.sqlite import SqliteStorage


async def note(line: str) -> None:  # What really ran, kept outside the storage.
    async with await trio.open_file("ledger.txt", "a") as ledger:
        await ledger.write(f"{line}\n")


@pi.tool(replay="safe")
async def search_logs(pattern: str) -> str:
    """Search the service logs for a pattern."""
    await note(f"search_logs {pattern}")
    return "3 matches: NullPointerException in OrderService.java:42"


@pi.tool()
async def open_ticket(title: str) -> str:
    """Open a ticket in the issue tracker."""
    await note(f"open_ticket {title}")
    if sys.argv[1] == "crash":
        signal.raise_signal(signal.SIGKILL)  # No clean-up, no close.
    return "Opened TICKET-1"


def reply(context: ScriptedContext) -> pi.Reply:
    match context.last:  # Decided from the transcript, so every process decides alike.
        case ToolResultMessage(tool_name="search_logs"):
            return pi.Reply(tool_calls=[pi.ToolCall("open_ticket", {"title": "NPE in orders"})])
        case ToolResultMessage(is_error=failed):
            return pi.Reply("Interrupted: look into the tracker." if failed else "Ticket opened.")
    return pi.Reply(tool_calls=[pi.ToolCall("search_logs", {"pattern": "NullPointerException"})])


async def work() -> None:
    registry = pi.Registry([pi.Extension("triage", tools=[search_logs, open_ticket])])
    models, storage = pi.Models([pi.ScriptedModel(reply)]), SqliteStorage("agent.sqlite")
    async with pi.open_harness(storage, registry=registry, models=models) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        submission = await root.submit("Investigate the orders.", request_id="investigate-1")
        settled = await submission.wait()
        print("submission:", settled.status)
        assert settled.status == "done"
        for entry in reversed((await root.entries("pi.tool-result")).items):
            for result in entry.model or ():
                assert isinstance(result, ToolResultMessage)
                print(f"{result.tool_name}: is_error={result.is_error} {text_of(result.content)!r}")
                assert result.is_error == (result.tool_name == "open_ticket")


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(trio.run(work))
    with tempfile.TemporaryDirectory() as folder:
        worker = [sys.executable, str(Path(__file__).resolve())]
        first = subprocess.run([*worker, "crash"], cwd=folder, check=False)
        assert first.returncode == -signal.SIGKILL
        print("process 1: killed by SIGKILL inside open_ticket", flush=True)
        subprocess.run([*worker, "recover"], cwd=folder, check=True)
        ledger = Path(folder, "ledger.txt").read_text(encoding="utf-8").splitlines()
        print("ledger:", *ledger, sep="\n  ")
        assert ledger == ["search_logs NullPointerException", "open_ticket NPE in orders"]
