"""The grammar: what is one expression, and how all problems of a text are reported at once."""

import pytest
from tests.expressions.cel.evaluation import refusal_of, value_of

from perdure.expressions.cel import compile_program


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\f", "\r", "\r\n", " // a comment\n", "//\n//\n"])
def test_blanks_and_comments_may_stand_between_any_tokens(blank: str) -> None:
    tokens = [
        "[",
        "1",
        ",",
        "2",
        "]",
        "[",
        "0",
        "]",
        "+",
        "{",
        "'a'",
        ":",
        "1",
        "}",
        ".",
        "a",
        "==",
        "2",
        "?",
        "7",
        ":",
        "8",
    ]

    assert value_of(blank.join(tokens)) == 7


def test_a_comment_may_end_the_text() -> None:
    assert value_of("1 // one") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 4 - 3", 3),
        ("100 / 10 / 5", 2),
        ("7 % 4 * 2", 6),
        ("1 + 1 == 2 && 2 < 3", True),
        ("true || false && false", True),
        ("!true || true", True),
        ("-2 * -3", 6),
        ("-(-2)", 2),
        ("true ? 1 : false ? 2 : 3", 1),
        ("false ? 1 : false ? 2 : 3", 3),
        ("1 in [1] == true", True),
        ("-9223372036854775808", -(2**63)),
        ("[1, 2,]", [1, 2]),
        ("{'a': 1,}.a", 1),
        ("0xFF + 0x1", 256),
        (".5 + 1e3", 1000.5),
        ("{'in-dash': 3}.`in-dash`", 3),
    ],
)
def test_operators_bind_as_in_the_language_definition(text: str, value: object) -> None:
    assert value == value_of(text)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected an expression"),
        ("1 +", 4, "the expression ends too early"),
        ("(1", 3, "expected `)`, not the end"),
        ("1 2", 3, "unexpected `2`"),
        ("a.", 3, "the expression ends too early"),
        ("a.1", 2, "unexpected `.1`"),
        ("f(1,)", 5, "expected an argument after `,`"),
        ("{'a' 1}", 6, "expected `:`, not `1`"),
        ("a ? b", 6, "expected `:`, not the end"),
        ("for", 1, "`for` is a reserved word"),
        ("a.in", 3, "expected a field name after `.`, not `in`"),
        ("Foo{a: 1}", 4, "message literals are not supported"),
        ("'abc", 1, "this string is not closed"),
        ("a # b", 3, "unexpected character '#'"),
        ("!-a", 2, "`!` and `-` cannot be mixed without parentheses"),
        ("a = b", 3, "unexpected character '='"),
    ],
)
def test_a_syntax_error_says_what_and_where(text: str, column: int, message: str) -> None:
    first = refusal_of(text)[0]

    assert (column, message) == (first.position.column, first.message)


def test_all_problems_are_reported_at_once_in_the_order_of_the_text() -> None:
    findings = refusal_of("[1, , 2] + f(3 4) + '\\q' + 99999999999999999999")

    assert [f"{problem.position}: {problem.message}" for problem in findings] == [
        "1:5: expected an expression, not `,`",
        "1:16: expected `,` or `)`, not `4`",
        "1:22: unknown escape '\\\\q'",
        "1:28: this int does not fit in 64 bits",
    ]


def test_a_finding_prints_with_a_caret() -> None:
    assert str(refusal_of("1\n* )")[0]) == "2:3: expected an expression, not `)`\n | * )\n | ..^"


def test_long_chains_are_not_deep() -> None:
    """Sums and conditions that a program wrote may have thousands of terms."""
    assert value_of("+".join(["1"] * 5000)) == 5000
    assert value_of(" && ".join(["true"] * 5000)) is True


@pytest.mark.parametrize(
    "text", ["(" * 500, "[" * 500, "-" * 500 + "a", "f(" * 500, "true ? 1 : " * 500 + "2", "a" + ".b" * 500]
)
def test_nesting_has_a_limit_with_a_position(text: str) -> None:
    assert "nested" in refusal_of(text)[0].message


def test_nesting_up_to_the_limit_works() -> None:
    assert value_of("(" * 100 + "1" + ")" * 100) == 1


def test_the_length_of_the_text_has_a_limit() -> None:
    assert refusal_of(" " * 100_001)[0].message == "the expression is longer than 100000 characters"


def test_a_program_is_compiled_once() -> None:
    assert compile_program("1 + 1") is compile_program("1 + 1")
