"""Contexts, after Chord's model: values, a deadline, and cancellation with a reason.

A `Context` is carried by a Trio cancel scope and found through one context variable, the only one
of this package. Values are immutable and inherited; cancelling a context cancels every scope that
it or a descendant has entered. Cancelling a context that someone waits in ends the wait, never the
durable work behind it.

Contexts belong to the Trio thread; other threads go through `trio.from_thread`. Never `yield` from
an async generator inside `scope()`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Generic, TypeVar, cast, final

import trio

__all__ = [
    "BACKGROUND",
    "Context",
    "ContextKey",
    "ContextScope",
    "activate",
    "current_context",
    "deactivate",
]

_T = TypeVar("_T")


@final
class ContextKey(Generic[_T]):
    """A typed name of a context value; two keys are equal only when they are the same object.

    Args:
        name: shown in messages.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<ContextKey {self.name}>"


@final
class Context:
    """Immutable values, a deadline, and cancellation with a reason.

    Args:
        values: values by `ContextKey`; added to what is inherited.
        deadline: on the Trio clock, in seconds; the parent's when that is earlier.
        parent: where values, deadline and cancellation are inherited from; `BACKGROUND` by default.
    """

    __slots__ = ("_entered", "_parent", "_reason", "_values", "deadline")

    def __init__(
        self,
        *,
        values: Mapping[ContextKey[_T], _T] | None = None,
        deadline: float = math.inf,
        parent: Context | None = None,
    ) -> None:
        above = parent if parent is not None else _background()
        self._parent = above
        self._reason: str | None = None
        # Scopes entered with this context or below it: scope -> None, in order of entering.
        self._entered: dict[trio.CancelScope, None] = {}
        inherited: Mapping[object, object] = above._values if above is not None else {}
        added = cast("Mapping[object, object]", values or {})
        self._values: Mapping[object, object] = {**inherited, **added} if added else inherited
        self.deadline: float = deadline if above is None else min(deadline, above.deadline)

    def get(self, key: ContextKey[_T]) -> _T | None:
        """The value of `key`, None when neither this context nor an ancestor has it."""
        return cast("_T | None", self._values.get(key))

    @property
    def values(self) -> Mapping[object, object]:
        """All values, inherited ones included. Do not change it."""
        return self._values

    def child(
        self,
        *,
        timeout: float = math.inf,
        values: Mapping[ContextKey[_T], _T] | None = None,
    ) -> Context:
        """A context below this one.

        Args:
            timeout: seconds from now until it is cancelled, on the Trio clock.
            values: values to add.
        """
        deadline = math.inf if timeout == math.inf else trio.current_time() + timeout
        return Context(values=values, deadline=deadline, parent=self)

    def cancel(self, reason: str) -> None:
        """Cancel this context and everything entered below it. A second call changes nothing.

        Args:
            reason: why; read back as `reason`, and found in outcomes and reports.

        Raises:
            ValueError: on `BACKGROUND`, which is never cancelled.
        """
        if self._parent is None:
            raise ValueError("BACKGROUND is never cancelled; cancel a child of it.")
        if self._reason is None:
            self._reason = reason
            for scope in tuple(self._entered):
                scope.cancel(reason=reason)

    @property
    def reason(self) -> str | None:
        """Why this context is over: its own or an ancestor's reason, ``"deadline"``, or None."""
        node: Context | None = self
        while node is not None:
            if node._reason is not None:
                return node._reason
            node = node._parent
        if self.deadline != math.inf and trio.current_time() >= self.deadline:
            return "deadline"
        return None

    @property
    def cancelled(self) -> bool:
        """Whether this context is over."""
        return self.reason is not None

    def scope(self) -> ContextScope:
        """Enter the context: ``with context.scope(): ...``.

        The block runs in a Trio cancel scope that ends with the context; like that of
        `trio.move_on_after`, the block is left quietly when the context is cancelled, and
        `reason` says why.
        """
        return ContextScope(self)


@final
class ContextScope:
    """The entered form of a `Context`; made by `Context.scope`."""

    __slots__ = ("_context", "_token", "cancel_scope")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._token: Token[Context] | None = None
        self.cancel_scope = trio.CancelScope(deadline=context.deadline)

    def __enter__(self) -> Context:
        reason = self._context.reason
        if reason is not None:
            self.cancel_scope.cancel(reason=reason)
        for node in _chain(self._context):
            node._entered[self.cancel_scope] = None
        self.cancel_scope.__enter__()
        self._token = _current.set(self._context)
        return self._context

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        assert self._token is not None, "left after it was entered"
        _current.reset(self._token)
        for node in _chain(self._context):
            del node._entered[self.cancel_scope]
        return self.cancel_scope.__exit__(kind, error, trace)


def current_context() -> Context:
    """The context that the calling task runs in, `BACKGROUND` outside of any."""
    return _current.get()


def activate(context: Context) -> Token[Context]:
    """Make `context` current without a scope; pair with `deactivate` in the same task."""
    return _current.set(context)


def deactivate(token: Token[Context]) -> None:
    """Undo `activate`."""
    _current.reset(token)


def _chain(context: Context) -> list[Context]:
    """The context and its ancestors, without `BACKGROUND`, which nobody can cancel."""
    nodes: list[Context] = []
    node: Context | None = context
    while node is not None and node._parent is not None:
        nodes.append(node)
        node = node._parent
    return nodes


def _background() -> Context | None:
    # None only while BACKGROUND itself is made.
    return cast("Context | None", globals().get("BACKGROUND"))


BACKGROUND: Final = Context()
"""The root: no values, no deadline, never cancelled."""

_current: Final[ContextVar[Context]] = ContextVar("pidurable_context", default=BACKGROUND)
