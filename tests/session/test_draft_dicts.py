"""Mappings of a draft: every method of `dict`, and deltas as small as the change."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import attrs
from pytest import mark, param, raises

from pidurable_actors import define_doc
from pidurable_actors._frozen import FrozenList
from pidurable_actors._json import decode_json, encode_json
from pidurable_actors.records import DeleteKey, Operation, SetValue, SpliceList, apply_operations
from pidurable_actors.session._cursors import Cursor, Journal


@attrs.define
class Item:
    title: str = ""
    tags: list[str] = attrs.Factory(list)


@attrs.define
class State:
    words: dict[str, str] = attrs.Factory(lambda: {"a": "one", "b": "two", "c": "three"})
    items: dict[str, Item] = attrs.Factory(lambda: {"x": Item("X"), "y": Item("Y")})
    table: dict[str, dict[str, list[int]]] = attrs.Factory(lambda: {"t": {"u": [1]}})
    anything: Any = attrs.Factory(lambda: {"k": [1, {"n": None}]})


STATE = define_doc("app.state", State)


def opened() -> tuple[Any, Journal, Cursor]:
    """A draft of a new document."""
    journal = Journal(STATE.name)
    draft, root = STATE.draft(STATE.initial_value(), journal)
    return draft, journal, root


def noted(change: Callable[[Any], object]) -> tuple[Operation, ...]:
    """The operations of one callback on a new document, which make what the draft is."""
    draft, journal, root = opened()
    change(draft)
    after = apply_operations(STATE.initial_value(), journal.operations())
    assert encode_json(after) == encode_json(root.settled())
    return journal.operations()


def merge(it: Any, other: Any) -> Any:
    """``it |= other``."""
    it |= other
    return it


def test_every_public_method_of_dict_is_there() -> None:
    draft, _, _ = opened()
    # A class method that makes a new dict has no use on a part of a document.
    plain = [name for name in dir(dict) if not name.startswith("_") and name != "fromkeys"]
    assert [name for name in plain if not hasattr(draft.words, name)] == []
    assert isinstance(draft.words, MutableMapping)
    assert isinstance(draft.words, Mapping)


@mark.parametrize(
    "ask",
    [
        param(lambda it: it["a"], id="key"),
        param(lambda it: it["no"], id="key that is not there"),
        param(lambda it: it[1], id="number as a key"),
        param(lambda it: it[[]], id="list as a key"),
        param(lambda it: (it.get("a"), it.get("no"), it.get("no", 1), it.get(1)), id="get"),
        param(lambda it: ("a" in it, "no" in it, 1 in it), id="in"),
        param(lambda it: (list(it), list(reversed(it)), len(it), bool(it)), id="built-ins"),
        param(lambda it: (list(it.keys()), list(it.values()), list(it.items())), id="views"),
        param(lambda it: list(reversed(it.keys())), id="reversed keys"),
        param(lambda it: list(reversed(it.values())), id="reversed values"),
        param(lambda it: list(reversed(it.items())), id="reversed items"),
        param(lambda it: sorted(it.keys() & {"a", "z"}), id="keys as a set"),
        param(lambda it: ("a", "one") in it.items(), id="in items"),
        param(lambda it: "two" in it.values(), id="in values"),
        param(lambda it: it.keys() == {"a", "b", "c"}, id="keys equal a set"),
        param(lambda it: (it == {"a": "one", "b": "two", "c": "three"}, it == {}), id="equal"),
        param(lambda it: (it == {"c": "three", "a": "one", "b": "two"}, it == {}), id="other way"),
        param(lambda it: (it != {"a": "one"}, it == None, it == "a"), id="unequal"),  # noqa: E711
        param(lambda it: it < {}, id="order"),
        param(hash, id="hash"),
        param(repr, id="repr"),
        param(lambda it: {**it, "z": 1}, id="unpack"),
        param(dict, id="dict"),
        param(lambda it: dict(**it), id="arguments"),
        param(lambda it: (it | {"z": "1"}, {"z": "1", "a": "2"} | it), id="or"),
        param(lambda it: it | [("z", 1)], id="or with pairs"),
        param(lambda it: it.copy(), id="copy"),
        param(lambda it: it.pop("a"), id="pop"),
        param(lambda it: it.pop("no"), id="pop what is not there"),
        param(lambda it: (it.pop("no", None), it.pop("a", 5)), id="pop with a default"),
        param(lambda it: it.pop("no", 1, 2), id="pop with two defaults"),
        param(lambda it: (it.popitem(), it.popitem(), it.popitem()), id="popitem"),
        param(lambda it: (it.clear(), it.popitem()), id="popitem of nothing"),
        param(lambda it: (it.setdefault("a", "x"), it.setdefault("z", "x")), id="setdefault"),
        param(lambda it: it.update({"z": "1"}, y="2"), id="update"),
        param(lambda it: it.update([("z", "1"), ("a", "2")]), id="update by pairs"),
        param(lambda it: it.update(it), id="update by itself"),
        param(lambda it: it.update(5), id="update by a number"),
        param(lambda it: it.update({}, {}), id="update by two"),
        param(lambda it: merge(it, {"z": "1"}), id="or in place"),
        param(lambda it: merge(it, [("z", "1")]), id="or in place with pairs"),
        param(lambda it: operator.delitem(it, "a"), id="delete"),
        param(lambda it: operator.delitem(it, "no"), id="delete what is not there"),
        param(lambda it: [it.pop(key) for key in it], id="change size while iterating"),
        param(lambda it: [it.pop(key) for key, _ in it.items()], id="the same over items"),
        param(lambda it: [it.pop(key) for key in list(it)], id="change size over a copy"),
        param(lambda it: [operator.setitem(it, key, "x") for key in it], id="set while iterating"),
        param(lambda it: it.clear(), id="clear"),
    ],
)
def test_a_mapping_of_a_draft_answers_as_a_dict_does(ask: Callable[[Any], object]) -> None:
    def outcome(it: Any) -> object:
        try:
            return "returns", repr(ask(it))
        except (LookupError, ValueError, TypeError, RuntimeError) as error:
            return "raises", type(error)

    draft, journal, root = opened()
    plain = {"a": "one", "b": "two", "c": "three"}
    expected = outcome(plain)
    assert outcome(draft.words) == expected
    assert list(draft.words.items()) == list(plain.items())
    after = apply_operations(STATE.initial_value(), journal.operations())
    assert encode_json(after) == encode_json(root.settled())


def test_items_that_are_classes_equal_plain_ones_both_ways_round() -> None:
    draft, _, _ = opened()
    plain = {"x": Item("X"), "y": Item("Y")}
    assert draft.items == plain
    assert plain == draft.items
    assert Item("X") in draft.items.values()
    assert ("x", Item("X")) in draft.items.items()
    assert draft.table == {"t": {"u": [1]}}
    assert draft.anything == {"k": [1, {"n": None}]}
    assert repr(draft.items) == repr(plain)


def test_setdefault_gives_the_part_and_not_what_was_put_in() -> None:
    """Goal: the usual idiom of grouping works, and changes the document."""
    draft, _, _ = opened()
    mine: list[int] = []
    draft.table.setdefault("t", {}).setdefault("v", mine).append(5)
    draft.table.setdefault("t", {}).setdefault("v", mine).append(6)
    assert draft.table == {"t": {"u": [1], "v": [5, 6]}}
    assert mine == []


def test_what_is_put_in_is_copied_and_what_is_popped_is_plain() -> None:
    """Goal: nothing is shared with the caller, nor between two places of the document."""
    draft, journal, _ = opened()
    item = Item("mine")
    draft.items["mine"] = item
    draft.items.update(again=item, x=draft.items["y"])
    item.tags.append("changed")
    draft.items["x"].tags.append("x only")
    draft.items["again"].tags.append("again only")
    assert draft.items["mine"] == Item("mine")
    assert draft.items["y"] == Item("Y")
    popped, (key, newest) = draft.items.pop("x"), draft.items.popitem()
    assert type(popped) is type(newest) is Item
    assert key == "again"
    operations = journal.operations()
    popped.tags.append("free")
    journal.open = False
    assert (popped, newest) == (Item("Y", ["x only", "free"]), Item("mine", ["again only"]))
    assert journal.operations() == operations


def test_copies_are_plain_when_deep_and_lead_to_the_draft_when_shallow() -> None:
    draft, journal, _ = opened()
    shallow, deep = draft.items.copy(), copy.deepcopy(draft.items)
    assert type(shallow) is type(deep) is type(copy.copy(draft.items)) is dict
    assert type(deep["x"]) is Item
    deep["x"].title = "mine"
    assert not journal
    shallow["x"].title = "ours"
    assert draft.items["x"].title == "ours"


def test_a_mapping_changed_in_place_through_an_assignment_stays_the_same() -> None:
    draft, journal, _ = opened()
    words, inner = draft.words, draft.table["t"]
    draft.words |= {"d": "four"}
    draft.table["t"] |= {"v": [2]}
    draft.table["t"]["u"] += [3]
    assert draft.words is words
    assert draft.table["t"] is inner
    assert journal.operations() == (
        SetValue(("words", "d"), "four"),
        SetValue(("table", "t", "v"), FrozenList([2])),
        SpliceList(("table", "t", "u"), 1, 0, (3,)),
    )


@mark.parametrize(
    ("change", "text"),
    [
        param(
            lambda it: it.words.update(a="1", d="4"),
            '[{"path":["words","a"],"value":"1","op":"set"},'
            '{"path":["words","d"],"value":"4","op":"set"}]',
            id="update",
        ),
        param(
            lambda it: it.words.clear(),
            '[{"path":["words"],"value":{},"op":"set"}]',
            id="clear",
        ),
        param(
            lambda it: it.items["x"].tags.append("t"),
            '[{"path":["items","x","tags"],"start":0,"delete":0,"items":["t"],"op":"splice"}]',
            id="deep",
        ),
        param(
            lambda it: operator.setitem(it.items, "x", Item("X", ["t"])),
            '[{"path":["items","x","tags"],"start":0,"delete":0,"items":["t"],"op":"splice"}]',
            id="an item that differs in one field",
        ),
        param(
            lambda it: setattr(it, "words", {**it.words, "d": "4"}),
            '[{"path":["words","d"],"value":"4","op":"set"}]',
            id="a dict with one more",
        ),
        param(
            lambda it: setattr(it, "words", {k: v for k, v in it.words.items() if k != "b"}),
            '[{"path":["words","b"],"op":"delete"}]',
            id="a dict with one less",
        ),
        param(
            lambda it: operator.setitem(it.anything["k"][1], "n", 1),
            '[{"path":["anything","k",1,"n"],"value":1,"op":"set"}]',
            id="in JSON",
        ),
        param(lambda it: operator.setitem(it.words, "a", "one"), "[]", id="equal value"),
        param(lambda it: it.words.update(it.words), "[]", id="updated by itself"),
        param(lambda it: setattr(it, "words", dict(it.words)), "[]", id="its own items"),
        param(lambda it: it.items.update(it.items), "[]", id="its own parts"),
        param(lambda it: operator.setitem(it.items, "x", it.items["x"]), "[]", id="its own item"),
        param(lambda it: it.items.setdefault("x", Item("no")), "[]", id="setdefault"),
        param(lambda it: it.words.pop("no", None), "[]", id="pop of nothing"),
    ],
)
def test_a_delta_says_what_changed_and_no_more(change: Callable[[Any], object], text: str) -> None:
    assert decode_json(encode_json(noted(change))) == decode_json(text)


def test_a_key_that_is_set_again_goes_to_the_end() -> None:
    """Goal: the order of keys is that of a dict, also in what is stored."""

    def change(it: Any) -> None:
        it.words["a"] = it.words.pop("a")

    assert noted(change) == (DeleteKey(("words", "a")), SetValue(("words", "a"), "one"))
    draft, _, root = opened()
    change(draft)
    assert list(draft.words) == list(root.settled()["words"]) == ["b", "c", "a"]


def test_a_dict_in_another_order_is_stored_in_that_order() -> None:
    draft, _, root = opened()
    draft.words = dict(reversed(draft.words.items()))
    assert list(root.settled()["words"]) == ["c", "b", "a"]


def test_keys_may_be_any_text() -> None:
    draft, _, root = opened()
    keys = ["", "a.b", "[0]", "0", "é\u2028\0", "items"]
    draft.words = {}
    for key in keys:
        draft.words[key] = key
    assert list(draft.words) == keys
    assert list(root.settled()["words"].values()) == keys
    with raises(KeyError, match=r"a\.c"):
        draft.words["a.c"]
