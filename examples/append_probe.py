"""A tool is killed after it acted and its output was stored: what the file says, what comes of it.

Run it: ``python examples/append_probe.py``. ``append`` adds a line to a file. Declared unsafe it is
not run again; declared safe it is, and adds the line twice: which is why adding is not safe.
"""

import signal
import sqlite3
import tempfile
from multiprocessing import get_context

import trio

import pidurable_actors as pi
from pidurable_actors.agent import Replay
from pidurable_actors.records import text_of
from pidurable_actors.settings import ProgressSettings
from pidurable_actors.storage.sqlite import SqliteStorage

QUERY = """SELECT id, kind, status, record ->> '$.restarts' AS restarts,
       record ->> '$.state.checkpoint.phase' AS phase,
       record ->> '$.state.checkpoint.replay' AS replay FROM tasks ORDER BY id"""
LOST = "<harness>\n[error] Tool append was interrupted and may have partially run\n</harness>"
EXPECTED: dict[Replay, tuple[str, int]] = {  # The stored result, and the lines in the file.
    "unsafe": (f"working\n{LOST}", 1),
    "safe": ("appended", 2),
}


async def run(folder: str, replay: Replay, crash: bool) -> None:
    @pi.tool(replay=replay)
    async def append(line: str, *, api: pi.ToolApi) -> str:
        """Add a line to the notes."""
        async with await trio.open_file(f"{folder}/notes.txt", "a") as notes:
            await notes.write(f"{line}\n")
        await api.output("working\n")  # Stored on return: the settings below say so.
        if crash:
            signal.raise_signal(signal.SIGKILL)
        return "appended"

    ask = [pi.ToolCall("append", {"line": "hello"})]
    model = pi.ScriptedModel(lambda at: pi.Reply(tool_calls=[] if at.tool_results() else ask))
    async with pi.open_harness(
        SqliteStorage(f"{folder}/agent.sqlite"),
        models=pi.Models([model]),
        registry=pi.Registry([pi.Extension("notes", tools=[append])]),
        settings=pi.Settings(progress=ProgressSettings(persist_within_ms=0)),
    ) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        if not crash:
            check(folder, "opened again", ("pi.tool", "pending", 1, "execute", replay))
        await (await root.submit("Take a note.", request_id="note-1")).wait()
        (entry,) = (await root.entries("pi.tool-result")).items
        result = "".join(text_of(message.content) for message in entry.model or ())
        lines = (await trio.Path(folder, "notes.txt").read_text()).splitlines()
        print(f"{replay}: the file has {len(lines)} line(s), the result is {result!r}\n")
        assert (result, len(lines)) == EXPECTED[replay]


def check(folder: str, when: str, tool: tuple[str | int | None, ...]) -> None:
    database = sqlite3.connect(f"file:{folder}/agent.sqlite?mode=ro", uri=True)
    rows = database.execute(QUERY).fetchall()
    database.close()
    print(f"{when}:", *(" | ".join(str(value or "-") for value in row) for row in rows), sep="\n  ")
    assert [row[1:] for row in rows] == [("pi.generation", "waiting", None, "tools", None), tool]


if __name__ == "__main__":
    for replay in EXPECTED:
        with tempfile.TemporaryDirectory() as folder:
            # Spawned: a process that has had threads must not fork.
            first = get_context("spawn").Process(target=trio.run, args=(run, folder, replay, True))
            first.start()
            first.join()
            check(folder, "after the kill", ("pi.tool", "running", None, "execute", replay))
            trio.run(run, folder, replay, False)
