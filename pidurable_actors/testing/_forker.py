"""The processes that fork and die, seen from the one that tests.

Owns the start, the talk with and the end of each forker, and what a story must be to be found by
another process. It never forks: a process with threads must not. The invariant: no forker outlives
its block, and none is waited for without a bound.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from pidurable_actors.errors import DefinitionError
from pidurable_actors.testing._errands import Answer, DiskMaker, Errand, Program, receive, send
from pidurable_actors.testing._world import Story

__all__ = ["Forkers", "program_of"]

_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from pidurable_actors.testing._child import serve; serve()"
)
_MAIN: Final = "__main__"
_MAIN_THERE: Final = "__pidurable_main__"
_GRACE_S: Final = 10.0
_MOST: Final = 8


def program_of(story: Story, disk: DiskMaker) -> Program:
    """What another process needs to find a story and a disk.

    Raises:
        DefinitionError: it could not find them.
    """
    texts = [_pickled("story", story), _pickled("disk", disk)]
    modules: dict[str, str | None] = {}
    renamed: dict[str, str] = {}
    for thing in (story, disk):
        name = _module_of(thing)
        file = getattr(sys.modules.get(name), "__file__", None)
        if name == _MAIN:
            renamed[_MAIN] = name = _main_there(file)
        modules[name] = file
    return Program(modules=tuple(modules.items()), renamed=renamed, story=texts[0], disk=texts[1])


@final
class Forkers:
    """Forkers, while the block runs: one from the start, and as many as there are processors.

    Args:
        program: what they load.
        timeout_s: real seconds that loading may take.
    """

    def __init__(self, program: Program, *, timeout_s: float) -> None:
        self._program = program
        self._most = min(_processors(), _MOST)
        self._timeout_s = timeout_s
        self._stack = ExitStack()
        self._forkers: list[_Forker] = []

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def answers(self, errands: Sequence[Errand]) -> Iterator[Answer]:
        """Have errands done at the same time; the answers come in the order of the errands.

        Raises:
            ChildProcessError: a forker died or does not answer.
            DefinitionError: the story or the disk could not be loaded.
        """
        count = min(self._most, len(errands))
        while len(self._forkers) < count:
            self._start()
        for forker, errand in zip(self._forkers, errands, strict=False):
            forker.ask(errand)
        for at, errand in enumerate(errands):
            forker = self._forkers[at % count]
            answer = forker.answer(errand)
            if at + count < len(errands):
                forker.ask(errands[at + count])
            yield answer

    def _start(self) -> None:
        forker = _Forker(self._program, timeout_s=self._timeout_s)
        self._stack.callback(forker.close)
        self._forkers.append(forker)


@final
class _Forker:
    def __init__(self, program: Program, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loaded = False
        paths = json.dumps([os.fspath(path) for path in sys.path])
        # A session of its own, so that Ctrl-C reaches the tests alone, which then end it.
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", _BOOT, paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._answers = self._process.stdout
        self._send(program)

    def ask(self, errand: Errand) -> None:
        """Begin an errand."""
        self._load()
        self._send(errand)

    def answer(self, errand: Errand) -> Answer:
        """Wait until the errand that was begun is done."""
        lives = len(errand.lives) + errand.deaths_max
        answer = self._receive(lives * (errand.timeout_s + _GRACE_S))
        assert isinstance(answer, Answer)
        return answer

    def close(self) -> None:
        """End it, and the child that it may have."""
        with suppress(BrokenPipeError):
            self._requests.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

    def _load(self) -> None:
        if self._loaded:
            return
        trouble = self._receive(self._timeout_s + _GRACE_S)
        if trouble is not None:
            raise DefinitionError(f"another process could not load the story:\n{trouble}")
        self._loaded = True

    def _send(self, what: object) -> None:
        try:
            send(self._requests.fileno(), what)
        except BrokenPipeError as error:
            raise self._died() from error

    def _receive(self, timeout_s: float) -> object:
        try:
            return receive(self._answers.fileno(), timeout_s=timeout_s)
        except EOFError as error:
            raise self._died() from error
        except TimeoutError as error:
            raise ChildProcessError(
                f"the forking process did not answer within {timeout_s:g} s."
            ) from error

    def _died(self) -> ChildProcessError:
        return ChildProcessError(f"the forking process died (status {self._process.poll()}).")


def _pickled(what: str, thing: object) -> bytes:
    try:
        return pickle.dumps(thing)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DefinitionError(
            f"{what} {getattr(thing, '__qualname__', thing)!r} cannot be found by name in another "
            f"process ({error}); make it a function of its module, not a closure or a lambda. "
            "functools.partial gives it arguments."
        ) from error


def _module_of(thing: object) -> str:
    while isinstance(thing, functools.partial):
        thing = thing.func
    return getattr(thing, "__module__", None) or type(thing).__module__


def _main_there(file: str | None) -> str:
    """How a forker calls the program that is run here."""
    spec = getattr(sys.modules[_MAIN], "__spec__", None)
    if spec is not None and spec.name != _MAIN:
        return str(spec.name)
    if file is None or not Path(file).is_file():
        raise DefinitionError(
            "the story is defined in __main__, which has no file that another process could load; "
            "put it into a module."
        )
    return _MAIN_THERE


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
