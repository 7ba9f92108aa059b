"""What processes that ended left: what they told, and the comparison with a snapshot.

Owns the reading of both. It changes nothing. The invariant: two pictures without a difference are
equal in all that a next process could find.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from pidurable_actors.errors import MisuseError, PiDurableError
from pidurable_actors.testing._errands import OUTPUT, Answer, Program
from pidurable_actors.testing._findings import CrashFailure, StoryStuck
from pidurable_actors.testing._logbook import Log, Raised, unpickled
from pidurable_actors.testing._records import Records
from pidurable_actors.testing._trace import Effect, Event

__all__ = ["KillMismatch", "Picture", "differences", "failure_of", "raise_told"]

_VALUE_CHARS: Final = 200
_OUTPUT_CHARS: Final = 4_000


class KillMismatch(PiDurableError, AssertionError):
    """A process that died left something else than the snapshot of its crash point says.

    Either the snapshot is wrong, or the story does not repeat: it depends on something that another
    process has differently, such as its number, the real time, or the order of a set of strings.

    Attributes:
        replay: what to hand to ``kill_matrix(..., replay=...)`` to run just this kill.
        place: the crash point, in words.
        differences: what is different, in words.
    """

    def __init__(self, replay: str, place: str, differences: tuple[str, ...]) -> None:
        self.replay = replay
        self.place = place
        self.differences = differences
        told = "".join(f"\n  {difference}" for difference in differences)
        super().__init__(
            f"killed {place}, a process left something else than the snapshot of that place:{told}"
            f"\nrepeat it with kill_matrix(..., replay={replay!r})"
        )


def failure_of(search: str, replay: str, places: tuple[str, ...], error: Exception) -> CrashFailure:
    """The failure of a search with real kills; it begins with the seed."""
    failure = CrashFailure(replay, places, error, how=f"{search}(..., replay={replay!r})")
    failure.args = (f"seed {replay.partition(':')[0]}, {failure}",)
    return failure


@attrs.frozen(kw_only=True)
class Picture:
    """All that a death leaves, and all that had happened.

    Attributes:
        where: the place, in words.
        effects: what was done outside.
        externals: the registered outside objects.
        files: the world's directory.
        records: what is stored.
        events: the trace.
    """

    where: str
    effects: tuple[Effect, ...]
    externals: Mapping[str, object]
    files: Mapping[str, bytes]
    records: Records
    events: tuple[Event, ...]


def raise_told(
    answer: Answer, log: Log, place: Path, *, program: Program, timeout_s: float
) -> None:
    """Raise what a process said was wrong; nothing when it came to its end or died.

    Raises:
        StoryStuck: it had to be ended.
        Exception: what its story raised, with the traceback of that process as a note.
        ChildProcessError: the same, when that exception can not be told to another process.
    """
    if answer.end == "hung":
        raise StoryStuck(
            f"a process did not end within {timeout_s:g} s, and was ended; this is what it printed "
            f"and where it was:\n{_printed(place)}"
        )
    if answer.end == "raised":
        if log.raised is None:
            raise ChildProcessError(f"a process failed and could not say why:\n{_printed(place)}")
        raise _error(log.raised, program)


def differences(snapshot: Picture, real: Picture) -> tuple[str, ...]:
    """Where two pictures differ, in words: of each part the first place.

    Raises:
        MisuseError: an outside object does not know how to compare.
    """
    _check_comparable(snapshot.externals)
    found = (_first(getattr(snapshot, n), getattr(real, n), n) for n in _names(snapshot))
    return tuple(words for words in found if words)


def _check_comparable(externals: Mapping[str, object]) -> None:
    for name, value in externals.items():
        if pickle.loads(pickle.dumps(value)) != value:  # noqa: S301 - made in the same line
            raise MisuseError(
                f"world.external({name!r}) is not equal to a copy of itself, so it cannot be "
                "compared with what another process left; give its class an __eq__."
            )


def _first(one: object, other: object, path: str) -> str:
    """The innermost first place where two values differ; empty when they do not."""
    if one == other:
        return ""
    for inner_path, ours, theirs in _parts(one, other, path):
        words = _first(ours, theirs, inner_path)
        if words:
            return words
    return f"{path}: {_short(one)} in the snapshot, {_short(other)} in reality"


def _parts(one: object, other: object, path: str) -> Iterator[tuple[str, object, object]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() == other.keys():
            yield from ((f"{path}[{key!r}]", one[key], other[key]) for key in one)
        else:
            yield f"{path}, names", sorted(map(str, one)), sorted(map(str, other))
    elif isinstance(one, tuple) and isinstance(other, tuple):
        for at, (ours, theirs) in enumerate(zip(one, other, strict=False)):
            yield f"{path}[{at}]", ours, theirs
        yield f"{path}, how many", len(one), len(other)
    elif type(one) is type(other) and attrs.has(type(one)):
        for name in _names(one):
            yield f"{path}.{name}", getattr(one, name), getattr(other, name)


def _names(record: object) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(type(record)))  # type: ignore[arg-type]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}..."


def _error(raised: Raised, program: Program) -> BaseException:
    if raised.error is not None:
        try:
            error = unpickled(raised.error, renamed=program.renamed_here)
        except Exception:  # noqa: BLE001 - whatever the exception's own code raises
            error = None
        if isinstance(error, BaseException):
            error.add_note(f"in another process:\n{raised.text}")
            return error
    return ChildProcessError(f"in another process:\n{raised.text}")


def _printed(place: Path) -> str:
    output = place / OUTPUT
    text = output.read_text(errors="replace") if output.exists() else ""
    return text[-_OUTPUT_CHARS:] or "nothing"
