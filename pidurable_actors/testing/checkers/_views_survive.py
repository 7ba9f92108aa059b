"""Whether somebody was shown what the storage did not keep.

Owns the contents of publications; their order is `stored_before_published`'s. The invariant: it
passes exactly when each commit that was shown is, change for change, the one that is stored under
its number at the end, and the views of conversations that were kept up to date with what was shown
are the views that a reader of the storage opens.

The views are the real ones, on both sides. What a reader opens is read from a replica, which takes
the commits one by one: that the storage has no other contents is `prefix_durable`'s.
"""

from __future__ import annotations

from typing import Final, final

from pidurable_actors._frozen import Value
from pidurable_actors._json import encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import StorageError
from pidurable_actors.records import Batch, ConversationId, apply_operations
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.testing._history import Opening
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken
from pidurable_actors.views import ConversationSubject

__all__ = ["views_survive"]

_PROMISE: Final = (
    "what was shown adds up to what a later life finds: nobody sees a change that is not kept"
)


def views_survive(world: World) -> None:
    """Every commit that was shown is stored as it was shown, and views agree with fresh ones.

    Raises:
        AssertionError: one was shown that is not stored, or not with these changes; or the view of
            a conversation is another one when it is opened anew.
    """
    history = world.history
    for opening in history.openings:
        for shown in opening.published:
            if shown.number > len(history.kept):
                raise _broken(
                    f"life {opening.life} showed commit {shown.number}, which is not stored."
                )
            stored = history.kept[shown.number - 1].batch
            if stored is not shown and stored != shown:
                raise _broken(
                    f"life {opening.life} showed commit {shown.number} as something else than what "
                    f"is stored under its number.\n{_difference(shown, stored)}"
                )
    # What earlier lives showed was looked at when their own paths ended there.
    replica = _Replica([kept.batch for kept in history.kept])
    try:
        for opening in history.openings:
            if opening.life == world.life:
                replica.follow(opening)
    except StorageError:
        # These commits contradict one another, which is for other checks to tell.
        return


@final
class _Replica:
    """A storage that takes the kept commits one by one, and the views of what is in it."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches
        self._storage = MemoryStorage("a replica")
        self._storage.open(read_only=False)
        self._at = 0

    def follow(self, opening: Opening) -> None:
        """Open views where an opening began, let them follow what it showed, and compare."""
        numbers = [batch.number for batch in opening.published]
        if numbers != list(range(opening.found + 1, opening.found + 1 + len(numbers))):
            return  # out of turn, or a commit that was stored and not yet shown at a crash
        if opening.found < self._at:
            return
        self._take(opening.found)
        views = self._load()
        for shown in opening.published:
            self._take(shown.number)
            for conversation_id, view in views.items():
                operations = self._subject(conversation_id).operations(view, shown.changes)
                views[conversation_id] = apply_operations(view, operations)
            views = {**self._load(without=views), **views}
        for conversation_id, fresh in self._load().items():
            followed, opened = encode_json(views[conversation_id]), encode_json(fresh)
            if followed != opened:
                raise _broken(
                    f"the view of conversation {conversation_id} that life {opening.life} kept up "
                    f"to date until commit {self._at} is not the one that is opened there.\n"
                    f"  kept up to date: {followed[:2_000]}\n  opened: {opened[:2_000]}"
                )

    def _take(self, number: int) -> None:
        self._storage.apply(self._batches[self._at : number])
        self._at = max(self._at, number)

    def _load(
        self, without: dict[ConversationId, Value] | None = None
    ) -> dict[ConversationId, Value]:
        found = self._storage.conversations(after=0, limit=LIMITS.page)
        return {
            record.id: self._subject(record.id).load(self._storage)
            for record in found
            if record.id not in (without or ())
        }

    def _subject(self, conversation_id: ConversationId) -> ConversationSubject:
        return ConversationSubject(conversation_id, None)


def _broken(seen: str) -> AssertionError:
    return broken("views_survive", _PROMISE, seen)


def _difference(shown: Batch, stored: Batch) -> str:
    only_shown = [change for change in shown.changes if change not in stored.changes]
    only_stored = [change for change in stored.changes if change not in shown.changes]
    return f"  only shown:  {only_shown!r}\n  only stored: {only_stored!r}"
