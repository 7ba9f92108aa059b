"""A reviewer: a second conversation, with a model, instructions and tools of its own.

Run it: ``python examples/reviewer.py``. What the writer has done is handed to a reviewer that may
only read; the writer is told what it says, and mends it. Both live in one harness.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import trio

import pidurable_actors as pi
from pidurable_actors.storage.sqlite import SqliteStorage

FOLDER = TemporaryDirectory()
NEWS = Path(FOLDER.name, "news.txt")


@pi.tool()
async def write(text: str) -> str:
    """Write the news."""
    await trio.Path(NEWS).write_text(text)
    return "written"


@pi.tool(replay="safe")
async def read() -> str:
    """Read the news."""
    return await trio.Path(NEWS).read_text()


def told(at: pi.ScriptedContext) -> str:
    """What the system says, and which tools there are."""
    says = [pi.text_of(it.content) for it in at.messages if it.role == "system"]
    return f"{' '.join(says).split()[1]} with {', '.join(it.name for it in at.request.tools)}"


def writer(at: pi.ScriptedContext) -> pi.Reply:
    if at.last is not None and at.last.role == "tool_result":
        return pi.Reply("It is written.")
    print(f"writer ({told(at)}): {at.user_text}")
    text = "All is well." if "well" in at.user_text else "All is wel."
    return pi.Reply(tool_calls=[pi.ToolCall("write", {"text": text})])


def reviewer(at: pi.ScriptedContext) -> pi.Reply:
    if at.last is None or at.last.role != "tool_result":
        print(f"reviewer ({told(at)}): {at.user_text}")
        return pi.Reply(tool_calls=[pi.ToolCall("read")])
    good = "well" in pi.text_of(at.last.content)
    return pi.Reply("Good." if good else 'Write "well" with two l.')


async def main() -> None:
    models = pi.Models(
        [pi.ScriptedModel(writer, name="fast"), pi.ScriptedModel(reviewer, name="careful")]
    )
    registry = pi.Registry([pi.Extension("news", tools=[read, write])])
    storage = SqliteStorage(Path(FOLDER.name, "agents.sqlite"))
    async with pi.open_harness(storage, models=models, registry=registry) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="fast/1", instructions="Write!"))
        review = await harness.create_conversation(
            agent=pi.AgentChoice(model="careful/1", instructions="Review!", tools=["read"])
        )
        task = "Write the news."
        for _ in range(3):
            done = await (await root.submit(task)).answer()
            task = await (await review.submit(done)).answer()
            print("the reviewer says:", task)
            if task == "Good.":
                break
        print("the news:", await trio.Path(NEWS).read_text())


with FOLDER:
    trio.run(main)
