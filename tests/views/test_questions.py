"""Who watches a conversation sees its open questions, and hears when one is asked and has its end."""

from __future__ import annotations

import trio

from pidurable_actors import Ask, Reply
from pidurable_actors.agent import QuestionSlot
from pidurable_actors.storage.memory import MemoryStorage
from pidurable_actors.views import QuestionAsked, QuestionEnded, ToolUpdated
from tests._agents import call, calling, in_order, registry_of
from tests.tasks.asking import Desk
from tests.views.following import Replica, followed, replicated


async def test_a_question_is_shown_while_it_is_open_and_told_of_when_it_is_not() -> None:
    """Ask twice: the first question is answered, the second expires."""
    replica, desk = Replica(), Desk()
    made = desk.order(Ask("How many?"), Ask("Sure?", deadline_s=60))
    model = in_order(calling(call("order", item="tea")), Reply("done"))
    async with (
        replicated(MemoryStorage(), replica, model=model, registry=registry_of(made)) as harness,
        followed(harness, replica) as (frames, events),
    ):
        root = await harness.root()
        submission = await root.submit("go")
        await trio.sleep(1)
        (question,) = (await harness.questions()).items
        await harness.answer(question.id, 3, by="ann")
        await submission.wait()
    shown = [dict(frame.view.live.questions) for frame in frames.frames]  # type: ignore[union-attr]
    first, second = (f"{question.task_id}.{n}" for n in (1, 2))
    assert {first: QuestionSlot("ask", "How many?", "order", None)} in shown
    assert [slot.text for slots in shown for slot in slots.values()][-1] == "Sure?"
    assert shown[-1] == {}
    asked = [event for event in events.events if isinstance(event, QuestionAsked)]
    assert [(it.question_id, it.kind, it.tool_name, it.text) for it in asked] == [
        (first, "ask", "order", "How many?"),
        (second, "ask", "order", "Sure?"),
    ]
    assert asked[0].deadline_ms is None
    assert asked[1].deadline_ms is not None
    ended = [event for event in events.events if isinstance(event, QuestionEnded)]
    assert [event.question_id for event in ended] == [first, second]
    assert all(event.text for event in events.of(ToolUpdated) if isinstance(event, ToolUpdated))
