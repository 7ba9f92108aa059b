"""Every public async call takes a context; its end ends the call, and nothing else.

The calls are found by introspection: a new one fails here until it is in `CALLS`. Each is tried on
a `Scene` at rest, in which nothing happens for more than a minute.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import trio
import trio.testing
from pytest import mark, raises

from pidurable_actors import (
    BACKGROUND,
    Aborted,
    AgentChoice,
    Completed,
    Context,
    ContextKey,
    Conversation,
    Harness,
    Models,
    Next,
    Question,
    Reply,
    ScriptedModel,
    Submission,
    TaskActor,
    Tx,
    current_context,
    open_harness,
    phase,
)
from pidurable_actors.agent import ask_question
from pidurable_actors.errors import CommitReentered, ContextCancelled, MisuseError
from pidurable_actors.records import CommitNumber, EntryDraft, PutSubmission, TaskId
from pidurable_actors.session import Publication, define_doc
from pidurable_actors.storage import Storage
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.storage.sqlite import SqliteStorage
from pidurable_actors.testing.faults import HangingStorage
from tests._agents import MODEL, all_submissions, all_tasks, echo, open_agent, peek
from tests._tasks import (
    COUNT,
    One,
    Sleeper,
    append,
    notes,
    opened,
    outcome_of,
    registry_of,
    until,
)


@attrs.define
class Past:
    """A document with a history."""

    n: int = 0


TENANT: ContextKey[str] = ContextKey("tenant")
PAST: Final = define_doc("test.past", Past, history="rewindable")
HOUR_S: Final = 3_600.0
ANSWER_S: Final = 100.0
STEPS: Final = 25


class Stubborn(TaskActor[None, None], kind="test.stubborn"):
    """Stands in a step; an abort takes it a minute."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        await trio.sleep(HOUR_S)
        return Completed(None)

    async def abort(self) -> Aborted:
        await trio.sleep(60)
        return Aborted("at last")


class Broken(TaskActor[None, None], kind="test.broken"):
    """Fails."""

    def start(self) -> One:
        return One()

    @phase(One)
    async def one(self, at: One) -> Next[None]:
        raise ZeroDivisionError("a bug")


class Witness:
    """Keeps what was published; `told` is called with it."""

    def __init__(self) -> None:
        self.published_so_far: list[Publication] = []
        self.told: Callable[[Publication], None] = lambda publication: None

    def published(self, publication: Publication) -> None:
        self.published_so_far.append(publication)
        self.told(publication)

    def acknowledged(self, number: CommitNumber) -> None:
        """Not of interest."""


@attrs.frozen(kw_only=True)
class Scene:
    """A harness at rest.

    Attributes:
        busy: a conversation whose run waits for the model and whose task stands.
        asked: the submission that is being answered.
        queued: one that waits for the next run.
        standing: a task that stands for an hour.
        faulted: a task that ended so.
        entry: one that `busy` sees.
        failed: a conversation whose run ended unanswered.
    """

    harness: Harness
    witness: Witness
    busy: Conversation
    asked: Submission
    queued: Submission
    standing: TaskId
    faulted: TaskId
    entry: int
    failed: Conversation

    @property
    def commits(self) -> int:
        """How many there were."""
        return len(self.witness.published_so_far)


def question_of(busy: Conversation, task_id: TaskId) -> Question:
    """A question that is open."""
    return Question(
        id=f"{task_id}.1",
        kind="ask",
        conversation_id=busy.id,
        task_id=task_id,
        call_id="c1",
        tool_name="ask",
        text="Well?",
        arguments={},
        fingerprint="",
        asked_at_ms=0,
    )


@asynccontextmanager
async def scene(storage: Storage | None = None) -> AsyncIterator[Scene]:
    """Open it; the root conversation is not created yet."""
    witness = Witness()
    async with opened_on(storage or MemoryStorage(), witness) as harness:
        busy = await harness.create_conversation(agent=AgentChoice(model=MODEL))
        faulted = await busy.commit(lambda tx: tx.create_task(Broken, None))
        await harness.wait_for_task(faulted)
        standing = await busy.commit(lambda tx: tx.create_task(Stubborn, None))
        failed = await harness.create_conversation()
        await (await failed.submit("zero")).wait()
        await failed.configure(model=MODEL)
        asked = await busy.submit("one")
        queued = await busy.submit("two")
        await busy.commit(lambda tx: ask_question(tx, question_of(busy, standing)))
        await trio.testing.wait_all_tasks_blocked()
        yield Scene(
            harness=harness,
            witness=witness,
            busy=busy,
            asked=asked,
            queued=queued,
            standing=standing,
            faulted=faulted,
            entry=(await busy.entries(limit=1)).items[0].id,
            failed=failed,
        )


def opened_on(
    storage: Storage, witness: Witness, *tasks: type[TaskActor[Any, Any]]
) -> AbstractAsyncContextManager[Harness]:
    """A harness with the tasks of a scene, and a model that takes its time."""
    return open_harness(
        storage,
        models=Models([ScriptedModel(lambda ctx: Reply(f"re: {ctx.user_text}", delay_s=ANSWER_S))]),
        registry=registry_of(Broken, Stubborn, *tasks),
        witness=witness,
    )


Call: TypeAlias = Callable[..., Awaitable[Any]]
"""Makes the call; takes ``context=`` or nothing."""

WRITES: Final[dict[str, Callable[[Scene], Call]]] = {
    "Harness.root": lambda s: partial(s.harness.root, agent=AgentChoice(model=MODEL)),
    "Harness.create_conversation": lambda s: s.harness.create_conversation,
    "Harness.retry_task": lambda s: partial(s.harness.retry_task, s.faulted),
    "Harness.commit": lambda s: partial(s.harness.commit, lambda tx: tx.create_conversation().id),
    "Harness.answer": lambda s: partial(s.harness.answer, f"{s.standing}.1", "yes", by="ann"),
    "Conversation.submit": lambda s: partial(s.busy.submit, "three"),
    "Conversation.signal": lambda s: partial(s.busy.signal, "paid", by="bank"),
    "Conversation.write": lambda s: partial(s.busy.write, EntryDraft(kind="app.note", data="x")),
    "Conversation.commit": lambda s: partial(s.busy.commit, append("x")),
    "Conversation.reset": lambda s: partial(s.busy.reset, "begin here"),
    "Conversation.compact": lambda s: partial(s.failed.compact, background=True),
    "Conversation.retry": lambda s: s.failed.retry,
    "Conversation.fork": lambda s: s.busy.fork,
    "Conversation.configure": lambda s: partial(s.busy.configure, thinking_level="low"),
    "Submission.abort": lambda s: s.queued.abort,
}
"""One commit, and no wait for anything else."""

READS: Final[dict[str, Callable[[Scene], Call]]] = {
    "Harness.conversation": lambda s: partial(s.harness.conversation, s.busy.id),
    "Harness.conversations": lambda s: s.harness.conversations,
    "Harness.submission": lambda s: partial(s.harness.submission, s.asked.id),
    "Harness.get_task": lambda s: partial(s.harness.get_task, s.standing),
    "Harness.usage": lambda s: s.harness.usage,
    "Harness.questions": lambda s: s.harness.questions,
    "Harness.question": lambda s: partial(s.harness.question, f"{s.standing}.1"),
    "Harness.commits": lambda s: partial(s.harness.commits, after=s.commits - 1),
    "Harness.document_keys": lambda s: partial(s.harness.document_keys, COUNT, s.busy.id),
    "Harness.snapshot": lambda s: partial(s.harness.snapshot, COUNT, s.busy.id),
    "Harness.snapshot_as_of": lambda s: partial(s.harness.snapshot_as_of, PAST, s.busy.id, s.entry),
    "Conversation.record": lambda s: s.busy.record,
    "Conversation.entries": lambda s: s.busy.entries,
    "Conversation.document_keys": lambda s: partial(s.busy.document_keys, COUNT),
    "Conversation.snapshot": lambda s: partial(s.busy.snapshot, COUNT),
    "Conversation.snapshot_as_of": lambda s: partial(s.busy.snapshot_as_of, PAST, s.entry),
    "Conversation.agent": lambda s: s.busy.agent,
    "Conversation.usage": lambda s: s.busy.usage,
    "Conversation.busy": lambda s: s.busy.busy,
    "Submission.record": lambda s: s.asked.record,
}

ABORTS: Final[dict[str, Callable[[Scene], Call]]] = {
    "Harness.abort_task": lambda s: partial(s.harness.abort_task, s.standing, reason="r"),
    "Conversation.abort": lambda s: partial(s.busy.abort, reason="r"),
}
"""A commit, and then a wait."""

WAITS: Final[dict[str, Callable[[Scene], Call]]] = {
    "Harness.wait_for_task": lambda s: partial(s.harness.wait_for_task, s.standing),
    "Harness.wait_for_idle": lambda s: s.harness.wait_for_idle,
    "Harness.closed": lambda s: s.harness.closed,
    "Harness.wait_for_commit": lambda s: partial(s.harness.wait_for_commit, after=s.commits),
    "Conversation.wait_for_idle": lambda s: s.busy.wait_for_idle,
    "Submission.wait": lambda s: s.asked.wait,
    "Submission.answer": lambda s: s.asked.answer,
}

CALLS: Final = {**WRITES, **READS, **ABORTS, **WAITS}
LONG: Final = {**ABORTS, **WAITS}


def public_async_methods() -> dict[str, Callable[..., Any]]:
    """Of the three handles, by class and name."""
    return {
        f"{cls.__name__}.{name}": method
        for cls in (Harness, Conversation, Submission)
        for name, method in inspect.getmembers(cls)
        if not name.startswith("_") and inspect.iscoroutinefunction(method)
    }


# --- all calls ---


def test_every_public_async_call_is_tried_here() -> None:
    assert sorted(CALLS) == sorted(public_async_methods())


@mark.parametrize("name", CALLS)
def test_every_call_takes_a_context_by_name_and_says_what_it_does(name: str) -> None:
    method = public_async_methods()[name]
    parameter = inspect.signature(method).parameters["context"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert parameter.default is None
    assert parameter.annotation == "Context | None"
    assert method.__doc__ is not None
    assert "context: ends the call when it is cancelled; see `Context`." in method.__doc__
    assert "ContextCancelled: `context` was cancelled or ran out." in method.__doc__


@mark.parametrize("name", CALLS)
def test_a_call_in_a_context_has_the_result_that_it_has_without_one(name: str) -> None:
    async def run(options: dict[str, Context]) -> tuple[object, float]:
        """The result, and when it was there; the wait for the close ends with the scene."""
        results: list[tuple[object, float]] = []
        returned = trio.Event()

        async def make(call: Call) -> None:
            results.append((await call(**options), trio.current_time()))
            returned.set()

        async with trio.open_nursery() as outside, scene() as on:
            outside.start_soon(make, CALLS[name](on))
            with trio.move_on_after(2 * HOUR_S):
                await returned.wait()
        (result,) = results
        return result

    def at_zero(options: dict[str, Context]) -> tuple[object, float]:
        return trio.run(run, options, clock=trio.testing.MockClock(autojump_threshold=0))

    alone = at_zero({})
    assert alone == at_zero({"context": Context(values={TENANT: "acme"}, deadline=1e6)})
    assert (alone[1] > 0) == (name in LONG)


@mark.parametrize("name", CALLS)
async def test_a_call_in_a_context_that_is_over_does_and_stores_nothing(name: str) -> None:
    context = Context(deadline=trio.current_time() + 60)
    context.cancel("user pressed Esc")
    async with scene() as on:
        before = on.commits
        began = trio.current_time()
        with raises(ContextCancelled) as told:
            await CALLS[name](on)(context=context)
        assert (told.value.reason, told.value.deadline) == ("user pressed Esc", began + 60)
        with raises(ContextCancelled) as late:
            await CALLS[name](on)(context=BACKGROUND.child(timeout=0))
        assert (late.value.reason, late.value.deadline) == ("deadline", began)
        await trio.testing.wait_all_tasks_blocked()
        assert on.commits == before
        assert trio.current_time() == began


@mark.parametrize("name", CALLS)
async def test_a_call_asks_for_no_progress_in_a_context_that_is_over(name: str) -> None:
    storage = MemoryStorage()
    over = Context()
    over.cancel("over")
    async with scene(storage) as before:
        pass
    async with opened_on(storage, Witness()) as harness:
        on = attrs.evolve(
            before,
            harness=harness,
            busy=await harness.conversation(before.busy.id),
            asked=await harness.submission(before.asked.id),
            queued=await harness.submission(before.queued.id),
        )
        with raises(ContextCancelled):
            await CALLS[name](on)(context=over)
        assert not harness.inspect().scheduling
        await harness.root(context=Context())
        assert not harness.inspect().scheduling


@mark.parametrize("name", CALLS)
async def test_a_call_that_the_host_cancels_is_cancelled_whatever_its_context_says(
    name: str,
) -> None:
    async with scene() as on:
        before = on.commits
        for context in (Context(), BACKGROUND.child(timeout=0)):
            with trio.CancelScope() as outer:
                outer.cancel()
                await CALLS[name](on)(context=context)
            assert outer.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        assert on.commits == before


@mark.parametrize("name", CALLS)
async def test_what_is_no_context_is_misuse(name: str) -> None:
    async with scene() as on:
        with raises(MisuseError, match="context= takes a Context, not 5"):
            await CALLS[name](on)(context=5)


# --- waits ---


@mark.parametrize("name", LONG)
async def test_a_deadline_that_passes_ends_the_wait_the_caller_lives_on_and_the_work_goes_on(
    name: str,
) -> None:
    async with scene() as on:
        began = trio.current_time()
        with raises(ContextCancelled) as told, trio.fail_after(6):
            await LONG[name](on)(context=BACKGROUND.child(timeout=5))
        assert (told.value.reason, told.value.deadline) == ("deadline", began + 5)
        assert trio.current_time() == began + 5
        assert current_context() is BACKGROUND
        # What was marked before the deadline goes on to its end.
        aborted = (await on.harness.get_task(on.standing)).abort_requested
        assert aborted == (name in ABORTS)
        record = await on.harness.wait_for_task(on.standing)
        assert outcome_of(record).status == ("aborted" if aborted else "completed")
        assert trio.current_time() == (60 if aborted else HOUR_S)
        answered = name != "Conversation.abort"
        assert (await on.asked.wait()).status == ("done" if answered else "unanswered")


@mark.parametrize("name", LONG)
async def test_the_hosts_timeout_around_a_wait_in_a_context_is_the_hosts(name: str) -> None:
    context = Context(deadline=trio.current_time() + 60)
    async with scene() as on:
        began = trio.current_time()
        with trio.move_on_after(5) as outer:
            await LONG[name](on)(context=context)
        assert outer.cancelled_caught
        assert trio.current_time() == began + 5
        assert not context.cancelled
        assert (await on.harness.get_task(on.standing)).abort_requested == (name in ABORTS)


@mark.parametrize("name", LONG)
@mark.parametrize("context_first", [False, True])
async def test_when_host_and_context_end_a_wait_together_the_host_is_seen(
    name: str, context_first: bool
) -> None:
    context = Context()
    async with scene() as on, trio.open_nursery() as nursery:
        outer = trio.CancelScope()

        async def end_both() -> None:
            await trio.sleep(5)
            if context_first:
                context.cancel("over")
            outer.cancel()
            context.cancel("over")

        nursery.start_soon(end_both)
        with outer:
            await LONG[name](on)(context=context)
        assert outer.cancelled_caught
        assert context.reason == "over"


@mark.parametrize("name", LONG)
async def test_one_cancel_ends_all_calls_of_its_context_and_no_others(name: str) -> None:
    context, other = Context(), Context()
    ended: list[str] = []
    async with scene() as on, trio.open_nursery() as nursery:

        async def caller(called: str, using: Context) -> None:
            with raises(ContextCancelled) as told:
                await LONG[name](on)(context=using)
            ended.append(f"{called}: {told.value.reason}")

        nursery.start_soon(caller, "one", context)
        nursery.start_soon(caller, "two", context.child())
        nursery.start_soon(caller, "three", other)
        await trio.testing.wait_all_tasks_blocked()
        context.cancel("client left")
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(ended) == ["one: client left", "two: client left"]
        other.cancel("also")
    assert ended[2:] == ["three: also"]


async def test_a_context_is_used_in_another_task_than_the_one_that_made_it() -> None:
    """As a server does: one task reads the socket, others answer, and a client leaves."""
    ended: list[str] = []
    async with scene() as on, trio.open_nursery() as nursery:
        send, receive = trio.open_memory_channel[Context](1)

        async def answer() -> None:
            async for context in receive:
                with raises(ContextCancelled) as told:
                    await on.asked.answer(context=context)
                tenant = context.get(TENANT)
                ended.append(f"{tenant}: {told.value.reason}")
                assert current_context() is BACKGROUND

        async def read() -> None:
            client = Context(values={TENANT: "acme"})
            async with send:
                with client.scope():
                    await send.send(current_context().child())
            await trio.sleep(1)
            client.cancel("client left")

        nursery.start_soon(answer)
        nursery.start_soon(read)
    assert ended == ["acme: client left"]


# --- commits ---


async def test_a_commit_that_was_admitted_when_its_context_ended_returns_its_result() -> None:
    async with opened(MemoryStorage()) as on:
        contexts = {name: Context() for name in ("plain", "async", "cancelled in it")}

        def plain(tx: Tx) -> int:
            contexts["plain"].cancel("late")
            return append("plain")(tx)

        async def asynchronous(tx: Tx) -> int:
            await trio.lowlevel.checkpoint()
            contexts["async"].cancel("late")
            return append("async")(tx)

        async def cut_off(tx: Tx) -> int:
            contexts["cancelled in it"].cancel("in time")
            await trio.lowlevel.checkpoint()
            return append("never")(tx)

        for change, name in ((plain, "plain"), (asynchronous, "async")):
            entry_id = await on.root.commit(change, context=contexts[name])
            assert entry_id == (await on.root.entries(limit=1)).items[0].id
        with raises(ContextCancelled, match="in time"):
            await on.root.commit(cut_off, context=contexts["cancelled in it"])
        assert [context.reason for context in contexts.values()] == ["late", "late", "in time"]
        assert await notes(on.root) == ["plain", "async"]


async def test_a_commit_whose_context_ends_while_it_is_written_returns_its_result() -> None:
    storage = HangingStorage(MemoryStorage())
    returned: list[int] = []
    context = Context()
    async with opened(storage) as on, trio.open_nursery() as nursery:

        async def caller() -> None:
            returned.append(await on.root.commit(append("stored"), context=context))

        storage.hang()
        nursery.start_soon(caller)
        await trio.testing.wait_all_tasks_blocked()
        context.cancel("late")
        await trio.testing.wait_all_tasks_blocked()
        assert returned == []
        storage.release()
        await until(lambda: bool(returned))
        assert await notes(on.root) == ["stored"]


@mark.parametrize("name", [*WRITES, *ABORTS])
async def test_a_commit_is_published_with_the_values_of_its_context_but_not_its_end(
    name: str,
) -> None:
    context = Context(values={TENANT: "acme"}, deadline=trio.current_time() + 10)
    async with scene() as on:
        before = on.commits
        if name in ABORTS:
            with raises(ContextCancelled):
                await CALLS[name](on)(context=context)
        else:
            await CALLS[name](on)(context=context)
        context.cancel("over")
        await trio.sleep(HOUR_S)
        published = on.witness.published_so_far[before:]
        assert [it.values.get(TENANT) for it in published if TENANT in it.values] == ["acme"]
        assert published[0].values == {TENANT: "acme"}


async def test_work_that_a_call_starts_neither_has_its_values_nor_ends_with_it() -> None:
    seen: list[str | None] = []

    class Looks(TaskActor[None, str], kind="test.looks"):
        """Looks at its context and takes a minute."""

        def start(self) -> One:
            return One()

        @phase(One)
        async def one(self, at: One) -> Next[str]:
            seen.append(current_context().get(TENANT))
            await trio.sleep(60)
            return Completed("whole")

    witness = Witness()
    context = Context(values={TENANT: "acme"})
    async with opened_on(MemoryStorage(), witness, Looks) as harness:
        root = await harness.root(agent=AgentChoice(model=MODEL), context=context)
        task = await root.commit(lambda tx: tx.create_task(Looks, None), context=context)
        submission = await root.submit("go", context=context)
        await trio.testing.wait_all_tasks_blocked()
        context.cancel("client left")
        assert await submission.answer() == "re: go"
        assert outcome_of(await harness.wait_for_task(task)).status == "completed"
    assert seen == [None]
    ends = [
        publication.values
        for publication in witness.published_so_far
        for change in publication.batch.changes
        if isinstance(change, PutSubmission) and change.record.status == "done"
    ]
    assert [TENANT in values for values in ends] == [False]


@mark.parametrize("name", [name for name in (*WRITES, *LONG) if name != "Harness.closed"])
async def test_a_call_from_inside_a_callback_is_refused_in_a_context_too(name: str) -> None:
    async with scene() as on:
        before = on.commits

        async def change(tx: Tx) -> None:
            with raises(CommitReentered):
                await CALLS[name](on)(context=Context(deadline=trio.current_time() + 60))
            with raises(CommitReentered):
                await CALLS[name](on)()

        began = trio.current_time()
        await on.busy.commit(change)
        assert trio.current_time() == began
        assert on.commits == before


# --- C56: a cancelled call ends only itself ---


async def test_move_on_after_zero_ends_submit_and_nothing_was_stored() -> None:
    storage = MemoryStorage()
    async with open_agent(storage, ScriptedModel(echo)) as agent:
        with trio.move_on_after(0) as scope:
            await agent.root.submit("go", request_id="r")
        assert scope.cancelled_caught
        with peek(storage.peer()) as stored:
            assert all_submissions(stored) == []
            assert all_tasks(stored) == []
        submission = await agent.root.submit("go", request_id="r")
        assert await submission.answer() == "re: go"
        with peek(storage.peer()) as stored:
            assert [record.id for record in all_submissions(stored)] == [submission.id]


async def test_move_on_after_zero_ends_wait_abort_and_commit_and_the_work_goes_on() -> None:
    async with scene() as on:
        before = on.commits
        for name in ("Submission.wait", "Harness.abort_task", "Conversation.commit"):
            with trio.move_on_after(0) as scope:
                await CALLS[name](on)()
            assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        assert on.commits == before
        assert not (await on.harness.get_task(on.standing)).abort_requested
        assert await on.asked.answer() == "re: one"


async def ended_after(steps: int, call: Call) -> bool:
    """Whether the call returned although its context ended that many checkpoints after its start."""
    context = Context()
    returned = False
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            context.cancel("over")

        nursery.start_soon(end)
        if not steps:
            await trio.testing.wait_all_tasks_blocked()
        try:
            await call(context=context)
            returned = True
        except ContextCancelled as told:
            assert (told.reason, told.deadline) == ("over", math.inf)
        nursery.cancel_scope.cancel()
    return returned


def storages(path: Path) -> list[Storage]:
    return [MemoryStorage(), SqliteStorage(path / "agent.sqlite")]


@mark.parametrize("which", [0, 1])
async def test_a_submit_whose_context_ends_at_any_moment_is_all_or_nothing(
    tmp_path: Path, which: int
) -> None:
    returned: set[bool] = set()
    async with open_agent(storages(tmp_path)[which], ScriptedModel(echo)) as agent:
        for steps in range(STEPS):
            request = f"r{steps}"
            call = partial(agent.root.submit, request, request_id=request)
            answered = await ended_after(steps, call)
            await agent.root.wait_for_idle()
            assert (await agent.lines()).count(f"user {request}") == answered
            assert await (await call()).answer() == f"re: {request}"
            assert (await agent.lines()).count(f"user {request}") == 1
            returned.add(answered)
    assert returned == {False, True}


@mark.parametrize("which", [0, 1])
async def test_a_commit_whose_context_ends_at_any_moment_says_what_is_stored(
    tmp_path: Path, which: int
) -> None:
    stored: set[str] = set()

    async def slowly(tx: Tx, text: str) -> None:
        await trio.lowlevel.checkpoint()
        append(text)(tx)
        await trio.lowlevel.checkpoint()

    async with opened(storages(tmp_path)[which]) as on:
        for steps in range(STEPS):
            change = partial(slowly, text=str(steps))
            if await ended_after(steps, partial(on.root.commit, change)):
                stored.add(str(steps))
            assert set(await notes(on.root)) == stored
    assert 0 < len(stored) < STEPS


@mark.parametrize("which", [0, 1])
async def test_waits_whose_context_ends_at_any_moment_leave_the_work_alone(
    tmp_path: Path, which: int
) -> None:
    async with opened(storages(tmp_path)[which], Sleeper) as on:
        task = await on.start(Sleeper, HOUR_S)
        for steps in range(STEPS):
            assert not await ended_after(steps, partial(on.harness.wait_for_task, task))
            assert not await ended_after(steps, on.root.wait_for_idle)
        assert outcome_of(await on.harness.wait_for_task(task)).status == "completed"
