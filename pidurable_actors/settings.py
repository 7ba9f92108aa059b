"""Run policy that a host chooses. Plain frozen values, read when a decision is made.

Every unit is in the name. The defaults are safe for a service with one process. What a single
conversation runs with is an `AgentChoice`; that of the settings is what holds where it chose
nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from pidurable_actors.errors import InvalidValue

__all__ = [
    "AgentChoice",
    "Budget",
    "BudgetSettings",
    "CompactionSettings",
    "ProgressSettings",
    "RedactedCall",
    "RetrySettings",
    "Selection",
    "Settings",
    "StreamSettings",
    "ThinkingLevel",
    "check_redact",
]

ThinkingLevel: TypeAlias = Literal["off", "low", "medium", "high"]


_Validator: TypeAlias = "Callable[[object, attrs.Attribute[Any], Any], None]"


def _check(fits: Callable[[Any], bool], words: str) -> _Validator:
    def check(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if not fits(value):
            raise InvalidValue(attribute.name, f"must be {words}, not {value!r}")

    return check


def _number(value: object) -> bool:
    # A bool is an int to Python, and no amount to anybody.
    return isinstance(value, int | float) and not isinstance(value, bool)


_positive: Final = _check(lambda it: _number(it) and it > 0, "greater than 0")
_not_negative: Final = _check(lambda it: _number(it) and it >= 0, "0 or more")
_share: Final = _check(lambda it: _number(it) and 0 <= it <= 1, "between 0 and 1")
_limit: Final = _check(lambda it: it is None or (_number(it) and it > 0), "greater than 0, or None")
_count: Final = _check(
    lambda it: it is None or (_number(it) and it >= 1 and it % 1 == 0),
    "a whole number from 1 on, or None for no limit",
)


def _a(kind: type) -> _Validator:
    return _check(lambda it: isinstance(it, kind), f"{kind.__name__}(...)")


def _one_of(*names: str) -> _Validator:
    return _check(lambda it: it in names, f"one of {', '.join(names)}")


def check_redact(redact: object) -> None:
    """Refuse what could not redact a text.

    Raises:
        InvalidValue: it is no plain function.
    """
    # What an async function returns is no text, so that everything would be withheld.
    if redact is not None and (not callable(redact) or inspect.iscoroutinefunction(redact)):
        raise InvalidValue(
            "redact", f"use a plain function of the text and the RedactedCall, not {redact!r}"
        )


def _names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    given: object = names
    if given is None:
        return None
    # A text is a list of letters, which is never what was meant.
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidValue("selection", f"names are a list of texts, not {given!r}")
    found = tuple(given)
    for name in found:
        if not isinstance(name, str):
            kind = type(name).__name__
            raise InvalidValue("selection", f"names are texts, and a {kind} is none; give its name")
        if not name:
            raise InvalidValue("selection", f"names are texts that are not empty, not {found!r}")
    return found


def _listed(names: Iterable[str]) -> tuple[str, ...]:
    return _names(names) or ()


@attrs.frozen
class Selection:
    """Which of some named things: an exact list, or the default with some added and removed.

    Args:
        exact: only these; None for the default.
        add: these too.
        remove: but not these.

    Raises:
        InvalidValue: a name is empty or no text, or `exact` comes with the others.
    """

    exact: tuple[str, ...] | None = attrs.field(default=None, converter=_names)
    add: tuple[str, ...] = attrs.field(default=(), converter=_listed, kw_only=True)
    remove: tuple[str, ...] = attrs.field(default=(), converter=_listed, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.exact is not None and (self.add or self.remove):
            raise InvalidValue("selection", "an exact list is taken as it is; add to it or shorten")

    def of(self, default: Collection[str]) -> frozenset[str]:
        """The names that are meant, given those that are meant by default."""
        chosen = default if self.exact is None else self.exact
        return frozenset(chosen).union(self.add).difference(self.remove)


def _selection(chosen: Selection | Iterable[str] | None) -> Selection | None:
    return chosen if chosen is None or isinstance(chosen, Selection) else Selection(_listed(chosen))


@attrs.frozen(kw_only=True)
class Budget:
    """Limits of what may be used; None is no limit.

    Attributes:
        tokens: tokens asked with and answered, of every kind.
        cost: money, in the currency of the providers' prices.
        turns: answers of a model.
        wall_s: seconds of runs, without those in which a question or a signal was waited for.

    Raises:
        InvalidValue: a limit is not greater than 0, or tokens or turns are not whole.
    """

    tokens: int | None = attrs.field(default=None, validator=_count)
    cost: float | None = attrs.field(default=None, validator=_limit)
    turns: int | None = attrs.field(default=None, validator=_count)
    wall_s: float | None = attrs.field(default=None, validator=_limit)


@attrs.frozen(kw_only=True)
class BudgetSettings:
    """What a run, a conversation, and a conversation with all that it owns may use.

    Attributes:
        run: one run, from an input to its answer.
        conversation: all runs of a conversation.
        subtree: a conversation and those that its tasks own, at any depth.
        near: from which share of a limit on the host is told, once for each limit.

    Raises:
        InvalidValue: a part of it is no `Budget`, or `near` is no share.
    """

    run: Budget = attrs.field(default=Budget(), validator=_a(Budget))
    conversation: Budget = attrs.field(default=Budget(), validator=_a(Budget))
    subtree: Budget = attrs.field(default=Budget(), validator=_a(Budget))
    near: float = attrs.field(default=0.8, validator=_share)


@attrs.frozen(kw_only=True)
class AgentChoice:
    """What a conversation runs with; None leaves a choice to the default.

    Args:
        model: ``provider/model_id``.
        thinking_level: ``off``, ``low``, ``medium`` or ``high``.
        max_output_tokens: per answer.
        extensions: names of installed extensions: an exact list, or a `Selection` of additions and
            removals. A name that is not installed is skipped, and takes effect when it is.
        tools: names of tools, likewise; what is left out cannot be called at all.
        instructions: the last section of the system prompt.
        cwd: the working directory of its tools.
        budget: in place of that of the settings.

    Raises:
        InvalidValue: a choice means nothing.
    """

    model: str | None = None
    thinking_level: ThinkingLevel | None = None
    max_output_tokens: int | None = None
    extensions: Selection | None = attrs.field(default=None, converter=_selection)
    tools: Selection | None = attrs.field(default=None, converter=_selection)
    instructions: str | None = None
    cwd: str | None = None
    budget: BudgetSettings | None = None

    def __attrs_post_init__(self) -> None:
        _check_texts(model=self.model, instructions=self.instructions, cwd=self.cwd)
        if self.thinking_level not in (None, *get_args(ThinkingLevel)):
            raise InvalidValue("thinking_level", f"use one of {', '.join(get_args(ThinkingLevel))}")
        most: object = self.max_output_tokens
        if most is not None and not (type(most) is int and most >= 1):
            raise InvalidValue("max_output_tokens", "use a whole number from 1 on")
        budget: object = self.budget
        if budget is not None and not isinstance(budget, BudgetSettings):
            raise InvalidValue("budget", f"use BudgetSettings(...), not {budget!r}")


def _check_texts(**given: object) -> None:
    for name, value in given.items():
        if not isinstance(value, str | None):
            raise InvalidValue(name, f"this is text, not {value!r}")


@attrs.frozen(kw_only=True)
class CompactionSettings:
    """When and how the older part of a conversation is replaced by a summary.

    The size of a request is estimated from what is stored, as `estimate_tokens` says. Above
    ``context_window - reserve_tokens`` the next request waits for a compaction; above that less
    `background_tokens` one is made beside the run. For a small window neither is less than half of
    what it is taken from, and no more than half of the first is kept.

    Attributes:
        enabled: whether it happens by itself.
        reserve_tokens: what is kept free for the answer.
        keep_recent_tokens: how much of the newest turns is kept word for word.
        background_tokens: how far below the threshold a compaction begins in the background.
        max_tries: how many failures in a row end the attempts, until these settings or the model
            change; a summary that is not shorter than what it stands for is one.
        context_window: the window of the model in tokens; None for what its provider says.
        model: who writes the summary, ``provider/model_id``; None for the conversation's own model.
        models: settings of their own for some models, by ``provider/model_id``.
    """

    enabled: bool = True
    reserve_tokens: int = attrs.field(default=16_384, validator=_not_negative)
    keep_recent_tokens: int = attrs.field(default=20_000, validator=_not_negative)
    background_tokens: int = attrs.field(default=32_768, validator=_not_negative)
    max_tries: int = attrs.field(default=3, validator=_positive)
    context_window: int | None = attrs.field(default=None, validator=_limit)
    model: str | None = None
    models: Mapping[str, CompactionSettings] = attrs.field(
        factory=dict, validator=_a(Mapping), repr=False
    )

    def of(self, model: str) -> CompactionSettings:
        """The settings for a model."""
        return self.models.get(model, self)


@attrs.frozen(kw_only=True)
class RetrySettings:
    """How failed model requests are tried again.

    Wait n is ``base_s * 2**(n-1)``, at most `cap_s`, less up to `jitter` of itself.
    """

    enabled: bool = True
    max_retries: int = attrs.field(default=3, validator=_not_negative)
    base_s: float = attrs.field(default=2.0, validator=_not_negative)
    cap_s: float = attrs.field(default=60.0, validator=_not_negative)
    jitter: float = attrs.field(default=0.25, validator=_share)


@attrs.frozen(kw_only=True)
class ProgressSettings:
    """How streaming output is shown and stored.

    It is shown provisionally, at most every `interval_ms` and when a stream ends, and stored within
    `persist_within_ms`. With ``persist_within_ms=0`` every piece is stored before it is shown.
    """

    interval_ms: int = attrs.field(default=50, validator=_not_negative)
    persist_within_ms: int = attrs.field(default=1_000, validator=_not_negative)


@attrs.frozen(kw_only=True)
class StreamSettings:
    """When a silent model stream counts as dropped."""

    idle_timeout_s: float = attrs.field(default=120.0, validator=_positive)


@attrs.frozen(kw_only=True)
class RedactedCall:
    """The call of a tool whose output is redacted.

    Attributes:
        tool_name: the tool.
        call_id: the model's id of the call.
        conversation_id: where it was made.
    """

    tool_name: str
    call_id: str
    conversation_id: int


@attrs.frozen(kw_only=True)
class Settings:
    """The policy of one harness.

    What means nothing is refused with `InvalidValue`, which names the field.

    Attributes:
        agent: what conversations run with where they chose nothing themselves.
        budget: what runs, conversations and all below them may use.
        compaction: when older context is summarized.
        restart_limit: how often a task may be cut off without progress before it is not run again;
            ``math.inf`` for no limit.
        on_restart_limit: ``"end"`` ends such a task, ``"park"`` keeps it for `retry_task`.
        commit_log: how many commits stay readable, in order, as `Harness.commits`; 0 for none.
        commit_timeout_s: real seconds after which a storage that has not answered counts as failed.
        close_grace_s: seconds after which a close reports what still holds it.
        tool_timeout_s: deadline of a tool call that declares none, in seconds.
        redact: rids a text of a call of secrets before it is shown or stored, after the tool's own
            ``redact=``: a plain function of the text and the `RedactedCall`. It gets output line by
            line, and the texts, details and diagnostics of results, errors included. While it
            raises, the text is withheld.
        tool_mode: ``"parallel"`` runs the calls of one round together, ``"sequential"`` in order.
        follow_up_mode: how many queued inputs start the next run, ``"one"`` or ``"all"``.
        steering_mode: how many steering inputs join a run at one boundary.
    """

    agent: AgentChoice = attrs.field(default=AgentChoice(), validator=_a(AgentChoice))
    budget: BudgetSettings = attrs.field(default=BudgetSettings(), validator=_a(BudgetSettings))
    compaction: CompactionSettings = attrs.field(
        default=CompactionSettings(), validator=_a(CompactionSettings)
    )
    restart_limit: float = attrs.field(default=5, validator=_positive)
    on_restart_limit: Literal["end", "park"] = attrs.field(
        default="end", validator=_one_of("end", "park")
    )
    commit_log: int = attrs.field(default=10_000, validator=_not_negative)
    commit_timeout_s: float = attrs.field(default=30.0, validator=_positive)
    close_grace_s: float = attrs.field(default=10.0, validator=_not_negative)
    retry: RetrySettings = attrs.field(default=RetrySettings(), validator=_a(RetrySettings))
    progress: ProgressSettings = attrs.field(
        default=ProgressSettings(), validator=_a(ProgressSettings)
    )
    stream: StreamSettings = attrs.field(default=StreamSettings(), validator=_a(StreamSettings))
    tool_timeout_s: float | None = attrs.field(default=None, validator=_limit)
    redact: Callable[[str, RedactedCall], str] | None = attrs.field(
        default=None, validator=lambda _, __, given: check_redact(given)
    )
    tool_mode: Literal["parallel", "sequential"] = attrs.field(
        default="parallel", validator=_one_of("parallel", "sequential")
    )
    follow_up_mode: Literal["one", "all"] = attrs.field(
        default="one", validator=_one_of("one", "all")
    )
    steering_mode: Literal["one", "all"] = attrs.field(
        default="one", validator=_one_of("one", "all")
    )
