"""The part of JSON Schema that tools use, and the check of a schema when a tool is defined.

Owns the keywords that are understood and what may stand beside them. A keyword that `_arguments`
does not enforce is refused here, never ignored. Pure.

Invariant: the schema that `check_schema` returns is shown to the model and enforced as it is. An
object in it says whether further keys are allowed: where the author did not, they are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, cast

from pidurable_actors._json import JSON, JsonObject, check_json
from pidurable_actors.errors import DefinitionError, InvalidValue

__all__ = [
    "KINDS",
    "NOUNS",
    "check_any_schema",
    "check_schema",
    "choices_of",
    "kind_of",
    "kinds_of",
    "required_of",
]

_KIND_OF: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
KINDS: Final = frozenset(_KIND_OF.values())
NOUNS: Final = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "an array",
    "object": "an object",
}


def check_schema(schema: object, where: str) -> JsonObject:
    """Check the schema of a tool's arguments.

    Args:
        schema: a JSON Schema of an object.
        where: how an error names the tool, such as ``tool 'search'``.

    Returns:
        A copy in which every object says whether further keys are allowed.

    Raises:
        DefinitionError: it is not strict JSON or not a schema of an object, or it uses a keyword
            that is not enforced here.
    """
    try:
        check_json(schema, "schema")
    except InvalidValue as error:
        raise DefinitionError(f"{where}: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise DefinitionError(f'{where}: the schema of the arguments must have "type": "object".')
    return _normal({"type": "object", "properties": {}, **schema}, f"{where}, schema")


def check_any_schema(schema: object, where: str) -> JsonObject:
    """Check the schema of a value of any kind; see `check_schema`.

    Raises:
        DefinitionError: it is not strict JSON or no schema, or it uses a keyword that is not
            enforced here.
    """
    try:
        check_json(schema, "schema")
    except InvalidValue as error:
        raise DefinitionError(f"{where}: {error}") from error
    return _normal(cast(JSON, schema), f"{where}, schema")


def kind_of(value: JSON) -> str:
    """The JSON Schema type of a value; a float is a ``number`` even when it is whole."""
    return _KIND_OF[type(value)]


def kinds_of(schema: JsonObject) -> frozenset[str]:
    """The kinds of value that a schema can accept, as far as its type and choices tell."""
    kinds = _types(schema)
    if kinds:
        return kinds
    choices = choices_of(schema)
    if choices is not None:
        return frozenset(kind_of(choice) for choice in choices)
    if "anyOf" in schema:
        arms = cast("list[JsonObject]", schema["anyOf"])
        return frozenset().union(*map(kinds_of, arms))
    return frozenset({"object"}) if "properties" in schema else KINDS


def choices_of(schema: JsonObject) -> list[JSON] | None:
    if "const" in schema:
        return [schema["const"]]
    return cast("list[JSON] | None", schema.get("enum"))


def required_of(schema: JsonObject) -> list[str]:
    return cast("list[str]", schema.get("required", []))


def _is_count(value: JSON) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_names(value: JSON) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_type(value: JSON) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in KINDS for name in names)


def _is_pattern(value: JSON) -> bool:
    if not isinstance(value, str):
        return False
    try:
        re.compile(value)
    except re.error:
        return False
    return True


_ENFORCED: Final[Mapping[str, tuple[Callable[[JSON], bool], str]]] = {
    "type": (_is_type, f"one or more of {', '.join(sorted(KINDS))}"),
    "enum": (lambda value: isinstance(value, list) and bool(value), "a list of values"),
    "const": (lambda _: True, "a value"),
    "properties": (lambda value: isinstance(value, dict), "an object of schemas"),
    "required": (_is_names, "a list of names"),
    "additionalProperties": (lambda value: isinstance(value, bool | dict), "a boolean or a schema"),
    "minProperties": (_is_count, "a count"),
    "maxProperties": (_is_count, "a count"),
    "items": (lambda value: isinstance(value, dict), "a schema"),
    "minItems": (_is_count, "a count"),
    "maxItems": (_is_count, "a count"),
    "minLength": (_is_count, "a count"),
    "maxLength": (_is_count, "a count"),
    "pattern": (_is_pattern, "a regular expression of Python"),
    "minimum": (_is_number, "a number"),
    "maximum": (_is_number, "a number"),
    "exclusiveMinimum": (_is_number, "a number"),
    "exclusiveMaximum": (_is_number, "a number"),
    "multipleOf": (lambda value: _is_number(value) and cast(float, value) > 0, "a number above 0"),
    "anyOf": (lambda value: isinstance(value, list) and bool(value), "a list of schemas"),
}
_ANNOTATIONS: Final = frozenset(
    {"$comment", "$schema", "default", "deprecated", "description", "examples", "title"}
)
_INSTEAD: Final = {
    "$ref": "write the schema out in its place",
    "$defs": "write the schema out in its place",
    "allOf": "merge it into one schema",
    "format": "use pattern, or say it in the description",
    "oneOf": "use anyOf",
    "prefixItems": "use an object with named fields",
}


def _normal(schema: JSON, where: str) -> JsonObject:
    if not isinstance(schema, dict):
        raise DefinitionError(
            f"{where}: {NOUNS[kind_of(schema)]} is not a schema; write an object."
        )
    for keyword, setting in schema.items():
        _check_keyword(keyword, setting, where)
    normal = dict(schema)
    if "items" in schema:
        normal["items"] = _normal(schema["items"], f"{where}.items")
    if "anyOf" in schema:
        arms = cast("list[JSON]", schema["anyOf"])
        normal["anyOf"] = [_normal(arm, f"{where}.anyOf[{at}]") for at, arm in enumerate(arms)]
    if "object" in _types(schema) or "properties" in schema:
        _normal_object(normal, where)
    return normal


def _check_keyword(keyword: str, setting: JSON, where: str) -> None:
    if keyword in _ANNOTATIONS:
        return
    if keyword not in _ENFORCED:
        instead = _INSTEAD.get(keyword, "leave it out, or check it in the tool")
        raise DefinitionError(f"{where}: the keyword {keyword!r} is not enforced here; {instead}.")
    fits, expected = _ENFORCED[keyword]
    if not fits(setting):
        raise DefinitionError(f"{where}: {keyword} must be {expected}.")


def _normal_object(normal: JsonObject, where: str) -> None:
    if "anyOf" in normal:
        raise DefinitionError(
            f"{where}: anyOf beside the properties of an object is not enforced here; "
            "write each form out as an object of its own."
        )
    if "properties" not in normal and "additionalProperties" not in normal:
        raise DefinitionError(
            f"{where}: an object without properties accepts no key; name its properties, or say "
            "what additionalProperties may be."
        )
    properties = cast(JsonObject, normal.get("properties", {}))
    if "properties" in normal:
        normal["properties"] = {
            name: _normal(item, f"{where}.{name}") for name, item in properties.items()
        }
    further = normal.setdefault("additionalProperties", False)
    if isinstance(further, dict):
        normal["additionalProperties"] = _normal(further, f"{where}.additionalProperties")
    missing = [name for name in required_of(normal) if name not in properties]
    if missing and further is False:
        raise DefinitionError(f"{where}: required names {missing[0]!r}, which is no property.")


def _types(schema: JsonObject) -> frozenset[str]:
    names = schema.get("type", [])
    return frozenset(cast("list[str]", names if isinstance(names, list) else [names]))
