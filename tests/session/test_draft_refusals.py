"""What a draft refuses: with a path, in words, and with nothing changed by the refused call."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from pytest import mark, param, raises

from pidurable_actors import Text, define_doc
from pidurable_actors._json import decode_json, encode_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import InvalidValue, MisuseError, TransactionClosed
from pidurable_actors.records import apply_operations
from pidurable_actors.session._cursors import Cursor, Journal


class Color(enum.Enum):
    RED = "red"


@attrs.define
class Item:
    done: bool = False
    title: str = ""
    weight: float = 0.0
    count: int = 0
    below: list[Item] = attrs.Factory(list)


@attrs.define
class Special(Item):
    extra: int = 0


@attrs.define
class State:
    items: list[Item] = attrs.Factory(lambda: [Item(title=name) for name in "abcd"])
    words: dict[str, str] = attrs.Factory(lambda: {"a": "one"})
    numbers: list[int] = attrs.Factory(lambda: [1, 2, 3, 4])
    anything: Any = attrs.Factory(dict)
    log: Text = attrs.Factory(lambda: Text("log"))
    maybe: int | str | None = None
    color: Color = Color.RED


TODOS = define_doc("app.todos", State)


class Opened:
    """A draft of a state, and what tells whether it was changed."""

    def __init__(self) -> None:
        self.before = TODOS.initial_value()
        self.journal = Journal(TODOS.name)
        self.draft: Any
        self.root: Cursor
        self.draft, self.root = TODOS.draft(self.before, self.journal)

    def check_untouched(self) -> None:
        """Nothing was changed, nothing noted."""
        assert self.root.settled() == self.before
        assert self.journal.operations() == ()
        assert not self.journal


DEEP: Any = []
for _ in range(LIMITS.json_depth):
    DEEP = [DEEP]
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@mark.parametrize(
    ("value", "reason"),
    [
        param(float("nan"), "nan is not JSON", id="nan"),
        param(float("inf"), "inf is not JSON", id="infinity"),
        param(b"x", "bytes", id="bytes"),
        param((1,), "a tuple (use a list)", id="tuple"),
        param({1}, "set", id="set"),
        param({1: 2}, "the key 1 must be a string", id="key"),
        param({"\ud800": 2}, "lone surrogate", id="surrogate key"),
        param(2**63, "64 bits", id="integer"),
        param(-(2**63) - 1, "64 bits", id="negative integer"),
        param("\ud800", "lone surrogate", id="surrogate"),
        param(DEEP, "nested deeper than 128 levels", id="deep"),
        param(CYCLE, "nested deeper than 128 levels", id="cycle"),
        param(Item(), "Item", id="class"),
        param(Color.RED, "Color", id="enumeration"),
        param(object(), "object", id="object"),
    ],
)
def test_what_is_not_strict_json_is_refused_wherever_it_is_put(value: Any, reason: str) -> None:
    """Goal: every door into a JSON field has the same guard, and names the place.

    The bad value stands alone and behind good ones: all or nothing.
    """
    it = Opened()

    def item() -> None:
        it.draft.anything = value

    def inner() -> None:
        it.draft.anything = {"good": 1, "bad": [0, value]}

    def key() -> None:
        it.draft.anything["bad"] = value

    def update() -> None:
        it.draft.anything.update({"good": 1, "bad": value})

    def merge() -> None:
        it.draft.anything |= {"good": 1, "bad": value}

    def default() -> None:
        it.draft.anything.setdefault("bad", value)

    for put in (item, inner, key, update, merge, default):
        with raises(InvalidValue) as refused:
            put()
        assert refused.value.path.startswith('docs["app.todos"].anything')
        assert reason in str(refused.value)
        it.check_untouched()


@mark.parametrize(
    ("put", "path", "reason"),
    [
        param(
            lambda it: setattr(it.items[3], "done", 1),
            'docs["app.todos"].items[3].done',
            "must be bool, not 1",
            id="field of an item",
        ),
        param(
            lambda it: it.items.append(Item(below=[Item(), Item(title=None)])),  # type: ignore[arg-type]
            'docs["app.todos"].items[4].below[1].title',
            "must be str, not None",
            id="deep in an appended item",
        ),
        param(
            lambda it: it.items.extend([Item(), "no"]),
            'docs["app.todos"].items[5]',
            "must be Item, not 'no'",
            id="extend",
        ),
        param(
            lambda it: it.items.extend(make for make in (Item(), None)),
            'docs["app.todos"].items[5]',
            "must be Item, not None",
            id="extend by a generator",
        ),
        param(
            lambda it: it.items.append(Special()),
            'docs["app.todos"].items[4]',
            "must be Item, not Special",
            id="subclass",
        ),
        param(
            lambda it: it.items.insert(1, {"done": True}),
            'docs["app.todos"].items[1]',
            "must be Item, not dict",
            id="insert",
        ),
        param(
            lambda it: it.numbers.__setitem__(slice(1, 2), [7, 8.5]),
            'docs["app.todos"].numbers[2]',
            "must be int, not 8.5",
            id="slice",
        ),
        param(
            lambda it: it.numbers.__setitem__(slice(None, None, 2), [7, True]),
            'docs["app.todos"].numbers[2]',
            "must be int, not True",
            id="extended slice",
        ),
        param(
            lambda it: it.numbers.__setitem__(-1, "x"),
            'docs["app.todos"].numbers[3]',
            "must be int, not 'x'",
            id="index",
        ),
        param(
            lambda it: it.numbers.__iadd__([5, 2**63]),
            'docs["app.todos"].numbers[5]',
            "64 bits",
            id="in place",
        ),
        param(
            lambda it: setattr(it, "numbers", [1, 2.5]),
            'docs["app.todos"].numbers[1]',
            "must be int, not 2.5",
            id="a whole list",
        ),
        param(
            lambda it: setattr(it, "numbers", (1, 2)),
            'docs["app.todos"].numbers',
            "must be a list, not a tuple (use a list)",
            id="a tuple for a list",
        ),
        param(
            lambda it: setattr(it, "words", [("a", "b")]),
            'docs["app.todos"].words',
            "must be a dict, not list",
            id="a list for a dict",
        ),
        param(
            lambda it: it.words.update({"b": "two", "c": 3}),
            'docs["app.todos"].words.c',
            "must be str, not 3",
            id="update",
        ),
        param(
            lambda it: it.words.__setitem__(5, "five"),
            'docs["app.todos"].words',
            "the key 5: must be a string",
            id="key",
        ),
        param(
            lambda it: it.words.__setitem__("\ud800", "x"),
            'docs["app.todos"].words',
            "lone surrogate",
            id="surrogate key",
        ),
        param(
            lambda it: it.log.append("\ud800"),
            'docs["app.todos"].log',
            "lone surrogate",
            id="text",
        ),
        param(
            lambda it: it.log.append(5),
            'docs["app.todos"].log',
            "must be text, not 5",
            id="no text",
        ),
        param(
            lambda it: setattr(it, "log", 5),
            'docs["app.todos"].log',
            "must be Text or str, not 5",
            id="no text for a Text",
        ),
        param(
            lambda it: setattr(it, "maybe", 1.5),
            'docs["app.todos"].maybe',
            "must be int or str, not 1.5",
            id="union",
        ),
        param(
            lambda it: setattr(it, "maybe", "\ud800"),
            'docs["app.todos"].maybe',
            "lone surrogate",
            id="right type in a union",
        ),
        param(
            lambda it: setattr(it, "color", "red"),
            'docs["app.todos"].color',
            "must be Color, not 'red'",
            id="enumeration",
        ),
        param(
            lambda it: setattr(it.items[0], "weight", 10**400),
            'docs["app.todos"].items[0].weight',
            "64 bits",
            id="too large for a float",
        ),
        param(
            lambda it: setattr(it.items[0], "title", "x" * 500 and b"x"),
            'docs["app.todos"].items[0].title',
            "must be str, not bytes",
            id="bytes",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(
    put: Callable[[Any], object], path: str, reason: str
) -> None:
    it = Opened()
    with raises(InvalidValue) as refused:
        put(it.draft)
    assert refused.value.path == path
    assert reason in refused.value.reason
    it.check_untouched()


@mark.parametrize("field", ["nothing", "pi_other", "Items"])
def test_an_attribute_that_is_no_field_is_refused(field: str) -> None:
    it = Opened()
    with raises(AttributeError, match=field):
        setattr(it.draft, field, 1)
    with raises(AttributeError, match=field):
        getattr(it.draft, field)
    with raises(AttributeError, match="cannot be deleted; set it"):
        del it.draft.items
    it.check_untouched()


def test_a_refused_item_does_not_end_what_is_held() -> None:
    it = Opened()
    first = it.draft.items[0]
    with raises(InvalidValue):
        it.draft.items[0] = "no"
    with raises(InvalidValue):
        it.draft.items = [Item(), "no"]
    first.done = True
    assert it.draft.items[0].done


def test_an_iterable_that_raises_changes_nothing() -> None:
    it = Opened()

    def some() -> Iterator[Item]:
        yield Item()
        raise LookupError("no more")

    with raises(LookupError):
        it.draft.items.extend(some())
    with raises(LookupError):
        it.draft.items[1:2] = some()
    it.check_untouched()


# --- depth ---


def grow_json(draft: Any) -> None:
    draft.anything = {"in": draft.anything}


def grow_below(draft: Any) -> None:
    draft.items[0] = Item(below=[draft.items[0]])


def grow_inside(draft: Any) -> None:
    draft.items[0].below = [draft.items[0]]


def grow_below_slice(draft: Any) -> None:
    draft.items[:] = [Item(below=list(draft.items))]


@mark.slow
@mark.parametrize("grow", [grow_json, grow_below, grow_inside, grow_below_slice])
def test_nothing_is_nested_deeper_than_the_limit_by_many_steps(
    grow: Callable[[Any], None],
) -> None:
    """Goal: parts of a draft put into one another stop at the same depth as one deep value."""
    it = Opened()
    with raises(InvalidValue, match="nested deeper than 128 levels"):
        for _ in range(LIMITS.json_depth + 1):
            grow(it.draft)
            assert _levels(it.root.settled()) <= LIMITS.json_depth
    stored = encode_json(it.root.settled())
    assert encode_json(apply_operations(it.before, it.journal.operations())) == stored
    assert TODOS.revision(it.root.settled()) == it.draft


def test_the_deepest_part_can_still_be_changed_and_moved_up() -> None:
    it = Opened()
    with raises(InvalidValue, match="nested deeper"):
        for _ in range(LIMITS.json_depth):
            grow_below(it.draft)
    at = it.draft.items[0]
    while at.below:
        at = at.below[0]
    at.title = "deep"
    it.draft.items.append(at)
    assert it.draft.items[-1].title == "deep"
    assert decode_json(encode_json(it.root.settled())) is not None


def _levels(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_levels, value.values()), default=0)
    if hasattr(value, "splice"):
        return 1 + max(map(_levels, value), default=0)
    return 0


# --- parts that are gone, drafts that are over, revisions ---

USES: dict[str, Callable[[Any], object]] = {
    "read": lambda it: it.title,
    "write": lambda it: setattr(it, "title", "x"),
    "write what is there": lambda it: setattr(it, "title", ""),
    "list": lambda it: it.below,
    "set list": lambda it: setattr(it, "below", []),
    "equal": lambda it: it == Item(),
    "repr": repr,
    "evolve": lambda it: attrs.evolve(it, title="x"),
}


@mark.parametrize(
    "take",
    [
        param(lambda it: it.items.pop(1), id="pop"),
        param(lambda it: it.items.__delitem__(1), id="del"),
        param(lambda it: it.items.__delitem__(slice(1, 3)), id="slice"),
        param(lambda it: it.items.__delitem__(slice(1, None, 2)), id="extended slice"),
        param(lambda it: it.items.__setitem__(1, Item(title="other")), id="replaced"),
        param(lambda it: it.items.__setitem__(slice(0, 2), []), id="slice replaced"),
        param(lambda it: it.items.remove(it.items[1]), id="remove"),
        param(lambda it: it.items.clear(), id="clear"),
        param(lambda it: it.items.__imul__(0), id="times nothing"),
        param(lambda it: setattr(it, "items", []), id="list replaced"),
    ],
)
@mark.parametrize("use", USES.values(), ids=list(USES))
def test_a_part_that_was_taken_out_or_replaced_refuses_use(
    take: Callable[[Any], object], use: Callable[[Any], object]
) -> None:
    it = Opened()
    part, inner = it.draft.items[1], it.draft.items[1].below
    take(it.draft)
    noted = it.journal.operations()
    with raises(MisuseError, match=r'docs\["app.todos"\]: this part was taken out'):
        use(part)
    with raises(MisuseError, match="read it again from where it is now"):
        inner.append(Item())
    with raises(MisuseError):
        len(inner)
    assert it.journal.operations() == noted


@mark.parametrize(
    "take",
    [
        param(lambda it: it.anything.pop("k"), id="pop"),
        param(lambda it: it.anything.popitem(), id="popitem"),
        param(lambda it: it.anything.__delitem__("k"), id="del"),
        param(lambda it: it.anything.clear(), id="clear"),
        param(lambda it: it.anything.update({"k": 1}), id="update"),
        param(lambda it: it.anything.__setitem__("k", [1, 2]), id="set"),
        param(lambda it: setattr(it, "anything", None), id="replaced"),
    ],
)
def test_a_part_of_a_mapping_that_was_taken_out_refuses_use(take: Callable[[Any], object]) -> None:
    it = Opened()
    it.draft.anything = {"k": [{"x": []}]}
    part = it.draft.anything["k"]
    inner = part[0]["x"]
    take(it.draft)
    for gone in (part, inner):
        for use in (len, list, lambda one: one.append(1), lambda one: one == []):
            with raises(MisuseError, match="was taken out"):
                use(gone)


def test_a_draft_refuses_everything_once_its_callback_is_over() -> None:
    """Goal: nothing that a callback leaked can be read or changed, and the error says why."""
    it = Opened()
    draft = it.draft
    item, items, words, log = draft.items[0], draft.items, draft.words, draft.log
    iterator, pairs = iter(items), iter(words.items())
    it.journal.open = False
    uses: list[Callable[[], object]] = [
        lambda: draft.items,
        lambda: draft.color,
        lambda: setattr(draft, "color", Color.RED),
        lambda: setattr(draft, "items", items),
        lambda: item.title,
        lambda: setattr(item, "title", "x"),
        lambda: len(items),
        lambda: items[0],
        lambda: items.append(Item()),
        lambda: items.sort(key=id),
        lambda: next(iterator),
        items.clear,
        lambda: words["a"],
        lambda: words.get("a"),
        lambda: words.update({}),
        lambda: words.setdefault("a", "x"),
        words.clear,
        lambda: list(words),
        lambda: next(pairs),
        lambda: str(log),
        lambda: len(log),
        lambda: log.append(""),
        lambda: log.trim_front(0),
        lambda: repr(draft),
        lambda: draft == State(),
        lambda: attrs.evolve(draft),
    ]
    for use in uses:
        with raises(TransactionClosed, match="a draft ends with its callback; return what you"):
            use()
    it.check_untouched()


def test_a_part_of_a_draft_that_is_over_cannot_be_put_into_another() -> None:
    old, it = Opened(), Opened()
    item, items, words, log = old.draft.items[0], old.draft.items, old.draft.words, old.draft.log
    old.journal.open = False
    for put in (
        lambda: it.draft.items.append(item),
        lambda: setattr(it.draft, "items", items),
        lambda: setattr(it.draft, "words", words),
        lambda: setattr(it.draft, "log", log),
        lambda: setattr(it.draft, "anything", words),
    ):
        with raises(TransactionClosed):
            put()
    it.check_untouched()


def test_a_revision_can_be_read_and_not_changed() -> None:
    """Goal: what is stored is handed to anybody; every way to change it says how to do it."""
    value = TODOS.initial_value()
    revision: Any = TODOS.revision(value)
    changes: list[Callable[[], object]] = [
        lambda: setattr(revision, "maybe", 1),
        lambda: setattr(revision, "items", []),
        lambda: setattr(revision.items[0], "title", "x"),
        lambda: revision.items.append(Item()),
        lambda: revision.items.extend([]),
        lambda: revision.items.insert(0, Item()),
        revision.items.pop,
        revision.items.reverse,
        lambda: revision.items.sort(key=repr),
        revision.items.clear,
        lambda: revision.items.__imul__(1),
        lambda: revision.items.__delitem__(0),
        lambda: revision.items.__setitem__(0, Item()),
        revision.items[0].below.clear,
        lambda: revision.words.update({}),
        lambda: revision.words.setdefault("b", "two"),
        lambda: revision.words.pop("a"),
        lambda: revision.words.pop("b", None),
        revision.words.popitem,
        revision.words.clear,
        revision.anything.clear,
        lambda: revision.words.__setitem__("a", "one"),
        lambda: revision.log.append(""),
        lambda: revision.log.trim_front(0),
    ]
    for change in changes:
        with raises(MisuseError, match=r"open the document with tx.doc in a commit"):
            change()
    assert revision == State()
    assert State() == revision
    assert revision.words.setdefault("a", "x") == "one"
    assert value == TODOS.initial_value()
    assert isinstance(revision, State)
    assert attrs.evolve(revision, maybe=5) == State(maybe=5)


def test_a_text_is_trimmed_by_no_negative_count() -> None:
    it = Opened()
    with raises(InvalidValue, match="0 or more characters, not -1"):
        it.draft.log.trim_front(-1)
    assert it.draft.log.since(-5) == "log"
    it.check_untouched()
