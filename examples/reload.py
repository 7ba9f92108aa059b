"""New code in a process that goes on: a call under way keeps the old, the next one has the new.

Run it: ``python examples/reload.py``. The host installs another version of an extension in the
middle of a call, takes the extension away for a while, and brings it back.
"""

import trio

import pidurable_actors as pi
from pidurable_actors.models import ScriptedContext
from pidurable_actors.storage.memory import MemoryStorage

at_work, go_on = trio.Event(), trio.Event()


def prices(version: str) -> pi.Extension:
    """The extension in one of its versions; what counts is its name."""

    @pi.tool("price", replay="safe", description=f"Look a price up, as of {version}.")
    async def price(of: str) -> str:
        at_work.set()
        await go_on.wait()
        return f"{of}: the price of {version}"

    return pi.Extension("prices", tools=[price])


def reply(at: ScriptedContext) -> pi.Reply:
    if at.last is not None and at.last.role == "tool_result":
        return pi.Reply(pi.text_of(at.last.content))
    print("  told of:", *(tool.description for tool in at.request.tools))
    return pi.Reply(tool_calls=[pi.ToolCall("price", {"of": at.user_text})])


async def main() -> None:
    registry = pi.Registry([prices("monday")])
    models = pi.Models([pi.ScriptedModel(reply)])
    async with pi.open_harness(MemoryStorage(), models=models, registry=registry) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))

        async def ask(what: str) -> None:
            print(await (await root.submit(what)).answer())

        submission = await root.submit("tea")
        await at_work.wait()
        registry.install(prices("tuesday"))  # In place of the one of the same name.
        print("tuesday's code is installed, while monday's is at work")
        go_on.set()
        print(await submission.answer())
        await ask("salt")
        registry.uninstall("prices")
        await ask("rice")
        registry.install(prices("friday"))
        await ask("rice")


trio.run(main)
