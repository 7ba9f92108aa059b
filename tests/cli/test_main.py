"""Parsing and exit codes: a person who errs is told what and where, in one sentence."""

from __future__ import annotations

from importlib.metadata import entry_points, version
from io import StringIO

import pytest

from pidurable_actors.cli.__main__ import main
from pidurable_actors.cli._render import Screen, table_lines


def test_the_installed_program_is_this_one() -> None:
    (program,) = entry_points(group="console_scripts", name="pidurable")
    assert program.load() is main


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pidurable {version('pidurable-actors')}\n"


@pytest.mark.parametrize("words", [["--help"], ["demo", "--help"], ["demo", "crash", "--help"]])
def test_help_is_no_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: pidurable")


@pytest.mark.parametrize("words", [[], ["demo"]])
def test_an_unfinished_command_shows_what_can_follow(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(" ".join(["usage: pidurable", *words]))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["dmeo"], "dmeo"),
        (["demo", "crsh"], "crsh"),
        (["demo", "crash", "--fsat"], "--fsat"),
        (["demo", "crash", "--keep"], "--keep"),
        (["demo", "crash", "story"], "story"),
    ],
)
def test_a_wrong_word_is_named_in_one_sentence(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert named in told.err
    assert told.err.startswith("pidurable")
    assert told.err.count("\n") == 1


def test_a_table_that_fits_has_columns() -> None:
    assert table_lines(["id", "kind"], [[6, "pi.tool"], [10, None]], width=11) == [
        "id  kind",
        "6   pi.tool",
        "10  -",
    ]


def test_a_table_that_does_not_fit_has_a_line_for_each_field() -> None:
    assert table_lines(["id", "kind"], [[6, "pi.tool"], [10, None]], width=10) == [
        "id    6",
        "kind  pi.tool",
        "",
        "id    10",
        "kind  -",
    ]


def test_a_table_without_rows_is_its_head() -> None:
    assert table_lines(["id", "kind"], [], width=80) == ["id  kind"]
    assert table_lines(["id", "kind"], [], width=5) == ["id  kind"]


def test_a_screen_wraps_steps_below_themselves_and_never_wraps_a_command() -> None:
    stream = StringIO()
    screen = Screen(stream, width=24, colour=False)
    screen.heading("First")
    screen.step("stored", "one two three")
    screen.command("a command that is longer than the screen")
    screen.heading("Second")
    assert stream.getvalue().splitlines() == [
        "First",
        "  stored      one two",
        "              three",
        "  a command that is longer than the screen",
        "",
        "Second",
    ]


def test_colour_is_around_the_label_and_does_not_move_the_text() -> None:
    stream = StringIO()
    Screen(stream, width=40, colour=True).step("killed", "by SIGKILL", "bad")
    assert stream.getvalue() == "  \x1b[1;31mkilled\x1b[0m      by SIGKILL\n"
