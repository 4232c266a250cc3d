"""A Python function as tasks call it.

Parameters named `input` and `context` receive the task's payload and context. Every other parameter is bound by name
from the task's arguments and converted to its annotation; `**rest` takes the others. The function's own signature is
the only declaration, so that checks and documentation cannot differ.
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import msgspec

from perdure.kernel.lazy_regex import lazy_regex
from perdure.providers.failure import BadArguments

ENGINE_ONLY = "x-perdure-unsaid"
"""In the schema of a member: set by a language's engine, never by a document."""

RESERVED = ("input", "context")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_LONGEST_GUESSED = 100  # characters
_PATH = lazy_regex(r"^(?P<problem>.*) - at `\$\.?(?P<path>(?P<parameter>[^.\[`]*)[^`]*)`$", re.DOTALL)


class Function:
    """A callable with its parameters, analysed once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.call = function
        self.is_coroutine = inspect.iscoroutinefunction(function)
        try:
            parameters = list(inspect.signature(function).parameters.values())
            self.is_readable = True
        except (TypeError, ValueError):  # some functions written in C have no signature: pass everything through
            parameters = []
            self.is_readable = False
        kinds = {parameter.kind for parameter in parameters}
        named = [
            p for p in parameters if p.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        ]
        self.wants_input = any(p.name == "input" for p in named)
        self.wants_context = any(p.name == "context" for p in named)
        self.takes_more = inspect.Parameter.VAR_POSITIONAL in kinds or not self.is_readable
        self.takes_rest = inspect.Parameter.VAR_KEYWORD in kinds or not self.is_readable
        self._parameters = {p.name: p for p in named if p.name not in RESERVED}
        self._positional = [p.name for p in named if p.kind in _POSITIONAL]
        self._positional_only = [p.name for p in named if p.kind is inspect.Parameter.POSITIONAL_ONLY]

    def invoke(
        self, arguments: Mapping[str, Any], input: Any = None, context: Any = None, positional: Sequence[Any] = ()
    ) -> Any:
        """Call with the task's arguments; a coroutine function returns its coroutine.

        Raises `BadArguments` before the function is entered, never from inside it.
        """
        extra: Sequence[Any] = ()
        if positional:
            arguments, extra = self._name(positional, arguments)
        bound = self._bind(arguments) if self._parameters or arguments else {}
        if self.wants_input:
            bound["input"] = self._convert_input(input)
        if self.wants_context:
            bound["context"] = context
        if self._positional_only or extra:
            return self.call(*self._leading(bound, extra), **bound)
        return self.call(**bound)

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, as one self-contained object."""
        (top,), definitions = msgspec.json.schema_components([self._shape])
        document = definitions.pop(top["$ref"].rpartition("/")[2])
        document.pop("title", None)
        document.setdefault("properties", {})
        for name, parameter in self._parameters.items():
            if parameter.default not in (inspect.Parameter.empty, None) and _has_json_form(parameter.default):
                document["properties"][name]["default"] = msgspec.to_builtins(parameter.default)
        document["additionalProperties"] = self.takes_rest
        if definitions:
            document["$defs"] = definitions
        local: dict[str, Any] = _local_references(document)
        return local

    @cached_property
    def _hints(self) -> dict[str, Any]:
        """Annotations, resolved one by one: a name that only type checkers know must not affect the others."""
        names = getattr(self.call, "__globals__", {})
        hints: dict[str, Any] = {}
        for name, annotation in getattr(self.call, "__annotations__", {}).items():
            alone = SimpleNamespace(__annotations__={name: annotation})
            try:
                hints |= typing.get_type_hints(alone, names, include_extras=True)
            except Exception:  # whatever an annotation raises, its parameter is passed unchecked
                continue
        return hints

    @cached_property
    def _shape(self) -> type[msgspec.Struct]:
        """A struct with the parameters as fields; those with a default are optional."""
        fields: list[Any] = []
        for name, parameter in self._parameters.items():
            kind = _checkable(self._hints.get(name, Any))
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, kind))
            else:
                fields.append((name, kind | msgspec.UnsetType if kind is not Any else Any, msgspec.UNSET))
        return msgspec.defstruct("Arguments", fields, kw_only=True)

    @cached_property
    def _input_type(self) -> Any:
        return _checkable(self._hints.get("input", Any))

    def _bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        parameters = self._parameters
        if not parameters and self.takes_rest:
            return dict(arguments)
        rest = {name: value for name, value in arguments.items() if name not in parameters}
        if rest and not self.takes_rest:
            self._refuse_unexpected(next(iter(rest)))
        if parameters:
            try:
                shaped = msgspec.convert(arguments, self._shape)
            except msgspec.ValidationError as error:
                self._refuse(arguments, error)
            for name in parameters:
                value = getattr(shaped, name)
                if value is not msgspec.UNSET:
                    rest[name] = value
        return rest

    def _name(self, positional: Sequence[Any], arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[Any]]:
        """Give positional arguments the names of their parameters."""
        names = [name for name in self._positional if name not in RESERVED]
        named = dict(zip(names, positional, strict=False))
        extra = positional[len(names) :]
        if extra and not self.takes_more:
            raise BadArguments(f"takes {len(names)} positional arguments, got {len(positional)}", f"args[{len(names)}]")
        for name in named.keys() & arguments.keys():
            raise BadArguments(f"argument {name!r} is given by name and by position", name)
        return {**arguments, **named}, extra

    def _leading(self, bound: dict[str, Any], extra: Sequence[Any]) -> list[Any]:
        """Take out of `bound` what Python only accepts by position."""
        leading = self._positional if extra else self._positional_only
        return [*(bound.pop(name) for name in leading if name in bound), *extra]

    def _convert_input(self, input: Any) -> Any:
        kind = self._input_type
        if kind is Any:
            return input
        try:
            return msgspec.convert(input, kind)
        except msgspec.ValidationError as error:
            raise BadArguments(f"the input is not valid: {error}", "input") from None

    def _refuse_unexpected(self, name: str) -> typing.NoReturn:
        from difflib import get_close_matches

        near = get_close_matches(name[:_LONGEST_GUESSED], self._parameters, n=1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        raise BadArguments(f"unexpected argument {name!r}{guess}", name)

    def _refuse(self, arguments: Mapping[str, Any], error: msgspec.ValidationError) -> typing.NoReturn:
        for name, parameter in self._parameters.items():
            if parameter.default is inspect.Parameter.empty and name not in arguments:
                raise BadArguments(f"missing argument {name!r}", name) from None
        if match := _PATH.match(str(error)):
            raise BadArguments(f"argument {match['path']!r}: {match['problem']}", match["parameter"], match["path"])
        raise BadArguments(str(error), "") from None


def _checkable(kind: Any) -> Any:
    """The annotation, if JSON can be checked against it; values of other classes are passed unchecked."""
    if kind is Any or kind is inspect.Parameter.empty:
        return Any
    try:
        msgspec.json.schema(kind)
    except Exception:
        return Any
    return kind


def _has_json_form(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except Exception:
        return False
    return True


def _local_references(node: Any) -> Any:
    """Definitions stay inside the schema, so that it can be embedded; members that only the engine sets are omitted."""
    if isinstance(node, dict):
        return {
            key: f"#/$defs/{value.rpartition('/')[2]}" if key == "$ref" else _local_references(value)
            for key, value in node.items()
            if not (isinstance(value, dict) and value.get(ENGINE_ONLY) is True)
        }
    if isinstance(node, list):
        return [_local_references(item) for item in node]
    return node
