"""Strict JSON: what may be stored, checked by our own walk, and its one encoding.

Owns the `JSON` alias, the check and the encoding. It never converts silently: msgspec writes NaN as
null and bytes as base64, so a value is walked first and refused with the path of what is wrong.
What the check accepts round-trips through every storage unchanged.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import InvalidValue

__all__ = [
    "JSON",
    "JsonObject",
    "add_encoder",
    "check_json",
    "check_text",
    "copy_json",
    "decode_json",
    "encode_json",
    "fingerprint",
    "is_scalar_json",
    "is_text",
]

if TYPE_CHECKING:
    JSON: TypeAlias = "None | bool | int | float | str | list[JSON] | dict[str, JSON]"
else:
    # Codecs read annotations at run time; a recursive alias has no run-time form they could read.
    JSON = Any
JsonObject: TypeAlias = dict[str, JSON]

_INT_MIN = -(2**63)
_INT_MAX = 2**63 - 1
_encoders: Final[dict[type, Callable[[Any], object]]] = {}


def _encode_other(value: object) -> object:
    return _encoders[type(value)](value)


_encode = msgspec.json.Encoder(enc_hook=_encode_other).encode
_encode_sorted = msgspec.json.Encoder(order="sorted", enc_hook=_encode_other).encode
_decode = msgspec.json.Decoder().decode


def check_json(value: object, path: str) -> None:
    """Refuse what is not strict JSON.

    Args:
        value: the value to check; lists and dicts are walked, tuples and other types are refused.
        path: how the error names the value.

    Raises:
        InvalidValue: at the first part that is not strict JSON: another type, NaN or infinity, an
            integer past 64 bits, a lone surrogate, a key that is not a string, or nesting deeper
            than the limit. ``.path`` names the part.
    """
    if not _is_json(value, 0):
        _explain(value, path, 0)


def check_text(value: object, path: str) -> None:
    """Refuse what is not text that can be stored.

    Raises:
        InvalidValue: it is no string, or holds a lone surrogate.
    """
    if not isinstance(value, str):
        raise InvalidValue(path, f"must be text, not {value!r}")
    check_json(value, path)


def copy_json(value: JSON) -> JSON:
    """A copy of a checked value that shares no list or dict with it."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value


def is_scalar_json(value: object) -> bool:
    """Whether a value is JSON without parts: null, a boolean, a number or text."""
    return value is None or isinstance(value, bool | int | float | str)


def add_encoder(cls: type, encode: Callable[[Any], object]) -> None:
    """Let a class of this package be encoded as what `encode` makes of an instance."""
    _encoders[cls] = encode


def encode_json(value: object) -> str:
    """Encode a checked value, compactly, keys in their own order."""
    return _encode(value).decode()


def decode_json(text: str | bytes) -> JSON:
    """Decode stored text.

    Raises:
        ValueError: when the text is not JSON.
    """
    try:
        return cast(JSON, _decode(text))
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def fingerprint(value: object) -> str:
    """A digest of a checked value that does not depend on the order of keys."""
    return hashlib.sha256(_encode_sorted(value)).hexdigest()


def _is_json(value: object, depth: int) -> bool:
    # The common answer is yes, so the path of a fault is worked out by `_explain` only when needed.
    kind = type(value)
    if kind is str:
        return is_text(cast(str, value))
    if value is None or kind is bool:
        return True
    if kind is int:
        return _INT_MIN <= cast(int, value) <= _INT_MAX
    if kind is float:
        return math.isfinite(cast(float, value))
    if depth >= LIMITS.json_depth:
        return False
    if isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str or not is_text(key) or not _is_json(item, depth + 1):
                return False
        return True
    if isinstance(value, list):
        return all(_is_json(item, depth + 1) for item in cast("list[object]", value))
    return False


def _explain(value: object, path: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if not is_text(cast(str, value)):
            raise InvalidValue(path, "the text holds a lone surrogate")
    elif value is None or kind is bool:
        return
    elif kind is int:
        if not _INT_MIN <= cast(int, value) <= _INT_MAX:
            raise InvalidValue(path, "an integer must fit in 64 bits; store it as text")
    elif kind is float:
        if not math.isfinite(cast(float, value)):
            raise InvalidValue(path, f"{value} is not JSON; store None or text instead")
    elif not isinstance(value, dict | list):
        raise InvalidValue(path, f"{_describe(value)} is not JSON")
    elif depth >= LIMITS.json_depth:
        raise InvalidValue(path, f"nested deeper than {LIMITS.json_depth} levels")
    else:
        _explain_items(cast("dict[object, object] | list[object]", value), path, depth)


def _explain_items(value: dict[object, object] | list[object], path: str, depth: int) -> None:
    if isinstance(value, list):
        for at, item in enumerate(value):
            _explain(item, f"{path}[{at}]", depth + 1)
        return
    for key, item in value.items():
        if type(key) is not str:
            raise InvalidValue(path, f"the key {key!r} must be a string")
        if not is_text(key):
            raise InvalidValue(path, f"the key {key!a} holds a lone surrogate")
        _explain(item, f"{path}.{key}", depth + 1)


def is_text(text: str) -> bool:
    """Whether text can be stored: it holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _describe(value: object) -> str:
    if isinstance(value, tuple):
        return "a tuple (use a list)"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} (use a dict)"
    return f"a value of type {type(value).__name__}"
