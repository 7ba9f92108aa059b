"""Document definitions: what a kind of document is, and how its value becomes a draft and back.

A definition is a value; defining one registers nothing. A draft is an instance of the state class,
built fresh from the stored value for one callback, changed in place, and read back when the
callback returns. Values are stored whole.
"""

from __future__ import annotations

from typing import Generic, TypeVar, cast, final

import attrs
from cattrs import BaseValidationError, Converter
from cattrs.errors import CattrsError

from pidurable_actors._json import JSON, check_json, copy_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import DefinitionError, StorageCorrupt, StorageTooNew
from pidurable_actors.records import DocumentRecord, ForkPolicy, HistoryPolicy, ScopeKind

__all__ = ["DocumentDefinition", "define_doc"]

D = TypeVar("D")
_converter = Converter(detailed_validation=False, forbid_extra_keys=False)


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
    """

    kind: str
    state: type[D]
    version: int
    scope: ScopeKind
    history: HistoryPolicy
    fork: ForkPolicy

    def initial(self) -> D:
        """A fresh initial value."""
        return self.state()

    def load(self, record: DocumentRecord, value: JSON) -> D:
        """A draft of a stored value.

        Raises:
            StorageTooNew: the stored version is newer than this definition.
            StorageCorrupt: the stored value does not fit the class.
        """
        if record.version > self.version:
            raise StorageTooNew(f"document {self.kind!r}", record.version, self.version)
        try:
            # A copy, because a field of any type takes its part of the value as it is.
            return _converter.structure(copy_json(value), self.state)
        except (
            BaseValidationError,
            CattrsError,
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
        ) as error:
            raise StorageCorrupt(
                f"document {self.kind!r} {record.id} does not fit {self.state.__name__}"
            ) from error

    def unstructure(self, draft: D) -> JSON:
        """The value of a draft, not yet checked."""
        return cast(JSON, _converter.unstructure(draft))

    def check(self, value: JSON) -> None:
        """Refuse a value that is not strict JSON.

        Raises:
            InvalidValue: the path names the part.
        """
        check_json(value, f'docs["{self.kind}"]')


def define_doc(
    kind: str,
    state: type[D],
    *,
    version: int = 1,
    scope: ScopeKind = "conversation",
    history: HistoryPolicy = "latest",
    fork: ForkPolicy = "initial",
) -> DocumentDefinition[D]:
    """Define a kind of document.

    Args:
        kind: stored identity, such as ``app.todos``; never taken from a class name.
        state: a mutable attrs class whose fields all have defaults.
        version: raised when the stored form changes.
        scope: ``session``, ``conversation`` or ``task``.
        history: ``latest`` keeps one value.
        fork: ``initial`` starts a fork afresh.

    Raises:
        DefinitionError: the kind is empty or too long, or the class is not a mutable attrs class
            that can be made without arguments.
    """
    if not kind or len(kind) > LIMITS.name_length:
        raise DefinitionError(f"document kind {kind!r}: use 1 to {LIMITS.name_length} characters.")
    _check_state(kind, state)
    return DocumentDefinition(
        kind=kind, state=state, version=version, scope=scope, history=history, fork=fork
    )


def _check_state(kind: str, state: type) -> None:
    if not attrs.has(state):
        raise DefinitionError(
            f"document {kind!r}: {state!r} must be an attrs class (@attrs.define)."
        )
    # attrs puts its own refusing __setattr__ on frozen classes.
    if "frozen" in getattr(state.__setattr__, "__name__", ""):
        raise DefinitionError(
            f"document {kind!r}: {state.__name__} is frozen; a draft is changed in place, "
            "use @attrs.define."
        )
    missing = [f.name for f in attrs.fields(state) if f.init and f.default is attrs.NOTHING]
    if missing:
        raise DefinitionError(
            f"document {kind!r}: {state.__name__}.{missing[0]} needs a default, because a document "
            "starts as its class's initial value."
        )
