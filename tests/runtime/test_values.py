"""User values become strict JSON and come back; what cannot is refused with its path."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import mark, raises

from pidurable_actors._json import JSON
from pidurable_actors.errors import InvalidValue
from pidurable_actors.runtime import from_json, to_json


@attrs.frozen
class Point:
    x: int
    y: float = 0.0


@attrs.frozen
class Plan:
    name: str
    points: tuple[Point, ...] = ()
    notes: dict[str, str] = attrs.Factory(dict)
    best: Point | None = None


class Picky:
    """A class that refuses with an error of its own."""


@attrs.frozen
class Checked:
    n: int = attrs.field(validator=attrs.validators.ge(1))


json_values: st.SearchStrategy[JSON] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=10,
)

plans = st.builds(
    Plan,
    name=st.text(st.characters(exclude_categories=["Cs"])),
    points=st.lists(st.builds(Point, st.integers(-(2**63), 2**63 - 1), st.floats(-1e9, 1e9))).map(
        tuple
    ),
)


@given(plans)
def test_an_attrs_value_comes_back_as_what_it_was(plan: Plan) -> None:
    assert from_json(to_json(plan, "plan"), Plan, "plan") == plan


@settings(max_examples=50)
@given(json_values)
def test_json_is_its_own_form(value: JSON) -> None:
    assert to_json(value, "value") == value


def test_what_comes_out_shares_nothing_with_the_value() -> None:
    value: dict[str, Any] = {"items": [{"a": 1}]}
    stored = to_json(value, "value")
    value["items"][0]["a"] = 2
    assert stored == {"items": [{"a": 1}]}


def test_what_is_built_shares_nothing_with_its_json() -> None:
    stored: dict[str, Any] = {"items": [{"a": 1}]}
    from_json(stored, dict[str, Any], "value")["items"][0]["a"] = 2
    assert stored == {"items": [{"a": 1}]}


@mark.parametrize(
    ("value", "path"),
    [
        (Point(1, float("nan")), "v.y"),
        (Plan("p", (Point(1), Point(2, float("inf")))), "v.points[1].y"),
        (Plan("p", notes={1: "x"}), "v.notes"),  # type: ignore[dict-item]
        ({"a": {"b": [0, b"x"]}}, "v.a.b[1]"),
        (object(), "v"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_its_path(value: Any, path: str) -> None:
    with raises(InvalidValue) as told:
        to_json(value, "v")
    assert told.value.path == path


@mark.parametrize(
    ("value", "kind", "text"),
    [
        ({"x": "one"}, Point, "plan"),
        ({}, Point, "x"),
        (None, Point, "plan"),
        ({"n": 0}, Checked, "n"),
        (5, Picky, "does not fit"),
        ("x", type(None), "must be null"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(value: Any, kind: Any, text: str) -> None:
    with raises(InvalidValue, match=text):
        from_json(value, kind, "plan")


def test_none_is_an_input_like_any_other() -> None:
    assert from_json(None, type(None), "input") is None
