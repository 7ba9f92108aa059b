"""Strict JSON: what may be stored is known before it is, and comes back as it was."""

from __future__ import annotations

import enum
import json
import math
from collections import OrderedDict, UserDict
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings

from pidurable_actors._json import (
    JSON,
    check_json,
    copy_json,
    decode_json,
    encode_json,
    fingerprint,
)
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import InvalidValue
from tests.records import strategies

quick = settings(max_examples=100, deadline=None)


class Colour(enum.IntEnum):
    RED = 1


class Loud(str):
    __slots__ = ()


@pytest.mark.slow
@quick
@given(strategies.values)
def test_what_is_accepted_comes_back_equal_and_of_the_same_types(value: JSON) -> None:
    check_json(value, "value")
    found = decode_json(encode_json(value))
    assert repr(found) == repr(value)


@pytest.mark.slow
@quick
@given(strategies.values)
def test_other_readers_of_json_agree(value: JSON) -> None:
    assert json.loads(encode_json(value)) == value


@pytest.mark.slow
@quick
@given(strategies.values)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(value: JSON) -> None:
    copy = copy_json(value)
    assert repr(copy) == repr(value)
    assert not _containers(copy) & _containers(value)


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (math.nan, "v", "nan is not JSON"),
        ([1.5, -math.inf], "v[1]", "-inf is not JSON"),
        ({"n": 2**63}, "v.n", "64 bits"),
        ({"n": [-(2**63) - 1]}, "v.n[0]", "64 bits"),
        ({"a": {"b": "\ud800"}}, "v.a.b", "lone surrogate"),
        ({"a": {"\udfff": 1}}, "v.a", "lone surrogate"),
        ({"a": [{1: 2}]}, "v.a[0]", "must be a string"),
        ({None: 2}, "v", "must be a string"),
        ({Loud("k"): 2}, "v", "must be a string"),
        ((1, 2), "v", "a tuple (use a list)"),
        ({"a": (1,)}, "v.a", "a tuple (use a list)"),
        ([b"bytes"], "v[0]", "type bytes"),
        ({1, 2}, "v", "type set"),
        (Decimal("1.5"), "v", "type Decimal"),
        (datetime(2026, 1, 1, tzinfo=UTC), "v", "type datetime"),
        (Colour.RED, "v", "type Colour"),
        (Loud("x"), "v", "type Loud"),
        (UserDict(a=1), "v", "a UserDict (use a dict)"),
        (object(), "v", "type object"),
        (1j, "v", "type complex"),
        # What is right beside the fault is passed over.
        ({"a": [None, True, 1, 1.5, "t", {}], "b": 1j}, "v.b", "type complex"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_its_place(
    value: object, path: str, reason: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        check_json(value, "v")
    assert refused.value.path == path
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    "value",
    [None, True, 2**63 - 1, -(2**63), -0.0, "", "\x00\u2028\ufeff", [], {}, OrderedDict(a=1)],
)
def test_the_edges_of_strict_json_are_accepted(value: object) -> None:
    check_json(value, "v")


def test_nesting_is_accepted_to_the_limit_and_refused_past_it() -> None:
    value: JSON = 1
    for _ in range(LIMITS.json_depth):
        value = [value]
    check_json(value, "v")
    assert decode_json(encode_json(value)) == value
    with pytest.raises(InvalidValue, match="nested deeper"):
        check_json([value], "v")
    with pytest.raises(InvalidValue, match="nested deeper"):
        check_json({"a": value}, "v")


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidValue, match="nested deeper"):
        check_json(value, "v")


def test_duplicate_keys_of_a_foreign_text_keep_the_last() -> None:
    assert decode_json('{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize("text", ["", "nul", "{", "[1,]", '{"a"}', "NaN", '"\\ud800"', b"\xff"])
def test_a_text_that_is_not_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_json(text)


def test_a_fingerprint_does_not_depend_on_the_order_of_keys() -> None:
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint(
        {"b": {"d": 3, "c": 2}, "a": 1}
    )
    assert fingerprint({"a": [1, 2]}) != fingerprint({"a": [2, 1]})
    assert fingerprint(1) != fingerprint("1")
    assert fingerprint(True) != fingerprint(1)


def _containers(value: JSON) -> set[int]:
    if isinstance(value, dict):
        return {id(value)}.union(*(_containers(item) for item in value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*(_containers(item) for item in value))
    return set()
