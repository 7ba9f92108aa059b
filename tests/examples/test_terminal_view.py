"""The terminal view: what it draws of each frame, and that it draws over itself at a terminal."""

from __future__ import annotations

import os
import pty
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from pidurable_actors import (
    AgentChoice,
    ConversationView,
    Extension,
    Models,
    Registry,
    Reply,
    ScriptedContext,
    ScriptedModel,
    Tool,
    open_harness,
)
from pidurable_actors.storage.memory import MemoryStorage

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "terminal_view.py"
NAMES: Final = runpy.run_path(str(EXAMPLE))

draw: Callable[[ConversationView, int, int], list[str]] = NAMES["draw"]
check: Tool = NAMES["check"]


async def drawings(
    reply: Callable[[ScriptedContext], Reply], *, width: int = 80, height: int = 24
) -> list[list[str]]:
    """What each frame of one answer is drawn as."""
    found: list[list[str]] = []
    registry, models = Registry([Extension("hosts", tools=[check])]), Models([ScriptedModel(reply)])
    async with open_harness(MemoryStorage(), registry=registry, models=models) as harness:
        root = await harness.root(agent=AgentChoice(model="scripted/demo"))
        await root.submit("Is all well?")
        async with root.watch() as watch:
            async for frame in watch:
                found.append(draw(frame.view, width, height))
                if frame.view.live.run is None:
                    return found
    raise AssertionError("the run never ended")


async def test_words_and_tool_output_are_drawn_as_they_come() -> None:
    seen = await drawings(NAMES["reply"])
    growing = [line for lines in seen for line in lines if line.endswith("_")]
    assert growing[:2] == ["I lo_", "I look a_"]
    output = [sum(line.startswith("| host") for line in lines) for lines in seen]
    assert {0, 1, 2} <= set(output)
    assert seen[-1] == [
        "> Is all well?",
        "I look at the hosts first.",
        "* check {'hosts': 3}",
        "= 3 hosts answer.",
        "All is well: every host answers.",
        "-- idle; 38 tokens, tool calls: 1",
    ]


async def test_no_drawing_is_larger_than_the_terminal() -> None:
    seen = await drawings(lambda _: Reply("many words " * 40, chunk=9, chunk_delay_s=0.1), width=9)
    assert max(len(line) for lines in seen for line in lines) == 9
    low = await drawings(lambda _: Reply("many words " * 40), width=9, height=5)
    assert max(len(lines) for lines in low) == 5


async def test_nothing_that_is_said_controls_the_terminal() -> None:
    (*_, last) = await drawings(lambda _: Reply("red \033[31malert\a\r\ndone\x9b2J"))
    assert all(line.isprintable() for line in last)
    assert "red  [31malert" in last


@pytest.mark.slow
def test_at_a_terminal_each_frame_is_drawn_over_the_one_before(tmp_path: Path) -> None:
    outer, inner = pty.openpty()
    with subprocess.Popen([sys.executable, str(EXAMPLE)], cwd=tmp_path, stdout=inner) as process:
        os.close(inner)
        drawn = b""
        try:
            while piece := os.read(outer, 4_096):
                drawn += piece
        except OSError:
            pass  # A terminal whose other side is closed ends so.
    os.close(outer)
    assert process.returncode == 0
    assert drawn.count(b"\033[H") > 5
    assert drawn.decode().rstrip().endswith("-- idle; 38 tokens, tool calls: 1\033[K\033[J")
