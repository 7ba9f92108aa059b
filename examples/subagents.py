"""Subagents: one that the call waits for, one in the background that reports when it is done.

Run it: ``python examples/subagents.py``. Killed while both are at work, they are found again.
"""

import signal
import tempfile
from multiprocessing import get_context

import attrs
import trio

import pidurable_actors as pi
from pidurable_actors.storage.sqlite import SqliteStorage

MODEL = pi.AgentChoice(model="scripted/demo")
CALLS = [pi.ToolCall("watch", {"what": "alarms"}), pi.ToolCall("research", {"question": "prices"})]


@pi.tool(replay="safe")  # Run again, it finds its conversation and its question, and waits on.
async def research(question: str, *, api: pi.ToolApi) -> str:
    """Ask a researcher and wait for the answer."""
    researcher = await api.create_conversation("researcher", agent=MODEL)
    return await (await researcher.submit(question, request_id="question")).answer()


@pi.tool(replay="safe")
async def watch(what: str, *, api: pi.ToolApi) -> str:
    """Start a watcher; it reports later, and the call does not wait for it."""
    await api.create_task("watcher", Watcher, what, background=True)
    return "The watcher has started."


@attrs.frozen
class Look(pi.Checkpoint, phase="look"):
    pass


class Watcher(pi.TaskActor[str, None], kind="example.watcher"):
    def start(self) -> Look:
        return Look()

    @pi.phase(Look)
    async def look(self, at: Look) -> pi.Next[None]:
        # Safe to run again: the conversation, the question and the report have names of their own.
        mine = await self.create_conversation("mine", agent=MODEL)
        answer = await (await mine.submit(self.input, request_id="question")).answer()
        home = await self.conversation(self.conversation_id)
        await home.submit(f"Report: {answer}", request_id=f"report-{self.task_id}")
        return pi.Completed(None)


def reply(at: pi.ScriptedContext) -> pi.Reply:
    if at.user_text in ("alarms", "prices"):  # A subagent; slow enough to be killed at work.
        return pi.Reply(f"No news on {at.user_text}.", delay_s=0.3)
    return pi.Reply("Noted.", tool_calls=[] if at.answers else CALLS)


async def work(file: str, kill: bool) -> None:
    registry = pi.Registry([pi.Extension("lab", tools=[research, watch], tasks=[Watcher])])
    models, storage = pi.Models([pi.ScriptedModel(reply)]), SqliteStorage(file)
    async with pi.open_harness(storage, registry=registry, models=models) as harness:
        root = await harness.root(agent=MODEL)
        await root.submit("Check the shop.", request_id="check-1")
        if kill:
            await trio.sleep(0.2)
            signal.raise_signal(signal.SIGKILL)
        while tasks := harness.inspect().tasks:  # Ordinary work and background work alike.
            await harness.wait_for_task(tasks[0].id)
        for entry in reversed((await root.entries()).items):
            print(f"{entry.kind}:", *(pi.text_of(message.content) for message in entry.model or ()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for kill in (True, False):
            args = (work, f"{folder}/agent.sqlite", kill)
            process = get_context("spawn").Process(target=trio.run, args=args)
            process.start()
            process.join()
