"""A tool that asks: what is stored of its question, who may answer, and how the call goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import trio
from pytest import mark, raises
from trio.testing import wait_all_tasks_blocked

from pidurable_actors import (
    EXPIRED,
    Answer,
    Ask,
    Expired,
    Question,
    Reply,
    Settings,
    Tool,
    ToolApi,
    WaitForSignal,
    tool,
)
from pidurable_actors._clock import default_clock
from pidurable_actors._json import JSON, fingerprint
from pidurable_actors.agent import QUESTION, HookApi, QuestionSlot, ToolCallEvent, hook
from pidurable_actors.errors import AlreadyAnswered, InvalidValue, StorageRequestError
from pidurable_actors.records import (
    ROOT_ID,
    FaultedOutcome,
    Sleeping,
    TaskId,
    Terminal,
    text_of,
)
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import (
    STORE_FIRST,
    Agent,
    all_tasks,
    call,
    calling,
    codes,
    error_text,
    open_agent,
    peek,
    turns,
)
from tests.tasks.asking import MODEL, Desk, open_question, with_hooks

DAY_S = 86_400.0
LIMIT_S = 10.0
HOW_MANY = Ask("How many?", schema={"type": "integer", "minimum": 1})


async def result_of(agent: Agent) -> str:
    """The text of the one result."""
    (result,) = (await agent.results()).values()
    return text_of(result.content)


async def test_a_tool_that_asks_goes_on_with_the_answer_and_nothing_before_it_runs_again() -> None:
    desk = Desk()
    async with open_agent(MemoryStorage(), turns(*MODEL), desk.order(HOW_MANY)) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        answered = await agent.harness.answer(asked.id, 3, by="ann")
        assert (await submission.wait()).status == "done"
        assert await agent.harness.question(asked.id) == answered
        assert await agent.lines() == [
            "user go",
            "calls order(c1)",
            "result c1 ordered 3",
            "assistant done",
        ]
    assert desk.log == ["order tea", "resume 0 tea 3"]
    assert desk.answers == [Answer(3, "ann", answered.answered_at_ms or 0)]
    assert len(set(desk.keys)) == 1, "the idempotency key is that of the call"


async def test_a_question_is_stored_with_all_that_is_known_of_its_call() -> None:
    asks = attrs.evolve(HOW_MANY, deadline_s=60)
    async with open_agent(MemoryStorage(), turns(*MODEL), Desk().order(asks)) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        (task_id,) = agent.tool_tasks()
        assert asked == Question(
            id=f"{task_id}.1",
            kind="ask",
            conversation_id=ROOT_ID,
            task_id=TaskId(task_id),
            call_id="c1",
            tool_name="order",
            text="How many?",
            schema={"type": "integer", "minimum": 1},
            arguments={"item": "tea"},
            fingerprint=fingerprint({"item": "tea"}),
            asked_at_ms=asked.asked_at_ms,
            deadline_ms=asked.asked_at_ms + 60_000,
        )
        live = await agent.live()
        assert dict(live.questions) == {
            asked.id: QuestionSlot("ask", "How many?", "order", asked.deadline_ms)
        }
        await agent.harness.answer(asked.id, 1, by="ann")
        assert dict((await agent.live()).questions) == {}
        assert (await agent.harness.questions()).items == ()


async def test_a_call_that_waits_has_no_code_running_and_goes_on_days_later() -> None:
    storage, desk = MemoryStorage(), Desk()
    async with open_agent(storage, turns(*MODEL), desk.order(HOW_MANY)) as agent:
        await agent.root.submit("go", request_id="r1")
        asked = await open_question(agent.harness)
        await wait_all_tasks_blocked()
        seen = {view.kind: view for view in agent.harness.inspect().tasks}
        assert (seen["pi.tool"].why, seen["pi.tool"].phase) == ("sleeping", "asked")
        assert seen["pi.generation"].why == "waiting"
        assert agent.harness._core.engine.supervisor.running == {}
    async with open_agent(storage, turns(*MODEL), desk.order(HOW_MANY)) as agent:
        agent.harness.resume()
        before = trio.current_time()
        await trio.sleep(7 * DAY_S)
        assert trio.current_time() == before + 7 * DAY_S
        assert agent.harness._core.engine.supervisor.running == {}
        assert agent.harness._core.engine.supervisor.next_wake_ms() is None
        assert await open_question(agent.harness) == asked
        await agent.harness.answer(asked.id, 2, by="ann")
        assert (await agent.ask("go", request_id="r1")).status == "done"
        assert await result_of(agent) == "ordered 2"
    assert desk.log == ["order tea", "resume 0 tea 2"]


async def test_five_expiries_and_an_answer_that_is_none_are_told_apart() -> None:
    """C50: wait for one signal five times with a limit; then it is sent, with the value None."""
    desk, wait = Desk(), WaitForSignal("done", deadline_s=1)
    made = desk.order(wait, *[wait] * 4, attrs.evolve(wait, deadline_s=None))
    async with open_agent(MemoryStorage(), turns(*MODEL), made) as agent:
        submission = await agent.root.submit("go")
        began = trio.current_time()
        await trio.sleep(60)
        assert desk.answers == [EXPIRED] * 5
        await agent.root.signal("done", None, by="robot")
        assert (await submission.wait()).status == "done"
        assert trio.current_time() - began < 61
    last = desk.answers[5]
    assert isinstance(last, Answer)
    assert (last.value, last.by) == (None, "robot")


async def test_waits_in_a_row_take_about_their_limits_though_the_process_dies_after_each() -> None:
    """C51: three waits; the storage is taken as it is when an expiry is stored, and opened again.

    Right: the expiry is there before anything else, and the next limit counts from then.
    """
    storage, desk = MemoryStorage(), Desk()
    asks = Ask("Anybody?", deadline_s=LIMIT_S)
    made = desk.order(asks, asks, asks, replay="safe")
    began = trio.current_time()
    for _ in range(3):
        async with open_agent(storage, turns(*MODEL), made) as agent:
            await agent.root.submit("go", request_id="r1")
            asked = await open_question(agent.harness)
            async with agent.harness.watch_doc(QUESTION, key=asked.id) as watch:
                async for frame in watch:
                    if frame.view.status != "open":
                        break
            crashed = storage.snapshot()
            ended = await agent.harness.question(asked.id)
            assert (ended.status, ended.value, ended.by) == ("expired", None, None)
            assert ended.answered_at_ms == ended.deadline_ms
        storage = crashed
    async with open_agent(storage, turns(*MODEL), made) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
        assert await result_of(agent) == "ordered EXPIRED"
    assert 3 * LIMIT_S <= trio.current_time() - began < 3 * LIMIT_S + 1
    assert desk.log[0] == "order tea"
    assert "order tea" not in desk.log[1:]


@mark.parametrize("early_s", [0.001, 0.0, -DAY_S])
async def test_the_clock_of_the_commit_decides_between_an_answer_and_the_deadline(
    early_s: float,
) -> None:
    """Answer in a process that has not begun to schedule, so that no expiry is stored yet."""
    storage, desk = MemoryStorage(), Desk()
    made = desk.order(Ask("Now?", deadline_s=LIMIT_S))
    async with open_agent(storage, turns(*MODEL), made) as agent:
        await agent.root.submit("go", request_id="r1")
        asked = await open_question(agent.harness)
    assert asked.deadline_ms == asked.asked_at_ms + 10_000
    await trio.sleep((asked.deadline_ms - default_clock().now_ms()) / 1000 - early_s)
    async with open_agent(storage, turns(*MODEL), made) as agent:
        assert (await agent.harness.question(asked.id)).status == "open"
        if early_s > 0:
            await agent.harness.answer(asked.id, "yes", by="ann")
        else:
            with raises(AlreadyAnswered) as refused:
                await agent.harness.answer(asked.id, "yes", by="ann")
            error = refused.value
            assert (error.outcome, error.by, error.at_ms) == ("expired", None, asked.deadline_ms)
        await agent.ask("go", request_id="r1")
    assert desk.log[1:] == [f"resume 0 tea {'EXPIRED' if early_s <= 0 else repr('yes')}"]


async def test_the_second_answer_is_told_of_the_first_and_changes_nothing() -> None:
    """C54: while the tool runs, when it has its result, and in another process."""
    storage, desk = MemoryStorage(), Desk()
    async with open_agent(storage, turns(*MODEL), desk.order(HOW_MANY)) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        first = await agent.harness.answer(asked.id, 3, by="ann")
        with raises(AlreadyAnswered):
            await agent.harness.answer(asked.id, 3, by="ann")
        await submission.wait()
    async with open_agent(storage, turns(*MODEL), desk.order(HOW_MANY)) as agent:
        with raises(AlreadyAnswered) as refused:
            await agent.harness.answer(asked.id, 4, by="bob")
        error = refused.value
        assert (error.question_id, error.outcome, error.value, error.by, error.at_ms) == (
            asked.id,
            "answered",
            3,
            "ann",
            first.answered_at_ms,
        )
        assert await agent.harness.question(asked.id) == first
    assert desk.log == ["order tea", "resume 0 tea 3"]


@mark.parametrize(
    ("schema", "wrong", "path"),
    [
        ({"type": "integer", "minimum": 1}, 0, "value"),
        ({"type": "integer"}, "3", "value"),
        ({"enum": ["yes", "no"]}, "maybe", "value"),
        (
            {
                "type": "object",
                "properties": {"to": {"type": "array", "items": {"type": "string"}}},
            },
            {"to": ["ann", 7]},
            "value.to[1]",
        ),
        (None, float("nan"), "value"),
        (None, {"a": {1, 2}}, "value.a"),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open(
    schema: Any, wrong: Any, path: str
) -> None:
    desk = Desk()
    made = desk.order(Ask("What?", schema=schema))
    async with open_agent(MemoryStorage(), turns(*MODEL), made) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        with raises(InvalidValue) as refused:
            await agent.harness.answer(asked.id, wrong, by="ann")
        assert refused.value.path == path
        assert await open_question(agent.harness) == asked
    assert desk.log == ["order tea"]


@mark.parametrize("by", ["", None, 7, "\ud800"])
async def test_an_answer_says_who_gave_it(by: Any) -> None:
    async with open_agent(MemoryStorage(), turns(*MODEL), Desk().order(HOW_MANY)) as agent:
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        with raises(InvalidValue) as refused:
            await agent.harness.answer(asked.id, 3, by=by)
        assert refused.value.path == "by"


async def test_output_details_and_diagnostics_from_before_the_question_are_kept() -> None:
    storage = MemoryStorage()

    @tool("order")
    async def order(item: str, *, api: ToolApi) -> Any:
        """Order."""
        await api.output("before\n")
        api.details({"seen": item})
        api.diagnostic("slow", "it was slow")
        return Ask("Sure?")

    @order.resume
    async def go_on(
        answer: Answer | Expired, state: JSON, arguments: Mapping[str, Any], api: ToolApi
    ) -> str:
        await api.output("after\n")
        if isinstance(answer, Answer) and answer.value == "raise":
            raise ZeroDivisionError("a bug")
        return "ordered"

    for answer, text in (
        ("yes", "ordered"),
        ("raise", "before\nafter\n" + error_text("ZeroDivisionError: a bug")),
    ):
        storage = MemoryStorage()
        settings = Settings(progress=STORE_FIRST)
        async with open_agent(storage, turns(*MODEL), order, settings=settings) as agent:
            await agent.root.submit("go", request_id="r1")
            asked = await open_question(agent.harness)
            (slot,) = (await agent.live()).tools.values()
            assert str(slot.output) == "before\n"
        async with open_agent(storage, turns(*MODEL), order, settings=settings) as agent:
            await agent.harness.answer(asked.id, answer, by="ann")
            await agent.ask("go", request_id="r1")
            assert await result_of(agent) == text
            entry = await agent.result_entry("c1")
            assert isinstance(entry.data, dict)
            assert entry.data["details"] == {"seen": "tea"}
            assert codes(entry)[-1] == "slow"


async def test_a_tool_without_a_handler_for_the_answer_is_told_so_and_asks_nobody() -> None:
    @tool("order")
    async def order(item: str) -> Any:
        """Order."""
        await trio.lowlevel.checkpoint()
        return Ask("Sure?")

    async with open_agent(MemoryStorage(), turns(*MODEL), order) as agent:
        assert (await agent.ask()).status == "done"
        assert await result_of(agent) == error_text(
            "TypeError: tool order has no handler for the answer to its question; "
            "add one with @order.resume"
        )
        assert codes(await agent.result_entry("c1")) == ["tool_error"]
        with raises(StorageRequestError):
            await agent.harness.question("9.1")


async def test_a_question_that_cannot_be_asked_is_an_error_of_the_tool() -> None:
    @tool("order")
    async def order(item: str) -> Any:
        """Order."""
        await trio.lowlevel.checkpoint()
        return Ask("")

    async with open_agent(MemoryStorage(), turns(*MODEL), order) as agent:
        await agent.ask()
        assert "question: a question has at least one character" in await result_of(agent)


async def test_a_handler_has_the_time_limit_of_its_tool() -> None:
    desk = Desk()
    made = desk.order(HOW_MANY, hangs=True, timeout_s=5)
    async with open_agent(MemoryStorage(), turns(*MODEL), made) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        await trio.sleep(60)
        began = trio.current_time()
        await agent.harness.answer(asked.id, 3, by="ann")
        await submission.wait()
        assert 5 <= trio.current_time() - began < 5.01
        assert codes(await agent.result_entry("c1")) == ["timeout"]


async def test_an_abort_withdraws_the_question_in_the_commit_that_ends_the_call() -> None:
    desk = Desk()
    async with open_agent(MemoryStorage(), turns(*MODEL), desk.order(HOW_MANY)) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        await agent.root.abort(reason="enough")
        assert (await submission.wait()).reason == "aborted"
        ended = await agent.harness.question(asked.id)
        assert (ended.status, ended.value, ended.by) == ("withdrawn", None, None)
        assert (await agent.harness.questions()).items == ()
        assert dict((await agent.live()).questions) == {}
        with raises(AlreadyAnswered) as refused:
            await agent.harness.answer(asked.id, 3, by="ann")
        assert refused.value.outcome == "withdrawn"
        text = error_text("Tool order was aborted and may have partially run")
        assert await result_of(agent) == f"looking\n{text}"
        log = await agent.harness.commits(limit=1_000)
        both = [
            logged
            for logged in log
            if "withdrawn" in str(logged) and "pi.tool-result" in str(logged)
        ]
        assert len(both) == 1
    assert desk.log == ["order tea"]


@mark.parametrize("kind", ["ask", "signal"])
async def test_an_abort_that_is_under_way_wins_over_an_answer(kind: str) -> None:
    """Answer, and send the signal, while a hook holds the abort up."""
    desk = Desk()
    made = desk.order(HOW_MANY if kind == "ask" else WaitForSignal("paid"))

    @hook.on_abort
    async def slow(event: ToolCallEvent, api: HookApi) -> None:
        await trio.sleep(60)

    registry = with_hooks(slow, tools=(made,))
    async with (
        open_agent(MemoryStorage(), turns(*MODEL), registry=registry) as agent,
        trio.open_nursery() as nursery,
    ):
        await agent.root.submit("go")
        asked = await open_question(agent.harness)
        nursery.start_soon(agent.root.abort)
        await trio.sleep(1)
        if kind == "ask":
            with raises(AlreadyAnswered) as refused:
                await agent.harness.answer(asked.id, 3, by="ann")
            assert (refused.value.outcome, refused.value.at_ms) == ("withdrawn", None)
        else:
            await agent.root.signal("paid", by="bank")
        assert await open_question(agent.harness) == asked, "its end comes with that of the call"
        await agent.root.wait_for_idle()
        assert (await agent.harness.question(asked.id)).status == "withdrawn"
    assert desk.log == ["order tea"]


@mark.parametrize(
    ("damage", "status"),
    [({"paused": 7}, "withdrawn"), ({"question": 7}, "open"), ({"question": "999.1"}, "open")],
)
async def test_a_fault_of_the_task_leaves_a_result_and_withdraws_the_question_that_it_knows(
    damage: dict[str, Any], status: str
) -> None:
    """Damage the checkpoint of the waiting task, so that it faults when it wakes."""
    storage = MemoryStorage()
    async with open_agent(storage, turns(*MODEL), Desk().order(HOW_MANY)) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)

        async def change(tx: Any) -> None:
            record = await tx.task(asked.task_id)
            checkpoint = {**record.state.checkpoint, **damage}
            state = Sleeping(checkpoint=checkpoint, until_ms=tx.now_ms)
            tx.tasks.put(attrs.evolve(record, state=state))

        await agent.harness.commit(change)
        await submission.wait()
        assert (await agent.harness.question(asked.id)).status == status
        assert codes(await agent.result_entry("c1")) == ["tool_error"]
    with peek(storage) as stored:
        (task,) = [task for task in all_tasks(stored) if task.kind == "pi.tool"]
    assert isinstance(task.state, Terminal)
    assert isinstance(task.state.outcome, FaultedOutcome)


async def test_the_restart_limit_withdraws_the_question_of_the_call_that_it_ends() -> None:
    async with open_agent(MemoryStorage(), turns(*MODEL), Desk().order(HOW_MANY)) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)

        async def cut_often(tx: Any) -> None:
            record = await tx.task(asked.task_id)
            state = attrs.evolve(record.state, until_ms=tx.now_ms)
            tx.tasks.put(attrs.evolve(record, state=state, restarts=5))

        await agent.harness.commit(cut_often)
        await submission.wait()
        assert (await agent.harness.question(asked.id)).status == "withdrawn"
        assert (await agent.harness.questions()).items == ()
        assert codes(await agent.result_entry("c1")) == ["restart_limit"]


async def test_a_call_that_a_tool_makes_asks_in_the_same_way() -> None:
    desk = Desk()
    inner = desk.order(HOW_MANY, callers=["tools"])

    @tool("outer")
    async def outer(*, api: ToolApi) -> str:
        """Order something by another tool."""
        return text_of((await api.call("order", {"item": "tea"}, key="tea")).content)

    model = turns(calling(call("outer")), Reply("done"))
    async with open_agent(MemoryStorage(), model, outer, inner) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)
        assert (await agent.harness.get_task(asked.task_id)).kind == "pi.call"
        assert (asked.call_id, asked.tool_name) == ("c1", "order")
        await agent.harness.answer(asked.id, 3, by="ann")
        await submission.wait()
        assert await result_of(agent) == "ordered 3"
    assert desk.log == ["order tea", "resume 0 tea 3"]


@mark.parametrize("then", ["nothing", "a signal"])
async def test_one_that_is_woken_without_an_answer_sleeps_on(then: str) -> None:
    desk = Desk()
    made: Tool = desk.order(attrs.evolve(HOW_MANY, deadline_s=LIMIT_S))
    async with open_agent(MemoryStorage(), turns(*MODEL), made) as agent:
        submission = await agent.root.submit("go")
        asked = await open_question(agent.harness)

        async def wake(tx: Any) -> None:
            record = await tx.task(asked.task_id)
            state = attrs.evolve(record.state, until_ms=tx.now_ms)
            tx.tasks.put(attrs.evolve(record, state=state))

        await agent.harness.commit(wake)
        if then == "a signal":
            await agent.root.signal("other", by="robot")
        await wait_all_tasks_blocked()
        state = (await agent.harness.get_task(asked.task_id)).state
        assert isinstance(state, Sleeping)
        assert state.until_ms == asked.deadline_ms
        await submission.wait()
    assert desk.answers == [EXPIRED]
