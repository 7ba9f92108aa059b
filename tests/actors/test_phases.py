"""Phases: what a task's code may return, store and do wrong, and what becomes of the task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import attrs
import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import (
    MISSING,
    Aborted,
    Checkpoint,
    Completed,
    Context,
    ContextKey,
    Continue,
    Failed,
    Next,
    SleepUntil,
    TaskActor,
    Tx,
    WaitFor,
    current_context,
    phase,
)
from pidurable_actors._json import JSON
from pidurable_actors.errors import InvalidValue, InvocationEnded, MisuseError
from pidurable_actors.records import (
    AbortedOutcome,
    CompletedOutcome,
    EntryId,
    FailedOutcome,
    FaultedOutcome,
    TaskOutcome,
)
from pidurable_actors.runtime import Report
from pidurable_actors.storage.memory import MemoryStorage
from tests._tasks import (
    COUNT,
    NOTE,
    At,
    CountTo,
    Note,
    One,
    Sleeper,
    Ticker,
    notes,
    opened,
    outcome_of,
)

Code = Callable[["Does", int], Awaitable[Any]]


class Does(TaskActor[None, Any], kind="test.does"):
    """Runs the code of the test, with the number of the step."""

    code: ClassVar[Code]

    def start(self) -> At:
        return At(1)

    @phase(At)
    async def at(self, at: At) -> Next[Any]:
        step: Next[Any] = await type(self).code(self, at.n)
        return step


async def outcome_of_code(code: Code, reports: list[Report] | None = None) -> TaskOutcome:
    """What a task comes to whose phase is `code`."""
    Does.code = code
    async with opened(MemoryStorage(), Does, Ticker, Sleeper) as on:
        outcome = await on.run(Does)
    if reports is not None:
        reports.extend(on.reports)
    return outcome


async def fault_of(code: Code) -> dict[str, Any]:
    """The stored error of a task whose phase is `code`; it must be reported once, too."""
    reports: list[Report] = []
    outcome = await outcome_of_code(code, reports)
    assert isinstance(outcome, FaultedOutcome), outcome
    assert [report.kind for report in reports] == ["task_faulted"]
    assert isinstance(outcome.error, dict)
    return outcome.error


def returning(*steps: Any) -> Code:
    """Code that returns one step after the other."""

    async def code(task: Does, n: int) -> Any:
        return steps[n - 1]

    return code


# --- what a phase returns ---


@mark.parametrize(
    ("step", "outcome"),
    [
        (Completed({"a": [1, None]}), CompletedOutcome(result={"a": [1, None]})),
        (Completed(), CompletedOutcome()),
        (Aborted("enough"), AbortedOutcome(reason="enough")),
        (
            Failed("no", {"part": 1}),
            FailedOutcome(error="no", result={"part": 1}, checkpoint={"phase": "at", "n": 1}),
        ),
    ],
)
async def test_an_end_is_stored_as_the_outcome(step: Any, outcome: TaskOutcome) -> None:
    assert await outcome_of_code(returning(step)) == outcome


async def test_phases_go_on_from_checkpoint_to_checkpoint() -> None:
    steps = [Continue(At(n)) for n in range(2, 10)]
    assert await outcome_of_code(returning(*steps, Completed(9))) == CompletedOutcome(result=9)


async def test_a_sleep_takes_its_time_and_goes_on_at_its_checkpoint() -> None:
    async def code(task: Does, n: int) -> Any:
        if n == 1:
            return SleepUntil(task.now_ms() + 7_000, At(2))
        return Completed(n)

    began = trio.current_time()
    assert await outcome_of_code(code) == CompletedOutcome(result=2)
    assert trio.current_time() == began + 7


async def test_a_sleep_into_the_past_is_over_at_once() -> None:
    async def code(task: Does, n: int) -> Any:
        return SleepUntil(0, At(2)) if n == 1 else Completed()

    assert (await outcome_of_code(code)).status == "completed"


async def test_a_sleep_may_return_to_the_same_checkpoint() -> None:
    entered: list[int] = []

    async def code(task: Does, n: int) -> Any:
        entered.append(n)
        return SleepUntil(task.now_ms() + 10, At(1)) if len(entered) < 3 else Completed()

    assert (await outcome_of_code(code)).status == "completed"
    assert entered == [1, 1, 1]


async def test_a_terminal_record_keeps_no_memos_and_no_checkpoint() -> None:
    async def code(task: Does, n: int) -> Any:
        await task.set_memo("m", 1)
        return Completed()

    Does.code = code
    storage = MemoryStorage()
    async with opened(storage, Does) as on:
        task = await on.start(Does)
        record = await on.harness.wait_for_task(task)
        assert record.memos == {}
        assert record.ended_at_ms is not None
        assert (await on.harness.get_task(task)).memos == {}


# --- what a phase does wrong ---


async def test_no_progress_is_a_fault() -> None:
    assert "without progress" in (await fault_of(returning(Continue(At(1)))))["message"]


async def test_a_wait_for_nothing_that_stays_where_it_is_is_no_progress() -> None:
    error = await fault_of(returning(WaitFor([], At(1))))
    assert "without progress" in error["message"]


async def test_an_exception_is_stored_with_type_message_and_trace() -> None:
    async def code(task: Does, n: int) -> Any:
        raise LookupError("nowhere")

    error = await fault_of(code)
    assert (error["type"], error["message"]) == ("LookupError", "nowhere")
    assert "in code" in error["trace"]


async def test_a_group_from_a_nursery_of_the_task_is_recorded_whole() -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def code(task: Does, n: int) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, LookupError("one"))
            nursery.start_soon(fail, ValueError("two"))

    error = await fault_of(code)
    assert error["type"] == "ExceptionGroup"
    assert "LookupError: one" in error["trace"]
    assert "ValueError: two" in error["trace"]


async def test_an_exception_whose_text_cannot_be_made_or_stored_is_a_fault_like_any_other() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    async def mute(task: Does, n: int) -> Any:
        raise Mute

    async def surrogate(task: Does, n: int) -> Any:
        raise ValueError("\ud800")

    async def long(task: Does, n: int) -> Any:
        raise ValueError("x" * 100_000)

    assert (await fault_of(mute))["type"] == "Mute"
    assert (await fault_of(surrogate))["message"] == "\\ud800"
    assert len((await fault_of(long))["message"]) == 4_000


@mark.parametrize("value", [None, 5, "next", At(2), One])
async def test_anything_but_a_step_is_a_fault_that_says_what_to_return(value: Any) -> None:
    error = await fault_of(returning(value))
    assert error["type"] == "MisuseError"
    assert "must return Continue" in error["message"]


@mark.parametrize(
    ("step", "path"),
    [
        (Continue(At(float("nan"))), "checkpoint[at].n"),  # type: ignore[arg-type]
        (Continue(At(2**70)), "checkpoint[at].n"),
        (Completed({"x": {1, 2}}), "result.x"),
        (Completed({1: "x"}), "result"),
        (Completed(b"bytes"), "result"),
        (Failed(["ok", object()]), "error[1]"),  # type: ignore[list-item]
        (Failed("no", float("inf")), "result"),
        (Aborted("\ud800"), "reason"),
        (Aborted(5), "reason"),  # type: ignore[arg-type]
        (SleepUntil(2**70, At(2)), "when_ms"),
    ],
)
async def test_a_step_that_cannot_be_stored_is_a_fault_that_names_the_part(
    step: Any, path: str
) -> None:
    error = await fault_of(returning(step))
    assert error["type"] == "InvalidValue"
    assert error["message"].startswith(f"{path}: ")


@mark.parametrize("when", ["soon", float("inf"), float("nan"), None])
async def test_a_sleep_until_something_that_is_no_time_is_a_fault(when: Any) -> None:
    assert "when_ms" in (await fault_of(returning(SleepUntil(when, At(2)))))["message"]


async def test_a_checkpoint_of_another_task_is_a_fault() -> None:
    error = await fault_of(returning(Continue(One())))
    assert "not a checkpoint of this task; it has at" in error["message"]


async def test_a_wait_for_oneself_an_owner_or_nobody_is_a_fault() -> None:
    async def for_itself(task: Does, n: int) -> Any:
        return WaitFor([task.task_id], At(2))

    assert "cannot end before it" in (await fault_of(for_itself))["message"]
    assert "no task 999" in (await fault_of(returning(WaitFor([999], At(2)))))["message"]  # type: ignore[list-item]

    async def volatile(task: Does, n: int) -> Any:
        await task.wait_for_task(task.task_id)

    assert "cannot end before it" in (await fault_of(volatile))["message"]


async def test_a_cancelled_that_leaks_from_a_scope_of_the_task_is_its_fault() -> None:
    async def code(task: Does, n: int) -> Any:
        leaked: BaseException | None = None
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                leaked = cancelled
                raise
        assert leaked is not None
        raise leaked

    assert (await fault_of(code))["type"] == "Cancelled"


async def test_a_context_that_the_task_itself_cancels_is_its_fault_with_the_reason() -> None:
    async def code(task: Does, n: int) -> Any:
        task.context.cancel("had enough")
        await trio.lowlevel.checkpoint()

    assert "had enough" in (await fault_of(code))["message"]


async def test_a_fault_keeps_checkpoint_and_memos_in_its_outcome() -> None:
    async def code(task: Does, n: int) -> Any:
        if n < 3:
            return Continue(At(n + 1))
        await task.set_memo("m", [n])
        raise ValueError

    outcome = await outcome_of_code(code)
    assert isinstance(outcome, FaultedOutcome)
    assert outcome.checkpoint == {"phase": "at", "n": 3}
    assert outcome.memos == {"m": [3]}


async def test_a_task_that_cannot_be_made_or_whose_data_does_not_fit_is_a_fault() -> None:
    class Early(TaskActor[CountTo, None], kind="test.ticker"):
        def __init__(self) -> None:
            raise RuntimeError("never made")

        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[None]:
            return Completed(None)

    @attrs.frozen
    class Other:
        name: str

    class Changed(TaskActor[Other, None], kind="test.ticker"):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[None]:
            return Completed(None)

    class Renamed(TaskActor[CountTo, None], kind="test.ticker"):
        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            return Completed(None)

    for cls, text in ((Early, "never made"), (Changed, "input"), (Renamed, "no phase 'at'")):
        storage = MemoryStorage()
        async with opened(storage, Ticker) as on:
            task = await on.start(Ticker, CountTo(2))
        async with opened(storage, cls) as on:
            outcome = outcome_of(await on.harness.wait_for_task(task))
            assert isinstance(outcome, FaultedOutcome)
            assert isinstance(outcome.error, dict)
            assert text in str(outcome.error["message"])


# --- steps that are stored in a commit ---


async def test_a_step_that_a_callback_returns_is_stored_in_that_very_commit() -> None:
    storage = MemoryStorage()

    async def code(task: Does, n: int) -> Any:
        def settle(tx: Tx) -> Next[Any]:
            entry = tx.append_entry(task.conversation_id, NOTE.new(Note("receipt")))
            return Completed(entry.id)

        before = storage.snapshot().open(read_only=False).commit
        step = await task.commit(settle)
        assert storage.snapshot().open(read_only=False).commit == before + 1
        assert (await task.get_task(task.task_id)).state.status == "terminal"
        return step

    Does.code = code
    async with opened(storage, Does) as on:
        outcome = await on.run(Does)
        page = await on.root.entries("app.note")
        assert outcome == CompletedOutcome(result=page.items[0].id)
        assert page.items[0].by_task_id == 3


async def test_every_kind_of_step_may_be_stored_so() -> None:
    async def code(task: Does, n: int) -> Any:
        if n == 1:
            return await task.commit(lambda tx: Continue(At(2)))
        if n == 2:
            return await task.commit(lambda tx: SleepUntil(tx.now_ms + 1_000, At(3)))
        if n == 3:

            async def wait(tx: Tx) -> WaitFor:
                child = tx.create_task(Ticker, CountTo(2), owner=task.task_id)
                return WaitFor([child], At(4))

            return await task.commit(wait)
        return await task.commit(lambda tx: Failed("after all"))

    outcome = await outcome_of_code(code)
    assert isinstance(outcome, FailedOutcome)
    assert outcome.error == "after all"


async def test_another_value_than_the_stored_one_is_a_fault() -> None:
    async def equal_but_not_the_same(task: Does, n: int) -> Any:
        await task.commit(lambda tx: Continue(At(2)))
        return Continue(At(2))

    assert "very object" in (await fault_of(equal_but_not_the_same))["message"]

    async def after_a_sleep(task: Does, n: int) -> Any:
        await task.commit(lambda tx: SleepUntil(tx.now_ms + 3_600_000, At(2)))
        return Completed()

    assert "very object" in (await fault_of(after_a_sleep))["message"]


async def test_another_commit_after_the_stored_step_is_a_fault_and_stores_nothing() -> None:
    async def code(task: Does, n: int) -> Any:
        step = await task.commit(lambda tx: Continue(At(2)))
        await task.commit(lambda tx: tx.append_entry(task.conversation_id, NOTE.new(Note("no"))))
        return step

    Does.code = code
    async with opened(MemoryStorage(), Does) as on:
        assert (await on.run(Does)).status == "faulted"
        assert await notes(on.root) == []


async def test_of_two_steps_stored_at_once_only_the_first_is_stored() -> None:
    refused: list[str] = []

    async def code(task: Does, n: int) -> Any:
        stored: list[Any] = []
        if n == 2:
            return Completed("second step")

        async def store(step: Any) -> None:
            try:
                stored.append(await task.commit(lambda tx: step))
            except MisuseError as error:
                refused.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(store, Continue(At(2)))
            nursery.start_soon(store, Continue(At(2)))
        return stored[0]

    assert await outcome_of_code(code) == CompletedOutcome(result="second step")
    assert len(refused) == 1


async def test_a_step_whose_commit_rolled_back_is_not_stored() -> None:
    async def code(task: Does, n: int) -> Any:
        with raises(InvalidValue):
            await task.commit(lambda tx: Completed(object()))

        async def no(tx: Tx) -> Any:
            raise ValueError

        with raises(ValueError):
            await task.commit(no)
        return Completed("later")

    assert await outcome_of_code(code) == CompletedOutcome(result="later")


async def test_what_goes_wrong_after_the_end_was_stored_is_reported_and_the_end_stands() -> None:
    async def code(task: Does, n: int) -> Any:
        await task.commit(lambda tx: Completed("stands"))
        raise LookupError("afterwards")

    reports: list[Report] = []
    assert await outcome_of_code(code, reports) == CompletedOutcome(result="stands")
    assert [type(report.error) for report in reports] == [LookupError]


# --- memos ---


async def test_the_first_writer_of_a_memo_wins_also_among_concurrent_writers() -> None:
    async def code(task: Does, n: int) -> Any:
        winners: list[JSON] = []

        async def write(value: int) -> None:
            winners.append(await task.set_memo("m", value))

        async with trio.open_nursery() as nursery:
            for value in range(20):
                nursery.start_soon(write, value)
        assert len(set(map(str, winners))) == 1
        assert await task.memo("m") == winners[0]
        return Completed([winners[0], await task.set_memo("m", "late")])

    outcome = await outcome_of_code(code)
    assert isinstance(outcome, CompletedOutcome)
    assert isinstance(outcome.result, list)
    assert outcome.result[0] == outcome.result[1]


async def test_missing_is_not_none() -> None:
    async def code(task: Does, n: int) -> Any:
        assert await task.memo("m") is MISSING
        assert repr(MISSING) == "MISSING"
        assert await task.set_memo("m", None) is None
        assert await task.memo("m") is None
        return Completed()

    assert (await outcome_of_code(code)).status == "completed"


async def test_a_memo_is_a_copy() -> None:
    async def code(task: Does, n: int) -> Any:
        value: JSON = {"items": [1]}
        await task.set_memo("m", value)
        value["items"].append(2)  # type: ignore[union-attr,index,call-overload]
        return Completed(await task.memo("m"))

    assert await outcome_of_code(code) == CompletedOutcome(result={"items": [1]})


@mark.parametrize(
    ("name", "value", "text"),
    [
        ("m", float("nan"), r"memo['m']: nan"),
        ("m", {"a": [object()]}, r"memo['m'].a[0]"),
        ("m", "x" * 70_000, "a memo holds 65,536"),
        ("m", "é" * 40_000, "a memo holds 65,536"),
        ("", 1, "1 to 200 characters"),
        ("n" * 201, 1, "1 to 200 characters"),
        ("\ud800", 1, "lone surrogate"),
    ],
)
async def test_a_memo_that_cannot_be_stored_is_refused_with_its_path(
    name: str, value: Any, text: str
) -> None:
    async def code(task: Does, n: int) -> Any:
        with raises(InvalidValue) as told:
            await task.set_memo(name, value)
        assert text in str(told.value)
        assert await task.memo(name) is MISSING
        return Completed()

    assert (await outcome_of_code(code)).status == "completed"


@mark.slow
async def test_the_memos_of_a_task_are_bounded_in_all() -> None:
    async def code(task: Does, n: int) -> Any:
        for number in range(20):
            try:
                await task.set_memo(f"m{number}", "x" * 60_000)
            except InvalidValue as error:
                return Completed([number, error.reason])
        return Completed("unbounded")

    outcome = await outcome_of_code(code)
    assert isinstance(outcome, CompletedOutcome)
    assert outcome.result == [17, "the memos of a task hold 1,048,576 bytes in all"]


# --- the run and its context ---


async def test_a_stray_child_task_cannot_use_the_runtime_of_a_run_that_is_over() -> None:
    """Leave a child of a phase in a nursery outside; after the end, try every call from it."""
    refused: list[str] = []
    Does.code = returning(Completed())

    async def stray(task: Does) -> None:
        await over.wait()
        for call in (
            lambda: task.commit(lambda tx: None),
            lambda: task.memo("m"),
            lambda: task.set_memo("m", 1),
            lambda: task.get_task(task.task_id),
            lambda: task.wait_for_task(task.task_id),
            lambda: task.outcomes([]),
            lambda: task.entry(1),  # type: ignore[arg-type]
        ):
            with raises(InvocationEnded) as told:
                await call()
            assert told.value.task_id == 3
            refused.append("awaited")
        for plain in (
            task.now_ms,
            lambda: task.context,
            lambda: task.settings,
            lambda: task.report(ValueError()),
        ):
            with raises(InvocationEnded):
                plain()
            refused.append("plain")

    over = trio.Event()
    async with trio.open_nursery() as outer:

        async def code(task: Does, n: int) -> Any:
            outer.start_soon(stray, task)
            await trio.lowlevel.checkpoint()
            return Completed()

        Does.code = code
        async with opened(MemoryStorage(), Does) as on:
            await on.run(Does)
            over.set()
            await trio.testing.wait_all_tasks_blocked()
    assert (refused.count("awaited"), refused.count("plain")) == (7, 4)


async def test_a_run_enters_a_context_of_its_own_and_inherits_nothing_from_who_commits() -> None:
    key: ContextKey[object] = ContextKey("tenant")
    seen: list[object] = []

    async def code(task: Does, n: int) -> Any:
        seen.append(current_context() is task.context)
        seen.append(task.context.get(key))
        seen.append(task.context.cancelled)
        return Completed()

    Does.code = code
    async with opened(MemoryStorage(), Does) as on:
        with Context(values={key: "acme"}).scope():
            await on.run(Does)
    assert seen == [True, None, False]


async def test_the_actor_reads_what_is_stored() -> None:
    async def code(task: Does, n: int) -> Any:
        if n == 1:

            async def prepare(tx: Tx) -> Any:
                tx.append_entry(task.conversation_id, NOTE.new(Note("hello")))
                child = tx.create_task(Ticker, CountTo(2), owner=task.task_id)
                return Continue(At(child))

            return await task.commit(prepare)
        child = n
        assert (await task.wait_for_task(child)).state.status == "terminal"  # type: ignore[arg-type]
        (outcome,) = await task.outcomes([child])  # type: ignore[list-item]
        assert outcome == CompletedOutcome(result="counted to 2")
        assert task.settings.restart_limit == 5
        await task.sleep(1)
        return Completed((await task.entry(EntryId(child - 1))).data)

    assert await outcome_of_code(code) == CompletedOutcome(result={"text": "hello"})


async def test_outcomes_of_what_has_not_ended_and_entries_that_are_not_there_are_bad_reads() -> (
    None
):
    async def code(task: Does, n: int) -> Any:
        for call in (
            lambda: task.outcomes([task.task_id]),
            lambda: task.entry(999),  # type: ignore[arg-type]
            lambda: task.get_task(999),  # type: ignore[arg-type]
        ):
            with raises(Exception, match=r"has not ended|there is no"):
                await call()
        return Completed()

    assert (await outcome_of_code(code)).status == "completed"


async def test_a_report_of_a_task_goes_to_the_host_with_its_ids() -> None:
    error = ValueError("look at this")

    async def code(task: Does, n: int) -> Any:
        task.report(error)
        return Completed()

    reports: list[Report] = []
    assert (await outcome_of_code(code, reports)).status == "completed"
    (report,) = reports
    assert (report.kind, report.error, report.task_id) == ("handler_failed", error, 3)
    assert report.conversation_id == 1


async def test_tasks_defined_inside_functions_work() -> None:
    @attrs.frozen
    class Step(Checkpoint, phase="step"):
        word: str

    class Local(TaskActor[str, str], kind="test.local"):
        def start(self) -> Step:
            return Step(self.input)

        @phase(Step)
        async def step(self, at: Step) -> Next[str]:
            return Completed(at.word.upper())

    async with opened(MemoryStorage(), Local) as on:
        assert await on.run(Local, "abc") == CompletedOutcome(result="ABC")


async def test_start_is_pure() -> None:
    class Impure(TaskActor[CountTo, None], kind="test.impure"):
        def start(self) -> One:
            self.now_ms()
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            return Completed(None)

    async with opened(MemoryStorage(), Impure) as on:
        with raises(MisuseError, match=r"Impure.start\(\) is pure"):
            await on.start(Impure, CountTo(1))
        assert on.harness.inspect().tasks == ()


async def test_an_exception_in_start_fails_only_the_commit() -> None:
    class Fails(TaskActor[CountTo, None], kind="test.fails"):
        def start(self) -> One:
            raise LookupError("no start")

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            return Completed(None)

    async with opened(MemoryStorage(), Fails, Ticker) as on:
        with raises(LookupError, match="no start"):
            await on.start(Fails, CountTo(1))
        assert (await on.run(Ticker, CountTo(2))).status == "completed"


async def test_many_tasks_run_beside_each_other() -> None:
    async with opened(MemoryStorage(), Ticker) as on:
        tasks = [await on.start(Ticker, CountTo(n % 7 + 1)) for n in range(300)]
        for n, task in enumerate(tasks):
            outcome = outcome_of(await on.harness.wait_for_task(task))
            assert outcome == CompletedOutcome(result=f"counted to {n % 7 + 1}")
        assert on.harness.inspect().tasks == ()


async def test_a_step_noted_in_a_commit_that_cannot_be_stored_is_forgotten() -> None:
    async def code(task: Does, n: int) -> Any:
        async def bad(tx: Tx) -> Any:
            (await tx.doc(COUNT)).items = [float("nan")]
            return Completed("never")

        with raises(InvalidValue, match=r'docs\["app.count"\].items\[0\]'):
            await task.commit(bad)
        return await task.commit(lambda tx: Completed("then this"))

    assert await outcome_of_code(code) == CompletedOutcome(result="then this")


async def test_a_wait_for_what_has_ended_goes_on_at_once() -> None:
    async def code(task: Does, n: int) -> Any:
        if n > 1:
            return Completed("at once")
        child = await task.commit(lambda tx: tx.create_task(Ticker, CountTo(1), owner=task.task_id))
        await task.wait_for_task(child)
        return WaitFor([child], At(2), policy="fail_fast")

    assert await outcome_of_code(code) == CompletedOutcome(result="at once")


async def test_a_transcript_longer_than_a_page_is_read_whole() -> None:
    async def code(task: Does, n: int) -> Any:
        def fill(tx: Tx) -> None:
            for number in range(1_100):
                tx.append_entry(task.conversation_id, NOTE.new(Note(str(number))))

        await task.commit(fill)
        entries = await task.runtime.transcript(task.conversation_id)
        return Completed([len(entries), entries[0].data, entries[-1].data])

    outcome = await outcome_of_code(code)
    assert outcome == CompletedOutcome(result=[1_100, {"text": "0"}, {"text": "1099"}])


async def test_the_base_has_no_start_of_its_own() -> None:
    class Calls(TaskActor[CountTo, None], kind="test.calls-the-base"):
        def start(self) -> Checkpoint:
            return super().start()

        @phase(One)
        async def one(self, at: One) -> Next[None]:
            return Completed(None)

    async with opened(MemoryStorage(), Calls) as on:
        with raises(MisuseError, match=r"Calls has no start\(\)"):
            await on.start(Calls, CountTo(1))
