"""A conversation outgrows its model's window, and the process dies while the summary is written.

Run it: ``python examples/compaction.py``. The first process dies by SIGKILL inside the request for
the summary; the second one opens the same file, asks for it again, and answers the question that
waited. The history stays: only what the model sees is shorter.
"""

import signal
import subprocess
import sys
import tempfile

import trio

import pidurable_actors as pi
from pidurable_actors.models import ModelInfo, estimate_tokens
from pidurable_actors.storage.sqlite import SqliteStorage

ROOMS = ("kitchen", "hall", "attic", "cellar", "garden")
WINDOW = ModelInfo(context_window=700)  # Tokens that the model takes at once.

settings = pi.Settings(
    compaction=pi.CompactionSettings(
        reserve_tokens=200,  # Kept free for the answer: above 500 a summary is made first.
        keep_recent_tokens=150,  # The newest turns stay word for word.
        background_tokens=0,  # By default it is made earlier, beside the run.
        model="scripted/small",  # Who writes it; by default the conversation's own model.
    ),
    retry=pi.RetrySettings(base_s=0.05),
)


def reply(context: pi.ScriptedContext) -> pi.Reply:
    if context.model_id == "small":
        if sys.argv[1] == "killed":
            signal.raise_signal(signal.SIGKILL)
        return pi.Reply("Kitchen, hall, attic and cellar were measured, 3.25 m from wall to wall.")
    print(f"the model sees about {estimate_tokens(context.messages)} tokens:", flush=True)
    for message in context.messages if "garden" in context.user_text else context.messages[-1:]:
        text = pi.text_of(message.content)
        shown = text if "<summary>" in text else text.split(".")[0]
        print(f"  {message.role}: {' '.join(shown.split())}", flush=True)
    return pi.Reply(f"Noted: {context.user_text.split('.')[0]}.")


async def work() -> None:
    models = pi.Models([pi.ScriptedModel(reply, info=WINDOW)])
    file = SqliteStorage("rooms.sqlite")
    async with pi.open_harness(file, models=models, settings=settings) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        for room in ROOMS:
            measures = f"The {room}. " + "Wall to wall, 3.25 m. " * 20
            await (await root.submit(measures, request_id=room)).wait()
        entries = (await root.entries()).items
        print("stored:", ", ".join(entry.kind for entry in reversed(entries)))
        for entry in (await root.entries("pi.compaction")).items:
            assert isinstance(entry.data, dict)
            print("tokens:", entry.data["tokens_before"], "->", entry.data["tokens_after"])


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(trio.run(work))
    with tempfile.TemporaryDirectory() as folder:
        for life in ("killed", "again"):
            ended = subprocess.call([sys.executable, __file__, life], cwd=folder)
            print(f"{life}: exit code {ended}", flush=True)
