"""Stories of work that owns work: subagents, background work, aborts, a migration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from pidurable_actors import (
    Aborted,
    AgentChoice,
    Checkpoint,
    Completed,
    Continue,
    Conversation,
    Extension,
    Failed,
    Harness,
    Models,
    Next,
    Outcome,
    Registry,
    Reply,
    ScriptedModel,
    TaskActor,
    Tool,
    ToolApi,
    Tx,
    WaitFor,
    define_doc,
    phase,
    tool,
)
from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import Batch, CompletedOutcome, TaskId, Terminal, text_of
from pidurable_actors.testing import World
from tests._agents import MODEL, call, calling
from tests.crash.budget_stories import BUDGETS
from tests.crash.compaction_stories import COMPACTIONS
from tests.crash.document_stories import DOCUMENTS
from tests.crash.hook_stories import HOOKS
from tests.crash.inbox_stories import INBOXES
from tests.crash.nested_stories import NESTED
from tests.crash.question_stories import QUESTIONS
from tests.crash.stories import (
    SETTINGS,
    STORIES,
    Story,
    Told,
    conversation,
    lines_of,
    results_of,
    statuses_of,
)

AGENT: Final = AgentChoice(model=MODEL)


# --- a subagent in the foreground ---


def research_tool(world: World) -> Tool:
    """A tool that asks a conversation of its own; run again, it finds what it began."""

    @tool(replay="safe")
    async def research(question: str, *, api: ToolApi) -> str:
        """Ask a researcher."""
        helper = await api.create_conversation("researcher", agent=AGENT)
        submission = await helper.submit(question, request_id="question")
        return f"found: {await submission.answer()}"

    return research


def research_script(ctx: ScriptedContext) -> Reply:
    """The same model plays both: who is asked a question answers, the other asks for research."""
    if ctx.user_text.startswith("why"):
        return Reply("because", chunk=4, chunk_delay_s=1)
    return Reply("done") if ctx.answers else calling(call("research", "c0", question="why?"))


async def subagent(world: World) -> None:
    """A run whose tool asks a subagent and returns what it answers."""
    async with world.open_harness(
        registry=Registry([Extension("lab", tools=[research_tool(world)])]),
        models=Models([ScriptedModel(research_script)]),
        settings=SETTINGS,
    ) as harness:
        root = await harness.root(agent=AGENT)
        await (await root.submit("go", request_id="r1")).wait()
        await harness.wait_for_idle()


def check_subagent(world: World) -> None:
    """One subagent, owned by the call; asked once; its answer is the call's result."""
    assert statuses_of(world) == ["done", "done"]
    (helper,) = [c for c in world.records.conversations.values() if c.owner is not None]
    assert helper.owner is not None
    owner = world.records.tasks[helper.owner.task_id]
    assert owner.kind == "pi.tool"
    asked = [e for e in world.records.transcript(helper.id) if e.kind == "pi.user"]
    assert len(asked) == 1
    assert text_of(results_of(world)["research"].content) == "found: because"


async def aborted_subagent(world: World) -> None:
    """The run is aborted while its subagent is at work."""
    async with world.open_harness(
        registry=Registry([Extension("lab", tools=[research_tool(world)])]),
        models=Models([ScriptedModel(research_script)]),
        settings=SETTINGS,
    ) as harness:
        root = await harness.root(agent=AGENT)
        submission = await root.submit("go", request_id="r1")
        await trio.sleep(1.5)
        await root.abort(reason="enough")
        await submission.wait()


def check_aborted_subagent(world: World) -> None:
    """The subagent ends with the call, and nothing of it goes on."""
    first, *inner = world.records.submissions.values()
    assert first.status in ("done", "unanswered")
    assert all(one.status in ("done", "unanswered") for one in inner)
    assert all(isinstance(task.state, Terminal) for task in world.records.tasks.values())


# --- a subagent in the background ---


@attrs.frozen
class Ask(Checkpoint, phase="ask"):
    """Ask the helper."""


@attrs.frozen
class Report(Checkpoint, phase="report"):
    """Tell the conversation that wanted to know."""

    answer: str


class Researcher(TaskActor[str, str], kind="test.researcher"):
    """Asks in a conversation of its own, and reports to the one that it was started from."""

    def start(self) -> Ask:
        return Ask()

    @phase(Ask)
    async def ask(self, at: Ask) -> Next[str]:
        helper = await self.create_conversation("helper", agent=AGENT)
        submission = await helper.submit(self.input, request_id="question")
        return Continue(Report(await submission.answer()))

    @phase(Report)
    async def report_back(self, at: Report) -> Next[str]:
        home = await self.conversation(self.conversation_id)
        # The id makes it once, however often this phase is run.
        await home.submit(f"report: {at.answer}", request_id=f"report-{self.task_id}")
        return Completed(at.answer)


async def background_subagent(world: World) -> None:
    """A run starts a subagent and ends; the subagent reports later, in a run of its own."""

    @tool(replay="safe")
    async def spawn(question: str, *, api: ToolApi) -> str:
        """Start a researcher."""
        task_id = await api.create_task("researcher", Researcher, question, background=True)
        return f"started {task_id}"

    def script(ctx: ScriptedContext) -> Reply:
        if ctx.user_text.startswith("why"):
            return Reply("because", delay_s=5)
        if ctx.user_text.startswith("report"):
            return Reply("thanks")
        return Reply("started") if ctx.answers else calling(call("spawn", "c0", question="why?"))

    async with world.open_harness(
        registry=Registry([Extension("lab", tools=[spawn], tasks=[Researcher])]),
        models=Models([ScriptedModel(script)]),
        settings=SETTINGS,
    ) as harness:
        root = await harness.root(agent=AGENT)
        await (await root.submit("go", request_id="r1")).wait()
        for view in harness.inspect().tasks:
            await harness.wait_for_task(view.id)
        await harness.wait_for_idle()


def check_background_subagent(world: World) -> None:
    """The report comes exactly once, and is answered."""
    told = [line for line in lines_of(world) if not line.endswith("(aborted)")]
    assert told.count("user report: because") == 1
    assert told[-1] == "assistant thanks"
    (researcher,) = [t for t in world.records.tasks.values() if t.kind == "test.researcher"]
    assert isinstance(researcher.state, Terminal)
    assert researcher.state.outcome == CompletedOutcome(result="because")


# --- a task of an older version ---


@attrs.frozen
class OldStep(Checkpoint, phase="old"):
    """The step of version 1."""

    n: int = 0


@attrs.frozen
class NewStep(Checkpoint, phase="new"):
    """The step of version 2."""

    count: int = 0


@attrs.define
class Begun:
    """The one counter."""

    task_id: int = 0


BEGUN: Final = define_doc("test.begun", Begun)


class CounterOne(TaskActor[int, int], kind="test.counter"):
    """Counts by one, with pauses."""

    def start(self) -> OldStep:
        return OldStep()

    @phase(OldStep)
    async def step(self, at: OldStep) -> Next[int]:
        await trio.sleep(1)
        if at.n == self.input:
            return Completed(at.n)
        return Continue(OldStep(at.n + 1))


class CounterTwo(TaskActor[int, int], kind="test.counter", version=2):
    """The same, after its step was renamed."""

    def start(self) -> NewStep:
        return NewStep()

    @classmethod
    def migrate(
        cls, version: int, task_input: JSON, checkpoint: JsonObject
    ) -> tuple[JSON, JsonObject]:
        assert version == 1
        return task_input, {"phase": "new", "count": checkpoint["n"]}

    @phase(NewStep)
    async def step(self, at: NewStep) -> Next[int]:
        await trio.sleep(1)
        if at.count == self.input:
            return Completed(at.count)
        return Continue(NewStep(at.count + 1))


async def migration(world: World) -> None:
    """Every process but the first has the newer version."""

    async def begin(tx: Tx) -> TaskId:
        begun = await tx.doc(BEGUN)
        if not begun.task_id:
            kind = CounterOne if world.life == 1 else CounterTwo
            begun.task_id = tx.create_task(kind, 3)
        return TaskId(begun.task_id)

    kind = CounterOne if world.life == 1 else CounterTwo
    async with world.open_harness(
        registry=Registry([Extension("counting", tasks=[kind])])
    ) as harness:
        root = await harness.root()
        await harness.wait_for_task(await root.commit(begin))


def check_migration(world: World) -> None:
    """It counts to the end, whichever process counted."""
    (task,) = world.records.tasks.values()
    assert task.outcome == CompletedOutcome(result=3)
    assert task.version in (1, 2)


# --- the checkout ---

CARDS: Final = ("visa", "mastercard", "amex", "maestro")
EXPIRED: Final = "mastercard"


@attrs.frozen
class Pay(Checkpoint, phase="pay"):
    """Charge the card, and wait for the bank."""


@attrs.frozen
class Open(Checkpoint, phase="open"):
    """Begin the payments."""


@attrs.frozen
class Decide(Checkpoint, phase="decide"):
    """All payments have ended."""

    payments: tuple[int, ...]


def checkout_kinds(world: World) -> tuple[type[TaskActor[str, str]], type[TaskActor[None, JSON]]]:
    """The payment and the checkout, with a bank that knows keys."""

    class Payment(TaskActor[str, str], kind="test.payment"):
        def start(self) -> Pay:
            return Pay()

        @phase(Pay)
        async def pay(self, at: Pay) -> Next[str]:
            if self.input == EXPIRED:
                await trio.sleep(1)
                return Failed("expired")
            world.effect(f"charge {self.input}", key=f"charge {self.task_id}")
            await trio.sleep(60)
            return Completed("paid")

        async def abort(self) -> Outcome:
            await trio.sleep(1)
            if world.count(f"charge {self.input}"):
                world.effect(f"refund {self.input}", key=f"refund {self.task_id}")
            return Aborted("refunded")

    class Checkout(TaskActor[None, JSON], kind="test.checkout"):
        def start(self) -> Open:
            return Open()

        @phase(Open)
        async def open(self, at: Open) -> Next[JSON]:
            def begin(tx: Tx) -> Next[JSON]:
                made = [tx.create_task(Payment, card, owner=self.task_id) for card in CARDS]
                return WaitFor(made, Decide(tuple(made)), policy="fail_fast")

            return await self.commit(begin)

        @phase(Decide)
        async def decide(self, at: Decide) -> Next[JSON]:
            ended = await self.outcomes([TaskId(payment) for payment in at.payments])
            return Completed([outcome.status for outcome in ended])

        async def abort(self) -> Outcome:
            live = [c for c in CARDS if world.count(f"charge {c}") > world.count(f"refund {c}")]
            assert not live, f"the handler of the owner came before the refunds of {live}"
            await trio.lowlevel.checkpoint()
            return Aborted("left")

    return Payment, Checkout


async def begin_checkout(world: World, harness: Harness) -> tuple[Conversation, TaskId]:
    """The one checkout of the world."""
    _, kind = checkout_kinds(world)

    async def once(tx: Tx) -> TaskId:
        begun = await tx.doc(BEGUN)
        if not begun.task_id:
            begun.task_id = tx.create_task(kind, None)
        return TaskId(begun.task_id)

    root = await harness.root()
    return root, await root.commit(once)


async def checkout(world: World) -> None:
    """A card has expired."""
    registry = Registry([Extension("shop", tasks=checkout_kinds(world))])
    async with world.open_harness(registry=registry) as harness:
        _, task_id = await begin_checkout(world, harness)
        await harness.wait_for_task(task_id)


def check_checkout(world: World) -> None:
    """The others are aborted, and whatever was charged is refunded."""
    (task,) = [t for t in world.records.tasks.values() if t.kind == "test.checkout"]
    assert task.outcome == CompletedOutcome(result=["aborted", "failed", "aborted", "aborted"])
    check_refunds(world)


def check_refunds(world: World) -> None:
    """What was charged is refunded, once by its key."""
    for card in CARDS:
        assert world.count(f"charge {card}") == world.count(f"refund {card}") <= 1


def aborted_checkout(at: int | None = None) -> Story:
    """The customer leaves: after half a second, or as soon as so many commits are stored."""

    async def story(world: World) -> None:
        registry = Registry([Extension("shop", tasks=checkout_kinds(world))])
        reached = trio.Event()

        def look(batches: Sequence[Batch]) -> None:
            if at is not None and batches[-1].number >= at:
                reached.set()

        world.on_storing = look
        async with world.open_harness(registry=registry) as harness:
            root, task_id = await begin_checkout(world, harness)
            harness.resume()
            with trio.move_on_after(0.5):
                await reached.wait()
            await root.abort(reason="left")
            assert (await harness.get_task(task_id)).outcome is not None

    return story


def check_aborted_checkout(world: World) -> None:
    """The checkout ends after its payments, and nothing that was charged is kept."""
    (task,) = [t for t in world.records.tasks.values() if t.kind == "test.checkout"]
    assert task.outcome is not None
    assert task.outcome.status in ("aborted", "completed")
    payments = [t for t in world.records.tasks.values() if t.kind == "test.payment"]
    assert all((p.ended_at_ms or 0) <= (task.ended_at_ms or 0) for p in payments)
    check_refunds(world)


# --- a tool that calls tools ---


async def nested_calls(world: World) -> None:
    """A safe tool looks a price up, then charges, each in a call of its own."""

    @tool(replay="safe", callers=["tools"])
    async def price(*, api: ToolApi) -> str:
        """Look the price up."""
        world.effect("look up", repeatable=True)
        await trio.sleep(1)
        return "42"

    @tool(callers=["tools"])
    async def charge(cents: int, *, api: ToolApi) -> str:
        """Charge the card."""
        world.effect("charge")
        await trio.sleep(1)
        return f"charged {cents}"

    @tool(replay="safe")
    async def pay(*, api: ToolApi) -> str:
        """Pay."""
        cents = text_of((await api.call("price", {}, key="price")).content)
        charged = await api.call("charge", {"cents": int(cents)}, key="charge")
        return text_of(charged.content) + (" (error)" if charged.is_error else "")

    def script(ctx: ScriptedContext) -> Reply:
        return Reply("done") if ctx.answers else calling(call("pay", "c0"))

    # A call that waits for others makes no progress of its own, so many crashes would end it.
    patient = attrs.evolve(SETTINGS, restart_limit=math.inf)
    async with conversation(world, script, price, charge, pay, settings=patient) as root:
        await (await root.submit("go", request_id="r1")).wait()


def check_nested_calls(world: World) -> None:
    """Charged at most once; what is not known is said, however often the caller is run."""
    assert statuses_of(world) == ["done"]
    result = results_of(world)["pay"]
    assert not result.is_error
    told = text_of(result.content)
    if "charged 42" in told:
        assert world.count("charge") == 1
    else:
        assert world.crashes
        assert "charge was interrupted and may have partially run" in told
        assert told.endswith("(error)")
    nested = [task for task in world.records.tasks.values() if task.kind == "pi.call"]
    assert len(nested) == 2


OWNED: Final[Mapping[str, Told]] = {
    "checkout, expired card": Told(checkout, check_checkout),
    "checkout, aborted": Told(aborted_checkout(), check_aborted_checkout),
    "subagent": Told(subagent, check_subagent),
    "subagent, aborted": Told(aborted_subagent, check_aborted_subagent),
    "subagent in the background": Told(background_subagent, check_background_subagent),
    "nested calls": Told(nested_calls, check_nested_calls),
    "migration": Told(migration, check_migration),
}

ALL: Final[Mapping[str, Told]] = {
    **STORIES,
    **OWNED,
    **NESTED,
    **DOCUMENTS,
    **BUDGETS,
    **INBOXES,
    **HOOKS,
    **COMPACTIONS,
    **QUESTIONS,
}
"""Every story of the product."""
