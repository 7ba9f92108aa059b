"""The program of the processes that die: it forks one for each life, and waits until it is over.

Owns what runs outside of the process that tests: the forker, which has one thread, loads the story
once and then forks for each life, so that a life costs a fork and not the start of an interpreter;
and the child, which lives one life of a world and writes its logbook as it goes. It compares and
checks nothing; see `kills`. The invariants: every life has an end, its own or one that is made; no
child outlives its forker, and no forker its parent.

Parent and forker talk in pickles, one errand and one answer at a time, through pipes of their own;
so whatever a story prints goes to a file of its life.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NoReturn, final

import attrs
import trio

from pidurable_actors import Report
from pidurable_actors._clock import monotonic
from pidurable_actors.errors import MisuseError
from pidurable_actors.testing._disks import Disk
from pidurable_actors.testing._errands import (
    LOG,
    OUTPUT,
    STORAGE,
    Answer,
    DiskMaker,
    End,
    Errand,
    Life,
    Program,
    receive,
    resumed,
    send,
)
from pidurable_actors.testing._explorer import live
from pidurable_actors.testing._logbook import (
    Came,
    LastWords,
    Logbook,
    Raised,
    Storing,
    read_log,
    trim_log,
    unpickled,
)
from pidurable_actors.testing._trace import Crashed, Ended
from pidurable_actors.testing._world import Story, World

__all__ = ["serve"]

_WORDS: Final[Mapping[bytes, End]] = {b"E": "ended", b"R": "raised"}
_DUMP_S: Final = 2.0


@attrs.frozen
class _Turn:
    """One life of an errand, the how-manieth it is."""

    errand: Errand
    number: int
    life: Life


# --- the forker ---


def serve() -> NoReturn:
    """Load a program, then do errands until the parent has no more or is gone."""
    requests, answers = _taken(0, os.O_RDONLY), _taken(1, os.O_WRONLY)
    with suppress(EOFError):
        forker = _loaded(receive(requests), requests, answers)
        while forker is not None:
            send(answers, forker.run(receive(requests)))
    os._exit(0)  # There is nothing to tidy up, and the parent waits for it.


def _loaded(program: Program, requests: int, answers: int) -> _Forker | None:
    try:
        forker = _Forker(program, requests, answers)
    except BaseException:  # noqa: BLE001 - whatever the module raises, the parent is told
        send(answers, traceback.format_exc())
        return None
    send(answers, None)
    return forker


@final
class _Forker:
    def __init__(self, program: Program, requests: int, answers: int) -> None:
        for name, file in program.modules:
            _load(name, file)
        self._story: Story = unpickled(program.story, renamed=program.renamed)
        self._disk: DiskMaker = unpickled(program.disk, renamed=program.renamed)
        self._requests = requests
        self._answers = answers

    def run(self, errand: Errand) -> Answer:
        """Live the lives of an errand, one after the other."""
        began_s, deaths, number = monotonic(), 0, 0
        lives = list(errand.lives)
        end: End = "ended"
        words = ""
        while lives and end not in ("raised", "hung"):
            life = lives.pop(0)
            number += 1
            end, words = self._live(errand, number, life)
            deaths += end == "died"
            if end == "died" and not life.kill_at:
                _note_death(errand, words)
                if not lives and deaths < errand.deaths_max:
                    lives.append(life)
        return Answer(
            end=end, words=words, lives=number, deaths=deaths, seconds=monotonic() - began_s
        )

    def _live(self, errand: Errand, number: int, life: Life) -> tuple[End, str]:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            for pipe in (ours, self._requests, self._answers):
                os.close(pipe)
            _be(_Turn(errand, number, life), self._story, self._disk, theirs)
        os.close(theirs)
        try:
            return self._wait(errand, life, child, ours)
        except BaseException:  # whatever it was, such as a parent that is gone
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        finally:
            os.close(ours)

    def _wait(self, errand: Errand, life: Life, child: int, pipe: int) -> tuple[End, str]:
        after_s = life.kill_after_s
        said, gone = self._listen(pipe, errand.timeout_s if after_s is None else after_s)
        hung = not gone and after_s is None
        if hung:
            os.kill(child, signal.SIGUSR1)  # It then says where it hangs.
            gone = self._listen(pipe, _DUMP_S)[1]
        if not gone:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = said or self._listen(pipe, 0)[0]
        if hung:
            return "hung", "it hung"
        if said in _WORDS:
            return _WORDS[said], f"it {_WORDS[said]}"
        if after_s is not None and not gone:
            return "died", f"after {after_s * 1000:.0f} ms"
        how = f"exit status {status}" if status >= 0 else f"signal {-status}"
        return "died", f"by itself, with {how}"

    def _listen(self, pipe: int, seconds: float) -> tuple[bytes, bool]:
        """What a child says within a time, and whether it is gone."""
        said, until_s = b"", monotonic() + seconds
        while True:
            left_s = max(until_s - monotonic(), 0)
            ready, _, _ = select.select([pipe, self._requests], [], [], left_s)
            if self._requests in ready:
                # Between an errand and its answer a parent sends nothing: it is gone.
                raise EOFError
            if not ready:
                return said, False
            word = os.read(pipe, 1)
            if not word:
                return said, True
            said += word


def _note_death(errand: Errand, words: str) -> None:
    trim_log(errand.place / LOG)
    book = Logbook(errand.place / LOG)
    book.write(Crashed(words))
    book.close()


def _taken(file: int, mode: int) -> int:
    """A standard file under another number; what uses the standard number meets nothing."""
    ours = os.dup(file)
    nothing = os.open(os.devnull, mode)
    os.dup2(nothing, file)
    os.close(nothing)
    return ours


def _load(name: str, file: str | None) -> None:
    """Import a module by its name; by its file where it was not found by name either."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if file is None or error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


# --- the child ---


def _be(turn: _Turn, story: Story, disk: DiskMaker, pipe: int) -> NoReturn:
    """Live one life and end the process, whatever happens."""
    place = turn.errand.place
    said = b"R"
    try:
        output = os.open(place / OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        faulthandler.register(signal.SIGUSR1, file=output, all_threads=True)
        book = Logbook(place / LOG)
        try:
            _live(turn, story, disk(place=place / STORAGE), book)
            said = b"E"
        except BaseException as error:  # noqa: BLE001 - the parent is told, whatever it is
            book.write(Raised(_portable(error), traceback.format_exc()))
        sys.stdout.flush()
    finally:
        os.write(pipe, said)
        os._exit(0)


def _live(turn: _Turn, story: Story, disk: Disk, book: Logbook) -> None:
    errand = turn.errand
    before = read_log(errand.place / LOG, renamed={}).trace
    world = resumed(
        disk,
        errand.place,
        seed=errand.seed,
        life=turn.number,
        trace=before,
        real_time=errand.real_time,
    )
    world.trace.told = book.write
    if turn.life.kill_at:
        world.on_mark = _die_at(turn.life.kill_at, world, book)
    if errand.real_time:
        # At a mark nothing is under way, so only kills that come at any time need to know.
        world.on_storing = lambda batches: book.write(Storing(tuple(batches)))
        trio.run(story, world)
        world.trace.note(Ended(world.life))
    else:
        live(world, story, limit_s=errand.limit_s)
    book.write(Came(tuple(map(_without_error, world.reports)), world.inspection))


def _die_at(mark: int, world: World, book: Logbook) -> Callable[[str], None]:
    left = mark

    def count(where: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            externals = _pickled_externals(world.externals)
            book.write(LastWords(where, externals, world.clock.now_ms()))
            os.kill(os.getpid(), signal.SIGKILL)

    return count


def _pickled_externals(externals: Mapping[str, object]) -> bytes:
    try:
        return pickle.dumps(dict(externals))
    except Exception as error:  # whatever the objects' own code raises
        raise MisuseError(
            f"what is registered by world.external cannot be pickled ({error}), so it cannot be "
            "compared with what another process left; keep plain data in it."
        ) from error


def _without_error(report: Report) -> Report:
    """A report that can be told to another process."""
    whole = report.error is None or _portable(report.error) is not None
    return report if whole else attrs.evolve(report, error=None)


def _portable(error: BaseException) -> bytes | None:
    """An exception, pickled; None when another process could not make it again."""
    try:
        text = pickle.dumps(error)
        pickle.loads(text)  # noqa: S301 - it was made in the line above
    except Exception:  # noqa: BLE001 - whatever the exception's own code raises
        return None
    return text
