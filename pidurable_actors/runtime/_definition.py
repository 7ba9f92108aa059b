"""What a task class is, checked when the class is made.

Everything that can be wrong with a definition is found at import, in an error that names the class
and says what to write instead. Identities (kind, phase names) are written out, never taken from a
class or method name, because they are part of stored data.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import (
    Any,
    Final,
    TypeVar,
    cast,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from pidurable_actors._limits import LIMITS
from pidurable_actors.errors import DefinitionError
from pidurable_actors.runtime._outcomes import Checkpoint, Completed, Next
from pidurable_actors.runtime._values import unreadable

__all__ = ["TaskDefinition", "define_task", "phase"]

ActorT = TypeVar("ActorT")
CheckpointT = TypeVar("CheckpointT", bound=Checkpoint)
ResultT = TypeVar("ResultT")

_PHASE_MARK: Final = "__pidurable_phase__"


def phase(
    checkpoint: type[CheckpointT],
) -> Callable[
    [Callable[[ActorT, CheckpointT], Coroutine[Any, Any, Next[ResultT]]]],
    Callable[[ActorT, CheckpointT], Coroutine[Any, Any, Next[ResultT]]],
]:
    """Mark an async method as the phase that is entered at `checkpoint`.

    Args:
        checkpoint: the checkpoint class; its ``phase=`` name is what is stored.
    """

    def mark(
        method: Callable[[ActorT, CheckpointT], Coroutine[Any, Any, Next[ResultT]]],
    ) -> Callable[[ActorT, CheckpointT], Coroutine[Any, Any, Next[ResultT]]]:
        setattr(method, _PHASE_MARK, checkpoint)
        return method

    return mark


@final
@attrs.frozen(kw_only=True, eq=False)
class TaskDefinition:
    """What the engine knows of a task class.

    Attributes:
        kind: stored identity.
        version: version of the stored input and checkpoints.
        input_type: class of the input.
        phases: per phase name, the checkpoint class and the name of the method.
        migrates: whether the class takes stored tasks of older versions.
        has_values: whether its runs, and those of its work, see context values of its own.
        builtin: whether it is one of the package's own, which end in ways of their own.
        blocks: whether the class says of its stored tasks that they cannot run here now.
    """

    kind: str
    version: int
    input_type: type[object]
    phases: Mapping[str, tuple[type[Checkpoint], str]]
    migrates: bool = False
    has_values: bool = False
    builtin: bool = False
    blocks: bool = False


def define_task(
    cls: type, base: type, kind: str | None, version: int, *, builtin: bool
) -> TaskDefinition:
    """Check a task class and say what it is.

    Args:
        cls: the class.
        base: `TaskActor`, whose generic arguments name the input and result types.
        kind: its stored identity.
        version: version of its stored form.
        builtin: whether it is one of the package's own.

    Raises:
        DefinitionError: anything about it is wrong.
    """
    name = cls.__name__
    if not kind or len(kind) > LIMITS.name_length:
        raise DefinitionError(
            f"{name}: write its stored identity out, as in "
            f"class {name}(..., kind='app.{name.lower()}')."
        )
    if version < 1:
        raise DefinitionError(f"{name}: version must be 1 or more, not {version}.")
    if not _overrides(cls, base, "start"):
        raise DefinitionError(f"{name}: define start(self), which returns the first checkpoint.")
    if inspect.iscoroutinefunction(inspect.getattr_static(cls, "start")):
        raise DefinitionError(f"{name}: start is a plain method; it waits for nothing.")
    if not inspect.iscoroutinefunction(inspect.getattr_static(cls, "abort")):
        raise DefinitionError(f"{name}: abort is an async method.")
    if not isinstance(inspect.getattr_static(cls, "migrate"), classmethod):
        raise DefinitionError(f"{name}: migrate is a plain classmethod; it waits for nothing.")
    input_type, result_type = _type_arguments(cls, base)
    phases: dict[str, tuple[type[Checkpoint], str]] = {}
    for attribute in dir(cls):
        method = inspect.getattr_static(cls, attribute)
        checkpoint = getattr(method, _PHASE_MARK, None)
        if checkpoint is None:
            continue
        _check_checkpoint(name, checkpoint)
        _check_phase_method(name, attribute, method, result_type)
        if checkpoint.phase_name in phases:
            raise DefinitionError(f"{name}: two phases are called {checkpoint.phase_name!r}.")
        phases[checkpoint.phase_name] = (checkpoint, attribute)
    if not phases:
        raise DefinitionError(f"{name}: mark at least one async method with @phase(Checkpoint).")
    return TaskDefinition(
        kind=kind,
        version=version,
        input_type=input_type,
        phases=phases,
        migrates=_overrides(cls, base, "migrate"),
        has_values=_overrides(cls, base, "run_values"),
        builtin=builtin,
        blocks=_overrides(cls, base, "blocked_by"),
    )


def _overrides(cls: type, base: type, name: str) -> bool:
    return inspect.getattr_static(cls, name) is not inspect.getattr_static(base, name)


def _type_arguments(cls: type, base: type) -> tuple[type[object], object]:
    # Every class of the MRO, because one that adds a generic mixin lists only its own bases.
    for generic in (g for c in cls.__mro__ for g in c.__dict__.get("__orig_bases__", ())):
        origin = get_origin(generic)
        if isinstance(origin, type) and issubclass(origin, base):
            arguments = get_args(generic)
            if len(arguments) == 2 and not any(isinstance(a, TypeVar) for a in arguments):
                return cast("type[object]", arguments[0]), arguments[1]
    raise DefinitionError(
        f"{cls.__name__}: name its input and result types, as in TaskActor[CountTo, str]."
    )


def _check_checkpoint(name: str, checkpoint: object) -> None:
    if not (isinstance(checkpoint, type) and issubclass(checkpoint, Checkpoint)):
        raise DefinitionError(f"{name}: @phase takes a Checkpoint class, not {checkpoint!r}.")
    if not checkpoint.phase_name or "phase_name" not in checkpoint.__dict__:
        raise DefinitionError(
            f"{name}: write the phase's stored name out, as in "
            f"class {checkpoint.__name__}(Checkpoint, phase='...')."
        )
    if not attrs.has(checkpoint):
        raise DefinitionError(
            f"{name}: checkpoint {checkpoint.__name__} must be an attrs class (@attrs.frozen)."
        )
    if "phase" in attrs.fields_dict(checkpoint):
        raise DefinitionError(
            f"{name}: checkpoint {checkpoint.__name__} has a field called 'phase', which is where "
            "its phase is stored; rename the field."
        )
    fault = unreadable(checkpoint)
    if fault is not None:
        raise DefinitionError(
            f"{name}: checkpoint {checkpoint.__name__} has a field that cannot be read back from "
            f"JSON ({fault}); use JSON types, attrs classes and unions of them with None."
        )


def _check_phase_method(name: str, attribute: str, method: object, result_type: object) -> None:
    if not inspect.iscoroutinefunction(method):
        raise DefinitionError(f"{name}.{attribute}: a phase is an async method.")
    if len(inspect.signature(method).parameters) != 2:
        raise DefinitionError(f"{name}.{attribute}: a phase takes its checkpoint and nothing else.")
    try:
        returned = get_type_hints(method).get("return")
    except Exception:  # noqa: BLE001 - names local to a function cannot be resolved; mypy sees them
        return
    arms = (returned, *get_args(returned))
    declared = {get_args(arm)[0] for arm in arms if get_origin(arm) is Completed}
    # What a mixin leaves open is settled by the class that uses it, and seen by type checkers.
    known = {arm for arm in declared if not isinstance(arm, TypeVar)}
    if known and result_type is not Any and not known & {result_type, Any}:
        raise DefinitionError(
            f"{name}.{attribute}: it returns a result of type {known.pop()!r}, the task's is "
            f"{result_type!r}."
        )
