"""Retry: a run that ended unanswered goes on from what was stored of it, without its input again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from pidurable_actors import (
    CALLER,
    AgentChoice,
    Extension,
    Reply,
    ScriptedModel,
    Settings,
    ToolApi,
    tool,
)
from pidurable_actors.agent import HookApi, hook
from pidurable_actors.errors import (
    ConversationBusy,
    InvalidValue,
    NothingToRetry,
    ProviderError,
    RequestConflict,
)
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import AssistantMessage
from pidurable_actors.settings import RetrySettings
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import MODEL, Agent, call, calling, echo, open_agent
from tests._strict import strict_model, strictly
from tests.tasks.hooking import hooking

NO_RETRY = Settings(retry=RetrySettings(enabled=False))


class Work:
    """A tool that counts, and notes for whom it works."""

    def __init__(self) -> None:
        self.callers: list[Any] = []
        self.seconds = 0.0

    def tool(self) -> Any:
        """``work``."""

        @tool(replay="safe")
        async def work(*, api: ToolApi) -> str:
            """Work."""
            self.callers.append(api.context.get(CALLER))
            await trio.sleep(self.seconds)
            return "worked"

        return work


class Failing:
    """A strict model that fails as long as it is broken, and else works in one round of calls."""

    def __init__(self) -> None:
        self.broken = True
        self.after = 1  # answers that it still gives

    def __call__(self, ctx: ScriptedContext) -> Reply | ProviderError:
        """One round, and an answer."""
        if self.broken and ctx.answers >= self.after:
            return ProviderError("refused", retryable=False)
        return Reply("done") if ctx.answers else calling(call("work"))


async def test_a_retry_goes_on_after_the_finished_calls_without_the_input_again() -> None:
    """The work is done once, the input is in the transcript once, and its submission settled."""
    script, work = Failing(), Work()
    async with open_agent(MemoryStorage(), ScriptedModel(strictly(script)), work.tool()) as agent:
        first = await agent.ask()
        assert (first.status, first.reason) == ("unanswered", "model_error")
        failed = (await agent.live()).run_failure
        assert failed is not None
        assert (failed.reason, failed.submissions) == ("model_error", [first.id])
        script.broken = False
        again = await agent.root.retry()
        assert (await agent.live()).run_failure is None
        settled = await again.wait()
        assert (settled.type, settled.status) == ("retry", "done")
        assert settled.entry == first.entry
        assert await agent.lines() == [
            "user go",
            "calls work(c1)",
            "result c1 worked",
            "assistant done",
        ]
        assert (await agent.harness.submission(first.id)).id == first.id
        record = await (await agent.harness.submission(first.id)).record()
        assert (record.status, record.reason) == ("unanswered", "model_error")
    assert len(work.callers) == 1


async def test_a_retry_may_fail_and_be_retried_and_works_for_whom_the_first_run_did() -> None:
    script, work = Failing(), Work()
    script.after = 0
    async with open_agent(MemoryStorage(), ScriptedModel(strictly(script)), work.tool()) as agent:
        submission = await agent.root.submit("go", caller={"tenant": "t1"})
        assert (await submission.wait()).reason == "model_error"
        for _ in range(2):
            again = await (await agent.root.retry()).wait()
            assert (again.reason, again.caller) == ("model_error", {"tenant": "t1"})
        script.broken = False
        assert (await (await agent.root.retry()).wait()).status == "done"
        assert [line for line in await agent.lines() if line.startswith("user")] == ["user go"]
    assert work.callers == [{"tenant": "t1"}]


async def test_a_retry_is_found_again_by_its_request_id_also_after_a_restart() -> None:
    script = Failing()
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(strictly(script)), Work().tool()) as agent:
        await agent.ask("go", request_id="r1")
        first = await agent.root.retry(request_id="again")
        await first.wait()
        assert await agent.root.retry(request_id="again") == first
        with pytest.raises(RequestConflict, match="type"):
            await agent.root.retry(request_id="r1")
        with pytest.raises(RequestConflict, match="type"):
            await agent.root.submit("go", request_id="again")
    script.broken = False
    async with open_agent(storage, ScriptedModel(strictly(script)), Work().tool()) as agent:
        found = await agent.root.retry(request_id="again")
        assert found == first
        assert (await found.record()).reason == "model_error"
        second = await agent.root.retry(request_id="once more")
        assert (await second.wait()).status == "done"
        # It was done before there was nothing more to retry.
        assert await agent.root.retry(request_id="once more") == second


@pytest.mark.parametrize("request_id", ["", "x" * 201, "\ud800"])
async def test_a_request_id_that_is_none_is_refused(request_id: str) -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(echo)) as agent:
        with pytest.raises(InvalidValue):
            await agent.root.retry(request_id=request_id)


async def test_there_is_nothing_to_retry_before_a_run_after_an_answer_and_after_a_reset() -> None:
    script = Failing()
    async with open_agent(MemoryStorage(), ScriptedModel(strictly(script)), Work().tool()) as agent:

        async def refused() -> None:
            with pytest.raises(NothingToRetry) as raised:
                await agent.root.retry(request_id="never")
            assert raised.value.conversation_id == agent.root.id

        await refused()
        assert (await agent.ask()).reason == "model_error"
        await agent.root.reset()
        await refused()
        script.broken = False
        assert (await agent.ask()).status == "done"
        await refused()


async def test_a_retry_behind_a_handoff_goes_on_from_that() -> None:
    script = Failing()
    model = ScriptedModel(strictly(script))
    async with open_agent(MemoryStorage(), model, Work().tool()) as agent:
        assert (await agent.ask()).reason == "model_error"
        await agent.root.reset("So far: nothing.")
        script.broken = False
        assert (await (await agent.root.retry()).wait()).status == "done"
    assert "So far: nothing." in str(model.requests[-1].messages)
    assert "'go'" not in str(model.requests[-1].messages)


async def test_a_busy_conversation_is_not_retried() -> None:
    script = Failing()
    work = Work()
    work.seconds = 10
    async with open_agent(MemoryStorage(), ScriptedModel(strictly(script)), work.tool()) as agent:
        assert (await agent.ask()).reason == "model_error"
        script.broken = False
        await agent.root.submit("more")
        with pytest.raises(ConversationBusy):
            await agent.root.retry()


async def test_what_waits_is_not_placed_by_a_retry_but_joins_or_follows_as_ever() -> None:
    """An input that waited when the run failed is answered after the run that was retried."""
    script, work = Failing(), Work()
    work.seconds = 5
    async with open_agent(MemoryStorage(), ScriptedModel(strictly(script)), work.tool()) as agent:
        first = await agent.root.submit("go")
        await trio.sleep(1)
        follow = await agent.root.submit("more")
        assert (await first.wait()).reason == "model_error"
        assert (await follow.record()).status == "queued"
        script.broken = False
        again = await agent.root.retry()
        assert (await again.wait()).status == "done"
        assert (await follow.wait()).status == "done"
        users = [line for line in await agent.lines() if line.startswith("user")]
        assert users == ["user go", "user more"]


async def test_an_input_after_a_failure_takes_the_place_of_a_retry() -> None:
    script = Failing()
    async with open_agent(MemoryStorage(), ScriptedModel(strictly(script)), Work().tool()) as agent:
        assert (await agent.ask("one")).reason == "model_error"
        script.broken = False
        assert (await agent.ask("two")).status == "done"
        with pytest.raises(NothingToRetry):
            await agent.root.retry()


async def test_a_steered_run_is_retried_with_all_that_joined_it() -> None:
    script, work = Failing(), Work()
    work.seconds = 5
    async with open_agent(MemoryStorage(), ScriptedModel(strictly(script)), work.tool()) as agent:
        first = await agent.root.submit("go", caller={"who": "a"})
        await trio.sleep(1)
        steer = await agent.root.submit("left", when_busy="steer", caller={"who": "b"})
        assert [(await it.wait()).reason for it in (first, steer)] == ["model_error"] * 2
        script.broken = False
        again = await (await agent.root.retry()).wait()
        assert (again.status, again.caller) == ("done", {"who": "a"})
        assert again.entry == (await steer.record()).entry


# --- after each kind of failure ---


async def test_a_run_without_a_model_is_retried_once_it_has_one() -> None:
    async with open_agent(MemoryStorage(), ScriptedModel(strictly(echo))) as agent:
        other = await agent.harness.create_conversation()
        assert (await (await other.submit("hello")).wait()).reason == "no_model"
        assert (await (await other.retry()).wait()).reason == "no_model"
        await other.configure(model=MODEL)
        assert await (await other.retry()).answer() == "re: hello"


async def test_an_aborted_run_is_retried_with_the_calls_that_were_aborted() -> None:
    work = Work()
    work.seconds = 10
    model = strict_model(calling(call("work")), Reply("done"))
    async with open_agent(MemoryStorage(), model, work.tool()) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.abort()
        assert (await submission.wait()).reason == "aborted"
        assert (await (await agent.root.retry()).wait()).status == "done"
        assert [line.split()[0] for line in await agent.lines()] == [
            "user",
            "calls",
            "error",
            "assistant",
        ]
    assert len(work.callers) == 1


async def test_a_run_that_was_aborted_in_its_answer_is_retried_without_the_half_of_it() -> None:
    replies = iter([Reply("half whole", chunk=5, chunk_delay_s=10), Reply("whole")])
    model = ScriptedModel(strictly(lambda _: next(replies)))
    async with open_agent(MemoryStorage(), model) as agent:
        await agent.root.submit("go")
        await trio.sleep(15)
        await agent.root.abort()
        assert await (await agent.root.retry()).answer() == "whole"
        assert await agent.lines() == ["user go", "assistant half  (aborted)", "assistant whole"]


async def test_a_run_that_a_crash_interrupted_is_retried() -> None:
    storage = MemoryStorage()
    slow = ScriptedModel(strictly(lambda _: Reply("late", delay_s=100)))
    async with open_agent(storage, slow, settings=NO_RETRY) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        crashed = storage.snapshot()
    model = ScriptedModel(strictly(echo))
    async with open_agent(crashed, model, settings=NO_RETRY) as agent:
        assert (await agent.ask("go", request_id="r1")).reason == "interrupted"
        assert await (await agent.root.retry()).answer() == "re: go"
        assert await agent.lines() == ["user go", "assistant re: go"]


async def test_a_run_at_its_restart_limit_is_retried() -> None:
    """A generation that is cut off while it prepares, more often than it may be."""
    settings = Settings(restart_limit=1, agent=AgentChoice(instructions="x"))

    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    storage = MemoryStorage()
    for _ in range(2):
        registry = hooking(hook.on_yield(hang))
        async with open_agent(
            storage, strict_model(Reply("x")), registry=registry, settings=settings
        ) as agent:
            await agent.root.submit("go", request_id="r1")
            await trio.sleep(1)
            storage = storage.snapshot()
    async with open_agent(storage, ScriptedModel(strictly(echo)), settings=settings) as agent:
        assert (await agent.ask("go", request_id="r1")).reason == "restart_limit"
        await _answered_once(agent)


async def test_a_run_whose_code_failed_is_retried_once_it_is_mended() -> None:
    """A wrapper that makes nonsense ends the run visibly; with another in its place it goes on."""
    registry = hooking()
    registry.install(_wrapping(lambda _: None))
    model = strict_model(calling(call("add", a=1)), Reply("done"))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        assert (await agent.ask()).reason == "faulted"
        registry.install(_wrapping(lambda made: made))
        assert (await (await agent.root.retry()).wait()).status == "done"
        assert (await agent.lines())[2] == "result c1 2"


def _wrapping(wrap: Callable[[Any], Any]) -> Any:
    return Extension("wrapping", wrap_tool=wrap)


async def test_a_run_that_was_stopped_behind_its_answer_has_that_answer() -> None:
    """Aborted while a hook decides whether the answer ends it: a retry asks the model nothing."""
    entered: list[str] = []

    async def hang(message: AssistantMessage, _: HookApi) -> None:
        entered.append(message.role)
        if len(entered) == 1:
            await trio.sleep_forever()

    model = ScriptedModel(strictly(echo))
    registry = hooking(hook.on_yield(hang))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        await agent.root.abort()
        assert (await submission.wait()).reason == "aborted"
        await _answered_once(agent)
    assert len(model.requests) == 1
    assert len(entered) == 2


async def _answered_once(agent: Agent) -> None:
    settled = await (await agent.root.retry()).wait()
    assert settled.status == "done"
    lines = await agent.lines()
    assert len(lines) == 2, lines
    assert settled.answer == (await agent.entries())[-1].id


async def test_a_retry_that_a_crash_cuts_goes_on() -> None:
    script, work = Failing(), Work()
    storage = MemoryStorage()
    model = ScriptedModel(strictly(script))
    async with open_agent(storage, model, work.tool()) as agent:
        await agent.ask("go", request_id="r1")
        await agent.root.retry(request_id="again")
        crashed = storage.snapshot()
    script.broken = False
    async with open_agent(crashed, model, work.tool()) as agent:
        assert (await (await agent.root.retry(request_id="again")).wait()).status == "done"
        assert (await agent.lines())[-1] == "assistant done"
    assert len(work.callers) == 1
