"""JSON Schema as Stories use it: drafts 4 to 7, `required: true` on a property, defaults filled in (STY-209 to 212).

At admission any part of the data may still be a template or a reference to stored data; at run time it must not be.
This is the only module of the dialect that uses the validation library, which is imported with the first schema.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perdure.dialects.story.values.references import is_reference
from perdure.documents.schema_size import PartwiseValidator, SchemaSize, SchemaTooLarge, pattern_limits

TEMPLATE = r"^\s*\$?\{\{[\s\S]+\}\}\s*$"
DEEPEST_DEFAULTS = 32  # STY-080
LONGEST_MESSAGE = 1_000  # characters: messages of the library quote what they refuse

_INNER = ("additionalProperties", "additionalItems", "contains", "items", "if", "then", "else", "not", "propertyNames")
_MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependencies")
_LISTS = ("allOf", "anyOf", "oneOf")
_UNRELAXED = frozenset(
    {"if", "not", "propertyNames", *_LISTS}
)  # keywords whose schemas stay as they are: see `_relaxed`

_is_template = re.compile(TEMPLATE).match


class BadSchema(ValueError):
    """The schema is not valid JSON Schema; the message says why."""


class Misfit(msgspec.Struct, frozen=True):
    """A problem of one part of the data."""

    message: str
    path: tuple[str | int, ...]

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.message}" if self.path else self.message


TOO_LARGE_TO_TELL = Misfit("it does not fit its schema, and is too large to say where", ())


class CompiledSchema:
    """A compiled schema. Raises `BadSchema` if it is invalid."""

    __slots__ = ("_parts", "_relaxed", "_size", "_strict", "schema")

    def __init__(self, schema: Any) -> None:
        if not isinstance(schema, dict | bool):
            raise BadSchema("a schema must be an object")
        self.schema: Any = normalized(schema)
        try:
            self._size = SchemaSize(self.schema)
        except SchemaTooLarge as problem:
            raise BadSchema(str(problem)) from None
        self._strict = _compile(self.schema)
        self._parts = PartwiseValidator(self.schema, _compile, self._size.checks_per_part)
        self._relaxed: Any = None

    def complete(self, value: Any) -> Any:
        """The value with defaults for absent parts (STY-209). Unchanged parts are not copied."""
        return _Completion(self.schema).of(value, self.schema, 0)

    def misfits(self, value: Any) -> list[Misfit]:
        """Everything that does not fit, templates and references included (STY-212)."""
        if refusal := self._size.refusal(value, in_parts=self._parts.can_split):
            return [Misfit(refusal, ())]
        return [] if self._parts.is_valid(value) else self._told(value)

    def _told(self, value: Any) -> list[Misfit]:
        """All problems, or the first where all would quote the value too often."""
        if self._size.tells_all(value):
            return _sorted_misfits(self._strict.iter_errors(value))
        if not self._size.costs.tells_first:
            return [TOO_LARGE_TO_TELL]
        import jsonschema_rs

        try:
            self._strict.validate(value)
        except jsonschema_rs.ValidationError as error:
            return _sorted_misfits([error])
        return []

    def static_misfits(self, value: Any) -> list[Misfit]:
        """What cannot fit, whatever the templates and references in it evaluate to (STY-041)."""
        if refusal := self._size.refusal(value):
            return [Misfit(refusal, ())]
        if is_open(value) or self._strict.is_valid(value):
            return []
        if self._relaxed is None:
            self._relaxed = _compile(_relaxed(self.schema))
        if self._relaxed.is_valid(value):
            return []
        if not self._size.tells_all(value):
            return [TOO_LARGE_TO_TELL]
        certain = [error for error in self._strict.iter_errors(value) if not is_open(error.instance)]
        return _sorted_misfits(certain) or _sorted_misfits(self._relaxed.iter_errors(value))


def is_open(value: Any) -> bool:
    """Whether the value is only known in a run: a template or a reference."""
    if isinstance(value, str):
        return _is_template(value) is not None
    return isinstance(value, dict) and ("$bubuTemplate" in value or is_reference(value))


def normalized(schema: Any) -> Any:
    """The same schema in terms of draft 7: `required` of properties lifted, booleans of draft 4 replaced."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for name in _MAPS:
        if isinstance(result.get(name), dict):
            result[name] = {key: normalized(member) for key, member in result[name].items()}
    for name in _LISTS:
        if isinstance(result.get(name), list):
            result[name] = [normalized(member) for member in result[name]]
    for name in _INNER:
        if isinstance(result.get(name), dict):
            result[name] = normalized(result[name])
        elif name == "items" and isinstance(result.get(name), list):
            result[name] = [normalized(member) for member in result[name]]
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(result.get(bound), bool):
            is_exclusive = result.pop(bound)
            if is_exclusive and limit in result:
                result[bound] = result.pop(limit)
    _lift_required(result)
    return result


def _lift_required(schema: dict[str, Any]) -> None:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    required = []
    for name, member in properties.items():
        if isinstance(member, dict) and isinstance(member.get("required"), bool):
            properties[name] = {key: value for key, value in member.items() if key != "required"}
            required += [name] if member["required"] else []
    if required:
        declared = schema.get("required")
        schema["required"] = list(dict.fromkeys([*(declared if isinstance(declared, list) else ()), *required]))


def _compile(schema: Any) -> Any:
    """Compile for draft 7, to which drafts 4 and 6 are normalized, unless the schema names a later draft."""
    import jsonschema_rs

    draft: Any = jsonschema_rs.Draft7Validator
    if isinstance(schema, dict):
        is_later = any(year in str(schema.get("$schema")) for year in ("2019-09", "2020-12"))
        draft = jsonschema_rs.validator_cls_for(schema) if is_later else draft
        schema = {name: value for name, value in schema.items() if name != "$schema" or is_later}
        if isinstance(schema.get("required"), bool):  # the root has no parent to lift it to
            del schema["required"]
    try:
        return draft(
            schema,
            offline=True,
            pattern_options=jsonschema_rs.FancyRegexOptions(**pattern_limits(schema)),
        )
    except jsonschema_rs.ValidationError as error:
        place = ".".join(map(str, error.instance_path))
        raise BadSchema(f"{place}: {error.message}" if place else str(error.message)) from None
    except (ValueError, RecursionError, jsonschema_rs.ReferencingError) as error:
        raise BadSchema(str(error).partition("\n")[0] or "the schema is nested too deeply") from None


def _relaxed(schema: Any) -> Any:
    """The schema, accepting a template or a reference in place of any part of the data except the root."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for name in _MAPS:
        if isinstance(result.get(name), dict):
            result[name] = {key: _open(member) for key, member in result[name].items()}
    for name in _LISTS:
        if isinstance(result.get(name), list):
            result[name] = [_relaxed(member) for member in result[name]]
    for name in _INNER:
        member = result.get(name)
        if isinstance(member, dict) and name not in _UNRELAXED:
            result[name] = _relaxed(member) if name in ("then", "else") else _open(member)
        elif name == "items" and isinstance(member, list):
            result[name] = [_open(item) for item in member]
    return result


def _open(schema: Any) -> Any:
    if isinstance(schema, list | bool):  # names of a dependency, or true and false
        return schema
    return {"anyOf": [_relaxed(schema), *_ALTERNATIVES]}


_ALTERNATIVES: tuple[dict[str, Any], ...] = (
    {"type": "string", "pattern": TEMPLATE},
    *(
        {"type": "object", "required": [name]}
        for name in ("$bubuTemplate", "$bubuStorageRef", "$bubuConfigMapRef", "$bubuSecretRef")
    ),
)


def _sorted_misfits(errors: Iterator[Any] | list[Any]) -> list[Misfit]:
    """Misfits in a stable order, which the library does not guarantee."""
    misfits = [Misfit(_shortened(str(error.message)), tuple(error.instance_path)) for error in errors]
    return sorted(misfits, key=lambda misfit: ([str(step) for step in misfit.path], misfit.message))


def _shortened(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"


class _Completion:
    """Fills in defaults; follows `$ref` to other parts of the schema."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def of(self, value: Any, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict) or depth > DEEPEST_DEFAULTS or is_open(value):
            return value
        if isinstance(schema.get("$ref"), str):
            value = self.of(value, self._part(schema["$ref"]), depth + 1)
        if isinstance(value, dict):
            value = self._object(value, schema, depth)
        elif isinstance(value, list) and isinstance(schema.get("items"), dict):
            parts = [self.of(part, schema["items"], depth + 1) for part in value]
            value = parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
        for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
            value = self.of(value, part, depth + 1)
        return value

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        added: dict[str, Any] = {}
        properties = schema.get("properties")
        for name, member in properties.items() if isinstance(properties, dict) else ():
            if not isinstance(member, dict):
                continue
            if name in value:
                new = self.of(value[name], member, depth + 1)
                if new is not value[name]:
                    added[name] = new
            elif "default" in member:
                added[name] = self.of(member["default"], member, depth + 1)
            elif defaults := self.of({}, member, depth + 1):
                added[name] = defaults
        return {**value, **added} if added else value

    def _part(self, pointer: str) -> Any:
        part = self._root
        for step in pointer.removeprefix("#").split("/")[1:]:
            part = part.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(part, dict) else None
        return part if pointer.startswith("#") else None
