"""Where a transcript is cut: on turn boundaries, with every result kept with its call."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidurable_actors.models import ModelInfo, message_tokens
from pidurable_actors.records import (
    ASSISTANT,
    COMPACTION,
    SYSTEM,
    TOOL_RESULT,
    USER,
    AssistantMessage,
    ContextEdit,
    ConversationId,
    EntryId,
    EntryRecord,
    Message,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    model_context,
)
from pidurable_actors.tasks._compaction_range import CompactionRange, choose_range
from pidurable_actors.tasks._summary_request import summary_entry

HERE = ConversationId(1)
ELSEWHERE = ConversationId(2)
INFO = ModelInfo()


def user(text: str, kind: str = USER) -> tuple[str, Message]:
    """What a person or an application says."""
    return kind, UserMessage(content=(TextBlock(text=text),))


def answer(*calls: str, text: str = "ok", stop: str = "stop") -> tuple[str, Message]:
    """An answer, with calls by their ids."""
    blocks = tuple(ToolCallBlock(id=each, name="t", arguments={}) for each in calls)
    message = AssistantMessage(
        content=(TextBlock(text=text), *blocks),
        stop_reason=stop,  # type: ignore[arg-type]
    )
    return ASSISTANT, message


def result(call_id: str, text: str = "3") -> tuple[str, Message]:
    """The result of a call."""
    content = (TextBlock(text=text),)
    return TOOL_RESULT, ToolResultMessage(call_id=call_id, tool_name="t", content=content)


def prompt() -> tuple[str, Message]:
    """A system entry."""
    return SYSTEM, SystemMessage(content=(TextBlock(text="s" * 4_000),))


def transcript(*said: tuple[str, Message]) -> list[EntryRecord]:
    """Entries with the ids 1, 2, 3 and so on."""
    return [
        EntryRecord(
            id=EntryId(at),
            conversation_id=HERE,
            kind=kind,
            model=(message,),
            data={"complete": True} if kind == SYSTEM else None,
        )
        for at, (kind, message) in enumerate(said, start=1)
    ]


def chosen(entries: list[EntryRecord], keep: int) -> CompactionRange | None:
    """The range of a conversation."""
    return choose_range(entries, conversation_id=HERE, keep_tokens=keep, info=INFO)


def first(entries: list[EntryRecord], keep: int) -> int | None:
    """The first kept entry; None when nothing is summarized."""
    found = chosen(entries, keep)
    return None if found is None else found.first


def cost(*said: tuple[str, Message]) -> int:
    """What messages cost."""
    return sum(message_tokens(message, INFO) for _, message in said)


def test_as_much_is_kept_as_is_allowed_and_the_newest_turn_in_any_case() -> None:
    turns = [user("a"), answer(), user("b"), answer(), user("c"), answer()]
    entries = transcript(*turns)
    assert first(entries, cost(*turns)) is None
    assert first(entries, cost(*turns) - 1) == 2
    assert first(entries, cost(*turns[2:])) == 3
    assert first(entries, cost(*turns[4:])) == 5
    assert first(entries, 0) == 6


def test_nothing_is_summarized_of_nothing() -> None:
    assert first([], 0) is None
    assert first(transcript(user("a")), 0) is None
    assert first(transcript(prompt(), user("a")), 0) is None


def test_the_system_prompt_is_neither_summarized_nor_counted() -> None:
    entries = transcript(prompt(), user("a"), answer(), prompt(), user("b"), answer())
    found = chosen(entries, cost(user("b"), answer()))
    assert found is not None
    assert [entry.id for entry in found.entries] == [2, 3]
    assert found.tokens == found.new_tokens == cost(user("a"), answer())


def test_no_cut_falls_between_a_call_and_its_result() -> None:
    said = [user("a"), answer("x", "y"), result("x"), result("y"), answer(), user("b"), answer()]
    entries = transcript(*said)
    assert first(entries, cost(*said[1:])) == 2
    # One token less, and the whole round is summarized.
    assert first(entries, cost(*said[1:]) - 1) == 5
    assert first(entries, cost(*said[4:])) == 5


@pytest.mark.parametrize("kind", [USER, "app.note"])
def test_what_an_application_says_in_a_round_does_not_split_it(kind: str) -> None:
    entries = transcript(
        user("a"),
        answer("x", "y"),
        result("x"),
        user("meanwhile", kind),
        result("y"),
        answer(text="z" * 400),
    )
    assert first(entries, 0) == 6
    # More would fit than the newest turn, and less than the whole round.
    assert first(entries, cost(answer(text="z" * 400), result("y"), user("meanwhile"))) == 6


def test_an_answer_whose_calls_may_be_running_is_never_cut_from_them() -> None:
    open_round = [user("a"), answer("x", "y"), result("x"), user("meanwhile")]
    assert first(transcript(*open_round), 0) == 2
    # Neither where an answer of an application came in between.
    assert first(transcript(*open_round, answer()), 0) == 2
    inherited = [attrs.evolve(e, conversation_id=ELSEWHERE) for e in transcript(*open_round[:3])]
    entries = [*inherited, *transcript(*open_round)[3:]]
    # What a fork inherited has no result any more.
    assert first(entries, 0) == 4


def test_calls_that_never_got_a_result_do_not_keep_all_that_follows() -> None:
    entries = transcript(
        user("a"), answer("x"), user("b"), answer("y"), result("y"), answer(), user("c"), answer()
    )
    assert first(entries, 0) == 8


def test_a_call_id_that_is_used_again_belongs_to_its_own_round() -> None:
    entries = transcript(user("a"), answer("x"), result("x"), answer("x"), result("x"), answer())
    assert first(entries, cost(answer("x"), result("x"), answer())) == 4


def test_half_answers_are_not_counted() -> None:
    half = answer(text="z" * 4_000, stop="aborted")
    entries = transcript(user("a"), answer(), half, user("b"), answer())
    found = chosen(entries, 0)
    assert found is not None
    assert found.tokens == cost(user("a"), answer(), user("b"))


def test_an_earlier_summary_is_summarized_with_what_came_since_but_not_alone() -> None:
    entries = transcript(user("a"), answer(), user("b"), answer(), user("c"), answer())
    earlier = attrs.evolve(
        transcript(user("sum"))[0], id=EntryId(7), kind=COMPACTION, head=EntryId(5)
    )
    assert first([*entries, earlier], cost(user("c"), answer())) is None
    found = chosen([*entries, earlier], cost(answer()))
    assert found is not None
    assert [entry.id for entry in found.entries] == [7, 5]
    assert (found.first, found.replaced) == (6, 7)
    assert found.tokens - found.new_tokens == cost(user("sum"))


def test_a_hidden_entry_is_not_shown_to_who_summarizes() -> None:
    entries = transcript(user("a"), answer(text="secret"), user("b"), answer(), user("c"))
    entries[3] = attrs.evolve(entries[3], edits=(ContextEdit(entry_id=EntryId(2)),))
    found = chosen(entries, 0)
    assert found is not None
    assert not any("secret" in str(entry.model) for entry in found.entries)


# --- any transcript ---

IDS = st.sampled_from(["x", "y", "z"])
SAID = st.one_of(
    st.builds(user, st.text("u", max_size=40)),
    st.builds(user, st.text("n", max_size=40), st.just("app.note")),
    st.lists(IDS, max_size=2).map(lambda calls: answer(*calls)),
    st.builds(answer, IDS, stop=st.sampled_from(["aborted", "error", "stop"])),
    st.builds(result, IDS, st.text("r", max_size=40)),
    st.just(prompt()),
)


@settings(max_examples=300)
@given(st.lists(SAID, max_size=24), st.integers(0, 60), st.integers(0, 60), st.booleans())
def test_after_any_cut_a_strict_provider_is_served_and_each_result_is_with_its_call(
    said: list[tuple[str, Message]], keep: int, again: int, inherited: bool
) -> None:
    """Goal: a legal context that has all that is kept. Method: cut, go on, and cut again.

    The context after a cut has the summary, and then exactly the messages that the context before
    it ended with: no result is lost, and none is made up that there was.
    """
    entries = transcript(*said)
    if inherited:
        entries = [attrs.evolve(e, conversation_id=ELSEWHERE) for e in entries]
    for limit in (keep, again):
        before = model_context(entries)
        found = chosen(entries, limit)
        if found is None:
            continue
        draft = summary_entry(found, "s", {})
        entries.append(
            EntryRecord(
                id=EntryId(entries[-1].id + 1),
                conversation_id=HERE,
                kind=draft.kind,
                model=draft.model,
                head=draft.head,
                edits=draft.edits,
            )
        )
        after = model_context(entries)
        check_legal(after)
        assert draft.model is not None
        spoken = [block for m in after if not isinstance(m, SystemMessage) for block in m.content]
        assert spoken[0] == draft.model[0].content[0]
        kept = spoken[1:]
        earlier = [block for m in before for block in m.content]
        assert kept == earlier[len(earlier) - len(kept) :]
        begin = len(entries)
        entries += [
            attrs.evolve(entry, id=EntryId(begin + entry.id))
            for entry in transcript(answer("x"), result("x"), user("more"), answer())
        ]


def check_legal(messages: tuple[Message, ...]) -> None:
    """What a strict provider asks for: results directly after their calls, in order, and no more."""
    expected: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert expected, "a result without a call"
            assert message.call_id == expected.pop(0)
            continue
        assert not expected, "a call without its result"
        if isinstance(message, AssistantMessage):
            assert message.content
            expected = [call.id for call in message.tool_calls]
    assert not expected
