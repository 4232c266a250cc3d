"""Comprehensions and the other macros: variables, both arities, lists and maps, and misuse."""

import pytest
from tests.expressions.cel.evaluation import fault_of, refusal_of, value_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1, 2, 3].all(x, x > 0)", True),
        ("[].all(x, false)", True),
        ("[].exists(x, true)", False),
        ("[1, 2, 2].exists_one(x, x == 2)", False),
        ("[1, 2, 3].map(x, x * 2)", [2, 4, 6]),
        ("[1, 2, 3].map(x, x > 1, x * 2)", [4, 6]),
        ("[1, 2, 3].filter(x, x != 2)", [1, 3]),
        ("{'b': 1, 'a': 2}.map(k, k)", ["b", "a"]),
        ("{'b': 1, 'a': 2}.filter(k, k == 'a')", ["a"]),
        ("{'b': 1, 'a': 2}.all(k, v, v > 0 && k != '')", True),
        ("[5, 6].exists(i, v, i == 1 && v == 6)", True),
        ("[5, 6].transformList(i, v, i * v)", [0, 6]),
        ("{'b': 1, 'a': 2}.transformList(k, v, k + string(v))", ["b1", "a2"]),
        ("{'b': 1}.transformMap(k, v, v + 1)", {"b": 2}),
        ("['x', 'y'].transformMapEntry(i, v, {v: i})", {"x": 0, "y": 1}),
        ("['x', 'y'].transformMapEntry(i, v, i > 0, {v: i})", {"y": 1}),
        ("[1, 2].map(x, [3, 4].map(y, x * y))", [[3, 4], [6, 8]]),
        ("[1].map(x, [2].map(x, x))", [[2]]),
        ("cel.bind(x, 2, x * x)", 4),
        ("cel.bind(x, 1, cel.bind(x, x + 1, x) + x)", 3),
        ("[3, 1, 2].sortBy(x, -x)", [3, 2, 1]),
        ("[{'n': 'b'}, {'n': 'a'}].sortBy(r, r.n).map(r, r.n)", ["a", "b"]),
        ("optional.of(2).optMap(x, x + 1).value()", 3),
        ("optional.of({'a': 1}).optFlatMap(x, x.?b).hasValue()", False),
    ],
)
def test_a_macro_gives(text: str, value: object) -> None:
    assert value_of(text) == value


def test_a_variable_hides_a_root_only_inside_its_macro() -> None:
    assert value_of("[1].map(x, x)[0] + x", x=41) == 42
    assert value_of("[1].map(x, .x)[0]", x=41) == 41


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("has(a)", 5, "has() takes a field selection such as has(a.b)"),
        ("has(a[0])", 5, "has() takes a field selection such as has(a.b)"),
        ("[1].map(1, 2)", 9, "expected a simple variable name here"),
        ("[1].filter(a.b, true)", 12, "expected a simple variable name here"),
        ("[1].all(x, x, true)", 12, "the variables of all() must differ"),
        ("cel.bind('x', 1, 2)", 10, "expected a simple variable name here"),
    ],
)
def test_misuse_of_a_macro_is_found_by_the_parser(text: str, column: int, message: str) -> None:
    first = refusal_of(text)[0]

    assert (first.position.column, first.message) == (column, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("'abc'.map(x, x)", "expected a list or a map, not string"),
        ("1.all(x, true)", "expected a list or a map, not int"),
        ("[1, 'a'].sortBy(x, x)", "int and string have no order"),
        ("[1].transformMapEntry(i, v, v)", "expected a map, not int"),
        ("[1, 2].transformMapEntry(i, v, {'k': v})", "map key 'k' is repeated"),
        ("1.optMap(x, x)", "expected an optional, not int"),
        ("[?1]", "expected an optional, not int"),
    ],
)
def test_a_macro_on_the_wrong_type_faults(text: str, message: str) -> None:
    assert fault_of(text).message == message
