"""Questions as values: what a tool and a hook may return, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pytest import mark, raises

from pidurable_actors import EXPIRED, Answer, Approve, Ask, Expired, Tool, WaitForSignal, tool
from pidurable_actors.errors import DefinitionError, InvalidValue

KINDS: list[Callable[..., Any]] = [Ask, Approve, WaitForSignal]


@mark.parametrize("kind", KINDS)
@mark.parametrize(
    "deadline_s", [0, -1, math.nan, math.inf, -math.inf, True, "60", 101 * 365 * 86_400]
)
def test_a_deadline_is_a_time_that_comes(kind: Callable[..., Any], deadline_s: Any) -> None:
    with raises(InvalidValue) as refused:
        kind("name", deadline_s=deadline_s)
    assert refused.value.path == "deadline_s"


@mark.parametrize("kind", KINDS)
@mark.parametrize("text", ["", None, 7, "\ud800", ["a"]])
def test_a_question_is_text(kind: Callable[..., Any], text: Any) -> None:
    with raises(InvalidValue) as refused:
        kind(text)
    assert refused.value.path in ("question", "name")


@mark.parametrize("kind", [Ask, WaitForSignal])
def test_a_state_is_json_that_nobody_changes_behind_its_back(kind: Callable[..., Any]) -> None:
    with raises(InvalidValue) as refused:
        kind("name", state={"when": {1, 2}})
    assert refused.value.path == "state.when"
    state = {"n": [1]}
    made = kind("name", state=state)
    state["n"].append(2)
    assert made.state == {"n": [1]}


@mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"enum": ["yes", "no", None]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"type": "array", "items": {"type": "string"}},
        {},
    ],
)
def test_a_schema_describes_a_value_of_any_kind(schema: Any) -> None:
    assert Ask("What?", schema=schema).schema == schema


def test_an_object_in_a_schema_says_whether_further_keys_are_allowed() -> None:
    made = Ask("Who?", schema={"type": "object", "properties": {"name": {"type": "string"}}})
    assert made.schema is not None
    assert made.schema["additionalProperties"] is False


@mark.parametrize(
    "schema", [7, [], {"type": "text"}, {"$ref": "#/x"}, {"type": "object"}, {"enum": {1}}]
)
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with raises(DefinitionError, match="a question"):
        Ask("What?", schema=schema)


def test_an_expiry_is_no_answer_and_not_none() -> None:
    values: list[object] = [EXPIRED, None, Answer(None, "ann", 1)]
    assert [isinstance(value, Expired) for value in values] == [True, False, False]
    assert values.count(EXPIRED) == 1
    assert repr(EXPIRED) == "EXPIRED"


def test_a_handler_for_the_answer_is_given_by_a_decorator_or_by_name() -> None:
    async def run() -> str:
        """Run."""
        return ""

    async def go_on(*_: object) -> str:
        return ""

    decorated = tool("run")(run)
    assert Tool("run", run).on_resume is None
    assert decorated.resume(go_on) is go_on
    assert decorated.on_resume is go_on
    assert Tool("run", run, resume=go_on).on_resume is go_on
    assert decorated.around(lambda call, arguments, api: call()).on_resume is go_on


async def _too_few(answer: object) -> str:
    return ""


async def _named(answer: object, state: object, arguments: object, *, api: object) -> str:
    return ""


def _plain(*_: object) -> str:
    return ""


@mark.parametrize("handler", [_too_few, _named, _plain, "go on", 7])
def test_a_handler_that_could_not_take_the_answer_is_refused_when_it_is_defined(
    handler: Any,
) -> None:
    async def run() -> str:
        """Run."""
        return ""

    with raises(DefinitionError, match="tool 'run': a resume handler"):
        tool("run")(run).resume(handler)
    with raises(DefinitionError, match="tool 'run': a resume handler"):
        Tool("run", run, resume=handler)
