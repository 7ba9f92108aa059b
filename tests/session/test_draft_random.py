"""Random programs: a draft does what plain lists, dicts and instances do, and notes just that.

Each program runs on a draft and on plain objects side by side. A step goes down to some part, or
takes one that was held from before, and calls something on it. Whatever a plain object returns or
raises, the draft returns or raises; in the end both are stored as the same text, and so is the value
before with the journal's operations.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Literal

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest import mark

from pidurable_actors import Text, define_doc
from pidurable_actors._json import decode_json, encode_json
from pidurable_actors.errors import MisuseError
from pidurable_actors.records import DocumentRecord, apply_operations, operations_from_json
from pidurable_actors.session._class_plans import class_plan
from pidurable_actors.session._cursors import Journal
from pidurable_actors.session._tracked import TrackedDict, TrackedList


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Point:
    x: int = 0
    y: float = 0.0


@attrs.define
class Circle:
    kind: Literal["circle"] = "circle"
    radius: int = 1


@attrs.define
class Square:
    kind: Literal["square"] = "square"
    corners: list[int] = attrs.Factory(list)


@attrs.define
class Item:
    title: str = ""
    tags: list[str] = attrs.Factory(list)
    log: Text = attrs.Factory(Text)
    below: Item | None = None


@attrs.define
class State:
    numbers: list[int] = attrs.Factory(lambda: [3, 1, 2])
    items: list[Item] = attrs.Factory(lambda: [Item("a"), Item("b", ["x", "y"])])
    words: dict[str, str] = attrs.Factory(lambda: {"a": "one"})
    table: dict[str, list[Item]] = attrs.Factory(lambda: {"a": [Item("c"), Item("d")]})
    shapes: list[Circle | Square | None] = attrs.Factory(lambda: [Circle(), Square(corners=[1])])
    log: Text = attrs.Factory(lambda: Text("log"))
    title: str = "t"
    maybe: Item | None = None
    anything: Any = attrs.Factory(lambda: {"a": [1, {"b": []}], "c": None})
    color: Color = Color.RED
    colors: list[Color] = attrs.Factory(list)
    point: Point = Point()
    points: list[Point] = attrs.Factory(list)


Kind = Any
"""What a part is: ("list", of what), ("dict", of what), a class, or a name of a scalar."""

FIELDS: dict[type, dict[str, Kind]] = {
    State: {
        "numbers": ("list", "int"),
        "items": ("list", Item),
        "words": ("dict", "str"),
        "table": ("dict", ("list", Item)),
        "shapes": ("list", "shape"),
        "log": Text,
        "title": "str",
        "maybe": "item?",
        "anything": "json",
        "color": "color",
        "colors": ("list", "color"),
        "point": "point",
        "points": ("list", "point"),
    },
    Item: {"title": "str", "tags": ("list", "str"), "log": Text, "below": "item?"},
    Circle: {"radius": "int"},
    Square: {"corners": ("list", "int")},
}

short = st.text("abé", max_size=3)
keys = st.sampled_from("abcd")
json = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, -0.0, 1.0]) | short,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=4,
)
items: st.SearchStrategy[Item] = st.deferred(
    lambda: st.builds(
        Item,
        short,
        st.lists(short, max_size=2),
        st.builds(Text, short),
        st.none() | st.none() | items,
    )
)
points = st.builds(Point, st.integers(-2, 2), st.sampled_from([0.0, -0.0, 1.5]))
circles = st.builds(Circle, radius=st.integers(0, 2))
squares = st.builds(Square, corners=st.lists(st.integers(0, 2), max_size=2))
colors = st.sampled_from(Color)
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    "int": st.integers(-2, 3),
    "str": short,
    "json": json,
    "item?": st.none() | items,
    "shape": st.none() | circles | squares,
    "color": colors,
    "point": points,
    Item: items,
    Text: st.builds(Text, short) | short,
}
indexes = st.integers(-4, 5)
bounds = st.none() | indexes
slices = st.builds(slice, bounds, bounds, st.sampled_from([None, None, 1, -1, 2, -2, 3]))


def values(kind: Kind) -> st.SearchStrategy[Any]:
    """Plain values of a kind."""
    if isinstance(kind, tuple):
        if kind[0] == "list":
            return st.lists(values(kind[1]), max_size=4)
        return st.dictionaries(keys, values(kind[1]), max_size=3)
    return VALUES[kind]


def actual(kind: Kind, part: object) -> Kind:
    """The kind of a part that may be of several."""
    if kind == "json":
        if isinstance(part, list):
            return ("list", "json")
        return ("dict", "json") if isinstance(part, dict) else kind
    if kind in ("shape", "item?") and part is not None:
        return type(part)
    return kind


@attrs.define
class Pair:
    """A part of the draft, the same part of the plain objects, and what they are."""

    draft: Any
    plain: Any
    kind: Kind


def parts(pair: Pair) -> Iterator[tuple[Callable[[Any], Any], Kind]]:
    """How to get to the parts of a part."""
    kind, plain = actual(pair.kind, pair.plain), pair.plain
    if isinstance(kind, tuple):
        where = range(len(plain)) if kind[0] == "list" else list(plain)
        for at in where:
            yield operator.itemgetter(at), kind[1]
    for name, inner in FIELDS.get(kind, {}).items():
        yield operator.attrgetter(name), inner


def reaches(plain: object, wanted: object) -> bool:
    """Whether an object is part of another, the very same."""
    if plain is wanted:
        return True
    if isinstance(plain, list):
        return any(reaches(item, wanted) for item in plain)
    if isinstance(plain, dict):
        return any(reaches(item, wanted) for item in plain.values())
    names = FIELDS.get(type(plain), {})
    return any(reaches(getattr(plain, name), wanted) for name in names)


def is_part(plain: object) -> bool:
    """Whether it has an identity that a draft keeps too."""
    return isinstance(plain, list | dict | Text | Item | Circle | Square)


def is_tracked(found: object) -> bool:
    """Whether it leads to the document, rather than being a value of its own."""
    is_text = isinstance(found, Text) and found.cursor is not None
    return isinstance(found, TrackedList | TrackedDict) or is_text or hasattr(found, "pi_cursor")


def outcome(call: Callable[[], Any]) -> tuple[str, object]:
    """What a call returns, as text that tells 1 from 1.0, or the type of what it raises."""
    try:
        found = call()
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        return "raises", type(error)
    return "returns", repr(deepcopy(found))


class Program:
    """One run, step by step."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.definition = define_doc("app.state", State, history="rewindable", fork="as_of")
        self.before = self.definition.initial_value()
        self.text_before = encode_json(self.before)
        self.journal = Journal(self.definition.name)
        draft, self.root = self.definition.draft(self.before, self.journal)
        self.top = Pair(draft, State(), State)
        self.held: list[Pair] = []

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        """A choice."""
        return self.data.draw(strategy)

    def choose(self) -> Pair:
        """Some part: one that is still held, or one that is found by going down."""
        if self.held and self.draw(st.integers(0, 3)) == 0:
            # By number: a report of what was drawn cannot show a part that is gone.
            pair: Pair = self.held[self.draw(st.integers(0, len(self.held) - 1))]
            if reaches(self.top.plain, pair.plain):
                return pair
            self.held = [other for other in self.held if other is not pair]
            self.expect_gone_or_equal(pair)
        pair = self.top
        while below := list(parts(pair)):
            if pair is not self.top and self.draw(st.integers(0, 1)) == 0:
                break
            get, kind = self.draw(st.sampled_from(below))
            plain = get(pair.plain)
            if not is_part(plain):
                break
            pair = Pair(get(pair.draft), plain, actual(kind, plain))
        if pair is not self.top:
            self.held.append(pair)
        return pair

    def expect_gone_or_equal(self, pair: Pair) -> None:
        """A part that was replaced refuses, unless an equal one was put in its place."""
        try:
            repr(pair.draft)
        except MisuseError as error:
            assert "taken out of the document, or replaced" in str(error)

    def value(self, kind: Kind) -> tuple[Any, Any]:
        """Something to put in: for the draft, and a copy for the plain objects."""
        if self.draw(st.integers(0, 3)) == 0:
            for pair in self.held:
                if pair.kind == kind and reaches(self.top.plain, pair.plain):
                    return pair.draft, deepcopy(pair.plain)
        made = self.draw(values(kind))
        plain = deepcopy(made)
        return made, Text(plain) if kind is Text and isinstance(plain, str) else plain

    def several(self, kind: Kind) -> tuple[list[Any], list[Any]]:
        """Some things to put in."""
        both = [self.value(kind) for _ in range(self.draw(st.integers(0, 3)))]
        return [one for one, _ in both], [other for _, other in both]

    def both(
        self, pair: Pair, call: Callable[[Any, Any], Any], arguments: Any = (None, None)
    ) -> None:
        """Call it on the draft and on the plain part."""
        for_draft, for_plain = arguments
        is_whole = self.draw(st.booleans())
        expected = outcome(lambda: call(pair.plain, for_plain))
        assert outcome(lambda: call(pair.draft, for_draft)) == expected
        if is_whole:
            assert self.top.draft == self.top.plain
            assert self.top.plain == self.top.draft
        assert pair.draft == pair.plain
        assert repr(pair.draft) == repr(pair.plain)

    def step(self) -> None:
        """One step."""
        pair = self.choose()
        kind = actual(pair.kind, pair.plain)
        if isinstance(kind, tuple):
            steps = LIST_STEPS if kind[0] == "list" else DICT_STEPS
            self.draw(st.sampled_from(steps))(self, pair, kind[1])
        elif kind is Text:
            text, count = self.draw(short), self.draw(st.integers(0, 5))
            if self.draw(st.booleans()):
                self.both(pair, lambda it, _: it.append(text))
            else:
                self.both(pair, lambda it, _: it.trim_front(count))
        else:
            name = self.draw(st.sampled_from(list(FIELDS[kind])))
            self.set_field(pair, name, FIELDS[kind][name])

    def set_field(self, pair: Pair, name: str, kind: Kind) -> None:
        """Assign a field, or change it in place."""
        if kind in ("str", Text) and self.draw(st.booleans()):
            more = self.draw(short)
            self.both(pair, lambda it, _: setattr(it, name, add(getattr(it, name), more)))
        elif isinstance(kind, tuple) and kind[0] == "list" and self.draw(st.booleans()):
            self.both(
                pair,
                lambda it, more: setattr(it, name, add(getattr(it, name), more)),
                self.several(kind[1]),
            )
        else:
            self.both(pair, lambda it, value: setattr(it, name, value), self.value(kind))

    def check(self) -> None:
        """What was noted is what was done."""
        settled, operations = self.root.settled(), self.journal.operations()
        stored = encode_json(settled)
        assert stored == encode_json(class_plan(State).dump(self.top.plain, 0))
        assert encode_json(apply_operations(self.before, operations)) == stored
        again = operations_from_json(decode_json(encode_json(operations)))
        assert encode_json(apply_operations(self.before, again)) == stored
        assert encode_json(self.before) == self.text_before
        assert bool(self.journal) == bool(operations)
        record = DocumentRecord(
            id=1,
            kind="app.state",
            scope="session",
            scope_id=0,
            key="",
            version=1,
            history="rewindable",
            fork="as_of",
            created_at_ms=0,
        )
        assert self.definition.load(record, settled) is settled
        assert self.definition.revision(settled) == self.top.plain
        for pair in self.held:
            if reaches(self.top.plain, pair.plain):
                assert pair.draft == pair.plain


def add(old: Any, more: Any) -> Any:
    """``+=``."""
    old += more
    return old


def multiply(it: Any, other: Any) -> Any:
    """``it *= other``."""
    it *= other
    return it


def merge(it: Any, other: Any) -> Any:
    """``it |= other``."""
    it |= other
    return it


def set_item(it: Any, at: Any, value: Any) -> None:
    """``it[at] = value``."""
    it[at] = value


def list_set(run: Program, pair: Pair, kind: Kind) -> None:
    """``it[at] = value``."""
    at = run.draw(indexes)
    run.both(pair, lambda it, value: set_item(it, at, value), run.value(kind))


def list_set_slice(run: Program, pair: Pair, kind: Kind) -> None:
    """``it[a:b:c] = values``, perhaps some of its own items."""
    at = run.draw(slices)
    if run.draw(st.booleans()):
        run.both(pair, lambda it, many: set_item(it, at, many), run.several(kind))
        return
    own = run.draw(slices)
    mine = pair.draft[own], deepcopy(pair.plain[own])
    run.both(pair, lambda it, many: set_item(it, at, many), mine)


def list_filter(run: Program, pair: Pair, kind: Kind) -> None:
    """``it[a:b] = some of it``, in order, perhaps with one more in between."""
    start = run.draw(st.integers(0, 1))
    kept = run.draw(st.lists(st.booleans(), min_size=8, max_size=8))
    for_draft = [one for one, keep in zip(pair.draft[start:], kept, strict=False) if keep]
    for_plain = [deepcopy(one) for one, keep in zip(pair.plain[start:], kept, strict=False) if keep]
    if run.draw(st.booleans()):
        at = run.draw(st.integers(0, 2))
        one, other = run.value(kind)
        for_draft.insert(at, one)
        for_plain.insert(at, other)
    end = start + len(kept)
    run.both(pair, lambda it, many: set_item(it, slice(start, end), many), (for_draft, for_plain))


def list_delete(run: Program, pair: Pair, kind: Kind) -> None:
    """``del it[at]``."""
    at = run.draw(indexes | slices)
    run.both(pair, lambda it, _: operator.delitem(it, at))


def list_insert(run: Program, pair: Pair, kind: Kind) -> None:
    """``it.insert(at, value)``."""
    at = run.draw(indexes)
    run.both(pair, lambda it, value: it.insert(at, value), run.value(kind))


def list_append(run: Program, pair: Pair, kind: Kind) -> None:
    """``it.append(value)``."""
    run.both(pair, lambda it, value: it.append(value), run.value(kind))


def list_extend(run: Program, pair: Pair, kind: Kind) -> None:
    """``it.extend(values)``, perhaps itself."""
    if run.draw(st.integers(0, 4)) == 0 and len(pair.plain) < 5:
        run.both(pair, lambda it, other: it.extend(other), (pair.draft, deepcopy(pair.plain)))
    else:
        run.both(pair, lambda it, many: it.extend(iter(many)), run.several(kind))


def list_pop(run: Program, pair: Pair, kind: Kind) -> None:
    """``it.pop(at)``; a plain object."""
    at = run.draw(indexes)

    def pop(it: Any, _: object) -> Any:
        found = it.pop(at)
        assert not is_tracked(found)
        return found

    run.both(pair, pop)


def list_remove(run: Program, pair: Pair, kind: Kind) -> None:
    """``it.remove(value)``."""
    run.both(pair, lambda it, value: it.remove(value), run.value(kind))


def list_order(run: Program, pair: Pair, kind: Kind) -> None:
    """Reverse or sort."""
    by = run.draw(st.sampled_from([None, repr]))
    is_reverse = run.draw(st.booleans())
    if run.draw(st.booleans()):
        run.both(pair, lambda it, _: it.reverse())
    elif by is None and kind not in ("int", "str"):
        return
    else:
        run.both(pair, lambda it, _: it.sort(key=by, reverse=is_reverse))


def list_clear(run: Program, pair: Pair, kind: Kind) -> None:
    """``it.clear()``."""
    run.both(pair, lambda it, _: it.clear())


def list_times(run: Program, pair: Pair, kind: Kind) -> None:
    """``it *= times``."""
    times = run.draw(st.integers(-1, 2))
    if len(pair.plain) < 5 and not (times > 1 and any(map(is_part, pair.plain))):
        run.both(pair, lambda it, _: multiply(it, times))


def list_ask(run: Program, pair: Pair, kind: Kind) -> None:
    """What does not change it."""
    at, some = run.draw(indexes), run.draw(slices)
    run.both(pair, lambda it, _: it[at])
    run.both(pair, lambda it, _: it[some])
    run.both(pair, lambda it, value: (value in it, it.count(value)), run.value(kind))
    run.both(pair, lambda it, value: it.index(value, at), run.value(kind))
    run.both(pair, lambda it, many: (it + many, many + it, it == many), run.several(kind))
    run.both(pair, lambda it, _: (list(reversed(it)), it.copy(), it * 2, len(it), bool(it)))


def dict_set(run: Program, pair: Pair, kind: Kind) -> None:
    """``it[key] = value``."""
    key = run.draw(keys)
    run.both(pair, lambda it, value: set_item(it, key, value), run.value(kind))


def dict_default(run: Program, pair: Pair, kind: Kind) -> None:
    """``it.setdefault(key, value)``."""
    key = run.draw(keys)
    run.both(pair, lambda it, value: it.setdefault(key, value), run.value(kind))


def dict_delete(run: Program, pair: Pair, kind: Kind) -> None:
    """``del it[key]``, and both kinds of ``pop``."""
    key, fallback = run.draw(keys), run.draw(st.booleans())
    ways: list[Callable[[Any, Any], Any]] = [
        lambda it, _: operator.delitem(it, key),
        lambda it, _: it.pop(key, "no") if fallback else it.pop(key),
        lambda it, _: it.popitem(),
    ]
    run.both(pair, run.draw(st.sampled_from(ways)))


def dict_update(run: Program, pair: Pair, kind: Kind) -> None:
    """``it.update(...)`` in its forms, and ``|=``."""
    both = {run.draw(keys): run.value(kind) for _ in range(run.draw(st.integers(0, 3)))}
    more = (
        {key: one for key, (one, _) in both.items()},
        {key: one for key, (_, one) in both.items()},
    )
    ways: list[Callable[[Any, Any], Any]] = [
        lambda it, new: it.update(new),
        lambda it, new: it.update(list(new.items())),
        lambda it, new: it.update(**new),
        merge,
    ]
    run.both(pair, run.draw(st.sampled_from(ways)), more)


def dict_clear(run: Program, pair: Pair, kind: Kind) -> None:
    """``it.clear()``."""
    run.both(pair, lambda it, _: it.clear())


def dict_ask(run: Program, pair: Pair, kind: Kind) -> None:
    """What does not change it."""
    key = run.draw(keys)
    run.both(pair, lambda it, _: it[key])
    run.both(pair, lambda it, value: it.get(key, value), run.value(kind))
    run.both(pair, lambda it, _: (key in it, list(it), list(reversed(it)), len(it), bool(it)))
    run.both(pair, lambda it, _: (list(it.keys()), list(it.values()), list(it.items())))
    run.both(pair, lambda it, _: ({**it}, it.copy(), it | {"z": 1}, {"z": 1} | it))


LIST_STEPS = [
    list_filter,
    *[list_set, list_set_slice, list_delete, list_insert, list_append, list_append, list_extend],
    *[list_pop, list_remove, list_order, list_clear, list_times, list_ask],
]
DICT_STEPS = [dict_set, dict_set, dict_default, dict_delete, dict_update, dict_clear, dict_ask]


@mark.slow
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_draft_does_what_plain_objects_do(data: st.DataObject) -> None:
    run = Program(data)
    for _ in range(data.draw(st.integers(1, 14))):
        run.step()
    run.check()


@mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.booleans(), short, st.integers(0, 6)), max_size=30))
def test_a_growing_text_is_the_string_it_stands_for(
    steps: list[tuple[bool, str, int]],
) -> None:
    run = define_doc("app.item", Item)
    before = run.initial_value()
    journal = Journal(run.name)
    draft, root = run.draft(before, journal)
    own, expected = Text(), ""
    for is_append, text, count in steps:
        for it in (draft.log, own):
            if is_append:
                it.append(text)
            else:
                it.trim_front(count)
        expected = expected + text if is_append else expected[count:]
        for it in (draft.log, own):
            assert it == expected
            assert str(it) == expected
            assert len(it) == len(expected)
            assert it.since(count) == expected[count:]
    assert apply_operations(before, journal.operations()) == root.settled()
