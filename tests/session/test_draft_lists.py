"""Lists and texts of a draft: every method of `list`, and deltas as small as the change."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, MutableSequence
from typing import Any

import attrs
from pytest import mark, param, raises

from pidurable_actors import Text, define_doc
from pidurable_actors._json import encode_json
from pidurable_actors.records import (
    AppendText,
    Operation,
    SetValue,
    SpliceList,
    TrimText,
    apply_operations,
)
from pidurable_actors.session._cursors import Cursor, Journal


@attrs.define
class Item:
    title: str = ""
    n: int = 0
    tags: list[str] = attrs.Factory(list)


@attrs.define
class State:
    numbers: list[int] = attrs.Factory(lambda: [3, 1, 2, 1])
    items: list[Item] = attrs.Factory(lambda: [Item("a", 2), Item("b", 1), Item("c", 3)])
    title: str = "title"
    log: Text = attrs.Factory(lambda: Text("log"))
    rows: list[list[int]] = attrs.Factory(lambda: [[1], [2, 3]])


@attrs.define
class Long:
    numbers: list[int] = attrs.Factory(lambda: list(range(100_000)))
    log: Text = attrs.Factory(lambda: Text("x" * 1_000_000))


STATE = define_doc("app.state", State)
LONG = define_doc("app.long", Long)


def opened(definition: Any = STATE) -> tuple[Any, Journal, Cursor]:
    """A draft of a new document."""
    journal = Journal(definition.name)
    draft, root = definition.draft(definition.initial_value(), journal)
    return draft, journal, root


def noted(change: Callable[[Any], object], definition: Any = STATE) -> tuple[Operation, ...]:
    """The operations of one callback on a new document."""
    draft, journal, _ = opened(definition)
    change(draft)
    return journal.operations()


def multiply(it: Any, other: Any) -> Any:
    """``it *= other``."""
    it *= other
    return it


# --- what a list can do ---


def test_every_public_method_of_list_is_there() -> None:
    draft, _, _ = opened()
    plain = [name for name in dir(list) if not name.startswith("_")]
    assert [name for name in plain if not hasattr(draft.numbers, name)] == []
    assert isinstance(draft.numbers, MutableSequence)


@mark.parametrize(
    "ask",
    [
        param(lambda it: it[0], id="first"),
        param(lambda it: it[-1], id="last"),
        param(lambda it: it[True], id="bool as an index"),
        param(lambda it: it[4], id="past the end"),
        param(lambda it: it[-5], id="before the start"),
        param(lambda it: it["a"], id="text as an index"),
        param(lambda it: it[1.0], id="float as an index"),
        param(lambda it: it[1:3], id="slice"),
        param(lambda it: it[::-2], id="backwards"),
        param(lambda it: it[::0], id="no step"),
        param(lambda it: it.index(1), id="index"),
        param(lambda it: it.index(1, 2), id="index from"),
        param(lambda it: it.index(1, -1), id="index from the end"),
        param(lambda it: it.index(3, 1, 3), id="index between"),
        param(lambda it: it.index("no"), id="index of nothing"),
        param(lambda it: it.count(1), id="count"),
        param(lambda it: (2 in it, 7 in it), id="in"),
        param(lambda it: list(reversed(it)), id="reversed"),
        param(lambda it: it.copy(), id="copy"),
        param(lambda it: [*it, 9], id="plus"),
        param(lambda it: [9, *it], id="plus, the other way"),
        param(lambda it: (*it, 9), id="plus a tuple"),
        param(lambda it: (9, *it), id="a tuple plus it"),
        param(lambda it: (it * 2, 2 * it, it * -1), id="times"),
        param(lambda it: it * 1.5, id="times a fraction"),
        param(lambda it: (len(it), bool(it), sum(it), max(it), sorted(it)), id="built-ins"),
        param(lambda it: (it == [3, 1, 2, 1], it == [3], it == (3, 1, 2, 1)), id="equal"),
        param(lambda it: (it != [3, 1, 2, 1], it != [3], it == None, it == "x"), id="unequal"),  # noqa: E711
        param(lambda it: (it == [3, 1, 2, 1], it == [3]), id="equal, the other way"),
        param(lambda it: (it < [4], it <= [3], it > [3], it >= [3, 1, 2, 1]), id="order"),
        param(lambda it: (it > [4], it >= [3], it < [3]), id="order, the other way"),
        param(lambda it: it < "text", id="order with text"),
        param(hash, id="hash"),
        param(repr, id="repr"),
        param(lambda it: f"{it}", id="str"),
        param(lambda it: [*it, *it], id="unpack"),
        param(lambda it: it.insert("a", 1), id="insert at text"),
        param(lambda it: it.pop("a"), id="pop at text"),
        param(lambda it: it.pop(9), id="pop past the end"),
        param(lambda it: it.remove(9), id="remove nothing"),
        param(lambda it: operator.delitem(it, 9), id="delete past the end"),
        param(lambda it: operator.setitem(it, 9, 1), id="set past the end"),
        param(lambda it: operator.setitem(it, slice(None, None, 2), [1]), id="too few for a slice"),
        param(lambda it: operator.setitem(it, slice(0, 1), 5), id="a number for a slice"),
        param(lambda it: it.extend(5), id="extend by a number"),
        param(lambda it: it.sort(1), id="sort by position"),
        param(lambda it: it.sort(key=lambda _: object()), id="sort what has no order"),
        param(lambda it: multiply(it, 1.5), id="times a fraction, in place"),
        param(lambda it: it.append(1, 2), id="append two"),
        param(lambda it: it.__class__.__name__ and it.clear(), id="clear"),
    ],
)
def test_a_list_of_a_draft_answers_as_a_list_does(ask: Callable[[Any], object]) -> None:
    def outcome(it: Any) -> object:
        try:
            return "returns", repr(ask(it))
        except (LookupError, ValueError, TypeError) as error:
            return "raises", type(error)

    draft, _, _ = opened()
    plain = [3, 1, 2, 1]
    expected = outcome(plain)
    assert outcome(draft.numbers) == expected
    assert draft.numbers == plain


def test_an_item_that_is_a_class_equals_a_plain_one_both_ways_round() -> None:
    draft, _, _ = opened()
    plain = [Item("a", 2), Item("b", 1), Item("c", 3)]
    assert draft.items == plain
    assert plain == draft.items
    assert Item("b", 1) in draft.items
    assert draft.items.index(Item("b", 1)) == 1
    assert draft.items[1] in plain
    assert plain.index(draft.items[1]) == 1
    assert draft.items.count(Item("a", 2)) == 1
    assert draft.items != plain[:2]
    draft.items.remove(Item("a", 2))
    assert draft.items == plain[1:]
    assert repr(draft.items) == repr(plain[1:])


def test_copies_are_plain_when_deep_and_lead_to_the_draft_when_shallow() -> None:
    """Goal: `copy` is as shallow as list's, `copy.deepcopy` belongs to the caller."""
    draft, journal, _ = opened()
    shallow, deep = draft.items.copy(), copy.deepcopy(draft.items)
    assert type(shallow) is type(deep) is type(copy.copy(draft.items)) is list
    deep[0].title = "mine"
    assert type(deep[0]) is Item
    assert not journal
    shallow[0].title = "ours"
    shallow.clear()
    assert draft.items[0].title == "ours"
    journal.open = False
    assert deep == [Item("mine", 2), Item("b", 1), Item("c", 3)]


def test_iterating_while_changing_goes_on_as_list_does() -> None:
    """Goal: a loop that appends or removes sees what a plain loop sees."""

    def loop(it: Any) -> list[int]:
        seen = []
        for n in it:
            seen.append(n)
            if n == 3:
                it.append(7)
            if n == 1 and len(it) < 7:
                it.remove(1)
        return seen

    draft, _, _ = opened()
    plain = [3, 1, 2, 1]
    assert loop(draft.numbers) == loop(plain)
    assert draft.numbers == plain


def test_a_generator_that_changes_the_list_on_the_way_is_taken_before() -> None:
    draft, journal, root = opened()

    def some() -> Any:
        for n in range(3):
            draft.numbers.pop()
            yield n

    draft.numbers.extend(some())
    assert draft.numbers == [3, 0, 1, 2]
    draft.numbers[1:3] = (draft.numbers.pop() for _ in range(2))
    assert draft.numbers == [3, 2, 1]
    assert list(root.settled()["numbers"]) == [3, 2, 1]
    assert journal


def test_a_key_function_that_changes_the_list_is_refused() -> None:
    draft, _, _ = opened()
    with raises(ValueError, match="list modified during sort"):
        draft.numbers.sort(key=lambda _: draft.numbers.append(0) or 0)


def test_a_held_item_stays_itself_when_the_list_moves_around_it() -> None:
    """Goal: insert, delete, sort, reverse and extended slices keep to the items."""
    draft, journal, root = opened()
    b = draft.items[1]
    draft.items.insert(0, Item("first"))
    b.n = 10
    draft.items.sort(key=lambda it: it.n, reverse=True)
    b.tags.append("sorted")
    assert draft.items[0] is b
    draft.items.reverse()
    b.tags.append("reversed")
    del draft.items[0::2]
    b.tags.append("thinned")
    draft.items[:] = [it for it in draft.items if it.title != "c"]
    b.title = "B"
    assert draft.items[-1] is b
    assert b == Item("B", 10, ["sorted", "reversed", "thinned"])
    state = STATE.initial_value()
    from_operations = _applied(state, journal)
    assert encode_json(from_operations) == encode_json(root.settled())


def _applied(before: Any, journal: Journal) -> Any:
    return apply_operations(before, journal.operations())


# --- copied by value ---


def test_a_plain_object_that_was_put_in_is_not_the_draft() -> None:
    """Goal: changing what was assigned changes nothing of the document, nor the other way."""
    draft, _, _ = opened()
    item, rows = Item("mine"), [[9]]
    draft.items.append(item)
    draft.items[0] = item
    draft.items[1:2] = [item]
    draft.rows = rows
    draft.rows.append(rows[0])
    item.title = "changed"
    item.tags.append("changed")
    rows[0].append(10)
    assert [it.title for it in draft.items] == ["mine", "mine", "c", "mine"]
    assert draft.rows == [[9], [9]]
    draft.items[0].tags.append("draft")
    assert draft.items[1].tags == []
    assert item.tags == ["changed"]


def test_a_part_that_is_put_in_another_place_is_copied() -> None:
    draft, _, _ = opened()
    draft.items.append(draft.items[0])
    draft.items[-1].title = "copy"
    draft.rows.append(draft.rows[1])
    draft.rows[-1].append(4)
    draft.items[1].tags = draft.items[0].tags
    draft.items[1].tags.append("one")
    assert [it.title for it in draft.items] == ["a", "b", "c", "copy"]
    assert draft.rows == [[1], [2, 3], [2, 3, 4]]
    assert draft.items[0].tags == []


def test_swapping_two_items_swaps_them() -> None:
    draft, journal, root = opened()
    draft.numbers[0], draft.numbers[1] = draft.numbers[1], draft.numbers[0]
    assert draft.numbers == [1, 3, 2, 1]
    assert _applied(STATE.initial_value(), journal) == root.settled()


def test_what_is_popped_is_plain_and_belongs_to_the_caller() -> None:
    draft, journal, _ = opened()
    draft.items[1].tags.append("x")
    popped = draft.items.pop(1)
    assert type(popped) is Item
    assert type(popped.tags) is list
    noted_before = journal.operations()
    popped.tags.append("mine")
    journal.open = False
    assert popped == Item("b", 1, ["x", "mine"])
    assert journal.operations() == noted_before


def test_changing_in_place_through_an_assignment_keeps_the_list() -> None:
    """Goal: ``draft.numbers += [...]`` assigns the very list that it changed."""
    draft, journal, _ = opened()
    numbers, row = draft.numbers, draft.rows[0]
    draft.numbers += [5]
    draft.rows[0] += [6]
    draft.rows[0] *= 2
    assert draft.numbers is numbers
    assert draft.rows[0] is row
    assert journal.operations() == (
        SpliceList(("numbers",), 4, 0, (5,)),
        SpliceList(("rows", 0), 1, 0, (6, 1, 6)),
    )


# --- deltas ---


def test_an_append_to_a_long_list_is_one_small_splice() -> None:
    operations = noted(lambda it: it.numbers.append(7), LONG)
    assert operations == (SpliceList(("numbers",), 100_000, 0, (7,)),)
    assert len(encode_json(operations)) < 100


def test_a_thousand_appends_in_one_callback_are_one_operation() -> None:
    def change(it: Any) -> None:
        for n in range(1000):
            it.numbers.append(n)

    assert noted(change, LONG) == (SpliceList(("numbers",), 100_000, 0, tuple(range(1000))),)


def test_a_thousand_texts_appended_in_one_callback_are_one_operation() -> None:
    def change(it: Any) -> None:
        for _ in range(1000):
            it.log.append("ab")

    assert noted(change, LONG) == (AppendText(("log",), "ab" * 1000),)


def test_appends_with_something_between_stay_in_order() -> None:
    """Goal: appends are put together only while nothing else happens."""

    def change(it: Any) -> None:
        it.numbers.append(1)
        it.numbers.append(2)
        it.rows.append([1])
        it.rows[-1].append(2)
        it.rows[-1].append(3)
        it.rows.append([4])
        it.numbers.append(3)

    assert [getattr(operation, "path", None) for operation in noted(change)] == [
        ("numbers",),
        ("rows",),
        ("rows", 2),
        ("rows",),
        ("numbers",),
    ]


@mark.parametrize(
    ("change", "operations"),
    [
        param(
            lambda it: setattr(it, "title", it.title + " more"),
            (AppendText(("title",), " more"),),
            id="+= of a plain text",
        ),
        param(
            lambda it: [it.__setattr__("title", it.title + "!") for _ in range(100)],
            (AppendText(("title",), "!" * 100),),
            id="many += of a plain text",
        ),
        param(
            lambda it: setattr(it, "log", str(it.log) + " more"),
            (AppendText(("log",), " more"),),
            id="a longer text assigned",
        ),
        param(lambda it: it.log.trim_front(2), (TrimText(("log",), 2),), id="trim"),
        param(lambda it: it.log.trim_front(99), (TrimText(("log",), 3),), id="trim too much"),
        param(
            lambda it: setattr(it.items[1], "title", "new"),
            (SetValue(("items", 1, "title"), "new"),),
            id="a field of an item",
        ),
        param(
            lambda it: setattr(it.items[-1], "n", 4),
            (SetValue(("items", 2, "n"), 4),),
            id="a field of the last item",
        ),
        param(
            lambda it: setattr(it, "items", [one for one in it.items if one.title != "b"]),
            (SpliceList(("items",), 1, 1, ()),),
            id="a filtered list",
        ),
        param(
            lambda it: operator.setitem(
                it.items, slice(None), [one for one in it.items if one.title != "b"]
            ),
            (SpliceList(("items",), 1, 1, ()),),
            id="a filtered list in a slice",
        ),
        param(
            lambda it: operator.setitem(it.items, 1, Item("b", 5)),
            (SetValue(("items", 1, "n"), 5),),
            id="an item that differs in one field",
        ),
        param(
            lambda it: it.numbers.sort(),
            (SpliceList(("numbers",), 0, 4, (1, 1, 2, 3)),),
            id="sort",
        ),
        param(
            lambda it: operator.delitem(it.numbers, slice(1, None, 2)),
            (SpliceList(("numbers",), 1, 3, (2,)),),
            id="extended slice deleted",
        ),
        param(lambda it: it.numbers.clear(), (SpliceList(("numbers",), 0, 4, ()),), id="clear"),
        param(lambda it: it.numbers.pop(0), (SpliceList(("numbers",), 0, 1, ()),), id="pop first"),
        param(lambda it: setattr(it, "title", "title"), (), id="equal text"),
        param(lambda it: setattr(it, "log", "log"), (), id="equal Text"),
        param(lambda it: setattr(it, "numbers", [3, 1, 2, 1]), (), id="equal list"),
        param(lambda it: operator.setitem(it.numbers, 0, 3), (), id="equal number"),
        param(lambda it: operator.setitem(it.items, 0, Item("a", 2)), (), id="equal item"),
        param(lambda it: setattr(it, "items", it.items), (), id="itself"),
        param(lambda it: setattr(it, "items", list(it.items)), (), id="its own items"),
        param(lambda it: operator.setitem(it.items, 0, it.items[0]), (), id="its own item"),
        param(lambda it: operator.setitem(it.numbers, slice(0, 2), [3, 1]), (), id="equal slice"),
        param(lambda it: it.items.sort(key=lambda one: one.title), (), id="sorted already"),
        param(lambda it: it.numbers.extend([]), (), id="extend by nothing"),
        param(lambda it: it.log.append(""), (), id="append nothing"),
        param(lambda it: it.log.trim_front(0), (), id="trim nothing"),
        param(lambda it: operator.delitem(it.numbers, slice(3, 1)), (), id="delete nothing"),
    ],
)
def test_a_delta_says_what_changed_and_no_more(
    change: Callable[[Any], object], operations: tuple[Operation, ...]
) -> None:
    assert noted(change) == operations


@mark.slow
def test_replacing_one_item_of_a_long_list_is_small() -> None:
    for change in (
        lambda it: operator.setitem(it.numbers, 50_000, -1),
        lambda it: operator.delitem(it.numbers, 50_000),
        lambda it: it.numbers.insert(50_000, -1),
        lambda it: setattr(it, "numbers", [n for n in it.numbers if n != 50_000]),
        lambda it: it.log.append("x" * 20),
        lambda it: it.log.trim_front(500_000),
        lambda it: setattr(it, "log", str(it.log) + "y"),
    ):
        assert len(encode_json(noted(change, LONG))) < 100


def test_a_slice_is_compared_with_what_its_items_are_now() -> None:
    """Goal: putting back what an item was before it was changed in place is a change."""
    draft, journal, root = opened()
    draft.items[0].n = 9
    draft.items[:1] = [Item("a", 2)]
    assert draft.items[0] == Item("a", 2)
    assert _applied(STATE.initial_value(), journal) == root.settled() == STATE.initial_value()
