"""Document definitions: what a kind of document is, and how a stored value is opened.

A definition is a value; defining one registers nothing. A draft is an instance of a class made from
the state class, whose changes become delta operations; a revision is the same, without changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar, cast, final, get_args

import attrs

from pidurable_actors._frozen import FrozenDict, Value, freeze, thaw
from pidurable_actors._json import JSON, check_json, is_text
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import (
    DefinitionError,
    InvalidValue,
    StorageCorrupt,
    StorageTooNew,
)
from pidurable_actors.records import DocumentRecord, ForkPolicy, HistoryPolicy, ScopeKind
from pidurable_actors.session._class_plans import ClassPlan, class_plan
from pidurable_actors.session._cursors import Cursor, Journal, path_text
from pidurable_actors.session._tracked import Unfit

__all__ = ["DocumentDefinition", "define_doc"]

D = TypeVar("D")
Migrate: TypeAlias = Callable[[JSON, int], JSON]


@final
@attrs.frozen(kw_only=True, eq=False)
class DocumentDefinition(Generic[D]):
    """A kind of document; made by `define_doc`.

    Attributes:
        kind: stored identity.
        state: attrs class of the value; its defaults are the initial value.
        version: version of the stored value.
        scope: what a document belongs to.
        history: whether old values stay readable.
        fork: what a fork of the conversation sees.
        migrate: makes a value of this version from an older one.
    """

    kind: str
    state: type[D]
    version: int
    scope: ScopeKind
    history: HistoryPolicy
    fork: ForkPolicy
    migrate: Migrate | None = None
    _plan: ClassPlan = attrs.field(alias="plan")

    @property
    def name(self) -> str:
        """How errors name a document of this kind."""
        return f'docs["{self.kind}"]'

    def initial(self) -> D:
        """A fresh initial value, a plain instance."""
        return self.state()

    def initial_value(self) -> FrozenDict:
        """The initial value as it is stored.

        Raises:
            InvalidValue: the class starts with something that is not strict JSON.
        """
        try:
            return cast("FrozenDict", self._plan.dump(self.initial(), 0))
        except Unfit as unfit:
            raise InvalidValue(
                path_text(self.name, (*reversed(unfit.keys),)), unfit.reason
            ) from None

    def load(self, record: DocumentRecord, value: Value) -> FrozenDict:
        """A stored value, brought to this version, checked and completed.

        Raises:
            StorageTooNew: the stored version is newer than this definition.
            DefinitionError: it is older, and the definition has no `migrate`.
            StorageCorrupt: the stored value does not fit the class.
            InvalidValue: what `migrate` returned does not.
            Exception: what `migrate` raised.
        """
        if record.version > self.version:
            raise StorageTooNew(f"document {self.kind!r}", record.version, self.version)
        if record.version < self.version:
            return self._migrated(record, value)
        try:
            return cast("FrozenDict", self._plan.load(value))
        except Unfit as unfit:
            where = path_text(self.name, (*reversed(unfit.keys),))
            raise StorageCorrupt(
                f"document {self.kind!r} {record.id} does not fit {self.state.__name__}: "
                f"{where} {unfit.reason}"
            ) from None

    def _migrated(self, record: DocumentRecord, value: Value) -> FrozenDict:
        if self.migrate is None:
            raise DefinitionError(
                f"document {self.kind!r} is stored in version {record.version} and defined in "
                f"version {self.version}; give define_doc a migrate= that leads there."
            )
        # A copy of its own: the function may change it in place.
        try:
            made = self.migrate(thaw(value), record.version)
        except Exception as error:  # the application's own, which passes with a word on where
            error.add_note(
                f"while document {self.kind!r} {record.id} was migrated from version "
                f"{record.version} to {self.version}"
            )
            raise
        check_json(made, self.name)
        try:
            return cast("FrozenDict", self._plan.load(freeze(made)))
        except Unfit as unfit:
            where = path_text(self.name, (*reversed(unfit.keys),))
            raise InvalidValue(where, f"after migrate: {unfit.reason}") from None

    def draft(self, value: Value, journal: Journal) -> tuple[D, Cursor]:
        """A draft of a loaded value, and its root."""
        root = Cursor(value, journal)
        return cast("D", self._plan.bind(root)), root

    def revision(self, value: Value) -> D:
        """A loaded value to look at; nobody can change it."""
        return cast("D", self._plan.bind(Cursor(value, None)))


def define_doc(
    kind: str,
    state: type[D],
    *,
    version: int = 1,
    scope: ScopeKind = "conversation",
    history: HistoryPolicy = "latest",
    fork: ForkPolicy = "initial",
    migrate: Migrate | None = None,
) -> DocumentDefinition[D]:
    """Define a kind of document.

    Fields may be text, numbers, bool, None, `Text`, `Literal`, enumerations, JSON, attrs classes,
    and lists, dicts (with text as keys) and unions of these.

    Args:
        kind: stored identity, such as ``app.todos``; never taken from a class name.
        state: a mutable attrs class whose fields all have defaults.
        version: raised when the stored form changes.
        scope: ``session``, ``conversation`` or ``task``; a task's documents are retired with it.
        history: ``latest`` keeps one value; ``rewindable`` keeps what it was after each commit.
        fork: ``initial`` starts a fork afresh, ``current`` with the parent's value of that moment,
            ``as_of`` with the value it had at the entry where the fork begins.
        migrate: called with a plain copy of a stored value and its version; returns the value in
            the present version. It runs when the document is opened, and its result is stored with
            the next change.

    Raises:
        DefinitionError: the kind is empty or too long, the class is not a mutable attrs class that
            can be made without arguments, a field or its default cannot be stored, or the policies
            contradict.
    """
    # An untyped program may pass anything.
    named: object = kind
    if not isinstance(named, str) or not 0 < len(kind) <= LIMITS.name_length or not is_text(kind):
        raise DefinitionError(f"document kind {kind!r}: use 1 to {LIMITS.name_length} characters.")
    if type(version) is not int or version < 1:
        raise DefinitionError(f"document {kind!r}: version {version!r} is no whole number from 1.")
    for name, value, allowed in (
        ("scope", scope, get_args(ScopeKind)),
        ("history", history, get_args(HistoryPolicy)),
        ("fork", fork, get_args(ForkPolicy)),
    ):
        if value not in allowed:
            raise DefinitionError(f"document {kind!r}: {name} is one of {', '.join(allowed)}.")
    if fork == "as_of" and history != "rewindable":
        raise DefinitionError(f'document {kind!r}: fork="as_of" needs history="rewindable".')
    if migrate is not None and not callable(migrate):
        raise DefinitionError(f"document {kind!r}: migrate is a function of a value and a version.")
    _check_state(kind, state)
    plan = class_plan(state)
    if plan.required:
        raise DefinitionError(
            f"document {kind!r}: {state.__name__}.{plan.required[0]} needs a default, because a "
            "document starts as its class's initial value."
        )
    definition = DocumentDefinition(
        kind=kind,
        state=state,
        version=version,
        scope=scope,
        history=history,
        fork=fork,
        migrate=migrate,
        plan=plan,
    )
    try:
        definition.initial_value()
    except InvalidValue as error:
        raise DefinitionError(f"the initial value does not fit: {error}") from error
    return definition


def _check_state(kind: str, state: type) -> None:
    given: object = state
    if not isinstance(given, type) or not attrs.has(state):
        raise DefinitionError(
            f"document {kind!r}: {state!r} must be an attrs class (@attrs.define)."
        )
    # attrs puts its own refusing __setattr__ on frozen classes.
    if "frozen" in getattr(state.__setattr__, "__name__", ""):
        raise DefinitionError(
            f"document {kind!r}: {state.__name__} is frozen; a draft is changed in place, "
            "use @attrs.define."
        )
