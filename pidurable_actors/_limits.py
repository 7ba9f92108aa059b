"""Named bounds. Every queue, batch, page, buffer and retry is bounded by one of these.

What happens at a bound is written beside it. `LIMITS` is the one set in use; a bound that hosts are
meant to choose lives in `Settings` instead.
"""

from __future__ import annotations

from typing import Final

import attrs

__all__ = ["LIMITS", "Limits"]


@attrs.frozen(kw_only=True)
class Limits:
    """The bounds of the package; see each field for what happens there."""

    batch_commits: int = 256
    """Commits in one durable write; further ones wait for the next write."""

    acknowledge_at_once: int = 48
    """Commits acknowledged in one pass of the event loop; the rest of a write follow in the next.

    Each wakes a task that runs its next step: with 256 at once a ticker was 64 ms late at p99.
    """

    page: int = 1_000
    """Rows a storage returns for one scan; a larger limit is refused."""

    json_depth: int = 128
    """Nesting of a stored value; a deeper one is an `InvalidValue`."""

    memo_bytes: int = 64 * 1024
    """Encoded size of one memo; a larger one is an `InvalidValue`."""

    memos_bytes: int = 1024 * 1024
    """Encoded size of all memos of a task; one more is an `InvalidValue`."""

    whole_document_chars: int = 1_000
    """A document up to this size is stored whole with every change, a longer one as its deltas."""

    document_tail_chars: int = 8_000
    """Deltas behind a document's base, all together, or as much as the base has when that is more.

    One more makes a new base. So reading a document costs at most twice its size, and what is
    stored for a change is about what the change says.
    """

    conversation_documents: int = 64
    """Documents loaded with their conversation; others are read when they are asked for."""

    view_entries: int = 1_000
    """Newest active entries in the view of a conversation; earlier ones are read by page."""

    readers_at_once: int = 4
    """Watchers that run in one pass of the event loop; the others follow in the next ones."""

    watch_frames: int = 100
    """Frames kept for watchers; one who falls further behind gets the newest view instead."""

    name_length: int = 200
    """Characters in a kind, memo name, request id or document key."""

    callback_s: float = 5.0
    """How long a commit callback may hold the line before it is cancelled, in seconds."""

    hook_s: float = 10.0
    """How long an `after_tool` or `on_abort` hook may hold a result back; then it is skipped."""

    wake_at_once: int = 256
    """Tasks reserved in one commit of the supervisor; the rest follow in the next ones."""

    nesting: int = 64
    """Nurseries in one another; the work of a deeper owner hangs from the supervisor."""

    idle_wait_s: float = 0.001
    """How long the Trio thread may wait for the storage thread itself, in seconds."""

    clock_check_s: float = 1.0
    """The longest the timer sleeps without a look at the clock, in seconds."""

    error_chars: int = 4_000
    """Characters kept of an error message or traceback summary that is stored."""


LIMITS: Final = Limits()
