"""The system prompt in the course of runs: sent once, changed by what changed, complete after a cut.

What is compared is what a strict scripted model was asked with: each request begins with all of the
one before it, except behind a cut.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from pidurable_actors import (
    AgentChoice,
    Extension,
    Registry,
    Reply,
    ScriptedModel,
    Settings,
    Tool,
    ToolResult,
    Tx,
    define_doc,
    tool,
)
from pidurable_actors.agent import HookApi, Section, hook, section
from pidurable_actors.errors import DefinitionError
from pidurable_actors.models import ModelRequest
from pidurable_actors.records import (
    SYSTEM,
    EntryDraft,
    SystemMessage,
    TextBlock,
    UserMessage,
    text_of,
)
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from tests._agents import Agent, call, calling, echo, open_agent
from tests._strict import are_prefixes, strict_model, strictly
from tests.tasks.hooking import reports_of

BAD_TEXT = "\ud800"


@attrs.define
class Mood:
    """What a section says."""

    text: str = "calm"


MOOD = define_doc("app.mood", Mood)


async def be(text: str, tx: Tx) -> None:
    """Change the mood."""
    (await tx.doc(MOOD)).text = text


@section("mood")
async def mood(api: HookApi) -> str | None:
    """The mood of the conversation; nothing when it is empty."""
    found = (await api.snapshot(MOOD)).text
    if found == "broken":
        raise ValueError("no mood")
    if found == "nonsense":
        return 7  # type: ignore[return-value]
    return BAD_TEXT if found == "unstorable" else found or None


def fixed(key: str, text: str, order: int = 0) -> Extension:
    """An extension with a section that always says the same."""
    return Extension(key, sections=[Section(key, text, order=order)])


def tool_named(name: str, description: str = "Do it.") -> Tool:
    """A tool that answers with its name."""

    async def run() -> str:
        await trio.lowlevel.checkpoint()
        return name

    return Tool(name, run, description=description)


def systems(request: ModelRequest) -> list[str]:
    """What the system says in a request."""
    return [text_of(it.content) for it in request.messages if isinstance(it, SystemMessage)]


async def prompts(agent: Agent) -> list[Any]:
    """The data of the system entries, oldest first."""
    return [entry.data for entry in reversed((await agent.root.entries(SYSTEM)).items)]


def echoing() -> ScriptedModel:
    """A strict model that answers what it was asked."""
    return ScriptedModel(strictly(echo))


async def test_what_was_sent_once_is_never_sent_again() -> None:
    """Five turns; the section changes, goes and comes back between them, the rest stays."""
    model = echoing()
    registry = Registry([fixed("rules", "Be kind."), Extension("m", sections=[mood])])
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        for text in ("calm", "calm", "wild", "", "calm"):
            await agent.root.commit(partial(be, text))
            await agent.ask()
        assert [entry["complete"] for entry in await prompts(agent)] == [True, False, False, False]
    first, *_, last = model.requests
    baseline = "<rules>\nBe kind.\n</rules>\n\n<mood>\ncalm\n</mood>"
    assert systems(first) == [baseline]
    assert systems(last) == [
        baseline,
        '<mood status="changed">\nwild\n</mood>',
        '<mood status="removed"/>',
        "<mood>\ncalm\n</mood>",
    ]
    assert are_prefixes(model.requests)


async def test_sections_stand_in_their_order_and_instructions_are_last() -> None:
    model = echoing()
    registry = Registry(
        [fixed("late", "L", 5), fixed("a", "A"), fixed("b", "B"), fixed("early", "E", -1)]
    )
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.root.configure(instructions="Do as I say.")
        await agent.ask()
    (told,) = systems(model.requests[0])
    tags = [line for line in told.splitlines() if line.startswith("<") and "/" not in line]
    assert tags == ["<early>", "<a>", "<b>", "<late>", "<instructions>"]


async def test_instructions_are_changed_and_cleared() -> None:
    model = echoing()
    async with open_agent(MemoryStorage(), model) as agent:
        for instructions in ("One.", "Two.", "Two.", "", None):
            await agent.root.configure(instructions=instructions)
            await agent.ask()
    assert systems(model.requests[-1]) == [
        "<instructions>\nOne.\n</instructions>",
        '<instructions status="changed">\nTwo.\n</instructions>',
        '<instructions status="removed"/>',
    ]
    assert are_prefixes(model.requests)


@pytest.mark.parametrize("wrong", ["broken", "nonsense", "unstorable"])
async def test_a_section_that_fails_keeps_what_was_shown_and_is_reported_once_each_time(
    wrong: str,
) -> None:
    model = echoing()
    registry = Registry([fixed("rules", "Be kind."), Extension("m", sections=[mood])])
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.root.commit(lambda tx: be(wrong, tx))
        await agent.ask()
        assert systems(model.requests[0]) == ["<rules>\nBe kind.\n</rules>"]
        for text in ("calm", wrong, wrong, "calm"):
            await agent.root.commit(partial(be, text))
            await agent.ask()
        assert reports_of(agent) == ["hook_failed section mood"] * 3
        assert "extension 'm'" in agent.reports[0].detail
    assert systems(model.requests[-1])[1:] == ["<mood>\ncalm\n</mood>"]
    assert are_prefixes(model.requests)


async def test_tools_are_declared_changed_and_taken_back() -> None:
    model = echoing()
    registry = Registry([Extension("t", tools=[tool_named("b"), tool_named("a")])])
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask()
        registry.install(Extension("u", tools=[tool_named("c")]))
        await agent.ask()
        registry.install(Extension("t", tools=[tool_named("a", "Do better."), tool_named("b")]))
        await agent.ask()
        registry.uninstall("u")
        await agent.ask()
        await agent.ask()
        told = await prompts(agent)
    assert [list(entry["tools"]) for entry in told] == [["b", "a"], ["c"], ["a"], ["c"]]
    assert told[-1]["tools"] == {"c": None}
    names = [[it.name for it in request.tools] for request in model.requests]
    assert names == [["b", "a"], ["b", "a", "c"], ["b", "a", "c"], ["b", "a"], ["b", "a"]]
    assert model.requests[2].tools[1].description == "Do better."
    assert are_prefixes(model.requests)


async def test_a_model_is_not_told_of_tools_that_it_may_not_call() -> None:
    model = echoing()
    inner = attrs.evolve(tool_named("inner"), callers=["tools"])
    registry = Registry([Extension("t", tools=[inner, tool_named("outer")])])
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask()
    assert [it.name for it in model.requests[0].tools] == ["outer"]


@pytest.mark.parametrize("handoff", [None, "Go on from here."])
async def test_the_prompt_is_complete_again_behind_a_reset(handoff: str | None) -> None:
    model = echoing()
    registry = Registry([fixed("rules", "Be kind."), Extension("m", sections=[mood])])
    registry.install(Extension("t", tools=[tool_named("a")]))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask("one")
        await agent.root.commit(lambda tx: be("wild", tx))
        await agent.ask("two")
        await agent.root.reset(handoff)
        await agent.ask("three")
        await agent.ask("four")
        told = await prompts(agent)
    assert [entry["complete"] for entry in told] == [True, False, True]
    behind = model.requests[2]
    assert systems(behind) == ["<rules>\nBe kind.\n</rules>\n\n<mood>\nwild\n</mood>"]
    assert [it.name for it in behind.tools] == ["a"]
    users = [text_of(it.content) for it in behind.messages if isinstance(it, UserMessage)]
    assert users == [f"{handoff or ''}three"]
    assert are_prefixes(model.requests[2:])


async def test_the_prompt_is_complete_again_behind_a_head_that_keeps_its_last_change() -> None:
    """A head as a compaction sets it: what it keeps has a change, but not what it changed."""
    model = echoing()
    registry = Registry([fixed("rules", "Be kind."), Extension("m", sections=[mood])])
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask("one")
        await agent.root.commit(lambda tx: be("wild", tx))
        two = await agent.ask("two")
        said = UserMessage(content=(TextBlock(text="A summary."),))
        await agent.root.write(EntryDraft(kind="app.summary", model=(said,), head=two.entry))
        await agent.ask("three")
        await agent.ask("four")
    behind = model.requests[2]
    assert systems(behind) == ["<rules>\nBe kind.\n</rules>\n\n<mood>\nwild\n</mood>"]
    assert are_prefixes(model.requests[2:])


async def test_a_section_that_fails_right_behind_a_reset_still_says_what_it_said() -> None:
    model = echoing()
    registry = Registry([fixed("rules", "Be kind."), Extension("m", sections=[mood])])
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask("one")
        await agent.root.reset()
        await agent.root.commit(lambda tx: be("broken", tx))
        await agent.ask("two")
    assert systems(model.requests[1]) == systems(model.requests[0])


async def test_a_fork_is_told_what_its_parent_was_and_then_its_own() -> None:
    model = echoing()
    registry = Registry([Extension("m", sections=[mood])])
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        first = await agent.ask("one")
        await agent.ask("two")
        before = await agent.root.fork(at=first.entry)
        behind = await agent.root.fork(at=first.answer)
        await behind.configure(instructions="Fork.")
        await (await behind.submit("three")).wait()
        await (await before.submit("four")).wait()
        await agent.ask("five")
    fork, other, root = model.requests[2:]
    assert systems(fork) == ["<mood>\ncalm\n</mood>", "<instructions>\nFork.\n</instructions>"]
    assert systems(other) == ["<mood>\ncalm\n</mood>"]
    assert systems(root) == ["<mood>\ncalm\n</mood>"]
    assert are_prefixes([model.requests[0], fork])
    assert are_prefixes([*model.requests[:2], root])


# --- what a request depends on ---


async def test_a_decided_request_is_the_same_after_a_restart_whatever_is_installed_then(
    tmp_path: Path,
) -> None:
    """A close while the model is asked; the next process has other tools, sections and settings.

    The request that was decided is sent as it was decided, and the next one tells what changed.
    """
    first, second = echoing_after(100), echoing_after(0)
    registry = Registry(
        [
            fixed("rules", "Be kind."),
            Extension("t", tools=[tool_named("zoom"), tool_named("add")]),
        ]
    )
    file = tmp_path / "agent.sqlite"
    before = Settings(agent=AgentChoice(thinking_level="high", max_output_tokens=77))
    async with open_agent(SqliteStorage(file), first, registry=registry, settings=before) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(5)
    registry = Registry([fixed("rules", "Be strict."), Extension("t", tools=[tool_named("sub")])])
    after = Settings(agent=AgentChoice(thinking_level="low", instructions="New."))
    async with open_agent(SqliteStorage(file), second, registry=registry, settings=after) as agent:
        await agent.ask("go", request_id="r1")
        await agent.ask("more")
    again, more = second.requests
    assert again == first.requests[0]
    assert [it.name for it in again.tools] == ["zoom", "add"]
    assert [it.name for it in more.tools] == ["sub"]
    assert more.options.thinking_level == "low"
    assert systems(more)[1] == (
        '<rules status="changed">\nBe strict.\n</rules>\n\n<instructions>\nNew.\n</instructions>'
    )


def echoing_after(seconds: float) -> ScriptedModel:
    """A strict model that takes its time."""
    return ScriptedModel(strictly(lambda ctx: Reply(f"re: {ctx.user_text}", delay_s=seconds)))


async def test_what_is_said_while_a_section_is_rendered_is_seen_alike_after_a_restart() -> None:
    """An entry that comes between the look at the transcript and the decision is in the request.

    The section takes its time, and meanwhile another commit appends. Were the entry left out now,
    the same request would have it after a restart.
    """

    @section("slow")
    async def slow(_: HookApi) -> str:
        await trio.sleep(5)
        return "Slow."

    first, second = echoing_after(100), echoing_after(0)
    registry = Registry([Extension("s", sections=[slow])])
    storage = MemoryStorage()
    said = EntryDraft(kind="app.note", model=(UserMessage(content=(TextBlock(text="psst"),)),))
    async with open_agent(storage, first, registry=registry) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        await agent.root.commit(lambda tx: tx.append_entry(agent.root.id, said))
        await trio.sleep(10)
    async with open_agent(storage, second, registry=registry) as agent:
        await agent.ask("go", request_id="r1")
    assert second.requests[0] == first.requests[0]
    assert "psst" in str(first.requests[0].messages)


@pytest.mark.parametrize("count", [1, 40])
async def test_a_head_that_comes_while_a_section_is_rendered_makes_the_request_anew(
    count: int,
) -> None:
    """What was looked at is out of sight then, so it is looked at again, and rendered again."""
    rendered: list[int] = []

    @section("slow")
    async def slow(_: HookApi) -> str:
        rendered.append(1)
        await trio.sleep(5)
        return "Slow."

    model = echoing()
    registry = Registry([Extension("s", sections=[slow])])
    said = UserMessage(content=(TextBlock(text="A summary."),))

    async def cut(tx: Tx) -> None:
        made = tx.append_entry(agent.root.id, EntryDraft(kind="app.cut", model=(said,)))
        tx.append_entry(agent.root.id, EntryDraft(kind="app.head", head=made.id))
        for n in range(count - 1):
            tx.append_entry(agent.root.id, EntryDraft(kind="app.note", data=n))

    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.commit(cut)
        assert (await submission.wait()).status == "done"
    (request,) = model.requests
    assert [it.role for it in request.messages] == ["system", "user"]
    assert text_of(request.messages[1].content) == "A summary."
    assert len(rendered) == 2


async def test_much_that_comes_while_a_section_is_rendered_is_seen_in_its_order() -> None:
    @section("slow")
    async def slow(_: HookApi) -> str:
        await trio.sleep(5)
        return "Slow."

    model = echoing()
    registry = Registry([Extension("s", sections=[slow])])

    def fill(tx: Tx) -> None:
        for n in range(40):
            said = UserMessage(content=(TextBlock(text=f"[{n}]"),))
            tx.append_entry(agent.root.id, EntryDraft(kind="app.note", model=(said,)))

    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.commit(fill)
        await submission.wait()
    assert text_of(model.requests[0].messages[1].content) == "go" + "".join(
        f"[{n}]" for n in range(40)
    )


async def test_a_section_that_writes_each_time_it_is_rendered_holds_up_nobody() -> None:
    said = EntryDraft(kind="app.note", model=(UserMessage(content=(TextBlock(text="x"),)),))

    @section("chatty")
    async def chatty(api: HookApi) -> str:
        await api.commit(lambda tx: tx.append_entry(api.conversation_id, said))
        return "Chatty."

    registry = Registry([Extension("c", sections=[chatty])])
    async with open_agent(MemoryStorage(), echoing(), registry=registry) as agent:
        with trio.fail_after(5):
            assert (await agent.ask()).status == "done"


async def test_a_tool_result_without_text_is_nothing_that_a_provider_refuses() -> None:
    @tool()
    async def quiet() -> ToolResult:
        """Say nothing."""
        await trio.lowlevel.checkpoint()
        return ToolResult("")

    model = strict_model(calling(call("quiet")), Reply("done"))
    async with open_agent(MemoryStorage(), model, quiet) as agent:
        assert (await agent.ask()).status == "done"


async def test_a_before_request_hook_sees_the_prompt_and_the_tools() -> None:
    seen: list[ModelRequest] = []

    async def look(request: ModelRequest, _: HookApi) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(request)

    registry = Registry(
        [
            fixed("rules", "Be kind."),
            Extension("t", tools=[tool_named("a")], hooks=[hook.before_request(look)]),
        ]
    )
    model = echoing()
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask()
    assert seen == list(model.requests)
    assert systems(seen[0]) == ["<rules>\nBe kind.\n</rules>"]
    assert [it.name for it in seen[0].tools] == ["a"]


@pytest.mark.parametrize("how", ["abort", "close", "crash"])
async def test_a_section_that_hangs_holds_up_no_abort_and_no_close(how: str) -> None:
    seconds = [1_000.0]

    @section("slow")
    async def slow(_: HookApi) -> str:
        await trio.sleep(seconds[0])
        return "Slow."

    storage = MemoryStorage()
    registry = Registry([Extension("s", sections=[slow])])
    async with open_agent(storage, echoing(), registry=registry) as agent:
        submission = await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        crashed = storage.snapshot()
        if how == "abort":
            await agent.root.abort()
            assert (await submission.record()).reason == "aborted"
    assert trio.current_time() == 1
    seconds[0] = 0
    model = echoing()
    left = crashed if how == "crash" else storage
    async with open_agent(left, model, registry=registry) as agent:
        ended = await agent.ask("go", request_id="r1")
        assert ended.status == ("unanswered" if how == "abort" else "done")


async def plain(_: HookApi) -> str:
    """A renderer."""
    await trio.lowlevel.checkpoint()
    return "x"


@pytest.mark.parametrize(
    "made",
    [
        lambda: Section("Rules", "x"),
        lambda: Section("", "x"),
        lambda: Section("instructions", "x"),
        lambda: Section("a b", "x"),
        lambda: Section("a"),
        lambda: Section("a", "x", render=plain),
        lambda: Section("a", render=lambda _: "x"),  # type: ignore[arg-type, return-value]
        lambda: Section("a", 7),  # type: ignore[arg-type]
        lambda: Section("a", BAD_TEXT),
        lambda: Extension("e", sections=[plain]),  # type: ignore[list-item]
        lambda: Extension("e", sections=[Section("a", "x"), Section("a", "y")]),
        lambda: Extension("e", hooks=[plain]),  # type: ignore[list-item]
    ],
)
def test_a_section_that_means_nothing_is_refused_when_it_is_made(made: Any) -> None:
    with pytest.raises(DefinitionError):
        made()
