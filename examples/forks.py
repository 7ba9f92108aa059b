"""One conversation, three ways on: two answers side by side, and a fork inside a tool round.

Run it: ``python examples/forks.py``. Each call of the tool notes the town in three documents, which
differ in what a fork sees of them. Nothing that a fork does is seen by the others.
"""

import tempfile
from pathlib import Path

import attrs
import trio

import pidurable_actors as pi
from pidurable_actors.storage.sqlite import SqliteStorage


@attrs.define
class Towns:
    names: list[str] = attrs.field(factory=list)


FRESH = pi.define_doc("example.fresh", Towns, fork="initial")
NOW = pi.define_doc("example.now", Towns, fork="current")
THEN = pi.define_doc("example.then", Towns, history="rewindable", fork="as_of")


@pi.tool(replay="safe")
async def look_up(town: str, *, api: pi.ToolApi) -> str:
    """Look up how to get to a town."""

    async def note(tx: pi.Tx) -> None:
        for document in (FRESH, NOW, THEN):
            (await tx.doc(document)).names.append(town)

    await api.commit(note)
    return f"There is a train to {town}."


def reply(context: pi.ScriptedContext) -> pi.Reply:
    if not context.answers:
        towns = ("Rome", "Oslo")
        return pi.Reply(tool_calls=[pi.ToolCall("look_up", {"town": it}) for it in towns])
    results = context.tool_results("look_up")
    known = [pi.text_of(it.content) for it in results if not it.is_error]
    return pi.Reply(f"{context.user_text} I know {len(known)} of {len(results)} towns.")


async def show(name: str, conversation: pi.Conversation) -> None:
    print(f"{name}:")
    for entry in reversed((await conversation.entries()).items):
        for message in entry.model or ():
            print(f"  {message.role}: {pi.text_of(message.content) or '(calls tools)'}")
    for document in (FRESH, NOW, THEN):
        print(f"  {document.fork}: {[*(await conversation.snapshot(document)).names]}")


async def main(file: Path) -> None:
    registry = pi.Registry([pi.Extension("travel", tools=[look_up])])
    models, settings = pi.Models([pi.ScriptedModel(reply)]), pi.Settings(tool_mode="sequential")
    async with pi.open_harness(
        SqliteStorage(file), registry=registry, models=models, settings=settings
    ) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        await (await root.submit("Where can I go?")).answer()
        cheap, quick = await root.fork(), await root.fork()
        for fork, wish in ((cheap, "It must be cheap."), (quick, "I have no time.")):
            print(await (await fork.submit(wish)).answer())
        first_result = (await root.entries("pi.tool-result")).items[-1]
        middle = await root.fork(at=first_result.id)  # The model is told that a result is missing.
        await (await middle.submit("What do you know?")).answer()
        await show("root", root)
        await show("a fork at the end", cheap)
        await show("a fork at the first result", middle)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trio.run(main, Path(folder) / "agent.sqlite")
