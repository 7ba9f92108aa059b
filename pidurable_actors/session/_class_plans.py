"""Plans for attrs classes, and the way from annotations to plans.

A plan is made once for each class. A part of a document that is of an attrs class is shown as an
instance of a class made from it, whose fields lead to the document: methods and properties of the
class work on it as they are.

Size: a class's plan and the plans of its fields lead to one another.
"""

from __future__ import annotations

import builtins
import enum
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, Literal, Union, cast, final, get_args, get_origin

import attrs

from pidurable_actors._frozen import FrozenDict, FrozenList, Value
from pidurable_actors.errors import DefinitionError
from pidurable_actors.session._cursors import Cursor
from pidurable_actors.session._plans import (
    ChosenPlan,
    DictPlan,
    EnumPlan,
    JsonPlan,
    ListPlan,
    OptionalPlan,
    ScalarPlan,
    TextPlan,
    UnionPlan,
    check_depth,
    load_items,
    must_be,
    show,
)
from pidurable_actors.session._tracked import (
    Plan,
    Text,
    TrackedDict,
    TrackedList,
    Unfit,
    dump_at,
    refusal,
)

__all__ = ["ClassPlan", "class_plan"]

_CURSOR: Final = "pi_cursor"
"""The slot by which an instance that stands for a part of a document finds its cursor."""


def class_plan(cls: type) -> ClassPlan:
    """The plan of an attrs class.

    Raises:
        DefinitionError: a field is of a type that cannot be stored in a document.
    """
    if (known := _plans.get(cls)) is not None:
        return known
    before = set(_plans)
    plan = _plans[cls] = ClassPlan(cls)
    try:
        plan.resolve()
    except DefinitionError:
        # Also those that were made on the way: they may lead to what could not be made.
        for made in set(_plans) - before:
            del _plans[made]
        raise
    return plan


@attrs.frozen
class _Field:
    name: str
    plan: Plan
    default: Callable[[], object] | None


@final
class ClassPlan:
    """An attrs class: a mapping with a key for each field. Other keys are left as they are."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.frozen = "frozen" in getattr(cls.__setattr__, "__name__", "")
        self.literals: dict[str, tuple[object, ...]] = {}
        self._fields: tuple[_Field, ...] = ()
        self._bound: type | None = None

    def resolve(self) -> None:
        """Make the plans of the fields, which may lead back to this class."""
        hints = _hints(self.cls)
        # Before the fields: a union in one of them may lead back here and ask what tells apart.
        self.literals = {
            field.name: get_args(hints[field.name])
            for field in attrs.fields(self.cls)
            if get_origin(hints.get(field.name)) is Literal
        }
        self._fields = tuple(self._field(field, hints) for field in attrs.fields(self.cls))
        if not self.frozen:
            self._bound = _bound_class(self.cls, {f.name: f.plan for f in self._fields})
            return
        for field in self._fields:
            if not _is_immutable(field.plan):
                raise DefinitionError(
                    f"{self.cls.__name__}.{field.name}: a frozen class is handed out as a copy, in "
                    "which changes of a list, a mapping, JSON or a Text would be lost; make the "
                    "class mutable."
                )

    @property
    def required(self) -> list[str]:
        """The fields without a default."""
        return [field.name for field in self._fields if field.default is None]

    def matches(self, value: Value) -> bool:
        """Whether it is a mapping whose fixed fields are those of the class."""
        return isinstance(value, FrozenDict) and all(
            name not in value or value[name] in values for name, values in self.literals.items()
        )

    def dump(self, value: object, depth: int) -> Value:
        """A copy; what is stored already is shared."""
        kind = type(value)
        if kind is not self.cls and kind is not self._bound:
            # One of a subclass would lose what the subclass adds.
            raise must_be(self.cls.__name__, value)
        cursor = getattr(value, _CURSOR, None)
        if isinstance(cursor, Cursor):
            cursor.check()
            stored: Value = cursor.settled()
            if depth > len(cursor.path()):
                _check_whole_depth(stored, depth)
            return stored
        check_depth(depth)
        found: dict[str, Value] = {}
        for field in self._fields:
            try:
                found[field.name] = field.plan.dump(_value_of(value, field.name), depth + 1)
            except Unfit as unfit:
                raise unfit.within(field.name) from None
        return FrozenDict(found)

    def load(self, value: Value) -> Value:
        """Every field checked, those of an older writer completed with their defaults."""
        if not isinstance(value, FrozenDict):
            raise must_be(self.cls.__name__, value)
        for field in self._fields:
            if field.name not in value:
                if field.default is None:
                    raise Unfit(f"has no {field.name}")
                value = value.put(field.name, field.plan.dump(field.default(), 1))
        return load_items(value, {field.name: field.plan for field in self._fields})

    def read(self, cursor: Cursor, key: str | int) -> Any:
        """What stands for it; of a frozen class a plain instance."""
        if self.frozen:
            return self.copy(cursor.item(key))
        return show(cursor.child(key), self.bind)

    def bind(self, cursor: Cursor) -> Any:
        """An instance whose fields lead to a cursor."""
        assert self._bound is not None, "only what can be changed is bound"
        made: Any = object.__new__(self._bound)
        object.__setattr__(made, _CURSOR, cursor)
        return made

    def copy(self, value: Value) -> Any:
        """A plain instance."""
        stored = cast("FrozenDict", value)
        made: Any = object.__new__(self.cls)
        # Not by the constructor: what is stored has been through its converters and validators.
        for field in self._fields:
            object.__setattr__(made, field.name, field.plan.copy(stored[field.name]))
        return made

    def _field(self, field: attrs.Attribute[Any], hints: Mapping[str, object]) -> _Field:
        where = f"{self.cls.__name__}.{field.name}"
        return _Field(
            name=field.name,
            plan=_plan_of(hints.get(field.name, Any), where),
            default=_default_of(field, where),
        )


def _is_immutable(plan: Plan) -> bool:
    match plan:
        case OptionalPlan():
            return _is_immutable(plan.item)
        case UnionPlan():
            return all(map(_is_immutable, plan.arms))
        case ClassPlan():
            return plan.frozen
        case _:
            return isinstance(plan, ScalarPlan | ChosenPlan | EnumPlan)


def _hints(cls: type) -> dict[str, Any]:
    try:
        try:
            return typing.get_type_hints(cls)
        except NameError:
            # A class that was made in a function can still be found by itself.
            return typing.get_type_hints(cls, localns={**vars(cls), cls.__name__: cls})
    except Exception as error:  # whatever evaluating an annotation raises
        raise DefinitionError(
            f"{cls.__name__}: the types of its fields cannot be read ({error}); they must be names "
            "of its module (not of a function, nor under TYPE_CHECKING), and none of them the name "
            "of a field."
        ) from error


def _value_of(instance: object, name: str) -> object:
    try:
        return getattr(instance, name)
    except AttributeError:
        raise Unfit("was never set; give the field a default") from None


def _check_whole_depth(value: Value, depth: int) -> None:
    """Refuse a stored part that would reach too far down in its new place."""
    if isinstance(value, FrozenDict | FrozenList):
        check_depth(depth)
        for item in value.values() if isinstance(value, FrozenDict) else value:
            _check_whole_depth(item, depth + 1)


def _default_of(field: attrs.Attribute[Any], where: str) -> Callable[[], object] | None:
    default: object = field.default
    if default is attrs.NOTHING:
        return None
    factory = getattr(default, "factory", None)
    if factory is None or not hasattr(default, "takes_self"):
        return _converted(field, lambda: default, where)
    if getattr(default, "takes_self", False):
        raise DefinitionError(
            f"{where}: its default is made from self, which a stored value has not; use a plain "
            "default or a factory without self, and a property for what follows from other fields."
        )
    return _converted(field, cast("Callable[[], object]", factory), where)


def _converted(
    field: attrs.Attribute[Any], make: Callable[[], object], where: str
) -> Callable[[], object]:
    """A default as the class's constructor takes it."""
    convert: Any = field.converter
    if convert is None:
        return make
    if isinstance(convert, attrs.Converter):
        raise DefinitionError(
            f"{where}: use a plain function as its converter; a stored value has no instance that "
            "could be given to it."
        )
    return lambda: convert(make())


def _bound_class(cls: type, plans: Mapping[str, Plan]) -> type:
    """A class made from `cls` whose fields lead to a document."""
    compared = [field.name for field in attrs.fields(cls) if field.eq]

    def equal(self: object, other: object) -> Any:
        # As attrs has it: an instance of a subclass is another thing.
        if type(other) is not cls and type(other) is not type(self):
            return NotImplemented
        return all(bool(getattr(self, name) == getattr(other, name)) for name in compared)

    def plain(self: object, _: object = None) -> object:
        cursor: Cursor = getattr(self, _CURSOR)
        cursor.check()
        return class_plan(cls).copy(cursor.settled())

    namespace: dict[str, Any] = {
        "__slots__": (_CURSOR,),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        # `attrs.evolve` of a part makes a plain instance.
        "__new__": lambda _, *args, **kwargs: cls(
            *map(_own, args), **{name: _own(value) for name, value in kwargs.items()}
        ),
        "__eq__": equal,
        "__hash__": None,
        "__copy__": plain,
        "__deepcopy__": plain,
        "__reduce_ex__": lambda self, protocol: plain(self).__reduce_ex__(protocol),
        **{name: _field_property(name, plan) for name, plan in plans.items()},
    }
    if _has_dict(cls):
        namespace["__setattr__"] = _refusing_others(cls, plans)
    return type(cls.__name__, (cls,), namespace)


def _own(value: object) -> object:
    """A plain copy of a part of a document, and everything else as it is."""
    is_part = isinstance(value, TrackedList | TrackedDict | Text) or hasattr(value, _CURSOR)
    return deepcopy(value) if is_part else value


def _has_dict(cls: type) -> bool:
    """Whether instances take attributes that nobody declared."""
    return any("__slots__" not in vars(base) for base in cls.__mro__ if base is not object)


def _refusing_others(cls: type, plans: Mapping[str, Plan]) -> Callable[[object, str, object], None]:
    """What keeps an attribute that would not be stored from being set."""
    set_field = cast("Callable[[object, str, object], None]", cls.__setattr__)

    def refuse_other(self: object, name: str, value: object) -> None:
        if name not in plans and not isinstance(getattr(cls, name, None), property):
            raise AttributeError(f"{cls.__name__} has no field {name!r} that is stored")
        set_field(self, name, value)

    return refuse_other


def _field_property(name: str, plan: Plan) -> property:
    if isinstance(plan, ScalarPlan):
        return _plain_property(name, plan)

    # Typed as Any: what they are called with is an instance of the class that is being made.
    def get(self: Any) -> Any:
        cursor: Cursor = self.pi_cursor
        cursor.check()
        return plan.read(cursor, name)

    def put(self: Any, value: object) -> None:
        cursor: Cursor = self.pi_cursor
        known = cursor.children.get(name)
        # `draft.items += [1]` sets the very list that it changed in place.
        if known is None or known.bound is None or known.bound is not value:
            cursor.put(name, dump_at(cursor, name, plan, value))
        else:
            cursor.check()

    return property(get, put, _refuse_delete)


def _plain_property(name: str, plan: ScalarPlan) -> property:
    """The same for a field that never has a cursor of its own."""
    dump, copy = plan.dump, plan.copy

    def get(self: Any) -> Any:
        cursor: Cursor = self.pi_cursor
        cursor.check()
        return copy(cursor.value[name])

    def put(self: Any, value: object) -> None:
        cursor: Cursor = self.pi_cursor
        journal = cursor.begin_change()
        try:
            dumped = dump(value, 0)
        except Unfit as unfit:
            raise refusal(journal, (*cursor.path(), name), unfit) from None
        cursor.put_plain(name, dumped)

    return property(get, put, _refuse_delete)


def _refuse_delete(_: object) -> None:
    raise AttributeError("a field of a document cannot be deleted; set it to what it starts as")


# --- from annotations ---

_SCALARS: Final = (str, int, float, bool, type(None))


_plans: Final[dict[type, ClassPlan]] = {}


def _plan_of(kind: Any, where: str) -> Plan:
    """The plan of an annotation.

    Raises:
        DefinitionError: it cannot be stored in a document.
    """
    # An alias by `type X = ...` or a NewType stands for what it names.
    while hasattr(kind, "__supertype__") or hasattr(kind, "__value__"):
        kind = getattr(kind, "__supertype__", None) or kind.__value__
    origin, args = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return _plan_of(args[0], where)
    if (simple := _plan_of_simple(kind, where)) is not None:
        return simple
    if origin in (Union, types.UnionType):
        return _plan_of_union(args, where)
    if origin is Literal:
        if not all(_is_plain(value) for value in args):
            raise DefinitionError(
                f"{where}: the values of a Literal in a document are str, int, bool or None; "
                "declare the enumeration itself for its members."
            )
        return ChosenPlan(args)
    if kind is list or origin is list:
        return ListPlan(_plan_of(args[0] if args else Any, where))
    if kind is dict or origin is dict:
        if args and args[0] is not str:
            raise DefinitionError(
                f"{where}: the keys of a mapping in a document are str; write dict[str, ...] and "
                "store other keys as text."
            )
        return DictPlan(_plan_of(args[1] if args else Any, where))
    raise DefinitionError(
        f"{where}: {kind!r} cannot be a field of a document; use text, numbers, bool, None, Text, "
        "Literal, Enum, JSON, an attrs class, and lists, dicts and unions of these."
    )


def _plan_of_simple(kind: Any, where: str) -> Plan | None:
    if kind in (Any, object):
        return JsonPlan()
    if kind is None:
        return ScalarPlan(type(None))
    if not isinstance(kind, type):
        return None
    if kind in _SCALARS:
        return ScalarPlan(kind)
    if kind is Text:
        return TextPlan()
    if issubclass(kind, enum.Enum):
        if not all(_is_plain(member.value) for member in kind):
            raise DefinitionError(
                f"{where}: {kind.__name__} is stored as the values of its members; make them str "
                "or int."
            )
        return EnumPlan(kind)
    return class_plan(kind) if attrs.has(kind) else None


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (str, int, bool)


def _plan_of_union(args: Sequence[Any], where: str) -> Plan:
    arms = [arm for arg in args for arm in _arms_of(_plan_of(arg, where))]
    _check_arms(arms, where)
    classes = [arm for arm in arms if isinstance(arm, ClassPlan)]
    if classes and any(isinstance(arm, DictPlan) for arm in arms):
        raise DefinitionError(
            f"{where}: {classes[0].cls.__name__} and a dict are both stored as mappings; put the "
            "dict into a class of its own with a Literal field that tells them apart."
        )
    if len(classes) > 1:
        tags = set.intersection(*({*arm.literals} for arm in classes))
        if not any(_tells_apart(tag, classes) for tag in tags):
            names = ", ".join(arm.cls.__name__ for arm in classes)
            raise DefinitionError(
                f"{where}: give {names} a Literal field of one name that tells them apart."
            )
    others = [arm for arm in arms if not (isinstance(arm, ScalarPlan) and arm.kind is type(None))]
    # A whole number is an int where both are asked for: the float would take it too.
    others.sort(key=lambda arm: arm == ScalarPlan(float))
    item = others[0] if len(others) == 1 else UnionPlan(tuple(others))
    return item if len(others) == len(arms) else OptionalPlan(item)


def _arms_of(plan: Plan) -> Iterator[Plan]:
    """The arms of a union in a union are its own."""
    if isinstance(plan, OptionalPlan):
        yield ScalarPlan(type(None))
        yield from _arms_of(plan.item)
    elif isinstance(plan, UnionPlan):
        yield from plan.arms
    else:
        yield plan


def _check_arms(arms: Sequence[Plan], where: str) -> None:
    """Refuse types that a stored value could not be told to be of."""
    counts = Counter(shape for arm in arms for shape in _shapes(arm))
    shared = [shape for shape, count in counts.items() if count > 1]
    if shared:
        raise DefinitionError(
            f"{where}: more than one type of this union is stored as {shared[0]}; keep one of "
            "them, or give each a class of its own with a Literal field that tells them apart."
        )
    if len(arms) > 1 and any(isinstance(arm, JsonPlan) for arm in arms):
        raise DefinitionError(f"{where}: Any takes every JSON value already; write it alone.")


def _shapes(arm: Plan) -> set[str]:
    """How the values of a type are stored, as far as it matters for telling types apart."""
    match arm:
        case ListPlan():
            return {"a list"}
        case DictPlan():
            return {"a mapping"}
        case TextPlan() | ScalarPlan(kind=builtins.str):
            return {"text"}
        case EnumPlan():
            return {"text" if isinstance(it.value, str) else "a number" for it in arm.kind}
        case ScalarPlan(kind=builtins.int):
            return {"a number"}
        case _:
            return set()


def _tells_apart(tag: str, classes: Sequence[ClassPlan]) -> bool:
    values = [value for arm in classes for value in arm.literals[tag]]
    return len(values) == len(set(values))
