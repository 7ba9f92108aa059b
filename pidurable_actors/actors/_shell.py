"""Shells: the nursery tree that mirrors who owns whose running work.

The shell of a task is a shielded cancel scope with the nursery in which the task's ordinary work
runs. It opens with the first run below the task and is retired when its last work has ended and
nothing runs in it. Shells stand in one another as their tasks own one another; work that waits or
sleeps has no Trio task at all.

Owns the shells and which run is in which. It never decides what runs, and it cancels nothing but
empty shells, bottom-up, each forgotten before its scope is cancelled. Nothing is raised through a
shell: a run hands what it raises to the supervisor.

Why the nesting is bounded: Trio delivers a cancellation from scope to scope by recursion, and a
plain nest of 400 nurseries overflows its stack. Past the bound a shell hangs from the supervisor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Final, TypeAlias, final

import trio

from pidurable_actors._limits import LIMITS
from pidurable_actors.records import TaskId

__all__ = ["Shells"]

Run: TypeAlias = Callable[[], Awaitable[None]]


@final
class Shells:
    """The shells of one harness.

    Args:
        above: the task whose ordinary work a live task is, None when it is nobody's.
        busy: whether a task has live work.
    """

    def __init__(
        self, above: Callable[[TaskId], TaskId | None], busy: Callable[[TaskId], bool]
    ) -> None:
        self._above = above
        self._busy = busy
        self._shells: dict[TaskId, _Shell] = {}
        self._root: _Shell | None = None
        # Of the engine, so that a run inherits from no committer.
        self._context: Final = copy_context()

    def __len__(self) -> int:
        return len(self._shells)

    def attach(self, nursery: trio.Nursery) -> None:
        """Take the nursery of what is nobody's work."""
        self._root = _Shell(None, None)
        self._root.nursery = nursery

    def start(self, task_id: TaskId, run: Run, name: str) -> None:
        """Start a run of a live task: in its own shell if it has one, else in its owner's."""
        shell = self._shells.get(task_id) or self._of(self._above(task_id))
        shell.residents += 1

        @trio.lowlevel.enable_ki_protection
        async def resident() -> None:
            try:
                await run()
            finally:
                self._left(shell)

        self._enter(shell, resident, name)

    def work_ended(self, owner: TaskId) -> None:
        """Note that some work of a task has ended."""
        shell = self._shells.get(owner)
        if shell is not None:
            self._retire_empty(shell)

    def close(self) -> None:
        """Retire every shell; nothing runs any more. The deepest are first in the way out."""
        shells = sorted(self._shells.values(), key=lambda shell: shell.depth, reverse=True)
        self._shells.clear()
        for shell in shells:
            shell.scope.cancel()

    def _of(self, owner: TaskId | None) -> _Shell:
        """The shell for the work of a task, made with those above it where they are missing."""
        missing: list[TaskId] = []
        while owner is not None and owner not in self._shells:
            missing.append(owner)
            owner = self._above(owner)
        assert self._root is not None, "attached before anything starts"
        parent = self._root if owner is None else self._shells[owner]
        for task_id in reversed(missing):
            if parent.depth >= LIMITS.nesting:
                parent = self._root
            shell = self._shells[task_id] = _Shell(task_id, parent)
            parent.residents += 1
            self._enter(parent, shell.run, f"shell of task {task_id}")
            parent = shell
        return parent

    def _enter(self, shell: _Shell, run: Run, name: str) -> None:
        if shell.nursery is None:
            shell.waiting.append((run, name))
            shell.starting = self._start_in
        else:
            self._start_in(shell.nursery, run, name)

    def _start_in(self, nursery: trio.Nursery, run: Run, name: str) -> None:
        self._context.run(lambda: nursery.start_soon(run, name=name))

    def _left(self, shell: _Shell) -> None:
        shell.residents -= 1
        self._retire_empty(shell)

    def _retire_empty(self, shell: _Shell) -> None:
        at: _Shell | None = shell
        while (
            at is not None
            and at.task_id is not None
            and not at.residents
            and self._shells.get(at.task_id) is at
            and not self._busy(at.task_id)
        ):
            del self._shells[at.task_id]
            at.scope.cancel()
            at = at.parent
            if at is not None:
                at.residents -= 1


@final
class _Shell:
    """One shell; the root one is the supervisor's own nursery and has no task.

    `residents` counts the runs and the shells in it, those that wait for it to open included.
    """

    __slots__ = (
        "depth",
        "nursery",
        "parent",
        "residents",
        "scope",
        "starting",
        "task_id",
        "waiting",
    )

    def __init__(self, task_id: TaskId | None, parent: _Shell | None) -> None:
        self.task_id = task_id
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        # Shielded, so that nothing above ends the work in it; it is cancelled only when empty.
        self.scope = trio.CancelScope(shield=True)
        self.nursery: trio.Nursery | None = None
        self.residents = 0
        self.waiting: list[tuple[Run, str]] = []
        self.starting: Callable[[trio.Nursery, Run, str], None] | None = None

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Be open until retired."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                for run, name in self.waiting:
                    assert self.starting is not None, "set with what waits"
                    self.starting(nursery, run, name)
                self.waiting.clear()
                await trio.sleep_forever()
