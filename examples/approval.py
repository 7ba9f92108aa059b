"""A tool that moves money waits for a person's yes, and the process is killed while it waits.

Run it: ``python examples/approval.py``. It runs itself twice as a worker. The second process could
start days later: it lists the question and answers it, and the money is moved once. Then it denies
another transfer.
"""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import trio

import pidurable_actors as pi
from pidurable_actors import HookApi, ToolCallEvent, hook
from pidurable_actors.records import ToolResultMessage
from pidurable_actors.storage.sqlite import SqliteStorage


@pi.tool()
async def transfer(to: str, euros: int) -> str:
    """Move money."""
    async with await trio.open_file("ledger.txt", "a") as ledger:
        await ledger.write(f"{euros} euros to {to}\n")
    return f"{euros} euros went to {to}."


@hook.before_tool
async def ask_first(event: ToolCallEvent, api: HookApi) -> pi.Approve | None:
    if event.tool.name != "transfer":
        return None
    return pi.Approve("Move {euros} euros to {to}?".format(**event.arguments))


def reply(at: pi.ScriptedContext) -> pi.Reply:
    if isinstance(at.last, ToolResultMessage):
        return pi.Reply(pi.text_of(at.last.content))
    _, euros, to = at.user_text.split()
    return pi.Reply(tool_calls=[pi.ToolCall("transfer", {"to": to, "euros": int(euros)})])


async def wait_for_question(harness: pi.Harness, root: pi.Conversation) -> pi.Question:
    async with root.watch() as watch:
        async for frame in watch:
            if frame.view.live.questions:
                break
    (question,) = (await harness.questions()).items
    print("open:", question.text)
    return question


async def work() -> None:
    registry = pi.Registry([pi.Extension("bank", tools=[transfer], hooks=[ask_first])])
    models, storage = pi.Models([pi.ScriptedModel(reply)]), SqliteStorage("agent.sqlite")
    async with pi.open_harness(storage, registry=registry, models=models) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        first = await root.submit("Pay 500 Ann", request_id="pay-1")
        question = await wait_for_question(harness, root)
        if sys.argv[1] == "crash":
            sys.stdout.flush()
            signal.raise_signal(signal.SIGKILL)
        await harness.answer(question.id, True, by="Eve")
        print(await first.answer())
        second = await root.submit("Pay 900 Bob", request_id="pay-2")
        question = await wait_for_question(harness, root)
        await harness.answer(question.id, {"approved": False, "reason": "not to Bob"}, by="Eve")
        print(await second.answer())


if sys.argv[1:]:
    sys.exit(trio.run(work))
with tempfile.TemporaryDirectory() as folder:
    worker = [sys.executable, str(Path(__file__).resolve())]
    killed = subprocess.run([*worker, "crash"], cwd=folder, check=False)
    print("killed:", killed.returncode, flush=True)
    subprocess.run([*worker, "go on"], cwd=folder, check=True)
    print("ledger:", Path(folder, "ledger.txt").read_text(encoding="utf-8"), end="")
