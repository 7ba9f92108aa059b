"""Documents: typed mutable JSON state beside the transcript.

A document is found by kind, scope and key. This module owns the record; the value is stored beside
it, so that an observer of records need not carry values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from pidurable_actors._frozen import Value
from pidurable_actors._json import JSON

__all__ = ["DocumentRecord", "ForkPolicy", "HistoryPolicy", "ScopeKind", "StoredDocument"]

ScopeKind: TypeAlias = Literal["session", "conversation", "task"]
HistoryPolicy: TypeAlias = Literal["latest", "rewindable"]
ForkPolicy: TypeAlias = Literal["initial", "current", "as_of"]


@attrs.frozen(kw_only=True)
class DocumentRecord:
    """Identity and policies of a document.

    `scope_id` is the id of the conversation or task, 0 for the session. `version` is that of the
    stored value. `key` is empty unless the kind is a family.
    """

    id: int
    kind: str
    scope: ScopeKind
    scope_id: int
    key: str = ""
    version: int = 1
    history: HistoryPolicy = "latest"
    fork: ForkPolicy = "initial"
    created_at_ms: int = 0
    retired_at_ms: int | None = None
    extra: Mapping[str, JSON] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class StoredDocument:
    """A document as a storage returns it.

    Attributes:
        value: the whole value, immutable.
        commit: number of the last commit that it includes.
        base_chars: length of the base that is stored of it.
        tail_chars: length of the operations that are stored behind that base, all together.
    """

    record: DocumentRecord
    value: Value
    commit: int
    base_chars: int = 0
    tail_chars: int = 0
