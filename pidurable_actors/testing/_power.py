"""A disk for explorations whose crashes are power cuts: what SQLite has not synced may be gone.

Owns the watch over one file's directory. An image is what is sure to be left, the synced bytes
alone; a death within a write may leave more, and less in order than it was written.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Final, final

from pidurable_actors.storage import Storage
from pidurable_actors.storage.sqlite import Durability, SqliteStorage
from pidurable_actors.testing._disks import FileTree, Image, scratch
from pidurable_actors.testing._synced_files import SyncedFiles

__all__ = ["PowerDisk"]

_WITHIN: Final = 4
"""Images tried for a cut between two writes of one commit."""


@final
class PowerDisk:
    """A `SqliteStorage` in a file of its own, on a machine that loses power.

    Watches the SQLite library of this process; one exploration at a time. With ``"power"`` every
    promise must hold. With ``"process"`` the newest commits may be gone, which `acknowledged_kept`
    reports; what is left is whole all the same, as `prefix_durable` checks.

    Args:
        durability: of the storage.

    Raises:
        MisuseError: this Python's SQLite cannot be watched.
    """

    def __init__(self, durability: Durability = "power") -> None:
        self._durability: Final = durability
        self._place: Final = scratch()
        self._tree: Final = FileTree(self._place)
        self._watch: Final = SyncedFiles(self._place).__enter__()
        self._watch.on_event = self._note
        self._last: Mapping[str, bytes] = {}
        self._within: dict[str, Mapping[str, bytes]] = {}

    def storage(self) -> Storage:
        """A new storage object on the file."""
        return SqliteStorage(self._place / "story.sqlite", self._durability)

    def capture(self) -> Image:
        """What a power cut now is sure to leave; the last object when that is the same."""
        kept = self._watch.kept()
        if kept != self._last:
            self._last = kept
        return self._last

    def torn(self, before: Image, after: Image) -> Iterator[tuple[str, Image]]:
        """What a cut may leave between the writes that came since the last image was torn."""
        tried, self._within = self._within, {}
        seen = [before, after]
        for words, image in tried.items():
            if image not in seen:
                seen.append(image)
                yield words, image

    def restore(self, image: Image | None) -> None:
        """Write the files, all of them synced."""
        assert image is None or isinstance(image, Mapping)
        self._tree.restore(image or {})
        self._watch.begin_anew()
        self._within.clear()

    def close(self) -> None:
        """End the watch and remove the directory."""
        self._watch.on_event = None
        self._watch.__exit__(None, None, None)
        self._tree.forget()
        shutil.rmtree(self._place, ignore_errors=True)

    def _note(self, event: str, name: str) -> None:
        if event in {"write", "truncate"} and len(self._within) < 64:
            at = len(self._within)
            for words, image in self._watch.outcomes(limit=_WITHIN):
                self._within[f"power cut {at}: {words}"] = image
