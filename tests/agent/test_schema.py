"""Tool signatures: what the model is told, what the tool receives, and what is refused when.

The annotations here are resolved at run time as a tool's are, so this module keeps the strings that
``from __future__ import annotations`` makes of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, IntEnum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Literal, NewType, TypeVar

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidurable_actors._json import JSON, JsonObject, check_json, decode_json, encode_json
from pidurable_actors.agent._schema import ArgumentsInvalid, ToolSignature, takes_api
from pidurable_actors.errors import DefinitionError

if TYPE_CHECKING:
    from nowhere import Elsewhere, ToolApi  # type: ignore[import-not-found]

T = TypeVar("T")
UserId = NewType("UserId", str)


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Port(IntEnum):
    HTTP = 80
    TLS = 443


@attrs.frozen(kw_only=True)
class Filters:
    """Which lines to keep."""

    level: Level
    tags: tuple[str, ...] = ()
    since_s: Annotated[float, "how far back, in seconds"] = 60.0
    limits: dict[str, int] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class ByName:
    name: str
    by: Literal["name"] = attrs.field(default="name", init=False)


@attrs.frozen(kw_only=True)
class ById:
    by: Literal["id"]
    id: int = attrs.field(validator=attrs.validators.gt(0))


def make_positive(value: int) -> int:
    return abs(value)


@attrs.define
class Private:
    _secret: int = attrs.field(converter=make_positive)
    made: list[int] = attrs.field(init=False, factory=list)


async def search(
    pattern: Annotated[str, "text to look for"],
    filters: Filters | None = None,
    who: ByName | ById | None = None,
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10,
    *,
    api: ToolApi,
) -> Elsewhere:
    """Search the logs.

    Reads, never writes.
    """


SEARCH = ToolSignature.from_function(search)


# ---- the schema ----


def test_the_schema_says_everything_that_the_signature_says() -> None:
    """The whole schema of one signature that uses most of what there is, written out."""
    filters: JsonObject = {
        "type": "object",
        "properties": {
            "level": {"type": "string", "enum": ["low", "high"]},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "since_s": {
                "type": "number",
                "description": "how far back, in seconds",
                "default": 60.0,
            },
            "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["level"],
        "additionalProperties": False,
        "description": "Which lines to keep.",
    }
    by_name: JsonObject = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "by": {"type": "string", "enum": ["name"]},
        },
        "required": ["by", "name"],
        "additionalProperties": False,
    }
    by_id: JsonObject = {
        "type": "object",
        "properties": {
            "by": {"type": "string", "enum": ["id"]},
            "id": {"type": "integer"},
        },
        "required": ["by", "id"],
        "additionalProperties": False,
    }

    assert SEARCH.parameters == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "text to look for"},
            "filters": {"anyOf": [filters, {"type": "null"}], "default": None},
            "who": {"anyOf": [by_name, by_id, {"type": "null"}], "default": None},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    }
    assert next(iter(SEARCH.parameters)) == "type"
    assert SEARCH.description == "Search the logs.\n\nReads, never writes."


def test_a_schema_is_strict_json() -> None:
    check_json(SEARCH.parameters, "parameters")


def test_a_method_and_a_wrapped_function_are_read_like_plain_ones() -> None:
    class Tools:
        async def find(self, text: str) -> None:
            """Find."""

    def logged(inner: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        @wraps(inner)
        async def outer(*args: object, **kwargs: object) -> object:
            return await inner(*args, **kwargs)

        return outer

    of_method = ToolSignature.from_function(Tools().find)
    assert of_method.parameters["required"] == ["text"]
    assert ToolSignature.from_function(logged(search)) == SEARCH


def test_a_function_without_arguments_takes_none() -> None:
    async def ping() -> None: ...

    signature = ToolSignature.from_function(ping)

    assert signature.convert({}) == {}
    assert signature.description == ""
    with pytest.raises(ArgumentsInvalid, match=r"x: unknown; no keys are known here"):
        signature.convert({"x": 1})


def test_whether_a_function_takes_the_api_is_told() -> None:
    async def ping() -> None: ...

    assert takes_api(search)
    assert not takes_api(ping)


# ---- conversion ----


def test_arguments_become_the_values_that_the_annotations_name() -> None:
    converted = SEARCH.convert(
        {
            "pattern": "x",
            "filters": {"level": "high", "tags": ["a"], "since_s": 5, "limits": {"b": 1}},
            "who": {"by": "id", "id": 7},
            "limit": 5,
        }
    )

    assert converted == {
        "pattern": "x",
        "filters": Filters(level=Level.HIGH, tags=("a",), since_s=5.0, limits={"b": 1}),
        "who": ById(by="id", id=7),
        "limit": 5,
    }
    assert type(converted["filters"].since_s) is float  # type: ignore[attr-defined]


def test_what_is_left_out_is_left_to_the_defaults() -> None:
    assert SEARCH.convert({"pattern": "x"}) == {"pattern": "x"}
    assert SEARCH.convert({"pattern": "x", "filters": {"level": "low"}}) == {
        "pattern": "x",
        "filters": Filters(level=Level.LOW),
    }


def test_the_tag_chooses_the_class_even_where_the_class_sets_it_itself() -> None:
    who = SEARCH.convert({"pattern": "x", "who": {"by": "name", "name": "n"}})["who"]

    assert who == ByName(name="n")


def test_private_fields_and_converters_work_as_in_attrs() -> None:
    async def keep(it: Private) -> None: ...

    signature = ToolSignature.from_function(keep)

    assert signature.convert({"it": {"secret": -3}}) == {"it": Private(secret=3)}
    with pytest.raises(ArgumentsInvalid, match=r"it.made: unknown; known are secret"):
        signature.convert({"it": {"secret": 1, "made": []}})


def test_a_whole_number_is_an_int_where_both_are_allowed() -> None:
    async def add(x: int | float, y: float | int | None = None) -> None: ...  # noqa: PYI041

    signature = ToolSignature.from_function(add)
    converted = signature.convert({"x": 1, "y": 1.0})

    assert [(type(value), value) for value in converted.values()] == [(int, 1), (float, 1.0)]
    assert signature.convert({"x": 2.5, "y": None}) == {"x": 2.5, "y": None}


def test_a_tool_may_change_what_it_gets() -> None:
    async def keep(value: JSON, listed: list[int]) -> None: ...

    arguments: JsonObject = {"value": {"a": [1]}, "listed": [1]}
    converted = ToolSignature.from_function(keep).convert(arguments)
    converted["value"]["a"].append(2)  # type: ignore[index]
    converted["listed"].append(2)  # type: ignore[attr-defined]

    assert arguments == {"value": {"a": [1]}, "listed": [1]}


@pytest.mark.parametrize(
    ("arguments", "path", "reason"),
    [
        ({}, "pattern", "required, but missing"),
        ({"pattern": 1}, "pattern", "expected a string, got an integer"),
        ({"patern": "x"}, "patern", "unknown; known are pattern, filters, who, limit"),
        ({"pattern": "x", "api": {}}, "api", "unknown; known are pattern, filters, who, limit"),
        ({"pattern": "x", "limit": 0}, "limit", "expected at least 1"),
        ({"pattern": "x", "limit": 101}, "limit", "expected at most 100"),
        ({"pattern": "x", "limit": "5"}, "limit", "expected an integer, got a string"),
        ({"pattern": "x", "limit": 5.0}, "limit", "expected an integer, got a number"),
        ({"pattern": "x", "limit": True}, "limit", "expected an integer, got a boolean"),
        ({"pattern": "x", "filters": 1}, "filters", "expected null or an object, got an integer"),
        (
            {"pattern": "x", "filters": {"level": "mid"}},
            "filters.level",
            'expected one of "low", "high"',
        ),
        (
            {"pattern": "x", "filters": {"level": "low", "lvl": 1}},
            "filters.lvl",
            "unknown; known are level, tags, since_s, limits",
        ),
        (
            {"pattern": "x", "filters": {"level": "low", "tags": ["a", None]}},
            "filters.tags[1]",
            "expected a string, got null",
        ),
        (
            {"pattern": "x", "filters": {"level": "low", "limits": {"a b": 1.5}}},
            'filters.limits["a b"]',
            "expected an integer, got a number",
        ),
        ({"pattern": "x", "who": {"name": "n"}}, "who.by", 'required; one of "name", "id"'),
        ({"pattern": "x", "who": {"by": "x"}}, "who.by", 'expected one of "name", "id"'),
        ({"pattern": "x", "who": {"by": "id"}}, "who.id", "required, but missing"),
        ({"pattern": "x", "who": {"by": "id", "id": 0}}, "who", "'id' must be > 0: 0"),
        ([], "", "expected an object, got an array"),
        ({"pattern": "\ud800"}, "pattern", "the text holds a lone surrogate"),
        ({"pattern": b"x"}, "pattern", "a value of type bytes is not JSON"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_the_name_of_the_field(
    arguments: JsonObject, path: str, reason: str
) -> None:
    with pytest.raises(ArgumentsInvalid) as info:
        SEARCH.convert(arguments)

    assert info.value.field_path == path
    assert info.value.reason == reason
    assert str(info.value) == f"{path or 'arguments'}: {reason}"


def test_a_class_that_refuses_without_words_is_still_named() -> None:
    async def keep(it: Mute) -> None: ...

    with pytest.raises(ArgumentsInvalid, match=r"^it: Mute refuses this$"):
        ToolSignature.from_function(keep).convert({"it": {"x": 1}})


@attrs.frozen
class Mute:
    x: int

    def __attrs_post_init__(self) -> None:
        raise ValueError


def test_a_bug_in_a_class_is_not_taken_for_a_bad_argument() -> None:
    async def keep(it: Buggy) -> None: ...

    with pytest.raises(ZeroDivisionError):
        ToolSignature.from_function(keep).convert({"it": {"x": 0}})


def invert(value: float) -> float:
    return 1 / value


@attrs.frozen
class Buggy:
    x: float = attrs.field(converter=invert)


# ---- definitions that are refused ----


def test_a_function_that_is_not_async_is_refused() -> None:
    def plain(it: int) -> None: ...

    with pytest.raises(DefinitionError, match="tool 'named by hand': a tool is an async function"):
        ToolSignature.from_function(plain, name="named by hand")


# ---- for all inputs ----

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from("abc"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
filters = st.builds(
    Filters,
    level=st.sampled_from(Level),
    tags=st.lists(st.text(max_size=3), max_size=3).map(tuple),
    since_s=st.floats(allow_nan=False, allow_infinity=False),
    limits=st.dictionaries(st.text(max_size=3), st.integers(-(2**63), 2**63 - 1), max_size=3),
)
who = st.one_of(
    st.builds(ByName, name=st.text(max_size=3)),
    st.builds(ById, by=st.just("id"), id=st.integers(1, 99)),
)


@given(st.none() | filters, st.none() | who, st.integers(1, 100))
def test_values_come_back_from_json_as_they_were(
    filters: Filters | None, who: ByName | ById | None, limit: int
) -> None:
    values = {"pattern": "x", "filters": filters, "who": who, "limit": limit}
    arguments = decode_json(encode_json(values))

    assert SEARCH.convert(arguments) == values


@given(json_values)
def test_whatever_a_model_sends_is_converted_or_refused_by_name(value: JSON) -> None:
    arguments: JsonObject = {"pattern": "x", "filters": value, "who": value}
    try:
        SEARCH.convert(arguments)
    except ArgumentsInvalid as fault:
        assert fault.field_path.split(".")[0].split("[")[0] in {"filters", "who"}
