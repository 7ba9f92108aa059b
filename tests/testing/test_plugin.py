"""The pytest plugin, as an application author meets it: tests in files of their own."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

HEAD = """
import pytest
import trio
import pidurable_actors as pi

def ask(ctx):
    return pi.Reply("done") if ctx.answers else pi.Reply(tool_calls=[pi.ToolCall("charge")])

async def run(world, charge):
    registry, models = pi.Registry([pi.Extension("shop", tools=[charge])]), pi.Models(
        [pi.ScriptedModel(ask)]
    )
    async with world.open_harness(registry=registry, models=models) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        assert await (await root.submit("go", request_id="r1")).answer() == "done"
"""

DOUBLE = """
@pytest.mark.crash_points()
async def test_a_customer_is_charged_once(crash_world):
    @pi.tool(replay="safe")
    async def charge() -> str:
        "Charge the card."
        crash_world.effect("charge")
        return "charged"

    await run(crash_world, charge)
"""

KEYED = """
@pytest.mark.crash_points(depth=1)
@pytest.mark.parametrize("amount", [1, 2])
async def test_a_customer_is_charged_once(crash_world, amount):
    @pi.tool(replay="safe")
    async def charge(*, api: pi.ToolApi) -> str:
        "Charge the card."
        crash_world.effect("charge", key=api.idempotency_key)
        return "charged"

    await run(crash_world, charge)
    assert crash_world.count("charge") == 1
"""


def play(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    """Run one test file with the plugin."""
    pytester.makepyfile(HEAD + text)
    return pytester.runpytest("-p", "pidurable_actors.testing", *options)


@pytest.mark.slow
def test_an_author_is_shown_the_duplicate_and_how_to_repeat_it(pytester: pytest.Pytester) -> None:
    result = play(pytester, DOUBLE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*killed *charge*", "*repeat it with*--crash-replay=0:*"])
    (line,) = [line for line in result.outlines if "or pytest --crash-replay" in line][:1]
    replay = line.rsplit("=", 1)[1]
    again = play(pytester, DOUBLE, f"--crash-replay={replay}")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines([f"*--crash-replay={replay}"])


@pytest.mark.slow
def test_a_story_that_holds_passes_and_the_summary_says_what_was_tried(
    pytester: pytest.Pytester,
) -> None:
    result = play(pytester, KEYED)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*= crash points =*",
            "* crash points tried with * recoveries in 2 tests; effects seen: charge x*",
        ]
    )
    verbose = play(pytester, KEYED, "-v")
    verbose.stdout.fnmatch_lines(["*[[]1]: * crash points, * recoveries to depth 1, * effects*"])


@pytest.mark.slow
def test_the_command_line_goes_before_what_the_test_says(pytester: pytest.Pytester) -> None:
    deep = play(pytester, KEYED, "-v", "--crash-depth=3", "--crash-budget=40", "--crash-seed=5")
    deep.assert_outcomes(passed=2)
    deep.stdout.fnmatch_lines(["*[[]1]: *recoveries to depth 3*"])


@pytest.mark.slow
def test_explore_as_a_fixture_is_counted_too(pytester: pytest.Pytester) -> None:
    text = """
async def story(world):
    world.effect("one", repeatable=True)

def test_it(crash_explore):
    assert crash_explore(story).recoveries == 2
"""
    result = play(pytester, text)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["* tried with 2 recoveries in 1 test; effects seen: one x*"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def test_it(crash_world): pass", "*mark it with @pytest.mark.crash_points()*"),
        (
            "@pytest.mark.crash_points()\ndef test_it(crash_world): pass",
            "*make it an async test that takes crash_world*",
        ),
        (
            "@pytest.mark.crash_points()\nasync def test_it(): pass",
            "*make it an async test that takes crash_world*",
        ),
        (
            "@pytest.mark.crash_points(2)\nasync def test_it(crash_world): pass",
            "*crash_points takes arguments by name*",
        ),
        (
            """
@pytest.fixture
async def bank(): return {}

@pytest.mark.crash_points()
async def test_it(crash_world, bank): pass
""",
            # An async fixture lives in one run only, and pytest-trio says so.
            "*Trio fixtures can only be used by Trio tests*",
        ),
    ],
)
@pytest.mark.slow
def test_a_wrong_use_is_told(pytester: pytest.Pytester, text: str, said: str) -> None:
    result = play(pytester, text, "-o", "trio_mode=true")
    assert result.ret != 0
    # A wrong use that is found at collection is told on the other stream.
    assert any(fnmatch(line, said) for line in [*result.outlines, *result.errlines]), result


@pytest.mark.slow
def test_virtual_time_is_for_the_tests_that_ask_for_it(pytester: pytest.Pytester) -> None:
    text = """
from trio.testing import MockClock

@pytest.mark.virtual_time
async def test_marked():
    await trio.sleep(86_400)

async def test_plain():
    assert not isinstance(trio.lowlevel.current_clock(), MockClock)
"""
    play(pytester, text, "-o", "trio_mode=true").assert_outcomes(passed=2)
