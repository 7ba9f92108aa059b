"""Questions as the host handles them: listing what is open, looking one up, answering.

Functions of a harness's core; what an answer does is in the agent room.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import Final, cast

from pidurable_actors._frozen import FrozenDict, FrozenList, Value
from pidurable_actors._json import JSON
from pidurable_actors.agent import (
    OPEN_QUESTIONS,
    QUESTION,
    Question,
    answer_question,
    check_question_id,
    question_of,
    send_signal,
)
from pidurable_actors.harness._core import Core, revision_of
from pidurable_actors.harness._pages import Page, check_limit, read_cursor, write_cursor
from pidurable_actors.records import ConversationId
from pidurable_actors.session import Binding
from pidurable_actors.storage import Storage

__all__ = ["answer", "open_questions", "question", "signal"]

_SESSION: Final = 0


async def open_questions(
    core: Core, conversation_id: int | None, *, limit: int, cursor: str | None
) -> Page[Question]:
    """A page of the open questions; see `Harness.questions`.

    Durability: what is returned is stored.

    Cancellation: nothing happened.
    """
    check_limit(limit)
    query: list[JSON] = ["questions", conversation_id]
    after = read_cursor(cursor, query, 0)

    def look(storage: Storage) -> Page[Question]:
        listed = storage.document(OPEN_QUESTIONS.kind, OPEN_QUESTIONS.scope, _SESSION)
        wanted = [] if listed is None else _listed(listed.value, conversation_id, after, limit + 1)
        following = write_cursor(query, wanted[limit - 1][0]) if len(wanted) > limit else None
        return Page(tuple(_stored(storage, at) for _, at in wanted[:limit]), following)

    return await core.read(look)


async def question(core: Core, question_id: str) -> Question:
    """A question by its id, whatever became of it; see `Harness.question`.

    Durability: what is returned is stored.

    Cancellation: nothing happened.
    """
    known = check_question_id(question_id)
    return await core.read(lambda storage: _stored(storage, known))


async def answer(core: Core, question_id: str, value: JSON, by: str) -> Question:
    """Answer a question; see `Harness.answer`.

    Durability: on return the answer is stored.

    Cancellation: `Cancelled` means that nothing was stored.
    """
    core.need_progress()
    return await core.commit(
        lambda tx: answer_question(tx, core.services, question_id, value, by), Binding()
    )


async def signal(
    core: Core, conversation_id: ConversationId, name: str, value: JSON, by: str
) -> None:
    """Send a signal; see `Conversation.signal`.

    Durability: on return the signal is stored.

    Cancellation: `Cancelled` means that nothing was stored.
    """
    core.need_progress()
    await core.commit(
        lambda tx: send_signal(tx, conversation_id, name, value, by), Binding(conversation_id)
    )


def _listed(
    index: Value, conversation_id: int | None, after: int, count: int
) -> list[tuple[int, str]]:
    """Number and id of the first open questions behind a number, oldest first."""
    # As it is stored, because the class of each of thousands would cost more than all the rest.
    listed = cast("FrozenList", cast("FrozenDict", index)["open"])
    first = bisect_right(
        listed, after, key=lambda it: cast("int", cast("FrozenDict", it)["number"])
    )
    found = (cast("FrozenDict", listed[at]) for at in range(first, len(listed)))
    mine = (it for it in found if conversation_id in (None, it["conversation_id"]))
    return [(cast("int", it["number"]), str(it["id"])) for it in islice(mine, count)]


def _stored(storage: Storage, question_id: str) -> Question:
    stored = storage.document(QUESTION.kind, QUESTION.scope, _SESSION, question_id)
    return question_of(question_id, revision_of(QUESTION, stored))
