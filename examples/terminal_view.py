"""A terminal view of a live conversation: words, tools and their output as they come, and the cost.

Run it: ``python examples/terminal_view.py``. Where there is no terminal it only prints the end.
"""

import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import trio

import pidurable_actors as pi
from pidurable_actors.storage.sqlite import SqliteStorage


@pi.tool(replay="safe")
async def check(hosts: int, *, api: pi.ToolApi) -> str:
    """Check so many hosts."""
    for host in range(1, hosts + 1):
        await trio.sleep(0.1)
        await api.output(f"host {host} of {hosts} answers\n")
    return f"{hosts} hosts answer."


def reply(context: pi.ScriptedContext) -> pi.Reply:
    calls = [] if context.tool_results() else [pi.ToolCall("check", {"hosts": 3})]
    text = "I look at the hosts first." if calls else "All is well: every host answers."
    return pi.Reply(text, tool_calls=calls, chunk=4, chunk_delay_s=0.05)


def draw(view: pi.ConversationView, width: int, height: int) -> list[str]:
    """The newest of a view that fits; nothing in the text can control the terminal."""
    lines: list[str] = []
    for mark, text in told(view):
        plain = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
        lines += [row for it in plain.split("\n") for row in textwrap.wrap(mark + it, width)]
    models, calls = view.usage.models.values(), sum(view.usage.tools.values())
    tokens = sum(it.input_tokens + it.output_tokens for it in models)
    status = f"-- {'at work' if view.live.run else 'idle'}; {tokens} tokens, tool calls: {calls}"
    return [*lines[-height + 1 :], status[:width]]


def told(view: pi.ConversationView) -> Iterator[tuple[str, str]]:
    for entry in view.entries:
        if (asked := pi.UserEntry.match(entry)) is not None:
            yield "> ", pi.text_of(asked.content)
        if (answer := pi.AssistantEntry.match(entry)) is not None:
            yield "", pi.text_of(answer.content)
            yield from (("* ", f"{call.name} {call.arguments}") for call in answer.tool_calls)
        if (result := pi.ToolResultEntry.match(entry)) is not None:
            yield "! " if result.is_error else "= ", pi.text_of(result.content)
    for block in view.live.generation.partial if view.live.generation else ():
        yield "* " if block.name else "", f"{block.name} {block.text}_".lstrip()
    for tool in view.live.tools.values():
        yield "| ", str(tool.output)


async def main(file: Path) -> None:
    lines, at_terminal = list[str](), sys.stdout.isatty()
    registry = pi.Registry([pi.Extension("hosts", tools=[check])])
    models, storage = pi.Models([pi.ScriptedModel(reply)]), SqliteStorage(file)
    async with pi.open_harness(storage, registry=registry, models=models) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        await root.submit("Is all well?")
        async with root.watch() as watch:
            async for frame in watch:
                lines = draw(frame.view, *shutil.get_terminal_size())
                if at_terminal:  # Home; each line, and what was behind it gone; and all below.
                    print("\033[H" + "\033[K\n".join(lines) + "\033[K\033[J", end="", flush=True)
                if frame.view.live.run is None:
                    break
    print("" if at_terminal else "\n".join(lines))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trio.run(main, Path(folder) / "agent.sqlite")
