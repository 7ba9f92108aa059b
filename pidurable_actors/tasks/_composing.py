"""Composing a request: the agent, the transcript and the system prompt of one decision.

What is read here is durable; what is decided on it is written by the task that asked, in a commit
that looks again whether it still holds. Sections are code of others and run outside of commits.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pidurable_actors._json import check_text
from pidurable_actors.agent import (
    AGENT,
    INSTRUCTIONS,
    LIVE,
    Agent,
    AgentServices,
    prompt_change,
    resolve_agent,
    shown_prompt,
)
from pidurable_actors.models import ModelInfo, ToolSpec, estimate_tokens
from pidurable_actors.records import (
    SYSTEM,
    EntryDraft,
    EntryId,
    EntryRecord,
    Message,
    SubmissionId,
    SystemMessage,
    context_of,
    visible_entries,
)
from pidurable_actors.runtime import AssistantEntry, Runtime
from pidurable_actors.session import Tx
from pidurable_actors.tasks._hook_run import HookRun, hook_failed

__all__ = ["Composed", "agent_in", "answer_at_hand", "arrived", "compose", "read_agent"]


@attrs.frozen(kw_only=True)
class Composed:
    """What a request would be made of now.

    Attributes:
        agent: what the conversation runs with.
        entries: what the model's view is made from, oldest first.
        newest: the id of the last of them; 0 when there is none.
        context: the messages of that.
        prompt: the system entry that must be appended first; None when nothing changed.
        tools: what the model is told of, in the order in which it was told.
    """

    agent: Agent
    entries: Sequence[EntryRecord]
    newest: int
    context: tuple[Message, ...]
    prompt: EntryDraft | None
    tools: tuple[ToolSpec, ...]
    _sizes: dict[ModelInfo, int] = attrs.field(factory=dict, eq=False, init=False)

    @property
    def asks(self) -> bool:
        """Whether there is anything to answer."""
        return any(not isinstance(message, SystemMessage) for message in self.context)

    def tokens(self, info: ModelInfo) -> int:
        """The size of the request, by the estimate."""
        if info not in self._sizes:
            change = () if self.prompt is None else self.prompt.model or ()
            self._sizes[info] = estimate_tokens((*self.context, *change), self.tools, info)
        return self._sizes[info]


async def compose(runtime: Runtime, agent: Agent) -> Composed:
    """Read and render.

    Args:
        runtime: of the task.
        agent: what the conversation runs with.

    Durability: what is read is stored; stores nothing itself.

    Cancellation: nothing happened; sections may be rendered again.
    """
    entries = await runtime.transcript(runtime.conversation_id)
    visible = visible_entries(entries)
    shown = shown_prompt(visible)
    sections = await _rendered(runtime, agent, entries)
    draft = prompt_change(shown, sections, agent.specs)
    known = {tool.name for tool in shown.tools}
    return Composed(
        agent=agent,
        entries=entries,
        newest=entries[-1].id if entries else 0,
        context=context_of(visible),
        prompt=draft,
        tools=(*shown.tools, *(tool for tool in agent.specs if tool.name not in known)),
    )


async def read_agent(runtime: Runtime) -> Agent:
    """What the conversation of a task runs with.

    Durability: reads in turn with commits; stores nothing.

    Cancellation: nothing happened.
    """
    return await runtime.look(lambda tx: agent_in(tx, runtime.service(AgentServices)))


async def agent_in(tx: Tx, services: AgentServices) -> Agent:
    """What the bound conversation of a commit runs with.

    Raises:
        DefinitionError: a wrapper of an extension made of a tool or a section what is none.

    Durability: stores nothing.

    Cancellation: the commit rolls back.
    """
    return resolve_agent(services.registry, services.settings(), await tx.doc(AGENT))


async def arrived(tx: Tx, runtime: Runtime, newest: int) -> list[EntryRecord] | None:
    """What came behind an entry, oldest first; None when that changes what is seen before it.

    Durability: stores nothing.

    Cancellation: the commit rolls back.
    """
    came: list[EntryRecord] = []
    before: EntryId | None = None
    if tx.newest_entry(runtime.conversation_id) <= newest:
        # Known without a look at storage, which would hold up the line.
        return came
    while page := await tx.entries(runtime.conversation_id, before=before, limit=_LOOK):
        for entry in page:
            if entry.id <= newest:
                return came[::-1]
            if entry.head is not None or entry.edits:
                return None
            came.append(entry)
        before = page[-1].id
    return came[::-1]


async def answer_at_hand(
    tx: Tx, runtime: Runtime, entries: Sequence[EntryRecord]
) -> EntryId | None:
    """The whole answer that a run left which is tried again; None when it must be asked for.

    It was stored, and then the run was stopped while hooks decided whether it was the end.

    Durability: stores nothing.

    Cancellation: the commit rolls back.
    """
    run = (await tx.doc(LIVE, runtime.conversation_id)).run
    if run is None or run.turns or not run.submissions:
        return None
    first = await tx.submission(SubmissionId(run.submissions[0]))
    said = [it for it in visible_entries(entries) if it.model and it.kind != SYSTEM]
    if first.type != "retry" or not said:
        return None
    message = AssistantEntry.match(said[-1])
    whole = message is not None and message.stop_reason not in ("aborted", "error")
    return said[-1].id if whole and message is not None and not message.tool_calls else None


_LOOK = 16
"""Entries that are read at once; mostly none has come."""


async def _rendered(
    runtime: Runtime, agent: Agent, entries: Sequence[EntryRecord]
) -> dict[str, str]:
    texts: dict[str, str] = {}
    for extension, section in agent.sections:
        text: str | None = section.text
        if section.render is not None:
            try:
                text = await section.render(HookRun(runtime, extension))
                if text is not None:
                    check_text(text, f"section {section.key}")
            except Exception as error:  # noqa: BLE001 - a section fails only its own part
                hook_failed(runtime, extension, f"section {section.key}", error)
                # Of all entries: what was shown before a cut is what was shown last.
                text = shown_prompt(entries).sections.get(section.key)
        if text:
            texts[section.key] = text
    if agent.instructions:
        texts[INSTRUCTIONS] = agent.instructions
    return texts
