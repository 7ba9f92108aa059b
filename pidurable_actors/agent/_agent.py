"""Agents: what a conversation runs with, resolved from its choices, the settings and the registry.

A conversation stores names and choices; this makes of them the values of one decision. Resolving is
pure and never fails for a name that is not installed: it is skipped, and takes effect when it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast, final

import attrs

from pidurable_actors.agent._documents import AgentState, BudgetChoice, BudgetLimits, NameChoice
from pidurable_actors.agent._hooks import Hook, HookPoint
from pidurable_actors.agent._registry import Registry
from pidurable_actors.agent._sections import Section
from pidurable_actors.agent._tool import Caller, Tool
from pidurable_actors.models import ModelOptions, ToolSpec
from pidurable_actors.settings import (
    AgentChoice,
    Budget,
    BudgetSettings,
    Selection,
    Settings,
    ThinkingLevel,
)

__all__ = ["Agent", "budget_of", "choose", "resolve_agent"]


@final
@attrs.frozen(kw_only=True)
class Agent:
    """What one decision of a conversation is made with.

    Attributes:
        model: ``provider/model_id``; None when nobody chose one.
        options: how to answer.
        instructions: the last section of the system prompt; empty for none.
        cwd: the working directory of its tools; None when nobody chose one.
        extensions: the names of those that take part, in order.
        tools: what may be called, by name, in a stable order.
        sections: the parts of the system prompt in order, each with the name of its extension.
        hooks: by point, each with the name of its extension.
        budget: what may be used.
    """

    model: str | None
    options: ModelOptions
    instructions: str
    cwd: str | None
    extensions: tuple[str, ...]
    tools: Mapping[str, Tool]
    sections: tuple[tuple[str, Section], ...]
    hooks: Mapping[HookPoint, tuple[tuple[str, Hook], ...]]
    budget: BudgetSettings

    def tool(self, name: str, called_by: Caller) -> Tool | None:
        """The tool of a name, when it may be called like that."""
        found = self.tools.get(name)
        return found if found is not None and called_by in found.callers else None

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that the model is told of."""
        return tuple(tool.spec for tool in self.tools.values() if "model" in tool.callers)


def resolve_agent(registry: Registry, settings: Settings, state: AgentState) -> Agent:
    """What a conversation runs with now.

    Args:
        registry: what is installed.
        settings: the defaults.
        state: what the conversation chose.

    Raises:
        DefinitionError: a wrapper of an extension made of a tool or a section what is none.
    """
    default = settings.agent
    installed = [extension.name for extension in registry.extensions]
    bundle = registry.select(_chosen(state.extensions, default.extensions, installed))
    named = _chosen(state.tools, default.tools, bundle.tools)
    if state.tools_added:
        named = named.union(state.tools_added)
    return Agent(
        model=state.model or default.model,
        options=ModelOptions(
            max_output_tokens=state.max_output_tokens or default.max_output_tokens,
            thinking_level=cast(
                "ThinkingLevel | None", state.thinking_level or default.thinking_level
            ),
        ),
        instructions=(
            state.instructions if state.instructions is not None else default.instructions or ""
        ),
        cwd=state.cwd or default.cwd,
        extensions=bundle.names,
        tools={name: tool for name, tool in bundle.tools.items() if name in named},
        sections=bundle.sections,
        hooks=bundle.hooks,
        budget=budget_of(state, settings),
    )


def budget_of(state: AgentState, settings: Settings) -> BudgetSettings:
    """What a conversation may use: what it chose, or what the settings say."""
    chosen = state.budget
    if chosen is None:
        return settings.agent.budget or settings.budget
    return BudgetSettings(
        run=_limits(chosen.run),
        conversation=_limits(chosen.conversation),
        subtree=_limits(chosen.subtree),
        near=chosen.near,
    )


def choose(state: AgentState, choice: Mapping[str, object]) -> None:
    """Write choices into a conversation's document.

    Args:
        state: a draft.
        choice: values of `AgentChoice` by the names of its fields; None clears one.
    """
    checked = AgentChoice(**choice)  # type: ignore[arg-type]
    for name in choice:
        value = getattr(checked, name)
        if isinstance(value, Selection):
            value = _stored(value)
        elif isinstance(value, BudgetSettings):
            value = BudgetChoice(
                run=_stored_limits(value.run),
                conversation=_stored_limits(value.conversation),
                subtree=_stored_limits(value.subtree),
                near=value.near,
            )
        setattr(state, name, value)
    if "tools" in choice:
        state.tools_added = []


def _chosen(
    own: NameChoice | None, default: Selection | None, there: Collection[str]
) -> frozenset[str]:
    by_default = frozenset(there) if default is None else default.of(there)
    if own is None:
        return by_default
    exact = None if own.exact is None else tuple(own.exact)
    return Selection(exact, add=tuple(own.add), remove=tuple(own.remove)).of(by_default)


def _stored(selection: Selection) -> NameChoice:
    return NameChoice(
        exact=None if selection.exact is None else list(selection.exact),
        add=list(selection.add),
        remove=list(selection.remove),
    )


def _limits(stored: BudgetLimits) -> Budget:
    return Budget(tokens=stored.tokens, cost=stored.cost, turns=stored.turns, wall_s=stored.wall_s)


def _stored_limits(budget: Budget) -> BudgetLimits:
    return BudgetLimits(
        tokens=budget.tokens, cost=budget.cost, turns=budget.turns, wall_s=budget.wall_s
    )
