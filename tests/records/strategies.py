"""Hypothesis strategies for everything that is stored."""

from __future__ import annotations

from hypothesis import strategies as st

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.records import (
    AbortedOutcome,
    AssistantMessage,
    CompletedOutcome,
    Completing,
    ContextEdit,
    ConversationRecord,
    DocumentRecord,
    EntryDraft,
    EntryRecord,
    FailedOutcome,
    FaultedOutcome,
    ForkPoint,
    ImageBlock,
    OrphanedOutcome,
    Owner,
    Parked,
    Pending,
    Running,
    Sleeping,
    SubmissionRecord,
    SystemMessage,
    TaskRecord,
    Terminal,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    Waiting,
)

# Everything but lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.integers(1, 2**63 - 1)
times = st.integers(-(2**63), 2**63 - 1)
flags = st.booleans()

scalars: st.SearchStrategy[JSON] = (
    st.none()
    | flags
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)


def _containers(items: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    return st.lists(items, max_size=4) | st.dictionaries(texts, items, max_size=4)


values: st.SearchStrategy[JSON] = st.recursive(scalars, _containers, max_leaves=8)
objects: st.SearchStrategy[JsonObject] = st.dictionaries(texts, values, max_size=4)
extras = st.dictionaries(texts.map("later_{}".format), values, max_size=2)


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """A value, or its absence."""
    return st.none() | strategy


def tuples_of(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    """A short tuple."""
    return st.lists(strategy, max_size=3).map(tuple)


text_blocks = st.builds(TextBlock, text=texts)
image_blocks = st.builds(ImageBlock, data=texts, media_type=texts)
thinking_blocks = st.builds(ThinkingBlock, text=texts, signature=maybe(texts))
tool_calls = st.builds(ToolCallBlock, id=texts, name=texts, arguments=objects)
usages = st.builds(
    Usage,
    input_tokens=times,
    output_tokens=times,
    cache_read_tokens=times,
    cache_write_tokens=times,
    cost=st.floats(allow_nan=False, allow_infinity=False),
)
messages = st.one_of(
    st.builds(SystemMessage, content=tuples_of(text_blocks)),
    st.builds(UserMessage, content=tuples_of(text_blocks | image_blocks)),
    st.builds(
        AssistantMessage,
        content=tuples_of(text_blocks | thinking_blocks | tool_calls),
        stop_reason=st.sampled_from(["stop", "length", "tool_use", "aborted", "error"]),
        model=texts,
        usage=usages,
    ),
    st.builds(
        ToolResultMessage,
        call_id=texts,
        tool_name=texts,
        content=tuples_of(text_blocks | image_blocks),
        is_error=flags,
    ),
)
edits = st.builds(ContextEdit, entry_id=ids, model=maybe(tuples_of(messages)))
_body = {
    "kind": texts,
    "model": maybe(tuples_of(messages)),
    "data": values,
    "head": maybe(ids),
    "edits": tuples_of(edits),
}
drafts = st.builds(EntryDraft, **_body)
entries = st.builds(
    EntryRecord,
    id=ids,
    conversation_id=ids,
    by_task_id=maybe(ids),
    at_ms=times,
    extra=extras,
    **_body,
)
conversations = st.builds(
    ConversationRecord,
    id=ids,
    parent=maybe(st.builds(ForkPoint, conversation_id=ids, entry_id=ids)),
    owner=maybe(st.builds(Owner, conversation_id=ids, task_id=ids)),
    created_at_ms=times,
    extra=extras,
)
documents = st.builds(
    DocumentRecord,
    id=ids,
    kind=texts,
    scope=st.sampled_from(["session", "conversation", "task"]),
    scope_id=ids,
    key=texts,
    version=ids,
    history=st.sampled_from(["latest", "rewindable"]),
    fork=st.sampled_from(["initial", "current", "as_of"]),
    created_at_ms=times,
    retired_at_ms=maybe(times),
    extra=extras,
)
submissions = st.builds(
    SubmissionRecord,
    id=ids,
    conversation_id=ids,
    type=st.sampled_from(["input", "write"]),
    status=st.sampled_from(["queued", "placed", "done", "unanswered"]),
    when_busy=st.sampled_from(["follow_up", "steer", "reject"]),
    request_id=maybe(texts),
    fingerprint=texts,
    draft=maybe(drafts),
    entry=maybe(ids),
    answer=maybe(ids),
    reason=maybe(st.sampled_from(["interrupted", "budget", "stale"])),
    detail=values,
    caller=maybe(objects),
    extra=extras,
)
_kept = {"checkpoint": maybe(objects), "memos": objects}
outcomes = st.one_of(
    st.builds(CompletedOutcome, result=values),
    st.builds(FailedOutcome, error=values, result=values, **_kept),
    st.builds(AbortedOutcome, reason=texts),
    st.builds(FaultedOutcome, error=values, **_kept),
    st.builds(OrphanedOutcome, reason=texts),
)
states = st.one_of(
    st.builds(Pending, checkpoint=objects),
    st.builds(Running, checkpoint=objects),
    st.builds(
        Waiting,
        checkpoint=objects,
        on=tuples_of(ids),
        policy=st.sampled_from(["all_settled", "fail_fast"]),
    ),
    st.builds(Sleeping, checkpoint=objects, until_ms=times),
    st.builds(Parked, checkpoint=objects),
    st.builds(Completing, outcome=outcomes),
    st.builds(Terminal, outcome=outcomes),
)
tasks = st.builds(
    TaskRecord,
    id=ids,
    conversation_id=ids,
    kind=texts,
    version=ids,
    input=values,
    state=states,
    owner=maybe(ids),
    background=flags,
    abort_requested=flags,
    abort_reason=texts,
    restarts=st.integers(0, 99),
    started_at_ms=maybe(times),
    ended_at_ms=maybe(times),
    retry_of=maybe(ids),
    retried_as=maybe(ids),
    memos=objects,
    extra=extras,
)
