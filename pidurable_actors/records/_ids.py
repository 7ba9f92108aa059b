"""Typed ids and the commit sequence.

Ids of all kinds of record come from one counter per storage: strictly increasing, never reused
once stored. Commits have a counter of their own. Both are plain integers in JSON.
"""

from __future__ import annotations

from typing import Final, NewType

__all__ = ["ROOT_ID", "CommitNumber", "ConversationId", "EntryId", "SubmissionId", "TaskId"]

ConversationId = NewType("ConversationId", int)
EntryId = NewType("EntryId", int)
TaskId = NewType("TaskId", int)
SubmissionId = NewType("SubmissionId", int)
CommitNumber = NewType("CommitNumber", int)

ROOT_ID: Final = ConversationId(1)
"""The root conversation of every storage; the counter of a new storage starts behind it."""
