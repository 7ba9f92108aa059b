"""A model's arguments against the schema of a tool.

Owns the check and the words of its refusals, which go to the model: each names the field and what
was expected there, and repeats no value. Pure.

Two rules are stricter than JSON Schema, because a slip should be answered and not guessed at:
``1.0`` or ``"1"`` is not an integer, and a value of a list of choices has the very type listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Final, cast

from pidurable_actors._json import JSON, JsonObject, encode_json, fingerprint
from pidurable_actors.agent._json_schema import (
    NOUNS,
    choices_of,
    kind_of,
    kinds_of,
    required_of,
)
from pidurable_actors.errors import PiDurableError

__all__ = ["ArgumentsInvalid", "check_value", "path_to"]

_SHOWN_MAX = 20  # Names or values listed in a message; the rest is counted.
_KEY_CHARS_MAX = 80  # Characters of a key in a path, since a model chooses unknown keys.


class ArgumentsInvalid(PiDurableError):
    """A model called a tool with arguments that the tool's schema refuses. The tool did not run.

    Attributes:
        field_path: where the fault is, such as ``filters.level`` or ``tags[2]``; empty for the
            arguments as a whole.
        reason: what was expected there. It repeats no value, unless a validator of the tool's own
            class does.
    """

    def __init__(self, field_path: str, reason: str) -> None:
        super().__init__(f"{field_path or 'arguments'}: {reason}")
        self.field_path = field_path
        self.reason = reason


def check_value(schema: JsonObject, value: JSON, path: str) -> None:
    """Check a value against a schema that `check_schema` returned.

    Args:
        schema: the schema.
        value: strict JSON.
        path: where the value sits; empty for the arguments as a whole.

    Raises:
        ArgumentsInvalid: at the first fault.
    """
    kinds = kinds_of(schema)
    if not _is_one_of(value, kinds):
        _refuse_kind(kinds, value, path)
    _check_choice(schema, value, path)
    if isinstance(value, str):
        _check_text(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(schema, value, path)
    elif isinstance(value, list):
        _check_items(schema, value, path)
    elif isinstance(value, dict):
        _check_object(schema, value, path)
    if "anyOf" in schema:
        _check_any(cast("list[JsonObject]", schema["anyOf"]), value, path)


def path_to(path: str, key: str) -> str:
    """The path of a key within the object at `path`."""
    if not key.isidentifier() or len(key) > _KEY_CHARS_MAX:
        return f"{path}[{encode_json(key[:_KEY_CHARS_MAX])}]"
    return f"{path}.{key}" if path else key


def _check_choice(schema: JsonObject, value: JSON, path: str) -> None:
    choices = choices_of(schema)
    if choices is not None and not any(_same(value, choice) for choice in choices):
        raise ArgumentsInvalid(path, f"expected {_one_of(choices)}")


def _check_text(schema: JsonObject, value: str, path: str) -> None:
    _check_size(schema, len(value), path, ("minLength", "maxLength", "characters"))
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and re.search(pattern, value) is None:
        raise ArgumentsInvalid(path, f"expected text that matches {pattern}")


def _check_number(schema: JsonObject, value: float, path: str) -> None:
    for keyword, (fits, words) in _BOUNDS.items():
        bound = schema.get(keyword)
        if bound is not None and not fits(value, cast(float, bound)):
            raise ArgumentsInvalid(path, f"expected {words} {bound}")


def _check_items(schema: JsonObject, value: list[JSON], path: str) -> None:
    _check_size(schema, len(value), path, ("minItems", "maxItems", "items"))
    items = schema.get("items")
    if isinstance(items, dict):
        for at, item in enumerate(value):
            check_value(items, item, f"{path}[{at}]")


def _check_object(schema: JsonObject, value: JsonObject, path: str) -> None:
    _check_size(schema, len(value), path, ("minProperties", "maxProperties", "keys"))
    properties = cast(JsonObject, schema.get("properties", {}))
    further = schema.get("additionalProperties", True)
    # Unknown keys come first: a misspelt name explains itself better than a missing one.
    if further is False:
        for key in value:
            if key not in properties:
                raise ArgumentsInvalid(path_to(path, key), f"unknown; {_known(properties)}")
    for name in required_of(schema):
        if name not in value:
            raise ArgumentsInvalid(path_to(path, name), "required, but missing")
    for key, item in value.items():
        inner = properties.get(key, further)
        if isinstance(inner, dict):
            check_value(inner, item, path_to(path, key))


def _check_size(schema: JsonObject, size: int, path: str, names: tuple[str, str, str]) -> None:
    at_least, at_most = schema.get(names[0]), schema.get(names[1])
    if isinstance(at_least, int) and size < at_least:
        raise ArgumentsInvalid(path, f"expected at least {at_least} {names[2]}, got {size}")
    if isinstance(at_most, int) and size > at_most:
        raise ArgumentsInvalid(path, f"expected at most {at_most} {names[2]}, got {size}")


def _check_any(arms: list[JsonObject], value: JSON, path: str) -> None:
    fitting = [arm for arm in arms if _is_one_of(value, kinds_of(arm))]
    if not fitting:
        _refuse_kind(frozenset().union(*map(kinds_of, arms)), value, path)
    if len(fitting) > 1 and isinstance(value, dict):
        fitting = _by_tag(fitting, value, path)
    faults: list[ArgumentsInvalid] = []
    for arm in fitting:
        try:
            check_value(arm, value, path)
        except ArgumentsInvalid as fault:
            faults.append(fault)
        else:
            return
    if len(faults) == 1:
        raise faults[0]
    said = "; or ".join(str(fault) for fault in faults[:_SHOWN_MAX])
    raise ArgumentsInvalid(path, f"fits none of the {len(arms)} allowed forms: {said}")


def _by_tag(arms: list[JsonObject], value: JsonObject, path: str) -> list[JsonObject]:
    """The arm that the value's tag names, so that a fault is told of the form that was meant."""
    tags = [_tags(arm) for arm in arms]
    for name in tags[0]:
        if not all(name in each for each in tags):
            continue
        if name not in value:
            every = [choice for each in tags for choice in each[name]]
            raise ArgumentsInvalid(path_to(path, name), f"required; {_one_of(every)}")
        named = [
            arm
            for arm, each in zip(arms, tags, strict=True)
            if any(_same(value[name], choice) for choice in each[name])
        ]
        if not named:
            every = [choice for each in tags for choice in each[name]]
            raise ArgumentsInvalid(path_to(path, name), f"expected {_one_of(every)}")
        if len(named) == 1:
            return named
    return arms


def _tags(arm: JsonObject) -> dict[str, list[JSON]]:
    """Required fields of an object whose values are listed."""
    properties = cast("dict[str, JsonObject]", arm.get("properties", {}))
    return {
        name: choices
        for name in required_of(arm)
        if name in properties and (choices := choices_of(properties[name])) is not None
    }


def _multiple(value: float, of: float) -> bool:
    # In decimal, as both are written: 0.3 is a multiple of 0.1.
    return Fraction(str(value)) % Fraction(str(of)) == 0


_BOUNDS: Final[Mapping[str, tuple[Callable[[float, float], bool], str]]] = {
    "minimum": (lambda value, bound: value >= bound, "at least"),
    "maximum": (lambda value, bound: value <= bound, "at most"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "more than"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "less than"),
    "multipleOf": (_multiple, "a multiple of"),
}


def _is_one_of(value: JSON, kinds: frozenset[str]) -> bool:
    kind = kind_of(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _refuse_kind(kinds: frozenset[str], value: JSON, path: str) -> None:
    expected = " or ".join(noun for kind, noun in NOUNS.items() if kind in kinds)
    raise ArgumentsInvalid(path, f"expected {expected}, got {NOUNS[kind_of(value)]}")


def _same(one: JSON, other: JSON) -> bool:
    if isinstance(one, list | dict):
        return isinstance(other, list | dict) and fingerprint(one) == fingerprint(other)
    return type(one) is type(other) and one == other


def _one_of(choices: Iterable[JSON]) -> str:
    words = [encode_json(choice) for choice in choices]
    return words[0] if len(words) == 1 else f"one of {_listed(words)}"


def _known(properties: JsonObject) -> str:
    return f"known are {_listed(list(properties))}" if properties else "no keys are known here"


def _listed(words: list[str]) -> str:
    more = len(words) - _SHOWN_MAX
    return ", ".join(words[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
