"""What a conversation runs with: chosen by name, resolved for each decision, kept by what runs."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pidurable_actors import (
    AgentChoice,
    Budget,
    BudgetSettings,
    Extension,
    Models,
    Registry,
    Reply,
    ScriptedModel,
    Selection,
    Settings,
    Tool,
    open_harness,
    tool,
)
from pidurable_actors.agent import AGENT, AgentState, Section, resolve_agent, section
from pidurable_actors.errors import DefinitionError, InvalidValue, MisuseError
from pidurable_actors.models import ModelRequest, ScriptedContext
from pidurable_actors.records import AssistantMessage, SystemMessage, text_of
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import MODEL, Agent, call, calling, codes, echo, open_agent
from tests._strict import are_prefixes, strict_model, strictly


def named(name: str, says: str = "", seconds: float = 0) -> Tool:
    """A tool that says something, its name by default."""

    async def run() -> str:
        await trio.sleep(seconds)
        return says or name

    return Tool(name, run, description="Do it.", replay="safe")


def brings(name: str, *tools: str, says: str = "") -> Extension:
    """An extension with these tools and a section of its own name."""
    return Extension(
        name,
        tools=[named(it, f"{name}: {it}") for it in tools],
        sections=[Section(name, says or f"I am {name}.")],
    )


def three() -> Registry:
    """Three extensions: ``files`` with read and write, ``shell`` with run, ``web`` with get."""
    return Registry(
        [brings("files", "read", "write"), brings("shell", "run"), brings("web", "get")]
    )


def offered(request: ModelRequest) -> list[str]:
    """The names of the tools of a request."""
    return [it.name for it in request.tools]


def told(request: ModelRequest) -> list[str]:
    """What the system says."""
    return [text_of(it.content) for it in request.messages if isinstance(it, SystemMessage)]


# --- selection ---

SELECTIONS: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({}, {}, ["read", "write", "run", "get"]),
    ({}, {"extensions": ["shell", "files"]}, ["read", "write", "run"]),
    ({}, {"extensions": []}, []),
    ({}, {"extensions": Selection(remove=["files"])}, ["run", "get"]),
    ({}, {"extensions": ["nobody", "web"]}, ["get"]),
    ({}, {"tools": ["read", "nothing"]}, ["read"]),
    ({}, {"tools": Selection(remove=["write", "get"])}, ["read", "run"]),
    ({}, {"extensions": ["files"], "tools": ["run", "write"]}, ["write"]),
    ({"extensions": ["web"]}, {}, ["get"]),
    ({"extensions": ["web"]}, {"extensions": Selection(add=["shell"])}, ["run", "get"]),
    ({"extensions": ["web"]}, {"extensions": ["files"]}, ["read", "write"]),
    (
        {"extensions": Selection(remove=["files"])},
        {"extensions": Selection(add=["files"], remove=["web"])},
        ["read", "write", "run"],
    ),
    ({"tools": ["read"]}, {"tools": Selection(add=["run"])}, ["read", "run"]),
    ({"tools": ["read", "run"]}, {"tools": Selection(remove=["read"])}, ["run"]),
]


@pytest.mark.parametrize(("default", "own", "expected"), SELECTIONS)
async def test_a_conversation_runs_with_what_it_chose_over_the_default(
    default: dict[str, Any], own: dict[str, Any], expected: list[str]
) -> None:
    model = ScriptedModel(strictly(echo))
    settings = Settings(agent=AgentChoice(**default))
    async with open_agent(MemoryStorage(), model, registry=three(), settings=settings) as agent:
        await agent.root.configure(**own)
        assert (await agent.ask()).status == "done"
        await agent.root.configure(**dict.fromkeys(own))
        await agent.ask()
    assert offered(model.requests[0]) == expected
    cleared = default or {"tools": ["read", "write", "run", "get"]}
    chosen = cleared.get("extensions"), cleared.get("tools")
    assert resolve_of(*chosen) == set(offered(model.requests[1]))


def resolve_of(extensions: Any, tools: Any) -> set[str]:
    """The tools of a conversation that chose nothing."""
    settings = Settings(agent=AgentChoice(extensions=extensions, tools=tools))
    return set(resolve_agent(three(), settings, AgentState()).tools)


@pytest.mark.parametrize("chosen", [{"tools": ["read"]}, {"extensions": ["shell", "files"]}])
async def test_a_call_to_a_tool_that_was_not_chosen_is_unavailable(chosen: dict[str, Any]) -> None:
    model = strict_model(calling(call("get")), Reply("done"))
    async with open_agent(MemoryStorage(), model, registry=three()) as agent:
        await agent.root.configure(**chosen)
        assert (await agent.ask()).status == "done"
        assert codes(await agent.result_entry("c1")) == ["tool_unavailable"]


async def test_sections_of_an_extension_that_takes_no_part_are_not_told() -> None:
    model = ScriptedModel(strictly(echo))
    async with open_agent(MemoryStorage(), model, registry=three()) as agent:
        await agent.root.configure(extensions=["web"], instructions="Be brief.")
        await agent.ask()
    assert told(model.requests[0]) == [
        "<web>\nI am web.\n</web>\n\n<instructions>\nBe brief.\n</instructions>"
    ]


async def test_a_name_that_is_not_installed_is_skipped_and_takes_effect_when_it_is() -> None:
    storage = MemoryStorage()
    model = ScriptedModel(strictly(echo))
    registry = Registry([brings("files", "read")])
    async with open_agent(storage, model, registry=registry) as agent:
        await agent.root.configure(extensions=["files", "later"], tools=["read", "new"])
        await agent.ask()
        registry.install(brings("later", "new", "other"))
        await agent.ask()
        registry.uninstall("files")
        await agent.ask()
        registry.uninstall("files")
        registry.install(brings("files", "read"))
        await agent.ask()
    assert [offered(it) for it in model.requests] == [
        ["read"],
        ["read", "new"],
        ["new"],
        ["new", "read"],
    ]
    assert are_prefixes(model.requests)


# --- choices and defaults ---


async def test_every_choice_reaches_the_request_and_none_clears_it_to_the_default() -> None:
    model = ScriptedModel(strictly(echo))
    default = AgentChoice(
        model=MODEL, thinking_level="low", max_output_tokens=5, instructions="D.", cwd="/default"
    )
    storage = MemoryStorage()
    async with open_harness(
        storage, models=Models([model]), settings=Settings(agent=default)
    ) as harness:
        root = await harness.root()
        own: dict[str, Any] = {
            "model": "scripted/own",
            "thinking_level": "high",
            "max_output_tokens": 9,
            "instructions": "O.",
            "cwd": "/own",
            "budget": BudgetSettings(run=Budget(turns=5)),
        }
        await root.configure(**own)
        await (await root.submit("one")).wait()
        stored = await root.snapshot(AGENT)
        assert (stored.cwd, stored.model) == ("/own", "scripted/own")
        agent = resolve_agent(Registry(), Settings(agent=default), stored)
        assert agent.budget == own["budget"]
        assert agent.cwd == "/own"
        await root.configure(**dict.fromkeys(own))
        await (await root.submit("two")).wait()
        assert await root.agent() == AgentState()
    first, second = model.requests
    assert (first.model_id, second.model_id) == ("own", "demo")
    assert (first.options.thinking_level, second.options.thinking_level) == ("high", "low")
    assert (first.options.max_output_tokens, second.options.max_output_tokens) == (9, 5)
    assert "O." in told(first)[0]
    assert "D." in told(second)[-1]


async def test_empty_instructions_are_none_whatever_the_default_says() -> None:
    model = ScriptedModel(strictly(echo))
    settings = Settings(agent=AgentChoice(instructions="Default."))
    async with open_agent(MemoryStorage(), model, settings=settings) as agent:
        await agent.root.configure(instructions="")
        await agent.ask()
    assert told(model.requests[0]) == []


async def test_defaults_are_read_anew_for_each_decision() -> None:
    """Settings that a callable gives change in the middle of a run, between its two requests."""
    level: list[Any] = ["low"]

    @tool()
    async def switch() -> str:
        """Change the settings."""
        await trio.lowlevel.checkpoint()
        level[0] = "high"
        return "changed"

    def settings() -> Settings:
        return Settings(agent=AgentChoice(thinking_level=level[0], instructions=level[0]))

    model = strict_model(calling(call("switch")), Reply("done"))
    async with open_agent(MemoryStorage(), model, switch, settings=settings) as agent:
        await agent.ask()
    assert [it.options.thinking_level for it in model.requests] == ["low", "high"]
    assert told(model.requests[1])[1] == ('<instructions status="changed">\nhigh\n</instructions>')
    assert are_prefixes(model.requests)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"thinking_level": "extreme"}, "use one of off, low, medium, high"),
    ({"thinking_level": []}, "use one of"),
    ({"max_output_tokens": 0}, "whole number from 1"),
    ({"max_output_tokens": True}, "whole number from 1"),
    ({"max_output_tokens": 1.5}, "whole number from 1"),
    ({"instructions": 7}, "text"),
    ({"instructions": "\ud800"}, "surrogate"),
    ({"cwd": b"/"}, "text"),
    ({"cwd": "\ud800"}, "surrogate"),
    ({"model": 7}, "text"),
    ({"tools": "read"}, "list of texts"),
    ({"tools": 7}, "list of texts"),
    ({"tools": [7]}, "texts"),
    ({"tools": [""]}, "not empty"),
    ({"tools": ["\ud800"]}, "surrogate"),
    ({"extensions": "files"}, "list of texts"),
    ({"extensions": [None]}, "texts"),
    ({"budget": 7}, r"use BudgetSettings\(\.\.\.\)"),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG)
async def test_a_choice_that_means_nothing_is_refused_and_nothing_stored(
    wrong: dict[str, Any], says: str
) -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(strictly(echo))) as agent:
        with pytest.raises(InvalidValue, match=says):
            await agent.root.configure(**{"instructions": "new", **wrong})
        with pytest.raises(InvalidValue, match=says):
            await agent.harness.create_conversation(agent=AgentChoice(**wrong))
        assert await agent.root.agent() == AgentState(model=MODEL)
        assert len((await agent.harness.conversations()).items) == 1
        assert (await agent.ask()).status == "done"


@pytest.mark.parametrize("wrong", [{"exact": ["a"], "add": ["b"]}, {"add": "b"}, {"remove": [1]}])
def test_a_selection_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Selection(**wrong)


async def test_an_agent_that_is_no_choice_is_refused() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        with pytest.raises(MisuseError, match="AgentChoice"):
            await agent.harness.create_conversation(agent=MODEL)  # type: ignore[arg-type]
        with pytest.raises(MisuseError, match="AgentChoice"):
            await agent.root.fork(agent={"model": MODEL})  # type: ignore[arg-type]


async def test_two_conversations_of_one_harness_run_with_models_and_tools_of_their_own() -> None:
    """Side by side; each model sees its own tools, and each calls the one it was given."""

    def script(ctx: ScriptedContext) -> Reply:
        (only,) = ctx.request.tools
        return Reply(f"{ctx.model_id} done") if ctx.answers else calling(call(only.name))

    one = ScriptedModel(strictly(script), name="one")
    two = ScriptedModel(strictly(script), name="two")
    async with open_harness(
        MemoryStorage(), models=Models([one, two]), registry=three()
    ) as harness:
        choices = [
            AgentChoice(model="one/a", tools=["read"], instructions="I am one."),
            AgentChoice(model="two/b", extensions=["shell"], thinking_level="high"),
        ]
        made = [await harness.create_conversation(agent=it) for it in choices]
        submissions = [await it.submit("go") for it in made]
        assert [await it.answer() for it in submissions] == ["a done", "b done"]
    assert [offered(it) for it in (*one.requests, *two.requests)] == [["read"]] * 2 + [["run"]] * 2
    assert "I am one." in told(one.requests[0])[0]
    assert two.requests[0].options.thinking_level == "high"
    assert one.requests[0].session_id != two.requests[0].session_id


async def test_a_fork_runs_with_what_its_parent_does_or_with_what_it_is_given() -> None:
    model = ScriptedModel(strictly(echo))
    async with open_agent(MemoryStorage(), model, registry=three()) as agent:
        await agent.root.configure(tools=["read"], instructions="Root.")
        await agent.ask()
        same = await agent.root.fork()
        other = await agent.root.fork(agent=AgentChoice(model="scripted/x", tools=["run"]))
        await agent.root.configure(tools=["get"])
        for conversation in (same, other, agent.root):
            assert (await (await conversation.submit("more")).wait()).status == "done"
    assert [offered(it) for it in model.requests] == [["read"], ["read"], ["run"], ["get"]]
    assert told(model.requests[2])[-1] == '<instructions status="removed"/>'


# --- the code that runs ---


async def test_a_call_under_way_keeps_the_code_it_took_and_the_next_one_has_the_new() -> None:
    """The extension is replaced, and then removed, while a call of the old code runs."""

    def ext(says: str) -> Extension:
        return Extension("work", tools=[named("work", says, seconds=10)])

    def script(ctx: ScriptedContext) -> Reply:
        return Reply("done") if ctx.answers == 3 else calling(call("work", f"c{ctx.answers}"))

    registry = Registry([ext("old")])
    model = ScriptedModel(strictly(script))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(5)
        registry.install(ext("new"))
        await trio.sleep(10)
        registry.uninstall("work")
        await submission.wait()
        texts = [text_of(it.content) for it in (await agent.results()).values()]
    assert texts[:2] == ["old", "new"]
    assert "not available" in texts[2]
    assert [offered(it) for it in model.requests] == [["work"], ["work"], [], []]


async def test_a_request_under_way_keeps_the_agent_that_it_was_decided_with() -> None:
    model = ScriptedModel(strictly(lambda ctx: Reply(f"re: {ctx.user_text}", delay_s=10)))
    registry = Registry([brings("files", "read")])
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        submission = await agent.root.submit("one")
        await trio.sleep(5)
        await agent.root.configure(model="scripted/other", instructions="Later.")
        registry.uninstall("files")
        settled = await submission.wait()
        (entry,) = (await agent.root.entries("pi.assistant")).items
        (message,) = entry.model or ()
        assert settled.answer == entry.id
        assert isinstance(message, AssistantMessage)
        assert message.model == MODEL
        await agent.ask("two")
    assert [it.model_id for it in model.requests] == ["demo", "other"]
    assert [offered(it) for it in model.requests] == [["read"], []]


async def test_the_tool_of_a_later_extension_wins_and_the_earlier_one_comes_back() -> None:
    registry = Registry([brings("a", "read"), brings("b", "read")])
    model = ScriptedModel(
        strictly(
            lambda ctx: (
                Reply("done")
                if ctx.tool_results() and ctx.messages[-1].role == "tool_result"
                else calling(call("read", f"c{ctx.answers}"))
            )
        )
    )
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask()
        await agent.root.configure(extensions=["a"])
        await agent.ask()
        await agent.root.configure(extensions=None)
        registry.uninstall("b")
        await agent.ask()
        assert await _said(agent) == ["b: read", "a: read", "a: read"]


async def _said(agent: Agent) -> list[str]:
    return [text_of(it.content) for it in (await agent.results()).values()]


async def test_wrappers_decorate_the_winner_for_those_who_chose_them_only() -> None:
    def louder(made: Tool) -> Tool:
        async def loud(run: Any, _: Any, __: Any) -> object:
            return f"{await run()}!"

        return made.around(loud)

    registry = Registry([brings("a", "read"), brings("b", "read")])
    registry.install(
        Extension(
            "loud",
            wrap_tool=louder,
            wrap_section=lambda it: Section(it.key, f"{it.text}!", order=it.order),
        )
    )
    model = strict_model(calling(call("read")), Reply("done"))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask()
        assert await _said(agent) == ["b: read!"]
        assert "I am a.!" in told(model.requests[0])[0]
        quiet = await agent.harness.create_conversation(
            agent=AgentChoice(model=MODEL, extensions=["a", "b"])
        )
        await (await quiet.submit("go")).wait()
        assert "I am a.!" not in told(model.requests[-1])[0]


def test_a_section_without_a_key_or_with_an_order_that_is_none_is_refused() -> None:
    async def mood(api: object) -> str:
        return ""

    with pytest.raises(DefinitionError, match=r'a section has a key: @section\("mood"\)'):
        section(mood)  # type: ignore[arg-type]
    for order in ("1", True, None):
        with pytest.raises(DefinitionError, match="its order is a whole number"):
            Section("mood", "x", order=order)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrap", [lambda _: None, lambda _: Section("other", "x")])
def test_a_section_wrapper_must_return_a_section_of_the_same_key(wrap: Any) -> None:
    registry = Registry([brings("a"), Extension("b", wrap_section=wrap)])
    with pytest.raises(DefinitionError, match="wrap_section made"):
        registry.select(["a", "b"])
    assert registry.select(["a"]).names == ("a",)


def test_the_last_section_of_a_key_wins_and_wrappers_see_it() -> None:
    seen: list[str] = []

    def wrap(it: Section) -> Section:
        seen.append(it.text)
        return it

    registry = Registry(
        [
            Extension("a", sections=[Section("s", "first")], wrap_section=wrap),
            Extension("b", sections=[Section("s", "second")]),
        ]
    )
    ((owner, found),) = registry.select(["a", "b"]).sections
    assert (owner, found.text) == ("b", "second")
    assert seen == ["second"]


@pytest.mark.parametrize(
    "made",
    [
        lambda: Extension(7),  # type: ignore[arg-type]
        lambda: Extension("x", tools=named("read")),  # type: ignore[arg-type]
        lambda: Extension("x", tools=None),  # type: ignore[arg-type]
        lambda: Extension("x", tasks=[str]),  # type: ignore[list-item]
        lambda: Extension("x", hooks=7),  # type: ignore[arg-type]
        lambda: Extension("x", sections="text"),  # type: ignore[arg-type]
        lambda: Extension("x", wrap_tool=7),  # type: ignore[arg-type]
        lambda: Extension("x", wrap_section="no"),  # type: ignore[arg-type]
        lambda: Registry(["x"]),  # type: ignore[list-item]
        lambda: Registry().install("x"),  # type: ignore[arg-type]
    ],
)
def test_an_extension_that_means_nothing_is_refused_when_it_is_made(made: Any) -> None:
    with pytest.raises(DefinitionError):
        made()
