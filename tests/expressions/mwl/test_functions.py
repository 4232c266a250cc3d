"""The functions MWL adds (MWL-131 to MWL-134)."""

from typing import Any

import pytest

from perdure.expressions.mwl import ExpressionFault, compile_expression

ROOTS = frozenset({"vars"})


def evaluate(body: str, **variables: Any) -> Any:
    return compile_expression(body, ROOTS).evaluate({"vars": variables})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        ({"\ue000": 1, "😀": 2, "a": 3}, '{"a":3,"😀":2,"\ue000":1}'),
        ([5.0, 1e21, 1e20, 1e-7, 1e-6, 0.1, -0.0], "[5,1e+21,100000000000000000000,1e-7,0.000001,0.1,0]"),
        ([1.5e300, -2.5e-10, 333333333.33333329], "[1.5e+300,-2.5e-10,333333333.3333333]"),
        ([9007199254740993, 123456789012345680000], "[9007199254740992,123456789012345680000]"),
        ('é\u2028"\\/\b\n\x1f\x7f', '"é\u2028\\"\\\\/\\b\\n\\u001f\x7f"'),
        ({}, "{}"),
        ([[], {}], "[[],{}]"),
    ],
)
def test_to_json_is_canonical(value: Any, text: str) -> None:
    """MWL-131: RFC 8785."""
    assert evaluate("toJson(vars.v)", v=value) == text


def test_to_json_takes_what_expressions_make() -> None:
    assert evaluate("toJson({'b': [1, 2u, 3.0], 'a': vars.v})", v={"x": 1}) == '{"a":{"x":1},"b":[1,2,3]}'


@pytest.mark.parametrize("body", ["toJson(b'x')", "toJson([9007199254740993])", "toJson({1: 2})", "toJson(1.0 / 0.0)"])
def test_to_json_of_an_unrepresentable_value_faults(body: str) -> None:
    with pytest.raises(ExpressionFault) as raised:
        evaluate(body)

    assert raised.value.code == "System.ExpressionEvaluationError"


def test_from_json_reads_numbers_as_doubles() -> None:
    """MWL-132."""
    assert evaluate("fromJson(vars.t).a[1] + 1.0", t='{"a": [1, 2]}') == 3
    assert evaluate("fromJson(toJson(vars.v)) == vars.v", v={"a": [1, {"b": None}]}) is True


@pytest.mark.parametrize("text", ["", "{", "[1,]", "NaN", "1e999", "'a'", '"\\ud800"', "[" * 100_000, "01", "1 2"])
def test_from_json_refuses_malformed_text(text: str) -> None:
    with pytest.raises(ExpressionFault) as raised:
        evaluate("fromJson(vars.t)", t=text)

    assert raised.value.code == "System.ExpressionEvaluationError"


@pytest.mark.parametrize(
    ("span", "text"),
    [
        ("26h", "PT26H"),
        ("90s", "PT1M30S"),
        ("0.5s", "PT0.5S"),
        ("0", "PT0S"),
        ("-1h1s", "-PT1H1S"),
        ("1h0.000000001s", "PT1H0.000000001S"),
    ],
)
def test_durations_to_iso_8601(span: str, text: str) -> None:
    """MWL-133."""
    assert evaluate("durationToIso8601(duration(vars.d))", d=span) == text


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("P1DT1H", "90000s"),
        ("PT0.3S", "0.3s"),
        ("PT1,5H", "5400s"),
        ("P0.5D", "43200s"),
        ("P2W", "1209600s"),
        ("P1Y", "31536000s"),
        ("P1M", "2592000s"),
        ("PT1M", "60s"),
        ("-PT5S", "-5s"),
        ("PT0S", "0s"),
        ("P1W2DT3H4M5.678S", "788645.678s"),
    ],
)
def test_durations_from_iso_8601(text: str, span: str) -> None:
    """MWL-088, MWL-134, O-05."""
    assert evaluate("string(durationFromIso8601(vars.t))", t=text) == span


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1H",
        "PT1.5H1S",
        "P1H",
        "PT1D",
        "PT-1S",
        "PT1S1M",
        "P1.S",
        "+PT1S",
        "PT1S ",
        "pt1s",
        "P99999999Y",
    ],
)
def test_a_malformed_iso_8601_duration_faults(text: str) -> None:
    """MWL-088: a fraction only on the smallest unit; at least one component, and one after `T`."""
    with pytest.raises(ExpressionFault) as raised:
        evaluate("durationFromIso8601(vars.t)", t=text)

    assert raised.value.code == "System.ExpressionEvaluationError"
