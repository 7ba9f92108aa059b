"""The verbs: what each takes and what it does. A verb returns when it has done it, or raises."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from pidurable_actors.cli._demo import tell_crash_story
from pidurable_actors.cli._exits import CommandError, Exit
from pidurable_actors.cli._render import Screen
from pidurable_actors.cli._story import FILE

__all__ = ["add_verbs", "demo_crash"]

_PACE_S: Final = 0.6
"""What a person gets for one step, in seconds."""

_LOOKS: Final = ("SELECT id, kind, record FROM entries", "SELECT id, kind, record FROM tasks")


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """Declare every verb; parsing leaves the function to call as ``run``."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    demo = verbs.add_parser("demo", help="stories that show what this package does; no key needed")
    demo.set_defaults(unfinished=demo)
    stories = demo.add_subparsers(title="stories", metavar="STORY")
    crash = stories.add_parser(
        "crash",
        help="a conversation is killed inside a tool call and finished by another process",
        description=(
            "Two processes, one real SIGKILL: what is stored when, what the file holds after the "
            "kill, what the next process does with each piece by which rule, and what nobody can "
            "know. Takes about ten seconds and leaves nothing behind."
        ),
        epilog="exit codes: 0 the story held, 1 it did not, 2 wrong use",
    )
    crash.add_argument("--fast", action="store_true", help="tell it without pauses")
    crash.add_argument(
        "--keep", metavar="DIR", help="keep the file in DIR, a new or an empty directory"
    )
    crash.set_defaults(run=demo_crash)


def demo_crash(options: argparse.Namespace) -> None:
    """``pidurable demo crash``.

    Raises:
        CommandError: the story did not hold, or `options.keep` cannot be used.
    """
    keep: str | None = options.keep
    screen = Screen.of(sys.stdout, os.environ)
    with _folder(keep) as folder:
        pace_s = 0.0 if options.fast else _PACE_S
        trio.run(partial(tell_crash_story, screen, folder, pace_s=pace_s))

    screen.heading("Read on:")
    screen.step("kill9.py", "in examples/ of the source is this story as a program", "bold")
    screen.step("tracker.py", "beside it shows what each way to declare a tool does", "bold")
    if keep is None:
        screen.step("--keep DIR", "keeps the file, so that you can look into it", "bold")
    else:
        screen.paragraph("The file is kept. Look into it:")
        for look in _LOOKS:
            screen.command(f'sqlite3 {shlex.quote(str(Path(keep) / FILE))} "{look}"')


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """A place for the files: the directory to keep, or one that goes away."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="pidurable-") as folder:
            yield Path(folder)
        return
    kept = Path(keep)
    try:
        kept.mkdir(parents=True, exist_ok=True)
        if any(kept.iterdir()):
            raise CommandError(f"{keep} is not empty; name a new directory.", Exit.USAGE)
        # Says at once, and not in the middle of the story, that nothing can be written there.
        with tempfile.TemporaryFile(dir=kept):
            pass
    except OSError as error:
        reason = (error.strerror or "it cannot be written").lower()
        raise CommandError(f"nothing can be kept in {keep}: {reason}.", Exit.USAGE) from error
    yield kept
