"""Real processes, killed by SIGKILL at every durable write, and finished by a second process."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

import pytest

from pidurable_actors._json import fingerprint
from pidurable_actors.records import (
    CompletedOutcome,
    EntryRecord,
    FailedOutcome,
    TaskRecord,
    Terminal,
    ToolResultMessage,
    text_of,
)
from pidurable_actors.records.codec import encode_record
from pidurable_actors.storage import Storage
from pidurable_actors.storage.sqlite import SqliteStorage
from tests._agents import (
    all_entries,
    all_submissions,
    all_tasks,
    codes,
    ended,
    interrupted,
    peek,
    short,
)
from tests.crash.programs import Forker, Run
from tests.crash.sweep import check_whole

PROCESSES = min(4, os.cpu_count() or 2)


@pytest.fixture(scope="module")
def forkers() -> Iterator[SimpleQueue[Forker]]:
    """As many forking processes as are useful at once."""
    free: SimpleQueue[Forker] = SimpleQueue()
    with ExitStack() as stack:
        for _ in range(PROCESSES):
            free.put(stack.enter_context(Forker()))
        yield free


def play(forkers: SimpleQueue[Forker], run: Run) -> int:
    """Run one program in a free forker."""
    forker = forkers.get()
    try:
        return forker.run(run)
    finally:
        forkers.put(forker)


def sweep(
    forkers: SimpleQueue[Forker],
    tmp_path: Path,
    story: str,
    check: Callable[[Path], None],
    **args: bool,
) -> None:
    """Kill the story at each write, before it and after it; recover; check."""
    whole = tmp_path / "whole"
    whole.mkdir()
    assert play(forkers, Run(story=story, directory=str(whole), args={**args})) == 0
    check(whole)
    writes = sum("stored" in fact for fact in facts(whole))

    def one(case: tuple[int, bool]) -> int:
        at, after = case
        place = tmp_path / f"{at}-{'after' if after else 'before'}"
        place.mkdir()
        run = Run(story=story, directory=str(place), args={**args})
        died = play(
            forkers,
            Run(story=story, directory=str(place), kill_at=at, after=after, args={**args}),
        )
        assert died in (0, signal.SIGKILL)
        assert play(forkers, run) == 0, f"{place.name}: the recovery failed"
        try:
            check(place)
        except BaseException as error:  # named, and raised again
            error.add_note(f"killed at write {at}, {'after' if after else 'before'} it")
            raise
        return died

    cases = [(at, after) for at in range(1, writes + 1) for after in (False, True)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        deaths = Counter(pool.map(one, cases))
    # Commits share writes as they happen to meet, so a run may have fewer writes than commits.
    assert deaths[signal.SIGKILL] > writes


@pytest.mark.slow
def test_the_kill_9_story_survives_a_kill_at_every_write(
    forkers: SimpleQueue[Forker], tmp_path: Path
) -> None:
    sweep(forkers, tmp_path, "tickets", check_tickets)


@pytest.mark.slow
def test_two_parallel_tools_survive_a_kill_at_every_write(
    forkers: SimpleQueue[Forker], tmp_path: Path
) -> None:
    sweep(forkers, tmp_path, "tickets", check_tickets, together=True)


@pytest.mark.slow
def test_the_counter_survives_a_kill_at_every_write(
    forkers: SimpleQueue[Forker], tmp_path: Path
) -> None:
    sweep(forkers, tmp_path, "counter", check_counter)


@pytest.mark.soak
@pytest.mark.parametrize("story", ["tickets", "crowd"])
def test_a_story_survives_kills_at_random_moments(
    forkers: SimpleQueue[Forker], tmp_path: Path, story: str
) -> None:
    """Killed again and again after random times, until one run comes to its end."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for number in range(100):
        place = tmp_path / str(number)
        place.mkdir()
        for _ in range(chance.randrange(1, 4)):
            play(
                forkers,
                Run(story=story, directory=str(place), kill_after_ms=chance.randrange(5, 250)),
            )
        assert play(forkers, Run(story=story, directory=str(place))) == 0
        (check_tickets if story == "tickets" else check_crowd)(place)


@pytest.mark.slow
def test_thirty_two_parallel_tools_each_have_their_result(
    forkers: SimpleQueue[Forker], tmp_path: Path
) -> None:
    for kill_at in (30, 60, 90, 0):
        run = Run(story="crowd", directory=str(tmp_path), kill_at=kill_at, args={"rounds": 3})
        assert play(forkers, run) in (0, signal.SIGKILL)
    check_crowd(tmp_path)


def arm(tmp_path: Path, forkers: SimpleQueue[Forker], run: Run) -> int:
    """Run a deadly story with its tool armed, as often as it dies."""
    run.path("armed").touch()
    deaths = 0
    while deaths < 20 and (ended := play(forkers, run)):
        assert ended == 256 + 9
        deaths += 1
    run.path("armed").unlink()
    return deaths


@pytest.mark.slow
def test_a_tool_that_kills_its_process_is_ended_at_the_limit(
    forkers: SimpleQueue[Forker], tmp_path: Path
) -> None:
    run = Run(story="deadly", directory=str(tmp_path))
    # The limit is three: the third cut is the last, and the fourth process ends the call.
    assert arm(tmp_path, forkers, run) == 3
    assert run.path("ledger").read_text().split().count("kill") == 3
    with peek(SqliteStorage(run.path("agent.sqlite"))) as stored:
        check_stored(stored)
        kill, sibling = result_entry(stored, "kill"), result_entry(stored, "sibling")
        assert codes(kill) == ["restart_limit"]
        assert "fine" in lines(sibling)[0]
        assert isinstance(ended(tool_task(stored, "kill")).outcome, FailedOutcome)
        assert [record.status for record in all_submissions(stored)] == ["done"]
    assert {"report": "task_interrupted", "reason": "restart_limit"} in facts(tmp_path)


@pytest.mark.slow
def test_a_tool_that_kills_its_process_is_parked_at_the_limit_and_can_be_retried(
    forkers: SimpleQueue[Forker], tmp_path: Path
) -> None:
    run = Run(story="deadly", directory=str(tmp_path), args={"on_restart_limit": "park"})
    assert arm(tmp_path, forkers, run) == 3
    with peek(SqliteStorage(run.path("agent.sqlite"))) as stored:
        task = tool_task(stored, "kill")
        assert task.state.status == "parked"
        assert [record.status for record in all_submissions(stored)] == ["placed"]
    assert {"report": "task_parked", "reason": "restart_limit"} in facts(tmp_path)
    again = Run(
        story="deadly",
        directory=str(tmp_path),
        args={"on_restart_limit": "park", "retry": True},
    )
    assert play(forkers, again) == 0
    with peek(SqliteStorage(run.path("agent.sqlite"))) as stored:
        check_stored(stored)
        assert "survived" in lines(result_entry(stored, "kill"))[0]
    assert {"retried": task.id} in facts(tmp_path)


# --- checks ---


def check_tickets(place: Path) -> None:
    """What the kill -9 story promises, wherever it was cut."""
    ledger = read_lines(place / "ledger")
    assert ledger.count("open_ticket NPE") <= 1
    with peek(SqliteStorage(place / "agent.sqlite")) as stored:
        check_stored(stored)
        check_facts(place, stored)
        (submission,) = all_submissions(stored)
        assert submission.status == "done"
        (search,) = messages(result_entry(stored, "search_logs"))
        assert not search.is_error
        assert text_of(search.content) == "3 matches"
        (ticket,) = messages(result_entry(stored, "open_ticket"))
        if ticket.is_error:
            assert text_of(ticket.content) == interrupted("open_ticket")
        else:
            assert ledger.count("open_ticket NPE") == 1


def check_crowd(place: Path) -> None:
    """Every call of every round has its one result, and no steer is lost or doubled."""
    with peek(SqliteStorage(place / "agent.sqlite")) as stored:
        check_stored(stored)
        check_facts(place, stored)
        told = [line for entry in all_entries(stored) for line in lines(entry)]
        assert sum(line.startswith("result") for line in told) == 3 * 32
        steers = sorted(line for line in told if line.startswith("user steer"))
        assert steers == ["user steer 0", "user steer 1", "user steer 2"]


def check_counter(place: Path) -> None:
    """The count is whole; a tick may be lost to a kill but never comes twice."""
    ticks = read_lines(place / "ledger")
    assert ticks == sorted(set(ticks))
    assert set(ticks) <= {f"tick {n}" for n in range(1, 6)}
    assert len(ticks) >= 4
    with peek(SqliteStorage(place / "agent.sqlite")) as stored:
        check_stored(stored)
        check_facts(place, stored)
        (task,) = all_tasks(stored)
        outcome = ended(task).outcome
        assert isinstance(outcome, CompletedOutcome)
        assert outcome.result == "counted to 5"


def check_stored(stored: Storage) -> None:
    """What holds for every storage at rest."""
    check_whole(all_entries(stored), all_tasks(stored), all_submissions(stored))


def check_facts(place: Path, stored: Storage) -> None:
    """Nothing that a process was told is missing, and no commit number came twice."""
    told = facts(place)
    numbers = [fact["stored"] for fact in told if "stored" in fact]
    assert numbers == list(range(1, len(numbers) + 1)), "a stored commit was lost"
    digests = {str(e.id): fingerprint(encode_record(e)) for e in all_entries(stored)}
    status: dict[str, str] = {}
    for fact in told:
        entries, submissions = fact.get("entries", {}), fact.get("submissions", {})
        assert isinstance(entries, dict)
        assert isinstance(submissions, dict)
        for entry_id, digest in entries.items():
            assert digests[entry_id] == digest
        for submission_id, now in submissions.items():
            before = status.get(submission_id)
            assert before not in ("done", "unanswered"), f"submission {submission_id} settled twice"
            status[submission_id] = now
        if "submitted" in fact:
            assert str(fact["submitted"]) in status
        if "settled" in fact:
            assert status[str(fact["settled"])] == fact["status"]


def facts(place: Path) -> list[dict[str, object]]:
    """What the programs were told, in order."""
    return [json.loads(line) for line in read_lines(place / "facts")]


def read_lines(path: Path) -> list[str]:
    """The lines of a file; none when it is not there."""
    return path.read_text().splitlines() if path.exists() else []


def messages(entry: EntryRecord) -> list[ToolResultMessage]:
    """The tool results of an entry."""
    return [message for message in entry.model or () if isinstance(message, ToolResultMessage)]


def lines(entry: EntryRecord) -> list[str]:
    """An entry in short."""
    return [short(message) for message in entry.model or ()]


def result_entry(stored: Storage, name: str) -> EntryRecord:
    """The entry of the one result of a tool."""
    (found,) = [
        entry
        for entry in all_entries(stored)
        if any(message.tool_name == name for message in messages(entry))
    ]
    return found


def tool_task(stored: Storage, name: str) -> TaskRecord:
    """The task of the one call of a tool."""
    (found,) = [
        task
        for task in all_tasks(stored)
        if isinstance(task.input, dict) and task.input.get("tool_name") == name
    ]
    assert found.kind == "pi.tool"
    assert isinstance(found.state, Terminal) or found.state.status == "parked"
    return found
