"""Annotations: each has one JSON form, or is refused with the form to write instead.

Parameters that no annotation could save are refused the same way.
"""

from __future__ import annotations

import datetime as dt
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NewType, TypeVar

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.agent._annotations import form_of
from pidurable_actors.agent._arguments import check_value
from pidurable_actors.agent._schema import ArgumentsInvalid, ToolSignature
from pidurable_actors.errors import DefinitionError

if TYPE_CHECKING:
    from nowhere import Elsewhere  # type: ignore[import-not-found]

T = TypeVar("T")
UserId = NewType("UserId", str)


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Port(IntEnum):
    HTTP = 80
    TLS = 443


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (UserId, {"type": "string"}),
        (JSON, {}),
        (
            typing.Optional[int],  # noqa: UP045
            {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        ),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (
            Literal["a", 1, None],  # noqa: PYI061
            {"enum": ["a", 1, None]},
        ),
        (Port, {"type": "integer", "enum": [80, 443]}),
        (TypeAliasType("Ids", list[int]), {"type": "array", "items": {"type": "integer"}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (Mapping[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (JsonObject, {"type": "object", "additionalProperties": True}),
        (
            Annotated[int | None, "maybe"],
            {
                "anyOf": [{"type": "integer"}, {"type": "null"}],
                "description": "maybe",
            },
        ),
        (
            Annotated[list[str], msgspec.Meta(min_length=1)],
            {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
            },
        ),
        (
            Annotated[str, msgspec.Meta(pattern="^x", description="starts with x")],
            {
                "type": "string",
                "pattern": "^x",
                "description": "starts with x",
            },
        ),
        (
            Annotated[Level, msgspec.Meta(title="Level")],
            {
                "type": "string",
                "enum": ["low", "high"],
                "title": "Level",
            },
        ),
    ],
    ids=str,
)
def test_each_annotation_has_its_schema(annotation: object, schema: JsonObject) -> None:
    assert form_of(annotation, "here").schema == schema


@attrs.frozen(kw_only=True)
class ById:
    by: Literal["id"]
    id: int


@attrs.frozen
class Node:
    children: list[Node]


@attrs.frozen
class Untagged:
    name: str


@attrs.frozen
class SameTag:
    by: Literal["id"]


@attrs.frozen
class Box(Generic[T]):
    inside: T


@attrs.frozen
class Hidden:
    it: Elsewhere


class Mixed(Enum):
    A = "a"
    B = 2.5


Plain = attrs.make_class("Plain", {"x": attrs.field()})


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (bytes, "bytes has no JSON form here; take a str and decode it"),
        (dt.datetime, "take a str in ISO 8601"),
        (Callable[[int], int], "take the name of what to do"),
        (list, "say what is in it, as in list"),
        (typing.List, "say what is in it, as in list"),  # noqa: UP006
        (dict[int, str], "its keys are text"),
        (tuple[int, str], "use tuple"),
        (set[int], "use list"),
        (object, "use JSON"),
        (T, "use one of: str, int"),
        ([int], "use one of: str, int"),
        (Box[int], "use one of: str, int"),
        (Literal[b"x"], "use text, integers, booleans or None"),
        (Mixed, "the members of Mixed need text or integers as values"),
        (str | Level, "both a JSON string"),
        (list[int] | list[str], "both a JSON array"),
        (Untagged | ById, "need a tag"),
        (ById | SameTag, "need a tag"),
        (dict[str, int] | ById, "need a tag"),
        (Node, r"'it'\.children\[\]: Node contains itself"),
        (Hidden, r"'it' \(Hidden\): the annotation cannot be resolved"),
        (Plain, r"'it'\.x: the field of Plain needs an annotation"),
        (Annotated[int, "fine", object()], "says nothing that is enforced here"),
        (Annotated[int, {"ge": 1}], "says nothing that is enforced here"),
        (Annotated[str, msgspec.Meta(ge=1)], "does not fit here"),
        (Annotated[Level, msgspec.Meta(min_length=1)], "does not fit here"),
        (Annotated[int, msgspec.Meta(extra_json_schema={"format": "int8"})], "'format'"),
    ],
    ids=str,
)
def test_an_annotation_without_a_json_form_is_refused_with_what_to_write(
    annotation: object, says: str
) -> None:
    async def tool(it: object) -> None: ...

    tool.__annotations__["it"] = annotation
    with pytest.raises(DefinitionError, match=says) as info:
        ToolSignature.from_function(tool)

    assert str(info.value).startswith("tool 'tool', ")
    assert "it" in str(info.value)


async def unannotated(it) -> None: ...  # type: ignore[no-untyped-def]
async def listed(*it: int) -> None: ...
async def named(**it: int) -> None: ...
async def positional(it: int, /) -> None: ...
async def foreign(it: Elsewhere) -> None: ...
async def loose_api(api: object) -> None: ...
async def wrong_default(it: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
async def out_of_bounds(it: Annotated[int, msgspec.Meta(ge=1)] = 0) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (unannotated, "'it': it has no annotation; annotate it, as in `it: str`"),
        (listed, r"'it': a model passes no \*args; take one parameter with a list"),
        (named, r"'it': a model passes only what is named; .* dict\[str, X\]"),
        (positional, "'it': arguments are passed by name; remove the `/`"),
        (foreign, "'it': the annotation cannot be resolved .*not only for type checkers"),
        (loose_api, r"'api': the api is passed by keyword; write `\*, api`"),
        (wrong_default, "'it': the default does not fit the annotation .*got null"),
        (out_of_bounds, "'it': the default does not fit the annotation .*at least 1"),
    ],
)
def test_a_parameter_that_cannot_be_described_is_refused_with_what_to_do(
    function: Callable[..., object], says: str
) -> None:
    with pytest.raises(DefinitionError, match=f"^tool '{function.__name__}', parameter {says}"):
        ToolSignature.from_function(function)


def test_a_default_is_shown_as_json() -> None:
    async def keep(
        level: Level = Level.HIGH,
        tags: tuple[str, ...] = ("a",),
        limits: Mapping[str, int] = {"b": 1},
    ) -> None: ...

    properties = ToolSignature.from_function(keep).parameters["properties"]

    assert isinstance(properties, dict)
    shown = [typing.cast(JsonObject, it)["default"] for it in properties.values()]
    assert shown == ["high", ["a"], {"b": 1}]


def test_a_default_that_json_cannot_say_is_not_shown() -> None:
    async def keep(it: ById | None = ById(by="id", id=1)) -> None: ...

    properties = ToolSignature.from_function(keep).parameters["properties"]

    assert "default" not in properties["it"]  # type: ignore[index, call-overload, operator]


# ---- against an independent witness ----

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from("abc"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
WITNESSED: list[object] = [
    int,
    float,
    bool,
    str | None,
    list[int],
    tuple[float, ...],
    dict[str, bool],
    Literal["a", "b"],
    Literal[1, 2],
    list[dict[str, int | str | None]],
    Annotated[int, msgspec.Meta(gt=0, lt=3)],
    Annotated[float, msgspec.Meta(ge=0, multiple_of=2)],
    Annotated[str, msgspec.Meta(pattern="a|b")],
    Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)],
    Any,
]


@given(st.sampled_from(WITNESSED), json_values)
def test_msgspec_accepts_and_builds_the_same_of_what_it_knows(
    annotation: object, value: JSON
) -> None:
    form = form_of(annotation, "here")
    try:
        expected: object = msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        with pytest.raises(ArgumentsInvalid):
            check_value(form.schema, value, "")
    else:
        check_value(form.schema, value, "")
        built = form.build(value, "")
        assert (type(built), built) == (type(expected), expected)
