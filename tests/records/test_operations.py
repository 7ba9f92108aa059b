"""Delta operations: the difference leads from one value to the other, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidurable_actors._frozen import FrozenText, Value, freeze
from pidurable_actors._json import JSON, decode_json, encode_json
from pidurable_actors.records import (
    AppendText,
    DeleteKey,
    Operation,
    ReplaceRoot,
    SetValue,
    SpliceList,
    TrimText,
    apply_operations,
    below,
    diff,
    operations_from_json,
    same_json,
)
from tests.records import strategies

quick = settings(max_examples=200, deadline=None)

# Few different parts, so that two values have much in common; and all numbers that Python calls
# equal although they are stored as different texts.
_alike: st.SearchStrategy[JSON] = st.sampled_from(
    [None, False, True, 0, 1, 0.0, -0.0, 1.0, "", "a", "ab", "abc", "b", "\u2028"]
)
_keys = st.sampled_from(["a", "b", "c", ""])


def _grown(parts: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    return st.lists(parts, max_size=5) | st.dictionaries(_keys, parts, max_size=4)


alike: st.SearchStrategy[JSON] = st.recursive(_alike, _grown, max_leaves=12)
anything = alike | strategies.values
FIRST = freeze({"log": "ab", "items": [1, [2], {"n": 3}], "gone": None})


@pytest.mark.slow
@quick
@given(anything, anything)
def test_the_difference_leads_from_one_value_to_the_other(before: JSON, after: JSON) -> None:
    old, new = freeze(before), freeze(after)
    operations = diff(old, new)
    assert encode_json(apply_operations(old, operations)) == encode_json(after)
    assert encode_json(old) == encode_json(before)
    assert (operations == []) == (encode_json(before) == encode_json(after))


@pytest.mark.slow
@quick
@given(anything, anything)
def test_operations_come_back_from_their_stored_form(before: JSON, after: JSON) -> None:
    old = freeze(before)
    operations = tuple(diff(old, freeze(after)))
    text = encode_json(operations)
    again = operations_from_json(decode_json(text))
    assert encode_json(again) == text
    assert encode_json(apply_operations(old, again)) == encode_json(after)


@pytest.mark.slow
@quick
@given(st.lists(anything, min_size=2, max_size=6), st.data())
def test_a_value_stays_as_it_was_whatever_becomes_of_it(values: list[JSON], data: Any) -> None:
    """A tree of revisions, each made from any of those before it; then all are looked at."""
    texts = [encode_json(values[0])]
    revisions = [freeze(values[0])]
    for value in values[1:]:
        parent = data.draw(st.integers(0, len(revisions) - 1))
        # Not the frozen value itself, which would share nothing with its parent.
        operations = operations_from_json(
            decode_json(encode_json(diff(revisions[parent], freeze(value))))
        )
        revisions.append(apply_operations(revisions[parent], operations))
        texts.append(encode_json(value))
    assert [encode_json(revision) for revision in revisions] == texts


def test_revisions_that_branch_off_growing_parts_do_not_see_each_other() -> None:
    grow: list[Operation] = [AppendText(("log",), "+"), SpliceList(("items",), 3, 0, ("+",))]
    trunk = [FIRST]
    for _ in range(4):
        trunk.append(apply_operations(trunk[-1], grow))
        grow[1] = SpliceList(("items",), 3 + len(trunk) - 1, 0, ("+",))
    branches = [
        apply_operations(it, [AppendText(("log",), f"{at}"), SpliceList(("items",), 0, 1, ())])
        for at, it in enumerate(trunk)
    ]
    for at, (old, new) in enumerate(zip(trunk, branches, strict=True)):
        assert old == {
            "log": "ab" + "+" * at,
            "items": [1, [2], {"n": 3}, *["+"] * at],
            "gone": None,
        }
        assert new == {
            "log": f"ab{'+' * at}{at}",
            "items": [[2], {"n": 3}, *["+"] * at],
            "gone": None,
        }


def test_what_an_operation_does_not_touch_is_shared() -> None:
    changed = apply_operations(FIRST, [AppendText(("log",), "c"), DeleteKey(("gone",))])
    assert isinstance(FIRST, dict)
    assert isinstance(changed, dict)
    assert changed["items"] is FIRST["items"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, [SetValue(("b",), 2)]),
        ({"a": 1, "b": 2}, {"a": 1}, [DeleteKey(("b",))]),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [SetValue(("a", "b"), 2)]),
        ({"log": "one"}, {"log": "one two"}, [AppendText(("log",), " two")]),
        ({"log": "one"}, {"log": "two"}, [SetValue(("log",), "two")]),
        (["a"], ["a", "b"], [SpliceList((), 1, 0, ("b",))]),
        ([1, 2, 3], [1, 3], [SpliceList((), 1, 1, ())]),
        ([1, 2, 3], [1, 9, 8, 3], [SpliceList((), 1, 1, (9, 8))]),
        ([1, {"n": 2}, 3], [1, {"n": 5}, 3], [SetValue((1, "n"), 5)]),
        ([{"log": "a"}], [{"log": "ab"}], [AppendText((0, "log"), "b")]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, [ReplaceRoot(freeze({"b": 2, "a": 1}))]),
        ("a", "ab", [ReplaceRoot("ab")]),
        (1, 1.0, [ReplaceRoot(1.0)]),
        (1, True, [ReplaceRoot(True)]),
        ([0.0], [-0.0], [SetValue((0,), -0.0)]),
        ({"a": [1]}, {"a": [1]}, []),
        (decode_json('{"a":2.5}'), decode_json('{"a":2.5}'), []),
        ({"a": []}, {"a": {}}, [SetValue(("a",), freeze({}))]),
    ],
)
def test_the_difference_is_small_where_the_change_is(
    before: JSON, after: JSON, expected: list[Operation]
) -> None:
    operations = diff(freeze(before), freeze(after))
    assert operations == expected
    assert encode_json(operations) == encode_json(expected)


def test_a_long_list_that_grew_at_its_end_differs_by_what_it_grew() -> None:
    before = freeze([{"n": at} for at in range(2_000)])
    after = apply_operations(before, [SpliceList((), 2_000, 0, ("new",))])
    assert diff(before, after) == [SpliceList((), 2_000, 0, ("new",))]
    assert diff(freeze("x" * 9_999), freeze("x" * 9_999), ("log",)) == []


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (SetValue(("new",), freeze([1])), {"log": "ab", "items": [1, [2], {"n": 3}], "new": [1]}),
        (SetValue(("items", 0), "x"), {"log": "ab", "items": ["x", [2], {"n": 3}]}),
        (SetValue(("items", 2, "n"), 4), {"log": "ab", "items": [1, [2], {"n": 4}]}),
        (DeleteKey(("items", 2, "n")), {"log": "ab", "items": [1, [2], {}]}),
        (AppendText(("log",), "ä𝄞"), {"log": "abä𝄞", "items": [1, [2], {"n": 3}]}),
        (TrimText(("log",), 2), {"log": "", "items": [1, [2], {"n": 3}]}),
        (SpliceList(("items",), 1, 1, (8, 9)), {"log": "ab", "items": [1, 8, 9, {"n": 3}]}),
        (SpliceList(("items", 1), 1, 0, (7,)), {"log": "ab", "items": [1, [2, 7], {"n": 3}]}),
        (ReplaceRoot(5), 5),
    ],
)
def test_each_operation_does_what_its_name_says(operation: Operation, expected: Any) -> None:
    after = apply_operations(apply_operations(FIRST, [DeleteKey(("gone",))]), [operation])
    assert encode_json(after) == encode_json(expected)


def test_texts_are_counted_in_characters() -> None:
    text = apply_operations("𝄞ä", [TrimText((), 1), AppendText((), "\u2028")])
    assert isinstance(text, FrozenText)
    assert (str(text), len(text)) == ("ä\u2028", 2)


@pytest.mark.parametrize(
    "operation",
    [
        SetValue((), 1),
        SetValue(("log", "x"), 1),
        SetValue(("items", "0"), 1),
        SetValue(("items", 3), 1),
        SetValue(("items", -1), 1),
        SetValue(("absent", "x"), 1),
        SetValue((0,), 1),
        DeleteKey(()),
        DeleteKey(("absent",)),
        DeleteKey(("items", 0)),
        AppendText(("items",), "x"),
        AppendText(("gone",), "x"),
        AppendText((), "x"),
        TrimText(("log",), 3),
        TrimText(("log",), -1),
        TrimText(("items",), 0),
        SpliceList(("log",), 0, 0, ()),
        SpliceList(("items",), 4, 0, ()),
        SpliceList(("items",), 0, 4, ()),
        SpliceList(("items",), -1, 0, ()),
        SpliceList(("items",), 2, -1, ()),
        SpliceList((), 0, 0, ()),
    ],
    ids=repr,
)
def test_what_does_not_fit_the_value_is_refused_and_changes_nothing(operation: Operation) -> None:
    before = encode_json(FIRST)
    with pytest.raises(ValueError, match="does not fit"):
        apply_operations(FIRST, [SetValue(("log",), "other"), SetValue(("log",), "ab"), operation])
    assert encode_json(FIRST) == before


@pytest.mark.slow
@quick
@given(anything, anything)
def test_operations_below_a_place_do_the_same_there(before: JSON, after: JSON) -> None:
    outer = freeze({"list": [0, before], "other": 1})
    lower = [below(("list", 1), it) for it in diff(freeze(before), freeze(after))]
    assert encode_json(apply_operations(outer, lower)) == encode_json(
        {"list": [0, after], "other": 1}
    )


@pytest.mark.parametrize(
    "stored",
    [
        None,
        5,
        "",
        {},
        "set",
        [5],
        [[]],
        [{}],
        [{"op": "fly", "path": []}],
        [{"op": [], "path": []}],
        [{"op": "set", "path": ["a"]}],
        [{"op": "set", "path": "a", "value": 1}],
        [{"op": "set", "path": [1.5], "value": 1}],
        [{"op": "set", "path": [None], "value": 1}],
        [{"op": "delete"}],
        [{"op": "append", "path": [], "text": 5}],
        [{"op": "trim", "path": [], "count": "1"}],
        [{"op": "splice", "path": [], "start": 0, "delete": None, "items": []}],
        [{"op": "splice", "path": [], "start": 0, "delete": 0, "items": 5}],
        [{"op": "replace"}],
    ],
)
def test_what_is_no_list_of_operations_is_refused(stored: JSON) -> None:
    with pytest.raises(ValueError, match="not a list of delta operations"):
        operations_from_json(stored)


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), (1, 1.0), (0.0, -0.0), ("1", 1), (None, False)]
)
def test_values_that_are_stored_differently_are_not_the_same(one: Value, other: Value) -> None:
    for first, second in ((one, other), (freeze([one]), freeze([other]))):
        assert not same_json(first, second)
        assert same_json(first, first)
    assert not same_json(freeze({"a": one}), freeze({"a": other}))
    assert not same_json(freeze({"a": 1, "b": 2}), freeze({"b": 2, "a": 1}))
    assert same_json("ab", FrozenText("a").append("b"))
