"""The programs that the crash tests kill, and the process that forks them.

`python -m tests.crash.programs` reads one run per line, as JSON, forks a process for it and prints
how that process ended; so a run costs a fork and not the start of an interpreter. A run kills itself
by SIGKILL at a given durable write, before the write or between it and its acknowledgement, or is
killed after a given time. What it was told is stored goes to a file, one JSON line per fact, in one
system call each, so that the facts outlive it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self, cast

import attrs
import trio

from pidurable_actors import (
    MISSING,
    AgentChoice,
    Checkpoint,
    Completed,
    Extension,
    Harness,
    Models,
    Next,
    Registry,
    Reply,
    ScriptedModel,
    Settings,
    SleepUntil,
    TaskActor,
    ToolCall,
    Tx,
    define_doc,
    open_harness,
    phase,
    tool,
)
from pidurable_actors._json import JSON, fingerprint
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import (
    AppendEntry,
    Batch,
    Parked,
    PutSubmission,
    TaskId,
    Terminal,
    ToolResultMessage,
)
from pidurable_actors.settings import ProgressSettings, RetrySettings
from pidurable_actors.storage import Storage
from pidurable_actors.storage.sqlite import SqliteStorage

ROOT = Path(__file__).parents[2]
AT_ONCE = RetrySettings(max_retries=8, base_s=0)


@attrs.frozen(kw_only=True)
class Run:
    """One run: what, where, and when it dies. `kill_at` 0 lets it live."""

    story: str
    directory: str
    kill_at: int = 0
    after: bool = False
    kill_after_ms: int = 0
    args: dict[str, JSON] = attrs.field(factory=dict)

    def path(self, name: str) -> Path:
        """A file of this run."""
        return Path(self.directory) / name

    def log(self, line: str, name: str = "ledger") -> None:
        """Append a line outside the storage; a kill does not take it back."""
        file = os.open(self.path(name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\n".encode())
        os.close(file)

    def fact(self, **facts: JSON) -> None:
        """Note what the program was told."""
        self.log(json.dumps(facts), "facts")

    def storage(self) -> Storage:
        """The storage, which kills the process where the run says."""
        return cast("Storage", _Killing(self))


class Forker:
    """A process that forks runs; one at a time."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.programs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def run(self, run: Run) -> int:
        """Run a program to its end: 0, the signal that killed it, or 256 plus its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(attrs.asdict(run)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


# --- the kill -9 story and its variants ---


async def tickets(run: Run) -> None:
    """Search the logs, then open a ticket: in two rounds, or `together` in one."""
    together = bool(run.args.get("together"))

    @tool(replay="safe")
    async def search_logs(pattern: Annotated[str, "text to look for"]) -> str:
        """Search the service logs."""
        run.log(f"search_logs {pattern}")
        await trio.lowlevel.checkpoint()
        return "3 matches"

    @tool()
    async def open_ticket(title: str) -> str:
        """Open a ticket."""
        run.log(f"open_ticket {title}")
        await trio.lowlevel.checkpoint()
        return "Opened TICKET-1"

    search = ToolCall("search_logs", {"pattern": "NPE"}, id="search")
    ticket = ToolCall("open_ticket", {"title": "NPE"}, id="ticket")

    def script(ctx: ScriptedContext) -> Reply:
        last = ctx.last
        if not isinstance(last, ToolResultMessage):
            return Reply(tool_calls=[search, ticket] if together else [search])
        if ctx.tool_results("open_ticket"):
            return Reply("done", chunk=1)
        return Reply(tool_calls=[ticket])

    registry = Registry([Extension("triage", tools=[search_logs, open_ticket])])
    await _ask(run, registry, script)


async def crowd(run: Run) -> None:
    """Rounds of 32 tools that end together, while steering comes in."""
    rounds = cast("int", run.args.get("rounds", 3))

    @tool(replay="safe")
    async def count(number: int) -> str:
        """Say a number."""
        await trio.sleep(0.001)
        return str(number)

    def script(ctx: ScriptedContext) -> Reply:
        done = len(ctx.tool_results()) // 32
        if done == rounds:
            return Reply("done")
        made = [ToolCall("count", {"number": at}, id=f"r{done}-{at}") for at in range(32)]
        return Reply(tool_calls=made)

    registry = Registry([Extension("crowd", tools=[count])])
    await _ask(run, registry, script, steers=rounds)


async def _ask(
    run: Run,
    registry: Registry,
    script: Callable[[ScriptedContext], Reply],
    *,
    steers: int = 0,
) -> None:
    async with open_harness(
        run.storage(),
        registry=registry,
        models=Models([ScriptedModel(script)]),
        settings=Settings(retry=AT_ONCE, progress=ProgressSettings(persist_within_ms=0)),
    ) as harness:
        root = await harness.root(agent=AgentChoice(model="scripted/demo"))
        submission = await root.submit("Investigate", request_id="i1")
        run.fact(submitted=submission.id)
        waits = [submission]
        for number in range(steers):
            steer = await root.submit(f"steer {number}", request_id=f"s{number}", when_busy="steer")
            run.fact(submitted=steer.id)
            waits.append(steer)
        for handle in waits:
            settled = await handle.wait()
            run.fact(settled=settled.id, status=settled.status, answer=settled.answer)


# --- the counter ---


@attrs.frozen
class CountTo:
    """How far."""

    to: int


@attrs.frozen
class Tick(Checkpoint, phase="tick"):
    """The number to print next."""

    n: int = 1


@attrs.define
class Started:
    """The one counter of the conversation."""

    task_id: int = 0


STARTED = define_doc("app.started", Started)


async def counter(run: Run) -> None:
    """Count to five, printing each number at most once."""

    class Ticker(TaskActor[CountTo, str], kind="example.ticker"):
        def start(self) -> Tick:
            return Tick()

        @phase(Tick)
        async def tick(self, at: Tick) -> Next[str]:
            if await self.memo(f"printed-{at.n}") is MISSING:
                await self.set_memo(f"printed-{at.n}", value=True)
                run.log(f"tick {at.n}")
            if at.n == self.input.to:
                return Completed(f"counted to {at.n}")
            return SleepUntil(self.now_ms() + 5, Tick(at.n + 1))

    async def start_once(tx: Tx) -> TaskId:
        started = await tx.doc(STARTED)
        if not started.task_id:
            started.task_id = tx.create_task(Ticker, CountTo(5))
        return TaskId(started.task_id)

    registry = Registry([Extension("counter", tasks=[Ticker])])
    async with open_harness(run.storage(), registry=registry) as harness:
        root = await harness.root()
        task_id = await root.commit(start_once)
        run.fact(task=task_id)
        record = await harness.wait_for_task(task_id)
        assert isinstance(record.state, Terminal)
        run.fact(result=cast("JSON", getattr(record.state.outcome, "result", None)))


# --- a tool that takes its process with it ---


async def deadly(run: Run) -> None:
    """A tool that ends the process by `os._exit(9)` for as long as the file `armed` is there."""

    @tool(replay="safe")
    async def kill() -> str:
        """End the process."""
        run.log("kill")
        if run.path("armed").exists():
            await trio.sleep(0.05)  # Time for the sibling to come to its end.
            os._exit(9)
        return "survived"

    @tool(replay="safe")
    async def sibling() -> str:
        """Do no harm."""
        run.log("sibling")
        await trio.lowlevel.checkpoint()
        return "fine"

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.answers:
            return Reply("done")
        return Reply(tool_calls=[ToolCall("sibling", id="s1"), ToolCall("kill", id="k1")])

    policy = run.args.get("on_restart_limit", "end")
    async with open_harness(
        run.storage(),
        registry=Registry([Extension("deadly", tools=[kill, sibling])]),
        models=Models([ScriptedModel(script)]),
        settings=Settings(restart_limit=3, on_restart_limit=policy),  # type: ignore[arg-type]
        on_report=lambda report: run.fact(report=report.kind, reason=report.reason),
    ) as harness:
        root = await harness.root(agent=AgentChoice(model="scripted/demo"))
        submission = await root.submit("go", request_id="r1")
        if run.args.get("retry"):
            run.fact(retried=await harness.retry_task(await _parked(harness)))
        if policy == "park" and not run.args.get("retry"):
            run.fact(parked=await _parked(harness))
            return
        settled = await submission.wait()
        run.fact(status=settled.status, reason=settled.reason)


async def _parked(harness: Harness) -> int:
    """The parked task; waits for one."""
    while True:
        for view in harness.inspect().tasks:
            record = await harness.get_task(view.id)
            if isinstance(record.state, Parked):
                return view.id
        await trio.sleep(0.001)


# --- running ---

STORIES: dict[str, Callable[[Run], Awaitable[None]]] = {
    story.__name__: story for story in (tickets, crowd, counter, deadly)
}


class _Killing:
    """A SQLite storage that kills its process at one durable write."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._inner = SqliteStorage(run.path("agent.sqlite"))
        self._writes = 0

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store; dies before or after it when it is this one's turn."""
        self._begin()
        self._inner.apply(batches)
        self._end(batches)

    def apply_promptly(self, batches: Sequence[Batch]) -> bool:
        """The same for a lone commit, which is written in the calling thread."""
        self._begin()
        stored = self._inner.apply_promptly(batches)
        if stored:
            self._end(batches)
        else:
            self._writes -= 1
        return stored

    def _begin(self) -> None:
        self._writes += 1
        if self._writes == self._run.kill_at and not self._run.after:
            os.kill(os.getpid(), signal.SIGKILL)

    def _end(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._run.fact(**_stored(batch))
        if self._writes == self._run.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def _stored(batch: Batch) -> dict[str, JSON]:
    entries: dict[str, JSON] = {
        str(change.record.id): fingerprint(change.text)
        for change in batch.changes
        if isinstance(change, AppendEntry)
    }
    submissions: dict[str, JSON] = {
        str(change.record.id): change.record.status
        for change in batch.changes
        if isinstance(change, PutSubmission)
    }
    return {"stored": batch.number, "entries": entries, "submissions": submissions}


def _serve() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    for line in sys.stdin:
        run = Run(**json.loads(line))
        child = os.fork()
        if not child:
            _play(run)
        if run.kill_after_ms:
            signal.sigtimedwait([signal.SIGCHLD], run.kill_after_ms / 1000)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        ended = status & 0x7F or (256 + os.waitstatus_to_exitcode(status) if status else 0)
        print(ended, flush=True)


def _play(run: Run) -> None:
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        trio.run(STORIES[run.story], run)
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
