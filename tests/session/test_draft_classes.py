"""Classes of a draft: what attrs does for a class, it does for the part that stands for one."""

from __future__ import annotations

import copy
import enum
import functools
from typing import Any, Literal

import attrs
from pytest import mark, raises

from pidurable_actors import Text, define_doc
from pidurable_actors._json import encode_json
from pidurable_actors.errors import DefinitionError, InvalidValue, MisuseError
from pidurable_actors.records import SetValue, SpliceList, apply_operations
from pidurable_actors.session._cursors import Cursor, Journal


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@attrs.frozen
class Point:
    x: int = 0
    y: float = 0.0


@attrs.define
class Leaf:
    kind: Literal["leaf"] = "leaf"
    n: int = 0


@attrs.define
class Branch:
    kind: Literal["branch"] = "branch"
    left: Branch | Leaf | None = None
    right: Leaf | Branch | None = None


def strip(text: str) -> str:
    return text.strip()


def positive(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 0:
        raise ValueError(f"{attribute.name} must not be negative")


@attrs.define
class Checked:
    count: int = attrs.field(default=0, validator=positive)
    name: str = attrs.field(default=" n ", converter=strip)
    fixed: int = attrs.field(default=1, on_setattr=attrs.setters.frozen)
    _secret: str = "s"
    made: int = attrs.field(default=7, init=False)
    noise: int = attrs.field(default=0, eq=False)

    @property
    def double(self) -> int:
        return self.count * 2

    @double.setter
    def double(self, value: int) -> None:
        self.count = value // 2

    def raise_by(self, more: int) -> int:
        self.count += more
        return self.count

    @classmethod
    def named(cls, name: str) -> Checked:
        return cls(name=name)

    @staticmethod
    def answer() -> int:
        return 42

    def tell(self, secret: str) -> None:
        self._secret = secret

    def told(self) -> str:
        return self._secret


@attrs.define(slots=False)
class Loose:
    items: list[int] = attrs.Factory(list)

    @functools.cached_property
    def first_asked(self) -> int:
        return len(self.items)


@attrs.define
class Base:
    name: str = ""
    tags: list[str] = attrs.Factory(list)

    def tag(self, tag: str) -> None:
        self.tags.append(tag)


@attrs.define
class Derived(Base):
    extra: int = 0

    def tag(self, tag: str) -> None:
        super().tag(tag.upper())
        self.extra += 1


@attrs.define
class Node:
    name: str = ""
    below: list[Node] = attrs.Factory(list)
    by_name: dict[str, Node] = attrs.Factory(dict)
    mate: Node | None = None


@attrs.define
class State:
    checked: Checked = attrs.Factory(Checked)
    loose: Loose = attrs.Factory(Loose)
    derived: Derived = attrs.Factory(Derived)
    node: Node = attrs.Factory(Node)
    tree: Branch | Leaf = attrs.Factory(Leaf)
    point: Point = Point()
    points: list[Point] = attrs.Factory(list)
    color: Color = Color.RED
    colors: dict[str, Color] = attrs.Factory(dict)
    level: Level = Level.LOW
    mode: Literal["on", "off", 1] | None = "on"
    number: float | int | None = None
    either: int | str | list[int] | None = None
    maybe: Base | None = None
    log: Text = attrs.Factory(Text)
    anything: Any = None


STATE = define_doc("app.state", State)


class Opened:
    """A draft of a new document, and what it has to come to."""

    def __init__(self) -> None:
        self.before = STATE.initial_value()
        self.journal = Journal(STATE.name)
        self.draft: State
        self.root: Cursor
        self.draft, self.root = STATE.draft(self.before, self.journal)

    def check(self, expected: State) -> None:
        """It equals a plain instance both ways round, and its operations make it."""
        settled = self.root.settled()
        assert self.draft == expected
        assert expected == self.draft
        assert repr(self.draft) == repr(expected)
        after = apply_operations(self.before, self.journal.operations())
        assert encode_json(after) == encode_json(settled)
        assert STATE.revision(settled) == expected
        assert copy.deepcopy(self.draft) == expected
        assert type(copy.deepcopy(self.draft)) is State


def test_a_draft_is_an_instance_of_its_class() -> None:
    it = Opened()
    assert isinstance(it.draft, State)
    assert isinstance(it.draft.derived, Base)
    assert attrs.fields(type(it.draft)) == attrs.fields(State)
    assert attrs.has(type(it.draft))
    assert type(it.draft).__name__ == "State"
    match it.draft.checked:
        case Checked(count=0, name=name):
            assert name == "n"
        case _:
            raise AssertionError
    it.check(State())


def test_validators_and_converters_run_when_a_field_is_set() -> None:
    it = Opened()
    with raises(ValueError, match="count must not be negative"):
        it.draft.checked.count = -1
    assert not it.journal
    it.draft.checked.name = "  spaced "
    it.draft.checked.count = 3
    it.check(State(checked=Checked(3, "spaced")))


def test_a_field_that_attrs_keeps_from_being_set_stays_as_it_is() -> None:
    it = Opened()
    with raises(attrs.exceptions.FrozenAttributeError):
        it.draft.checked.fixed = 2
    it.check(State())


def test_properties_and_methods_of_the_class_work_on_the_draft() -> None:
    """Goal: a class keeps its behaviour: what changes self changes the document."""
    it = Opened()
    checked = it.draft.checked
    checked.double = 10
    assert checked.raise_by(2) == 7
    assert (checked.count, checked.double) == (7, 14)
    checked.tell("new")
    assert checked.told() == "new"
    checked.made = 8
    assert checked.named("x") == Checked(name="x")
    assert checked.answer() == 42
    it.draft.derived.tag("t")
    assert it.journal.operations() == (
        SetValue(("checked", "count"), 5),
        SetValue(("checked", "count"), 7),
        SetValue(("checked", "_secret"), "new"),
        SetValue(("checked", "made"), 8),
        SpliceList(("derived", "tags"), 0, 0, ("T",)),
        SetValue(("derived", "extra"), 1),
    )
    expected = State(checked=Checked(7, secret="new"), derived=Derived("", ["T"], 1))
    expected.checked.made = 8
    it.check(expected)


def test_a_field_that_is_not_compared_is_not_compared() -> None:
    it = Opened()
    it.draft.checked.noise = 5
    assert it.draft.checked == Checked()
    assert Checked() == it.draft.checked
    it.draft.checked.count = 5
    assert it.draft.checked != Checked()


def test_a_class_with_a_dict_takes_fields_only() -> None:
    it = Opened()
    it.draft.loose.items.append(1)
    with raises(AttributeError, match="Loose has no field 'other' that is stored"):
        it.draft.loose.other = 1  # type: ignore[attr-defined]
    it.check(State(loose=Loose([1])))


def test_evolve_and_copies_make_plain_instances_that_share_nothing() -> None:
    """Goal: whatever leaves the draft belongs to the caller, down to its lists."""
    it = Opened()
    it.draft.derived.tag("a")
    noted = it.journal.operations()
    evolved = attrs.evolve(it.draft.derived, name="other")
    whole = attrs.evolve(it.draft, number=5)
    shallow, deep = copy.copy(it.draft.derived), copy.deepcopy(it.draft.derived)
    for made in (evolved, shallow, deep, whole.derived):
        assert type(made) is Derived
        assert type(made.tags) is list
        made.tags.append("mine")
    assert type(whole) is State
    assert type(whole.log) is Text
    whole.log.append("mine")
    assert it.journal.operations() == noted
    it.journal.open = False
    assert evolved == Derived("other", ["A", "mine"], 1)
    assert str(whole.log) == "mine"


def test_a_class_leads_to_itself_through_lists_dicts_and_options() -> None:
    it = Opened()
    it.draft.node.below.append(Node("a", [Node("b")]))
    deep = it.draft.node.below[0].below[0]
    deep.by_name["c"] = Node("c")
    deep.by_name["c"].mate = Node("d")
    mate = deep.by_name["c"].mate
    assert mate is not None
    mate.below.append(Node("e"))
    deep.name = "B"
    inner = Node("B", by_name={"c": Node("c", mate=Node("d", [Node("e")]))})
    it.check(State(node=Node(below=[Node("a", [inner])])))
    assert it.journal.operations()[-1] == SetValue(("node", "below", 0, "below", 0, "name"), "B")


def test_a_union_of_classes_is_told_apart_by_its_tag() -> None:
    it = Opened()
    assert isinstance(it.draft.tree, Leaf)
    it.draft.tree = Branch(left=Leaf(n=1), right=Branch())
    assert isinstance(it.draft.tree, Branch)
    tree: Any = it.draft.tree
    tree.left.n = 2
    tree.right.left = Leaf(n=3)
    tree.right.left.n += 1
    it.check(State(tree=Branch(left=Leaf(n=2), right=Branch(left=Leaf(n=4)))))
    with raises(InvalidValue, match="must be Branch or Leaf, not Node"):
        it.draft.tree = Node()  # type: ignore[assignment]
    with raises(InvalidValue, match=r"tree\.left\.n: must be int, not 'x'"):
        it.draft.tree = Branch(left=Leaf(n="x"))  # type: ignore[arg-type]


def test_a_tag_cannot_be_changed_to_that_of_another_class() -> None:
    it = Opened()
    with raises(InvalidValue, match="must be one of 'leaf', not 'branch'"):
        it.draft.tree.kind = "branch"
    it.check(State())


def test_frozen_classes_are_plain_values_that_are_replaced() -> None:
    it = Opened()
    it.draft.point = Point(1, 2)
    it.draft.points.extend([Point(3), it.draft.point])
    assert type(it.draft.points[0]) is Point
    assert hash(it.draft.point) == hash(Point(1, 2.0))
    with raises(attrs.exceptions.FrozenInstanceError):
        it.draft.point.x = 5  # type: ignore[misc]
    it.draft.points[0] = attrs.evolve(it.draft.points[0], y=1.5)
    it.check(State(point=Point(1, 2.0), points=[Point(3, 1.5), Point(1, 2.0)]))


def test_enumerations_and_literals_are_stored_as_their_values() -> None:
    it = Opened()
    it.draft.color, it.draft.level = Color.BLUE, Level.HIGH
    it.draft.colors["a"] = Color.RED
    it.draft.mode = 1
    assert it.draft.color is Color.BLUE
    assert it.draft.level is Level.HIGH
    assert it.draft.colors == {"a": Color.RED}
    settled = it.root.settled()
    stored = [settled[name] for name in ("color", "level", "mode", "colors")]
    assert encode_json(stored) == '["blue",2,1,{"a":"red"}]'
    for wrong in (True, 1.0, "ON", 2):
        with raises(InvalidValue, match="must be one of 'on', 'off', 1, not"):
            it.draft.mode = wrong  # type: ignore[assignment]


@mark.parametrize("value", [1, 1.0, 1.5, None, -0.0, 0, 2**62])
def test_a_number_of_two_types_keeps_its_own(value: float | None) -> None:
    it = Opened()
    it.draft.number = value
    assert repr(it.draft.number) == repr(value)
    it.check(State(number=value))


def test_a_negative_zero_replaces_a_zero() -> None:
    it = Opened()
    it.draft.point = Point(y=-0.0)
    it.draft.number = 0.0
    it.draft.number = -0.0
    assert repr((it.draft.point.y, it.draft.number)) == "(-0.0, -0.0)"
    it.check(State(point=Point(y=-0.0), number=-0.0))


def test_a_field_of_several_types_changes_its_type() -> None:
    it = Opened()
    for value in (1, "one", [1, 2], None, "two", "two more", [3]):
        it.draft.either = value
        assert it.draft.either == value
    assert isinstance(it.draft.either, list) is False
    it.draft.either.append(4)  # type: ignore[union-attr]
    it.check(State(either=[3, 4]))


def test_an_optional_part_is_taken_out_by_setting_none() -> None:
    it = Opened()
    it.draft.maybe = Base("a")
    part = it.draft.maybe
    it.draft.maybe = None
    with raises(MisuseError, match="was taken out"):
        part.tag("x")
    assert it.draft.maybe is None
    it.draft.maybe = Base("b")
    it.draft.maybe.tag("y")
    it.check(State(maybe=Base("b", ["y"])))


def test_an_instance_of_a_subclass_is_not_cut_down_to_its_base() -> None:
    it = Opened()
    with raises(InvalidValue, match="must be Base, not Derived"):
        it.draft.maybe = Derived()
    with raises(InvalidValue, match="must be Base, not Derived"):
        it.draft.maybe = it.draft.derived
    it.check(State())


def test_the_part_of_a_part_is_always_the_same_object() -> None:
    it = Opened()
    it.draft.node.below.append(Node())
    assert it.draft.node is it.draft.node
    assert it.draft.node.below[0] is it.draft.node.below[0]
    assert it.draft.log is it.draft.log


def test_json_in_any_form_is_stored_and_changed_in_place() -> None:
    it = Opened()
    part: Any
    for part in (None, 1, "x", [1, [2]], {"a": {"b": []}}, True, 1.5):
        it.draft.anything = part
        assert it.draft.anything == part
    it.draft.anything = {"a": {"b": []}}
    it.draft.anything["a"]["b"].append({"c": 1})
    it.draft.anything["a"]["b"][0]["c"] += 1
    it.check(State(anything={"a": {"b": [{"c": 2}]}}))


def test_a_class_that_was_made_in_a_function_may_lead_to_itself_alone() -> None:
    """Goal: what can be found works, what cannot is refused in words, the second time too."""

    @attrs.define
    class Local:
        name: str = ""
        below: list[Local] = attrs.Factory(list)

    @attrs.define
    class Lost:
        locals: list[Local] = attrs.Factory(list)

    definition = define_doc("app.local", Local)
    draft, root = definition.draft(definition.initial_value(), Journal(definition.name))
    draft.below.append(Local("a"))
    assert encode_json(root.settled()) == '{"name":"","below":[{"name":"a","below":[]}]}'
    for _ in range(2):
        with raises(DefinitionError, match=r"Lost: the types of its fields .* 'Local' is not def"):
            define_doc("app.lost", Lost)
