"""``pidurable demo crash``: it tells the truth, holds, and goes away without a trace.

Most tests call the command in this process; what needs a terminal, a signal or a limit runs it in
one of its own. The two processes of the story are real in all of them.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import attrs
import pytest

from pidurable_actors.cli.__main__ import main
from pidurable_actors.cli._demo import Facts, broken_promises
from pidurable_actors.cli._story import FILE, TICKETS, run

COMMAND: Final = [sys.executable, "-m", "pidurable_actors.cli"]
PATIENCE_S: Final = 60

STORY: Final = [
    "Process 1 is asked to investigate, and is killed in the middle.",
    "started     pid PID, with a new agent.sqlite",
    "stored      the question, before anything is done about it",
    "model       is asked",
    'stored      its answer: call search_logs("NullPointerException")',
    "stored      the intent: these arguments, replay safe",
    "tool        search_logs runs; it only reads",
    "stored      the result of search_logs: 3 matches: NullPointerException in",
    "OrderService.java:42",
    "model       is asked again",
    'stored      its answer: call open_ticket("NPE in OrderService")',
    "stored      the intent: these arguments, replay unsafe, key KEY...",
    "tool        open_ticket runs; it acts on the world",
    "effect      the ticket is opened, in tickets.txt, outside of the file",
    "killed      by SIGKILL, kill -9: no clean-up, no last commit",
    "What agent.sqlite holds now, in its view tasks:",
    "id  kind           tool         status    phase    replay  restarts",
    "ID  pi.generation  -            waiting   tools    -       -",
    "ID  pi.tool        search_logs  terminal  -        -       -",
    "ID  pi.tool        open_ticket  running   execute  unsafe  -",
    "It knows that open_ticket was about to run. Whether it did, it cannot know.",
    "Process 2 opens the same file and asks the same question.",
    "started     pid PID",
    "kept        5 entries: what is stored is not done again",
    "found       the run, waiting for its tools: it goes on waiting",
    "found       open_ticket, cut off: pending now, restarts 1",
    "rule        declared unsafe, so it is not run again; the model is told",
    "stored      its result, an error: [error] Tool open_ticket was interrupted and",
    "may have partially run",
    "model       is asked with this result, as after any other",
    "stored      its answer: I found the bug. Whether its ticket was opened is not",
    "known: look before retrying.",
    "done        the question, found again by its request_id, is answered",
    "What was not done twice:",
    "question    placed once",
    "model       asked 3 times, once for each of its answers",
    "search_logs ran once",
    "open_ticket ran once",
    "What cannot be known from the file:",
]

HELD: Final = Facts(
    left=[
        ("pi.generation", "waiting", "tools", None),
        ("pi.tool", "running", "execute", "unsafe"),
    ],
    asked=3,
    searched=1,
    opened=1,
    tickets=1,
    questions=1,
    result="<harness>\n[error] Tool open_ticket was interrupted and may have partially run\n</harness>",
    status="done",
)


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where a command in a process of its own puts what goes away."""
    place = tmp_path / "temporary"
    place.mkdir()
    return place


def environment(temporary: Path, **more: str) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    return {**inherited, "TMPDIR": str(temporary), "COLUMNS": "80", **more}


def normal(told: str) -> list[str]:
    """The lines without indentation, blank lines and what differs from run to run."""
    text = re.sub(r"\bpid \d+", "pid PID", told)
    text = re.sub(r"\bkey [0-9a-f]{8}\b", "key KEY", text)
    text = re.sub(r"^  \d+ +pi", "  ID  pi", text, flags=re.MULTILINE)
    return [line.strip() for line in text.splitlines() if line.strip()]


def pids(told: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"\bpid (\d+)", told)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_the_story_is_told_in_plain_text_and_leaves_nothing_behind(temporary: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "demo", "crash", "--fast"],
        check=False,
        env=environment(temporary),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert normal(done.stdout)[: len(STORY)] == STORY
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert list(temporary.iterdir()) == []
    assert len(pids(done.stdout)) == 2
    assert not any(map(is_alive, pids(done.stdout)))


@pytest.mark.slow
def test_a_narrow_terminal_gets_narrow_lines(temporary: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "demo", "crash", "--fast"],
        check=False,
        env=environment(temporary, COLUMNS="40"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 40
    assert "  tool      open_ticket\n  status    running\n" in done.stdout


def told_on_a_terminal(environment: dict[str, str]) -> str:
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "demo", "crash", "--fast"], stdout=slave, env=environment
    ) as process:
        os.close(slave)
        told = b"".join(chunks(master))
        os.close(master)
    assert process.returncode == 0
    return told.decode()


def chunks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other side is closed
            return
        if not chunk:
            return
        yield chunk


@pytest.mark.slow
def test_a_terminal_gets_colour_unless_it_is_not_wanted(temporary: Path) -> None:
    assert "\x1b[1;31mkilled\x1b[0m" in told_on_a_terminal(
        environment(temporary, TERM="xterm", NO_COLOR="")
    )
    assert "\x1b" not in told_on_a_terminal(environment(temporary, TERM="xterm", NO_COLOR="1"))
    assert "\x1b" not in told_on_a_terminal(environment(temporary, TERM="dumb"))


@pytest.mark.slow
def test_what_is_kept_can_be_looked_at_with_the_commands_it_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "new place" / "with 'quotes'"

    assert main(["demo", "crash", "--fast", "--keep", str(kept)]) == 0

    assert {path.name for path in kept.iterdir()} == {FILE, f"{FILE}.lock", TICKETS}
    told = capsys.readouterr().out
    commands = [shlex.split(line) for line in told.splitlines() if line.startswith("  sqlite3 ")]
    assert len(commands) == 2
    with closing(sqlite3.connect(kept / FILE)) as database:
        entries, tasks = (database.execute(command[2]).fetchall() for command in commands)
    assert [Path(command[1]) for command in commands] == [kept / FILE] * 2
    assert [kind for _, kind, _ in entries if kind == "pi.user"] == ["pi.user"]
    assert [json.loads(record)["state"]["status"] for *_, record in tasks] == ["terminal"] * 3


def test_a_directory_that_holds_something_is_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    assert main(["demo", "crash", "--fast", "--keep", str(tmp_path)]) == 2

    told = capsys.readouterr()
    assert (told.out, told.err) == (
        "",
        f"pidurable: {tmp_path} is not empty; name a new directory.\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_directory_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "below"

    assert main(["demo", "crash", "--fast", "--keep", str(place)]) == 2

    sentence = f"pidurable: nothing can be kept in {place}: not a directory.\n"
    assert capsys.readouterr().err == sentence


@pytest.mark.slow
def test_a_process_that_fails_fails_the_story_in_one_sentence(temporary: Path) -> None:
    # No file may grow past 32 KiB (64 KiB in some shells), so the storage meets a full disk.
    limited = ["sh", "-c", 'ulimit -f 64; exec "$@"', "sh"]
    done = subprocess.run(
        [*limited, *COMMAND, "demo", "crash", "--fast"],
        check=False,
        env=environment(temporary),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("pidurable: process 1 ended with exit code 1: ")
    assert "the disk failed" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_an_interrupt_ends_both_processes_quietly(temporary: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo", "crash"],
        env=environment(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        told = process.stdout.readline() + process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        _, errors = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, errors) == (130, "")
    assert list(temporary.iterdir()) == []
    assert [is_alive(pid) for pid in pids(told)] == [False]


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_quietly(temporary: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo", "crash", "--fast"],
        env=environment(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = process.stdout.readline() + process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

    assert (process.returncode, errors) == (141, "")
    assert list(temporary.iterdir()) == []
    assert [is_alive(pid) for pid in pids(told)] == [False]


@pytest.mark.real_time
async def test_without_the_kill_the_same_program_opens_the_ticket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(tmp_path, "recover", 0.0)

    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in told] == [
        *("opened", "asked", "searching", "asked", "opening", "effect", "asked", "settled")
    ]
    assert told[-1]["answer"] == "I found the bug and opened a ticket."
    assert (tmp_path / TICKETS).read_text() == "TICKET-1 NPE in OrderService\n"


def test_a_story_that_held_breaks_no_promise() -> None:
    assert list(broken_promises(HELD)) == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            attrs.evolve(HELD, left=[]),
            "the file should hold the intent of open_ticket, but it holds []",
        ),
        (
            attrs.evolve(HELD, asked=5),
            "one question should have taken 3 requests, but there were 1 and 5",
        ),
        (
            attrs.evolve(HELD, questions=2),
            "one question should have taken 3 requests, but there were 2 and 3",
        ),
        (
            attrs.evolve(HELD, searched=2),
            "each tool should have run once, but search_logs ran 2 times and open_ticket once",
        ),
        (
            attrs.evolve(HELD, opened=2),
            "each tool should have run once, but search_logs ran once and open_ticket 2 times",
        ),
        (
            attrs.evolve(HELD, tickets=2),
            "one ticket should have been opened, but there are 2",
        ),
        (
            attrs.evolve(HELD, result="Opened TICKET-1"),
            "the model should have read of an interruption, but it read 'Opened TICKET-1'",
        ),
        (
            attrs.evolve(HELD, status=""),
            "the submission should be done, but it is not settled",
        ),
    ],
)
def test_every_broken_promise_is_said(facts: Facts, said: str) -> None:
    assert list(broken_promises(facts)) == [said]
