"""What the README shows is true: its code runs, its commands exist, and CI runs the same ones.

A ``python`` block with the comment ``<!-- run -->`` on the line before it is a whole program and is
run; any other is a fragment and must compile. Each command of a ``sh`` block must name a program,
a module, a file or a verb that exists.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from pidurable_actors.actors import TRANSITIONS
from tests.project.checkout import NAME, ROOT, listed

README: Final = ROOT / "README.md"
CI: Final = ROOT / ".ci" / "run"
GATES: Final = frozenset(
    {"python -m pytest", "ruff format --check .", "ruff check .", "mypy", "pyright"}
)
GATE_PROGRAMS: Final = ("python -m pytest", "ruff", "mypy", "pyright")
RUN_TAG: Final = "<!-- run -->"
SHELL: Final = frozenset({"sh", "bash", "shell", "console"})
PROGRAM: Final = "pidurable"
# What a reader has before installing anything of ours.
PRESENT: Final = frozenset({"cd", "curl", "export", "git", "kill", "pip", "source", "uv"})


@attrs.frozen(kw_only=True)
class Block:
    """One fenced block: its first line, its language, and whether it is tagged to be run."""

    line: int
    language: str
    text: str
    run: bool


def test_python_blocks_compile() -> None:
    offenders = [
        f"README.md:{block.line}: {reason}"
        for block in _blocks(README.read_text(encoding="utf-8"))
        if block.language == "python" and (reason := _syntax_error(block.text))
    ]
    assert not offenders, listed(offenders)


def test_tagged_blocks_run(tmp_path: Path) -> None:
    for block in _blocks(README.read_text(encoding="utf-8")):
        if block.run:
            assert block.language == "python", f"README.md:{block.line}: only Python is run"
            place = tmp_path / str(block.line)
            place.mkdir()
            failure = _failure(block.text, place)
            assert not failure, f"README.md:{block.line}: {failure}"


def test_commands_name_what_exists() -> None:
    offenders = [
        f"README.md:{line}: {reason}"
        for line, command in _commands(README.read_text(encoding="utf-8"))
        if (reason := _missing(shlex.split(command, comments=True)))
    ]
    assert not offenders, listed(offenders)


def test_links_to_files_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", README.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert not missing, listed(missing)


def test_the_picture_of_a_tasks_life_is_that_of_the_table() -> None:
    moves = [
        f"    {before} --> {after}: {why}"
        for before, following in TRANSITIONS.items()
        for after, why in following.items()
        if before != after
    ]
    text = README.read_text(encoding="utf-8")
    (picture,) = [block for block in _blocks(text) if block.language == "mermaid"]
    assert picture.text.splitlines() == ["stateDiagram-v2", *moves]


def test_ci_runs_the_gates_of_the_readme_and_no_others() -> None:
    ci = set(re.findall(r"^gate (.+)$", CI.read_text(encoding="utf-8"), re.MULTILINE))
    assert ci == GATES
    # A README without commands is a stub; one that has some shows all gates.
    commands = {command for _, command in _commands(README.read_text(encoding="utf-8"))}
    shown = {command for command in commands if command.startswith(GATE_PROGRAMS)}
    assert not shown or shown >= GATES


def test_ci_can_be_started_and_names_no_host() -> None:
    assert os.access(CI, os.X_OK)
    assert "://" not in CI.read_text(encoding="utf-8")


SAMPLE: Final = f"""
```python
await harness.root()
```
{RUN_TAG}
```python
print("a")
```
1. Then:
   ```sh
   $ {PROGRAM} serve \\
       agent.sqlite  # comment

   python -m pytest
   ```

```console
$ ruff check .
All checks passed!
```
"""


def test_blocks_are_found_with_language_tag_and_indentation() -> None:
    fragment, program, shell, _ = _blocks(SAMPLE)
    assert (fragment.language, fragment.line, fragment.run) == ("python", 3, False)
    assert (program.language, program.text, program.run) == ("python", 'print("a")\n', True)
    assert (shell.language, shell.run) == ("sh", False)


def test_commands_are_found_with_prompts_and_continued_lines() -> None:
    commands = [command.split() for _, command in _commands(SAMPLE)]
    assert commands == [
        [PROGRAM, "serve", "agent.sqlite", "#", "comment"],
        ["python", "-m", "pytest"],
        ["ruff", "check", "."],
    ]


def test_a_fragment_may_await_and_a_broken_one_is_named() -> None:
    assert _syntax_error("async with open() as h:\n    await h.root()\n") is None
    assert _syntax_error("def f(:\n") is not None


def test_a_program_that_fails_shows_why(tmp_path: Path) -> None:
    assert _failure("print('fine')", tmp_path) is None
    assert "boom" in (_failure("raise SystemExit('boom')", tmp_path) or "")


def test_commands_that_do_not_exist_are_named() -> None:
    assert _missing(["python", "-m", "pytest"]) is None
    assert _missing(["MODE=fast", "ruff", "check", "."]) is None
    assert _missing(["python", "-m", "no_such_package.module"]) is not None
    assert _missing(["python", "examples/no_such_file.py"]) is not None
    assert _missing(["no-such-program"]) is not None


def _blocks(markdown: str) -> Iterator[Block]:
    lines = markdown.splitlines()
    fence: re.Match[str] | None = None
    start = 0
    for number, line in enumerate(lines):
        if fence is None:
            fence = re.match(r"(?P<indent> *)(?P<ticks>```+)(?P<language>\w*)", line)
            start = number + 1
        elif line.strip() == fence["ticks"]:
            indent = len(fence["indent"])
            before = lines[start - 2].strip() if start > 1 else ""
            yield Block(
                line=start + 1,
                language=fence["language"],
                text="".join(f"{inner[indent:]}\n" for inner in lines[start:number]),
                run=before == RUN_TAG,
            )
            fence = None
    assert fence is None, f"the block at line {start} never ends"


def _commands(markdown: str) -> Iterator[tuple[int, str]]:
    """Every command of the shell blocks with the line of its block."""
    for block in _blocks(markdown):
        if block.language in SHELL:
            for line in block.text.replace("\\\n", " ").splitlines():
                command = line.strip().removeprefix("$ ")
                is_output = block.language == "console" and not line.strip().startswith("$ ")
                if command and not command.startswith("#") and not is_output:
                    for part in command.split(" && "):
                        # What the README's own environment holds, by the name of the program.
                        yield block.line, part.removeprefix(".venv/bin/")


def _syntax_error(code: str) -> str | None:
    try:
        compile(code, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        return str(error)
    return None


def _failure(code: str, place: Path) -> str | None:
    """What a program wrote when it did not end with 0, run in a directory of its own."""
    program = place / "program.py"
    program.write_text(code, encoding="utf-8")
    command = [sys.executable, "-I", str(program)]
    done = subprocess.run(
        command, check=False, cwd=place, capture_output=True, text=True, timeout=120
    )
    return None if done.returncode == 0 else f"exit {done.returncode}\n{done.stderr}"


def _missing(words: list[str]) -> str | None:
    """What a command names that is not there, or None."""
    match words:
        case [setting, *command] if re.match(r"[A-Z_]+=", setting):
            return _missing(command)
        case ["python" | "python3", "-m", module, *_]:
            return None if _has_module(module) else f"no module {module}"
        case ["python" | "python3", script, *_] if not script.startswith("-"):
            return None if (ROOT / script).is_file() else f"no file {script}"
        case [program, verb, *_] if program == PROGRAM and not verb.startswith("-"):
            return _missing_verb(verb)
        case [program, *_]:
            return None if _has_program(program) else f"no program {program}"
    return "an empty command"


def _missing_verb(verb: str) -> str | None:
    command = [sys.executable, "-m", f"{NAME}.cli", verb, "--help"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, timeout=60)
    return None if done.returncode == 0 else f"{PROGRAM} knows no verb {verb}"


def _has_module(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that it would be in is not there either.
        return False


def _has_program(program: str) -> bool:
    if "/" in program:
        return os.access(ROOT / program, os.X_OK)
    beside = Path(sys.executable).parent
    return program in PRESENT or shutil.which(program, path=str(beside)) is not None
