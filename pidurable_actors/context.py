"""Contexts, after Chord's model: values, a deadline, and cancellation with a reason.

A `Context` is carried by a Trio cancel scope and found through one context variable, the only one
of this package. Values are immutable and inherited; cancelling a context cancels every scope that
it or a descendant has entered. Cancelling a context that someone waits in ends the wait, never the
durable work behind it.

A call that takes ``context=`` runs `within` it: a scope that is left quietly would leave the caller
without a result, so there the end of the context is an error of the call, `ContextCancelled`. The
host's own cancellation is never turned into one; when both are over, the host's is the one seen.

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

from pidurable_actors.errors import ContextCancelled, MisuseError

__all__ = [
    "BACKGROUND",
    "CallScope",
    "Context",
    "ContextKey",
    "ContextScope",
    "activate",
    "current_context",
    "deactivate",
    "within",
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

    Code runs in it by entering its `scope`. A single call runs in it when it is handed over, for
    callers that carry one across tasks or from a socket: every public async call takes
    ``context=``, commits with its values, and raises `ContextCancelled` when it is over. That
    ends the call and no durable work; the caller lives on. What a call that was ended has stored
    is what its docstring says under ``Cancellation:``.

    Args:
        values: values by `ContextKey`; added to what is inherited.
        deadline: on the Trio clock, in seconds; the parent's when that is earlier.
        parent: where values, deadline and cancellation are inherited from; `BACKGROUND` by default.
    """

    __slots__ = ("_entered", "_marks", "_parent", "_reason", "_values", "deadline")

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
        # See `activate`.
        self._marks: Mapping[object, object] = above._marks if above is not None else {}
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

    __slots__ = ("_context", "_inside", "_token", "cancel_scope")

    def __init__(self, context: Context) -> None:
        self._context = context
        # What is current inside: the context, or a child of it with the marks of what it is in.
        self._inside = context
        self._token: Token[Context] | None = None
        self.cancel_scope = trio.CancelScope(deadline=context.deadline)

    def __enter__(self) -> Context:
        reason = self._context.reason
        if reason is not None:
            self.cancel_scope.cancel(reason=reason)
        marks = _current.get()._marks
        if marks is not self._context._marks and marks:
            self._inside = _marked(self._context, marks)
        for node in _chain(self._inside):
            node._entered[self.cancel_scope] = None
        self.cancel_scope.__enter__()
        self._token = _current.set(self._inside)
        return self._context

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        assert self._token is not None, "left after it was entered"
        _current.reset(self._token)
        for node in _chain(self._inside):
            del node._entered[self.cancel_scope]
        return self.cancel_scope.__exit__(kind, error, trace)

    @property
    def reason(self) -> str | None:
        """Why the block was or will be left, None while it is not over."""
        return self._inside.reason


@final
class CallScope:
    """One call in the context that it was handed, or in none; made by `within`."""

    __slots__ = ("_context", "_scope")

    def __init__(self, context: Context | None) -> None:
        self._context = context
        self._scope: ContextScope | None = None

    def __enter__(self) -> None:
        context = self._context
        if context is None:
            return
        if not isinstance(context, Context):
            raise MisuseError(f"context= takes a Context, not {context!r}.")
        reason = context.reason
        # When the host is over too, the first checkpoint of the call says so.
        if reason is not None and not _host_is_over():
            raise ContextCancelled(reason, context.deadline)
        self._scope = context.scope()
        self._scope.__enter__()

    # Typed to return None: nothing is swallowed, so a `return` inside is seen as the only way out.
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        context, scope = self._context, self._scope
        if context is None or scope is None:
            return
        # A scope claims a block without an error too; such a block has its outcome.
        if scope.__exit__(kind, error, trace) and error is not None:
            reason = scope.reason
            assert reason is not None, "only the end of the context cancels its scope"
            raise ContextCancelled(reason, context.deadline) from None


def within(context: Context | None) -> CallScope:
    """Run the block of a ``with`` as a call that was handed a context.

    With None it does nothing. Otherwise the block runs in the context's scope. An outcome that the
    block has, a result or an error of its own, stays the outcome; the host's cancellation passes.

    Raises:
        ContextCancelled: on entering, the context is over and nothing has been done; on leaving,
            its end has cancelled the block.
        MisuseError: on entering, it is not a context.
    """
    return _NO_SCOPE if context is None else CallScope(context)


def current_context() -> Context:
    """The context that the calling task runs in, `BACKGROUND` outside of any."""
    return _current.get()


def activate(context: Context) -> Token[Context]:
    """Make `context` current without a scope; pair with `deactivate` in the same task.

    What it adds to its parent's values marks all that runs inside: a scope of any other context
    that is entered inside has these values too, so that nobody gets rid of them by entering one.
    """
    inherited = {} if context._parent is None else context._parent._values
    added = {key: value for key, value in context._values.items() if key not in inherited}
    context._marks = {**context._marks, **added}
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


def _marked(context: Context, marks: Mapping[object, object]) -> Context:
    child = Context(parent=context, values=cast("Mapping[ContextKey[object], object]", marks))
    child._marks = marks
    return child


def _host_is_over() -> bool:
    """Whether a scope around the caller is cancelled, or its deadline is here."""
    return trio.current_effective_deadline() <= trio.current_time()


def _background() -> Context | None:
    # None only while BACKGROUND itself is made.
    return cast("Context | None", globals().get("BACKGROUND"))


BACKGROUND: Final = Context()
"""The root: no values, no deadline, never cancelled."""

_current: Final[ContextVar[Context]] = ContextVar("pidurable_context", default=BACKGROUND)

_NO_SCOPE: Final = CallScope(None)
