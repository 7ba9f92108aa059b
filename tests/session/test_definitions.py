"""Definitions of documents: what cannot be one, and what becomes of a stored value."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal, NewType, Union

import attrs
from pytest import mark, param, raises

from pidurable_actors import Text, define_doc
from pidurable_actors._frozen import Value, freeze
from pidurable_actors._json import JSON, encode_json
from pidurable_actors.errors import (
    DefinitionError,
    InvalidValue,
    StorageCorrupt,
    StorageTooNew,
)
from pidurable_actors.records import DocumentRecord
from pidurable_actors.session._cursors import Journal
from pidurable_actors.session._documents import DocumentDefinition

Name = NewType("Name", str)


@attrs.define
class Item:
    title: str = ""
    done: bool = False


@attrs.define
class State:
    name: str = "n"
    items: list[Item] = attrs.Factory(list)
    weight: float = 0.5


@attrs.frozen
class Frozen:
    n: int = 0


@attrs.define
class Required:
    n: int


class Plain:
    pass


class Pair(enum.Enum):
    ONE = (1, 2)


class Word(enum.Enum):
    ONE = "one"


class Other(enum.Enum):
    TWO = "two"


def as_number(text: str) -> int:
    return int(text)


@attrs.define
class Tagged:
    kind: Literal["a"] = "a"


@attrs.define
class SameTag:
    kind: Literal["a"] = "a"


def state_of(kind: Any, **options: Any) -> type:
    """A class of one field."""
    return attrs.make_class("Made", {"field": attrs.field(type=kind, default=None, **options)})


@mark.parametrize(
    ("change", "text"),
    [
        param({"kind": ""}, "document kind '': use 1 to 200 characters", id="no kind"),
        param({"kind": "k" * 201}, "use 1 to 200 characters", id="long kind"),
        param({"kind": 5}, "document kind 5: use 1 to 200 characters", id="number for a kind"),
        param({"version": 0}, "version 0 is no whole number from 1", id="version 0"),
        param({"version": True}, "version True is no whole number", id="bool version"),
        param({"version": "1"}, "version '1' is no whole number", id="text version"),
        param({"scope": "task2"}, "scope is one of session, conversation, task", id="scope"),
        param({"history": "all"}, "history is one of latest, rewindable", id="history"),
        param({"fork": "copy"}, "fork is one of initial, current, as_of", id="fork"),
        param({"fork": "as_of"}, 'fork="as_of" needs history="rewindable"', id="as_of"),
        param({"migrate": 5}, "migrate is a function of a value and a version", id="migrate"),
        param({"state": Plain}, r"must be an attrs class \(@attrs.define\)", id="plain class"),
        param({"state": dict}, r"must be an attrs class \(@attrs.define\)", id="dict"),
        param({"state": State()}, "must be an attrs class", id="instance"),
        param({"state": None}, "must be an attrs class", id="nothing"),
        param({"state": Frozen}, "Frozen is frozen; .* use @attrs.define", id="frozen"),
        param({"state": Required}, "Required.n needs a default, because", id="required"),
    ],
)
def test_a_definition_that_is_wrong_is_refused_in_words(change: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {"kind": "app.state", "state": State, **change}
    with raises(DefinitionError, match=text):
        define_doc(**arguments)


@mark.parametrize(
    ("kind", "text"),
    [
        param(bytes, "bytes.* cannot be a field of a document; use text", id="bytes"),
        param(dt.datetime, "datetime.* cannot be a field of a document", id="datetime"),
        param(tuple[int, ...], r"tuple\[int, ...\] cannot be a field", id="tuple"),
        param(set[int], "cannot be a field of a document", id="set"),
        param(Plain, "Plain.* cannot be a field of a document", id="plain class"),
        param(list[Plain], "Plain.* cannot be a field of a document", id="in a list"),
        param(dict[int, str], r"keys .* are str; write dict\[str, ...\]", id="keys"),
        param(Callable[[], None], "cannot be a field of a document", id="function"),
        param(Literal[b"x"], "values of a Literal .* are str, int, bool or None", id="literal"),
        param(Literal[Word.ONE], "declare the enumeration itself", id="member in a literal"),
        param(Pair, "Pair is stored as the values of its members; make them str", id="enum"),
        param(list[int] | list[str], "more than one type .* stored as a list", id="lists"),
        param(dict[str, int] | dict[str, str], "stored as a mapping", id="dicts"),
        param(dict[str, int] | Tagged, "Tagged and a dict are both stored as mappings", id="both"),
        param(Text | str, "more than one type .* stored as text", id="texts"),
        param(Word | str, "more than one type .* stored as text", id="enum and text"),
        param(Word | Other, "more than one type .* stored as text", id="two enums"),
        param(
            Union[Any, int],  # noqa: UP007 - the operator has no form of it
            "Any takes every JSON value already",
            id="anything",
        ),
        param(Tagged | SameTag, "give Tagged, SameTag a Literal field", id="same tag"),
        param(Tagged | Item, "give Tagged, Item a Literal field", id="one tag"),
    ],
)
def test_a_field_that_could_not_be_read_again_is_refused(kind: Any, text: str) -> None:
    """Goal: the error names the field and says what to do, also when it is defined again."""
    state = state_of(kind)
    for _ in range(2):
        with raises(DefinitionError, match="Made.field: .*" + text):
            define_doc("app.made", state)


def test_a_default_that_is_made_from_self_is_refused() -> None:
    with_self = attrs.make_class(
        "Made", {"field": attrs.field(type=int, default=attrs.Factory(id, takes_self=True))}
    )
    with raises(DefinitionError, match=r"Made.field: its default is made from self.* a property"):
        define_doc("app.made", with_self)


def test_an_annotation_that_cannot_be_read_is_refused() -> None:
    lost = attrs.make_class("Lost", {"field": attrs.field(type=int, default=None)})
    lost.__annotations__ = {"field": "Nowhere"}
    with raises(DefinitionError, match=r"Lost: the types of its fields .* 'Nowhere' is not def"):
        define_doc("app.lost", lost)


def test_a_default_that_does_not_fit_its_type_is_named_when_it_is_defined() -> None:
    with raises(DefinitionError, match=r'docs\["app.made"\].field: must be int, not None'):
        define_doc("app.made", state_of(int))


def test_a_list_in_a_frozen_class_is_refused_because_appends_to_it_would_be_lost() -> None:
    @attrs.frozen
    class Tagged:
        tags: list[str] = attrs.field(factory=list)

    with raises(DefinitionError, match=r"Tagged.tags: a frozen class is handed out as a copy"):
        define_doc("app.made", state_of(Tagged | None))


def test_a_kind_that_cannot_be_stored_is_refused() -> None:
    with raises(DefinitionError, match="document kind"):
        define_doc("app.\ud800", state_of(int | None))


@mark.parametrize(
    ("kind", "value"),
    [
        param(int | None, None, id="optional"),
        param(int | str | None, None, id="optional union"),
        param(Annotated[int, "note"] | None, None, id="annotated"),
        param(Name | None, None, id="new type"),
        param(Any, None, id="anything"),
        param(object, None, id="object"),
        param(None, None, id="nothing"),
        param(list | None, None, id="bare list"),
        param(dict | None, None, id="bare dict"),
        param(Frozen | None, None, id="frozen"),
        param(Word | int | None, None, id="enum and number"),
        param(Literal[1] | str | None, None, id="literal and text"),
        param((Literal["a"] | None), None, id="literal with None"),
    ],
)
def test_types_that_can_be_told_apart_are_taken(kind: Any, value: object) -> None:
    definition: DocumentDefinition[Any] = define_doc("app.made", state_of(kind))
    assert encode_json(definition.initial_value()) == '{"field":null}'
    assert definition.revision(definition.initial_value()) == definition.initial()


def test_a_definition_with_the_longest_kind_and_every_policy_is_taken() -> None:
    made = define_doc("k" * 200, State, version=7, scope="task", history="rewindable", fork="as_of")
    assert (made.kind, made.version, made.state) == ("k" * 200, 7, State)
    assert made.initial() == State()
    assert type(made.initial()) is State


# --- stored values ---


def record(version: int = 1) -> DocumentRecord:
    """What is stored beside a value."""
    return DocumentRecord(
        id=5,
        kind="app.state",
        scope="session",
        scope_id=0,
        key="",
        version=version,
        history="latest",
        fork="initial",
        created_at_ms=0,
    )


def load(value: JSON, version: int = 1, definition_version: int = 1) -> Value:
    """A stored value as a definition opens it."""
    definition = define_doc("app.state", State, version=definition_version)
    return definition.load(record(version), freeze(value))


def test_a_value_that_fits_is_taken_as_it_is() -> None:
    definition = define_doc("app.state", State)
    value = definition.initial_value()
    assert definition.load(record(), value) is value


def test_what_an_older_writer_did_not_know_is_completed() -> None:
    """Goal: a new field with a default needs no migration, at any depth."""
    loaded = load({"items": [{"title": "a"}, {"title": "b", "done": True}]})
    assert encode_json(loaded) == (
        '{"items":[{"title":"a","done":false},{"title":"b","done":true}],"name":"n","weight":0.5}'
    )


def test_a_default_that_completes_a_value_is_converted_as_its_class_does() -> None:
    converted = attrs.make_class(
        "Made", {"field": attrs.field(type=int, default="5", converter=as_number)}
    )
    definition: DocumentDefinition[Any] = define_doc("app.made", converted)
    assert definition.load(record(), freeze({})) == definition.initial_value() == {"field": 5}
    with_self: Any = attrs.Converter(lambda value, _: abs(value), takes_self=True)
    by_instance = attrs.make_class(
        "Made", {"field": attrs.field(type=int, default=5, converter=with_self)}
    )
    with raises(DefinitionError, match=r"Made.field: use a plain function as its converter"):
        define_doc("app.made", by_instance)


def test_what_a_newer_writer_knew_is_kept() -> None:
    """Goal: fields that this class does not have survive a change, also of parts that move."""
    definition = define_doc("app.state", State)
    value = load({"name": "n", "items": [{"title": "a", "color": 1}], "weight": 1, "more": [2]})
    draft, root = definition.draft(value, Journal(definition.name))
    draft.items[0].done = True
    draft.items.append(draft.items[0])
    assert encode_json(root.settled()) == (
        '{"name":"n","items":[{"title":"a","color":1,"done":true},'
        '{"title":"a","color":1,"done":true}],"weight":1.0,"more":[2]}'
    )


@mark.parametrize(
    ("value", "text"),
    [
        param([], r'docs\["app.state"\] must be State, not list', id="no mapping"),
        param({"name": 5}, r'docs\["app.state"\].name must be str, not 5', id="number"),
        param({"items": {}}, r".items must be a list, not", id="mapping for a list"),
        param({"items": [{}, {"done": 1}]}, r".items\[1\].done must be bool, not 1", id="deep"),
        param({"weight": "1"}, r".weight must be float, not '1'", id="text for a number"),
    ],
)
def test_a_stored_value_that_does_not_fit_is_corrupt_and_named(value: JSON, text: str) -> None:
    with raises(StorageCorrupt, match=r"document 'app.state' 5 does not fit State: .*" + text):
        load(value)


def test_a_newer_version_is_refused_with_both_versions() -> None:
    with raises(StorageTooNew, match=r"app.state.*3.*2"):
        load({}, version=3, definition_version=2)


def migrated(migrate: Any, value: JSON, version: int = 1) -> Value:
    """A stored value as a definition of version 3 opens it."""
    definition = define_doc("app.state", State, version=3, migrate=migrate)
    return definition.load(record(version), freeze(value))


@mark.parametrize("version", [1, 2])
def test_an_older_value_is_migrated_from_its_version(version: int) -> None:
    """Goal: `migrate` gets a plain copy that it may change, and need not complete it."""
    seen: list[tuple[JSON, int]] = []

    def migrate(value: Any, from_version: int) -> JSON:
        seen.append(({**value}, from_version))
        value["items"].append({"title": value.pop("title")})
        return value  # type: ignore[no-any-return]

    stored = freeze({"title": "old", "items": []})
    definition = define_doc("app.state", State, version=3, migrate=migrate)
    loaded = definition.load(record(version), stored)
    assert seen[0][1] == version
    assert definition.revision(loaded) == State(items=[Item("old")])
    assert stored == {"title": "old", "items": []}


def test_an_older_value_without_a_migration_is_refused_with_what_to_do() -> None:
    with raises(
        DefinitionError, match=r"stored in version 1 and defined in version 3; give .* migrate="
    ):
        migrated(None, {})


def test_what_migrate_raises_reaches_the_caller() -> None:
    def migrate(value: JSON, from_version: int) -> JSON:
        raise LookupError(from_version)

    with raises(LookupError):
        migrated(migrate, {})


@mark.parametrize(
    ("made", "text"),
    [
        param(None, r'docs\["app.state"\]: after migrate: must be State, not None', id="nothing"),
        param({"name": 5}, r'docs\["app.state"\].name: after migrate: must be str', id="misfit"),
        param({"name": b"x"}, r'docs\["app.state"\].name: .*bytes', id="no JSON"),
        param({"weight": float("nan")}, r"weight: nan is not JSON", id="nan"),
        param(State(), r"State is not JSON", id="instance"),
    ],
)
def test_a_migration_that_does_not_fit_is_named(made: Any, text: str) -> None:
    with raises(InvalidValue, match=text):
        migrated(lambda _, __: made, {})
