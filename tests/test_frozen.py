"""Immutable values: what was seen once never changes, whatever becomes of younger values."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidurable_actors._frozen import (
    CHUNK,
    EMPTY_LIST,
    FrozenDict,
    FrozenList,
    FrozenText,
    Value,
    freeze,
    thaw,
)
from pidurable_actors._json import JSON, encode_json
from tests.records.strategies import values

quick = settings(max_examples=100, deadline=None)

# How a younger value is made: which one of all so far it is made from, what is done, and how much.
moves = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(["grow", "grow", "splice", "replace", "front", "read"]),
        st.integers(0, 2 * CHUNK),
        st.integers(0, CHUNK + 10),
    ),
    max_size=25,
)


@pytest.mark.slow
@quick
@given(values)
def test_a_frozen_value_is_stored_as_the_same_text_and_thaws_into_a_copy(value: JSON) -> None:
    frozen = freeze(value)
    assert encode_json(frozen) == encode_json(value)
    assert frozen == value
    thawed = thaw(frozen)
    assert encode_json(thawed) == encode_json(value)
    _spoil(thawed)
    assert encode_json(frozen) == encode_json(value)
    assert freeze(frozen) is frozen or not isinstance(frozen, dict | FrozenList)


def test_a_value_that_is_frozen_shares_nothing_with_what_it_was_made_of() -> None:
    inner: list[JSON] = [1]
    frozen = freeze({"inner": inner})
    inner.append(2)
    assert frozen == {"inner": [1]}


def test_what_is_frozen_already_is_shared() -> None:
    inner = freeze({"a": [1]})
    outer = freeze({"inner": inner})
    assert isinstance(outer, FrozenDict)
    assert outer["inner"] is inner


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.__setitem__("a", 2),
        lambda it: it.__delitem__("a"),
        lambda it: it.update(a=2),
        lambda it: it.setdefault("b", 2),
        lambda it: it.pop("a"),
        lambda it: it.popitem(),
        lambda it: it.clear(),
        lambda it: it.__ior__({"b": 2}),
    ],
)
def test_a_mapping_refuses_every_change(change: Callable[[Any], object]) -> None:
    frozen = freeze({"a": 1})
    with pytest.raises(TypeError, match="immutable"):
        change(frozen)
    assert frozen == {"a": 1}


def test_a_mapping_makes_the_next_one() -> None:
    first = freeze({"a": 1, "b": 2})
    assert isinstance(first, FrozenDict)
    assert list(first.put("a", 3).items()) == [("a", 3), ("b", 2)]
    assert list(first.put("c", 3).without("a")) == ["b", "c"]
    assert first == {"a": 1, "b": 2}
    with pytest.raises(KeyError):
        first.without("c")


def test_a_list_has_no_way_to_change_it() -> None:
    frozen = FrozenList([1, 2])
    with pytest.raises(TypeError):
        frozen[0] = 2  # type: ignore[index]
    with pytest.raises(AttributeError):
        frozen.append(3)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        frozen.other = 3  # type: ignore[attr-defined]


@pytest.mark.slow
@quick
@given(st.integers(0, 2 * CHUNK + 1), moves)
def test_no_list_changes_whatever_is_made_from_it(
    length: int, made: list[tuple[int, str, int, int]]
) -> None:
    """Every value is kept beside a plain list that says what it must be; all are looked at last."""
    fresh = iter(range(10**9))
    plain: list[list[Value]] = [[next(fresh) for _ in range(length)]]
    frozen = [FrozenList(plain[0])]
    for which, move, at, much in made:
        old, model = frozen[which % len(frozen)], list(plain[which % len(frozen)])
        start = at % (len(model) + 1)
        items: list[Value] = [next(fresh) for _ in range(much)]
        match move:
            case "grow":
                new = old.extend(items)
                model += items
            case "splice":
                delete = min(much, len(model) - start)
                new = old.splice(start, delete, items[: at % 3])
                model[start : start + delete] = items[: at % 3]
            case "replace" if model:
                new = old.replace(at % len(model), at)
                model[at % len(model)] = at
            case "front":
                delete = min(much, len(model))
                new = old.splice(0, delete)
                del model[:delete]
            case _:
                continue
        frozen.append(new)
        plain.append(model)
    for old, model in zip(frozen, plain, strict=True):
        assert list(old) == model
        assert len(old) == len(model)
        assert [old[at] for at in range(len(model))] == model
        assert old[1:-1] == model[1:-1]
        assert old == model


@pytest.mark.slow
@quick
@given(moves)
def test_no_text_changes_whatever_is_made_from_it(made: list[tuple[int, str, int, int]]) -> None:
    """As for lists; a text that is read is joined, which none of the others may notice."""
    plain, frozen = [""], [FrozenText("")]
    for which, move, at, much in made:
        old, model = frozen[which % len(frozen)], plain[which % len(frozen)]
        match move:
            case "read":
                assert str(old) == model
                continue
            case "front" | "splice":
                count = min(much, len(model))
                new, model = old.trim_front(count), model[count:]
            case _:
                # Some characters take several units in one encoding or another.
                piece = f"{at}ä𝄞"[: much % 7]
                new, model = old.append(piece), model + piece
        frozen.append(new)
        plain.append(model)
    for old, model in zip(frozen, plain, strict=True):
        for at in (0, len(model) // 2, max(0, len(model) - 1), len(model)):
            assert old.since(at) == model[at:]
        assert len(old) == len(model)
        assert old == model
        assert str(old) == model


def test_a_text_that_grows_by_many_pieces_and_loses_as_many_stays_right() -> None:
    text, model = FrozenText("start"), "start"
    for at in range(3 * CHUNK):
        text, model = text.append(f"{at},"), f"{model}{at},"
        if at % 2:
            text, model = text.trim_front(3), model[3:]
    assert text == model
    rest = text.trim_front(len(text))
    assert str(rest) == ""
    assert rest.append("new") == "new"
    assert text == model


def test_a_list_of_whole_chunks_is_changed_and_grows_as_any_other() -> None:
    for length in (CHUNK, 2 * CHUNK):
        whole = FrozenList(range(length))
        changed = whole.replace(length - 1, "x")
        assert list(changed.extend(["y"])) == [*range(length - 1), "x", "y"]
        assert list(whole.extend(["z"])) == [*range(length), "z"]
        assert list(changed) == [*range(length - 1), "x"]


def test_an_index_past_the_end_is_refused_as_by_a_list() -> None:
    whole = FrozenList(range(5))
    shorter = whole.splice(3, 2)
    assert shorter[-1] == 2
    assert whole[-5] == 0
    for at in (3, -4):
        with pytest.raises(IndexError):
            shorter[at]
    assert list(EMPTY_LIST) == []


def test_a_list_is_searched_and_turned_as_a_plain_one() -> None:
    plain: list[Value] = [1, "a", 2, "a", *range(CHUNK)]
    frozen = FrozenList(plain)
    assert list(reversed(frozen)) == plain[::-1]
    assert "a" in frozen
    assert "b" not in frozen
    assert (frozen.count("a"), frozen.count("b")) == (2, 0)
    assert (frozen.index("a"), frozen.index("a", 2), frozen.index(1, -CHUNK)) == (1, 3, 5)
    for bounds in ((2, 3), (4,), (-1,)):
        with pytest.raises(ValueError, match="not in the list"):
            frozen.index("a", *bounds)


def test_values_are_equal_by_their_parts() -> None:
    assert FrozenList([1, freeze({"a": [2]})]) == [1, {"a": [2]}]
    assert FrozenList([1]) != [1, 2]
    assert FrozenList([1]) != "1"
    assert FrozenText("ab") == FrozenText("a").append("b")
    assert FrozenText("ab") == "ab"
    assert FrozenText("ab") != "ac"
    assert FrozenText("ab") != 5
    for value in (FrozenList(), FrozenText()):
        with pytest.raises(TypeError):
            hash(value)


@pytest.mark.parametrize(
    "value", [freeze({"a": [1, "x"]}), FrozenList([1, 2]), FrozenText("a").append("b")], ids=repr
)
def test_copies_are_the_value_itself_and_pickles_are_equal(value: Any) -> None:
    assert copy.copy(value) is value
    assert copy.deepcopy(value) is value
    again = pickle.loads(pickle.dumps(value))
    assert type(again) is type(value)
    assert again == value
    assert repr(again) == repr(thaw(value))


def _spoil(value: JSON) -> None:
    """Change every list and mapping of a plain value."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in list(parts):
        _spoil(part)
    if isinstance(value, dict):
        value.clear()
        value["spoilt"] = True
    elif isinstance(value, list):
        value.append("spoilt")
