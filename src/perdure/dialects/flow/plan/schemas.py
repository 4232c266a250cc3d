"""JSON Schema 2020-12 as MWL means it: closed at the top, `format` asserted, MWL's own durations.

Only this module uses the validation library, which is imported when the first schema is compiled.
"""

import re
from collections.abc import Mapping
from typing import Any

from perdure.dialects.flow.state.failures import invalid
from perdure.documents.schema_size import PartwiseValidator, SchemaSize, pattern_limits
from perdure.expressions.mwl import parse_iso_duration

LONGEST_MESSAGE = 1_000  # characters: messages of the library quote what they refuse
_DURATION = "mwl-duration"
_UNDEMANDING = frozenset({"type", "properties", "additionalProperties", "$defs", "title", "description"})
_DATA = frozenset({"const", "enum", "default", "examples"})  # keywords whose value is data, not a schema


class InvalidSchema(ValueError):
    """The schema is not valid JSON Schema; `path` leads to the part that is not."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class Parameters:
    """What may be passed in `with`: a schema, closed by default (MWL-071)."""

    __slots__ = ("_parts", "_size", "_takes_nothing", "_validator", "defaults", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = {"additionalProperties": False, **schema}
        properties = schema.get("properties", {})
        self.defaults: dict[str, Any] = {
            name: member["default"]
            for name, member in properties.items()
            if isinstance(member, dict) and "default" in member
        }
        self._validator: Any = None
        self._size: SchemaSize
        self._parts: PartwiseValidator
        # If so, an empty object is valid without asking the library.
        demands = self.schema.keys() - _UNDEMANDING - (set() if schema.get("required") else {"required"})
        self._takes_nothing = not demands and schema.get("type", "object") == "object"

    def compile(self) -> None:
        """Raises `InvalidSchema`. Called on loading for schemas of the document, on first use for built-in ones."""
        import jsonschema_rs

        try:
            self._size = SchemaSize(self.schema)
            schema = _with_our_durations(self.schema)
            self._validator = _compiled(schema)
            self._parts = PartwiseValidator(schema, _compiled, self._size.checks_per_part)
        except jsonschema_rs.ValidationError as error:
            raise InvalidSchema(error.message, tuple(error.instance_path)) from None
        except (ValueError, RecursionError) as error:
            raise InvalidSchema(str(error) or "the schema is nested too deeply") from None

    def validate(self, arguments: Any, subject: str) -> None:
        """Raises the `Fault` of a failed validation, naming schema path and observed value (MWL-520)."""
        if self._takes_nothing and arguments == {}:
            return
        if self._validator is None:
            self.compile()
        if refusal := self._size.refusal(arguments, in_parts=self._parts.can_split):
            raise invalid(f"{subject}: {refusal}", "", None)
        if self._parts.is_valid(arguments):
            return
        if not self._size.costs.tells_first and not self._size.tells_all(arguments):
            raise invalid(f"{subject}: they do not fit their schema, and are too large to say where", "", None)
        error = self._first_error(arguments)
        message = f"{subject}: {_sentence(error)}"
        fault = invalid(message, "/".join(str(step) for step in ("", *error.schema_path)), error.instance)
        fault.envelope["details"]["argument"] = ".".join(str(step) for step in error.instance_path)
        try:
            raise fault
        finally:
            del fault, error  # else this frame and the traceback keep each other alive, with what was refused

    def _first_error(self, arguments: Any) -> Any:
        """In the library's order; where all errors are asked for, it makes them at once, each with what it is about."""
        import jsonschema_rs

        if self._size.tells_all(arguments):
            return next(self._validator.iter_errors(arguments))
        try:
            self._validator.validate(arguments)
        except jsonschema_rs.ValidationError as error:
            return error
        raise AssertionError("what does not fit in parts does not fit as a whole")


def _compiled(schema: Any) -> Any:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(
        schema,
        formats={_DURATION: _is_duration},
        validate_formats=True,
        offline=True,
        pattern_options=jsonschema_rs.FancyRegexOptions(**pattern_limits(schema)),
    )


NO_PARAMETERS = Parameters({"type": "object"})
"""Without declared parameters nothing may be passed (MWL-072)."""


def _sentence(error: Any) -> str:
    if error.schema_path[-1:] == ["additionalProperties"] and "False schema" in error.message:
        return (
            f"there is no parameter {error.instance_path[-1]!r}" if error.instance_path else "there are no parameters"
        )
    message = str(error.message).replace(_DURATION, "duration")
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"


def _is_duration(text: str) -> bool:
    if not re.match(r"-?P", text):
        return False
    try:
        parse_iso_duration(text)
    except ValueError:
        return False
    except Exception:  # beyond the range of CEL, yet well-formed
        return True
    return True


def _with_our_durations(schema: Any) -> Any:
    """The library cannot redefine a format it knows, so `duration` gets another name (MWL-074)."""
    if isinstance(schema, list):
        return [_with_our_durations(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {name: value if name in _DATA else _with_our_durations(value) for name, value in schema.items()}
    if renamed.get("format") == "duration":
        renamed["format"] = _DURATION
    return renamed
