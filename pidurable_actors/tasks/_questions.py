"""The questions of a tool call: the checkpoints at which it waits, and how it asks and goes on.

A call that waits is a sleeper at a checkpoint of its own: it costs a row in storage and one in the
index, and no code. Its question is stored in the commit in which it falls asleep; whoever answers
makes it due in the commit that stores the answer. What it finds when it wakes is decided in one
commit, in which an expiry is stored before anything else happens.

What a call does with an answer is in `tool`; how questions are kept is in the agent room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

import attrs

from pidurable_actors._json import JSON, JsonObject, copy_json, fingerprint
from pidurable_actors.agent import (
    AGENT,
    EXPIRED,
    LIVE,
    QUESTION,
    AgentServices,
    Answer,
    Approve,
    Ask,
    Caller,
    Expired,
    Question,
    QuestionKind,
    Replay,
    Tool,
    ToolResult,
    ToolSlot,
    WaitForSignal,
    ask_question,
    end_question,
    find_question,
    question_of,
    read_approval,
    resolve_agent,
)
from pidurable_actors.records import NEVER_MS, TaskRecord
from pidurable_actors.runtime import Checkpoint, ServiceLookup, SleepUntil, checkpoint_in, from_json
from pidurable_actors.session import Tx
from pidurable_actors.tasks._tool_results import ToolInput, as_result
from pidurable_actors.tasks._tool_run import Paused, ToolRun

__all__ = [
    "Approval",
    "Asked",
    "Came",
    "Execute",
    "Intent",
    "Resume",
    "Started",
    "ask_approval",
    "ask_back",
    "look_at_question",
    "may_have_run",
    "missing_tool",
    "no_handler",
    "take_over",
    "what_came",
    "withdraw_question",
]

Came: TypeAlias = ToolResult | Ask | WaitForSignal
"""What a tool comes to: its result, or a question."""


@attrs.frozen
class Intent(Checkpoint):
    """What will be run, and what may be done if it is cut off."""

    arguments: JsonObject
    replay: Replay
    key: str


@attrs.frozen
class Execute(Intent, phase="execute"):
    """The intent: the tool is to be run."""


@attrs.frozen
class Started(Intent):
    """A call that has asked: the question, what the tool wants back, and what its run had done."""

    question: str
    state: JSON
    paused: Paused


@attrs.frozen
class Asked(Started, phase="asked"):
    """It waits for the answer to a tool's question, or for a signal."""


@attrs.frozen
class Resume(Started, phase="resume"):
    """The intent after an answer: the tool's handler is to be run."""


@attrs.frozen
class Approval(Checkpoint, phase="approval"):
    """It waits for a person's yes; `asks` are the questions of other hooks that come after it."""

    arguments: JsonObject
    question: str
    asks: list[Approve]


def what_came(tool: Tool, value: object) -> Came:
    """What a tool or its handler returned.

    Raises:
        TypeError: it is neither a result nor a question, or nobody could go on after the question.
        InvalidValue: a part of it is not strict JSON.
    """
    if not isinstance(value, Ask | WaitForSignal):
        return as_result(tool.name, value)
    if tool.on_resume is None:
        raise TypeError(no_handler(tool))
    return value


def no_handler(tool: Tool) -> str:
    """What is said of a tool that asks, and could not go on with the answer."""
    return (
        f"tool {tool.name} has no handler for the answer to its question; "
        f"add one with @{tool.name}.resume"
    )


def may_have_run(task: TaskRecord) -> str:
    """What must be said of a call whose intent was stored and whose result is not known."""
    started = Execute.phase_name, Asked.phase_name, Resume.phase_name
    return (
        " and may have partially run" if (checkpoint_in(task) or {}).get("phase") in started else ""
    )


async def ask_back(
    tx: Tx, task: TaskRecord, asks: Ask | WaitForSignal, at: Intent, run: ToolRun
) -> SleepUntil:
    """Store the question that a tool returned, with all that its run has shown so far.

    Returns:
        The step to take.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    run.write(await tx.doc(LIVE, task.conversation_id))
    made = await _ask(tx, task, asks, at.arguments)
    return _sleep(
        tx,
        made,
        Asked(
            arguments=at.arguments,
            replay=at.replay,
            key=at.key,
            question=made.id,
            state=copy_json(asks.state),
            paused=run.paused,
        ),
    )


async def ask_approval(
    tx: Tx, task: TaskRecord, arguments: JsonObject, asks: Sequence[Approve]
) -> SleepUntil:
    """Store the first of some questions that hooks have about a call.

    Returns:
        The step to take.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    first, *others = asks
    made = await _ask(tx, task, first, arguments)
    return _sleep(tx, made, Approval(arguments=arguments, question=made.id, asks=others))


async def look_at_question(tx: Tx, at: Asked | Approval) -> SleepUntil | Question:
    """What a call finds that was woken: its question with its end, or the step to take first.

    An expiry is stored here, before anything else happens.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    found = await find_question(tx, at.question)
    if found.status != "open":
        return found
    if found.deadline_ms is None or tx.now_ms < found.deadline_ms:
        return _sleep(tx, found, at)
    return _sleep(tx, await end_question(tx, found, "expired"), at)


async def withdraw_question(tx: Tx, task: TaskRecord) -> None:
    """Withdraw the question that a call waits for, when the call ends without its answer.

    Reads with care: it also runs when the task ends because what it would read is damaged.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    question_id = (checkpoint_in(task) or {}).get("question")
    if isinstance(question_id, str):
        state = await tx.doc(QUESTION, key=question_id)
        if state.task_id == task.id and state.status == "open":
            await end_question(tx, question_of(question_id, state), "withdrawn")


async def missing_tool(
    tx: Tx, task: TaskRecord, services: ServiceLookup, called_by: Caller
) -> str | None:
    """Why a call whose question has its end cannot go on here; None when it can, or need not.

    Durability: stores nothing.

    Cancellation: nothing happened.
    """
    at = checkpoint_in(task) or {}
    question_id = at.get("question")
    if at.get("phase") not in (Asked.phase_name, Approval.phase_name):
        return None
    # What is damaged is for the phase to find, whose fault it then is.
    if not isinstance(question_id, str) or not (await tx.doc(QUESTION, key=question_id)).task_id:
        return None
    question = await find_question(tx, question_id)
    if question.status == "open":
        return None
    if question.kind == "approve":
        denied = question.status != "answered" or not read_approval(question.value).approved
        if denied or at.get("asks"):
            return None
    provided = services(AgentServices)
    name = from_json(task.input, ToolInput, "input").tool_name
    state = await tx.doc(AGENT, task.conversation_id)
    if resolve_agent(provided.registry, provided.settings(), state).tool(name, called_by):
        return None
    if name in provided.registry.tools(called_by=called_by):
        return f"tool {name!r} is not among those that the conversation has chosen"
    return f"tool {name!r} is not installed"


async def take_over(tx: Tx, task: TaskRecord, run: ToolRun, at: Resume) -> Answer | Expired:
    """Let a run go on where the one that asked stopped.

    Returns:
        What the handler of the tool is told of its question.

    Durability: stores nothing.

    Cancellation: nothing happened.
    """
    live = await tx.doc(LIVE, task.conversation_id)
    run.go_on(at.paused, live.tools.get(str(task.id), ToolSlot()))
    question = await find_question(tx, at.question)
    if question.status != "answered":
        return EXPIRED
    assert question.by is not None, "an answer has its author"
    assert question.answered_at_ms is not None, "and its time"
    return Answer(question.value, question.by, question.answered_at_ms)


async def _ask(
    tx: Tx, task: TaskRecord, asks: Ask | Approve | WaitForSignal, arguments: JsonObject
) -> Question:
    kind, text, schema = _what_is_asked(asks)
    called = from_json(task.input, ToolInput, "input")
    live = await tx.doc(LIVE, task.conversation_id)
    slot = live.tools.setdefault(str(task.id), ToolSlot(called.call_id, called.tool_name))
    slot.asked += 1
    deadline_ms = None
    if asks.deadline_s is not None:
        deadline_ms = tx.now_ms + max(1, round(asks.deadline_s * 1000))
    question = Question(
        id=f"{task.id}.{slot.asked}",
        kind=kind,
        conversation_id=task.conversation_id,
        task_id=task.id,
        call_id=called.call_id,
        tool_name=called.tool_name,
        text=text,
        schema=schema,
        arguments=arguments,
        fingerprint=fingerprint(arguments),
        asked_at_ms=tx.now_ms,
        deadline_ms=deadline_ms,
    )
    return await ask_question(tx, question)


def _what_is_asked(
    asks: Ask | Approve | WaitForSignal,
) -> tuple[QuestionKind, str, JsonObject | None]:
    match asks:
        case Ask():
            return "ask", asks.question, asks.schema
        case Approve():
            return "approve", asks.question, None
        case WaitForSignal():
            return "signal", asks.name, None
    assert_never(asks)


def _sleep(tx: Tx, question: Question, at: Asked | Approval) -> SleepUntil:
    """Sleep until the question has its end; with it, only until the task is reserved again."""
    if question.status != "open":
        # Through a reservation, which finds out whether the tool is here.
        return SleepUntil(tx.now_ms, at)
    return SleepUntil(NEVER_MS if question.deadline_ms is None else question.deadline_ms, at)
