"""Sections: the parts of a system prompt that extensions bring.

A section is rendered for each request; what it says is sent when it changed, see `_prompt`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, final

import attrs

from pidurable_actors._json import check_text
from pidurable_actors.agent._hooks import HookApi
from pidurable_actors.errors import DefinitionError, InvalidValue

__all__ = ["INSTRUCTIONS", "Render", "Section", "section"]

INSTRUCTIONS: Final = "instructions"
"""The key of the last section, which is the conversation's own."""

_KEY: Final = re.compile("[a-z][a-z0-9_-]*")

Render: TypeAlias = Callable[[HookApi], Awaitable[str | None]]


@final
@attrs.frozen
class Section:
    """A part of the system prompt.

    Args:
        key: its name and its tag in the prompt; a later extension's section of the same key wins.
        text: what it says, when that is always the same.
        render: async function of a `HookApi` that says it; None or nothing leaves the section out.
            While it raises, what was shown last stays.
        order: sections stand in this order, and those of the same in that of their extensions.

    Raises:
        DefinitionError: the key is no name or is taken by the package, the text is none, the
            order is no number, or there
            is not exactly one of `text` and `render`.
    """

    key: str
    text: str = ""
    render: Render | None = attrs.field(default=None, kw_only=True)
    order: int = attrs.field(default=0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        where = f"section {self.key!r}"
        if not _KEY.fullmatch(str(self.key)):
            raise DefinitionError(f"{where}: a key has small letters, digits, '_' and '-'.")
        if self.key == INSTRUCTIONS:
            raise DefinitionError(
                f"{where}: these are the conversation's own; set them with configure()."
            )
        order: object = self.order
        if isinstance(order, bool) or not isinstance(order, int):
            raise DefinitionError(f"{where}: its order is a whole number, not {order!r}.")
        try:
            check_text(self.text, "text")
        except InvalidValue as error:
            raise DefinitionError(f"{where}: {error}") from error
        if bool(self.text) == (self.render is not None):
            raise DefinitionError(f"{where}: give it a text or a function that renders one.")
        if self.render is not None and not inspect.iscoroutinefunction(self.render):
            raise DefinitionError(f"{where}: what renders it is an async function of its api.")


def section(key: str, *, order: int = 0) -> Callable[[Render], Section]:
    """Decorator that makes an async function a `Section`; see there.

    Raises:
        DefinitionError: see `Section`.
    """
    name: object = key
    if not isinstance(name, str):
        raise DefinitionError(f'a section has a key: @section("mood"), not @section of {name!r}.')
    return lambda render: Section(key, render=render, order=order)
