"""The changes of a commit to one stored text and back: how the log of commits keeps them.

Owns the form of a row of the log: a JSON list with an object for each change, named by ``change``.
It encodes no record that is encoded already: the text is put together from those that the changes
carry, and taken apart into the very same ones. What is stored elsewhere in a longer form is kept
here as what observers need: the memos of a task are changes of their own, and of a document the
operations are kept and not its value, whether or not a new base was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from pidurable_actors._json import decode_json, encode_json
from pidurable_actors.errors import StorageCorrupt
from pidurable_actors.records._changes import (
    AppendEntry,
    Change,
    ChangeDocument,
    DropMemos,
    PutConversation,
    PutDocument,
    PutMemo,
    PutSubmission,
    PutTask,
    RetireDocuments,
)
from pidurable_actors.records._ids import TaskId
from pidurable_actors.records._operations import ReplaceRoot, operations_from_json
from pidurable_actors.records.codec import (
    decode_conversation,
    decode_document,
    decode_entry,
    decode_submission,
    decode_task,
    encode_record,
)

__all__ = ["decode_changes", "encode_changes"]

_Parts: TypeAlias = Mapping[str, msgspec.Raw]
_split: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_number: Final = msgspec.json.Decoder(int).decode
_word: Final = msgspec.json.Decoder(str).decode


def encode_changes(changes: Iterable[Change]) -> str:
    """The stored text of changes, in order."""
    return f"[{','.join([_ENCODE[type(change)](change) for change in changes])}]"


def decode_changes(text: object) -> tuple[Change, ...]:
    """Build changes from their stored text; each carries the text that it was stored with.

    A change of a document comes back as `ChangeDocument`, and a task without its memos.

    Raises:
        StorageCorrupt: it is no such text.
    """
    # A damaged file may hold a number, a blob or nothing where text was stored.
    if isinstance(text, str):
        try:
            return tuple([_DECODE[_word(parts["change"])](parts) for parts in _split(text)])
        except (msgspec.DecodeError, ValueError, KeyError) as error:
            reason: Exception | None = error
    else:
        reason = None
    raise StorageCorrupt(f"a logged commit cannot be read: {str(text)[:200]!r}") from reason


# --- to text ---


def _conversation_text(change: PutConversation) -> str:
    return f'{{"change":"conversation","record":{change.text}}}'


def _entry_text(change: AppendEntry) -> str:
    return f'{{"change":"entry","record":{change.text}}}'


def _task_text(change: PutTask) -> str:
    return f'{{"change":"task","record":{change.text}}}'


def _memo_text(change: PutMemo) -> str:
    name = encode_json(change.name)
    return f'{{"change":"memo","task_id":{change.task_id},"name":{name},"value":{change.text}}}'


def _dropped_memos_text(change: DropMemos) -> str:
    return f'{{"change":"drop_memos","task_id":{change.task_id}}}'


def _submission_text(change: PutSubmission) -> str:
    return f'{{"change":"submission","record":{change.text}}}'


def _put_document_text(change: PutDocument) -> str:
    match change.operations:
        case (ReplaceRoot(),):
            operations = f'[{{"op":"replace","value":{change.value_text}}}]'
        case _:
            operations = encode_json(change.operations)
    return f'{{"change":"document","record":{change.text},"operations":{operations}}}'


def _document_text(change: ChangeDocument) -> str:
    # The only record that is encoded for the log: a row that read it from elsewhere would change
    # with it.
    record = encode_record(change.record)
    return f'{{"change":"document","record":{record},"operations":{change.text}}}'


def _retired_text(change: RetireDocuments) -> str:
    return f'{{"change":"retire_documents","task_id":{change.task_id},"at_ms":{change.at_ms}}}'


_ENCODE: Final[Mapping[type[Change], Callable[..., str]]] = {
    PutConversation: _conversation_text,
    AppendEntry: _entry_text,
    PutTask: _task_text,
    PutMemo: _memo_text,
    DropMemos: _dropped_memos_text,
    PutSubmission: _submission_text,
    PutDocument: _put_document_text,
    ChangeDocument: _document_text,
    RetireDocuments: _retired_text,
}


# --- from text ---


def _text(parts: _Parts, name: str) -> str:
    return str(parts[name], "utf-8")


def _conversation(parts: _Parts) -> Change:
    text = _text(parts, "record")
    return PutConversation(decode_conversation(text), text)


def _entry(parts: _Parts) -> Change:
    text = _text(parts, "record")
    return AppendEntry(decode_entry(text), text)


def _task(parts: _Parts) -> Change:
    text = _text(parts, "record")
    return PutTask(decode_task(text, {}), text)


def _memo(parts: _Parts) -> Change:
    return PutMemo(_task_id(parts), _word(parts["name"]), _text(parts, "value"))


def _dropped_memos(parts: _Parts) -> Change:
    return DropMemos(_task_id(parts))


def _submission(parts: _Parts) -> Change:
    text = _text(parts, "record")
    return PutSubmission(decode_submission(text), text)


def _document(parts: _Parts) -> Change:
    text = _text(parts, "operations")
    operations = operations_from_json(decode_json(text))
    return ChangeDocument(decode_document(_text(parts, "record")), operations, text)


def _retired(parts: _Parts) -> Change:
    return RetireDocuments(_task_id(parts), _number(parts["at_ms"]))


def _task_id(parts: _Parts) -> TaskId:
    return TaskId(_number(parts["task_id"]))


_DECODE: Final[Mapping[str, Callable[[_Parts], Change]]] = {
    "conversation": _conversation,
    "entry": _entry,
    "task": _task,
    "memo": _memo,
    "drop_memos": _dropped_memos,
    "submission": _submission,
    "document": _document,
    "retire_documents": _retired,
}
