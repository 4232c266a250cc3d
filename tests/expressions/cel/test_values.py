"""CEL values in Python, and how they are bound from outside."""

import pytest
from tests.expressions.cel.evaluation import value_of

from perdure.expressions.cel import CelList, CelMap, Duration, EvaluationFault, Optional, Timestamp, Uint
from perdure.expressions.cel.values import type_name, type_of


def test_a_map_keeps_true_and_one_apart() -> None:
    made = CelMap.of([(1, "one"), (True, "true"), (0, "zero"), (False, "false")])

    assert list(made.pairs()) == [(1, "one"), (True, "true"), (0, "zero"), (False, "false")]
    assert [type(key) for key in made.bare_keys()] == [int, bool, int, bool]


def test_a_map_takes_one_and_one_unsigned_for_the_same_key() -> None:
    made = CelMap.of([(1, "one")])

    with pytest.raises(EvaluationFault, match="map key 1u is repeated"):
        made.put(Uint(1), "again")


@pytest.mark.parametrize("key", [1.5, None, b"x", CelList()])
def test_other_types_are_no_keys(key: object) -> None:
    with pytest.raises(EvaluationFault, match="a map key must be int, uint, bool or string"):
        CelMap().put(key, 1)


def test_an_empty_optional_has_no_value() -> None:
    with pytest.raises(EvaluationFault, match="has no value"):
        _ = Optional(None, has_value=False).value


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null_type"),
        (True, "bool"),
        (1, "int"),
        (Uint(1), "uint"),
        (1.0, "double"),
        ("", "string"),
        (b"", "bytes"),
        ([], "list"),
        (CelList(), "list"),
        ({}, "map"),
        (CelMap(), "map"),
        (Timestamp(0), "google.protobuf.Timestamp"),
        (Duration(0), "google.protobuf.Duration"),
        (Optional(1), "optional_type"),
        (type_of(1), "type"),
    ],
)
def test_every_value_has_a_type(value: object, name: str) -> None:
    assert type_of(value).name == name


def test_a_foreign_object_has_no_type_but_a_name_for_messages() -> None:
    with pytest.raises(EvaluationFault, match="a Python object is not a CEL value"):
        type_of(object())
    assert type_name(object()) == "Python object"


def test_values_that_json_does_not_have_can_be_bound() -> None:
    """Text is for people; a host may hand in times, unsigned numbers and maps with other keys as they are."""
    roots = {"u": Uint(7), "t": Timestamp(0), "d": Duration(10**9), "m": CelMap.of([(1, "one")]), "b": b"x"}

    assert value_of("u + 1u == 8u && t + d == timestamp(1) && m[1.0] == 'one' && b == b'x'", **roots) is True
