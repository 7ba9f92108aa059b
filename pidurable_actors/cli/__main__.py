"""Parse, call the verb, and turn whatever happens into an exit code and at most one sentence."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NoReturn, final

from pidurable_actors.cli._commands import add_verbs
from pidurable_actors.cli._exits import CommandError, Exit

__all__ = ["main"]

_PROGRAM: Final = "pidurable"
_DISTRIBUTION: Final = "pidurable-actors"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: what follows the program's name; by default those of this process.

    Returns:
        The exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        # A path may hold what a terminal cannot show.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    if options.run is None:
        options.unfinished.print_help(sys.stderr)
        return Exit.USAGE
    try:
        options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        return _complain(str(error), error.exit)
    except BrokenPipeError:
        # Python flushes again when it ends; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.READER_GONE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}.", Exit.FAILED)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.OK


def _complain(sentence: str, code: Exit) -> int:
    sys.stdout.flush()
    print(f"{_PROGRAM}: {sentence}", file=sys.stderr)
    return code


@final
class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(Exit.USAGE, f"{self.prog}: {message}; see '{self.prog} --help'.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROGRAM,
        description="Durable agents for Trio, at the terminal.",
        epilog=(
            "exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted, 141 nobody reads the "
            "output; errors are one sentence on standard error"
        ),
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {_version()}")
    parser.set_defaults(run=None, unfinished=parser)
    add_verbs(parser)
    return parser


def _version() -> str:
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
