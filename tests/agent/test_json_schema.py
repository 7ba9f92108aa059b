"""Schemas written by hand: what is enforced, what is refused, and never anything in between."""

from __future__ import annotations

import pytest

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.agent._schema import ArgumentsInvalid, ToolSignature
from pidurable_actors.errors import DefinitionError


def signature(**properties: JSON) -> ToolSignature:
    return ToolSignature.from_schema({"type": "object", "properties": properties})


# ---- definitions ----


def test_an_object_that_does_not_say_refuses_further_keys_and_shows_it() -> None:
    tool = ToolSignature.from_schema(
        {
            "type": "object",
            "properties": {
                "closed": {"type": "object", "properties": {"a": {"type": "integer"}}},
                "open": {"type": ["object", "null"], "additionalProperties": True},
                "typed": {"type": "object", "additionalProperties": {"type": "integer"}},
                "listed": {"type": "array", "items": {"properties": {"b": {}}}},
            },
        }
    )

    properties = tool.parameters["properties"]
    assert isinstance(properties, dict)
    assert tool.parameters["additionalProperties"] is False
    assert properties["closed"]["additionalProperties"] is False  # type: ignore[index, call-overload]
    arguments: JsonObject = {
        "closed": {"a": 1},
        "open": {"x": {"y": 1}},
        "typed": {"z": 1},
        "listed": [{"b": "anything"}],
    }
    assert tool.convert(arguments) == arguments
    refused: list[tuple[JsonObject, str]] = [
        ({"further": 1}, "further"),
        ({"closed": {"b": 1}}, "closed.b"),
        ({"typed": {"z": "1"}}, "typed.z"),
        ({"listed": [{}, {"c": 1}]}, "listed[1].c"),
    ]
    for bad, path in refused:
        with pytest.raises(ArgumentsInvalid) as info:
            tool.convert(bad)
        assert info.value.field_path == path


def test_a_schema_without_properties_takes_no_arguments() -> None:
    tool = ToolSignature.from_schema({"type": "object"})

    assert tool.convert({}) == {}
    assert tool.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_annotations_are_kept_and_a_default_is_left_to_the_tool() -> None:
    text: JsonObject = {
        "type": "string",
        "title": "Text",
        "description": "what to say",
        "examples": ["hi"],
        "default": "hi",
        "deprecated": True,
    }
    tool = ToolSignature.from_schema(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **signature(text=text).parameters,
        }
    )

    assert tool.parameters["properties"] == {"text": text}
    assert tool.convert({}) == {}


def test_the_schema_of_the_author_is_not_changed() -> None:
    schema: JsonObject = {"type": "object", "properties": {"a": {"properties": {}}}}
    ToolSignature.from_schema(schema)

    assert schema == {"type": "object", "properties": {"a": {"properties": {}}}}


def test_a_tool_may_change_the_arguments_it_gets() -> None:
    arguments: JsonObject = {"a": [1]}
    signature(a={"type": "array"}).convert(arguments)["a"].append(2)  # type: ignore[attr-defined]

    assert arguments == {"a": [1]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ([], 'must have "type": "object"'),
        ({}, 'must have "type": "object"'),
        ({"type": "array"}, 'must have "type": "object"'),
        ({"type": ["object", "null"]}, 'must have "type": "object"'),
        ({"type": "object", "x": object()}, "schema.x: a value of type object is not JSON"),
        ({"type": "object", "properties": []}, "properties must be an object of schemas"),
        ({"type": "object", "anyOf": [{}]}, "anyOf beside the properties of an object"),
        ({"type": "object", "required": ["a"]}, "required names 'a', which is no property"),
    ],
)
def test_a_schema_that_is_no_object_of_arguments_is_refused(schema: JsonObject, says: str) -> None:
    with pytest.raises(DefinitionError, match=says) as info:
        ToolSignature.from_schema(schema, name="open")

    assert str(info.value).startswith("tool 'open'")


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (True, "a boolean is not a schema"),
        ({"$ref": "#/$defs/x"}, r"'\$ref' is not enforced here; write the schema out"),
        ({"oneOf": [{}]}, "'oneOf' is not enforced here; use anyOf"),
        ({"format": "uri"}, "'format' is not enforced here; use pattern"),
        ({"uniqueItems": True}, "'uniqueItems' is not enforced here; leave it out, or check it"),
        ({"typo": 1}, "'typo' is not enforced here"),
        ({"type": "text"}, "type must be one or more of array, boolean"),
        ({"type": []}, "type must be one or more of"),
        ({"type": [1]}, "type must be one or more of"),
        ({"enum": []}, "enum must be a list of values"),
        ({"required": "a"}, "required must be a list of names"),
        ({"required": [1]}, "required must be a list of names"),
        ({"minLength": -1}, "minLength must be a count"),
        ({"maxItems": True}, "maxItems must be a count"),
        ({"minimum": "1"}, "minimum must be a number"),
        ({"maximum": True}, "maximum must be a number"),
        ({"multipleOf": 0}, "multipleOf must be a number above 0"),
        ({"pattern": "("}, "pattern must be a regular expression"),
        ({"pattern": 1}, "pattern must be a regular expression"),
        ({"items": [{}]}, "items must be a schema"),
        ({"items": {"typo": 1}}, r"schema\.it\.items: the keyword 'typo'"),
        ({"anyOf": []}, "anyOf must be a list of schemas"),
        ({"anyOf": [{}, {"typo": 1}]}, r"schema\.it\.anyOf\[1\]: the keyword 'typo'"),
        ({"anyOf": [True]}, "a boolean is not a schema"),
        ({"additionalProperties": 1}, "additionalProperties must be a boolean or a schema"),
        (
            {"type": "object", "additionalProperties": {"typo": 1}},
            r"schema\.it\.additionalProperties: the keyword 'typo'",
        ),
        ({"properties": {"deep": {"typo": 1}}}, r"schema\.it\.deep: the keyword 'typo'"),
        ({"type": "object"}, "an object without properties accepts no key"),
        ({"properties": {}, "anyOf": [{}]}, "anyOf beside the properties of an object"),
    ],
    ids=str,
)
def test_what_would_not_be_enforced_is_refused_when_the_tool_is_defined(
    schema: JSON, says: str
) -> None:
    with pytest.raises(DefinitionError, match=says):
        signature(it=schema)


# ---- values ----

ACCEPTED: list[tuple[JsonObject, list[JSON], list[JSON]]] = [
    ({}, [None, 1, "x", [1], {"a": 1}], []),
    ({"type": "integer"}, [1, 0, -1], [1.0, "1", True, None]),
    ({"type": "number"}, [1, 1.5], ["1", True, None]),
    ({"type": ["integer", "null"]}, [1, None], [1.5, "x"]),
    ({"enum": ["a", 1, None, [1], {"b": 1}]}, ["a", 1, None, [1], {"b": 1}], ["b", 1.0, True, [2]]),
    ({"const": True}, [True], [1, False]),
    ({"const": [1]}, [[1]], [{}, [True]]),
    ({"minimum": 1, "maximum": 2}, [1, 1.5, 2, "x"], [0.5, 3]),
    ({"exclusiveMinimum": 1, "exclusiveMaximum": 2}, [1.5], [1, 2]),
    ({"multipleOf": 0.1}, [0.3, 2, 1e300], [0.35]),
    ({"minLength": 1, "maxLength": 2}, ["a", "\U0001f600b", 5], ["", "abc"]),
    ({"pattern": "^a"}, ["abc", 1], ["ba"]),
    ({"minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
    ({"type": "array", "items": {"type": "integer"}}, [[], [1]], [["1"]]),
    ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 1}]),
    ({"properties": {"a": {}}, "required": ["a"]}, [{"a": 1}], [{}, {"a": 1, "b": 1}, [1]]),
    ({"type": "object", "additionalProperties": True, "required": ["a"]}, [{"a": 1}], [{"b": 1}]),
    ({"anyOf": [{"type": "string"}, {"minimum": 1}]}, ["x", 1, None], [0]),
    ({"anyOf": [{"anyOf": [{"type": "string"}]}, {"enum": [1]}]}, ["x", 1], [2, None]),
    ({"anyOf": [{"minimum": 5}, {"maximum": 1}]}, [0, 6], [3]),
    ({"type": ["string", "null"], "anyOf": [{"type": "string"}]}, ["x"], [None, 1]),
]


@pytest.mark.parametrize(("schema", "good", "bad"), ACCEPTED, ids=str)
def test_each_keyword_is_enforced(schema: JsonObject, good: list[JSON], bad: list[JSON]) -> None:
    tool = signature(it=schema)
    for value in good:
        assert tool.convert({"it": value}) == {"it": value}
    for value in bad:
        with pytest.raises(ArgumentsInvalid) as info:
            tool.convert({"it": value})
        assert info.value.field_path.startswith("it")


FORMS: JsonObject = {
    "anyOf": [
        {
            "properties": {"op": {"const": "set"}, "to": {"type": "integer"}},
            "required": ["op", "to"],
        },
        {"properties": {"op": {"enum": ["delete", "clear"]}}, "required": ["op"]},
    ]
}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, 'it.op: required; one of "set", "delete", "clear"'),
        ({"op": "add"}, 'it.op: expected one of "set", "delete", "clear"'),
        ({"op": "set"}, "it.to: required, but missing"),
        ({"op": "set", "to": "1"}, "it.to: expected an integer, got a string"),
        ({"op": "clear", "to": 1}, "it.to: unknown; known are op"),
        (3, "it: expected an object, got an integer"),
    ],
    ids=str,
)
def test_a_tag_tells_which_form_was_meant(value: JSON, says: str) -> None:
    with pytest.raises(ArgumentsInvalid) as info:
        signature(it=FORMS).convert({"it": value})

    assert str(info.value) == says


def test_forms_without_a_tag_are_all_tried_and_all_told() -> None:
    tool = signature(
        it={
            "anyOf": [
                {"properties": {"a": {"const": 1}, "k": {"const": 0}}, "required": ["a", "k"]},
                {"properties": {"b": {"type": "integer"}, "k": {}}, "required": ["b"]},
            ]
        }
    )

    assert tool.convert({"it": {"b": 1}}) == {"it": {"b": 1}}
    with pytest.raises(ArgumentsInvalid) as info:
        tool.convert({"it": {"a": 2}})
    assert str(info.value) == (
        "it: fits none of the 2 allowed forms: it.k: required, but missing; or "
        "it.a: unknown; known are b, k"
    )


def test_forms_that_share_a_tag_value_are_tried_too() -> None:
    form: JsonObject = {"properties": {"op": {"const": "x"}, "n": {}}, "required": ["op"]}
    strict: JsonObject = {**form, "required": ["op", "n"]}
    tool = signature(it={"anyOf": [strict, form]})

    assert tool.convert({"it": {"op": "x"}}) == {"it": {"op": "x"}}


def test_a_key_that_a_model_made_up_cannot_flood_the_message() -> None:
    tool = signature(**{f"field_{at}": {} for at in range(1000)})

    with pytest.raises(ArgumentsInvalid, match="and 980 more") as info:
        tool.convert({"x" * 1_000_000: 1})
    assert len(str(info.value)) < 1_000
