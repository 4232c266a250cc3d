"""CEL values in Python.

    null None     bool bool       int int (64 bit)    uint Uint     double float
    string str    bytes bytes     list CelList, list  map CelMap, dict
    timestamp, duration: `instants`      optional Optional      type TypeValue

A plain `list` or `dict` is data that was bound from outside: it is read in place and never changed. `CelList` and
`CelMap` are created by expressions; their elements are already CEL values. The difference matters where data follow
other rules than CEL (a host may declare that every number in data is a double); see `frame.READ_LEAF`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from perdure.expressions.errors import EvaluationFault

Value = Any

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1


class Uint(int):
    """An unsigned integer. Equal to the int of the same value, but of another type."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class CelList(list[Value]):
    """A list made by an expression."""

    __slots__ = ()


class _BoolKey:
    """A bool as a map key. For Python `True` and `1` are the same key, for CEL they are not."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


_TRUE, _FALSE = _BoolKey(True), _BoolKey(False)
_KEY_TYPES = (str, int, Uint, bool)


class CelMap(dict[Any, Value]):
    """A map made by an expression, in the order in which it was written.

    `1`, `1u` and `1.0` find the same entry, as they do in a Python dict; bools are wrapped to be distinct, so use
    `pairs`, `put` and `bare_keys` rather than the dict's own methods.
    """

    __slots__ = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[Value, Value]]) -> "CelMap":
        result = cls()
        for key, value in pairs:
            result.put(key, value)
        return result

    def put(self, key: Value, value: Value) -> None:
        """Add an entry. A second one under an equal key is an error in CEL."""
        if type(key) not in _KEY_TYPES:
            raise EvaluationFault(f"a map key must be int, uint, bool or string, not {type_name(key)}")
        wrapped = wrap_key(key)
        if wrapped in self:
            shown = repr(key[:60]) if type(key) is str else repr(key)
            raise EvaluationFault(f"map key {shown} is repeated")
        self[wrapped] = value

    def pairs(self) -> Iterator[tuple[Value, Value]]:
        for key, value in self.items():
            yield (key.value if type(key) is _BoolKey else key), value

    def bare_keys(self) -> list[Value]:
        return [key.value if type(key) is _BoolKey else key for key in self]


def wrap_key(key: Value) -> Value:
    """The form under which a `CelMap` stores `key`."""
    return key if type(key) is not bool else _TRUE if key else _FALSE


class Optional:
    """CEL's optional: a value or none. `NONE` is the one empty optional."""

    __slots__ = ("_value", "has_value")

    def __init__(self, value: Value, has_value: bool = True) -> None:
        self._value = value
        self.has_value = has_value

    @property
    def value(self) -> Value:
        if not self.has_value:
            raise EvaluationFault("optional.none() has no value")
        return self._value

    def __repr__(self) -> str:
        return f"optional.of({self._value!r})" if self.has_value else "optional.none()"


NONE = Optional(None, has_value=False)


class TypeValue:
    """A type as a value: the result of `type(x)`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


_TYPES_BY_CLASS: dict[type, TypeValue] = {
    type(None): TypeValue("null_type"),
    bool: TypeValue("bool"),
    int: TypeValue("int"),
    Uint: TypeValue("uint"),
    float: TypeValue("double"),
    str: TypeValue("string"),
    bytes: TypeValue("bytes"),
    CelList: (_LIST := TypeValue("list")),
    list: _LIST,
    CelMap: (_MAP := TypeValue("map")),
    dict: _MAP,
    Optional: TypeValue("optional_type"),
    TypeValue: TypeValue("type"),
}


def declare_type(python: type, name: str) -> None:
    """Lets another module that defines a value class (`instants`) name its CEL type."""
    _TYPES_BY_CLASS[python] = TypeValue(name)


def type_of(value: Value) -> TypeValue:
    cel_type = _TYPES_BY_CLASS.get(type(value))
    if cel_type is None:
        raise EvaluationFault(f"a Python {type(value).__name__} is not a CEL value")
    return cel_type


def type_name(value: Value) -> str:
    """For messages: never fails."""
    cel_type = _TYPES_BY_CLASS.get(type(value))
    return cel_type.name.removeprefix("google.protobuf.").lower() if cel_type else f"Python {type(value).__name__}"


def type_denotations() -> dict[str, TypeValue]:
    """The type values that an expression can name (`int`, `list`, `google.protobuf.Timestamp`…)."""
    return {cel_type.name: cel_type for cel_type in _TYPES_BY_CLASS.values()}
