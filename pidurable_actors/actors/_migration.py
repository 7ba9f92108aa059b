"""Bringing a stored task to the installed version of its class; a pure function of both.

The stored form is what an earlier version wrote, so nothing of it is trusted before the class's own
`migrate` has made of it what the present version reads.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import attrs

from pidurable_actors._json import JSON, JsonObject, check_json, copy_json
from pidurable_actors.errors import InvalidValue
from pidurable_actors.records import ENDED, TaskRecord
from pidurable_actors.runtime import TaskActor, checkpoint_of, input_of

__all__ = ["migrated"]

AnyActor: TypeAlias = TaskActor[Any, Any]


def migrated(record: TaskRecord, cls: type[AnyActor]) -> TaskRecord:
    """The record as the installed class reads it; the same one when its version is the installed.

    Raises:
        Exception: whatever the class's `migrate` raises, or that its result cannot be read.
    """
    if record.version == cls.definition.version:
        return record
    assert not isinstance(record.state, ENDED), "only what is to run is migrated"
    made: object = cls.migrate(
        record.version, copy_json(record.input), _copied(record.state.checkpoint)
    )
    match made:
        case (task_input, dict() as checkpoint):
            check_json(task_input, "input")
            check_json(checkpoint, "checkpoint")
        case _:
            raise InvalidValue("migrate", f"it returned {made!r}, not (input, checkpoint)")
    new = attrs.evolve(
        record,
        version=cls.definition.version,
        input=copy_json(cast(JSON, task_input)),
        state=attrs.evolve(record.state, checkpoint=_copied(cast(JsonObject, checkpoint))),
    )
    input_of(cls, new)
    checkpoint_of(cls, checkpoint)
    return new


def _copied(checkpoint: JsonObject) -> JsonObject:
    return cast(JsonObject, copy_json(checkpoint))
