"""Hooks of a run: when each is asked, what it may say, and what becomes of one that fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio

from pidurable_actors import (
    MISSING,
    Completed,
    Extension,
    Registry,
    Reply,
    ScriptedModel,
    Settings,
    Text,
    Tx,
    define_doc,
)
from pidurable_actors.agent import Hook, HookApi, HookPoint, ToolCallEvent, hook
from pidurable_actors.errors import DefinitionError, InvocationEnded
from pidurable_actors.models import ModelRequest, ScriptedContext
from pidurable_actors.records import (
    AssistantMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    text_of,
)
from pidurable_actors.storage.memory import MemoryStorage
from tests._agents import MODEL, call, calling, echo, open_agent, turns
from tests._strict import strict_model, strictly
from tests.tasks.hooking import (
    ADDING,
    BAD_TEXT,
    Noted,
    always,
    hooking,
    reports_of,
    run_hooks,
)


@attrs.define
class Diary:
    """What hooks wrote down."""

    text: Text = attrs.field(factory=Text)


DIARY = define_doc("app.diary", Diary)

RUN_POINTS: tuple[HookPoint, ...] = ("before_request", "after_response", "on_yield", "after_tools")
POINTS: tuple[HookPoint, ...] = (*RUN_POINTS, "before_tool", "after_tool")


async def test_each_point_is_asked_at_its_time_and_in_the_order_of_the_extensions() -> None:
    noted = Noted()
    first, second = ([noted.at(point, f"{point} {n}") for point in POINTS] for n in (1, 2))
    ran = await run_hooks(MemoryStorage(), first, second, calls=[call("add", a=1)])
    assert ran.lines == ["user go", "calls add(c1)", "result c1 2", "assistant done"]
    order = ["before_request", "after_response", "before_tool", "after_tool", "after_tools"]
    order += ["before_request", "after_response", "on_yield"]
    assert noted.names == [f"{point} {n}" for point in order for n in (1, 2)]
    assert not ran.reports


async def test_a_hook_sees_what_the_one_before_it_made() -> None:
    def adding(text: str) -> Hook:
        async def more(message: AssistantMessage, _: HookApi) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            said = TextBlock(text=text_of(message.content) + text)
            return attrs.evolve(message, content=(said,))

        return hook.after_response(more)

    ran = await run_hooks(MemoryStorage(), adding(" one"), adding(" two"), says="zero")
    assert ran.lines == ["user go", "assistant zero one two"]


async def test_another_request_is_sent_and_not_stored() -> None:
    async def whisper(request: ModelRequest, _: HookApi) -> ModelRequest:
        await trio.lowlevel.checkpoint()
        said = UserMessage(content=(TextBlock(text="secret"),))
        return attrs.evolve(request, messages=(said,))

    model = ScriptedModel(strictly(echo))
    registry = hooking(hook.before_request(whisper))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        await agent.ask("hello")
        assert await agent.lines() == ["user hello", "assistant re: secret"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("wrong", [ValueError("broken"), 7, b"bytes", ["list"]])
async def test_a_hook_that_raises_or_returns_nonsense_is_reported_and_skipped(
    point: Any, wrong: Any
) -> None:
    """Every point but ``before_tool``, where it blocks; the hook after it is asked all the same."""
    noted = Noted()
    hooks = noted.at(point, "bad", wrong), noted.at(point, "good")
    storage = MemoryStorage()
    model = strict_model(*ADDING)
    async with open_agent(storage, model, registry=hooking(*hooks)) as agent:
        assert (await agent.ask()).status == "done"
        lines = await agent.lines()
        failed = [report for report in agent.reports if report.kind == "hook_failed"]
        assert len(failed) == len(agent.reports) == noted.names.count("bad")
        assert {report.reason for report in failed} == {point}
        assert all("extension 'e1'" in report.detail for report in failed)
        assert all(report.conversation_id == agent.root.id for report in failed)
        assert {type(report.error) for report in failed} <= {type(wrong), TypeError}
    if point == "before_tool":
        assert "was blocked: a check of extension 'e1' failed" in lines[2]
        assert noted.names == ["bad"]
    else:
        assert lines[2:] == ["result c1 3", "assistant done"]
        assert noted.names.count("good") == noted.names.count("bad") > 0


UNSTORABLE: list[tuple[Any, Any]] = [
    ("on_yield", BAD_TEXT),
    ("after_response", AssistantMessage(content=(TextBlock(text=BAD_TEXT),))),
    ("after_response", AssistantMessage(content=("no block",))),  # type: ignore[arg-type]
    (
        "after_response",
        AssistantMessage(content=(ToolCallBlock(id="x", name="add", arguments={"a": {1}}),)),  # type: ignore[dict-item]
    ),
]


@pytest.mark.parametrize(("point", "answer"), UNSTORABLE)
async def test_an_answer_of_a_hook_that_cannot_be_stored_is_reported_and_skipped(
    point: Any, answer: Any
) -> None:
    ran = await run_hooks(MemoryStorage(), Noted().at(point, "bad", answer))
    assert (ran.status, ran.reason) == ("done", None)
    assert ran.lines == ["user go", "assistant done"]
    assert ran.reports == [f"hook_failed {point}"]


async def test_a_hook_that_returns_another_kind_is_told_what_to_return() -> None:
    registry = hooking(Noted().at("before_tool", "bad", 7))
    async with open_agent(MemoryStorage(), strict_model(*ADDING), registry=registry) as agent:
        await agent.ask()
        (report,) = agent.reports
        assert "it returned int; return Block or Rewrite or Approve or None" in report.detail


async def test_an_answer_of_a_hook_with_a_call_id_twice_is_reported_and_skipped() -> None:
    twice = tuple(ToolCallBlock(id="c9", name="add", arguments={"a": n}) for n in (1, 2))
    once = [True]

    async def doubling(_: AssistantMessage, __: HookApi) -> AssistantMessage | None:
        await trio.lowlevel.checkpoint()
        return AssistantMessage(content=twice, stop_reason="tool_use") if once.pop() else None

    ran = await run_hooks(MemoryStorage(), hook.after_response(doubling))
    assert ran.lines == ["user go", "assistant done"]
    assert ran.reports == ["hook_failed after_response"]


async def test_an_answer_of_a_hook_may_call_tools_that_the_model_did_not() -> None:
    asked = iter([True])

    async def calls(_: AssistantMessage, __: HookApi) -> AssistantMessage | None:
        await trio.lowlevel.checkpoint()
        made = ToolCallBlock(id="c1", name="add", arguments={"a": 3})
        if next(asked, False):
            return AssistantMessage(content=(made,), stop_reason="tool_use")
        return None

    ran = await run_hooks(MemoryStorage(), hook.after_response(calls))
    assert ran.lines == ["user go", "calls add(c1)", "result c1 4", "assistant done"]


async def test_an_answer_of_a_hook_keeps_who_was_asked_and_what_that_used() -> None:
    other = AssistantMessage(content=(TextBlock(text="other"),))
    registry = hooking(Noted().at("after_response", "it", other))
    reply = Reply("x", usage=Usage(input_tokens=7, output_tokens=5))
    async with open_agent(MemoryStorage(), strict_model(reply), registry=registry) as agent:
        await agent.ask()
        (message,) = (await agent.entries())[-1].model or ()
        assert isinstance(message, AssistantMessage)
        assert (message.model, message.usage.input_tokens) == (MODEL, 7)
        usage = await agent.root.usage()
        assert {name: it.output_tokens for name, it in usage.models.items()} == {MODEL: 5}


async def test_after_tools_gets_the_results_in_call_order() -> None:
    got: list[list[str]] = []

    async def note(results: Sequence[ToolResultMessage], _: HookApi) -> None:
        await trio.lowlevel.checkpoint()
        got.append([f"{result.call_id} {text_of(result.content)}" for result in results])

    async def later(event: ToolCallEvent, _: HookApi) -> None:
        await trio.sleep(3 - int(event.call_id[1]))

    calls = [call("add", f"c{n}", a=n) for n in (1, 2, 3)]
    hooks = hook.after_tools(note), hook.before_tool(later)
    ran = await run_hooks(MemoryStorage(), *hooks, calls=calls)
    assert [line[:9] for line in ran.lines[2:5]] == ["result c3", "result c2", "result c1"]
    assert got == [["c1 2", "c2 3", "c3 4"]]


async def test_after_tools_gets_the_results_of_its_round_when_ids_come_again() -> None:
    got: list[list[str]] = []

    async def note(results: Sequence[ToolResultMessage], _: HookApi) -> None:
        await trio.lowlevel.checkpoint()
        got.append([text_of(result.content) for result in results])

    model = strict_model(
        calling(call("add", a=1)), calling(call("add", a=5), call("add", "c2", a=7)), Reply("done")
    )
    async with open_agent(
        MemoryStorage(), model, registry=hooking(hook.after_tools(note))
    ) as agent:
        await agent.ask()
    assert got == [["2"], ["6", "8"]]


# --- on_yield ---


def pressing(times: int, text: str = "go on") -> Hook:
    """A hook that continues a run until the model has answered so often."""

    async def more(message: AssistantMessage, _: HookApi) -> str | None:
        await trio.lowlevel.checkpoint()
        return text if int(text_of(message.content)) < times else None

    return hook.on_yield(more)


def counting(ctx: ScriptedContext) -> Reply:
    """Answers with the number of the answer."""
    return Reply(str(ctx.answers + 1))


async def test_on_yield_goes_on_with_the_run_and_the_last_answer_is_its() -> None:
    model = ScriptedModel(strictly(counting))
    async with open_agent(MemoryStorage(), model, registry=hooking(pressing(3))) as agent:
        submission = await agent.root.submit("go")
        assert await submission.answer() == "3"
        expected = ["user go", "assistant 1", "user go on", "assistant 2", "user go on"]
        assert await agent.lines() == [*expected, "assistant 3"]
        assert [task.kind for task in agent.harness.inspect().tasks] == []


async def test_the_first_hook_that_wants_to_go_on_decides() -> None:
    noted = Noted()
    first, second = pressing(2, "the first"), pressing(2, "the second")
    model = ScriptedModel(strictly(counting))
    silent = noted.at("on_yield", "silent", "")
    async with open_agent(MemoryStorage(), model, registry=hooking(silent, first, second)) as agent:
        await agent.ask()
        assert await agent.lines() == ["user go", "assistant 1", "user the first", "assistant 2"]
    assert noted.names == ["silent", "silent"]


async def test_what_waits_joins_a_run_that_a_hook_continues() -> None:
    async def wait(message: AssistantMessage, _: HookApi) -> str | None:
        await trio.sleep(5)
        return "go on" if text_of(message.content) == "1" else None

    model = ScriptedModel(strictly(counting))
    async with open_agent(MemoryStorage(), model, registry=hooking(hook.on_yield(wait))) as agent:
        first = await agent.root.submit("go")
        await trio.sleep(1)
        steer = await agent.root.submit("left", when_busy="steer")
        follow = await agent.root.submit("later")
        records = [await it.wait() for it in (first, steer, follow)]
        assert records[0].answer == records[1].answer != records[2].answer
        assert await agent.lines() == [
            "user go",
            "assistant 1",
            "user go on",
            "user left",
            "assistant 2",
            "user later",
            "assistant 3",
        ]


async def test_a_crash_between_the_answer_and_the_hook_asks_the_hook_again() -> None:
    asked: list[str] = []

    async def slow(message: AssistantMessage, _: HookApi) -> str | None:
        asked.append(text_of(message.content))
        await trio.sleep(10)
        return "go on" if text_of(message.content) == "1" else None

    model = ScriptedModel(strictly(counting))
    storage = MemoryStorage()
    registry = hooking(hook.on_yield(slow))
    async with open_agent(storage, model, registry=registry) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(5)
        crashed = storage.snapshot()
    async with open_agent(crashed, model, registry=registry) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
        assert await agent.lines() == ["user go", "assistant 1", "user go on", "assistant 2"]
        assert len(model.requests) == 2
    assert asked == ["1", "1", "2"]


# --- what a hook may use ---


async def test_memos_belong_to_one_extension_and_the_first_writer_decides() -> None:
    """Names with slashes included: no two of extension and name ever come to the same memo."""
    found: list[object] = []

    def noting(name: str, value: str) -> Hook:
        async def note(_: AssistantMessage, api: HookApi) -> None:
            found.append(await api.memo(name))
            found.append(await api.set_memo(name, value))
            found.append(await api.set_memo(name, "late"))
            found.append(await api.memo(name))

        return hook.on_yield(note)

    registry = Registry(
        [
            Extension("a", hooks=[noting("b/c", "one")]),
            Extension("a/b", hooks=[noting("c", "two")]),
            Extension("a/b/c", hooks=[noting("", "three")]),
        ]
    )
    async with open_agent(MemoryStorage(), turns(Reply("x")), registry=registry) as agent:
        await agent.ask()
        assert not agent.reports
    assert found == [x for it in ("one", "two", "three") for x in (MISSING, it, it, it)]


async def test_a_hook_commits_and_reads_what_it_committed() -> None:
    async def write(_: AssistantMessage, api: HookApi) -> None:
        async def change(tx: Tx) -> str:
            (await tx.doc(DIARY)).text.append(f"task {api.task_id}")
            return "stored"

        assert await api.commit(change) == "stored"
        assert await api.commit(lambda _: 7) == 7
        assert str((await api.snapshot(DIARY)).text) == f"task {api.task_id}"
        assert (await api.conversation()).id == api.conversation_id
        assert api.settings == Settings()
        assert api.now_ms() > 0
        assert api.context.reason is None

    ran = await run_hooks(MemoryStorage(), hook.on_yield(write))
    assert (ran.status, ran.reports) == ("done", [])


@pytest.mark.parametrize("point", RUN_POINTS)
async def test_a_commit_of_a_hook_decides_nothing_of_the_task_that_asks(point: Any) -> None:
    """What a hook's callback returns is the hook's, also when it looks like a next step."""
    got: list[object] = []

    async def returns(*about: Any) -> None:
        got.append(await about[-1].commit(lambda _: Completed(7)))

    model = strict_model(*ADDING)
    registry = hooking(Hook(point, returns))
    async with open_agent(MemoryStorage(), model, registry=registry) as agent:
        assert (await agent.ask()).status == "done"
        assert reports_of(agent) == []
    assert set(got) == {Completed(7)}


async def test_hooks_of_an_extension_that_does_not_take_part_are_not_asked() -> None:
    noted = Noted()
    hooks = [[noted.at(point, name) for point in POINTS] for name in ("one", "two")]
    model = strict_model(*ADDING)
    async with open_agent(MemoryStorage(), model, registry=hooking(*hooks)) as agent:
        await agent.root.configure(extensions=["tools", "e2"])
        await agent.ask()
    assert set(noted.names) == {"two"}


async def test_a_hook_that_joins_while_a_run_goes_on_is_asked_at_the_next_decision() -> None:
    noted = Noted()
    registry = hooking()
    late = Extension("late", hooks=[noted.at("before_request", "late")])

    async def join(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        registry.install(late)

    registry.install(Extension("early", hooks=[hook.after_tools(join)]))
    async with open_agent(MemoryStorage(), strict_model(*ADDING), registry=registry) as agent:
        await agent.ask()
    assert noted.names == ["late"]


# --- cut off ---


def hanging(entered: list[str]) -> Any:
    """A hook that never ends by itself."""

    async def hang(*_: object) -> None:
        entered.append("in")
        try:
            await trio.sleep_forever()
        finally:
            entered.append("out")

    return hang


@pytest.mark.parametrize("point", [point for point in POINTS if point != "after_tool"])
async def test_an_abort_during_a_hook_ends_the_run_at_once(point: Any) -> None:
    entered: list[str] = []
    model = strict_model(*ADDING)
    storage = MemoryStorage()
    registry = hooking(Hook(point, hanging(entered)))
    async with open_agent(storage, model, registry=registry) as agent:
        submission = await agent.root.submit("go")
        await trio.sleep(1)
        assert entered == ["in"]
        await agent.root.abort(reason="enough")
        settled = await submission.record()
        assert (settled.status, settled.reason) == ("unanswered", "aborted")
        assert entered == ["in", "out"]
        assert trio.current_time() == 1
        assert reports_of(agent) == []
        live = await agent.live()
        assert (live.run, live.generation, live.tools) == (None, None, {})


@pytest.mark.parametrize("point", [point for point in POINTS if point != "after_tool"])
@pytest.mark.parametrize("how", ["close", "crash"])
async def test_a_hook_that_was_cut_off_is_asked_again(point: Any, how: str) -> None:
    """A close and a crash while it hangs; the process that comes next lets it through."""
    entered: list[str] = []
    storage = MemoryStorage()
    model = strict_model(*ADDING)
    async with open_agent(storage, model, registry=hooking(Hook(point, hanging(entered)))) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(1)
        crashed = storage.snapshot()
    noted = Noted()
    left = crashed if how == "crash" else storage
    async with open_agent(left, model, registry=hooking(noted.at(point, point))) as agent:
        assert (await agent.ask("go", request_id="r1")).status == "done"
        lines = [line for line in await agent.lines() if not line.endswith("(aborted)")]
        assert lines == ["user go", "calls add(c1)", "result c1 3", "assistant done"]
        assert "hook_failed" not in {report.kind for report in agent.reports}
    assert noted.names


async def test_a_hook_of_a_crashed_process_is_asked_with_the_same_memos() -> None:
    seen: list[object] = []

    async def decide(_: AssistantMessage, api: HookApi) -> str | None:
        seen.append(await api.memo("coin"))
        await api.set_memo("coin", len(seen))
        await trio.sleep(10)
        return None

    storage = MemoryStorage()
    registry = hooking(hook.on_yield(decide))
    async with open_agent(storage, turns(Reply("x")), registry=registry) as agent:
        await agent.root.submit("go", request_id="r1")
        await trio.sleep(5)
        crashed = storage.snapshot()
    async with open_agent(crashed, turns(Reply("x")), registry=registry) as agent:
        await agent.ask("go", request_id="r1")
    assert seen == [MISSING, 1]


async def test_a_hook_that_is_kept_after_its_run_can_do_nothing() -> None:
    kept: list[HookApi] = []

    async def keep(_: AssistantMessage, api: HookApi) -> None:
        await trio.lowlevel.checkpoint()
        kept.append(api)

    async with open_agent(
        MemoryStorage(), turns(Reply("x")), registry=hooking(hook.on_yield(keep))
    ) as agent:
        await agent.ask()
        await agent.root.wait_for_idle()
        with pytest.raises(InvocationEnded):
            await kept[0].set_memo("late", value=True)
        with pytest.raises(InvocationEnded):
            await kept[0].commit(lambda _: None)


def test_a_hook_is_an_async_function() -> None:
    def plain(*_: object) -> None: ...

    for wrong in (plain, None, 7):
        with pytest.raises(DefinitionError, match="before_tool hook is an async function"):
            hook.before_tool(wrong)  # type: ignore[arg-type]
    assert hook.before_tool(always(None)).point == "before_tool"  # type: ignore[arg-type]


def test_a_hook_that_could_not_be_asked_is_refused_when_it_is_defined() -> None:
    async def one(api: object) -> None: ...

    async def two(about: object, api: object) -> None: ...

    for make in (hook.before_tool, hook.on_yield, hook.before_compact):
        with pytest.raises(DefinitionError, match="hook is given one value and api, which"):
            make(one)  # type: ignore[arg-type]
        make(two)
    with pytest.raises(DefinitionError, match="after_tool hook is given call, result and api"):
        hook.after_tool(two)  # type: ignore[arg-type]
