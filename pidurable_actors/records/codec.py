"""Records to stored text and back: the one converter, its tags and the format version.

Encoding leaves nested attrs values to msgspec, which writes them directly, tags included; decoding
goes through builtins and cattrs, which picks the class of a union by its tag. Fields that a newer
writer added are kept in `extra` and written again. Text that does not fit is `StorageCorrupt`.

Profile: building the outer dict by hand and leaving the rest to msgspec takes a quarter of the time
of a full unstructure through cattrs, and task records are encoded on every step.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import attrs
from cattrs import BaseValidationError, Converter
from cattrs.errors import CattrsError
from cattrs.gen import make_dict_structure_fn, override

from pidurable_actors._json import JSON, check_json, decode_json, encode_json
from pidurable_actors.errors import InvalidValue, StorageCorrupt
from pidurable_actors.records._conversations import ConversationRecord
from pidurable_actors.records._documents import DocumentRecord
from pidurable_actors.records._entries import EntryDraft, EntryRecord
from pidurable_actors.records._messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
)
from pidurable_actors.records._submissions import SubmissionRecord
from pidurable_actors.records._tasks import TaskRecord

__all__ = [
    "FORMAT_VERSION",
    "check_draft",
    "check_readable",
    "decode_conversation",
    "decode_document",
    "decode_entry",
    "decode_submission",
    "decode_task",
    "decode_value",
    "draft_to_json",
    "encode_record",
    "encode_task",
    "message_to_json",
    "messages_from_json",
]

FORMAT_VERSION: Final = 2
"""Version of everything stored; raised with a migration whenever the stored form changes."""

_TAGS = ("status", "role", "type")
_R = TypeVar("_R")

# The reader is asked about damaged text too, and cattrs has errors beside its validation errors.
_UNREADABLE: Final = (
    BaseValidationError,
    CattrsError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
)
Plain = ConversationRecord | EntryRecord | SubmissionRecord | DocumentRecord


def encode_task(record: TaskRecord) -> str:
    """The stored text of a task: without memos, and without what is zero or empty."""
    fields: dict[str, object] = {
        "id": record.id,
        "conversation_id": record.conversation_id,
        "kind": record.kind,
        "version": record.version,
        "input": record.input,
        "owner": record.owner,
        "background": record.background,
        "abort_requested": record.abort_requested,
        "started_at_ms": record.started_at_ms,
        "ended_at_ms": record.ended_at_ms,
        "state": record.state,
    }
    if record.restarts:
        fields["restarts"] = record.restarts
    if record.abort_reason:
        fields["abort_reason"] = record.abort_reason
    if record.retry_of is not None:
        fields["retry_of"] = record.retry_of
    if record.retried_as is not None:
        fields["retried_as"] = record.retried_as
    if record.extra:
        fields.update(record.extra)
    return encode_json(fields)


def encode_record(record: Plain) -> str:
    """The stored text of any record but a task: every field, then what a newer writer added."""
    fields = {name: getattr(record, name) for name in _FIELDS[type(record)]}
    if record.extra:
        fields.update(record.extra)
    return encode_json(fields)


def check_draft(draft: EntryDraft) -> None:
    """Refuse an entry draft that is not strict JSON.

    Raises:
        InvalidValue: the path names the part.
    """
    path = f"entry[{draft.kind}]"
    check_json(draft.data, f"{path}.data")
    for at, edit in enumerate(draft.edits):
        _check_messages(edit.model or (), f"{path}.edits[{at}].model")
    _check_messages(draft.model or (), f"{path}.model")


def check_readable(draft: EntryDraft) -> None:
    """Refuse a draft from outside that could not be read again; `check_draft` trusts its classes.

    Raises:
        InvalidValue: a message or a block is of another kind than it claims, or not strict JSON.
    """
    check_json(draft.data, "entry.data")
    if draft.model is None:
        return
    try:
        stored: list[JSON] = [item for part in draft.model for item in message_to_json(part)]
        again = messages_from_json(stored)
    except (TypeError, ValueError) as error:
        raise InvalidValue("entry.content", f"it cannot be stored: {error}") from error
    if again != draft.model:
        raise InvalidValue("entry.content", "it has a part that is not strict JSON")


def _check_messages(messages: tuple[Message, ...], path: str) -> None:
    # Only texts and call arguments can be wrong: the rest of a message is made of fixed words.
    for at, message in enumerate(messages):
        where = f"{path}[{at}]"
        if isinstance(message, ToolResultMessage):
            check_json([message.call_id, message.tool_name], where)
        elif isinstance(message, AssistantMessage):
            check_json(message.model, f"{where}.model")
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                check_json([block.id, block.name, block.arguments], where)
            elif isinstance(block, ImageBlock):
                check_json(block.data, f"{where}.data")
                check_json(block.media_type, f"{where}.media_type")
            elif isinstance(block, ThinkingBlock):
                check_json([block.text, block.signature], where)
            else:
                check_json(block.text, f"{where}.text")


def draft_to_json(draft: EntryDraft) -> JSON:
    """An entry draft as JSON builtins, for checks and fingerprints."""
    return decode_json(encode_json(draft))


def decode_task(text: str, memos: Mapping[str, JSON]) -> TaskRecord:
    """Build a task from its stored text and memo rows."""
    record = _decode(text, TaskRecord)
    return attrs.evolve(record, memos=memos) if memos else record


def decode_conversation(text: str) -> ConversationRecord:
    """Build a conversation from its stored text."""
    return _decode(text, ConversationRecord)


def decode_entry(text: str) -> EntryRecord:
    """Build an entry from its stored text."""
    return _decode(text, EntryRecord)


def decode_submission(text: str) -> SubmissionRecord:
    """Build a submission from its stored text."""
    return _decode(text, SubmissionRecord)


def decode_document(text: str) -> DocumentRecord:
    """Build a document record from its stored text."""
    return _decode(text, DocumentRecord)


def message_to_json(message: Message) -> list[JSON]:
    """A message as a list that `messages_from_json` reads."""
    return [decode_json(encode_json(message))]


def messages_from_json(value: JSON) -> tuple[Message, ...]:
    """Build messages from JSON builtins.

    Raises:
        ValueError: when the value is not a list of messages.
    """
    if not isinstance(value, list):
        raise ValueError(f"not a list of messages: {value!r}")  # noqa: TRY004 - a bad value
    try:
        return _converter.structure(value, tuple[Message, ...])
    except _UNREADABLE as error:
        raise ValueError(f"not a list of messages: {value!r}") from error


def decode_value(text: object) -> JSON:
    """A stored memo or document value.

    Raises:
        StorageCorrupt: it is not JSON text.
    """
    try:
        return decode_json(_as_text(text))
    except _UNREADABLE as error:
        raise StorageCorrupt(f"a stored value cannot be read: {str(text)[:200]!r}") from error


def _decode(text: object, cls: type[_R]) -> _R:
    try:
        return _converter.structure(decode_json(_as_text(text)), cls)
    except _UNREADABLE as error:
        shown = str(text)[:200]
        raise StorageCorrupt(f"a stored {cls.__name__} cannot be read: {shown!r}") from error


def _as_text(stored: object) -> str:
    # A damaged file may hold a number, a blob or nothing where text was stored.
    if not isinstance(stored, str):
        raise TypeError(f"{type(stored).__name__} in place of text")
    return stored


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False)
    converter.register_structure_hook_factory(_is_tagged_union, partial(_by_tag, converter))
    for cls in (*_FIELDS, TaskRecord):
        converter.register_structure_hook(cls, _keep_extra(converter, cls))
    return converter


def _is_tagged_union(kind: object) -> bool:
    if get_origin(kind) not in (Union, types.UnionType):
        return False
    return all(attrs.has(arm) and _tag_of(arm) is not None for arm in get_args(kind))


def _tag_of(cls: type) -> tuple[str, str] | None:
    """The tag field of a class and its one value."""
    hints = get_type_hints(cls)
    for name in _TAGS:
        if get_origin(hints.get(name)) is Literal:
            return name, get_args(hints[name])[0]
    return None


def _by_tag(converter: Converter, union: object) -> Callable[[Mapping[str, JSON], object], object]:
    arms = {tag: arm for arm in get_args(union) if (tag := _tag_of(arm)) is not None}
    name = next(iter(arms))[0]
    classes = {value: arm for (_, value), arm in arms.items()}

    def structure(value: Mapping[str, JSON], _: object) -> object:
        return converter.structure(value, classes[cast(str, value[name])])

    return structure


def _keep_extra(converter: Converter, cls: type[_R]) -> Callable[[dict[str, JSON], object], _R]:
    known = {field.name for field in attrs.fields(cls)}  # type: ignore[arg-type]
    inner = make_dict_structure_fn(cls, converter, extra=override(omit=True))

    def structure(value: dict[str, JSON], _: object) -> _R:
        record = inner(value, cls)
        if value.keys() <= known:
            return record
        extra = {name: item for name, item in value.items() if name not in known}
        return attrs.evolve(record, extra=extra)  # type: ignore[misc]

    return structure


_FIELDS: Final = {
    cls: tuple(field.name for field in attrs.fields(cls) if field.name != "extra")
    for cls in (ConversationRecord, EntryRecord, SubmissionRecord, DocumentRecord)
}
_converter: Final = _make_converter()
