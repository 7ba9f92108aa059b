"""The system prompt as it is stored: complete once, then only what changed. Pure.

A ``pi.system`` entry has the texts of its sections by key and the tools that it declares. The first
one behind a cut is complete; each later one says what is new, other or gone. So what was sent once
is never sent again in another form, and a provider's cache of it stays warm; and a request depends
on stored entries alone, its tools included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from pidurable_actors._json import JSON, JsonObject
from pidurable_actors.models import ToolSpec
from pidurable_actors.records import SYSTEM, EntryDraft, EntryRecord, SystemMessage, TextBlock

__all__ = ["ShownPrompt", "prompt_change", "shown_prompt"]


@attrs.frozen(kw_only=True)
class ShownPrompt:
    """What a model was told by the system so far.

    Attributes:
        complete: whether it was told anything.
        sections: the texts by key.
        tools: the tools, in the order in which they were declared.
    """

    complete: bool = False
    sections: Mapping[str, str] = attrs.field(factory=dict)
    tools: tuple[ToolSpec, ...] = ()


def shown_prompt(entries: Iterable[EntryRecord]) -> ShownPrompt:
    """What the system entries among what a model sees come to, in order."""
    complete = False
    sections: dict[str, str] = {}
    tools: dict[str, ToolSpec] = {}
    for entry in entries:
        if entry.kind != SYSTEM or not isinstance(entry.data, dict):
            continue
        if entry.data.get("complete") is True:
            complete = True
            sections.clear()
            tools.clear()
        for key, text in _object(entry.data, "sections").items():
            if isinstance(text, str):
                sections[key] = text
            else:
                sections.pop(key, None)
        for name, spec in _object(entry.data, "tools").items():
            if isinstance(spec, dict):
                tools[name] = _spec(name, spec)
            else:
                tools.pop(name, None)
    return ShownPrompt(complete=complete, sections=sections, tools=tuple(tools.values()))


def prompt_change(
    shown: ShownPrompt, sections: Mapping[str, str], tools: Sequence[ToolSpec]
) -> EntryDraft | None:
    """The entry that tells a model what it does not know yet; None when it knows everything.

    Args:
        shown: what it was told.
        sections: the texts by key, in the order of the prompt.
        tools: what it may call.
    """
    if not shown.complete:
        shown = ShownPrompt()  # a complete prompt takes the place of whatever was said before
    new_sections: dict[str, str | None] = {
        key: text for key, text in sections.items() if shown.sections.get(key) != text
    }
    known = {tool.name: tool for tool in shown.tools}
    new_tools: dict[str, ToolSpec | None] = {
        tool.name: tool for tool in tools if known.get(tool.name) != tool
    }
    if shown.complete:
        new_sections |= dict.fromkeys(key for key in shown.sections if key not in sections)
        wanted = {tool.name for tool in tools}
        new_tools |= dict.fromkeys(name for name in known if name not in wanted)
    if not new_sections and not new_tools:
        return None
    data: JsonObject = {
        "complete": not shown.complete,
        "sections": dict(new_sections),
        "tools": {name: _stored(spec) for name, spec in new_tools.items()},
    }
    parts = [_tagged(key, text, shown) for key, text in new_sections.items()]
    message = SystemMessage(content=(TextBlock(text="\n\n".join(parts)),))
    return EntryDraft(kind=SYSTEM, model=(message,) if parts else None, data=data)


def _tagged(key: str, text: str | None, shown: ShownPrompt) -> str:
    if text is None:
        return f'<{key} status="removed"/>'
    status = ' status="changed"' if key in shown.sections else ""
    return f"<{key}{status}>\n{text}\n</{key}>"


def _stored(spec: ToolSpec | None) -> JSON:
    if spec is None:
        return None
    return {"description": spec.description, "parameters": spec.parameters}


def _spec(name: str, stored: JsonObject) -> ToolSpec:
    return ToolSpec(name, str(stored.get("description")), _object(stored, "parameters"))


def _object(stored: JsonObject, name: str) -> JsonObject:
    found = stored.get(name)
    return found if isinstance(found, dict) else {}
