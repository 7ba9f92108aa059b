# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""Read by the type checkers, never run: inputs, results and steps of tasks are typed.

A line that must be refused carries an ignore; the checkers complain about one that is not needed.
"""

from __future__ import annotations

from typing import assert_type

import attrs

from pidurable_actors import (
    MISSING,
    Aborted,
    Checkpoint,
    Completed,
    Continue,
    Conversation,
    Failed,
    Next,
    Outcome,
    SleepUntil,
    TaskActor,
    Tx,
    WaitFor,
    phase,
)
from pidurable_actors.records import TaskId, TaskOutcome


@attrs.frozen
class CountTo:
    to: int


@attrs.frozen
class Tick(Checkpoint, phase="tick"):
    n: int = 1


@attrs.frozen
class Other(Checkpoint, phase="other"):
    word: str = ""


class Ticker(TaskActor[CountTo, str], kind="example.ticker", version=1):
    def start(self) -> Tick:
        assert_type(self.input, CountTo)
        self.input.to = 5  # type: ignore[misc]
        self.input.gone  # type: ignore[attr-defined]  # noqa: B018
        return Tick()

    @phase(Tick)
    async def tick(self, at: Tick) -> Next[str]:
        assert_type(at.n, int)
        if await self.memo("printed") is MISSING:
            await self.set_memo("printed", {"at": [at.n, None]})
        if at.n == 1:
            return Continue(Tick(2))
        if at.n == 2:
            return SleepUntil(self.now_ms() + 50, Tick(3))
        if at.n == 3:
            return WaitFor([self.task_id], Tick(4), policy="fail_fast")
        if at.n == 4:
            return Failed("no")
        return Completed("counted")

    @phase(Other)
    async def other(self, at: Other) -> Next[str]:
        if at.word:
            return Completed(5)  # type: ignore[arg-type]
        if self.input.to:
            return "done"  # type: ignore[return-value]
        return Continue("tick")  # type: ignore[arg-type]

    @phase(Tick)  # type: ignore[arg-type]
    async def another_checkpoint(self, at: Other) -> Next[str]:
        return Completed(at.word)

    @phase(Tick)  # type: ignore[arg-type]
    def not_async(self, at: Tick) -> Next[str]:
        return Completed(str(at.n))

    @phase(Tick)  # type: ignore[arg-type]
    async def no_step(self, at: Tick) -> str:
        return str(at.n)

    async def abort(self) -> Outcome:
        outcomes = await self.outcomes([self.task_id])
        assert_type(outcomes, list[TaskOutcome])
        return Aborted("stopped")


class Stays(TaskActor[None, None], kind="example.stays"):
    def start(self) -> Tick:
        return Tick()

    @phase(Tick)
    async def tick(self, at: Tick) -> Next[None]:
        return Completed(None)

    async def abort(self) -> Outcome:
        return Continue(Tick())  # type: ignore[return-value]


class StartsWithNothing(TaskActor[CountTo, str], kind="example.starts-with-nothing"):
    def start(self) -> str:  # type: ignore[override]
        return "tick"


async def creating_is_typed(conversation: Conversation) -> None:
    task = await conversation.commit(lambda tx: tx.create_task(Ticker, CountTo(5)))
    assert_type(task, TaskId)
    await conversation.commit(lambda tx: tx.create_task(Stays, None))


def a_wrong_input_is_found(tx: Tx) -> None:
    tx.create_task(Ticker, 5)  # type: ignore[misc]
    tx.create_task(Stays, CountTo(5))  # type: ignore[misc]
    tx.create_task(CountTo, CountTo(5))  # type: ignore[arg-type]
    tx.create_task(Ticker, CountTo(5), owner=5)  # type: ignore[arg-type]


async def what_a_callback_returns_is_what_a_commit_returns(conversation: Conversation) -> None:
    async def slow(tx: Tx) -> int:
        return tx.now_ms

    assert_type(await conversation.commit(lambda tx: tx.now_ms), int)
    assert_type(await conversation.commit(slow), int)
