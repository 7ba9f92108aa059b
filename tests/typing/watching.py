# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""Read by the type checkers, never run: what watches and events give is typed.

A line that must be refused carries an ignore; the checkers complain about one that is not needed.
"""

from __future__ import annotations

from typing import assert_type

import attrs

from pidurable_actors import Conversation, Harness, define_doc
from pidurable_actors.agent import GenerationState, InboxState, UsageState
from pidurable_actors.records import EntryRecord, TaskId
from pidurable_actors.views import (
    ConversationView,
    EndReason,
    Event,
    Frame,
    GraphTask,
    GraphView,
    MessageUpdated,
    Snapshot,
)


@attrs.define
class Todos:
    items: list[str] = attrs.Factory(list[str])


TODOS = define_doc("example.todos", Todos)


async def look(root: Conversation) -> None:
    async with root.watch() as watch:
        async for frame in watch:
            assert_type(frame, Frame[ConversationView])
            assert_type(frame.number, int | None)
            assert_type(frame.view.live.generation, GenerationState | None)
            assert_type(frame.view.inbox, InboxState)
            assert_type(frame.view.usage, UsageState)
            assert_type(frame.view.entries[0], EntryRecord)
            frame.view = frame.view  # type: ignore[misc]
        assert_type(watch.end, EndReason | None)


async def hear(root: Conversation) -> None:
    async with root.events(after=3) as stream:
        async for event in stream:
            assert_type(event, Event)
            match event:
                case Snapshot():
                    assert_type(event.view, ConversationView)
                case MessageUpdated():
                    assert_type(event.text, str)
                case _:
                    event.text  # type: ignore[union-attr]  # noqa: B018


async def look_at_one(harness: Harness) -> None:
    async with harness.watch_doc(TODOS, 1) as watch:
        async for frame in watch:
            assert_type(frame.view, Todos)
            assert_type(frame.view.items, list[str])


async def look_at_all(harness: Harness) -> None:
    async with harness.watch_task_graph() as watch:
        async for frame in watch:
            assert_type(frame.view, GraphView)
            assert_type(frame.view.tasks[TaskId(1)], GraphTask)
