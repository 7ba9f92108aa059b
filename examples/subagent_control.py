"""Background subagents under control: a tool spawns them; the host lists, steers and stops them.

Run it: ``python examples/subagent_control.py``. The one that goes on reports back, exactly once.
"""

import attrs
import trio
from trio.testing import MockClock

import pidurable_actors as pi
from pidurable_actors.records import UserMessage
from pidurable_actors.storage.memory import MemoryStorage

MODEL, WHAT = pi.AgentChoice(model="scripted/demo"), ("ants", "bees")


@attrs.frozen
class Work(pi.Checkpoint, phase="work"): ...


class Worker(pi.TaskActor[str, None], kind="example.worker"):
    def start(self) -> Work:
        return Work()

    @pi.phase(Work)
    async def work(self, at: Work) -> pi.Next[None]:
        mine = await self.create_conversation("mine", agent=MODEL)
        answer = await (await mine.submit(self.input, request_id="task")).answer()
        home = await self.conversation(self.conversation_id)
        await home.submit(f"Report: {answer}", request_id=f"report-{self.task_id}")
        return pi.Completed(None)


@pi.tool(replay="safe")
async def spawn(what: str, *, api: pi.ToolApi) -> str:
    """Start a worker in the background."""
    await api.create_task("worker", Worker, what, background=True)
    return "started"


@pi.tool(replay="safe")
async def measure() -> str:
    """Measure; it takes a while."""
    await trio.sleep(0.5)
    return "measured"


def reply(at: pi.ScriptedContext) -> pi.Reply:
    match at.last:
        case UserMessage() if at.user_text == "Measure ants and bees.":
            return pi.Reply(tool_calls=[pi.ToolCall("spawn", {"what": w}) for w in WHAT])
        case UserMessage() if at.user_text in WHAT:
            return pi.Reply(tool_calls=[pi.ToolCall("measure")])
    return pi.Reply(f"Done: {at.user_text}")


async def main() -> None:
    registry = pi.Registry([pi.Extension("lab", tools=[spawn, measure], tasks=[Worker])])
    models = pi.Models([pi.ScriptedModel(reply)])
    async with pi.open_harness(MemoryStorage(), registry=registry, models=models) as harness:
        root = await harness.root(agent=MODEL)
        print(await (await root.submit("Measure ants and bees.")).answer())
        await trio.sleep(0.2)
        graph = harness.task_graph()
        ants, bees = (task for task in graph.tasks if task.kind == "example.worker")
        print("at work:", *(f"{task.kind} ({task.why})" for task in (ants, bees)))
        (at,) = (owned.id for owned in graph.conversations if owned.owner == ants.id)
        await (await harness.conversation(at)).submit("red ants only", when_busy="steer")
        stopped = await harness.abort_task(bees.id, reason="no bees today")
        print("stopped:", stopped.outcome)
        await harness.wait_for_task(ants.id)
        await harness.wait_for_idle()
        for message in (await root.entries("pi.user")).items[0].model or ():
            print(pi.text_of(message.content))


trio.run(main, clock=MockClock(autojump_threshold=0))  # Waiting takes no time.
