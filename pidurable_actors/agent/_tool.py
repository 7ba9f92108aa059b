"""Tools: what a model may call, and what the call's code sees.

A tool's most important line is its `replay`: what may be done when a crash or a close cut its call
off. ``"unsafe"`` (the default) never runs it again and tells the model so; ``"safe"`` promises that
running it again does no harm; ``"reconcile"`` asks the tool's own handler whether it happened.

Who may call it has two halves: `callers` is about what calls, a model or another tool, and `allow`
about whom the run works for; a run that works for nobody known is refused.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, final, get_args

import attrs

from pidurable_actors._json import JSON, JsonObject, copy_json
from pidurable_actors._limits import LIMITS
from pidurable_actors.agent._questions import Answer, Expired
from pidurable_actors.agent._schema import ToolSignature, takes_api
from pidurable_actors.agent._tool_api import ToolApi
from pidurable_actors.errors import DefinitionError, InvalidValue
from pidurable_actors.models import ToolSpec
from pidurable_actors.records import Usage
from pidurable_actors.settings import RedactedCall, check_redact

__all__ = [
    "Allow",
    "Around",
    "Caller",
    "ExecutionMode",
    "Replay",
    "Tool",
    "tool",
]

T = TypeVar("T")
InputT = TypeVar("InputT")
Replay: TypeAlias = Literal["unsafe", "safe", "reconcile"]
ExecutionMode: TypeAlias = Literal["parallel", "sequential"]
Caller: TypeAlias = Literal["model", "tools"]

_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_-]*")  # what every provider takes

Execute: TypeAlias = Callable[..., Awaitable[object]]
Around: TypeAlias = Callable[
    [Callable[[], Awaitable[object]], Mapping[str, Any], ToolApi], Awaitable[object]
]
"""Code around a call: it gets the call, to be awaited or not, its arguments and the api."""
Reconcile: TypeAlias = Callable[[Mapping[str, Any], ToolApi], Awaitable[object]]
Resume: TypeAlias = Callable[
    [Answer | Expired, JSON, Mapping[str, Any], ToolApi], Awaitable[object]
]
Allow: TypeAlias = Callable[[JsonObject], bool]


def _as_callers(callers: Iterable[Caller]) -> frozenset[Caller]:
    asked: object = callers
    # A text is a list of letters, which is never what was meant.
    given = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, str) else []
    if not given or any(caller not in get_args(Caller) for caller in given):
        raise DefinitionError(
            f"callers is a set of 'model' and 'tools', one of them at least, not {callers!r}."
        )
    return frozenset(given)


@final
@attrs.define(eq=False)
class Tool:
    """A tool; usually made by the `tool` decorator.

    Args:
        name: what the model calls; stored, so renaming it is a change of format.
        execute: async function; returns text or a `ToolResult`, or asks with an `Ask` or a
            `WaitForSignal`.
        description: for the model; the function's docstring by default.
        parameters: a JSON Schema written by hand; from the signature by default.
        replay: what may be done with a call that was cut off.
        reconcile: asked, for ``replay="reconcile"``, whether a call that was cut off happened.
        resume: goes on with a call whose question has its answer; see `Tool.resume`.
        mode: ``"sequential"`` makes every round with this tool run in order.
        timeout_s: seconds after which a call is cancelled and becomes an error result.
        callers: who may call it: ``"model"``, ``"tools"`` (see `ToolApi.call`) or both. A model is
            not told of a tool that it may not call.
        reserve: what a call may use of models, or cost, at most: reserved of the budgets before it
            runs. What it did use is the `usage` of its result; when it ends without one,
            all of it counts.
        redact: rids what its calls put out of secrets; see `Settings.redact`.
        allow: whether a run may call it, decided by whom the run works for: a plain function of
            the `caller` that is stored with its submission. A run without one may not. A call that
            is not allowed gets the error result ``blocked``; models are told of the tool all the
            same, since which tools there are does not depend on the caller. It is asked before the
            call's intent is stored, again when it was cut off there, and after a question.

    Raises:
        DefinitionError: the signature cannot be documented, there is no description, or a field is
            out of range.
    """

    name: str
    execute: Execute
    description: str = attrs.field(default="", kw_only=True)
    parameters: JsonObject | None = attrs.field(default=None, kw_only=True)
    replay: Replay = attrs.field(default="unsafe", kw_only=True)
    on_reconcile: Reconcile | None = attrs.field(default=None, kw_only=True, alias="reconcile")
    on_resume: Resume | None = attrs.field(default=None, kw_only=True, alias="resume")
    mode: ExecutionMode = attrs.field(default="parallel", kw_only=True)
    timeout_s: float | None = attrs.field(default=None, kw_only=True)
    callers: frozenset[Caller] = attrs.field(
        default=frozenset[Caller](("model",)), converter=_as_callers, kw_only=True
    )
    allow: Allow | None = attrs.field(default=None, kw_only=True)
    reserve: Usage | None = attrs.field(default=None, kw_only=True)
    redact: Callable[[str, RedactedCall], str] | None = attrs.field(default=None, kw_only=True)
    signature: ToolSignature = attrs.field(init=False)
    wants_api: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        _check_name(self.name)
        if self.replay not in ("unsafe", "safe", "reconcile"):
            raise DefinitionError(
                f"tool {self.name!r}: replay is 'unsafe', 'safe' or 'reconcile', "
                f"not {self.replay!r}."
            )
        if self.mode not in ("parallel", "sequential"):
            raise DefinitionError(
                f"tool {self.name!r}: mode is 'parallel' or 'sequential', not {self.mode!r}."
            )
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise DefinitionError(f"tool {self.name!r}: timeout_s must be greater than 0.")
        if self.allow is not None:
            _check_allow(self.allow, self.name)
        if self.on_resume is not None:
            _check_resume(self.on_resume, self.name)
        reserve: object = self.reserve
        if reserve is not None and not isinstance(reserve, Usage):
            raise DefinitionError(f"tool {self.name!r}: reserve is a Usage(...), not {reserve!r}.")
        try:
            check_redact(self.redact)
        except InvalidValue as error:
            raise DefinitionError(f"tool {self.name!r}: {error}.") from error
        if self.parameters is None:
            self.signature = ToolSignature.from_function(self.execute, name=self.name)
        else:
            self.signature = ToolSignature.from_schema(self.parameters, name=self.name)
        self.wants_api = takes_api(self.execute)
        self.description = self.description or self.signature.description
        if not self.description:
            raise DefinitionError(
                f"tool {self.name!r}: say what it does, in a docstring or description=, "
                "because the model chooses by it."
            )

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(self.name, self.description, self.signature.parameters)

    def allows(self, caller: JsonObject | None) -> bool:
        """Whether a run that works for `caller` may call it.

        Args:
            caller: as stored with the submission of the run; None when there is none.

        Raises:
            Exception: `allow` raised it, or returned something else than a bool. Nobody is allowed
                then.
        """
        if self.allow is None:
            return True
        if caller is None:
            return False
        # A copy, so that nothing changes for whom the run works.
        allowed: object = self.allow(cast(JsonObject, copy_json(caller)))
        if not isinstance(allowed, bool):
            kind = type(allowed).__name__
            raise TypeError(f"tool {self.name!r}: allow returned {kind}; return True or False")
        return allowed

    def around(self, code: Around) -> Tool:
        """The same tool, with `code` around each of its runs.

        Name, schema, policy and deadline stay; what `code` returns or raises is the call's result.
        A reconcile handler is not a run, and stays as it is.

        Args:
            code: async function of the call, its arguments and the api; ``await call()`` runs the
                tool.
        """
        execute, wants_api = self.execute, self.wants_api

        async def run(*, api: ToolApi, **arguments: object) -> object:
            given = {**arguments, "api": api} if wants_api else arguments
            return await code(lambda: execute(**given), arguments, api)

        made = copy.copy(self)
        made.execute, made.wants_api = run, True
        return made

    def reconcile(self, handler: Reconcile) -> Reconcile:
        """Decorator: the handler that is asked whether a call that was cut off happened.

        It gets the arguments by name and the api, and returns the result (it happened), `NOT_DONE`
        (it has not and no longer can: it is run) or `UNKNOWN`.
        """
        self.on_reconcile = handler
        return handler

    def resume(self, handler: Resume) -> Resume:
        """Decorator: the handler that goes on with a call whose question has its answer.

        It gets the `Answer`, or `EXPIRED` when nobody gave one in time; the `state` of what was
        returned to ask; the arguments by name; and the api. It returns what a tool returns, another
        question too. What the tool did before it asked is not done again. Its own run is replayed,
        when it is cut off, as `replay` says.

        Raises:
            DefinitionError: it is not async, or does not take these four.
        """
        _check_resume(handler, self.name)
        self.on_resume = handler
        return handler


def tool(
    name: str | None = None,
    *,
    description: str = "",
    parameters: JsonObject | None = None,
    replay: Replay = "unsafe",
    mode: ExecutionMode = "parallel",
    timeout_s: float | None = None,
    callers: Iterable[Caller] = ("model",),
    allow: Allow | None = None,
    reserve: Usage | None = None,
    redact: Callable[[str, RedactedCall], str] | None = None,
) -> Callable[[Execute], Tool]:
    """Decorator that makes an async function a `Tool`; see there for the arguments.

    Raises:
        DefinitionError: see `Tool`.
    """

    def make(execute: Execute) -> Tool:
        return Tool(
            name if name is not None else str(getattr(execute, "__name__", "")),
            execute,
            description=description,
            parameters=parameters,
            replay=replay,
            mode=mode,
            timeout_s=timeout_s,
            callers=callers,
            allow=allow,
            reserve=reserve,
            redact=redact,
        )

    return make


def _check_name(name: str) -> None:
    if len(name) > LIMITS.name_length or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"tool name {name!r}: use letters, digits, '_' and '-', beginning with a letter."
        )


def _check_resume(handler: object, name: str) -> None:
    # Found out now, because the answer may come days later, and is then lost.
    called = getattr(handler, "__call__", None)  # noqa: B004 - of an object, its method
    fits = any(map(inspect.iscoroutinefunction, (handler, called)))
    try:
        inspect.signature(cast("Resume", handler)).bind(None, None, None, None)
    except TypeError:
        fits = False
    if not fits:
        raise DefinitionError(
            f"tool {name!r}: a resume handler is an async function of answer, state, arguments "
            f"and api, not {handler!r}."
        )


def _check_allow(allow: object, name: str) -> None:
    # What an async function returns is not False, and must not count as a yes.
    if not callable(allow) or inspect.iscoroutinefunction(allow):
        raise DefinitionError(
            f"tool {name!r}: allow is a plain function of the stored caller, not {allow!r}."
        )
