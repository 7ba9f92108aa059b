"""What a Python annotation means as JSON.

Owns the annotations that a tool's parameter may have. It never guesses: an annotation whose JSON
form is not obvious is refused when the tool is defined, with the form to write instead. Pure.

msgspec writes the constraints of `msgspec.Meta`. The rest is done here because msgspec decodes no
union of attrs classes, lets unknown keys of them pass, and tells where a fault is only inside its
text; here, one check serves signatures and hand-written schemas.
"""

from __future__ import annotations

import datetime as dt
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import (
    Annotated,
    Final,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from pidurable_actors._json import JsonObject
from pidurable_actors.agent._forms import (
    SCALARS,
    Form,
    annotated,
    array_of,
    constructor,
    enum_of,
    fixed_texts,
    literal,
    mapping_of,
    object_schema,
    union_of,
    with_default,
)
from pidurable_actors.errors import DefinitionError

__all__ = ["annotation_of", "form_of"]

_T = TypeVar("_T")
_SUPPORTED: Final = (
    "str, int, float, bool, None, JSON, Literal, Enum, list[X], tuple[X, ...], dict[str, X], "
    "unions, attrs classes, and Annotated with a text or msgspec.Meta"
)
_UNRESOLVED: Final = (NameError, AttributeError, SyntaxError, TypeError)
_ISO: Final = "take a str in ISO 8601 and parse it"
_INSTEAD: Final[Mapping[object, str]] = {
    bytes: "take a str and decode it",
    dt.datetime: _ISO,
    dt.date: _ISO,
    dt.time: _ISO,
    list: "say what is in it, as in list[str]",
    dict: "its keys are text and its values have a type, as in dict[str, int]",
    tuple: "use tuple[X, ...], or an attrs class for values of different meaning",
    set: "use list[X]",
    frozenset: "use list[X]",
    Callable: "take the name of what to do",
    object: "use JSON (typing.Any) for any JSON value",
}


def annotation_of(annotation: object, namespace: dict[str, object], where: str) -> object:
    """An annotation with its strings resolved.

    Raises:
        DefinitionError: a name in it is not known in `namespace`.
    """
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, namespace, include_extras=True)["it"]
    except _UNRESOLVED as error:
        raise _unresolved(where, error) from error


def form_of(annotation: object, where: str, within: tuple[object, ...] = ()) -> Form:
    """The JSON form of an annotation.

    Args:
        annotation: the annotation, its strings resolved.
        where: how an error names it, such as ``tool 'search', parameter 'level'``.
        within: the classes and aliases that it stands in, to notice one that contains itself.

    Raises:
        DefinitionError: it has no JSON form here.
    """
    if annotation in within:
        raise DefinitionError(
            f"{where}: {_name(annotation)} contains itself; take a list, and refer to its items by "
            "name or position."
        )
    if isinstance(annotation, NewType):
        return form_of(annotation.__supertype__, where, within)
    aliased = getattr(annotation, "__value__", None)  # The `type` statement of Python 3.12.
    if aliased is not None:
        return form_of(aliased, where, (*within, annotation))
    scalar = _entry(SCALARS, annotation)
    if scalar is not None:
        return scalar
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return enum_of(annotation, where)
    if isinstance(annotation, type) and attrs.has(annotation) and not get_args(annotation):
        return _class(annotation, where, within)
    return _composed(annotation, where, within)


def _composed(annotation: object, where: str, within: tuple[object, ...]) -> Form:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return annotated(form_of(args[0], where, within), args[1:], where)
    if origin is Literal:
        return literal(args, where)
    if origin in (Union, types.UnionType):
        return union_of([form_of(arm, where, within) for arm in args], where)
    if origin in (list, Sequence) and args:
        return array_of(form_of(args[0], f"{where}[]", within), list)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return array_of(form_of(args[0], f"{where}[]", within), tuple)
    if origin in (dict, Mapping) and args[:1] == (str,):
        return mapping_of(form_of(args[1], f"{where}[]", within))
    instead = _entry(_INSTEAD, annotation if origin is None else origin)
    raise DefinitionError(
        f"{where}: {_name(annotation)} has no JSON form here; "
        f"{instead or f'use one of: {_SUPPORTED}'}."
    )


def _class(cls: type, where: str, within: tuple[object, ...]) -> Form:
    try:
        hints = get_type_hints(cls, include_extras=True)
    except _UNRESOLVED as error:
        raise _unresolved(f"{where} ({cls.__name__})", error) from error
    forms: dict[str, Form] = {}
    properties: dict[str, JsonObject] = {}
    for field in attrs.fields(cls):
        at = f"{where}.{field.alias}"
        if field.name not in hints:
            raise DefinitionError(f"{at}: the field of {cls.__name__} needs an annotation.")
        form = form_of(hints[field.name], at, (*within, cls))
        # A field that is not given to the class is no argument, unless it tells classes apart.
        if field.init or fixed_texts(form):
            forms[field.alias] = form
            properties[field.alias] = with_default(form, field.default, at)
    schema = object_schema(
        properties,
        required=[
            field.alias
            for field in attrs.fields(cls)
            if field.init and field.default is attrs.NOTHING
        ],
    )
    if cls.__doc__:
        schema["description"] = inspect.cleandoc(cls.__doc__)
    tags = {name: texts for name, form in forms.items() if (texts := fixed_texts(form))}
    return Form(
        schema=schema, kinds=frozenset({"object"}), build=constructor(cls, forms), tags=tags
    )


def _entry(table: Mapping[object, _T], annotation: object) -> _T | None:
    # By identity: an annotation may be any object, and not all of them can be hashed.
    return next((entry for key, entry in table.items() if key is annotation), None)


def _name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _unresolved(where: str, error: Exception) -> DefinitionError:
    return DefinitionError(
        f"{where}: the annotation cannot be resolved ({error}); define or import its names at the "
        "top of the module, and not only for type checkers."
    )
