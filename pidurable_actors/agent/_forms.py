"""The JSON form of a Python value: its schema, and how to build it; and how forms are put together.

Owns `Form` and its combinations. It never reads an annotation: `_annotations` does, and calls what
is here. Pure.

Invariant: `build` is called only with values that the form's `schema` accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Final, cast

import attrs
import msgspec

from pidurable_actors._json import JSON, JsonObject, check_json, copy_json
from pidurable_actors.agent._arguments import ArgumentsInvalid, check_value, path_to
from pidurable_actors.agent._json_schema import KINDS, kind_of
from pidurable_actors.errors import DefinitionError, InvalidValue

__all__ = [
    "SCALARS",
    "Form",
    "annotated",
    "array_of",
    "constructor",
    "enum_of",
    "fixed_texts",
    "literal",
    "mapping_of",
    "object_schema",
    "union_of",
    "with_default",
]

_REASON_CHARS_MAX = 300  # Characters kept of what the author's own validator says.


def _as_is(value: JSON, _: str) -> object:
    return value


@attrs.frozen(kw_only=True)
class Form:
    """The JSON form of one annotation.

    Attributes:
        schema: its JSON Schema.
        kinds: the kinds of JSON value that it takes.
        build: makes the Python value of a JSON value at a path.
        tags: for an attrs class, its fields with a fixed text: name → the texts.
    """

    schema: JsonObject
    kinds: frozenset[str]
    build: Callable[[JSON, str], object] = _as_is
    tags: Mapping[str, frozenset[str]] = attrs.field(factory=dict)


def _to_float(value: JSON, _: str) -> object:
    return float(cast(float, value))


def _copied(value: JSON, _: str) -> object:
    # A tool may change what it gets; the stored arguments stay as they are.
    return copy_json(value)


_NUMBERS: Final = frozenset({"integer", "number"})
SCALARS: Final[Mapping[object, Form]] = {
    str: Form(schema={"type": "string"}, kinds=frozenset({"string"})),
    int: Form(schema={"type": "integer"}, kinds=frozenset({"integer"})),
    float: Form(schema={"type": "number"}, kinds=_NUMBERS, build=_to_float),
    bool: Form(schema={"type": "boolean"}, kinds=frozenset({"boolean"})),
    type(None): Form(schema={"type": "null"}, kinds=frozenset({"null"})),
    None: Form(schema={"type": "null"}, kinds=frozenset({"null"})),
    # The JSON alias of this package is Any at run time.
    Any: Form(schema={}, kinds=KINDS, build=_copied),
}


_META_BASES: Final = {"string": str, "integer": int, "number": float, "array": list, "object": dict}


def object_schema(properties: Mapping[str, JsonObject], required: list[str]) -> JsonObject:
    """The schema of an object that takes these keys and no other."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def with_default(form: Form, default: object, where: str) -> JsonObject:
    """The schema with the default, if there is one that JSON can say.

    Raises:
        DefinitionError: the default is not a value of the annotation.
    """
    if default is attrs.NOTHING:
        return form.schema
    value = _to_json(default)
    try:
        check_json(value, "default")
    except InvalidValue:
        return form.schema
    try:
        check_value(form.schema, cast(JSON, value), "")
    except ArgumentsInvalid as error:
        raise DefinitionError(
            f"{where}: the default does not fit the annotation ({error.reason}); "
            "change one of them."
        ) from error
    return {**form.schema, "default": cast(JSON, value)}


def annotated(form: Form, notes: tuple[object, ...], where: str) -> Form:
    schema = form.schema
    for note in notes:
        if isinstance(note, str):
            schema = {**schema, "description": note}
        elif isinstance(note, msgspec.Meta):
            schema = {**schema, **_constraints(schema, note, where)}
        else:
            raise DefinitionError(
                f"{where}: Annotated with {note!r} says nothing that is enforced here; "
                "use a text as the description or msgspec.Meta."
            )
    return attrs.evolve(form, schema=schema)


def literal(choices: tuple[object, ...], where: str) -> Form:
    for choice in choices:
        if choice is not None and type(choice) not in (str, int, bool):
            raise DefinitionError(
                f"{where}: Literal[{choice!r}] has no JSON form; "
                "use text, integers, booleans or None."
            )
    return _choice(cast("list[JSON]", list(choices)), _as_is)


def enum_of(cls: type[Enum], where: str) -> Form:
    values = [member.value for member in cls]
    if not values or not all(type(value) in (str, int) for value in values):
        raise DefinitionError(
            f"{where}: the members of {cls.__name__} need text or integers as values."
        )
    return _choice(values, lambda value, _: cls(value))


def array_of(items: Form, make: type[list[object] | tuple[object, ...]]) -> Form:
    def build(value: JSON, path: str) -> object:
        values = cast("list[JSON]", value)
        return make(items.build(item, f"{path}[{at}]") for at, item in enumerate(values))

    schema: JsonObject = {"type": "array", "items": items.schema}
    return Form(schema=schema, kinds=frozenset({"array"}), build=build)


def mapping_of(values: Form) -> Form:
    def build(value: JSON, path: str) -> object:
        items = cast(JsonObject, value).items()
        return {key: values.build(item, path_to(path, key)) for key, item in items}

    further: JSON = values.schema or True
    schema: JsonObject = {"type": "object", "additionalProperties": further}
    return Form(schema=schema, kinds=frozenset({"object"}), build=build)


def union_of(arms: list[Form], where: str) -> Form:
    """One arm for each kind of JSON value; objects are told apart by a tag."""
    objects = [arm for arm in arms if "object" in arm.kinds]
    if len(objects) > 1:
        arms = [arm for arm in arms if "object" not in arm.kinds]
        arms.insert(0, _tagged(objects, where))
    by_kind: dict[str, Form] = {}
    # `int | float`: the int is asked first, so that a whole number is one.
    for arm in sorted(arms, key=lambda arm: "number" in arm.kinds):
        for kind in arm.kinds:
            if kind in by_kind and not (kind == "integer" and "number" in arm.kinds):
                raise DefinitionError(
                    f"{where}: two members of the union are both a JSON {kind}, so a value does "
                    "not tell which is meant; use attrs classes with a Literal tag field."
                )
            by_kind.setdefault(kind, arm)

    def build(value: JSON, path: str) -> object:
        return by_kind[kind_of(value)].build(value, path)

    schemas: list[JSON] = []
    for arm in arms:
        flat = arm.schema["anyOf"] if arm.schema.keys() == {"anyOf"} else [arm.schema]
        schemas.extend(cast("list[JSON]", flat))
    return Form(schema={"anyOf": schemas}, kinds=frozenset(by_kind), build=build)


def constructor(cls: type, forms: Mapping[str, Form]) -> Callable[[JSON, str], object]:
    given = {field.alias for field in attrs.fields(cls) if field.init}

    def build(value: JSON, path: str) -> object:
        fields = {
            name: forms[name].build(item, path_to(path, name))
            for name, item in cast(JsonObject, value).items()
            if name in given
        }
        try:
            return cls(**fields)
        except (TypeError, ValueError) as error:  # What validators and converters of attrs raise.
            said = str(error.args[0]) if error.args else f"{cls.__name__} refuses this"
            raise ArgumentsInvalid(path, said[:_REASON_CHARS_MAX]) from error

    return build


def fixed_texts(form: Form) -> frozenset[str]:
    """The texts that a field of fixed texts may have, else none."""
    if form.schema.get("type") != "string" or form.build is not _as_is:
        return frozenset()
    return frozenset(cast("list[str]", form.schema.get("enum", [])))


def _constraints(schema: JsonObject, meta: msgspec.Meta, where: str) -> JsonObject:
    kind = schema.get("type")
    base = _META_BASES.get(kind, Any) if isinstance(kind, str) and "enum" not in schema else Any
    try:
        written = msgspec.json.schema(Annotated[base, meta])
    except TypeError as error:
        raise DefinitionError(f"{where}: msgspec.Meta does not fit here ({error}).") from error
    return {keyword: value for keyword, value in written.items() if keyword != "type"}


def _choice(choices: list[JSON], build: Callable[[JSON, str], object]) -> Form:
    kinds = frozenset(map(kind_of, choices))
    schema: JsonObject = {"enum": choices}
    if len(kinds) == 1:
        schema = {"type": next(iter(kinds)), "enum": choices}
    return Form(schema=schema, kinds=kinds, build=build)


def _tagged(arms: list[Form], where: str) -> Form:
    for tag in arms[0].tags:
        texts = [arm.tags.get(tag, frozenset()) for arm in arms]
        distinct = len(frozenset().union(*texts)) == sum(map(len, texts))
        if all(texts) and distinct:
            return _by_tag(arms, tag)
    raise DefinitionError(
        f"{where}: the classes of a union need a tag: a field of the same name in each, annotated "
        'Literal["..."] with a text that no other class has.'
    )


def _by_tag(arms: list[Form], tag: str) -> Form:
    by_text = {text: arm for arm in arms for text in arm.tags[tag]}

    def build(value: JSON, path: str) -> object:
        return by_text[cast("dict[str, str]", value)[tag]].build(value, path)

    schemas: list[JSON] = []
    for arm in arms:
        required = cast("list[str]", arm.schema["required"])
        # The tag has to be said: a default would choose the class for the model.
        others: list[JSON] = [name for name in required if name != tag]
        properties = cast("dict[str, JsonObject]", arm.schema["properties"])
        said: JsonObject = {key: it for key, it in properties[tag].items() if key != "default"}
        schemas.append(
            {
                **arm.schema,
                "properties": {**properties, tag: said},
                "required": [tag, *others],
            }
        )
    return Form(schema={"anyOf": schemas}, kinds=frozenset({"object"}), build=build)


def _to_json(value: object) -> object:
    if isinstance(value, Enum):
        return _to_json(value.value)
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    return value
