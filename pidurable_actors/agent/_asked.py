"""How questions are kept: their documents, and what asking, answering and ending one writes.

Functions of a transaction. A question is a document of the session, found by its id; another one
lists those that are open, so that nobody reads all that ever were; the live document of the
conversation shows its own. All three, and the task that waits, change in one commit.

Invariant: a question has one end. The clock of the commit decides between an answer and the
deadline, and the order of commits between two answers.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

import attrs

from pidurable_actors._json import JSON, JsonObject, check_json, check_text, copy_json
from pidurable_actors.agent._agent import resolve_agent
from pidurable_actors.agent._arguments import ArgumentsInvalid, check_value
from pidurable_actors.agent._documents import AGENT, LIVE, QuestionSlot
from pidurable_actors.agent._questions import (
    Approval,
    Question,
    QuestionKind,
    QuestionStatus,
    check_signal_name,
    read_approval,
)
from pidurable_actors.agent._services import AgentServices
from pidurable_actors.errors import (
    AlreadyAnswered,
    InvalidValue,
    MisuseError,
    StorageRequestError,
)
from pidurable_actors.records import ConversationId, Sleeping, TaskId
from pidurable_actors.session import Tx, define_doc

__all__ = [
    "OPEN_QUESTIONS",
    "QUESTION",
    "SIGNAL",
    "OpenQuestion",
    "OpenQuestionsState",
    "QuestionState",
    "SignalState",
    "answer_question",
    "ask_question",
    "check_question_id",
    "end_question",
    "find_question",
    "question_of",
    "send_signal",
]

_ID: Final = re.compile("[1-9][0-9]*[.][1-9][0-9]*")


@attrs.define
class QuestionState:
    """A question: ``pi.question``, keyed by its id; see `Question` for the fields.

    `number` is the how manyth of the storage it is.
    """

    kind: QuestionKind = "ask"
    conversation_id: int = 0
    task_id: int = 0
    call_id: str = ""
    tool_name: str = ""
    text: str = ""
    schema: JSON = None
    arguments: JSON = attrs.field(factory=dict)
    fingerprint: str = ""
    asked_at_ms: int = 0
    deadline_ms: int | None = None
    status: QuestionStatus = "open"
    value: JSON = None
    by: str | None = None
    answered_at_ms: int | None = None
    number: int = 0


@attrs.define
class OpenQuestion:
    """An open question, where it was asked, and the how manyth of the storage it is."""

    id: str = ""
    conversation_id: int = 0
    number: int = 0


@attrs.define
class OpenQuestionsState:
    """The open questions of the storage, oldest first: ``pi.open-questions``; `asked` counts all.

    A list, whose changes cost the same however long it is.
    """

    asked: int = 0
    open: list[OpenQuestion] = attrs.field(factory=list)


@attrs.define
class SignalState:
    """A signal of a conversation: ``pi.signal``, keyed by its name.

    `by` is None until it is sent; `waiting` are the questions that wait for that.
    """

    value: JSON = None
    by: str | None = None
    at_ms: int | None = None
    waiting: list[str] = attrs.field(factory=list)


QUESTION: Final = define_doc("pi.question", QuestionState, scope="session")
OPEN_QUESTIONS: Final = define_doc("pi.open-questions", OpenQuestionsState, scope="session")
SIGNAL: Final = define_doc("pi.signal", SignalState)


def question_of(question_id: str, state: QuestionState) -> Question:
    """The record of a stored question.

    Raises:
        StorageRequestError: there is none with this id.
    """
    if not state.task_id:
        raise StorageRequestError(f"there is no question {question_id!r}.")
    return Question(
        id=question_id,
        kind=state.kind,
        conversation_id=ConversationId(state.conversation_id),
        task_id=TaskId(state.task_id),
        call_id=state.call_id,
        tool_name=state.tool_name,
        text=state.text,
        schema=cast("JsonObject | None", _plain(state.schema)),
        arguments=cast(JsonObject, _plain(state.arguments)),
        fingerprint=state.fingerprint,
        asked_at_ms=state.asked_at_ms,
        deadline_ms=state.deadline_ms,
        status=state.status,
        value=_plain(state.value),
        by=state.by,
        answered_at_ms=state.answered_at_ms,
    )


def check_question_id(question_id: object) -> str:
    """The id of a question, in the one form that ids have.

    Raises:
        StorageRequestError: no question has such an id.
    """
    if not isinstance(question_id, str):
        raise StorageRequestError(
            f"the id of a question is text, such as question.id, not {type(question_id).__name__}."
        )
    if not _ID.fullmatch(question_id):
        raise StorageRequestError(f"there is no question {question_id!r}.")
    return question_id


async def find_question(tx: Tx, question_id: str) -> Question:
    """A question by its id.

    Raises:
        StorageRequestError: there is none.

    Durability: what is returned is admitted.

    Cancellation: the commit rolls back.
    """
    known = check_question_id(question_id)
    return question_of(known, await tx.doc(QUESTION, key=known))


async def ask_question(tx: Tx, question: Question) -> Question:
    """Store a new question; one that waits for a signal that was sent before has its end at once.

    Returns:
        The question as it is stored.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    if question.kind == "signal":
        signal = await tx.doc(SIGNAL, question.conversation_id, question.text)
        if signal.by is not None:
            question = attrs.evolve(
                question,
                status="answered",
                value=_plain(signal.value),
                by=signal.by,
                answered_at_ms=signal.at_ms,
            )
        else:
            signal.waiting.append(question.id)
    listed = await tx.doc(OPEN_QUESTIONS)
    listed.asked += 1
    state = await tx.doc(QUESTION, key=question.id)
    state.number = listed.asked
    for name in attrs.fields_dict(QuestionState):
        if name != "number":
            setattr(state, name, getattr(question, name))
    if question.status == "open":
        listed.open.append(
            OpenQuestion(
                id=question.id, conversation_id=question.conversation_id, number=listed.asked
            )
        )
        live = await tx.doc(LIVE, question.conversation_id)
        live.questions[question.id] = QuestionSlot(
            kind=question.kind,
            text=question.text,
            tool_name=question.tool_name,
            deadline_ms=question.deadline_ms,
        )
        if live.run is not None:
            live.run.pause(tx.now_ms)
    return question


async def end_question(
    tx: Tx, question: Question, status: QuestionStatus, *, value: JSON = None, by: str | None = None
) -> Question:
    """Give an open question its end.

    Returns:
        The question as it is stored.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    state = await tx.doc(QUESTION, key=question.id)
    assert state.status == "open", "a question has one end"
    state.status, state.value, state.by, state.answered_at_ms = status, value, by, tx.now_ms
    listed = (await tx.doc(OPEN_QUESTIONS)).open
    del listed[bisect_left(listed, state.number, key=lambda it: it.number)]
    live = await tx.doc(LIVE, question.conversation_id)
    live.questions.pop(question.id, None)
    if live.run is not None and not live.questions:
        live.run.unpause(tx.now_ms)
    if question.kind == "signal":
        signal = await tx.doc(SIGNAL, question.conversation_id, question.text)
        if question.id in signal.waiting:
            signal.waiting.remove(question.id)
    return question_of(question.id, state)


async def answer_question(
    tx: Tx, services: AgentServices, question_id: str, value: JSON, by: str
) -> Question:
    """Answer a question, and wake the task that waits for it.

    Returns:
        The question as it is stored.

    Raises:
        StorageRequestError: there is no such question.
        AlreadyAnswered: it has its end, its deadline has come, or its call is being aborted.
        InvalidValue: the value does not fit, or cannot be stored.
        MisuseError: it waits for a signal.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    check_json(value, "value")
    _check_by(by)
    question = await find_question(tx, question_id)
    if question.kind == "signal":
        raise MisuseError(
            f"question {question_id!r} waits for a signal; send it with "
            f"conversation.signal({question.text!r}, value, by=...)."
        )
    await _refuse_ended(tx, question)
    if question.kind == "approve":
        await _check_approval(tx, services, question, read_approval(value))
    elif question.schema is not None:
        _fit(lambda: check_value(cast(JsonObject, question.schema), value, "value"), "")
    answered = await end_question(tx, question, "answered", value=copy_json(value), by=by)
    await _wake(tx, question.task_id)
    return answered


async def send_signal(
    tx: Tx, conversation_id: ConversationId, name: str, value: JSON, by: str
) -> None:
    """Send a signal of a conversation, and wake the tasks that wait for it.

    Raises:
        AlreadyAnswered: it was sent before.
        InvalidValue: a part of it cannot be stored.

    Durability: stored with the commit of `tx`.

    Cancellation: the commit rolls back.
    """
    check_json(value, "value")
    _check_by(by)
    signal = await tx.doc(SIGNAL, conversation_id, check_signal_name(name))
    if signal.by is not None:
        raise AlreadyAnswered(
            name, "answered", value=_plain(signal.value), by=signal.by, at_ms=signal.at_ms
        )
    for question_id in list(signal.waiting):
        question = await find_question(tx, question_id)
        with suppress(AlreadyAnswered):
            await _refuse_ended(tx, question)
            await end_question(tx, question, "answered", value=copy_json(value), by=by)
            await _wake(tx, question.task_id)
    signal.value, signal.by, signal.at_ms = copy_json(value), by, tx.now_ms


async def _check_approval(
    tx: Tx, services: AgentServices, question: Question, approval: Approval
) -> None:
    """Check the arguments that a person wrote against the tool's schema, when the tool is here."""
    if approval.arguments is None:
        return
    state = await tx.doc(AGENT, question.conversation_id)
    tool = resolve_agent(services.registry, services.settings(), state).tools.get(
        question.tool_name
    )
    if tool is not None:
        arguments, signature = approval.arguments, tool.signature
        _fit(lambda: signature.convert(arguments), "value.arguments")


def _fit(check: Callable[[], object], path: str) -> None:
    try:
        check()
    except ArgumentsInvalid as error:
        where = ".".join(part for part in (path, error.field_path) if part)
        raise InvalidValue(where, error.reason) from error


def _check_by(by: object) -> None:
    check_text(by, "by")
    if not by:
        raise InvalidValue("by", "say who it is from")


async def _refuse_ended(tx: Tx, question: Question) -> None:
    if question.status != "open":
        raise AlreadyAnswered(
            question.id,
            question.status,
            value=question.value,
            by=question.by,
            at_ms=question.answered_at_ms,
        )
    if question.deadline_ms is not None and question.deadline_ms <= tx.now_ms:
        raise AlreadyAnswered(question.id, "expired", at_ms=question.deadline_ms)
    if (await tx.task(question.task_id)).abort_requested:
        # Its end is decided, though not stored: nobody would hear the answer.
        raise AlreadyAnswered(question.id, "withdrawn")


async def _wake(tx: Tx, task_id: TaskId) -> None:
    """Make a task that sleeps on a question due; one that runs will see the answer."""
    record = await tx.task(task_id)
    if isinstance(record.state, Sleeping):
        tx.tasks.put(attrs.evolve(record, state=attrs.evolve(record.state, until_ms=tx.now_ms)))


def _plain(value: object) -> JSON:
    """A JSON value of a draft or a revision, as plain lists and dicts."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return cast(JSON, value)
