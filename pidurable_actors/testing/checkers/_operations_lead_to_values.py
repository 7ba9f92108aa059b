"""Whether what observers were told of documents adds up to what is stored of them.

Owns the comparison of stored values with the operations of the commits. A whole value that a commit
stored is not looked at: that it is what is read is `prefix_durable`'s. The invariant: it passes
exactly when the operations of the commits that are kept, applied one after the other to nothing,
make each stored value.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors._frozen import Value
from pidurable_actors._json import encode_json
from pidurable_actors.records import ChangeDocument, PutDocument, apply_operations
from pidurable_actors.testing._records import DocumentKey
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["operations_lead_to_values"]

_PROMISE: Final = (
    "who applies the operations of all commits, in order, has the documents as they are stored"
)


def operations_lead_to_values(world: World) -> None:
    """Each document's stored value is what the operations of the log lead to.

    Raises:
        AssertionError: an operation does not fit what those before it made, or they all make
            something else than what is stored.
    """
    made: dict[DocumentKey, Value] = {}
    for batch in world.history.batches():
        for change in batch.changes:
            if not isinstance(change, PutDocument | ChangeDocument):
                continue
            it = change.record
            key = (it.scope, it.scope_id, it.kind, it.key)
            try:
                made[key] = apply_operations(made.get(key, ""), change.operations)
            except ValueError as error:
                raise _broken(
                    f"commit {batch.number} has operations on {key} that do not fit it: {error}"
                ) from error
    for key, value in world.records.documents.items():
        stored, expected = encode_json(value), encode_json(made.get(key, ""))
        if stored != expected:
            raise _broken(
                f"{key} is not what the operations make of it.\n"
                f"  stored:     {stored[:1_000]}\n"
                f"  operations: {expected[:1_000]}"
            )


def _broken(seen: str) -> AssertionError:
    return broken("operations_lead_to_values", _PROMISE, seen)
