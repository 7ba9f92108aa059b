"""Tools, extensions and the registry: refused when they are declared wrongly, replaced by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio

from pidurable_actors import (
    Checkpoint,
    Completed,
    Extension,
    Next,
    Registry,
    TaskActor,
    Tool,
    ToolApi,
    ToolResult,
    phase,
    tool,
)
from pidurable_actors.agent._registry import BUNDLES_KEPT
from pidurable_actors.errors import DefinitionError
from pidurable_actors.records import TextBlock


@tool()
async def look(at: str) -> str:
    """Look at something."""
    await trio.lowlevel.checkpoint()
    return at


@attrs.frozen
class Step(Checkpoint, phase="step"):
    """The only step."""


class Job(TaskActor[None, None], kind="app.job"):
    """A task."""

    def start(self) -> Step:
        """Begin."""
        return Step()

    @phase(Step)
    async def step(self, _: Step) -> Next[None]:
        """End."""
        await trio.lowlevel.checkpoint()
        return Completed(None)


class NewerJob(Job, TaskActor[None, None], kind="app.job", version=2):
    """The same kind, newer."""


class OwnJob(Job, TaskActor[None, None], kind="pi.job"):
    """A kind that belongs to the package."""


async def execute(at: str) -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return at


async def undocumented(at: str) -> str:
    await trio.lowlevel.checkpoint()
    return at


def test_a_tool_is_named_like_its_function_unless_it_is_given_a_name() -> None:
    assert look.name == "look"
    assert look.spec.description == "Look at something."
    assert tool("look-at", description="Look.")(execute).spec.description == "Look."
    assert Tool("look_2", execute).name == "look_2"


@pytest.mark.parametrize("name", ["", "two words", "1st", "a/b", "x" * 201, "-x"])
def test_a_name_that_no_provider_takes_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="name"):
        Tool(name, execute)


async def _redact(text: str, call: object) -> str:
    return text


@pytest.mark.parametrize(
    "options",
    [
        {"replay": "sometimes"},
        {"timeout_s": 0},
        {"timeout_s": -1},
        {"reserve": 5},
        {"redact": "secret"},
        {"redact": _redact},
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        Tool("look", execute, **options)


def test_an_execution_mode_that_is_none_is_refused() -> None:
    with pytest.raises(DefinitionError, match="mode"):
        Tool("look", execute, mode="both")  # type: ignore[arg-type]


def test_a_tool_without_a_description_is_refused() -> None:
    with pytest.raises(DefinitionError, match="docstring"):
        tool()(undocumented)
    assert tool(description="Look.")(undocumented).description == "Look."


def test_a_tool_says_whether_it_wants_the_api() -> None:
    @tool()
    async def with_api(*, api: ToolApi) -> str:
        """Use the api."""
        await trio.lowlevel.checkpoint()
        return api.call_id

    assert with_api.wants_api
    assert not look.wants_api
    assert with_api.spec.parameters["properties"] == {}


def test_reconcile_needs_its_handler() -> None:
    with pytest.raises(DefinitionError, match="reconcile"):
        Extension("x", tools=[Tool("look", execute, replay="reconcile")])

    async def find(_: Mapping[str, Any], __: ToolApi) -> object:
        await trio.lowlevel.checkpoint()
        return None

    with_handler = Tool("look", execute, replay="reconcile", reconcile=find)
    assert Extension("x", tools=[with_handler]).tools == (with_handler,)
    decorated = Tool("look", execute, replay="reconcile")
    assert decorated.reconcile(find) is find
    Extension("x", tools=[decorated])


def test_an_extension_is_refused_for_what_would_be_ambiguous() -> None:
    with pytest.raises(DefinitionError, match="name"):
        Extension("")
    with pytest.raises(DefinitionError, match="'look' comes 2 times"):
        Extension("x", tools=[look, Tool("look", execute)])
    with pytest.raises(DefinitionError, match=r"'app\.job' comes 2 times"):
        Extension("x", tasks=[Job, NewerJob])
    with pytest.raises(DefinitionError, match=r"pi\."):
        Extension("x", tasks=[OwnJob])
    with pytest.raises(DefinitionError, match=r"@tool\(\)"):
        Extension("x", tools=[execute])  # type: ignore[list-item]


def test_the_last_extension_that_has_a_name_wins() -> None:
    other = Tool("look", execute)
    registry = Registry([Extension("a", tools=[look], tasks=[Job])])
    assert registry.tools() == {"look": look}
    assert registry.task("app.job") is Job
    registry.install(Extension("b", tools=[other], tasks=[NewerJob]))
    assert registry.tools() == {"look": other}
    assert registry.task("app.job") is NewerJob
    registry.uninstall("b")
    assert registry.tools() == {"look": look}
    assert registry.task("app.job") is Job
    assert registry.task("app.other") is None


def test_a_registry_is_made_of_a_list() -> None:
    with pytest.raises(DefinitionError, match="list"):
        Registry(Extension("a"))  # type: ignore[arg-type]


def test_installing_a_name_again_replaces_it_in_its_place() -> None:
    registry = Registry([Extension("a", tools=[look]), Extension("b")])
    registry.install(Extension("a"))
    assert [extension.name for extension in registry.extensions] == ["a", "b"]
    assert registry.tools() == {}


def test_a_registry_keeps_no_more_selections_than_its_bound() -> None:
    names = [f"e{n}" for n in range(10)]
    registry = Registry([Extension(name) for name in names])
    for chosen in range(2 ** len(names)):
        wanted = [name for at, name in enumerate(names) if chosen >> at & 1]
        assert registry.select(wanted).names == tuple(wanted)
        assert len(registry._bundles) <= BUNDLES_KEPT


def test_listeners_hear_of_every_change_until_they_stop() -> None:
    registry = Registry()
    heard: list[int] = []
    stop = registry.listen(lambda: heard.append(1))
    registry.install(Extension("a"))
    registry.uninstall("a")
    registry.uninstall("a")
    assert len(heard) == 2
    stop()
    registry.install(Extension("a"))
    assert len(heard) == 2


def test_a_result_takes_text_for_one_block() -> None:
    assert ToolResult("x").content == (TextBlock(text="x"),)
    assert ToolResult((TextBlock(text="a"), TextBlock(text="b"))).details is None


def renaming(tool_made: Tool) -> Tool:
    """A wrapper that does what none may."""
    return Tool("other", execute)


def test_wrappers_decorate_the_tool_that_won_in_the_order_of_the_extensions() -> None:
    seen: list[tuple[str, str]] = []

    def noting(name: str) -> Extension:
        def wrap(made: Tool) -> Tool:
            seen.append((name, made.description))
            return attrs.evolve(made, description=f"{made.description} {name}")

        return Extension(name, wrap_tool=wrap)

    winner = Tool("look", execute, description="Won.")
    registry = Registry([noting("a"), Extension("b", tools=[look]), noting("c")])
    registry.install(Extension("d", tools=[winner]))
    assert registry.tools()["look"].description == "Won. a c"
    assert seen == [("a", "Won."), ("c", "Won. a")]
    registry.tools()
    assert len(seen) == 2, "wrapped once for each change"
    registry.uninstall("c")
    assert registry.tools()["look"].description == "Won. a"


@pytest.mark.parametrize("wrap", [renaming, lambda _: None])
def test_a_wrapper_must_return_the_tool_that_it_was_given(wrap: Any) -> None:
    registry = Registry([Extension("a", tools=[look]), Extension("b", wrap_tool=wrap)])
    with pytest.raises(DefinitionError, match="wrap_tool made"):
        registry.tools()
