"""One request of a run to a model: what has come of it, and what is kept of that.

Owns the answer as far as it has come, how it is shown and stored meanwhile, and what is counted and
appended of a request that ended early. It decides nothing about what comes next.
"""

from __future__ import annotations

from typing import final

from pidurable_actors.agent import (
    LIVE,
    AgentServices,
    GenerationState,
    LiveState,
    count_request,
    priced,
    release,
)
from pidurable_actors.models import Accumulator
from pidurable_actors.records import ASSISTANT, EntryDraft, Usage
from pidurable_actors.runtime import Runtime
from pidurable_actors.session import Tx
from pidurable_actors.tasks._half_answer import has_half, take_half, write_half

__all__ = [
    "Attempt",
    "begin_attempt",
    "count_usage",
    "forget_half",
    "generation_state",
    "has_stored_half",
    "keep_half",
]


@final
class Attempt:
    """The request that a run of a generation sends.

    Args:
        runtime: of the task.
        number: which request of its turn it is.
    """

    def __init__(self, runtime: Runtime, number: int) -> None:
        self.answer = Accumulator()
        self._runtime = runtime
        self._number = number

    def write(self, live: LiveState) -> None:
        """Bring a draft of the live document up to date with what has come."""
        write_half(live, self._runtime.task_id, self._number, self.answer)

    async def store(self) -> None:
        """Store what has come.

        Durability: stored on return.

        Cancellation: `Cancelled` means that nothing was stored.
        """

        async def change(tx: Tx) -> None:
            self.write(await tx.doc(LIVE, self._runtime.conversation_id))

        await self._runtime.commit(change)


async def generation_state(tx: Tx, runtime: Runtime) -> GenerationState:
    """What the live document says of the task, made when it says nothing.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE, runtime.conversation_id)
    if live.generation is None:
        live.generation = GenerationState(task_id=runtime.task_id)
    return live.generation


async def begin_attempt(tx: Tx, runtime: Runtime, number: int) -> None:
    """Show that a request of the present turn begins.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE, runtime.conversation_id)
    generation = await generation_state(tx, runtime)
    generation.turn = 1 + (0 if live.run is None else live.run.turns)
    generation.attempt = number
    generation.retry_at_ms = None
    generation.error = None
    generation.partial = []


async def has_stored_half(tx: Tx, runtime: Runtime) -> bool:
    """Whether an earlier request left something in the live document.

    Durability: stores nothing.

    Cancellation: the commit rolls back.
    """
    live = await tx.doc(LIVE, runtime.conversation_id)
    return live.generation is not None and has_half(live.generation)


async def forget_half(tx: Tx, runtime: Runtime, model: str) -> bool:
    """Take away what a request left that is sent again in full; what it used was used all the same.

    Returns:
        Whether it had a reservation, which is used up: there must be another before it is sent.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    used = Usage()
    if await has_stored_half(tx, runtime):
        half = take_half(await generation_state(tx, runtime), model=model)
        used = await count_usage(tx, runtime, model, half.usage)
    return await release(tx, runtime.conversation_id, runtime.task_id, reported=used)


async def keep_half(
    tx: Tx, runtime: Runtime, model: str, attempt: Attempt | None, *, refused: bool = False
) -> None:
    """Count a request that ended early, and append what came as an aborted answer, if any.

    Args:
        tx: the commit.
        runtime: of the task.
        model: who was asked.
        attempt: the request, when it was sent by this run of the task.
        refused: its provider said no, or was not reached; when nothing came, it has used nothing.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    half = take_half(await generation_state(tx, runtime), model=model)
    if attempt is not None:
        half = attempt.answer.partial(model=model)
    if half.content:
        tx.append_entry(runtime.conversation_id, EntryDraft(kind=ASSISTANT, model=(half,)))
    used = await count_usage(tx, runtime, model, half.usage)
    nothing_came = not half.content and half.usage == Usage()
    reported = None if refused and nothing_came else used
    await release(tx, runtime.conversation_id, runtime.task_id, reported=reported)


async def count_usage(
    tx: Tx, runtime: Runtime, model: str, used: Usage, *, turns: int = 0
) -> Usage:
    """Count one request.

    Returns:
        What it used, priced.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    used = priced(runtime.service(AgentServices), model, used)
    await count_request(tx, runtime.conversation_id, model, used, turns=turns)
    return used
