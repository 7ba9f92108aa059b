"""The world of a story: its storage, what it does outside of it, and where it could be cut off.

Owns one life: from the start of a process to its end, in virtual time. It notes everything on the
trace and marks a crash point wherever a death would leave something else than a moment before. It
checks nothing and starts nothing. The invariant: a point holds copies; nothing that happens later
in this life changes what a recovery from it finds.

Size: one life, with all that a story, a check and a search may ask of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, final

import attrs

from pidurable_actors import (
    Extension,
    Harness,
    Models,
    Registry,
    Report,
    Settings,
    Tool,
    ToolApi,
    open_harness,
)
from pidurable_actors._clock import Clock, SeededChance, TrioClock, WallClock
from pidurable_actors.errors import MisuseError
from pidurable_actors.harness import Inspection
from pidurable_actors.records import Batch, CommitNumber
from pidurable_actors.session import Publication
from pidurable_actors.storage import Head, Storage
from pidurable_actors.testing._disks import Disk, Image
from pidurable_actors.testing._history import History
from pidurable_actors.testing._outside import Left, Outside
from pidurable_actors.testing._records import Records, read_records
from pidurable_actors.testing._trace import (
    Acknowledged,
    Began,
    Crashed,
    Effect,
    Opened,
    Published,
    Stored,
    ToolEntered,
    ToolLeft,
    Trace,
)
from pidurable_actors.testing._watched import watched

__all__ = ["AFTER_THE_END", "CrashPoint", "Story", "World"]

T = TypeVar("T")
_EPOCH_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z, where the first life starts

AFTER_THE_END: Final = "after the end"
"""The last point of a life: nothing is cut off, and the story is started once more."""

Story: TypeAlias = Callable[["World"], Awaitable[None]]
"""What a process does: it starts or continues, and the same code runs after each crash."""


@attrs.frozen(eq=False)
class CrashPoint:
    """What a death at one place leaves.

    Attributes:
        where: the place, in words.
        places: where the lives before this one died.
        image: the bytes of the storage.
        outside: what is left outside of it.
        trace: the life's trace, of which `seen` events had happened.
        effects: how many of those events were effects.
        now_ms: when.
        torn: whether it lies within a write, where no process can be made to die on purpose.
    """

    where: str
    places: tuple[str, ...]
    image: Image | None
    outside: Left
    trace: Trace
    seen: int
    effects: int
    now_ms: int
    torn: bool = False

    @property
    def left(self) -> tuple[int, int, int]:
        """Equal for two points of one life that leave the same."""
        return id(self.image), id(self.outside), self.effects


@final
class World:
    """What a story lives in, and what a check looks at.

    Made by `explore` and its kin: one for each life of each path that is tried.

    Attributes:
        life: which process of this path it is, counted from 1.
        seed: orders tasks and chance.
        places: where the lives before this one died, or `AFTER_THE_END`.
        reports: what the harnesses of this life reported.
        trace: everything that happened on this path, earlier lives included.
        points: the crash points of this life, when it is marked.
        inspection: the harness as it was when the story left its block.
        recovered: what is stored when the life begins; None in the first, and when nobody looked.
        body: what surrounds the story's block on an open harness.
        on_mark: told of each place where a death could come, when it has come to it.
        on_storing: told of each write that begins.

    Args:
        disk: where its storage is.
        origin: what the life before left; None for the first.
        marking: keep the crash points.
        found: the world's directory. With it, what is there and on the disk is used as a process
            that really died left it: nothing is put back before, and nothing removed after.
        real_time: use the machine's clock, and the storage on its own thread.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        seed: int,
        origin: CrashPoint | None,
        life: int,
        marking: bool = False,
        found: Path | None = None,
        real_time: bool = False,
    ) -> None:
        self.life = life
        self.seed = seed
        self.reports: list[Report] = []
        self.points: list[CrashPoint] = []
        self.inspection: Inspection | None = None
        self.body: Callable[[Harness], AbstractAsyncContextManager[None]] = _undisturbed
        self.on_mark: Callable[[str], object] | None = None
        self.on_storing: Callable[[Sequence[Batch]], object] | None = None
        self._disk = disk
        self._marking = marking
        # Of each life its own, or the keys that one made would come again in the next.
        self._chance = SeededChance(f"{seed}/{life}/{'' if origin is None else origin.where}")
        self._start_ms = _EPOCH_MS if origin is None else origin.now_ms
        self._real_time = real_time
        self._clock: Clock = WallClock() if real_time else TrioClock(self._start_ms)
        self._image = None if origin is None else origin.image
        self._effects: list[Effect] = []
        self._harnesses = 0
        self.recovered: Records | None = None
        self._outside = Outside(Left() if origin is None else origin.outside, found=found)
        self._restores = found is None
        if self._restores:
            disk.restore(self._image)
        if origin is None:
            self.places: tuple[str, ...] = ()
            self.trace = Trace()
        else:
            self.places = (*origin.places, origin.where)
            self.trace = origin.trace.fork(origin.seen)
            self._effects.extend(self.trace.of(Effect))
            if origin.where != AFTER_THE_END:
                self.trace.note(Crashed(origin.where))

    # --- what a story uses ---

    @asynccontextmanager
    async def open_harness(
        self,
        *,
        models: Models | None = None,
        registry: Registry | None = None,
        settings: Settings | Callable[[], Settings] | None = None,
        on_report: Callable[[Report], object] | None = None,
    ) -> AsyncIterator[Harness]:
        """Open the world's storage, as `pidurable_actors.open_harness` does, to be explored.

        Time is virtual, chance is seeded, and each run of a tool is a crash point before and after.

        Args:
            models: the model providers.
            registry: the extensions.
            settings: policy.
            on_report: told of reports; the world keeps them too.

        Raises:
            PiDurableError: as `pidurable_actors.open_harness`.

        Durability: as `pidurable_actors.open_harness`.

        Cancellation: as `pidurable_actors.open_harness`.
        """
        installed = registry or Registry()
        self._harnesses += 1
        name = f"crash points {self._harnesses}"
        installed.install(Extension(name, wrap_tool=self._around))

        def report(what: Report) -> None:
            self.reports.append(what)
            if on_report is not None:
                on_report(what)

        try:
            async with open_harness(
                self.storage(),
                models=models,
                registry=installed,
                settings=settings,
                clock=self._clock,
                chance=self._chance,
                on_report=report,
                inline_storage=not self._real_time,
                witness=self,
            ) as harness:
                try:
                    async with self.body(harness):
                        yield harness
                finally:
                    self.inspection = harness.inspect()
        finally:
            installed.uninstall(name)
            self._capture()

    def storage(self) -> Storage:
        """The storage, not yet open, with a crash point before and after each write.

        For stories that call `pidurable_actors.open_harness` themselves; give it `clock` too.
        """
        return watched(self._disk.storage(), self, promptly=self._real_time)

    @property
    def clock(self) -> Clock:
        """Durable time, which goes on from where the last life ended."""
        return self._clock

    @property
    def chance(self) -> SeededChance:
        """Chance that repeats when the exploration does."""
        return self._chance

    def effect(self, name: str, *, key: str | None = None, repeatable: bool = False) -> bool:
        """Do something that a crash does not undo, with a crash point before and after it.

        Args:
            name: what is done. Two effects of one name are the same thing done twice, which the
                ready-made checks refuse unless both have the same `key`; so name each thing apart.
            key: what the outside deduplicates by, such as `ToolApi.idempotency_key`.
            repeatable: doing it again is harmless, so no check counts it.

        Returns:
            Whether it is new to the outside: no effect of this name and key happened before.
        """
        done = any(one.name == name and one.key == key for one in self._effects)
        self.mark(f"before effect {name!r}")
        effect = Effect(name, key, repeatable, self.life)
        self._effects.append(effect)
        self.trace.note(effect)
        self.mark(f"after effect {name!r}")
        return not done

    def external(self, name: str, initial: T) -> T:
        """An object outside the storage that survives crashes, such as a fake service.

        It is copied deeply at each crash point, so it should be small and know how to compare.

        Args:
            name: its identity over all lives.
            initial: what it is in the first one.

        Returns:
            The object of this life.

        Raises:
            MisuseError: it cannot be copied, or this process can be killed at any time.
        """
        if self._real_time:
            raise MisuseError(
                f"world.external({name!r}): an object in memory cannot survive a kill that comes "
                "at any time; note what was done with world.effect, or keep it in world.directory."
            )
        return self._outside.object(name, initial)

    @property
    def directory(self) -> Path:
        """A directory whose files survive crashes, as they are at the moment of the crash."""
        return self._outside.directory

    # --- what a check looks at ---

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What was done outside on this path, in order."""
        return tuple(self._effects)

    @property
    def crashes(self) -> tuple[str, ...]:
        """Where the earlier lives of this path died, in words; lives that ended are left out."""
        return tuple(place for place in self.places if place != AFTER_THE_END)

    def count(self, name: str) -> int:
        """How often an effect of this name was done; those of one key count once."""
        done = [effect for effect in self._effects if effect.name == name]
        keys = {effect.key for effect in done if effect.key is not None}
        return len(keys) + sum(effect.key is None for effect in done)

    @cached_property
    def records(self) -> Records:
        """What is stored at the end of the life."""
        return read_records(self._disk.storage())

    @cached_property
    def history(self) -> History:
        """What the path came to, told for the ready-made checks."""
        return History(self.trace, records=self.records, life=self.life)

    def look(self) -> None:
        """Read what the life before left in the storage, for `recovered`, and leave it as it is.

        Raises:
            StorageError: it cannot be read.
        """
        if self._image is not None and self._restores:
            self.recovered = read_records(self._disk.storage())
            self._disk.restore(self._image)

    @property
    def externals(self) -> Mapping[str, object]:
        """Copies of the registered outside objects, by name."""
        return self._outside.freeze().objects

    # --- crash points ---

    def mark(self, where: str) -> None:
        """A death could come here."""
        if self._marking:
            self._add(where, self._image, len(self.trace))
        if self.on_mark is not None:
            self.on_mark(where)

    def mark_if_changed(self, where: str) -> None:
        """A death could come here, which matters if outside state changed since the last point."""
        last = self.points[-1] if self.points else None
        if last is None or self._outside.freeze() is not last.outside:
            self.mark(where)

    def close(self) -> None:
        """Remove what this life kept outside the process."""
        self._outside.close()

    # --- the witness of commits ---

    def published(self, publication: Publication) -> None:
        """A commit is shown."""
        self.trace.note(Published(publication.batch))

    def acknowledged(self, number: CommitNumber) -> None:
        """The caller of a commit goes on."""
        self.trace.note(Acknowledged(number))

    # --- helpers ---

    def _capture(self) -> None:
        # Nobody asks for the image of a life whose points are not tried.
        if self._marking:
            self._image = self._disk.capture()

    def _add(self, where: str, image: Image | None, seen: int, *, torn: bool = False) -> None:
        self.points.append(
            CrashPoint(
                where=where,
                places=self.places,
                image=image,
                outside=self._outside.freeze(),
                trace=self.trace,
                seen=seen,
                effects=len(self._effects),
                now_ms=self._clock.now_ms(),
                torn=torn,
            )
        )

    def _around(self, tool: Tool) -> Tool:
        async def code(
            call: Callable[[], Awaitable[object]], _: Mapping[str, Any], api: ToolApi
        ) -> object:
            entered = ToolEntered(
                api.task_id, api.call_id, tool.name, tool.replay, api.idempotency_key
            )
            self.mark(f"before tool {tool.name}")
            self.trace.note(entered)
            self.mark(f"in tool {tool.name}, before its first step")
            try:
                return await call()
            finally:
                self.trace.note(ToolLeft(api.task_id, api.call_id, tool.name))
                self.mark(f"after tool {tool.name}, before its result is stored")

        made = tool.around(code)
        handler = tool.on_resume
        if handler is not None:

            async def go_on(*given: Any) -> object:
                self.mark(f"before tool {tool.name} goes on after an answer")
                try:
                    return await handler(*given)
                finally:
                    self.mark(f"after tool {tool.name} went on, before its result is stored")

            made.on_resume = go_on
        return made

    def opened(self, head: Head) -> None:
        """A harness of the story became the owner."""
        self._capture()
        self.trace.note(Opened(self.life, head.commit))
        self.mark("after the storage was opened")

    def failed(self, batches: Sequence[Batch]) -> None:
        """The storage failed to store the batches, or says so."""
        self._capture()
        self.mark(f"after {_named(batches)} failed")

    def storing(self, batches: Sequence[Batch]) -> None:
        """A write begins."""
        if self.on_storing is not None:
            self.on_storing(batches)
        self.mark(f"before {_named(batches)}")
        self.trace.note(Began(tuple(batches)))

    def stored(self, batches: Sequence[Batch]) -> None:
        """The storage said that it has the batches."""
        before, seen = self._image, len(self.trace)
        self._capture()
        if self._marking:
            for words, image in self._disk.torn(before, self._image):
                self._add(f"within {_named(batches)}, {words}", image, seen, torn=True)
        self.trace.note(Stored(tuple(batches)))
        self.mark(f"after {_named(batches)}, before it was acknowledged")


@asynccontextmanager
async def _undisturbed(_: Harness) -> AsyncIterator[None]:
    yield


def _named(batches: Sequence[Batch]) -> str:
    first, last = batches[0].number, batches[-1].number
    return f"commit {first}" if first == last else f"commits {first} to {last}"
