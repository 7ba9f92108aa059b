"""Commit callbacks: user code that holds the line, and what is done about code that holds it long.

Knows who is inside a callback, so that a call which would wait for the very callback that makes it
is refused at once, also from a child task of the callback. It never admits or writes anything.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast, final

import trio

from pidurable_actors._limits import LIMITS
from pidurable_actors.context import ContextKey, activate, current_context, deactivate
from pidurable_actors.errors import CallbackTooSlow, CommitReentered
from pidurable_actors.runtime import Report, Reporter
from pidurable_actors.session import Tx

__all__ = ["Callbacks"]

T = TypeVar("T")


@final
class _Callback:
    """Marks the context of a running async callback; `active` ends with it."""

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = True


@final
class Callbacks:
    """The callbacks of one line.

    Args:
        report: the host's reports.
    """

    def __init__(self, report: Reporter) -> None:
        self._report = report
        # A key of its own, so that callbacks of two harnesses may nest.
        self._inside: ContextKey[_Callback] = ContextKey("commit callback")

    def refuse_inside(self) -> None:
        """Refuse a call that would wait for the very callback it is made from.

        Raises:
            CommitReentered: the caller is a callback of this line, or a child task of one.
        """
        callback = current_context().get(self._inside)
        if callback is not None and callback.active:
            raise CommitReentered(
                "commit, submit and wait cannot be called from inside a commit callback; "
                "use its tx, or call them before or after the commit."
            )

    @trio.lowlevel.disable_ki_protection
    def call(self, change: Callable[[Tx], Awaitable[T] | T], tx: Tx) -> Awaitable[T] | T:
        """Call a callback; an async one still has to be awaited."""
        return change(tx)

    async def finish(self, result: Awaitable[T]) -> T:
        """Await an async callback, as long as it may hold the line.

        Raises:
            CallbackTooSlow: it took too long and was cancelled.

        Durability: stores nothing.

        Cancellation: the callback is cancelled.
        """
        callback = _Callback()
        token = activate(current_context().child(values={self._inside: callback}))
        stack = ""
        value: T | None = None
        scope = trio.CancelScope(deadline=trio.current_time() + LIMITS.callback_s)
        try:
            with scope:
                try:
                    value = await _await_user(result)
                except trio.Cancelled as cancelled:
                    stack = "".join(traceback.format_tb(cancelled.__traceback__)[-8:])
                    raise
        finally:
            callback.active = False
            deactivate(token)
        if scope.cancelled_caught:
            self._report(Report(kind="callback_slow", reason="cancelled", detail=stack))
            raise CallbackTooSlow(LIMITS.callback_s)
        return cast(T, value)

    def took(self, change: object, held_s: float) -> None:
        """Note how long a callback held the line; a plain one can only be named afterwards."""
        if held_s > LIMITS.callback_s:
            detail = f"{change!r} took {held_s:.1f} s"
            self._report(Report(kind="callback_slow", reason="blocked", detail=detail))


@trio.lowlevel.disable_ki_protection
async def _await_user(result: Awaitable[T]) -> T:
    return await result
