"""Whether an id was given to two things.

Owns ids over all kinds of record: they come from one counter per storage. Ids in commits that were
lost may come again, since nobody was promised anything; ids in stored commits never. The invariant:
it passes exactly when each id in a stored commit is new and above all before it, or names the thing
that it was given to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from pidurable_actors.records import (
    ROOT_ID,
    AppendEntry,
    Batch,
    Change,
    PutConversation,
    PutDocument,
    PutSubmission,
    PutTask,
)
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["ids_unique"]

Thing: TypeAlias = tuple[object, ...]
"""Kind and all that never changes about it."""

_PROMISE: Final = "an id in a stored commit is given to one thing, and ids only go up"


def ids_unique(world: World) -> None:
    """Over all lives, an id in a stored commit names one thing, and new ids are above all others.

    Only the root conversation has an id of its own.

    Raises:
        AssertionError: an id was given twice, or not from the counter.
    """
    given: dict[int, Thing] = {ROOT_ID: ("conversation",)}
    free = ROOT_ID + 1
    for batch in world.history.batches():
        for change, found, thing in _things(batch):
            before = given.get(found)
            if before is None:
                if not free <= found < batch.next_id:
                    raise _broken(
                        batch,
                        f"gave id {found} to a {thing[0]}; ids from {free} to "
                        f"{batch.next_id - 1} were its own.",
                    )
                given[found] = thing
            elif before != thing or isinstance(change, AppendEntry):
                raise _broken(
                    batch, f"gave id {found} to {_told(thing)}; it names {_told(before)}."
                )
        if batch.next_id < free:
            raise _broken(batch, f"set the counter back from {free} to {batch.next_id}.")
        free = batch.next_id


def _things(batch: Batch) -> Iterator[tuple[Change, int, Thing]]:
    for change in batch.changes:
        match change:
            case PutConversation(record):
                # The root conversation may be made at any time, so nothing of it is compared.
                at = () if record.id == ROOT_ID else (record.parent, record.owner)
                yield change, record.id, ("conversation", *at)
            case AppendEntry(entry):
                yield change, entry.id, ("entry", entry.conversation_id)
            case PutTask(task):
                yield change, task.id, ("task", task.conversation_id, task.kind, task.owner)
            case PutSubmission(made):
                thing = ("submission", made.conversation_id, made.type, made.fingerprint)
                yield change, made.id, (*thing, made.request_id)
            case PutDocument(document):
                home = (document.scope, document.scope_id, document.kind, document.key)
                yield change, document.id, ("document", *home)
            case _:
                pass


def _told(thing: Thing) -> str:
    return f"the {thing[0]} {thing[1:]!r}"


def _broken(batch: Batch, seen: str) -> AssertionError:
    return broken("ids_unique", _PROMISE, f"commit {batch.number} {seen}")
