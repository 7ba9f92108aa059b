"""The task kinds that every harness has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pidurable_actors.runtime import TaskActor
from pidurable_actors.tasks.compaction import Compaction, GoOn
from pidurable_actors.tasks.generation import Generation
from pidurable_actors.tasks.tool import NestedCall, ToolTask

__all__ = ["BUILT_IN"]

BUILT_IN: Final[Mapping[str, type[TaskActor[Any, Any]]]] = {
    cls.definition.kind: cls for cls in (Generation, Compaction, GoOn, ToolTask, NestedCall)
}
"""By kind; an application cannot install others under these names."""
