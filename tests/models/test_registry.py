"""References to models: who serves them, and what a wrong one is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pidurable_actors.errors import DefinitionError, UnknownModel
from pidurable_actors.models import Models, Reply, ScriptedModel


def provider(name: str, models: tuple[str, ...] | None = None) -> ScriptedModel:
    return ScriptedModel(lambda _: Reply("hi"), name=name, models=models)


def test_a_reference_leads_to_its_provider_and_its_model_id() -> None:
    one, two = provider("one"), provider("two", models=("small", "large"))
    models = Models([one, two])

    assert models.resolve("one/anything") == (one, "anything")
    assert models.resolve("two/large") == (two, "large")
    assert models.names == ("one", "two")


def test_a_model_id_may_hold_slashes() -> None:
    router = provider("router")

    assert Models([router]).resolve("router/meta/llama") == (router, "meta/llama")


@pytest.mark.parametrize("reference", ["", "gpt", "/gpt", "one/", "/"])
def test_a_reference_of_another_form_is_told_the_form(reference: str) -> None:
    with pytest.raises(UnknownModel, match="written provider/model_id") as info:
        Models([provider("one")]).resolve(reference)

    assert info.value.reference == reference


def test_an_unknown_provider_is_told_the_installed_ones() -> None:
    with pytest.raises(UnknownModel, match=r"no provider 'three'; installed: one, two\."):
        Models([provider("two"), provider("one")]).resolve("three/x")


def test_without_providers_the_refusal_says_so() -> None:
    with pytest.raises(UnknownModel, match=r"installed: none\."):
        Models().resolve("one/x")


def test_a_model_that_is_not_listed_is_told_the_list() -> None:
    with pytest.raises(UnknownModel, match=r"'one' does not list it; it has: small, large\."):
        Models([provider("one", models=("small", "large"))]).resolve("one/huge")


def test_a_long_list_is_cut_and_counted() -> None:
    listed = tuple(f"m{at}" for at in range(25))

    with pytest.raises(UnknownModel, match=r"m19 and 5 more\.$"):
        Models([provider("one", models=listed)]).resolve("one/huge")


def test_two_providers_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match="two model providers are named 'one'"):
        Models([provider("one"), provider("one")])


@pytest.mark.parametrize("missing", ["name", "models", "info", "stream"])
def test_a_provider_that_lacks_a_part_is_refused_before_anybody_asks_it(missing: str) -> None:
    parts = {part: getattr(provider("one"), part) for part in ("name", "models", "info", "stream")}
    assert Models([SimpleNamespace(**parts)]).names == ("one",)
    del parts[missing]

    with pytest.raises(DefinitionError, match=f"no '{missing}'; see ModelProvider"):
        Models([SimpleNamespace(**parts)])


@pytest.mark.parametrize("name", ["", "a/b", " a", "a ", "x" * 201])
def test_a_name_that_no_reference_could_hold_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be named"):
        Models([provider(name)])
