"""A todo list beside a conversation: typed, changed by a tool and by the host, watched, rewound.

Run it: ``python examples/todo_state.py``. The first process dies by SIGKILL as soon as the list has
what the tool put on it; the second one opens the same file and finds it there.
"""

import signal
import subprocess
import sys
import tempfile

import attrs
import trio

import pidurable_actors as pi
from pidurable_actors.storage.sqlite import SqliteStorage


@attrs.define
class TodoList:  # Its defaults are the initial value.
    done: dict[str, bool] = attrs.field(factory=dict)


TODOS = pi.define_doc("example.todos", TodoList, history="rewindable")


async def put(title: str, tx: pi.Tx, *, done: bool = False) -> None:
    todos = await tx.doc(TODOS)  # Of the conversation that the commit is bound to.
    todos.done[title] = done


@pi.tool(replay="safe")  # Run again, it puts the same thing on the list.
async def add_todo(title: str, *, api: pi.ToolApi) -> str:
    """Put something on the list."""
    await api.commit(lambda tx: put(title, tx))
    return f"Added: {title}."


def reply(context: pi.ScriptedContext) -> pi.Reply:
    for title in ("book the train", "pack")[len(context.tool_results("add_todo")) :]:
        return pi.Reply(tool_calls=[pi.ToolCall("add_todo", {"title": title})])
    return pi.Reply("It is all on your list.")


def text(state: TodoList) -> str:
    return (
        ", ".join(f"[{'x' if done else ' '}] {it}" for it, done in state.done.items()) or "nothing"
    )


async def work(life: str) -> None:
    registry = pi.Registry([pi.Extension("todos", tools=[add_todo])])
    models, file = pi.Models([pi.ScriptedModel(reply)]), SqliteStorage("todos.sqlite")
    async with pi.open_harness(file, registry=registry, models=models) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        async with harness.watch_doc(TODOS, root.id) as watch:
            await root.commit(lambda tx: put("water the plants", tx))
            asked = await root.submit("I go to Rome.", request_id="rome")
            async for frame in watch:  # How it was, and then one for each commit that changes it.
                print(f"  {text(frame.view)}", flush=True)
                if len(frame.view.done) == 3:
                    break
            if life == "killed":
                signal.raise_signal(signal.SIGKILL)
            print(await asked.answer())
        await root.commit(lambda tx: put("water the plants", tx, done=True))
        for entry in reversed((await root.entries()).items):
            print(f"{entry.kind}: {text(await root.snapshot_as_of(TODOS, entry.id))}")
        print("now:", text(await root.snapshot(TODOS)))


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(trio.run(work, sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        for life in ("killed", "again"):
            ended = subprocess.call([sys.executable, __file__, life], cwd=folder)
            print(f"{life}: exit code {ended}", flush=True)
