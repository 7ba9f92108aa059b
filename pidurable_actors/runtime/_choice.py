"""What a conversation runs with, as its host chooses it: checked before anything is written."""

from __future__ import annotations

from typing import get_args

import attrs

from pidurable_actors.errors import InvalidValue
from pidurable_actors.models import ThinkingLevel

__all__ = ["UNSET", "AgentChoice", "Unset", "check_choices"]


class Unset:
    """The type of `UNSET`: leave a choice as it is, as opposed to None, which clears it."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


@attrs.frozen(kw_only=True)
class AgentChoice:
    """What a conversation runs with; None leaves a choice to the default.

    Args:
        model: ``provider/model_id``.
        thinking_level: ``off``, ``low``, ``medium`` or ``high``.
        max_output_tokens: per answer.

    Raises:
        InvalidValue: a choice means nothing.
    """

    model: str | None = None
    thinking_level: str | None = None
    max_output_tokens: int | None = None

    def __attrs_post_init__(self) -> None:
        check_choices(self.model, self.thinking_level, self.max_output_tokens)


def check_choices(model: object, thinking_level: object, max_output_tokens: object) -> None:
    """Refuse choices that mean nothing; whether anybody serves the model is another question.

    Raises:
        InvalidValue: naming the choice.
    """
    if not isinstance(model, str | None):
        raise InvalidValue("model", "a reference is text, written provider/model_id")
    if thinking_level not in (None, *get_args(ThinkingLevel)):
        raise InvalidValue("thinking_level", f"use one of {', '.join(get_args(ThinkingLevel))}")
    if max_output_tokens is not None and not (
        isinstance(max_output_tokens, int) and max_output_tokens >= 1
    ):
        raise InvalidValue("max_output_tokens", "use a whole number from 1 on")
