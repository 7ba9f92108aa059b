"""A counter is cut off after tick 2 and goes on with tick 3; SQL shows what the file knows then.

Run it: ``python examples/recovery.py``, or with ``--kill``: a real SIGKILL in place of a close.
"""

import signal
import sqlite3
import sys
import tempfile
from multiprocessing import get_context

import attrs
import trio

import pidurable_actors as pi
from pidurable_actors.records import CompletedOutcome, Terminal
from pidurable_actors.storage.sqlite import SqliteStorage

QUERY = """SELECT id, status, record ->> '$.state.checkpoint.n' AS n,
       record ->> '$.memos' AS memos, record ->> '$.restarts' AS restarts FROM tasks"""
tick_2_printed = trio.Event()


@attrs.frozen
class Tick(pi.Checkpoint, phase="tick"):  # Stored as {"phase": "tick", "n": 1}.
    n: int = 1


class Ticker(pi.TaskActor[int, str], kind="example.ticker"):  # Counts up to its input.
    def start(self) -> Tick:
        return Tick()

    @pi.phase(Tick)
    async def tick(self, at: Tick) -> pi.Next[str]:
        # A phase that was cut off starts again from its top; the memo knows what was printed.
        if await self.memo(f"printed-{at.n}") is pi.MISSING:
            await self.set_memo(f"printed-{at.n}", True)
            print(f"tick {at.n}", flush=True)
            if at.n == 2:
                tick_2_printed.set()
                await trio.sleep_forever()  # The cut comes here, before the next step is stored.
        if at.n == self.input:
            return pi.Completed(f"counted to {at.n}")
        return pi.SleepUntil(self.now_ms() + 50, Tick(at.n + 1))


async def run(file: str, kill: bool) -> None:
    registry = pi.Registry([pi.Extension("example", tasks=[Ticker])])
    async with pi.open_harness(SqliteStorage(file), registry=registry) as harness:
        if tasks := harness.inspect().tasks:
            show("opened again", file)
            ended = await harness.wait_for_task(tasks[0].id)
            match ended.state:
                case Terminal(outcome=CompletedOutcome(result=result)):
                    print(result)
            return
        root = await harness.root()
        await root.commit(lambda tx: tx.create_task(Ticker, 5))
        harness.resume()
        await tick_2_printed.wait()
        if kill:
            signal.raise_signal(signal.SIGKILL)


def show(when: str, file: str) -> None:
    database = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    _, *row = database.execute(QUERY).fetchone()
    database.close()
    print(f"{when}:", " | ".join("(none)" if value is None else str(value) for value in row))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        db = f"{folder}/counter.sqlite"
        first = get_context("spawn").Process(target=trio.run, args=(run, db, "--kill" in sys.argv))
        first.start()
        first.join()
        show("between the runs", db)
        trio.run(run, db, False)
        show("at the end", db)
