"""The signature of a tool: what the model is told of its arguments, and what the tool receives.

Owns the way from a Python function, or from a schema written by hand, to the JSON Schema of a call,
and from the arguments of a call to the keyword arguments of the function. Pure; it never calls the
tool. A function that cannot be described exactly is refused when the tool is defined.

Invariant: `convert` accepts exactly what `parameters` says, at every depth.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Final, final

import attrs

from pidurable_actors._json import JSON, JsonObject, check_json, copy_json
from pidurable_actors.agent._annotations import annotation_of, form_of
from pidurable_actors.agent._arguments import ArgumentsInvalid, check_value
from pidurable_actors.agent._forms import Form, object_schema, with_default
from pidurable_actors.agent._json_schema import check_schema
from pidurable_actors.errors import DefinitionError, InvalidValue

__all__ = ["ArgumentsInvalid", "ToolSignature", "takes_api"]

_API: Final = "api"


@final
@attrs.frozen(kw_only=True)
class ToolSignature:
    """The arguments of one tool.

    Attributes:
        parameters: the JSON Schema that the model is shown.
        description: the docstring of the function; empty when there is none, and then the tool
            needs a description from elsewhere.
    """

    parameters: JsonObject
    description: str = ""
    _build: Callable[[JsonObject], dict[str, object]] = attrs.field(
        alias="build", repr=False, eq=False
    )

    @classmethod
    def from_function(
        cls, function: Callable[..., object], *, name: str | None = None
    ) -> ToolSignature:
        """Read the signature of a tool's function.

        Args:
            function: an async function; each parameter is annotated, but for the keyword-only
                ``api``, which is not the model's and stays out of the schema.
            name: how errors call the tool; None is the function's name.

        Raises:
            DefinitionError: the function is not async, or a parameter cannot be described: no
                annotation, ``*args``, ``**kwargs``, positional-only, or a type without a JSON form.
        """
        where = f"tool {name or getattr(function, '__name__', repr(function))!r}"
        if not inspect.iscoroutinefunction(function):
            raise DefinitionError(f"{where}: a tool is an async function; write `async def`.")
        parameters = _parameters(function, where)
        schema, forms = _described(parameters, _namespace(function), where)
        return cls(
            parameters=check_schema(schema, where),
            description=inspect.getdoc(function) or "",
            build=lambda arguments: {
                name: forms[name].build(value, name) for name, value in arguments.items()
            },
        )

    @classmethod
    def from_schema(cls, schema: JsonObject, *, name: str = "") -> ToolSignature:
        """Take a schema that was written by hand.

        Args:
            schema: the JSON Schema of an object. Where an object in it does not state
                ``additionalProperties``, further keys are refused. A ``default`` is told to the
                model, and left to the tool to apply.
            name: how errors call the tool.

        Raises:
            DefinitionError: it is not a schema of an object, or it uses a keyword that is not
                enforced here.
        """
        where = f"tool {name!r}" if name else "a tool"
        return cls(parameters=check_schema(schema, where), build=lambda arguments: {**arguments})

    def convert(self, arguments: JSON) -> dict[str, object]:
        """Check the arguments of a call and make the values that the tool receives.

        Args:
            arguments: what the model or a hook says; it is not changed, nor shared with the result.

        Returns:
            The keyword arguments of the function, typed. What was left out is left out here, so
            that the function's own defaults apply. For a schema written by hand: the arguments.

        Raises:
            ArgumentsInvalid: they do not fit; the error names the field.
        """
        try:
            check_json(arguments, "")
        except InvalidValue as error:
            raise ArgumentsInvalid(error.path.lstrip("."), error.reason) from error
        check_value(self.parameters, arguments, "")
        copied = copy_json(arguments)
        assert isinstance(copied, dict)
        return self._build(copied)


def takes_api(function: Callable[..., object]) -> bool:
    """Whether a tool's function wants the keyword ``api``."""
    return _API in inspect.signature(function).parameters


def _parameters(function: Callable[..., object], where: str) -> list[inspect.Parameter]:
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        at = f"{where}, parameter {parameter.name!r}"
        if parameter.name == _API:
            if parameter.kind is not parameter.KEYWORD_ONLY:
                raise DefinitionError(f"{at}: the api is passed by keyword; write `*, api`.")
            continue
        if parameter.kind in _INSTEAD:
            raise DefinitionError(f"{at}: {_INSTEAD[parameter.kind]}.")
        if parameter.annotation is parameter.empty:
            raise DefinitionError(
                f"{at}: it has no annotation; annotate it, as in `{parameter.name}: str`."
            )
        parameters.append(parameter)
    return parameters


_INSTEAD: Final = {
    inspect.Parameter.VAR_POSITIONAL: "a model passes no *args; take one parameter with a list",
    inspect.Parameter.VAR_KEYWORD: (
        "a model passes only what is named; take one parameter of type dict[str, X]"
    ),
    inspect.Parameter.POSITIONAL_ONLY: (
        "arguments are passed by name; remove the `/` from the signature"
    ),
}


def _described(
    parameters: list[inspect.Parameter], namespace: dict[str, object], where: str
) -> tuple[JsonObject, dict[str, Form]]:
    forms: dict[str, Form] = {}
    properties: dict[str, JsonObject] = {}
    required: list[str] = []
    for parameter in parameters:
        name, at = parameter.name, f"{where}, parameter {parameter.name!r}"
        forms[name] = form_of(annotation_of(parameter.annotation, namespace, at), at)
        if parameter.default is parameter.empty:
            required.append(name)
            properties[name] = forms[name].schema
        else:
            properties[name] = with_default(forms[name], parameter.default, at)
    return object_schema(properties, required), forms


def _namespace(function: Callable[..., object]) -> dict[str, object]:
    """The names that annotations of the function may use: those of its module."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    names: dict[str, object] = getattr(inner, "__globals__", {})
    return names
