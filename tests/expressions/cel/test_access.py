"""Members, indexes and presence, on data and on values made by expressions."""

from typing import Any

import pytest
from tests.expressions.cel.evaluation import fault_of, value_of

DATA: dict[str, Any] = {"m": {"a": {"b": [10, 20]}, "none": None}, "xs": [1, 2, 3], "s": "text"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("m.a.b[1]", 20),
        ("m['a']['b'][0]", 10),
        ("m.none", None),
        ("has(m.a) && has(m.none) && !has(m.zzz)", True),
        ("has(m.a.b)", True),
        ("xs[2u] + xs[0]", 4),
        ("xs[1.0]", 2),
        ("{1: 'a', true: 'b'}[1u]", "a"),
        ("{1: 'a', true: 'b'}[true]", "b"),
        ("{1: 'a'}[1.0]", "a"),
        ("m.?zzz.orValue(7)", 7),
        ("m.?a.b[0].orValue(7)", 10),
        ("m[?'zzz'].hasValue()", False),
        ("xs[?9].orValue(0)", 0),
        ("[?m.?zzz, ?m.?none, 1]", [None, 1]),
        ("{?'x': m.?zzz, 'y': 1}.size()", 1),
        ("m.?a.optMap(a, a.b.size()).orValue(0)", 2),
    ],
)
def test_a_member_is_reached(text: str, value: object) -> None:
    assert value == value_of(text, **DATA)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m.zzz", "no such key: 'zzz'"),
        ("m.nome", "no such key: 'nome'; did you mean 'none'?"),
        ("m.a.b.c", "a list has no field 'c'; only maps have fields"),
        ("s.size", "a string has no field 'size'; only maps have fields"),
        ("m.none.x", "a null_type has no field 'x'; only maps have fields"),
        ("xs[3]", "index 3 is out of range: the list has 3 elements"),
        ("xs[-1]", "index -1 is out of range: the list has 3 elements"),
        ("xs[0.5]", "a list index must be integral, not 0.5"),
        ("xs['0']", "a list index must be an int, not string"),
        ("m[1]", "no such key: 1"),
        ("m[null]", "a null_type is never a map key"),
        ("{1.5: 1}", "a map key must be int, uint, bool or string, not double"),
        ("{1: 1, 1u: 2}", "map key 1u is repeated"),
        ("s[0]", "a string cannot be indexed; only lists and maps can"),
        ("has(s.x)", "a string has no field 'x'; only maps have fields"),
        ("nope", "`nope` has no value here"),
    ],
)
def test_what_is_not_there_faults(text: str, message: str) -> None:
    """MWL-126, MWL-127."""
    assert message == fault_of(text, **DATA).message


def test_data_are_returned_by_reference() -> None:
    inner = {"b": [1]}

    assert value_of("m.a", m={"a": inner}) is inner


def test_python_attributes_are_out_of_reach() -> None:
    for text in ("x.__class__", "x.real", "x.append", "s.upper()", "m.keys()"):
        fault_of(text, x=object(), s="a", m={})


def test_a_python_object_in_the_data_is_no_value() -> None:
    assert fault_of("size(x)", x=object()).message == "no such overload: size(Python object)"
    assert "Python object" in fault_of("x == x", x=object()).message
