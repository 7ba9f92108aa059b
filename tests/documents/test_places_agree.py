"""Both storages hold the same of the same history: values, bases, tails, and the log."""

from __future__ import annotations

from pathlib import Path

from pytest import mark

from pidurable_actors import Tx
from pidurable_actors._json import encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.records import ConversationId, LoggedCommit, StoredDocument
from pidurable_actors.session import define_doc
from tests.documents.kit import (
    BOOK,
    KEPT,
    Book,
    Picks,
    Place,
    edit,
    logged,
    memory_place,
    note,
    opened_at,
    sqlite_place,
)

FOR_ALL = define_doc("app.for-all", Book, scope="session", history="rewindable")
CURRENT = define_doc("app.current", Book, fork="current")
KEPT_LATEST = define_doc(KEPT.kind, Book)


async def _history(place: Place, seed: int) -> tuple[list[StoredDocument], list[LoggedCommit]]:
    """Random changes of documents of every policy, forks, failures and restarts."""
    picks, conversations = Picks(seed), [ConversationId(1)]
    definitions = (BOOK, KEPT, CURRENT, FOR_ALL, KEPT_LATEST)
    found: list[StoredDocument] = []
    log: list[LoggedCommit] = []
    for _ in range(4):
        async with opened_at(place(), still=True) as (harness, _):
            for _ in range(40):
                at = await harness.conversation(picks.of(conversations))
                definition, key = picks.of(definitions), picks.of(["", "k"])
                change = picks.edit(3_000)

                async def fails(tx: Tx) -> None:
                    change(await tx.doc(definition, key=key))  # noqa: B023 - called at once
                    raise KeyError

                match picks.below(12):
                    case 0:
                        await at.commit(note())
                        conversations.append((await at.fork()).id)
                    case 1:
                        try:
                            await at.commit(fails)
                        except KeyError:
                            await at.commit(note())
                    case _:
                        await at.commit(edit(definition, change, key=key))
            log = await logged(harness)
            for scope, scope_id in (
                ("session", 0),
                *(("conversation", it) for it in conversations),
            ):
                found += await harness._core.read(
                    lambda s, scope=scope, scope_id=scope_id: s.documents(  # type: ignore[misc]
                        scope, scope_id, limit=100
                    )
                )
    return found, log


@mark.slow
@mark.parametrize("seed", range(3))
async def test_every_document_has_the_same_base_tail_and_value_everywhere(
    tmp_path: Path, seed: int
) -> None:
    in_memory, its_log = await _history(memory_place(), seed)
    in_a_file, log = await _history(sqlite_place(tmp_path / "agent.sqlite"), seed)
    assert its_log == log
    assert in_memory == in_a_file
    # Equal in Python is not yet equal as text.
    for one, other in zip(in_memory, in_a_file, strict=True):
        assert encode_json(one.value) == encode_json(other.value)
    assert any(it.tail_chars > it.base_chars for it in in_memory)
    assert any(it.base_chars > LIMITS.whole_document_chars for it in in_memory)
