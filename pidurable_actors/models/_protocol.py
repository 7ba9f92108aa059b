"""The model seam: what is asked of a model, and where a model reference leads.

Owns the request, the protocol of a provider, and the registry that turns ``provider/model_id`` into
one. It never talks to a model, retries or counts money: an adapter does the first, the generation
task the rest. Invariant: a request is a frozen value that depends on stored state alone, so that
the same step of a conversation asks the same thing after a restart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, final

import attrs

from pidurable_actors._json import JsonObject
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import DefinitionError, UnknownModel
from pidurable_actors.models._events import ModelEvent
from pidurable_actors.records import Message, Usage
from pidurable_actors.settings import ThinkingLevel

__all__ = ["ModelInfo", "ModelOptions", "ModelProvider", "ModelRequest", "Models", "ToolSpec"]

_NAMES_SHOWN = 20


@attrs.frozen
class ToolSpec:
    """A tool as a model sees it; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: JsonObject


@attrs.frozen(kw_only=True)
class ModelInfo:
    """What a provider knows of one of its models.

    Attributes:
        context_window: tokens that a request and its answer have together; None when unknown, and
            then nothing is compacted before a request was refused as too long.
        max_output_tokens: the longest answer, when none was chosen; None when unknown.
        bytes_per_token: bytes of UTF-8 in a token, on average, for `estimate_tokens`.
        input_price: money for a million tokens asked with.
        output_price: the same for tokens answered.
        cache_read_price: the same for tokens read from the provider's cache.
        cache_write_price: the same for tokens written to it.
    """

    context_window: int | None = None
    max_output_tokens: int | None = None
    bytes_per_token: float = 4.0
    input_price: float = 0.0
    output_price: float = 0.0
    cache_read_price: float = 0.0
    cache_write_price: float = 0.0

    def cost(self, usage: Usage) -> float:
        """What a request costs by these prices."""
        return (
            usage.input_tokens * self.input_price
            + usage.output_tokens * self.output_price
            + usage.cache_read_tokens * self.cache_read_price
            + usage.cache_write_tokens * self.cache_write_price
        ) / 1_000_000


@attrs.frozen(kw_only=True)
class ModelOptions:
    """How to answer; None leaves a choice to the provider."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking_level: ThinkingLevel | None = None


@attrs.frozen(kw_only=True)
class ModelRequest:
    """One question to a model.

    Attributes:
        model_id: the provider's own name of the model.
        messages: the context, oldest first; every tool result follows its call.
        tools: what the model may call.
        options: how to answer.
        session_id: the conversation's id at the provider, the same for every request of it, for
            caches and routing there.
    """

    model_id: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: ModelOptions = ModelOptions()
    session_id: str | None = None


class ModelProvider(Protocol):
    """A service that answers requests, such as one vendor's API.

    One provider serves any number of requests at once.
    """

    @property
    def name(self) -> str:
        """The part of a reference before the slash."""
        ...

    def models(self) -> tuple[str, ...] | None:
        """The model ids it serves, or None when any id may be asked for."""
        ...

    def info(self, model_id: str) -> ModelInfo:
        """What is known of a model; ``ModelInfo()`` when that is nothing."""
        ...

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Ask, and receive the answer as events.

        ``async with provider.stream(request) as events: async for event in events: ...``

        Entering sends the request; the answer is whole once `Finished` came, and a stream that ends
        without it was cut off (`Accumulator.message` says so).

        Raises:
            ProviderError: on entry or between events, when the provider refuses or breaks off.

        Cancellation:
            At any checkpoint of the block; leaving the block closes the connection. The provider
            may have done and charged the work.
        """
        ...


@final
class Models:
    """The providers of a process by name. References are ``provider/model_id``.

    Args:
        providers: what is installed.

    Raises:
        DefinitionError: two providers have the same name, a name cannot be part of a reference, or
            one lacks a part of `ModelProvider`.
    """

    def __init__(self, providers: Iterable[ModelProvider] = ()) -> None:
        self._providers: dict[str, ModelProvider] = {}
        if not isinstance(providers, Iterable):
            raise DefinitionError("Models takes a list: Models([provider]).")
        for provider in providers:
            _check_provider(provider)
            _check_name(provider.name)
            if provider.name in self._providers:
                raise DefinitionError(
                    f"two model providers are named {provider.name!r}; "
                    "give one of them another name."
                )
            self._providers[provider.name] = provider

    @property
    def names(self) -> tuple[str, ...]:
        """The installed providers' names, sorted."""
        return tuple(sorted(self._providers))

    def resolve(self, reference: str) -> tuple[ModelProvider, str]:
        """Find who serves a reference.

        Args:
            reference: ``provider/model_id``; the id may hold further slashes.

        Returns:
            The provider and the model id to ask it for.

        Raises:
            UnknownModel: the reference has no provider or no id, its provider is not installed, or
                the provider does not list the id.
        """
        name, slash, model_id = reference.partition("/")
        if not (name and slash and model_id):
            raise UnknownModel(reference, "a reference is written provider/model_id.")
        provider = self._providers.get(name)
        if provider is None:
            raise UnknownModel(
                reference, f"no provider {name!r}; installed: {_listed(self.names)}."
            )
        served = provider.models()
        if served is not None and model_id not in served:
            raise UnknownModel(reference, f"{name!r} does not list it; it has: {_listed(served)}.")
        return provider, model_id


def _check_provider(provider: object) -> None:
    # Found out now: a request would fault the run that makes it.
    for part in ("name", "models", "info", "stream"):
        if not hasattr(provider, part):
            raise DefinitionError(
                f"{provider!r} is not a model provider: it has no {part!r}; see ModelProvider."
            )


def _check_name(name: str) -> None:
    if not name or "/" in name or name != name.strip() or len(name) > LIMITS.name_length:
        raise DefinitionError(
            f"a model provider cannot be named {name[:80]!r}: a name has between 1 and "
            f"{LIMITS.name_length} characters and no slash, and does not start or end with a space."
        )


def _listed(names: tuple[str, ...]) -> str:
    if not names:
        return "none"
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
