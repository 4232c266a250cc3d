"""Access to values: fields, subscripts, `index`, and plain paths, which also handle stored values.

A missing key of a map is nil; a field of nil, of a text or of a number is an error (STY-200).
"""

from typing import Any

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.aliases import find_aliased
from perdure.expressions.gotemplate.errors import MissingKey
from perdure.expressions.gotemplate.frame import Frame
from perdure.expressions.gotemplate.paths import Steps, write_path
from perdure.expressions.gotemplate.values import (
    STORAGE_PATH,
    STORAGE_REFERENCE,
    Value,
    describe,
    is_storage_reference,
    require_present,
    to_int64,
)
from perdure.expressions.gotemplate.versions import Version


def look_up(frame: Frame, value: Value, step: str | int) -> Value:
    """One field or subscript of a value."""
    if isinstance(step, int):
        return element_at(frame, value, step)
    if isinstance(value, dict):
        name = frame.name_in(require_present(value), step)
        if name is None:
            frame.absent = frame.absent or step
            return None
        return value[name]
    if isinstance(value, Version) and (field := value.field(step)) is not None:
        return field
    raise EvaluationFault(f"{describe(value)} has no field {step!r}")


def index_value(frame: Frame, value: Value, key: Value) -> Value:
    """Like the function `index`, one key at a time."""
    if isinstance(value, dict):
        if type(key) is not str:
            raise EvaluationFault(f"a map is indexed by a string, not by {describe(key)}")
        return look_up(frame, value, key)
    return element_at(frame, value, key)


def element_at(frame: Frame, value: Value, position: Value) -> Value:
    if type(position) is not int:
        raise EvaluationFault(f"{describe(value)} is not indexed by {describe(position)}")
    if type(value) is str and not value.isascii():
        frame.budget.charge_text(len(value))
        value = value.encode("utf-8", "replace")  # Go counts bytes
    elif type(value) is not list and type(value) is not str:
        raise EvaluationFault(f"{describe(value)} has no elements")
    if not 0 <= position < len(value):
        raise EvaluationFault(f"index {position} is out of range: there are {len(value)} elements")
    return ord(value[position]) if type(value) is str else value[position]


def follow_path(roots: dict[str, Any], path: Steps) -> Value:
    """The value at a plain path, of whatever type; a storage reference if it is stored (STY-208)."""
    value: Value = roots
    for step in path:
        if type(value) is not dict or type(step) is not str or step not in value or STORAGE_REFERENCE in value:
            return _follow_carefully(roots, path)
        value = value[step]
    return value  # nearly always


def _follow_carefully(roots: dict[str, Any], path: Steps) -> Value:
    """The same where the path meets a storage reference, a list, an alias, or nothing."""
    steps: Any = roots.get("steps")
    value: Value = roots
    for at, step in enumerate(path):
        is_map = isinstance(value, dict)
        if is_map and STORAGE_REFERENCE in value and is_storage_reference(value):
            return _refer_into(value, path[at:])
        if is_map and isinstance(step, str):
            name = step if step in value else find_aliased(steps, step) if value is steps else None  # STY-196
            if name is None:
                raise MissingKey(str(path[0]), write_path(path[: at + 1]))
            value = value[name]
        elif type(value) is list and isinstance(step, int):
            if not 0 <= step < len(value):
                raise MissingKey(str(path[0]), write_path(path[: at + 1]))
            value = value[step]
        else:
            part = "element" if isinstance(step, int) else "field"
            raise EvaluationFault(f"{describe(value)} has no {part} {step!r}, at {write_path(path[:at])}")
    return value


def _refer_into(reference: dict[str, Any], rest: Steps) -> dict[str, str]:
    inner = write_path(rest)
    outer = reference.get(STORAGE_PATH) or ""
    joint = "." if outer and not inner.startswith("[") else ""
    return {STORAGE_REFERENCE: reference[STORAGE_REFERENCE], STORAGE_PATH: f"{outer}{joint}{inner}"}


def slice_value(value: Value, *bounds: Value) -> Value:
    """Go's `slice` for texts, which counts bytes, and Sprig's for lists; without an end it goes to the end."""
    if len(bounds) > 2:
        raise EvaluationFault("it takes at most two positions")
    if type(value) is list:
        return _cut(value, [to_int64(bound) for bound in bounds]) if value else []
    if type(value) is not str:
        raise EvaluationFault(f"{describe(value)} has no parts")
    for bound in bounds:
        if type(bound) is not int:
            raise EvaluationFault(f"a string is cut by integers, not by {describe(bound)}")
    data: bytes = _cut(value.encode("utf-8", "replace"), list(bounds))
    return data.decode("utf-8", "replace")


def _cut(parts: Any, bounds: list[int]) -> Any:
    start = bounds[0] if bounds else 0
    end = bounds[1] if len(bounds) > 1 else len(parts)
    if not 0 <= start <= end <= len(parts):
        raise EvaluationFault(f"there is no part from {start} to {end} of {len(parts)}")
    return parts[start:end]
