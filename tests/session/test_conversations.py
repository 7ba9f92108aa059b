"""Conversations in memory: loaded whole, kept while used, forgotten when idle for long."""

from __future__ import annotations

import trio
from pytest import mark

from pidurable_actors import Tx
from pidurable_actors.agent import LIVE, CompactionState
from pidurable_actors.records import ConversationId, ConversationRecord, SubmissionId
from pidurable_actors.session._conversations import IDLE_KEPT, Conversations
from pidurable_actors.storage.memory import MemoryStorage
from tests._tasks import NOTE, Note, append, opened


def record(number: int) -> ConversationRecord:
    return ConversationRecord(id=ConversationId(number))


def test_the_longest_idle_is_forgotten_first_and_what_is_used_is_not() -> None:
    conversations = Conversations()
    conversations.remember(record(1), ())
    conversations.remember(record(2), ())
    conversations.wake(ConversationId(1))
    for number in range(3, IDLE_KEPT + 3):
        conversations.remember(record(number), ())
    assert conversations.get(ConversationId(1)) is not None
    assert conversations.get(ConversationId(2)) is None
    assert conversations.forgotten == 1
    conversations.rest(ConversationId(1), 0)
    conversations.remember(record(IDLE_KEPT + 3), ())
    assert conversations.get(ConversationId(3)) is None
    assert conversations.submission(SubmissionId(9)) is None


@mark.slow
async def test_more_conversations_than_stay_in_memory_commit_at_once_and_lose_nothing() -> None:
    async with opened(MemoryStorage()) as on:
        handles = [await on.harness.create_conversation() for _ in range(IDLE_KEPT + 200)]
        async with trio.open_nursery() as nursery:
            for handle in handles:
                for text in ("a", "b"):
                    nursery.start_soon(handle.commit, append(text))
        for handle in (handles[0], handles[IDLE_KEPT], handles[-1]):
            texts = [NOTE.match(entry) for entry in (await handle.entries()).items]
            assert sorted(note.text for note in texts if isinstance(note, Note)) == ["a", "b"]


@mark.slow
async def test_a_conversation_used_by_a_slow_callback_outlives_a_rush_of_others() -> None:
    async with opened(MemoryStorage()) as on:
        handles = [await on.harness.create_conversation() for _ in range(IDLE_KEPT + 50)]
        first = handles[0]

        async def rush() -> None:
            for handle in handles[1:]:
                await on.harness._core.engine.storage.warm(handle.id)

        async with trio.open_nursery() as nursery:

            async def change(tx: Tx) -> None:
                live = await tx.doc(LIVE, first.id)
                nursery.start_soon(rush)
                await trio.sleep(1)
                live.compactions.append(CompactionState(reason="kept"))

            await first.commit(change)
        assert [it.reason for it in (await first.snapshot(LIVE)).compactions] == ["kept"]
