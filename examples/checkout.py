"""A checkout owns four payments; when one fails, or the customer leaves, the others are refunded.

Run it: ``python examples/checkout.py``. Each story is killed by SIGKILL in the middle of a refund.
"""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs
import trio

import pidurable_actors as pi
from pidurable_actors.records import TaskId
from pidurable_actors.storage.sqlite import SqliteStorage


def ask_bank(key: str) -> None:  # It is outside of the storage, and does each key once.
    Path(key).touch()
    if key == "refund amex" and sys.argv[1] == "killed":
        signal.raise_signal(signal.SIGKILL)


@attrs.frozen
class Pay(pi.Checkpoint, phase="pay"):
    payments: tuple[TaskId, ...] = ()


class Payment(pi.TaskActor[str, str], kind="example.payment"):
    def start(self) -> Pay:
        return Pay()

    @pi.phase(Pay)
    async def pay(self, at: Pay) -> pi.Next[str]:
        if self.input != "expired":
            ask_bank(f"charge {self.input}")
        await self.sleep(0.1 if self.input == "expired" else 86_400)  # For a day it can be undone.
        return pi.Failed("expired") if self.input == "expired" else pi.Completed("paid")

    async def abort(self) -> pi.Outcome:
        ask_bank(f"refund {self.input}")
        return pi.Aborted("refunded")


class Checkout(pi.TaskActor[list[str], list[str]], kind="example.checkout"):
    def start(self) -> Pay:
        return Pay()

    @pi.phase(Pay)
    async def pay(self, at: Pay) -> pi.Next[list[str]]:
        if at.payments:  # They have ended, and it decides what that means.
            return pi.Completed([end.status for end in await self.outcomes(at.payments)])
        return await self.commit(self.begin)

    def begin(self, tx: pi.Tx) -> pi.Next[list[str]]:
        made = tuple(tx.create_task(Payment, card, owner=self.task_id) for card in self.input)
        return pi.WaitFor(made, Pay(made), policy="fail_fast")


async def work(cards: list[str]) -> None:
    registry = pi.Registry([pi.Extension("shop", tasks=[Checkout, Payment])])
    async with pi.open_harness(SqliteStorage("shop.sqlite"), registry=registry) as harness:
        root = await harness.root()
        found = [task.id for task in harness.inspect().tasks]  # An owner is older than its work.
        order = found[0] if found else await root.commit(lambda tx: tx.create_task(Checkout, cards))
        with trio.move_on_after(1):
            await harness.wait_for_task(order)
        print((await harness.abort_task(order, reason="the customer left")).outcome)


if sys.argv[1:]:
    sys.exit(trio.run(work, sys.argv[2:]))
for card in ("expired", "mastercard"):
    with tempfile.TemporaryDirectory() as at:
        for life in ("killed", "again"):
            program = [sys.executable, __file__, life, "visa", card, "amex", "jcb"]
            print(f"{life}: exit code {subprocess.call(program, cwd=at)}", flush=True)
        print(*sorted(file.name for file in Path(at).glob("* *")), sep=", ", flush=True)
