"""Stories of the inbox: what waits, what resets, what ends a run early, and what is tried again.

Each input has a request id and is handed in again by every life; the checks compare how submissions
ended with what is in the transcript, so that nothing is taken without being placed, or placed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import attrs
import trio

from pidurable_actors import Reply, ToolResult, tool
from pidurable_actors.agent import INBOX
from pidurable_actors.errors import ProviderError
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records import RESET, ROOT_ID, SubmissionRecord, UserMessage, text_of
from pidurable_actors.testing import World
from tests._agents import call, calling
from tests._strict import strictly
from tests.crash.stories import SETTINGS, Told, conversation, lines_of

__all__ = ["INBOXES"]

INPUTS: Final = {"f1": "follow_up", "s1": "steer", "f2": "follow_up"}
"""What is handed in behind the run under way, and how."""


@strictly
def working(ctx: ScriptedContext) -> Reply:
    """One round of work for "go", and an echo of everything else."""
    if ctx.user_text == "go" and not ctx.tool_results():
        return calling(call("work"))
    return Reply(f"re: {ctx.user_text}", delay_s=1)


@tool(replay="safe")
async def work() -> str:
    """Work."""
    await trio.sleep(2)
    return "worked"


def placed_texts(world: World) -> Counter[str]:
    """What the users said, and how often."""
    return Counter(
        text_of(message.content)
        for entry in world.records.transcript()
        for message in entry.model or ()
        if isinstance(message, UserMessage)
    )


def by_request(world: World) -> dict[str, SubmissionRecord]:
    """The submissions by request id."""
    return {str(it.request_id): it for it in world.records.submissions.values()}


def check_placed(world: World) -> None:
    """C37: what was placed is there once, what was withdrawn is not, and nothing waits any more."""
    texts = placed_texts(world)
    assert not [text for text, times in texts.items() if times > 1], texts
    for request_id, submission in by_request(world).items():
        assert submission.status in ("done", "unanswered"), submission
        if submission.type == "input":
            withdrawn = submission.reason == "withdrawn"
            assert (submission.entry is None) == withdrawn
            assert (request_id in texts) != withdrawn, (request_id, texts)
    inbox = world.records.documents.get(("conversation", ROOT_ID, INBOX.kind, ""))
    assert not isinstance(inbox, dict) or not inbox["items"], inbox


# --- queued inputs and a reset ---


async def queued(world: World) -> None:
    """A run, three inputs of both kinds that wait behind it, and a reset with a handoff."""
    async with conversation(world, working, work) as root:
        first = await root.submit("go", request_id="go")
        handles = [
            await root.submit(name, request_id=name, when_busy=how)  # type: ignore[arg-type]
            for name, how in INPUTS.items()
        ]
        reset = await root.reset("anew", request_id="reset")
        for handle in (first, *handles, reset):
            await handle.wait()
        await root.wait_for_idle()


def check_queued(world: World) -> None:
    """All are answered, follow-ups in their order; one reset is placed."""
    check_placed(world)
    assert {it.status for it in by_request(world).values()} == {"done"}
    said = [line[5:] for line in lines_of(world) if line.startswith("user ")]
    assert said[0] == "go"
    assert [it for it in said if it.startswith("f")] == ["f1", "f2"]
    (reset,) = [it for it in world.records.transcript() if it.kind == RESET]
    assert reset.head == reset.id


# --- an abort while everything waits ---


async def aborted(world: World) -> None:
    """The same, without a handoff, and an abort in the middle of the work."""
    async with conversation(world, working, work) as root:
        handles = [await root.submit("go", request_id="go")]
        handles += [
            await root.submit(name, request_id=name, when_busy=how)  # type: ignore[arg-type]
            for name, how in INPUTS.items()
        ]
        handles.append(await root.reset(request_id="reset"))
        await trio.sleep(1)
        await root.abort(reason="enough")
        await root.wait_for_idle()
        for handle in handles:
            await handle.wait()


def check_aborted(world: World) -> None:
    """Each input is answered, aborted, reset or withdrawn; the reset is never lost."""
    check_placed(world)
    ended = {it.reason or it.status for it in by_request(world).values()}
    assert ended <= {"done", "aborted", "withdrawn", "reset"}
    assert by_request(world)["reset"].status == "done"
    assert len([it for it in world.records.transcript() if it.kind == RESET]) == 1


# --- a handoff, and the end of a run by its tools ---


async def handed_off(world: World) -> None:
    """A tool hands off, another one then ends the run; a follow-up starts the next."""

    @tool(replay="safe")
    async def hand() -> ToolResult:
        """Begin anew."""
        await trio.sleep(1)
        return ToolResult("handed", handoff="anew")

    @tool(replay="safe")
    async def stop() -> ToolResult:
        """End the run."""
        await trio.sleep(1)
        return ToolResult("stopped", terminate=True)

    @strictly
    def script(ctx: ScriptedContext) -> Reply:
        if ctx.user_text == "go":
            return calling(call("hand", "c1"))
        if ctx.user_text == "anew":
            return calling(call("stop", "c1"))
        return Reply(f"re: {ctx.user_text}")

    async with conversation(world, script, hand, stop) as root:
        first = await root.submit("go", request_id="go")
        second = await root.submit("more", request_id="more")
        for handle in (first, second):
            await handle.wait()


def check_handed_off(world: World) -> None:
    """One handoff, one end, one answer to what came after."""
    check_placed(world)
    assert [it.status for it in by_request(world).values()] == ["done", "done"]
    whole = [line for line in lines_of(world) if not line.endswith("(aborted)")]
    assert whole == [
        "user go",
        "calls hand(c1)",
        "result c1 handed",
        "user anew",
        "calls stop(c1)",
        "result c1 stopped",
        "user more",
        "assistant re: more",
    ]


# --- a retry ---


async def retried(world: World) -> None:
    """A run fails behind its work; its host mends the model and tries it again."""

    @tool(replay="safe")
    async def once() -> str:
        """Work."""
        world.effect("work", repeatable=True)
        await trio.sleep(1)
        return "worked"

    @strictly
    def script(ctx: ScriptedContext) -> Reply | ProviderError:
        if not ctx.answers:
            return calling(call("once"))
        if not world.count("mended"):
            return ProviderError("refused", retryable=False)
        return Reply("answer")

    async with conversation(world, script, once) as root:
        first = await (await root.submit("go", request_id="go")).wait()
        if first.status == "unanswered":
            world.effect("mended", repeatable=True)
            await (await root.retry(request_id="again")).wait()


def check_retried(world: World) -> None:
    """The work has one result, the input is there once, and one of the two submissions is done."""
    check_placed_but_for_retries(world)
    whole = [line for line in lines_of(world) if not line.endswith("(aborted)")]
    assert whole == ["user go", "calls once(c1)", "result c1 worked", "assistant answer"]
    found = by_request(world)
    assert (found["go"].reason, found["again"].status) == ("model_error", "done")
    assert found["again"].entry == found["go"].entry


def check_placed_but_for_retries(world: World) -> None:
    """A retry places nothing of its own."""
    assert placed_texts(world) == Counter({"go": 1})


PATIENT: Final = attrs.evolve(SETTINGS, follow_up_mode="all", steering_mode="all")


async def queued_all(world: World) -> None:
    """As the first, with all that waits placed at one boundary."""
    async with conversation(world, working, work, settings=PATIENT) as root:
        first = await root.submit("go", request_id="go")
        handles = [
            await root.submit(name, request_id=name, when_busy=how)  # type: ignore[arg-type]
            for name, how in INPUTS.items()
        ]
        reset = await root.reset("anew", request_id="reset")
        for handle in (first, *handles, reset):
            await handle.wait()


INBOXES: Final[Mapping[str, Told]] = {
    "inbox, queued": Told(queued, check_queued),
    "inbox, queued, all at once": Told(queued_all, check_queued),
    "inbox, aborted": Told(aborted, check_aborted),
    "handoff and terminate": Told(handed_off, check_handed_off),
    "retry": Told(retried, check_retried),
}
