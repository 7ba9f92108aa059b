"""What a story changes outside of its storage, and how that survives a crash.

Owns the registered objects and the directory of one life. The invariant: what was frozen is a copy;
freezing again while nothing changed gives the very same objects, so that two crash points which
leave the same are known by identity.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, final

import attrs

from pidurable_actors.errors import MisuseError
from pidurable_actors.testing._disks import FileTree, scratch

__all__ = ["Left", "Outside"]

T = TypeVar("T")


@attrs.frozen(eq=False)
class Left:
    """What a crash leaves outside of the storage.

    Attributes:
        objects: registered objects, by name.
        files: the directory, content by relative name.
    """

    objects: Mapping[str, object] = attrs.field(factory=dict)
    files: Mapping[str, bytes] = attrs.field(factory=dict)


@final
class Outside:
    """The outside state of one life.

    Args:
        left: what the life before left.
        found: a directory that is used as it is found, and not removed; by default a new one.
    """

    def __init__(self, left: Left, *, found: Path | None = None) -> None:
        self._left = left
        self._found = found
        self._objects: dict[str, object] = {}
        self._directory: Path | None = None
        self._tree: FileTree | None = None

    def object(self, name: str, initial: T) -> T:
        """The object of this name; `initial` when no life has registered it yet.

        Raises:
            MisuseError: it cannot be copied.
        """
        if name not in self._objects:
            self._objects[name] = _copied(name, self._left.objects.get(name, initial))
        found: Any = self._objects[name]
        return found  # type: ignore[no-any-return]

    @property
    def directory(self) -> Path:
        """The directory, made when it is first asked for."""
        if self._directory is None:
            self._directory = self._found or scratch()
            self._directory.mkdir(exist_ok=True)
            self._tree = FileTree(self._directory)
            if self._found is None:
                self._tree.restore(self._left.files)
        return self._directory

    def freeze(self) -> Left:
        """What a crash would leave now."""
        objects, files = self._left.objects, self._left.files
        if self._objects.keys() - objects.keys() or any(
            value != objects[name] for name, value in self._objects.items()
        ):
            copies = {name: _copied(name, value) for name, value in self._objects.items()}
            objects = {**objects, **copies}
        if self._tree is not None:
            files = self._tree.capture()
        if objects is not self._left.objects or files is not self._left.files:
            self._left = Left(objects, files)
        return self._left

    def close(self) -> None:
        """Remove the directory, if it was made here."""
        if self._directory is not None and self._tree is not None:
            self._tree.forget()
            if self._found is None:
                shutil.rmtree(self._directory, ignore_errors=True)


def _copied(name: str, value: T) -> T:
    try:
        return copy.deepcopy(value)
    except Exception as error:  # whatever the object's own code raises
        raise MisuseError(
            f"world.external({name!r}) cannot be copied ({error}); keep plain data in it, or files "
            "in world.directory."
        ) from error
