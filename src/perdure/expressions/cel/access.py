"""Access to maps, lists and optionals: select, index, presence.

Values from data are read only here, so this is where `read_leaf` applies.
"""

from collections.abc import Callable

from perdure.expressions.cel.frame import READ_LEAF, Frame
from perdure.expressions.cel.values import NONE, CelList, CelMap, Optional, Uint, Value, type_name, wrap_key
from perdure.expressions.errors import EvaluationFault

_MISSING = object()
_NUMBERS = frozenset({int, float, Uint})


def select(frame: Frame, operand: Value, field: str) -> Value:
    """`operand.field`. On an optional the result is optional too."""
    if type(operand) is Optional:
        return _lift(operand, lambda inner: _find_field(frame, inner, field))
    value = _find_field(frame, operand, field)
    if value is _MISSING:
        raise EvaluationFault(f"no such key: {field[:60]!r}", hint=lambda: _near(field, operand))
    return value


def select_optional(frame: Frame, operand: Value, field: str) -> Value:
    """`operand.?field`."""
    return _lift(operand, lambda inner: _find_field(frame, inner, field))


def has_field(frame: Frame, operand: Value, field: str) -> bool:
    if type(operand) is Optional:
        return operand.has_value and _find_field(frame, operand.value, field) is not _MISSING
    return _find_field(frame, operand, field) is not _MISSING


def index(frame: Frame, operand: Value, key: Value) -> Value:
    """`operand[key]`."""
    if type(operand) is Optional:
        return _lift(operand, lambda inner: _find_key(frame, inner, key))
    value = _find_key(frame, operand, key)
    if value is not _MISSING:
        return value
    if isinstance(operand, list):
        raise EvaluationFault(f"index {key} is out of range: the list has {len(operand)} elements")
    key_text = repr(key) if type(key) is not str else repr(key[:60])
    raise EvaluationFault(f"no such key: {key_text}", hint=lambda: _near(key, operand))


def index_optional(frame: Frame, operand: Value, key: Value) -> Value:
    """`operand[?key]`. What can never be a key is never found."""
    if isinstance(operand, dict) and not _is_key(key):
        return NONE
    return _lift(operand, lambda inner: _find_key(frame, inner, key))


def _lift(operand: Value, find: Callable[[Value], Value]) -> Optional:
    if type(operand) is Optional:
        if not operand.has_value:
            return NONE
        operand = operand.value
    value = find(operand)
    return NONE if value is _MISSING else Optional(value)


def _find_field(frame: Frame, operand: Value, field: str) -> Value:
    kind = type(operand)
    if kind is dict:
        value = operand.get(field, _MISSING)
        return frame[READ_LEAF](value) if type(value) is int else value
    if kind is CelMap:
        return operand.get(field, _MISSING)
    raise EvaluationFault(f"a {type_name(operand)} has no field {field[:60]!r}; only maps have fields")


def _find_key(frame: Frame, operand: Value, key: Value) -> Value:
    kind = type(operand)
    if kind is dict:
        if type(key) is str:
            return _find_field(frame, operand, key)
        _require_key(key)
        return _MISSING
    if kind is CelMap:
        _require_key(key)
        return operand.get(wrap_key(key), _MISSING)
    if kind is list or kind is CelList:
        at = _position(key)
        if not 0 <= at < len(operand):
            return _MISSING
        value = operand[at]
        return frame[READ_LEAF](value) if type(value) is int and kind is list else value
    raise EvaluationFault(f"a {type_name(operand)} cannot be indexed; only lists and maps can")


def _is_key(key: Value) -> bool:
    return type(key) in _NUMBERS or type(key) is str or type(key) is bool


def _require_key(key: Value) -> None:
    if not _is_key(key):
        raise EvaluationFault(f"a {type_name(key)} is never a map key")


def _position(key: Value) -> int:
    """A list index: an int, or a uint or double that is integral."""
    if type(key) is int or type(key) is Uint:
        return int(key)
    if type(key) is float and key.is_integer():
        return int(key)
    if type(key) is float:
        raise EvaluationFault(f"a list index must be integral, not {key!r}")
    raise EvaluationFault(f"a list index must be an int, not {type_name(key)}")


def _near(key: Value, operand: Value) -> str:
    """A suggestion for what was meant, looking at a limited number of keys."""
    if type(key) is not str or len(operand) > 50 or len(key) > 50:
        return ""
    from difflib import get_close_matches

    near = get_close_matches(
        key, [candidate for candidate in operand if type(candidate) is str and len(candidate) <= 50], n=1
    )
    return f"; did you mean {near[0]!r}?" if near else ""
