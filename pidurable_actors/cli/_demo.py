"""``pidurable demo crash``: two real processes, one real SIGKILL, told to a person as it happens.

Owns the words and the check. Everything that it says was reported by the processes, read from the
file or counted outside of it; `broken_promises` decides at the end whether the story held.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, Final, TypeAlias, final

import attrs
import trio

from pidurable_actors._json import decode_json
from pidurable_actors.cli._exits import CommandError
from pidurable_actors.cli._render import Cell, Screen
from pidurable_actors.cli._story import FILE, TICKETS, Part

__all__ = ["Facts", "broken_promises", "tell_crash_story"]

Event: TypeAlias = Mapping[str, str]

_PATIENCE_S: Final = 60.0
"""Seconds in which a process must end, pauses not counted."""

_PAUSES: Final = 16
"""More pauses than a process and the telling of it make."""

_HEAD: Final = ("id", "kind", "tool", "status", "phase", "replay", "restarts")
_TASKS: Final = """
    SELECT id, kind, json_extract(record, '$.input.tool_name'), status,
           json_extract(record, '$.state.checkpoint.phase'),
           json_extract(record, '$.state.checkpoint.replay'), json_extract(record, '$.restarts')
    FROM tasks ORDER BY id
"""
_STORY: Final = "pidurable_actors.cli._story"
_INTERRUPTED: Final = "Tool open_ticket was interrupted and may have partially run"


@final
@attrs.define(kw_only=True)
class Facts:
    """What became known while the story was told.

    Attributes:
        left: kind, status, phase and replay of each task that had not ended at the kill.
        asked: requests to the model, in both processes.
        searched: runs of ``search_logs``, in both processes.
        opened: runs of ``open_ticket``, in both processes.
        tickets: tickets in the tracker, which is outside of the storage.
        questions: inputs in the transcript.
        result: what the model was told about ``open_ticket``.
        status: how the submission ended.
    """

    left: list[tuple[Cell, ...]] = attrs.field(factory=list)
    asked: int = 0
    searched: int = 0
    opened: int = 0
    tickets: int = 0
    questions: int = 0
    result: str = ""
    status: str = ""


def broken_promises(facts: Facts) -> Iterator[str]:
    """Each promise of this package that the story has shown to be broken, as a sentence."""
    waiting = ("pi.generation", "waiting", "tools", None)
    if facts.left != [waiting, ("pi.tool", "running", "execute", "unsafe")]:
        yield f"the file should hold the intent of open_ticket, but it holds {facts.left}"
    if (facts.asked, facts.questions) != (3, 1):
        yield (
            "one question should have taken 3 requests, but there were "
            f"{facts.questions} and {facts.asked}"
        )
    if (facts.searched, facts.opened) != (1, 1):
        yield (
            f"each tool should have run once, but search_logs ran {_times(facts.searched)} and "
            f"open_ticket {_times(facts.opened)}"
        )
    if facts.tickets != 1:
        yield f"one ticket should have been opened, but there are {facts.tickets}"
    if _INTERRUPTED not in facts.result:
        yield f"the model should have read of an interruption, but it read {facts.result!r}"
    if facts.status != "done":
        yield f"the submission should be done, but it is {facts.status or 'not settled'}"


async def tell_crash_story(screen: Screen, folder: Path, *, pace_s: float) -> None:
    """Tell the story in `folder`.

    Args:
        screen: where to tell it.
        folder: where the file and the tracker are made.
        pace_s: how long a person gets for each step, in seconds.

    Raises:
        CommandError: a process could not play its part, or a promise was broken.

    Durability: leaves the file and the tracker in `folder`.

    Cancellation: kills the process that is running.
    """
    teller = _Teller(screen, folder, pace_s)
    await teller.first_process()
    await teller.file_between()
    await teller.second_process()
    await teller.sums()
    broken = next(broken_promises(teller.facts), None)
    if broken is not None:
        raise CommandError(f"the story did not hold: {broken}.")


@final
class _Teller:
    """The four chapters; what they find out is in `facts`."""

    def __init__(self, screen: Screen, folder: Path, pace_s: float) -> None:
        self._screen = screen
        self._folder = folder
        self._pace_s = pace_s
        self.facts = Facts()

    async def first_process(self) -> None:
        self._screen.heading("Process 1 is asked to investigate, and is killed in the middle.")
        await self._play("die", self._tell_first)
        self._screen.step("killed", "by SIGKILL, kill -9: no clean-up, no last commit", "bad")
        await self._pause(2)

    async def _tell_first(self, event: Event) -> None:
        step = self._screen.step
        match event["event"]:
            case "opened":
                step("started", f"pid {event['pid']}, with a new {FILE}")
            case "asked" if "after" not in event:
                step("stored", "the question, before anything is done about it", "good")
                step("model", "is asked")
            case "asked":
                step("stored", f"the result of {event['after']}: {event['result']}", "good")
                step("model", "is asked again")
            case "searching":
                step("stored", f'its answer: call search_logs("{event["pattern"]}")', "good")
                step("stored", "the intent: these arguments, replay safe", "good")
                step("tool", "search_logs runs; it only reads")
            case "opening":
                step("stored", f'its answer: call open_ticket("{event["title"]}")', "good")
                key = event["key"][:8]
                step("stored", f"the intent: these arguments, replay unsafe, key {key}...", "good")
                step("tool", "open_ticket runs; it acts on the world")
            case "effect":
                step("effect", f"the ticket is opened, in {TICKETS}, outside of the file", "effect")

    async def file_between(self) -> None:
        rows = self._tasks()
        self.facts.left = [(row[1], *row[3:6]) for row in rows if row[3] != "terminal"]
        self._screen.heading(f"What {FILE} holds now, in its view tasks:")
        self._screen.table(_HEAD, rows)
        self._screen.paragraph(
            "It knows that open_ticket was about to run. Whether it did, it cannot know."
        )
        await self._pause(3)

    async def second_process(self) -> None:
        self._screen.heading("Process 2 opens the same file and asks the same question.")
        await self._play("recover", self._tell_second)

    async def _tell_second(self, event: Event) -> None:
        step = self._screen.step
        match event["event"]:
            case "opened":
                step("started", f"pid {event['pid']}")
                step(
                    "kept", f"{event['entries']} entries: what is stored is not done again", "good"
                )
            case "found" if event["kind"] == "pi.generation":
                step("found", f"the run, {event['status']} for its tools: it goes on waiting")
            case "found":
                restarts = event["restarts"]
                step("found", f"open_ticket, cut off: {event['status']} now, restarts {restarts}")
                step("rule", "declared unsafe, so it is not run again; the model is told", "effect")
            case "asked":
                self.facts.result = event.get("result", "")
                step("stored", f"its result, an error: {_sentence(self.facts.result)}", "good")
                step("model", "is asked with this result, as after any other")
            case "settled":
                self.facts.status = event["status"]
                self.facts.questions = int(event["questions"])
                step("stored", f"its answer: {event['answer']}", "good")
                step("done", "the question, found again by its request_id, is answered", "good")
        await self._pause(0.5)

    async def sums(self) -> None:
        facts, step = self.facts, self._screen.step
        facts.tickets = len(await self._tracker())
        self._screen.heading("What was not done twice:")
        step("question", f"placed {_times(facts.questions)}")
        step("model", f"asked {_times(facts.asked)}, once for each of its answers")
        step("search_logs", f"ran {_times(facts.searched)}")
        step("open_ticket", f"ran {_times(facts.opened)}")
        self._screen.heading("What cannot be known from the file:")
        self._screen.paragraph(
            "Whether the ticket exists. The process died after the effect and before its result "
            f"was stored, and the two share no transaction. Only {TICKETS} knows: it has "
            f"{facts.tickets}. A tool can close this gap: with replay='reconcile' it is asked to "
            "look, and with api.idempotency_key a service can tell a repetition."
        )

    def _count(self, event: Event) -> None:
        match event["event"]:
            case "asked":
                self.facts.asked += 1
            case "searching":
                self.facts.searched += 1
            case "opening":
                self.facts.opened += 1

    async def _play(self, part: Part, tell: Callable[[Event], Awaitable[None]]) -> None:
        """Run one process, tell what it says, and see that it ends as it should."""
        name, expected = ("process 1", -signal.SIGKILL) if part == "die" else ("process 2", 0)
        command = [*_interpreter(), "-m", _STORY, str(self._folder), part, str(self._pace_s)]
        with tempfile.TemporaryFile() as errors:
            try:
                with trio.fail_after(_PATIENCE_S + _PAUSES * self._pace_s):
                    async with _running(command, errors) as process:
                        await self._listen(process, tell)
                        ended = await process.wait()
            except trio.TooSlowError:
                raise CommandError(f"{name} did not end within {_PATIENCE_S:g} s.") from None
            if ended != expected:
                errors.seek(0)
                raise CommandError(f"{name} {_ending(ended)}{_last_line(errors)}")

    async def _listen(
        self, process: trio.Process, tell: Callable[[Event], Awaitable[None]]
    ) -> None:
        assert process.stdout is not None
        rest = b""
        async for chunk in process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = _event(line)
                self._count(event)
                await tell(event)

    async def _tracker(self) -> list[str]:
        path = trio.Path(self._folder / TICKETS)
        return (await path.read_text()).splitlines() if await path.exists() else []

    def _tasks(self) -> list[tuple[Cell, ...]]:
        file = self._folder / FILE
        try:
            uri = f"{file.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as database:
                return database.execute(_TASKS).fetchall()
        except sqlite3.Error as error:
            raise CommandError(f"{file} cannot be read: {error}.") from error

    async def _pause(self, steps: float) -> None:
        await trio.sleep(steps * self._pace_s)


def _interpreter() -> list[str]:
    """This interpreter, finding modules as this process does: in the working directory or not."""
    here = sys.path[0] in ("", str(Path.cwd()))
    return [sys.executable] if here else [sys.executable, "-P"]


@asynccontextmanager
async def _running(command: list[str], errors: IO[bytes]) -> AsyncIterator[trio.Process]:
    """A process that does not outlive the block."""
    process = await trio.lowlevel.open_process(command, stdin=DEVNULL, stdout=PIPE, stderr=errors)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            # Bounded: nothing survives this signal.
            with trio.CancelScope(shield=True):
                await process.wait()


def _event(line: bytes) -> Event:
    found = decode_json(line)
    assert isinstance(found, dict), "the story tells objects"
    return {key: str(value) for key, value in found.items()}


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return "ended too early" if code == 0 else f"ended with exit code {code}"


def _last_line(errors: IO[bytes]) -> str:
    """What a process said last, without the name of the error's class."""
    lines = errors.read().decode(errors="replace").splitlines()
    said = [line.strip() for line in lines if any(map(str.isalpha, line))]
    if not said:
        return "."
    name, _, message = said[-1].partition(": ")
    sentence = message if message and name.replace(".", "").isidentifier() else said[-1]
    return f": {sentence.rstrip('.')}."


def _sentence(result: str) -> str:
    """A result as the model reads it, without the tags around it."""
    return result.replace("<harness>", "").replace("</harness>", "").strip()


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
