"""How errors are reported: a message, a place, a caret."""

import pytest

from perdure.expressions.gotemplate import Failure, SyntaxFault, compile_template


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("{{ inputs.a", 1, "this action is not closed: `}}` is missing"),
        ("{{ {{ a }}", 1, "this action is not closed: `}}` is missing"),
        ("a {{ if true }} b", 3, "this if is not closed: `{{ end }}` is missing"),
        ("{{ end }}", 4, "this `end` does not belong to any block"),
        ("{{ else }}", 4, "this `else` does not belong to any block"),
        ("{{ if true }}{{ else }}{{ else }}{{ end }}", 27, "this if has a second else"),
        ("{{ range . }}{{ else }}{{ else }}{{ end }}", 27, "this range has a second else"),
        ("{{ }}", 4, "a value is missing for this action, not `}}`"),
        ("{{ if }}{{ end }}", 7, "a value is missing for this if, not `}}`"),
        ("{{ (1 }}", 7, "this must be `)`, not `}}`"),
        ("{{ 1) }}", 5, "this action must end with `}}`, not `)`"),
        ('{{ "abc }}', 4, "this quoted text is not closed"),
        ("{{ 'ab' }}", 4, "single quotes hold one character; a text is written in double quotes"),
        ('{{ "\\q" }}', 4, "'\\\\q' is not an escape sequence"),
        ("{{ 12x }}", 4, "12x is not a number"),
        ("{{ 99999999999999999999 }}", 4, "an integer has at most 64 bits"),
        ("{{ 1i }}", 4, "complex numbers are not supported"),
        ("{{ steps.my-step.output }}", 12, "unexpected `-`; a name with a dash is written as steps['my-step']"),
        ("{{ @ }}", 4, "unexpected character '@'"),
        ("{{ $x }}", 4, "the variable $x is not declared here"),
        ("{{ $x = 1 }}", 4, "the variable $x is not declared here"),
        ("{{ break }}", 4, "`break` is outside of any range"),
        ("{{ 1 | 2 }}", 8, "stage 2 of this pipeline is not a function"),
        ("{{ 1.5.x }}", 4, "1.5.x is not a number"),
        ('{{ "a".x }}', 4, "a constant has no fields"),
        ("{{ inputs.a[x] }}", 13, "a subscript is a quoted key or a number; use `index` for anything else, not `x`"),
        ("{{ inputs.a[0 }}", 15, "a subscript ends with `]`, not `}}`"),
        ("{{ inputs.a[-1] }}", 13, "a number in a subscript is 0, 1, 2, …, not `-1`"),
        ('{{ "a""b" }}', 7, 'there must be a space, `|` or the end of the action, not `"b"`'),
        ("{{/* never closed }}", 1, "this comment is not closed"),
        ("{{/* c */ 1 }}", 8, "a comment ends with `*/}}` or `*/ -}}`, and stands alone in its braces"),
        ("{{ range $a, $b, $c := . }}{{ end }}", 18, "too many variables are declared in this range"),
    ],
)
def test_a_syntax_error_says_what_and_where(text: str, column: int, message: str) -> None:
    with pytest.raises(SyntaxFault) as raised:
        compile_template(text)

    (finding,) = raised.value.findings
    assert (finding.message, finding.position.line, finding.position.column) == (message, 1, column)


def test_a_syntax_error_points_at_its_place() -> None:
    with pytest.raises(SyntaxFault) as raised:
        compile_template("first\n{{ if eq inputs.n ]3 }}x{{ end }}")

    assert str(raised.value) == (
        "2:19: a value is expected here, not `]`\n"
        " | {{ if eq inputs.n ]3 }}x{{ end }}\n"
        " | ..................^"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expression", "message"),
    [
        ("a {{ upper inputs.n }}", "upper inputs.n", "upper: its argument 1 must be a string, not an integer"),
        ("{{ inputs.s | div 1 0 }}", "div 1 0", "div: it takes 2 arguments, not 3"),
        ('{{ fail "stop here" }}', 'fail "stop here"', "fail: stop here"),
        ("{{ if lt inputs.s 1 }}{{ end }}", "lt inputs.s 1", "lt: a string cannot be ordered against an integer"),
        ("{{ eq inputs.l inputs.l }}", "eq inputs.l inputs.l", "eq: a list cannot be compared; use deepEqual"),
        ("{{ inputs.s.deep.er }}!", "inputs.s.deep.er", "a string has no field 'deep'"),
        ("{{ index inputs.l 9 }}!", "index inputs.l 9", "index: index 9 is out of range: there are 1 elements"),
        ("{{ inputs.s 1 }}", "inputs.s 1", "this is not a function, so it takes no arguments"),
        ("{{ 1 | inputs.s }}", "inputs.s", "this is not a function, so nothing can be piped into it"),
        ("{{ range inputs.s }}{{ end }}", "inputs.s", "range cannot iterate over a string"),
        ("{{ call inputs.s }}", "call inputs.s", "call: a string is not a function"),
        ("{{ nil }}", "nil", "nil is not a command"),
        ("{{ and }}", "and", "it takes at least 1 argument"),
        ("{{ mustFromJson inputs.s }}", "mustFromJson inputs.s", "mustFromJson: this is not JSON"),
        ('{{ mustToDate "2006" "x" }}', 'mustToDate "2006" "x"', "mustToDate: 'x' does not look like '2006'"),
        ('{{ semver "x" }}', 'semver "x"', "semver: 'x' is not a semantic version"),
    ],
)
def test_a_failure_names_the_part_it_is_about(text: str, expression: str, message: str) -> None:
    with pytest.raises(Failure) as raised:
        compile_template(text).render({"inputs": {"n": 1, "s": "text", "l": [1]}})

    assert (raised.value.expression, raised.value.message) == (expression, message)


def test_a_failure_points_at_its_place() -> None:
    with pytest.raises(Failure) as raised:
        compile_template("Dear\n{{ upper inputs.n }}").render({"inputs": {"n": 1}})

    assert str(raised.value) == (
        "2:4: upper: its argument 1 must be a string, not an integer, in `upper inputs.n`\n"
        " | {{ upper inputs.n }}\n"
        " | ...^"
    )  # fmt: skip
