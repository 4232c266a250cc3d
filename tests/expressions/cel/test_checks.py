"""What is reported about an expression without data. None of it prevents the evaluation."""

import pytest

from perdure.expressions.cel import compile_program

NAMES = frozenset({"vars", "step", "a.b.c"})


def findings(text: str) -> list[str]:
    return [f"{problem.position}: {problem.message}" for problem in compile_program(text, NAMES).findings]


@pytest.mark.parametrize(
    "text",
    [
        "vars.x + step.y",
        "a.b.c",
        "[1].map(x, x)",
        "cel.bind(x, 1, x)",
        "optional.of(1).optMap(v, v)",
        "size('a') + 'a'.size()",
        "math.greatest(1, 2, 3, 4, 5)",
        "type(vars) == int",
        "google.protobuf.Timestamp",
        "vars.missing",
    ],
)
def test_nothing_is_said_about_what_may_be_right(text: str) -> None:
    assert findings(text) == []


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("varz.x", ["1:1: `varz` is not in scope; did you mean `vars`?"]),
        ("[1].map(x, x + y)", ["1:16: `y` is not in scope"]),
        ("[1].map(x, x)[0] + x", ["1:20: `x` is not in scope"]),
        ("sise('a')", ["1:1: there is no function `sise`; did you mean `size`?"]),
        ("'a'.startWith('b')", ["1:5: there is no function `startWith`; did you mean `startsWith`?"]),
        ("size(1, 2)", ["1:1: `size` takes 1 arguments, not 2"]),
        ("'a'.substring()", ["1:5: `substring` takes 1 or 2 arguments, not 0"]),
        ("q || r\n&& s", ["1:1: `q` is not in scope", "1:6: `r` is not in scope", "2:4: `s` is not in scope"]),
    ],
)
def test_names_functions_and_arities_are_checked_by_scope(text: str, results: list[str]) -> None:
    """MWL-150: a root out of scope is an unknown name."""
    assert findings(text) == results


def test_a_finding_carries_its_picture() -> None:
    (result,) = compile_program("1 + nope", NAMES).findings

    assert str(result) == "1:5: `nope` is not in scope\n | 1 + nope\n | ....^"


def test_what_was_found_does_not_stop_evaluation() -> None:
    assert compile_program("nope || true", NAMES).evaluate({}) is True
