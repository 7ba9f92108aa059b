"""A storage that tells a witness of each write, before it begins and when it is stored.

Owns the moments and nothing else: it stores through the real storage and keeps nothing. The
invariant: no write passes unseen; the witness is told of it on the thread that makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, final

from pidurable_actors.records import Batch
from pidurable_actors.storage import Head, PromptStorage, Storage
from pidurable_actors.testing._through import ThroughStorage

__all__ = ["WriteWitness", "watched"]


class WriteWitness(Protocol):
    """Told of the writes of a storage."""

    def opened(self, head: Head) -> None:
        """An owner has it."""
        ...

    def storing(self, batches: Sequence[Batch]) -> None:
        """A write begins; it may yet be refused or fail."""
        ...

    def failed(self, batches: Sequence[Batch]) -> None:
        """The write failed, or the storage says so."""
        ...

    def stored(self, batches: Sequence[Batch]) -> None:
        """The storage said that it has the batches."""
        ...


def watched(inner: Storage, witness: WriteWitness, *, promptly: bool) -> Storage:
    """A storage on `inner` that tells `witness`.

    Args:
        inner: the real storage.
        witness: whom it tells.
        promptly: be a `PromptStorage` when `inner` is one; else every write passes `apply`.
    """
    if promptly and isinstance(inner, PromptStorage):
        return _WatchedPromptly(inner, inner, witness)
    return _Watched(inner, witness)


class _Watched(ThroughStorage):
    def __init__(self, inner: Storage, witness: WriteWitness) -> None:
        super().__init__(inner)
        self._witness = witness

    def open(self, *, read_only: bool) -> Head:
        """Open, and tell."""
        head = super().open(read_only=read_only)
        if not read_only:
            self._witness.opened(head)
        return head

    def apply(self, batches: Sequence[Batch]) -> None:
        """Store, and tell before and after."""
        self._witness.storing(batches)
        try:
            super().apply(batches)
        except Exception:  # whatever it was, it may have left something
            self._witness.failed(batches)
            raise
        self._witness.stored(batches)


@final
class _WatchedPromptly(_Watched):
    def __init__(self, inner: Storage, prompt: PromptStorage, witness: WriteWitness) -> None:
        super().__init__(inner, witness)
        self._prompt = prompt

    def apply_promptly(self, batches: Sequence[Batch]) -> bool:
        """Store if it needs no wait, and tell before and after."""
        self._witness.storing(batches)
        try:
            stored = self._prompt.apply_promptly(batches)
        except Exception:  # whatever it was, it may have left something
            self._witness.failed(batches)
            raise
        if stored:
            self.groups.append(len(batches))
            self._witness.stored(batches)
        return stored
