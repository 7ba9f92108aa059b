"""What processes that die leave of themselves is read as far as it was written."""

from __future__ import annotations

from pathlib import Path

from pidurable_actors.records import Batch, CommitNumber
from pidurable_actors.testing import Effect
from pidurable_actors.testing._logbook import (
    Came,
    LastWords,
    Logbook,
    Raised,
    Record,
    Storing,
    read_log,
    trim_log,
)
from pidurable_actors.testing._trace import Crashed, Ended, Event, Opened, Stored

EFFECT = Effect("charge")


def batch(number: int) -> Batch:
    """A commit that writes nothing."""
    return Batch(number=CommitNumber(number), at_ms=0, next_id=1, changes=())


def written(path: Path, *records: Record) -> list[Event]:
    """The trace of a logbook with these records."""
    book = Logbook(path)
    for record in records:
        book.write(record)
    book.close()
    return list(read_log(path, renamed={}).trace)


def test_a_logbook_gives_back_what_several_lives_wrote(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first = written(path, Opened(1, 0), EFFECT, Crashed("there"))
    assert first == [Opened(1, 0), EFFECT, Crashed("there")]
    assert written(path, Opened(2, 0), Ended(2)) == [*first, Opened(2, 0), Ended(2)]


def test_a_logbook_that_nobody_wrote_is_empty(tmp_path: Path) -> None:
    log = read_log(tmp_path / "log", renamed={})
    assert len(log.trace) == 0
    assert (log.last_words, log.came, log.raised) == (None, None, None)


def test_facts_that_are_no_events_stay_out_of_the_trace(tmp_path: Path) -> None:
    words, came, raised = LastWords("there", b"", 7), Came((), None), Raised(None, "text")
    assert written(tmp_path / "log", words, came, raised) == []
    log = read_log(tmp_path / "log", renamed={})
    assert (log.last_words, log.came, log.raised) == (words, came, raised)


def test_a_record_that_a_kill_cut_short_counts_as_never_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, Opened(1, 0))
    whole = path.read_bytes()
    written(path, EFFECT)
    both = path.read_bytes()
    for length in range(len(whole), len(both)):
        path.write_bytes(both[:length])
        assert list(read_log(path, renamed={}).trace) == [Opened(1, 0)]
        trim_log(path)
        assert path.read_bytes() == whole
    trim_log(tmp_path / "nothing")


def test_a_write_that_a_kill_kept_from_being_noted_is_seen_by_the_next_owner(
    tmp_path: Path,
) -> None:
    begun = Storing((batch(1), batch(2)))
    died = [Crashed("there"), Crashed("early")]
    for found, stored in (
        (0, []),
        (1, [Stored((batch(1),))]),
        (2, [Stored((batch(1), batch(2)))]),
    ):
        path = tmp_path / str(found)
        events = written(path, Opened(1, 0), begun, EFFECT, *died, Opened(3, found))
        assert events == [Opened(1, 0), EFFECT, *stored, *died, Opened(3, found)]


def test_a_write_that_was_noted_is_not_noted_twice(tmp_path: Path) -> None:
    stored = Stored((batch(1),))
    events = written(tmp_path / "log", Storing((batch(1),)), stored, Crashed("there"), Opened(2, 1))
    assert events == [stored, Crashed("there"), Opened(2, 1)]


def test_a_death_after_the_end_of_a_story_cuts_nothing_off(tmp_path: Path) -> None:
    lives = (Opened(1, 0), Ended(1), Crashed("late"), Opened(2, 0), Crashed("there"))
    assert written(tmp_path / "log", *lives) == [*lives[:2], *lives[3:]]
