"""User values to strict JSON and back: inputs, checkpoints, results.

One converter for the attrs classes that applications write. Tuples become lists; everything that is
not strict JSON after that is refused with its path. What comes out shares nothing with the value.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

from cattrs import (
    BaseValidationError,
    Converter,
    StructureHandlerNotFoundError,
    transform_error,
)

from pidurable_actors._json import JSON, JsonObject, check_json, copy_json
from pidurable_actors.errors import InvalidValue
from pidurable_actors.runtime._outcomes import Checkpoint

__all__ = ["checkpoint_to_json", "from_json", "to_json", "unreadable"]

T = TypeVar("T")
_converter: Final = Converter(unstruct_collection_overrides={tuple: list})
_fast: Final = Converter(unstruct_collection_overrides={tuple: list}, detailed_validation=False)


def _structure_none(value: object, _: object) -> None:
    if value is not None:
        raise ValueError(f"must be null, not {value!r}")


for _each in (_converter, _fast):
    # A task without an input has the input None.
    _each.register_structure_hook(type(None), _structure_none)


def unreadable(kind: type) -> str | None:
    """Why values of a class could never be read back from JSON; None when they can.

    A class whose annotations cannot be resolved here, such as one made inside a function, is taken
    on trust: what is wrong with it shows when it is used.
    """
    try:
        _fast.get_structure_hook(kind)
    except StructureHandlerNotFoundError as error:
        return str(error).split(".", maxsplit=1)[0]
    except Exception:  # noqa: BLE001 - names that cannot be resolved raise whatever they like
        return None
    return None


def to_json(value: object, path: str) -> JSON:
    """The strict JSON form of a value.

    Raises:
        InvalidValue: a part of it has none; the path names it.
    """
    plain = _fast.unstructure(value)
    check_json(plain, path)
    return copy_json(cast(JSON, plain))


def from_json(value: JSON, kind: type[T], path: str) -> T:
    """Build a value of `kind` from its JSON form, with which it shares nothing.

    Raises:
        InvalidValue: it does not fit; the text lists what does not.
    """
    try:
        # A copy, because a part that may be any JSON is taken as it is.
        return _fast.structure(copy_json(value), kind)
    except Exception:  # noqa: BLE001 - user classes validate with errors of their own
        return _explain(value, kind, path)


def checkpoint_to_json(checkpoint: Checkpoint) -> JsonObject:
    """The stored form of a checkpoint: its phase, then its fields.

    Raises:
        InvalidValue: a field is not strict JSON.
    """
    fields = _fast.unstructure(checkpoint)
    phase = type(checkpoint).phase_name
    check_json(fields, f"checkpoint[{phase}]")
    return {"phase": phase, **cast(JsonObject, copy_json(fields))}


def _explain(value: JSON, kind: type[T], path: str) -> T:
    try:
        return _converter.structure(value, kind)
    except BaseValidationError as error:
        raise InvalidValue(path, "; ".join(transform_error(error, path=path))) from error
    except Exception as error:  # user classes validate with errors of their own
        raise InvalidValue(path, f"does not fit {kind!r}: {error}") from error
