"""What a process that may die at any instant leaves behind of itself: one file, record by record.

Owns the file's form and what it adds up to. It judges nothing. The invariant: a record is there
whole or not at all; one that a kill cut short is the last, and counts as never written.

The file holds the events of the trace as they happened, and four facts that are not events: which
write had begun (a kill may come after the storage has it and before that is noted), what a process
said before it killed itself, how it ended, and what it raised.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import attrs

from pidurable_actors import Report
from pidurable_actors.harness import Inspection
from pidurable_actors.records import Batch
from pidurable_actors.testing._trace import Crashed, Ended, Event, Opened, Stored, Trace

__all__ = [
    "Came",
    "LastWords",
    "Log",
    "Logbook",
    "Raised",
    "Record",
    "Storing",
    "read_log",
    "trim_log",
    "unpickled",
]

_LENGTH_BYTES: Final = 4
_MODE: Final = 0o600


@attrs.frozen
class Storing:
    """A write began; whether it was made is seen by who opens the storage next."""

    batches: tuple[Batch, ...]


@attrs.frozen
class LastWords:
    """What a process said when it had come to the mark at which it killed itself.

    Attributes:
        where: the mark.
        externals: pickled, the registered outside objects by name.
        now_ms: when.
    """

    where: str
    externals: bytes
    now_ms: int


@attrs.frozen
class Came:
    """A process came to the end of its story.

    Attributes:
        reports: what its harnesses reported.
        inspection: its last harness, when the story left its block.
    """

    reports: tuple[Report, ...]
    inspection: Inspection | None


@attrs.frozen
class Raised:
    """The story of a process raised.

    Attributes:
        error: pickled, what it raised; None when that cannot be.
        text: the traceback.
    """

    error: bytes | None
    text: str


Record: TypeAlias = Event | Storing | LastWords | Came | Raised


@attrs.frozen(kw_only=True)
class Log:
    """What a logbook adds up to; of each fact that is no event the newest.

    Attributes:
        trace: the events of all lives.
        last_words: what the process said that killed itself.
        came: how the last process came to its end.
        raised: what the last process raised.
    """

    trace: Trace
    last_words: LastWords | None
    came: Came | None
    raised: Raised | None


@final
class Logbook:
    """A logbook to write in; each record is one call to the operating system.

    Args:
        path: the file; made, or gone on with.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)

    def write(self, record: Record) -> None:
        """Write one record."""
        text = pickle.dumps(record)
        os.write(self._file, len(text).to_bytes(_LENGTH_BYTES, "big") + text)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_log(path: Path, *, renamed: Mapping[str, str]) -> Log:
    """Read what processes left in a logbook; an empty log when there is none.

    Args:
        path: the file.
        renamed: modules that have another name here than they had where it was written.
    """
    events: list[Event] = []
    facts: dict[type, Any] = {}
    begun: tuple[int, Storing] | None = None
    for text in _whole(path):
        record = unpickled(text, renamed=renamed)
        match record:
            case Storing():
                begun = (len(events), record)
            case LastWords() | Came() | Raised():
                facts[type(record)] = record
            case Crashed() if events and isinstance(events[-1], Ended):
                pass  # It had closed all that it had, so nothing was cut off.
            case _:
                if isinstance(record, Opened) and begun is not None:
                    _settle(events, *begun, found=record.commit)
                if isinstance(record, Opened | Stored):
                    begun = None
                events.append(record)
    trace = Trace()
    for event in events:
        trace.note(event)
    return Log(
        trace=trace,
        last_words=facts.get(LastWords),
        came=facts.get(Came),
        raised=facts.get(Raised),
    )


def trim_log(path: Path) -> None:
    """Cut off a last record that a kill cut short, so that others can follow."""
    if path.exists():
        os.truncate(path, sum(_LENGTH_BYTES + len(text) for text in _whole(path)))


def unpickled(text: bytes, *, renamed: Mapping[str, str]) -> Any:
    """What was pickled, by a process in which some modules have other names."""
    return _Unpickler(io.BytesIO(text), renamed).load()


@final
class _Unpickler(pickle.Unpickler):
    def __init__(self, text: io.BytesIO, renamed: Mapping[str, str]) -> None:
        super().__init__(text)
        self._renamed = renamed

    def find_class(self, module: str, name: str, /) -> Any:
        """The class or function, in the module as it is called here."""
        return super().find_class(self._renamed.get(module, module), name)


def _whole(path: Path) -> Iterator[bytes]:
    content = path.read_bytes() if path.exists() else b""
    at = 0
    while at + _LENGTH_BYTES <= len(content):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(content[at:start], "big")
        if at > len(content):
            return
        yield content[start:at]


def _settle(events: list[Event], begun_at: int, begun: Storing, *, found: int) -> None:
    """Note a write that the storage turned out to have, as the last thing before the death."""
    stored = tuple(batch for batch in begun.batches if batch.number <= found)
    if stored:
        died = next(
            (at for at in range(begun_at, len(events)) if isinstance(events[at], Crashed)),
            len(events),
        )
        events.insert(died, Stored(stored))
