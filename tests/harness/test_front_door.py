"""What a newcomer meets first: the text of an answer, and refusals of plausible mistakes."""

from __future__ import annotations

from typing import Any

from pytest import mark, raises

from pidurable_actors import (
    Extension,
    Models,
    Registry,
    Reply,
    ScriptedContext,
    ScriptedModel,
    open_harness,
)
from pidurable_actors.errors import DefinitionError, MisuseError, Unanswered
from pidurable_actors.records import CompletedOutcome, EntryDraft
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import open_agent
from tests._tasks import CountTo, Ticker, opened


def script(ctx: ScriptedContext) -> Reply:
    if ctx.user_text == "fail":
        raise ZeroDivisionError("a bug")
    return Reply(f"{ctx.user_text}, yes")


async def test_the_answer_is_text_and_its_lack_an_error_with_the_reason() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(script)) as agent:
        assert await (await agent.root.submit("go")).answer() == "go, yes"
        failing = await agent.root.submit("fail")
        with raises(Unanswered) as refused:
            await failing.answer()
        assert (refused.value.submission_id, refused.value.reason) == (failing.id, "model_error")
        assert "ZeroDivisionError: a bug" in str(refused.value)


async def test_a_write_has_no_answer_and_says_so() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(script)) as agent:
        written = await agent.root.write(EntryDraft(kind="app.note", data="x"))
        with raises(Unanswered, match="ended without an answer: write"):
            await written.answer()


async def test_a_task_record_has_its_outcome_when_it_has_ended() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        task = await on.start(Ticker, CountTo(2))
        assert (await on.harness.get_task(task)).outcome is None
        ended = await on.harness.wait_for_task(task)
        assert ended.outcome == CompletedOutcome(result="counted to 2")


@mark.parametrize(
    ("arguments", "advice"),
    [
        ({"storage": "agent.sqlite"}, r"use SqliteStorage\('agent.sqlite'\)"),
        ({"models": ScriptedModel(script)}, r"Models\(\[provider, ...\]\), not ScriptedModel"),
        ({"registry": Extension("x")}, r"Registry\(\[extension, ...\]\), not Extension"),
        ({"settings": {"restart_limit": 3}}, r"Settings\(...\) or a plain function .*, not dict"),
        ({"env": lambda target: target.cwd}, "env= takes an async function of an EnvTarget"),
        ({"env": "shell"}, "env= takes an async function of an EnvTarget"),
    ],
)
async def test_an_argument_of_another_kind_is_refused_with_what_to_write(
    arguments: dict[str, Any], advice: str
) -> None:
    with raises(MisuseError, match=advice):
        async with open_harness(**{"storage": MemoryStorage(), **arguments}):
            raise AssertionError("it must not open")


async def test_a_model_reference_is_not_an_agent_choice() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(script)) as agent:
        wrong: Any = "scripted/demo"
        with raises(MisuseError, match="takes AgentChoice"):
            await agent.harness.create_conversation(agent=wrong)


def test_a_lone_extension_or_provider_is_no_list() -> None:
    wrong: Any = Extension("x")
    with raises(DefinitionError, match=r"Registry\(\[extension\]\)"):
        Registry(wrong)
    provider: Any = ScriptedModel(script)
    with raises(DefinitionError, match=r"Models\(\[provider\]\)"):
        Models(provider)
