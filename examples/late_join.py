"""Three clients follow one answer across a kill; in the end all show the same, and no text twice.

Run it: ``python examples/late_join.py``. SIGKILL comes when half of the answer is stored.
"""

import json
import signal
import subprocess
import sys
import tempfile

import trio

import pidurable_actors as pi
from pidurable_actors import models, views
from pidurable_actors.storage.sqlite import SqliteStorage

KILLED = sys.argv[1:] == ["killed"]
STORY = "There was a task that was killed, and it lived happily ever after."


def reply(context: pi.ScriptedContext) -> pi.Reply:
    return pi.Reply(STORY, chunk=3, chunk_delay_s=0.01, fault=models.Stall(31) if KILLED else None)


def lines_of(view: pi.ConversationView) -> list[str]:
    return [pi.text_of(message.content) for it in view.entries for message in it.model or ()]


async def listen(root: pi.Conversation, after: int | None, lines: list[str]) -> None:
    half = ""
    async with root.events(after=after) as events:
        while STORY not in lines:
            match await anext(events):
                case views.Snapshot(view=view):
                    lines[:], half = lines_of(view), view.live.half_text
                case views.LiveReplaced(live=live):
                    half = live.half_text
                case views.BlockStarted(text=text) | views.MessageUpdated(text=text):
                    half += text
                case views.EntryAppended(entry=entry) | views.MessageEnded(entry=entry):
                    lines += [pi.text_of(message.content) for message in entry.model or ()]
                    assert half in ("", lines[-1])  # What came in pieces is what is stored.
                    half = ""


async def follow(root: pi.Conversation, *, drop: bool) -> list[str]:
    kept, lines, since = trio.Path("view.json"), list[str](), None
    if await kept.exists():
        since = pi.ConversationView.from_json(json.loads(await kept.read_text()))
    async with root.watch(since=since) as watch:
        async for frame in watch:
            lines, half = lines_of(frame.view), frame.view.live.half_text
            if STORY in lines or (drop and frame.provisional):
                break
            if not frame.provisional:  # Only what is stored is a place to come back to.
                await kept.write_text(json.dumps(frame.view.to_json()))
                if KILLED and len(half) == 31:
                    signal.raise_signal(signal.SIGKILL)
    return lines


async def work(file: SqliteStorage, early: list[str], late: list[str]) -> None:
    async with pi.open_harness(file, models=pi.Models([pi.ScriptedModel(reply)])) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        await root.submit("Tell me a story.", request_id="story")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, root, 0, early)
            await follow(root, drop=True)
            nursery.start_soon(listen, root, None, late)
            back = await follow(root, drop=False)
        for name, lines in (("from the start", early), ("joined", late), ("came back", back)):
            print(f"{name}:", *lines, sep="\n  ")


if sys.argv[1:]:
    sys.exit(trio.run(work, SqliteStorage("agent.sqlite"), [], []))
with tempfile.TemporaryDirectory() as folder:
    for life in ("killed", "again"):
        print(life, subprocess.call([sys.executable, __file__, life], cwd=folder), flush=True)
