"""Records go to text and come back as they were; what does not fit is told, and what is newer kept."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, settings

from pidurable_actors._json import check_json, decode_json, encode_json
from pidurable_actors.errors import InvalidValue, StorageCorrupt
from pidurable_actors.records import (
    ROOT_ID,
    AssistantMessage,
    CompletedOutcome,
    ContextEdit,
    ConversationRecord,
    DocumentRecord,
    EntryDraft,
    EntryId,
    EntryRecord,
    FailedOutcome,
    ImageBlock,
    Message,
    Pending,
    SubmissionId,
    SubmissionRecord,
    TaskId,
    TaskRecord,
    Terminal,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    UserMessage,
    codec,
)
from tests.records import strategies


def _says(block: TextBlock | ImageBlock) -> UserMessage:
    return UserMessage(content=(block,))


quick = settings(max_examples=60, deadline=None)
TASK = TaskRecord(
    id=TaskId(3),
    conversation_id=ROOT_ID,
    kind="app.counter",
    version=1,
    input={"target": 10},
    state=Pending(checkpoint={"phase": "count", "n": 3}),
)


@pytest.mark.slow
@quick
@given(strategies.tasks)
def test_a_task_comes_back_with_its_memos(task: TaskRecord) -> None:
    text = codec.encode_task(task)
    check_json(decode_json(text), "stored")
    assert codec.decode_task(text, task.memos) == task
    assert codec.decode_task(text, {}) == attrs.evolve(task, memos={})


@pytest.mark.slow
@quick
@given(strategies.entries)
def test_an_entry_comes_back(entry: EntryRecord) -> None:
    assert codec.decode_entry(codec.encode_record(entry)) == entry


@pytest.mark.slow
@quick
@given(strategies.submissions)
def test_a_submission_comes_back(submission: SubmissionRecord) -> None:
    assert codec.decode_submission(codec.encode_record(submission)) == submission


@pytest.mark.slow
@quick
@given(strategies.conversations)
def test_a_conversation_comes_back(conversation: ConversationRecord) -> None:
    assert codec.decode_conversation(codec.encode_record(conversation)) == conversation


@pytest.mark.slow
@quick
@given(strategies.documents)
def test_a_document_comes_back(document: DocumentRecord) -> None:
    assert codec.decode_document(codec.encode_record(document)) == document


@pytest.mark.slow
@quick
@given(strategies.messages)
def test_a_message_comes_back(message: Message) -> None:
    assert codec.messages_from_json(codec.message_to_json(message)) == (message,)


@pytest.mark.slow
@quick
@given(strategies.drafts)
def test_a_draft_is_strict_json(draft: EntryDraft) -> None:
    check_json(codec.draft_to_json(draft), "draft")


def test_a_task_is_stored_in_the_documented_form() -> None:
    assert json.loads(codec.encode_task(TASK)) == {
        "id": 3,
        "conversation_id": 1,
        "kind": "app.counter",
        "version": 1,
        "input": {"target": 10},
        "owner": None,
        "background": False,
        "abort_requested": False,
        "started_at_ms": None,
        "ended_at_ms": None,
        "state": {"checkpoint": {"phase": "count", "n": 3}, "status": "pending"},
    }


def test_what_is_zero_or_empty_is_absent_from_a_task() -> None:
    absent = {"restarts", "abort_reason", "retry_of", "retried_as", "memos"}
    assert not absent & json.loads(codec.encode_task(TASK)).keys()
    full = attrs.evolve(
        TASK,
        restarts=2,
        abort_reason="user",
        retry_of=TaskId(1),
        retried_as=TaskId(9),
        memos={"printed-1": True},
    )
    stored = json.loads(codec.encode_task(full))
    # Memos are rows of their own.
    assert absent - stored.keys() == {"memos"}
    assert stored["restarts"] == 2


@pytest.mark.parametrize(
    ("record", "encode", "decode"),
    [
        (TASK, codec.encode_task, lambda text: codec.decode_task(text, {})),
        (ConversationRecord(id=ROOT_ID), codec.encode_record, codec.decode_conversation),
        (
            EntryRecord(id=EntryId(2), conversation_id=ROOT_ID, kind="n"),
            codec.encode_record,
            codec.decode_entry,
        ),
        (
            SubmissionRecord(
                id=SubmissionId(2), conversation_id=ROOT_ID, type="input", status="queued"
            ),
            codec.encode_record,
            codec.decode_submission,
        ),
        (
            DocumentRecord(id=2, kind="d", scope="session", scope_id=0),
            codec.encode_record,
            codec.decode_document,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_fields_of_a_newer_writer_are_kept_when_a_record_is_passed_through(
    record: object, encode: Callable[[object], str], decode: Callable[[str], object]
) -> None:
    newer = json.loads(encode(record)) | {"colour": {"r": 1}, "later": None}
    read = decode(json.dumps(newer))
    assert read != record
    assert json.loads(encode(read)) == newer
    evolved = attrs.evolve(read)  # type: ignore[misc]
    assert json.loads(encode(evolved)) == newer


def test_fields_of_a_newer_writer_inside_a_value_do_not_break_it() -> None:
    stored = json.loads(codec.encode_task(TASK))
    stored["state"]["colour"] = 1
    assert codec.decode_task(json.dumps(stored), {}) == TASK


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        "{}",
        '{"id": 3}',
        codec.encode_task(TASK).replace('"pending"', '"dancing"'),
        codec.encode_task(TASK).replace('"status":"pending"', '"other":1'),
        codec.encode_task(TASK).replace('"checkpoint"', '"something"'),
        codec.encode_task(TASK).replace('"state":', '"state":null,"x":'),
        codec.encode_task(TASK)[:-20],
    ],
)
def test_a_text_that_is_no_task_is_corrupt(text: str) -> None:
    with pytest.raises(StorageCorrupt, match="TaskRecord"):
        codec.decode_task(text, {})


@pytest.mark.parametrize(
    "value", [None, 7, "x", {"role": "user"}, [7], [{}], [{"role": "dog"}], [{"role": []}]]
)
def test_what_are_no_messages_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a list of messages"):
        codec.messages_from_json(value)  # type: ignore[arg-type]


def test_an_outcome_keeps_what_a_retry_needs() -> None:
    failed = FailedOutcome(
        error={"type": "ToolError"}, checkpoint={"phase": "call"}, memos={"sent": True}
    )
    task = attrs.evolve(TASK, state=Terminal(outcome=failed))
    assert codec.decode_task(codec.encode_task(task), {}) == task


def test_records_of_equal_parts_are_equal_and_of_others_not() -> None:
    one = UserMessage(content=(TextBlock(text="a"),))
    assert one == UserMessage(content=(TextBlock(text="a"),))
    assert one != UserMessage(content=(TextBlock(text="b"),))
    assert Terminal(outcome=CompletedOutcome(result=1)) != Terminal(
        outcome=CompletedOutcome(result=2)
    )


@pytest.mark.slow
@quick
@given(strategies.drafts)
def test_a_draft_of_strict_json_is_accepted(draft: EntryDraft) -> None:
    codec.check_draft(draft)


@pytest.mark.parametrize(
    ("draft", "path"),
    [
        (EntryDraft(kind="n", data=[math.nan]), "entry[n].data[0]"),
        (EntryDraft(kind="n", model=(_says(TextBlock(text="\ud800")),)), "entry[n].model[0].text"),
        (
            EntryDraft(kind="n", model=(_says(ImageBlock(data="\ud800", media_type="image/png")),)),
            "entry[n].model[0].data",
        ),
        (
            EntryDraft(
                kind="n",
                edits=(
                    ContextEdit(entry_id=EntryId(1)),
                    ContextEdit(
                        entry_id=EntryId(2),
                        model=(
                            AssistantMessage(
                                content=(
                                    ThinkingBlock(text="hm"),
                                    ToolCallBlock(id="1", name="t", arguments={"a": math.inf}),
                                )
                            ),
                        ),
                    ),
                ),
            ),
            "entry[n].edits[1].model[0][2].a",
        ),
    ],
)
def test_a_draft_that_is_not_strict_json_is_refused_with_its_place(
    draft: EntryDraft, path: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        codec.check_draft(draft)
    assert refused.value.path == path


def test_a_text_is_compact() -> None:
    assert ": " not in encode_json({"a": [1, {"b": None}]})


@pytest.mark.parametrize(
    "stored",
    [
        7,
        None,
        b"{}",
        "[]",
        '{"id":5}',
        """{"id":5,"conversation_id":1,"kind":"pi.assistant","at_ms":0,
        "model":[{"role":"assistant","content":[],"stop_reason":"stoP"}]}""",
    ],
)
def test_whatever_damage_put_in_place_of_a_record_is_corrupt(stored: Any) -> None:
    with pytest.raises(StorageCorrupt, match="cannot be read"):
        codec.decode_entry(stored)


@pytest.mark.parametrize("stored", [7, None, b"{}", "{", '"\\ud800"'])
def test_whatever_damage_put_in_place_of_a_value_is_corrupt(stored: Any) -> None:
    with pytest.raises(StorageCorrupt, match="cannot be read"):
        codec.decode_value(stored)
