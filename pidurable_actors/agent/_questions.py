"""Questions to people: what a tool and a hook return to ask one, and what they get for an answer.

Plain values. Returning one is how code asks: the question is stored, the call waits without code,
process or memory, and what comes later, an answer or the expiry, goes to the tool's `resume`
handler. How a question is kept and answered is in `_asked`.
"""

from __future__ import annotations

import enum
import math
from typing import Final, Literal, TypeAlias, final

import attrs

from pidurable_actors._json import JSON, JsonObject, check_json, check_text, copy_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.agent._json_schema import check_any_schema
from pidurable_actors.errors import InvalidValue
from pidurable_actors.records import ConversationId, TaskId

__all__ = [
    "EXPIRED",
    "Answer",
    "Approval",
    "Approve",
    "Ask",
    "Expired",
    "Question",
    "QuestionKind",
    "QuestionStatus",
    "WaitForSignal",
    "check_signal_name",
    "read_approval",
]

QuestionKind: TypeAlias = Literal["ask", "approve", "signal"]
QuestionStatus: TypeAlias = Literal["open", "answered", "expired", "withdrawn"]

_LONGEST_S: Final = 100 * 365 * 86_400.0


def _check_question(question: object) -> str:
    check_text(question, "question")
    if not question:
        raise InvalidValue("question", "a question has at least one character")
    return str(question)


def _check_deadline(deadline_s: object) -> float | None:
    if deadline_s is None:
        return None
    # A bool is an int to Python, and no time to anybody.
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float):
        raise InvalidValue("deadline_s", f"must be seconds, not {deadline_s!r}")
    if math.isnan(deadline_s) or not 0 < deadline_s <= _LONGEST_S:
        raise InvalidValue(
            "deadline_s", "must be above 0 and at most 100 years; leave it out to wait for ever"
        )
    return float(deadline_s)


def _check_state(state: JSON) -> JSON:
    check_json(state, "state")
    return copy_json(state)


def _check_schema(schema: JsonObject | None) -> JsonObject | None:
    return None if schema is None else check_any_schema(schema, "a question")


def check_signal_name(name: object) -> str:
    """The name of a signal.

    Raises:
        InvalidValue: it is empty, too long, or no text that can be stored.
    """
    check_text(name, "name")
    if not 1 <= len(str(name)) <= LIMITS.name_length:
        raise InvalidValue("name", f"use 1 to {LIMITS.name_length} characters")
    return str(name)


@final
@attrs.frozen
class Ask:
    """What a tool returns when it needs an answer of a person before it can go on.

    Nothing that the tool did before runs again; its `resume` handler goes on.

    Args:
        question: for the person.
        schema: a JSON Schema that the answer must fit, of any kind of value; by default any JSON.
        state: strict JSON that the `resume` handler gets back.
        deadline_s: seconds after which nobody need answer any more; by default it waits for ever.

    Raises:
        InvalidValue: a part of it cannot be stored, or the deadline means nothing.
        DefinitionError: the schema is none, or uses a keyword that is not enforced.
    """

    question: str = attrs.field(converter=_check_question)
    schema: JsonObject | None = attrs.field(default=None, converter=_check_schema, kw_only=True)
    state: JSON = attrs.field(default=None, converter=_check_state, kw_only=True)
    deadline_s: float | None = attrs.field(default=None, converter=_check_deadline, kw_only=True)


@final
@attrs.frozen
class WaitForSignal:
    """What a tool returns when it needs word of another program before it can go on.

    A signal belongs to the tool's conversation and is sent once, by `Conversation.signal`, also
    before anybody waits for it.

    Args:
        name: of the signal.
        state: strict JSON that the `resume` handler gets back.
        deadline_s: seconds after which the wait is over; by default it waits for ever.

    Raises:
        InvalidValue: a part of it cannot be stored, or the deadline means nothing.
    """

    name: str = attrs.field(converter=check_signal_name)
    state: JSON = attrs.field(default=None, converter=_check_state, kw_only=True)
    deadline_s: float | None = attrs.field(default=None, converter=_check_deadline, kw_only=True)


@final
@attrs.frozen
class Approve:
    """What a `before_tool` hook returns when a person must say yes before the call may run.

    The person is asked about the arguments as they are after all hooks, and these run once the
    answer is yes. It is ``True``, ``False``, or ``{"approved": True, "arguments": {...}}`` to
    change the arguments, or ``{"approved": False, "reason": "..."}``.

    Args:
        question: for the person.
        deadline_s: seconds after which the call is blocked; by default it waits for ever.

    Raises:
        InvalidValue: a part of it cannot be stored, or the deadline means nothing.
    """

    question: str = attrs.field(converter=_check_question)
    deadline_s: float | None = attrs.field(default=None, converter=_check_deadline, kw_only=True)


@final
@attrs.frozen
class Answer:
    """What a `resume` handler gets when the question was answered, or the signal sent.

    Attributes:
        value: the answer; it may be None.
        by: who gave it.
        at_ms: when, epoch milliseconds.
    """

    value: JSON
    by: str
    at_ms: int


# An enumeration, because type checkers know of its one member what `is EXPIRED` means.
class Expired(enum.Enum):
    """The type of `EXPIRED`."""

    EXPIRED = "expired"

    def __repr__(self) -> str:
        return "EXPIRED"


EXPIRED: Final = Expired.EXPIRED
"""What a `resume` handler gets when nobody answered in time; no answer, and not None."""


@final
@attrs.frozen(kw_only=True)
class Approval:
    """An answer to `Approve`, as it was understood; `arguments` take the place of the call's."""

    approved: bool
    arguments: JsonObject | None = None
    reason: str = ""


def read_approval(value: JSON) -> Approval:
    """What an answer to `Approve` means.

    Raises:
        InvalidValue: it means nothing.
    """
    if isinstance(value, bool):
        return Approval(approved=value)
    if not isinstance(value, dict):
        raise InvalidValue("value", 'must be True, False or {"approved": True or False, ...}')
    for key in value:
        if key not in attrs.fields_dict(Approval):
            raise InvalidValue(f"value.{key}", "an approval has approved, arguments and reason")
    approved, reason = value.get("approved"), value.get("reason", "")
    arguments = value.get("arguments")
    if not isinstance(approved, bool):
        raise InvalidValue("value.approved", "must be True or False")
    if not isinstance(reason, str):
        raise InvalidValue("value.reason", "must be text")
    if "arguments" in value and not isinstance(arguments, dict):
        raise InvalidValue("value.arguments", "must be an object")
    if isinstance(arguments, dict) and not approved:
        raise InvalidValue("value.arguments", "a call that is not approved has no arguments")
    return Approval(
        approved=approved,
        arguments=arguments if isinstance(arguments, dict) else None,
        reason=reason,
    )


@final
@attrs.frozen(kw_only=True)
class Question:
    """A question as it is stored.

    Attributes:
        id: what it is answered by.
        kind: ``ask`` of a tool, ``approve`` of a hook, or ``signal``.
        conversation_id: where it was asked.
        task_id: the task of the call.
        call_id: the model's id of the call; of a nested one, that of the call that it is made for.
        tool_name: the tool.
        text: what is asked; for a signal, its name.
        schema: what an answer must fit; None for any.
        arguments: of the call.
        fingerprint: a digest of these arguments.
        asked_at_ms: when it was asked.
        deadline_ms: until when it can be answered; None for ever.
        status: ``open``, ``answered``, ``expired`` or ``withdrawn`` (the call ended first).
        value: the answer.
        by: who answered.
        answered_at_ms: when it was answered, expired or was withdrawn; None while it is open.
    """

    id: str
    kind: QuestionKind
    conversation_id: ConversationId
    task_id: TaskId
    call_id: str
    tool_name: str
    text: str
    schema: JsonObject | None = None
    arguments: JsonObject
    fingerprint: str
    asked_at_ms: int
    deadline_ms: int | None = None
    status: QuestionStatus = "open"
    value: JSON = None
    by: str | None = None
    answered_at_ms: int | None = None
